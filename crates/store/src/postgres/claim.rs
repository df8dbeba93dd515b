//! Claim: one statement takes sheaves of ids, cuts the last one, and writes one lease for all.
//!
//! Nobody waits: sheaves in the hands of others are passed over. When that, or too small a number of
//! sheaves, leaves a claim short, the lease it made is widened by a second look, so that a short
//! claim means that there is no more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tidemill_core::Token;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::postgres::Shared;
use crate::postgres::body::body;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::leases::Stray;
use crate::postgres::marks::{Found, Plan};
use crate::postgres::statement::{At, Statement, sql};
use crate::request::{Claim, ClaimRequest, ClaimedJob};

const CLAIM: Statement = sql!(
    "claim",
    TIMESTAMPTZ,
    UUID,
    INT8,
    TEXT_ARRAY,
    INT2_ARRAY,
    TIMESTAMPTZ_ARRAY,
    TEXT_ARRAY,
    INT8,
    INT8,
    UUID,
);

/// How often one claim looks again because others held what is due.
const LOOKS_MAX: u32 = 3;
/// A claim takes some milliseconds; whoever holds a sheaf lets it go soon.
const LOOK_PAUSE: Duration = Duration::from_millis(1);
/// When to come back if they still do.
const HELD_PAUSE: Duration = Duration::from_millis(20);

/// Takes due jobs under one lease.
pub(crate) async fn claim(shared: &Shared, ask: ClaimRequest) -> Result<Claim> {
    let mut plan = shared.marks.plan(&ask);
    if shared.db.is_manual() {
        // Marks go by the database's clock; one set by hand may stand still or jump.
        plan.begin_at_heads();
    }
    let mut taken: Option<Claim> = None;
    let mut looks = 0;
    loop {
        let missing = ask.jobs_max - taken.as_ref().map_or(0, |claim| claim.jobs.len());
        plan.sheaves = plan.sheaves.min(missing);
        let part = match look(shared, &ask, &plan, taken.as_ref(), missing).await {
            Ok(part) => part,
            Err(error) => match taken.filter(|claim| !claim.jobs.is_empty()) {
                // Safe under its lease, unless that was widened and has another token now. Then it is
                // given back, and these attempts will be refused. So it is not in the book.
                Some(claim) if error.is_unknown() => return Ok(claim),
                Some(claim) => return Ok(noted(shared, &ask, claim)),
                None => return Err(error),
            },
        };
        let (is_cut, more) = (part.is_cut, part.more);
        let claim = join(&mut taken, part.claim);
        if claim.jobs.len() >= ask.jobs_max {
            break;
        }
        if more && is_cut {
            plan.sheaves = (plan.sheaves * 4).max(16);
        } else if !claim.jobs.is_empty() && (more || plan.is_partial()) {
            // What is there need not wait for what may be there: ask again, once these have started.
            claim.next_due = Some(claim.now);
            break;
        } else if more && looks < LOOKS_MAX {
            looks += 1;
            tokio::time::sleep(LOOK_PAUSE * looks).await;
        } else if more {
            claim.next_due = Some(earlier(claim.next_due, claim.now + HELD_PAUSE));
            break;
        } else if plan.is_partial() {
            let wait = shared.marks.heads_in(&plan);
            if wait > Duration::ZERO {
                claim.next_due = Some(earlier(claim.next_due, claim.now + wait));
                break;
            }
            plan.begin_at_heads();
        } else {
            break;
        }
    }
    let claim = taken.ok_or_else(|| Error::Database { reason: "a claim had no answer".into() })?;
    Ok(noted(shared, &ask, claim))
}

/// Puts the lease of a claim into the book.
fn noted(shared: &Shared, ask: &ClaimRequest, claim: Claim) -> Claim {
    if let Some(token) = claim.token {
        let ids = claim.jobs.iter().map(|taken| taken.job.id);
        shared.leases.opened(token, ask.worker, ids);
    }
    claim
}

/// What one statement took.
struct Part {
    claim: Claim,
    is_cut: bool,
    more: bool,
}

async fn look(
    shared: &Shared,
    ask: &ClaimRequest,
    plan: &Plan,
    before: Option<&Claim>,
    missing: usize,
) -> Result<Part> {
    let asked = Uuid::now_v7();
    let token = before.and_then(|claim| claim.token).map(|token| token.0);
    let mut tries = Tries::once();
    loop {
        let began = Instant::now();
        match look_once(shared, ask, plan, token, missing, asked).await {
            Ok(rows) => return Ok(read(shared, ask, plan, &rows, began.elapsed())),
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
    token: Option<i64>,
    missing: usize,
    asked: Uuid,
) -> Result<Vec<Row>, Fault> {
    let queues: Vec<&str> = ask.lanes.iter().map(|lane| lane.queue.as_str()).collect();
    let bands: Vec<i16> = ask.lanes.iter().map(|lane| lane.priority.band()).collect();
    let from: Vec<Option<At>> = plan.from.iter().map(|from| from.map(At)).collect();
    let kinds: Option<&Vec<String>> = ask.kinds.as_deref();
    shared
        .db
        .query(
            &CLAIM,
            &[
                &shared.db.manual_now(),
                &ask.worker.0,
                &token,
                &queues,
                &bands,
                &from,
                &kinds,
                &(plan.sheaves as i64),
                &(missing as i64),
                &asked,
            ],
        )
        .await
}

fn read(shared: &Shared, ask: &ClaimRequest, plan: &Plan, rows: &[Row], took: Duration) -> Part {
    let mut claim =
        Claim { token: None, now: Timestamp::UNIX_EPOCH, jobs: Vec::new(), next_due: None };
    let mut heads = vec![None; ask.lanes.len()];
    let (mut sheaves, mut ids, mut more) = (0, 0, false);
    if let Some(head) = rows.first() {
        claim.now = head.get::<_, At>(0).0;
        sheaves = head.get::<_, i64>(1) as usize;
        ids = head.get::<_, i64>(2) as usize;
        claim.next_due = head.get::<_, Option<At>>(3).map(|at| at.0);
        more = head.get(4);
        claim.token = head.get::<_, Option<i64>>(5).map(Token);
    }
    if claim.token.is_some() {
        claim.jobs.reserve(rows.len());
        for row in rows {
            let due_at = row.get::<_, At>(7).0;
            if let Some(head) = heads.get_mut(row.get::<_, i64>(6) as usize - 1) {
                head.get_or_insert(due_at);
            }
            claim.jobs.push(ClaimedJob {
                job: Arc::new(body(row, 10)),
                attempt: row.get::<_, i16>(8) as u16 + 1,
                lost: row.get::<_, i16>(9) as u16,
                due_at,
            });
        }
    }
    let is_cut = sheaves >= plan.sheaves;
    let now = claim.now;
    // What is due is in other hands, and may come back to where it was.
    if sheaves > 0 || !more {
        shared.marks.learn(plan, &Found { heads, sheaves, ids, is_cut, took, now });
    }
    Part { claim, is_cut, more }
}

/// Adds a part to what was taken before.
fn join(taken: &mut Option<Claim>, part: Claim) -> &mut Claim {
    match taken {
        None => taken.insert(part),
        Some(claim) => {
            claim.token = part.token.or(claim.token);
            claim.jobs.extend(part.jobs);
            claim.next_due = part.next_due;
            claim
        }
    }
}

fn earlier(one: Option<Timestamp>, other: Timestamp) -> Timestamp {
    one.map_or(other, |one| one.min(other))
}
