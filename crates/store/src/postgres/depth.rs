//! Depth: what queues have counted, and who waits for room in them.
//!
//! The counting itself is done by triggers (`migrations/0004_depth.sql`): whatever changes `ready` is
//! counted in its own transaction. Here it is read, folded, and told when a watermark is crossed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidemill_core::depth::Sample;
use tidemill_core::why::TenantDepth;
use tokio_postgres::Row;

use crate::error::Result;
use crate::postgres::Shared;
use crate::postgres::connect::{Db, unnamed};
use crate::postgres::statement::{At, Statement, sql};
use crate::view::DepthView;
use crate::wake::Hint;

const TEND: Statement = sql!("tend_depth", TIMESTAMPTZ, BOOL);
const DEPTH: Statement = sql!("select_depth", TIMESTAMPTZ, TEXT_ARRAY);
const ABOVE: Statement = sql!("select_above");
const TENANTS: Statement = sql!("select_tenant_depths", TEXT);
const VACUUM: Statement = sql!("vacuum_depth");

/// For so long a queue is known to have a bound, once an enqueue was told.
const BOUNDED_FOR: Duration = Duration::from_secs(5);
/// For so long it is not looked at again whether a queue has one: rules hold within a second. The look costs a
/// lone enqueue 10 µs of 65.
const FREE_FOR: Duration = Duration::from_millis(900);
const FREE_MAX: usize = 10_000;
/// A process that fills bounded queues tends them this often: nobody else may be there to do it.
const TEND_EVERY: Duration = Duration::from_millis(500);
/// Deltas come and go by the thousand a second, and the server looks for their room once a minute.
const VACUUM_EVERY: Duration = Duration::from_secs(10);

/// What this process knows of bounds and of the last time it tended them.
#[derive(Default)]
pub(crate) struct Bounds(Mutex<Known>);

#[derive(Default)]
struct Known {
    bounded: HashMap<String, Instant>,
    free: HashMap<String, Instant>,
    tended: Option<Instant>,
    vacuumed: Option<Instant>,
}

impl Bounds {
    /// These queues, or some of them, have a bound.
    pub fn learn<'a>(&self, queues: impl Iterator<Item = &'a str>) {
        let (mut known, now) = (self.lock(), Instant::now());
        known.bounded.retain(|_, until| *until > now);
        known.bounded.extend(queues.map(|queue| (queue.to_owned(), now + BOUNDED_FOR)));
    }

    /// Whether one of these is known to have a bound. If not, the statement itself finds out.
    pub fn include<'a>(&self, mut queues: impl Iterator<Item = &'a str>) -> bool {
        let (known, now) = (self.lock(), Instant::now());
        let is_known = |queue| known.bounded.get(queue).is_some_and(|until| *until > now);
        !known.bounded.is_empty() && queues.any(is_known)
    }

    /// These queues have just been seen to have no bound.
    pub fn learn_free<'a>(&self, queues: impl Iterator<Item = &'a str>) {
        let (mut known, now) = (self.lock(), Instant::now());
        if known.free.len() >= FREE_MAX {
            known.free.clear();
        }
        known.free.extend(queues.map(|queue| (queue.to_owned(), now + FREE_FOR)));
    }

    /// Whether all of these were seen to have no bound, less than a second ago.
    pub fn are_free<'a>(&self, mut queues: impl Iterator<Item = &'a str>) -> bool {
        let (known, now) = (self.lock(), Instant::now());
        queues.all(|queue| known.free.get(queue).is_some_and(|until| *until > now))
    }

    /// Rules have changed.
    pub fn forget(&self) {
        self.lock().free.clear();
    }

    fn is_due(&self, last: fn(&mut Known) -> &mut Option<Instant>, every: Duration) -> bool {
        let mut known = self.lock();
        let (last, now) = (last(&mut known), Instant::now());
        let is_due = last.is_none_or(|last| now - last >= every);
        if is_due {
            *last = Some(now);
        }
        is_due
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What these queues have counted, in their order; tends all.
pub(crate) async fn depths(shared: &Shared, queues: &[String]) -> Result<Vec<DepthView>> {
    tend(shared, true).await?;
    let db = &shared.db;
    let above: Vec<String>;
    let queues = if queues.is_empty() {
        above = db.read(&ABOVE, &[]).await?.iter().map(|row| row.get(0)).collect();
        &above
    } else {
        queues
    };
    if queues.is_empty() {
        return Ok(Vec::new());
    }
    let rows = db.read(&DEPTH, &[&db.manual_now(), &queues]).await?;
    let mut views = Vec::with_capacity(queues.len());
    for (queue, row) in queues.iter().zip(&rows) {
        views.push(view(queue, row, tenants(db, queue).await?));
    }
    Ok(views)
}

fn view(queue: &str, row: &Row, tenants: Vec<TenantDepth>) -> DepthView {
    let count = |at: usize| row.get::<_, i64>(at).max(0) as u64;
    let before = row.get::<_, Option<At>>(4);
    DepthView {
        queue: queue.to_owned(),
        now: Sample { at: row.get::<_, At>(0).0, came: count(1), went: count(2) },
        before: before.map(|at| Sample { at: at.0, came: count(5), went: count(6) }),
        above_since: row.get::<_, Option<At>>(3).map(|at| at.0),
        tenants,
    }
}

async fn tenants(db: &Db, queue: &str) -> Result<Vec<TenantDepth>> {
    let rows = db.read(&TENANTS, &[&queue]).await?;
    let tenant =
        |row: &Row| TenantDepth { tenant: row.get(0), depth: row.get::<_, i64>(1).max(0) as u64 };
    Ok(rows.iter().map(tenant).collect())
}

/// Folds what was counted, and tells who crossed a watermark. Who does not wait leaves it to another who is at it.
async fn tend(shared: &Shared, waits: bool) -> Result<()> {
    let db = &shared.db;
    for row in db.read(&TEND, &[&db.manual_now(), &waits]).await? {
        let (queue, is_above, depth): (String, bool, i64) = (row.get(0), row.get(1), row.get(2));
        tracing::info!(queue, is_above, depth, "a queue crossed a watermark");
        shared.hint(Hint::Watermark { queue });
    }
    if shared.bounds.is_due(|known| &mut known.vacuumed, VACUUM_EVERY) {
        let client = shared.beats.client(db).await;
        // One that cannot be done is done by the server, in a minute.
        if let Ok(client) = client {
            let _ = unnamed(&client, &VACUUM, &[]).await;
        }
    }
    Ok(())
}

/// Tends beside an enqueue into a bounded queue, now and then: the caller must not wait for it.
pub(crate) fn tend_soon(shared: &Arc<Shared>) {
    if !shared.bounds.is_due(|known| &mut known.tended, TEND_EVERY) {
        return;
    }
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        if let Err(error) = tend(&shared, false).await {
            tracing::debug!(%error, "depths are tended later");
        }
    });
}

impl Shared {
    /// Jobs have left these queues: tells whoever waits for room in one of them.
    pub fn went<'a>(&self, queues: impl Iterator<Item = &'a str>) {
        for queue in self.wanted.of(queues) {
            self.hint(Hint::Room { queue: queue.to_owned() });
        }
    }
}
