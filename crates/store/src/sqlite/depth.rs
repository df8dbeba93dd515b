//! Depth: counted in memory while a transaction runs, written once before it commits.
//!
//! Whoever makes a job wait, or lets it go, says so here (`came`, `went`), in the same transaction; plain
//! SQL does so by the triggers of the inbox. Both end in the view `tidemill_count`. So the counters are
//! exact after every commit, and cost one write per queue and transaction, not one per job.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, Row, params};
use tidemill_core::depth::{RATE_WINDOW, Sample};
use tidemill_core::why::TenantDepth;

use crate::error::Result;
use crate::sqlite::rows::{count, time, time_opt};
use crate::sqlite::writer::Turn;
use crate::view::DepthView;

const SAMPLE_EVERY_US: i64 = 10_000_000;
const STILL_US: i64 = 600_000_000;

/// What came and went in a transaction that is not committed yet.
#[derive(Debug, Default)]
pub(super) struct Depths {
    /// By queue, and by tenant ('' for none).
    counts: BTreeMap<String, BTreeMap<String, Count>>,
    /// What is to be told once it is committed.
    news: DepthNews,
}

#[derive(Debug, Default)]
struct Count {
    came: i64,
    went: i64,
}

/// What others may wait for.
#[derive(Debug, Default)]
pub(super) struct DepthNews {
    /// Queues that jobs left.
    pub went: BTreeSet<String>,
    /// Queues that crossed a watermark.
    pub crossed: Vec<String>,
}

impl Depths {
    /// Jobs wait in a queue that did not before.
    pub fn came(&mut self, queue: &str, tenant: Option<&str>, jobs: usize) {
        self.count(queue, tenant, |count| count.came += jobs as i64);
    }

    /// Jobs do not wait in a queue any more.
    pub fn went(&mut self, queue: &str, tenant: Option<&str>, jobs: usize) {
        self.count(queue, tenant, |count| count.went += jobs as i64);
    }

    fn count(&mut self, queue: &str, tenant: Option<&str>, change: impl FnOnce(&mut Count)) {
        let tenant = tenant.unwrap_or_default();
        if !self.counts.contains_key(queue) {
            self.counts.insert(queue.to_owned(), BTreeMap::new());
        }
        let Some(tenants) = self.counts.get_mut(queue) else { return };
        match tenants.get_mut(tenant) {
            Some(count) => change(count),
            None => change(tenants.entry(tenant.to_owned()).or_default()),
        }
    }

    /// Writes what was counted, and crosses the watermarks that were reached by it.
    pub fn write(&mut self, conn: &Connection, now: i64) -> Result<()> {
        if self.counts.is_empty() {
            return Ok(());
        }
        let mut insert = conn.prepare_cached(include_str!("sql/insert_count.sql"))?;
        let is_watched = is_watched(conn)?;
        for (queue, tenants) in std::mem::take(&mut self.counts) {
            for (tenant, Count { came, went }) in &tenants {
                insert.execute(params![queue, tenant, came, went, now])?;
            }
            if is_watched {
                self.cross(conn, now, Some(&queue))?;
            }
            if tenants.values().any(|count| count.went > 0) {
                self.news.went.insert(queue);
            }
        }
        Ok(())
    }

    fn cross(&mut self, conn: &Connection, now: i64, queue: Option<&str>) -> Result<()> {
        let mut update = conn.prepare_cached(include_str!("sql/cross_watermarks.sql"))?;
        let mut rows = update.query(params![now, queue])?;
        while let Some(row) = rows.next()? {
            let (queue, is_above, depth): (String, bool, i64) =
                (row.get(0)?, row.get(1)?, row.get(2)?);
            tracing::info!(queue, is_above, depth, "a queue crossed a watermark");
            self.news.crossed.push(queue);
        }
        Ok(())
    }

    /// The transaction is undone.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// The transaction is committed: what there is to tell.
    pub fn take_news(&mut self) -> DepthNews {
        std::mem::take(&mut self.news)
    }
}

fn is_watched(conn: &Connection) -> Result<bool> {
    let mut select = conn.prepare_cached(include_str!("sql/is_watched.sql"))?;
    Ok(select.query_one([], |row| row.get(0))?)
}

/// Takes samples, and crosses watermarks that plain SQL reached or that rules have moved.
pub(super) fn tend(turn: &mut Turn<'_>) -> Result<()> {
    let (conn, now) = (turn.conn, turn.now);
    turn.depths.write(conn, now)?;
    let mut is_due = conn.prepare_cached(include_str!("sql/is_sample_due.sql"))?;
    if is_due.query_one([now - SAMPLE_EVERY_US], |row| row.get(0))? {
        conn.prepare_cached(include_str!("sql/insert_samples.sql"))?.execute([now])?;
        let mut still = conn.prepare_cached(include_str!("sql/delete_still_depths.sql"))?;
        still.execute([now - STILL_US])?;
        let mut old = conn.prepare_cached(include_str!("sql/delete_samples.sql"))?;
        old.execute([now - RATE_WINDOW.as_micros() as i64])?;
    }
    if is_watched(conn)? {
        turn.depths.cross(conn, now, None)?;
    }
    Ok(())
}

/// What these queues have counted, in their order; without any, those above their high watermark.
pub(super) fn depths(conn: &Connection, now: i64, queues: &[String]) -> Result<Vec<DepthView>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_depth.sql"))?;
    let mut select_tenants = conn.prepare_cached(include_str!("sql/select_tenant_depths.sql"))?;
    let above: Vec<String>;
    let queues = if queues.is_empty() {
        let mut select = conn.prepare_cached(include_str!("sql/select_above.sql"))?;
        above = select.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        &above
    } else {
        queues
    };
    let mut views = Vec::with_capacity(queues.len());
    for queue in queues {
        let tenants = select_tenants.query_map([queue], |row| {
            Ok(TenantDepth { tenant: row.get(0)?, depth: count::<i64>(row, 1)? })
        })?;
        let tenants = tenants.collect::<rusqlite::Result<_>>()?;
        views.push(select.query_one(params![queue, now], |row| {
            Ok(DepthView {
                queue: queue.clone(),
                now: Sample {
                    at: time(now),
                    came: count::<i64>(row, 0)?,
                    went: count::<i64>(row, 1)?,
                },
                before: sample(row, 3)?,
                above_since: time_opt(row, 2)?,
                tenants,
            })
        })?);
    }
    Ok(views)
}

/// Reads a sample of three columns, from this one on.
pub(super) fn sample(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Sample>> {
    let Some(at) = time_opt(row, column)? else { return Ok(None) };
    let (came, went) = (count::<i64>(row, column + 1)?, count::<i64>(row, column + 2)?);
    Ok(Some(Sample { at, came, went }))
}
