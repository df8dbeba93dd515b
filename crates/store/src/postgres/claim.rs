//! Claim: one statement takes sheaves of ids, cuts the last one, and writes one lease for all.
//!
//! Nobody waits: sheaves in the hands of others are passed over, and asked for again soon after, and so are
//! those whose gates are. Only claims under limits for all, or per time, take turns; so that these are short,
//! bodies are then read by a statement of their own. Refuses wishes made up by rules that are no more.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use tidemill_core::gate::{Counts, Per, RETRY_CREDIT};
use tidemill_core::{Edition, Job, QueueLimit, Token};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::postgres::Shared;
use crate::postgres::body::body;
use crate::postgres::doors;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::leases::Stray;
use crate::postgres::marks::{Found, Plan};
use crate::postgres::reach;
use crate::postgres::statement::{At, Statement, sql};
use crate::request::{Claim, ClaimRequest, ClaimedJob, Lane};

const CLAIM: Statement = sql!(
    "claim",
    TIMESTAMPTZ,
    UUID,
    UUID,
    TEXT_ARRAY,
    INT2_ARRAY,
    INT4_ARRAY,
    TIMESTAMPTZ_ARRAY,
    BOOL,
    TEXT_ARRAY,
    TEXT_ARRAY,
    TEXT_ARRAY,
    INT4_ARRAY,
    TEXT_ARRAY,
    INT4_ARRAY,
    INT4,
    INT4,
    TEXT,
    INT8,
);

const BODIES: Statement = sql!("select_bodies", UUID_ARRAY);

/// How often one claim looks again because others held what is due.
const LOOKS_MAX: u32 = 3;
/// A claim takes some milliseconds; whoever holds a sheaf lets it go soon.
const LOOK_PAUSE: Duration = Duration::from_millis(1);
/// When to come back if they still do.
const HELD_PAUSE: Duration = Duration::from_millis(20);

/// Takes due jobs under one lease.
pub(crate) async fn claim(shared: &Arc<Shared>, ask: ClaimRequest) -> Result<Claim> {
    let mut plan = shared.marks.plan(&ask);
    if shared.db.is_manual() {
        // Marks go by the database's clock; one set by hand may stand still or jump.
        plan.begin_at_heads();
    }
    let mut looks = 0;
    loop {
        let Look { mut claim, is_whole, due } = look(shared, &ask, &mut plan).await?;
        if let Some(token) = claim.token {
            let ids = claim.jobs.iter().map(|taken| taken.job.id);
            shared.leases.opened(token, ask.worker, ids);
        }
        if claim.jobs.len() >= ask.jobs_max {
            return Ok(claim);
        }
        if due && !claim.jobs.is_empty() {
            // What is here need not wait for what is left: ask again, once these have started.
            claim.next_due = Some(claim.now);
            return Ok(claim);
        }
        if due && looks < LOOKS_MAX {
            looks += 1;
            tokio::time::sleep(LOOK_PAUSE * looks).await;
            continue;
        }
        if due {
            claim.next_due = Some(earlier(claim.next_due, claim.now + HELD_PAUSE));
        } else if !is_whole {
            let wait = shared.marks.heads_in(&plan);
            claim.next_due = Some(earlier(claim.next_due, claim.now + wait));
        }
        return Ok(claim);
    }
}

/// What one statement took and saw.
struct Look {
    claim: Claim,
    /// Whether it looked from the heads of the lanes.
    is_whole: bool,
    /// Whether something is due that is in other hands.
    due: bool,
}

async fn look(shared: &Arc<Shared>, ask: &ClaimRequest, plan: &mut Plan) -> Result<Look> {
    let asked = Uuid::now_v7();
    let mut tries = Tries::once();
    loop {
        let began = Instant::now();
        match look_once(shared, ask, plan, asked).await {
            Ok(rows) => {
                let took = began.elapsed();
                if rows.first().and_then(|head| head.get(25)).unwrap_or(false) {
                    return Err(Error::RulesOutdated);
                }
                if let Some(beyond) = rows.first().and_then(|head| head.get::<_, Option<i32>>(26)) {
                    reach::raise(&shared.db, ask.worker, beyond).await?;
                    continue;
                }
                if let Some(stops) = rows.first().and_then(|head| head.get(23)) {
                    doors::look_back(shared, under(&ask.limits), stops);
                }
                let bodies = match bodies(shared, &rows).await {
                    Ok(bodies) => bodies,
                    Err(error) => {
                        // The lease is there, and nobody can work on it.
                        shared.leases.strayed(Stray { worker: ask.worker, ask: asked });
                        return Err(error);
                    }
                };
                return Ok(read(shared, ask, plan, Answer { rows: &rows, bodies, took }));
            }
            Err(fault) => {
                if matches!(fault, Fault::Lost(_)) {
                    shared.leases.strayed(Stray { worker: ask.worker, ask: asked });
                }
                tries.again(fault).await?;
            }
        }
    }
}

async fn look_once(
    shared: &Shared,
    ask: &ClaimRequest,
    plan: &Plan,
    asked: Uuid,
) -> Result<Vec<Row>, Fault> {
    let queues: Vec<&str> = ask.lanes.iter().map(|lane| lane.queue.as_str()).collect();
    let bands: Vec<i16> = ask.lanes.iter().map(|lane| lane.priority.band()).collect();
    let from: Vec<Option<At>> = plan.from.iter().map(|from| from.map(At)).collect();
    let kinds: Option<&Vec<String>> = ask.kinds.as_deref();
    let weights: Vec<i32> = ask.share.weights.iter().map(|weight| *weight as i32).collect();
    let weights = (!weights.is_empty()).then_some(weights);
    let favoured: Vec<String> =
        ask.share.tenants.keys().map(|(queue, tenant)| format!("{queue}\u{1f}{tenant}")).collect();
    let favours: Vec<i32> = ask.share.tenants.values().map(|weight| *weight as i32).collect();
    let (holders, lefts) = plan.turns();
    let conn = shared.db.claimer().await?;
    conn.query(
        &CLAIM,
        &[
            &shared.db.manual_now(),
            &ask.worker.0,
            &asked,
            &queues,
            &bands,
            &weights,
            &from,
            &shared.marks.heads_in(plan).is_zero(),
            &kinds,
            &plan.behinds(),
            &holders,
            &lefts,
            &favoured,
            &favours,
            &(plan.sheaves as i32),
            &(ask.jobs_max as i32),
            &under(&ask.limits),
            &ask.edition.map(|Edition(number)| number as i64),
        ],
    )
    .await
}

/// What the database answered, and how long the claim took.
struct Answer<'a> {
    rows: &'a [Row],
    /// Bodies that are not in the rows.
    bodies: HashMap<Uuid, Job>,
    took: Duration,
}

/// Whether the claim has left the body of this job to be read later.
fn is_bare(job: &Row) -> bool {
    job.get::<_, Option<&str>>(14).is_none()
}

/// Reads the bodies that the claim has left. Jobs that are gone by now have none.
async fn bodies(shared: &Shared, rows: &[Row]) -> Result<HashMap<Uuid, Job>> {
    let bare = rows.iter().skip(1).filter(|job| is_bare(job));
    let ids: Vec<Uuid> = bare.map(|job| job.get(13)).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = shared.db.read(&BODIES, &[&ids]).await?;
    Ok(rows.iter().map(|row| (row.get(0), body(row, 0))).collect())
}

fn read(shared: &Shared, ask: &ClaimRequest, plan: &mut Plan, answer: Answer<'_>) -> Look {
    let Answer { rows, mut bodies, took } = answer;
    let mut claim = Claim {
        token: None,
        now: Timestamp::UNIX_EPOCH,
        jobs: Vec::new(),
        next_due: None,
        seen: None,
    };
    let Some((head, jobs)) = rows.split_first() else {
        return Look { claim, is_whole: true, due: false };
    };
    claim.now = head.get::<_, At>(0).0;
    claim.token = head.get::<_, Option<i64>>(1).map(Token);
    let (is_whole, due): (bool, bool) = (head.get(2), head.get(5));
    claim.next_due = head.get::<_, Option<At>>(6).map(|at| at.0);
    claim.jobs.extend(jobs.iter().filter_map(|row| {
        let body = if is_bare(row) { bodies.remove(&row.get(13))? } else { body(row, 13) };
        Some(ClaimedJob {
            job: Arc::new(body),
            attempt: row.get::<_, i16>(10) as u16 + 1,
            lost: row.get::<_, i16>(11) as u16,
            due_at: row.get::<_, At>(9).0,
            gates: gates(row.get(12)),
            has_run: row.get(24),
        })
    }));
    if is_whole {
        plan.begin_at_heads();
    }
    plan.serve(&ask.share, head.get(7), &claim.jobs);
    shared.marks.serve(plan);
    // What is due and in other hands may come back to where it was: nothing else is learned from that.
    if claim.token.is_some() || !due {
        let (sheaves, ids) = (head.get::<_, i32>(3) as usize, head.get::<_, i32>(4) as usize);
        let lanes: Option<Vec<i32>> = head.get(8);
        let mut is_due = vec![false; ask.lanes.len()];
        for lane in lanes.into_iter().flatten() {
            is_due[lane as usize - 1] = true;
        }
        let (heads, now) = (heads(ask, &claim.jobs), claim.now);
        shared.marks.learn(plan, &Found { heads, is_due, sheaves, ids, took, now });
    }
    Look { claim, is_whole, due }
}

/// Per lane, the due time of the first job without a tenant that was taken from it.
fn heads(ask: &ClaimRequest, jobs: &[ClaimedJob]) -> Vec<Option<Timestamp>> {
    let mut heads = vec![None; ask.lanes.len()];
    let mut last: Option<&Lane> = None;
    for taken in jobs {
        let is_of =
            |lane: &Lane| lane.queue == taken.job.queue && lane.priority == taken.job.priority;
        if taken.job.tenant.is_some() || last.is_some_and(is_of) {
            continue;
        }
        if let Some(place) = ask.lanes.iter().position(is_of) {
            heads[place].get_or_insert(taken.due_at);
            last = Some(&ask.lanes[place]);
        }
    }
    heads
}

/// The limits in the words of the function; `None` when there are none, which is the fast way.
fn under(limits: &[QueueLimit]) -> Option<String> {
    let per = |limit: &QueueLimit| match limit.counts {
        Counts::Per(Per::All) => 0,
        Counts::Per(Per::Tenant) => 1,
        Counts::Per(Per::Key) => 2,
        Counts::Retry { .. } => 3,
    };
    let percent = |limit: &QueueLimit| match limit.counts {
        Counts::Retry { percent } => Some(percent),
        Counts::Per(_) => None,
    };
    let words = |limit: &QueueLimit| {
        json!({
            "queue": limit.queue,
            "gate": limit.gate,
            "kind": limit.kind,
            "per": per(limit),
            "most": limit.concurrency,
            "every_us": limit.rate.map(|rate| rate.every_us()),
            "burst": limit.rate.map_or(RETRY_CREDIT, |rate| rate.burst),
            "probe_us": limit.open().map(|open| open.as_micros() as u64),
            "percent": percent(limit),
            "holds": limit.hold,
        })
    };
    (!limits.is_empty()).then(|| limits.iter().map(words).collect::<Value>().to_string())
}

/// The names that the function has put together.
fn gates(names: Option<&str>) -> Vec<Arc<str>> {
    names.into_iter().flat_map(|names| names.split_terminator('\u{1e}')).map(Arc::from).collect()
}

fn earlier(one: Option<Timestamp>, other: Timestamp) -> Timestamp {
    one.map_or(other, |one| one.min(other))
}
