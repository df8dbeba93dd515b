//! Rescue: jobs of workers that are gone wait again, unspent; those that lost too many are dead.
//!
//! Leases are ended by one statement and looked at by the next. A settle that was in flight has then
//! either committed, and its outcomes are seen, or it finds its lease gone. In one statement the old
//! snapshot would miss outcomes it had just waited for, and run a job twice.
//!
//! Unique keys and lines are locked before leases, as everywhere: a settle of the same jobs waits for us, or we
//! for it, and never both.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::{ErrorClass, Failure, JobId, State, WorkerId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::Result;
use crate::postgres::Shared;
use crate::postgres::batch::delay_us;
use crate::postgres::connect::Conn;
use crate::postgres::doors;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::leases::Stray;
use crate::postgres::lines;
use crate::postgres::record::{Back, Body, End, Loss, Record, Told};
use crate::postgres::settle;
use crate::postgres::statement::{At, Statement, sql};
use crate::postgres::stowaways;
use crate::request::{RescueRules, Rescued};
use crate::wake::Hint;

const SILENT: Statement = sql!("select_silent_workers", TIMESTAMPTZ, INT8, INT8);
const GIVE_UP: Statement = sql!("give_up_workers", TIMESTAMPTZ, INT8, INT8);
const REMOVE: Statement = sql!("delete_worker", UUID);
const KEY_LOCK: Statement = sql!("lock_keys_of_workers", UUID_ARRAY);
const GATES_OPEN: Statement = sql!("open_gates", UUID_ARRAY, TIMESTAMPTZ);
const LEASE_TAKE: Statement = sql!("take_leases", UUID_ARRAY);
const LEASE_ORPHANS: Statement = sql!("select_orphans");
const LEASE_SWEEP: Statement = sql!("sweep_leases", TIMESTAMPTZ);
const LEASE_STRAYS: Statement = sql!("select_strays", UUID, UUID_ARRAY);
const LEASE_END: Statement = sql!("delete_lease", INT8_ARRAY);
const DECIDED: Statement = sql!("select_decided_of_leases", INT8_ARRAY);
const JOB_UNFINISHED: Statement = sql!("select_unfinished", UUID_ARRAY);
/// The column that comes after the body.
const HAS_GROWN: usize = 10;

/// How often leases are looked at that no worker's death would bring up.
const SWEEP_EVERY: Duration = Duration::from_mins(1);
/// How often gates are looked at that nobody inside will open.
const UNSTICK_EVERY: Duration = Duration::from_secs(5);

/// Who left, and how.
enum Leaving {
    /// Fell silent.
    Silent(RescueRules),
    /// Said goodbye.
    Stopped(WorkerId),
    /// Holds leases, but nobody knows it.
    Unknown(RescueRules),
}

/// Gives up workers that beat no more.
pub(crate) async fn rescue(shared: &Arc<Shared>, rules: RescueRules) -> Result<Rescued> {
    let now = shared.db.manual_now();
    let mut rescued = Rescued::default();
    let (ttl_us, clear_us) = (delay_us(rules.lease_ttl), rules.clear_for.map(delay_us));
    let silent = shared.db.read(&SILENT, &[&now, &ttl_us, &clear_us]).await?;
    if silent.first().is_some_and(|row| row.get(0)) {
        rescued = leave(shared, &Leaving::Silent(rules)).await?;
    }
    if shared.unstick_is_due(UNSTICK_EVERY) {
        stowaways::sweep(&shared.db).await?;
        for queue in doors::unstick(shared).await? {
            shared.hint(Hint::Ready { queue });
        }
    }
    if shared.sweep_is_due(SWEEP_EVERY) {
        doors::mend_all(shared).await?;
        shared.db.read(&LEASE_SWEEP, &[&now]).await?;
        if !shared.db.read(&LEASE_ORPHANS, &[]).await?.is_empty() {
            leave(shared, &Leaving::Unknown(rules)).await?;
        }
        // It is no rescue, and can be done the next time.
        if let Err(error) = doors::forget_idle(shared).await {
            tracing::debug!(%error, "idle gates could not be forgotten");
        }
    }
    Ok(rescued)
}

/// Forgets a worker that stopped.
pub(crate) async fn deregister(shared: &Arc<Shared>, worker: WorkerId) -> Result<Rescued> {
    let rescued = leave(shared, &Leaving::Stopped(worker)).await?;
    shared.leases.forget(worker);
    Ok(rescued)
}

async fn leave(shared: &Arc<Shared>, leaving: &Leaving) -> Result<Rescued> {
    let mut tries = Tries::resend();
    loop {
        let left = async {
            let conn = shared.db.begin().await?;
            match write(shared, &conn, leaving).await {
                Ok(Took::Decided(ids)) => conn.rollback().await.map(|()| Took::Decided(ids)),
                acted => conn.end(acted).await,
            }
        };
        match left.await {
            Ok(Took::All(left)) => return Ok(left.tell(shared)),
            Ok(Took::Decided(ids)) => settle::carry_out(shared, &ids).await?,
            Err(fault) => tries.again(fault).await?,
        }
    }
}

/// What a rescue found in the leases that it took.
enum Took {
    /// Jobs that wait again, or ended.
    All(Left),
    /// Jobs that their handlers have settled in transactions of their own: that is to be carried out first.
    Decided(Vec<Uuid>),
}

/// What a rescue came to, and who is to hear of it.
#[derive(Default)]
struct Left {
    rescued: Rescued,
    finished: Vec<JobId>,
    told: Told,
}

impl Left {
    fn tell(self, shared: &Shared) -> Rescued {
        shared.finished(self.finished.into_iter());
        if !self.told.flows.is_empty() {
            shared.hint(Hint::Flows);
        }
        self.told.runs.tell(shared);
        for queue in self.told.queues {
            shared.hint(Hint::Ready { queue });
        }
        self.rescued
    }
}

async fn write(shared: &Shared, conn: &Conn<'_>, leaving: &Leaving) -> Result<Took, Fault> {
    let now = shared.db.manual_now();
    let ids = |rows: Vec<Row>| rows.iter().map(|row| row.get(0)).collect::<Vec<Uuid>>();
    let (workers, rules) = match leaving {
        Leaving::Silent(rules) => {
            let (ttl_us, clear_us) = (delay_us(rules.lease_ttl), rules.clear_for.map(delay_us));
            (ids(conn.query(&GIVE_UP, &[&now, &ttl_us, &clear_us]).await?), Some(*rules))
        }
        Leaving::Stopped(worker) => {
            conn.query(&REMOVE, &[&worker.0]).await?;
            (vec![worker.0], None)
        }
        Leaving::Unknown(rules) => (ids(conn.query(&LEASE_ORPHANS, &[]).await?), Some(*rules)),
    };
    conn.query(&KEY_LOCK, &[&workers]).await?;
    lines::lock_of_workers(conn, &workers).await?;
    conn.query(&GATES_OPEN, &[&workers, &now]).await?;
    let rows = conn.query(&LEASE_TAKE, &[&workers]).await?;
    let leases: Vec<_> = rows.iter().map(Lease::of).collect();
    // Only now: whoever decides something under a lease had it locked, and has committed.
    let tokens: Vec<i64> = leases.iter().map(|lease| lease.token).collect();
    let held: HashSet<Uuid> =
        leases.iter().flat_map(|lease| lease.held.iter().map(|(id, ..)| *id)).collect();
    let mut decided = ids(conn.query(&DECIDED, &[&tokens]).await?);
    decided.retain(|id| held.contains(id));
    if !decided.is_empty() {
        return Ok(Took::Decided(decided));
    }
    let mut left = put_back(conn, now, &leases, rules).await?;
    if matches!(leaving, Leaving::Silent(_)) {
        left.rescued.workers = workers.len() as u64;
    }
    Ok(Took::All(left))
}

/// A lease that ended, or that holds more than its worker knows.
struct Lease {
    token: i64,
    worker: Uuid,
    claimed_at: Timestamp,
    /// Its jobs that it has not let go: id, attempts spent, workers lost.
    held: Vec<(Uuid, i16, i16)>,
    reasons: HashMap<Uuid, String>,
}

impl Lease {
    fn of(row: &Row) -> Self {
        let (ids, attempts, losts): (Vec<Uuid>, Vec<i16>, Vec<i16>) =
            (row.get(2), row.get(3), row.get(4));
        let gone: HashSet<Uuid> = row.get::<_, Vec<Uuid>>(5).into_iter().collect();
        let held =
            ids.into_iter().zip(attempts).zip(losts).map(|((id, spent), lost)| (id, spent, lost));
        let reasons = row.get::<_, Vec<Uuid>>(6).into_iter().zip(row.get::<_, Vec<String>>(7));
        Self {
            token: row.get(0),
            worker: row.get(1),
            claimed_at: row.get::<_, At>(8).0,
            held: held.filter(|(id, _, _)| !gone.contains(id)).collect(),
            reasons: reasons.collect(),
        }
    }
}

/// Puts back what these leases held and nobody finished; their keys are locked. With `rules`, each
/// has lost a worker.
async fn put_back(
    conn: &Conn<'_>,
    now: Option<At>,
    leases: &[Lease],
    rules: Option<RescueRules>,
) -> Result<Left, Fault> {
    let ids: Vec<Uuid> = leases.iter().flat_map(|l| l.held.iter().map(|(id, ..)| *id)).collect();
    if ids.is_empty() {
        return Ok(Left::default());
    }
    let rows = conn.query(&JOB_UNFINISHED, &[&ids]).await?;
    let found = rows.iter().map(|row| (Body::read(row, 0), row.get::<_, bool>(HAS_GROWN)));
    let bodies: HashMap<Uuid, (Body, bool)> =
        found.map(|(body, has_grown)| (body.id, (body, has_grown))).collect();
    let mut record = Record::default();
    let mut left = Left::default();
    for lease in leases {
        for (id, spent, lost) in &lease.held {
            let Some((body, has_grown)) = bodies.get(id) else { continue };
            // What was lost before counts only against a run that has come no further since.
            let lost = if rules.is_some() && *has_grown { 0 } else { *lost };
            sort(&mut record, &mut left.rescued, lease, body, *spent, lost, rules);
        }
    }
    record.backs.sort_by(|a, b| sheaf_order(a).cmp(&sheaf_order(b)));
    left.told = record.write(conn, now).await?;
    left.finished = record.ends.iter().map(|end| JobId(end.body.id)).collect();
    Ok(left)
}

/// Jobs that may share a sheaf stand side by side; within one, in the order of their making.
fn sheaf_order(back: &Back) -> (&str, i16, &str, Option<&str>, Option<&str>, i16, i16, Uuid) {
    let body = &back.body;
    let (tenant, key) = (body.tenant.as_deref(), body.key.as_deref());
    (&body.queue, body.priority, &body.kind, tenant, key, back.spent, back.lost, body.id)
}

/// Decides what becomes of one job.
fn sort(
    record: &mut Record,
    rescued: &mut Rescued,
    lease: &Lease,
    body: &Body,
    spent: i16,
    lost: i16,
    rules: Option<RescueRules>,
) {
    let lost = lost + i16::from(rules.is_some());
    let end = |state, error: String, failure| End {
        body: body.clone(),
        state,
        attempt: spent,
        lost,
        token: None,
        worker: Some(lease.worker),
        started_at: None,
        output: None,
        error: Some(error),
        failure,
    };
    // What it has done so far nobody knows, also once its end is another.
    let attempt = Loss {
        id: body.id,
        token: lease.token,
        attempt: spent + 1,
        worker: lease.worker,
        claimed_at: rules.is_some().then_some(lease.claimed_at),
    };
    if let Some(reason) = lease.reasons.get(&body.id) {
        rescued.cancelled += 1;
        record.losses.push(attempt);
        record.ends.push(end(State::Cancelled, reason.clone(), None));
    } else if rules.is_some_and(|rules| lost as u16 >= rules.lost_max) {
        rescued.poisoned += 1;
        let message = format!("it lost its worker {lost} times; it may be what kills them");
        let failure = Failure::new(&body.kind, ErrorClass::Poison, message);
        record.ends.push(end(State::Dead, failure.message.clone(), Some(failure)));
        record.losses.push(attempt);
    } else {
        rescued.ready += 1;
        let is_loss = rules.is_some();
        record.backs.push(Back {
            body: body.clone(),
            spent,
            lost,
            delay_us: 0,
            attempt: spent + 1,
            token: lease.token,
            worker: lease.worker,
            // Not its settle: if that comes after all, it must not pass for one that was answered. Only of one that is
            // lost that is told from its class.
            started_at: is_loss.then_some(lease.claimed_at),
            class: is_loss.then(|| ErrorClass::Lost.word()),
            error: is_loss.then(|| "its worker was lost".to_owned()),
        });
    }
}

/// Gives back, unspent, what claims took whose answers were lost: nobody else knows of it.
pub(crate) async fn give_back_strays(
    shared: &Arc<Shared>,
    worker: WorkerId,
    strays: &[Stray],
) -> Result<()> {
    let asks: Vec<Uuid> = strays.iter().map(|stray| stray.ask).collect();
    let conn = shared.db.begin().await?;
    conn.query(&KEY_LOCK, &[&vec![worker.0]]).await?;
    lines::lock_of_workers(&conn, &[worker.0]).await?;
    let rows = conn.query(&LEASE_STRAYS, &[&worker.0, &asks]).await?;
    let leases: Vec<_> = rows.iter().map(Lease::of).collect();
    let left = put_back(&conn, shared.db.manual_now(), &leases, None).await?;
    // Nobody knows these tokens. A lease that stayed would keep its places at gates from others.
    let tokens: Vec<i64> = leases.iter().map(|lease| lease.token).collect();
    let ended = conn.query(&LEASE_END, &[&tokens]).await?;
    conn.commit().await?;
    left.tell(shared);
    let gates = ended.iter().filter_map(|row| row.get::<_, Option<Vec<String>>>(0));
    shared.doors.vacated(shared, gates.flatten());
    Ok(())
}
