//! What is done with a whole flow: it begins, is called off, is tried again.

use tidemill_core::flow::FlowState;
use tidemill_core::webhook::QUEUE;
use tidemill_core::{By, FlowId, Payload};
use tokio_postgres::Row;
use uuid::Uuid;

use super::advance::{self, Done};
use super::again::{BEFORE_ALL, DEAD, send_again};
use super::forget::is_over;
use super::rerun::rerun;
use super::tend::{self, Cause};
use super::{saga, write};
use crate::error::Result;
use crate::flow::round::OUT_OF_TIME;
use crate::flow::{FORGOTTEN, FlowAct, FlowAnswer, NONE_DEAD};
use crate::postgres::connect::Conn;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{Param, Statement, sql};
use crate::postgres::{Shared, lines, webhooks};
use crate::wake::Hint;

const REASON: Statement = sql!("set_flow_reason", UUID, TEXT);
const EXPIRED: Statement = sql!("is_expired_flow", TIMESTAMPTZ, UUID);
const FIRST: Statement = sql!("count_first", UUID);
const RENEW: Statement = sql!("renew_steps", TIMESTAMPTZ, UUID_ARRAY, INT4_ARRAY);
const STEP_NUMBER: Statement = sql!("select_step_number", UUID, TEXT);
const RESOLVE: Statement = sql!("resolve_dead", UUID, INT4, TEXT, TIMESTAMPTZ, TEXT, TEXT);

/// Lets a flow begin that was being built.
pub(crate) async fn begin(shared: &Shared, id: FlowId) -> Result<FlowAnswer> {
    let mut tries = Tries::resend();
    loop {
        let conn = shared.db.begin().await?;
        // What may wait only for so long does so from now on.
        let acted = match renew(shared, &conn, id.0).await {
            Ok(()) => begin_in(shared, &conn, id.0).await,
            Err(fault) => Err(fault),
        };
        let begun = conn.end(acted).await;
        match begun {
            Ok((answer, done)) => {
                done.tell(shared);
                return Ok(answer);
            }
            Err(fault) => tries.again(fault).await?,
        }
    }
}

async fn renew(shared: &Shared, conn: &Conn<'_>, id: Uuid) -> Result<(), Fault> {
    let mut boards = advance::lock(conn, &[id]).await?;
    let building = boards.first_mut().filter(|board| board.flow.state == FlowState::Building);
    if let Some(board) = building {
        advance::learn_all(conn, &mut [&mut *board]).await?;
        // One that could never work is told so, and not to wait for room.
        if FlowAnswer::of_begin(board).is_some() {
            return Ok(());
        }
        let at_once = board.flow.at_once.map_or(u64::MAX, u64::from);
        let rows = conn.query(&FIRST, &[&id]).await?;
        let jobs = |row: &Row| at_once.min(row.get::<_, i64>(1) as u64);
        write::admit(shared, conn, rows.iter().map(|row| (row.get(0), jobs(row))).collect())
            .await?;
        let now = shared.db.manual_now();
        conn.query(&RENEW, &[&now, &vec![id], &vec![None::<i32>]]).await?;
    }
    Ok(())
}

/// The same in the caller's transaction.
pub(super) async fn begin_in(
    shared: &Shared,
    conn: &Conn<'_>,
    id: Uuid,
) -> Result<(FlowAnswer, Done), Fault> {
    let mut boards = advance::lock(conn, &[id]).await?;
    let Some(board) = boards.first_mut() else {
        return Ok((FlowAnswer::Unknown, Done::default()));
    };
    advance::learn_all(conn, &mut [board]).await?;
    if let Some(answer) = FlowAnswer::of_begin(board) {
        return Ok((answer, Done::default()));
    }
    board.flow.state = FlowState::Running;
    board.begin();
    let done = advance::carry_on(shared, conn, &mut boards).await?;
    let jobs = boards.first().map_or(0, |board| board.flow.jobs_open);
    Ok((FlowAnswer::Acted { jobs }, done))
}

/// Acts on a flow.
pub(crate) async fn change(shared: &Shared, id: FlowId, act: &FlowAct) -> Result<FlowAnswer> {
    match act {
        FlowAct::Cancel { reason } => cancel(shared, id, reason, When::Any).await,
        FlowAct::Discard { reason } => discard(shared, id, reason).await,
        FlowAct::Retry { step, by, why } => {
            retry(shared, id, step.as_deref(), By { who: by, why: why.as_deref() }).await
        }
        FlowAct::Rerun { step } => rerun(shared, id, step).await,
        FlowAct::Resolve { step, output, by, why } => {
            resolve(shared, id, step, output.as_ref(), by, why).await
        }
    }
}

/// What came of one try to call a flow off.
enum CallOff {
    /// Its point of no return is under way: it is to be told to stop first.
    Tell(Told),
    Answer(FlowAnswer),
}

/// A point of no return that is told to stop, and how many jobs of the flow had not ended then.
#[derive(Clone, Copy)]
struct Told {
    pivot: u32,
    jobs: u64,
}

/// When a flow is called off.
#[derive(Clone, Copy)]
enum When {
    Any,
    /// If it has not ended in time: it may have been given more since it was found.
    Late,
}

/// Calls a flow off, if it has not ended in time and still may be.
pub(super) async fn expire(shared: &Shared, id: FlowId) -> Result<FlowAnswer> {
    cancel(shared, id, OUT_OF_TIME, When::Late).await
}

async fn cancel(shared: &Shared, id: FlowId, reason: &str, when: When) -> Result<FlowAnswer> {
    let mut told = Vec::new();
    let mut tries = match when {
        When::Any => Tries::resend(),
        When::Late => Tries::brief(),
    };
    loop {
        let conn = shared.db.begin().await?;
        let acted = cancel_in(shared, &conn, id.0, reason, when, &told).await;
        let called_off = conn.end(acted).await;
        match called_off {
            Ok((CallOff::Tell(next), done)) => {
                done.tell(shared);
                tend::call_off_step(shared, id.0, next.pivot as i32, Cause::Asked).await?;
                told.push(next);
            }
            Ok((CallOff::Answer(answer), done)) => {
                done.tell(shared);
                if matches!(answer, FlowAnswer::Acted { .. }) {
                    shared.wake.tell(Hint::Flows);
                }
                return Ok(answer);
            }
            Err(fault) => tries.again(fault).await?,
        }
    }
}

/// Calls off what has not begun.
async fn discard(shared: &Shared, id: FlowId, reason: &str) -> Result<FlowAnswer> {
    let mut tries = Tries::resend();
    loop {
        let conn = shared.db.begin().await?;
        let acted = discard_in(shared, &conn, id.0, reason).await;
        match conn.end(acted).await {
            Ok((CallOff::Answer(answer), done)) => {
                done.tell(shared);
                return Ok(answer);
            }
            Ok((CallOff::Tell(_), done)) => {
                done.tell(shared);
                return Ok(FlowAnswer::NotNow { why: "it has begun".to_owned() });
            }
            Err(fault) => tries.again(fault).await?,
        }
    }
}

async fn discard_in(
    shared: &Shared,
    conn: &Conn<'_>,
    id: Uuid,
    reason: &str,
) -> Result<(CallOff, Done), Fault> {
    let mut boards = advance::lock(conn, &[id]).await?;
    if let Some(board) = boards.first_mut() {
        advance::learn_all(conn, &mut [board]).await?;
        if let Some(answer) = FlowAnswer::of_discard(board) {
            return Ok((CallOff::Answer(answer), Done::default()));
        }
    }
    cancel_in(shared, conn, id, reason, When::Any, &[]).await
}

/// Skips what waits, and notes that the rest is to be called off; that is done page by page. What has ended, or was
/// sent again, is counted first, under the same lock: a point of no return that runs again is seen to be under way.
/// Answers how many jobs had not ended.
async fn cancel_in(
    shared: &Shared,
    conn: &Conn<'_>,
    id: Uuid,
    reason: &str,
    when: When,
    told: &[Told],
) -> Result<(CallOff, Done), Fault> {
    let mut done = advance::advance_in(shared, conn, &[id]).await?;
    let mut boards = advance::lock(conn, &[id]).await?;
    let Some(board) = boards.first_mut() else {
        return Ok((CallOff::Answer(FlowAnswer::Unknown), done));
    };
    // Once its point of no return was told, it may have turned back for that: it is called off all the same.
    if matches!(when, When::Late) && told.is_empty() {
        let late = conn.query(&EXPIRED, &[&shared.db.manual_now(), &id]).await?;
        if late.is_empty() {
            return Ok((CallOff::Answer(FlowAnswer::Unknown), done));
        }
    }
    advance::learn_all(conn, &mut [board]).await?;
    let pivot = board.pivot_under_way().filter(|_| board.flow.saga).map(|pivot| pivot.number);
    let jobs = told.first().map_or_else(|| board.jobs_left(), |told| told.jobs);
    if let Some(pivot) = pivot.filter(|pivot| !told.iter().any(|told| told.pivot == *pivot)) {
        return Ok((CallOff::Tell(Told { pivot, jobs }), done));
    }
    if let Some(why) = board.call_off_whole(reason, !told.is_empty()) {
        return Ok((CallOff::Answer(FlowAnswer::NotNow { why }), done));
    }
    // First: nothing is let go any more of what is to be called off.
    conn.query(&REASON, &[&id, &reason]).await?;
    done.and(advance::carry_on(shared, conn, &mut boards).await?);
    Ok((CallOff::Answer(FlowAnswer::Acted { jobs }), done))
}

/// Sends dead jobs on their way again, and what was called off of a step that is named; each tells its flow so. If
/// the step that is named ended well, or was called off before it ran, the flow goes on there.
async fn retry(shared: &Shared, id: FlowId, step: Option<&str>, by: By<'_>) -> Result<FlowAnswer> {
    let Some(flow) = super::flow(shared, id).await? else { return Ok(FlowAnswer::Unknown) };
    let number = match step {
        Some(step) => {
            let found = shared.db.read(&STEP_NUMBER, &[&id.0, &step]).await?;
            let Some(row) = found.first() else { return Ok(FlowAnswer::StepUnknown) };
            Some(row.get::<_, i32>(0))
        }
        None => None,
    };
    if flow.head.state == FlowState::Stuck && by.why.is_none() {
        return Ok(FlowAnswer::WhyMissing);
    }
    if !count_before_retry(shared, id.0, step).await? {
        return Ok(FlowAnswer::NotNow { why: FORGOTTEN.to_owned() });
    }
    let jobs = send_again(shared, id, number, flow.head.at_once.is_some(), by).await?;
    if jobs > 0 {
        return Ok(FlowAnswer::Acted { jobs });
    }
    let went_on = match step {
        Some(step) => go_on(shared, id.0, step).await?,
        None => None,
    };
    let none = FlowAnswer::NotNow { why: NONE_DEAD.to_owned() };
    Ok(went_on.map_or(none, |jobs| FlowAnswer::Acted { jobs }))
}

/// Goes on where nothing but a call-off stopped a flow; answers how many jobs wait again.
async fn go_on(shared: &Shared, id: Uuid, step: &str) -> Result<Option<u64>> {
    let mut tries = Tries::resend();
    loop {
        let conn = shared.db.begin().await?;
        let acted = go_on_in(shared, &conn, id, step).await;
        match conn.end(acted).await {
            Ok((jobs, done)) => {
                done.tell(shared);
                return Ok(jobs);
            }
            Err(fault) => tries.again(fault).await?,
        }
    }
}

async fn go_on_in(
    shared: &Shared,
    conn: &Conn<'_>,
    id: Uuid,
    step: &str,
) -> Result<(Option<u64>, Done), Fault> {
    let mut boards = advance::lock(conn, &[id]).await?;
    let Some(board) = boards.first_mut() else { return Ok((None, Done::default())) };
    if is_over(shared, conn, id).await? {
        return Ok((None, Done::default()));
    }
    advance::learn_all(conn, &mut [&mut *board]).await?;
    let Some(jobs) = board.go_on(step) else { return Ok((None, Done::default())) };
    let done = advance::carry_on(shared, conn, &mut boards).await?;
    Ok((Some(jobs), done))
}

/// Counts what has ended, and lets what was called off of the step that is named be dead, so that it can be sent again;
/// `false`: the flow's time is over, and nothing of it is.
async fn count_before_retry(shared: &Shared, id: Uuid, step: Option<&str>) -> Result<bool> {
    let mut tries = Tries::resend();
    loop {
        let conn = shared.db.begin().await?;
        let acted = async {
            let done = advance::advance_in(shared, &conn, &[id]).await?;
            if is_over(shared, &conn, id).await? {
                return Ok((false, done));
            }
            let mut boards = advance::lock(&conn, &[id]).await?;
            let (Some(board), Some(step)) = (boards.first_mut(), step) else {
                return Ok((true, done));
            };
            advance::learn_all(&conn, &mut [&mut *board]).await?;
            if let Some(step) = board.called_off_at(step) {
                saga::bury_steps(shared, &conn, id, &[step as i32]).await?;
            }
            Ok((true, done))
        };
        let acted = acted.await;
        match conn.end(acted).await {
            Ok((may, done)) => {
                done.tell(shared);
                return Ok(may);
            }
            Err(fault) => tries.again(fault).await?,
        }
    }
}

/// Lets dead jobs of a step count as done, and tells the flow.
async fn resolve(
    shared: &Shared,
    id: FlowId,
    step: &str,
    output: Option<&Payload>,
    by: &str,
    why: &str,
) -> Result<FlowAnswer> {
    if super::flow(shared, id).await?.is_none() {
        return Ok(FlowAnswer::Unknown);
    }
    let found = shared.db.read(&STEP_NUMBER, &[&id.0, &step]).await?;
    let Some(row) = found.first() else { return Ok(FlowAnswer::StepUnknown) };
    let (number, output): (i32, _) = (row.get(0), output.map(Payload::as_str));
    let note = format!("marked done: {why}");
    let now = shared.db.manual_now();
    let params: [Param<'_>; 6] = [&id.0, &number, &output, &now, &by, &note];
    let mut tries = Tries::resend();
    let (answer, queues) = loop {
        let conn = shared.db.begin().await?;
        let acted = resolve_in(shared, &conn, id.0, number, &params).await;
        match conn.end(acted).await {
            Ok(done) => break done,
            Err(fault) => tries.again(fault).await?,
        }
    };
    for queue in queues {
        shared.hint(Hint::Ready { queue });
    }
    advance::advance(shared, &[id.0]).await?;
    Ok(answer)
}

/// Under the flow's lock: who turns it back at this moment is waited for. Answers as well in which queues those wait
/// now who stood in line behind the dead.
async fn resolve_in(
    shared: &Shared,
    conn: &Conn<'_>,
    id: Uuid,
    step: i32,
    params: &[Param<'_>],
) -> Result<(FlowAnswer, Vec<String>), Fault> {
    let mut boards = advance::lock(conn, &[id]).await?;
    let Some(board) = boards.first_mut() else { return Ok((FlowAnswer::Unknown, Vec::new())) };
    if is_over(shared, conn, id).await? {
        return Ok((FlowAnswer::NotNow { why: FORGOTTEN.to_owned() }, Vec::new()));
    }
    advance::learn_all(conn, &mut [board]).await?;
    if let Some(why) = board.may_not_resolve(step as u32) {
        return Ok((FlowAnswer::NotNow { why }, Vec::new()));
    }
    // While they are dead: only a dead one is let past.
    let all: [Param<'_>; 5] = [&id, &Some(step), &i64::MAX, &BEFORE_ALL.0, &BEFORE_ALL.1];
    let dead = conn.query(&DEAD, &all).await?;
    let dead: Vec<Uuid> = dead.iter().map(|row| row.get(0)).collect();
    let now = shared.db.manual_now();
    let mut queues = lines::let_pass(conn, now, &dead).await?;
    let rows = conn.query(&RESOLVE, params).await?;
    queues.extend(webhooks::tell_ends(conn, now, &dead).await?.then(|| QUEUE.to_owned()));
    let answer = match rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64) {
        0 => FlowAnswer::NotNow { why: "none of its jobs is dead".to_owned() },
        jobs => FlowAnswer::Acted { jobs },
    };
    Ok((answer, queues))
}
