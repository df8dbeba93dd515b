//! Fires slots: the step to the next slot, the jobs and the history, in one transaction.
//!
//! The step locks the schedule's row, so whoever comes second waits and finds that the slot has gone.
//! Jobs go in as any others do. Refuses to fire what was computed of another version, what another
//! node has fired, and what has not come yet by the database's clock.

use std::collections::{BTreeSet, HashSet};

use jiff::Timestamp;
use tidemill_core::schedule::Overlap;
use tidemill_core::{JobId, NewJob};
use uuid::Uuid;

use crate::error::Result;
use crate::postgres::cancel::{Search, cancel_in};
use crate::postgres::connect::Conn;
use crate::postgres::enqueue::{is_plain, write_new};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{At, Statement, sql};
use crate::postgres::unique::Depth;
use crate::postgres::{Shared, unique};
use crate::request::Receipt;
use crate::schedule::{
    CALLED_OFF, FireAnswer, FireRequest, Fired, HISTORY_MAX, How, LastJob, SlotJobs, What,
};
use crate::wake::Hint;

const ADVANCE: Statement =
    sql!("advance_schedule", TIMESTAMPTZ, TEXT, INT8, TIMESTAMPTZ, TIMESTAMPTZ);
const LOCK: Statement = sql!("lock_schedule", TEXT, INT8);
const FIRED: Statement = sql!("select_fired", TEXT, TIMESTAMPTZ_ARRAY);
const UNFINISHED: Statement = sql!("is_unfinished", UUID);
const ENTER: Statement =
    sql!("insert_fire", TIMESTAMPTZ, TEXT, TIMESTAMPTZ, TIMESTAMPTZ, INT8, INT2, INT2, UUID, INT4,);
const POINT: Statement = sql!("point_schedule", TEXT, TIMESTAMPTZ, UUID);
const TRIM: Statement = sql!("trim_fires", TEXT, INT8);

/// Fires slots, or does nothing.
pub(crate) async fn fire(shared: &Shared, ask: &FireRequest) -> Result<FireAnswer> {
    // A slot that fired although its answer was lost is found to have gone.
    let mut tries = if ask.how == How::Slot { Tries::resend() } else { Tries::once() };
    let done = loop {
        match fire_once(shared, ask).await {
            Ok(done) => break done,
            Err(fault) => tries.again(fault).await?,
        }
    };
    let Some(done) = done else { return Ok(FireAnswer::Changed) };
    for search in done.called_off {
        search.tell(shared);
    }
    for queue in done.queues {
        shared.hint(Hint::Ready { queue });
    }
    Ok(FireAnswer::Done(done.answers))
}

/// What a firing came to, and what is told of it.
#[derive(Default)]
struct Done {
    answers: Vec<Fired>,
    called_off: Vec<Search>,
    queues: BTreeSet<String>,
}

async fn fire_once(shared: &Shared, ask: &FireRequest) -> Result<Option<Done>, Fault> {
    let jobs: Vec<&NewJob> = ask.slots.iter().flat_map(|slot| &slot.jobs).collect();
    let conn = shared.db.begin_for(&jobs).await?;
    match write(shared, &conn, ask).await {
        Ok(Some(done)) => conn.commit().await.map(|()| Some(done)),
        Ok(None) => conn.rollback().await.map(|()| None),
        Err(fault) => {
            conn.rollback().await?;
            Err(fault)
        }
    }
}

async fn write(shared: &Shared, conn: &Conn<'_>, ask: &FireRequest) -> Result<Option<Done>, Fault> {
    let Some(LastJob(mut last_job)) = begin(shared, conn, ask).await? else { return Ok(None) };
    if let Some(missed) = ask.missed {
        let last = (missed.last > missed.first).then_some(missed.last);
        let entry =
            Entry { until: last, slots: missed.slots as i64, ..Entry::of_missed(missed.first) };
        entry.write(shared, conn, ask).await?;
    }
    let known = known(conn, ask).await?;
    let mut done = Done::default();
    for slot in &ask.slots {
        let fired = if known.contains(&slot.slot) {
            Fired { slot: slot.slot, what: What::Known, job: None, jobs: 0 }
        } else {
            fire_slot(shared, conn, ask, slot, last_job, &mut done).await?
        };
        if fired.what == What::Fired && ask.how.minds_overlap() {
            last_job = fired.job;
        }
        if fired.what != What::Known {
            Entry::of(&fired).write(shared, conn, ask).await?;
        }
        done.answers.push(fired);
    }
    let last_slot = ask.last_slot().map(At);
    conn.query(&POINT, &[&ask.name, &last_slot, &last_job.map(|job| job.0)]).await?;
    conn.query(&TRIM, &[&ask.name, &(HISTORY_MAX as i64)]).await?;
    Ok(Some(done))
}

/// Steps to the next slot, if it is to be; answers the last job. `None`: it is not as it was.
async fn begin(
    shared: &Shared,
    conn: &Conn<'_>,
    ask: &FireRequest,
) -> Result<Option<LastJob>, Fault> {
    let rows = match ask.advance {
        Some(step) => {
            let now = shared.db.manual_now();
            let (from, to) = (At(step.from), step.to.map(At));
            conn.query(&ADVANCE, &[&now, &ask.name, &ask.version, &from, &to]).await?
        }
        None => conn.query(&LOCK, &[&ask.name, &ask.version]).await?,
    };
    Ok(rows.first().map(|row| LastJob(row.get::<_, Option<Uuid>>(0).map(JobId))))
}

/// Those slots that have fired before, if that matters.
async fn known(conn: &Conn<'_>, ask: &FireRequest) -> Result<HashSet<Timestamp>, Fault> {
    if !ask.how.is_once() {
        return Ok(HashSet::new());
    }
    let slots: Vec<At> = ask.slots.iter().map(|slot| At(slot.slot)).collect();
    let rows = conn.query(&FIRED, &[&ask.name, &slots]).await?;
    Ok(rows.iter().map(|row| row.get::<_, At>(0).0).collect())
}

async fn fire_slot(
    shared: &Shared,
    conn: &Conn<'_>,
    ask: &FireRequest,
    slot: &SlotJobs,
    last_job: Option<JobId>,
    done: &mut Done,
) -> Result<Fired, Fault> {
    if let Some(last) = last_job.filter(|_| ask.how.minds_overlap()) {
        match ask.overlap {
            Overlap::Skip if !conn.query(&UNFINISHED, &[&last.0]).await?.is_empty() => {
                return Ok(Fired {
                    slot: slot.slot,
                    what: What::Skipped,
                    job: Some(last),
                    jobs: 0,
                });
            }
            Overlap::CancelPrevious => {
                done.called_off.push(cancel_in(shared, conn, &[last], CALLED_OFF).await?);
            }
            Overlap::Allow | Overlap::Skip | Overlap::QueueOne => {}
        }
    }
    let receipts = enqueue(shared, conn, &slot.jobs).await?;
    done.queues.extend(slot.jobs.iter().map(|job| job.queue.clone()));
    let jobs = receipts.iter().filter(|receipt| receipt.is_new()).count() as u32;
    let job = receipts.first().and_then(Receipt::known);
    Ok(Fired { slot: slot.slot, what: What::of(&receipts, slot, ask.overlap), job, jobs })
}

/// Enqueues in this transaction.
async fn enqueue(shared: &Shared, conn: &Conn<'_>, jobs: &[NewJob]) -> Result<Vec<Receipt>, Fault> {
    let all: Vec<&NewJob> = jobs.iter().collect();
    if !jobs.iter().all(is_plain) {
        return unique::put_all(conn, shared.db.manual_now(), &all, Depth::Free).await;
    }
    write_new(conn, &shared.db, &all, Depth::Free).await?;
    Ok(jobs.iter().map(|job| Receipt::Enqueued { id: job.id }).collect())
}

/// An entry of the history.
struct Entry {
    slot: Timestamp,
    until: Option<Timestamp>,
    slots: i64,
    what: What,
    job: Option<JobId>,
    jobs: i32,
}

impl Entry {
    fn of(fired: &Fired) -> Self {
        let Fired { slot, what, job, jobs } = *fired;
        Self { slot, until: None, slots: 1, what, job, jobs: jobs as i32 }
    }

    fn of_missed(slot: Timestamp) -> Self {
        Self { slot, until: None, slots: 1, what: What::Missed, job: None, jobs: 0 }
    }

    async fn write(
        &self,
        shared: &Shared,
        conn: &Conn<'_>,
        ask: &FireRequest,
    ) -> Result<(), Fault> {
        conn.query(
            &ENTER,
            &[
                &shared.db.manual_now(),
                &ask.name,
                &At(self.slot),
                &self.until.map(At),
                &self.slots,
                &self.what.number(),
                &ask.how.number(),
                &self.job.map(|job| job.0),
                &self.jobs,
            ],
        )
        .await?;
        Ok(())
    }
}
