//! Bounds: what becomes of jobs for which their queue may have no room.
//!
//! The policies themselves are in SQL (the view `tidemill_room`), so that plain SQL and the library share
//! them. Here is what must be judged for a whole batch: that it goes to one queue or the other, and that
//! it could fit at all. Refuses a batch wholly or not at all.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Row, params};
use tidemill_core::NewJob;
use tidemill_core::depth::{Rates, Sample, retry_after};

use crate::error::{Error, Result};
use crate::full::Full;
use crate::request::Receipt;
use crate::sqlite::adapter;
use crate::sqlite::depth::sample;
use crate::sqlite::enqueue::{enqueue, is_plain};
use crate::sqlite::ready;
use crate::sqlite::rows::{count, time};
use crate::sqlite::writer::Turn;

/// What the trigger says of a queue that is full.
pub(super) const FULL: &str = "tidemill: queue_full";

/// The bound of a queue and what it has counted.
#[derive(Debug)]
pub(super) struct Bound {
    pub depth_max: u64,
    /// Whether it makes room by dropping.
    pub drops: bool,
    pub wait_ms: Option<u64>,
    pub divert: Option<String>,
    pub now: Sample,
    pub before: Option<Sample>,
}

impl Bound {
    /// The bound of a queue, if it has one. `now` in microseconds.
    pub fn find(conn: &Connection, queue: &str, now: i64) -> Result<Option<Self>> {
        let mut select = conn.prepare_cached(include_str!("sql/select_bound.sql"))?;
        Ok(select.query_one(params![queue, now], |row| Self::of_row(row, now)).optional()?)
    }

    fn of_row(row: &Row<'_>, now: i64) -> rusqlite::Result<Self> {
        Ok(Self {
            depth_max: count::<i64>(row, 0)?,
            drops: row.get_ref(1)?.as_str_or_null()? == Some("drop_oldest"),
            wait_ms: row.get::<_, Option<i64>>(2)?.map(|ms| ms as u64),
            divert: row.get(3)?,
            now: Sample { at: time(now), came: count::<i64>(row, 4)?, went: count::<i64>(row, 5)? },
            before: sample(row, 6)?,
        })
    }

    fn depth(&self) -> u64 {
        self.now.came.saturating_sub(self.now.went)
    }

    /// Whether so many more fit.
    pub fn fits(&self, jobs: u64) -> bool {
        self.depth() + jobs <= self.depth_max
    }

    /// The refusal of so many jobs.
    pub fn full(&self, queue: &str, jobs: u64) -> Full {
        let excess = (self.depth() + jobs).saturating_sub(self.depth_max);
        let after = retry_after(excess, Rates::between(self.before, self.now));
        Full {
            queue: queue.to_owned(),
            depth: self.depth(),
            depth_max: self.depth_max,
            jobs,
            wait_ms: self.wait_ms,
            retry_after_ms: after.as_millis() as u64,
            from: None,
        }
    }
}

/// Enqueues what somebody asks for; answers in the order of the jobs. A refusal that is known before
/// anything is written is an answer, so that it costs others in the same transaction nothing.
pub(super) fn enqueue_bounded(
    turn: &mut Turn<'_>,
    jobs: &[NewJob],
) -> Result<Result<Vec<Receipt>, Full>> {
    let (conn, now) = (turn.conn, turn.now);
    if !is_any(conn)? {
        return enqueue(turn, jobs).map(Ok);
    }
    // What others of this transaction counted must be seen by SQL.
    turn.depths.write(conn, now)?;
    let judged = judge(conn, now, jobs)?;
    if let Some(full) = judged.refused {
        return Ok(Err(full));
    }
    if judged.fits {
        return enqueue(turn, &judged.jobs).map(Ok);
    }
    let receipts = adapter::enqueue(conn, Some(now), &judged.jobs, true)
        .map_err(|error| judged.explain(error))?;
    for (job, receipt) in judged.jobs.iter().zip(&receipts) {
        if matches!(receipt, Receipt::Enqueued { .. } | Receipt::Replaced { .. }) {
            turn.news.ready(&job.queue);
        }
    }
    Ok(Ok(receipts))
}

/// The first of these queues that has no room for so many jobs of flows, of which nothing is diverted, and which drop
/// nothing.
pub(super) fn lacking(turn: &mut Turn<'_>, jobs: &BTreeMap<String, u64>) -> Result<Option<Full>> {
    let (conn, now) = (turn.conn, turn.now);
    if !is_any(conn)? {
        return Ok(None);
    }
    turn.depths.write(conn, now)?;
    for (queue, jobs) in jobs {
        let bound = Bound::find(conn, queue, now)?.filter(|bound| !bound.drops);
        if let Some(bound) = bound.filter(|bound| !bound.fits(*jobs)) {
            return Ok(Some(bound.full(queue, *jobs)));
        }
    }
    Ok(None)
}

/// What is to be done with a batch.
pub(super) struct Judged<'a> {
    /// The jobs, those of full queues diverted.
    pub jobs: Cow<'a, [NewJob]>,
    /// They all fit, whatever comes of their unique keys.
    pub fits: bool,
    /// They do not fit, and nothing could make them.
    pub refused: Option<Full>,
    /// The first queue that has no room for them all.
    pub tight: Option<Full>,
}

impl Judged<'_> {
    /// Names the queue that refused: by what it was before they were written.
    pub fn explain(&self, error: Error) -> Error {
        let tight = self.tight.clone().filter(|_| error.to_string().contains(FULL));
        tight.map_or(error, Error::QueueFull)
    }
}

/// Looks at every queue of a batch.
pub(super) fn judge<'a>(conn: &Connection, now: i64, jobs: &'a [NewJob]) -> Result<Judged<'a>> {
    let mut judged = Judged { jobs: Cow::Borrowed(jobs), fits: true, refused: None, tight: None };
    for (queue, jobs) in by_queue(&judged.jobs) {
        let stays = judged.jobs.iter().any(|job| job.queue == queue && job.options.stays);
        if let Some(bound) = Bound::find(conn, &queue, now)?
            && !bound.fits(jobs)
            && !stays
            && let Some(other) = bound.divert
        {
            // Jobs that take turns stay in their lines.
            let is_meant = |job: &&mut NewJob| job.queue == queue && job.line().is_none();
            let diverted = judged.jobs.to_mut().iter_mut().filter(is_meant);
            diverted.for_each(|job| job.queue.clone_from(&other));
        }
    }
    let is_plain = judged.jobs.iter().all(is_plain);
    for (queue, jobs) in by_queue(&judged.jobs) {
        let Some(bound) = Bound::find(conn, &queue, now)? else { continue };
        let fits = bound.fits(jobs);
        judged.fits &= fits;
        if !fits {
            judged.tight.get_or_insert_with(|| bound.full(&queue, jobs));
        }
        // Of jobs with unique keys some may be duplicates, and those sent again were written before.
        if (jobs > bound.depth_max && is_plain) || (!fits && is_plain && !bound.drops) {
            let sent_before = judged.jobs.iter().any(|job| is_known(conn, job).unwrap_or(true));
            if !sent_before {
                judged.refused = Some(bound.full(&queue, jobs));
            }
        }
    }
    Ok(judged)
}

/// How many jobs of a batch each queue gets.
pub(super) fn by_queue(jobs: &[NewJob]) -> BTreeMap<String, u64> {
    let mut queues: BTreeMap<String, u64> = BTreeMap::new();
    for job in jobs {
        match queues.get_mut(&job.queue) {
            Some(jobs) => *jobs += 1,
            None => drop(queues.insert(job.queue.clone(), 1)),
        }
    }
    queues
}

/// Whether any queue has a bound.
pub(super) fn is_any(conn: &Connection) -> Result<bool> {
    let mut select = conn.prepare_cached(include_str!("sql/is_bounded.sql"))?;
    Ok(select.query_one([], |row| row.get(0))?)
}

fn is_known(conn: &Connection, job: &NewJob) -> Result<bool> {
    Ok(ready::body(conn, job.id)?.is_some())
}
