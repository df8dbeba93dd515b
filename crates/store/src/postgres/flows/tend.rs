//! What flows wait for and no job's end does, a page of each at a time: steps that are opened bit by bit, jobs
//! that are called off, joins and flows that are late, flows whose time is over, and arrivals that nobody counted.

use std::sync::Arc;

use tidemill_core::{FlowId, JobId};
use uuid::Uuid;

use super::act;
use super::advance::{self, Done, PAGE_JOBS};
use super::forget::forget;
use crate::error::{Error, Result};
use crate::flow::FlowAnswer;
use crate::flow::round::{PAGE_ENDS, PAGE_FLOWS, Round, is_enough};
use crate::postgres::Shared;
use crate::postgres::cancel::{self, Search};
use crate::postgres::connect::Conn;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{At, Param, Statement, sql};

const ARRIVED: Statement = sql!("select_arrived", INT8, UUID);
const TO_TEND: Statement = sql!("select_flows_to_tend", INT8, UUID);
const OPENING: Statement = sql!("select_opening", UUID_ARRAY);
const TO_CALL_OFF: Statement = sql!("select_steps_to_call_off", UUID);
const UNFINISHED: Statement = sql!("select_unfinished_of_step", UUID, INT4, UUID, INT8);
const CALLED_OFF: Statement = sql!("called_off_step", UUID, INT4);
const UNTEND: Statement = sql!("untend_flow", UUID);
const LATE: Statement = sql!("select_late_steps", TIMESTAMPTZ, INT8, TIMESTAMPTZ, UUID, INT4);
const LATE_STEP: Statement = sql!("select_late_step", TIMESTAMPTZ, UUID, INT4);
const EXPIRED: Statement = sql!("select_expired_flows", TIMESTAMPTZ, INT8, TIMESTAMPTZ, UUID);
const FORGETTABLE: Statement =
    sql!("select_forgettable_flows", TIMESTAMPTZ, INT8, TIMESTAMPTZ, UUID);

/// Does a page of everything; `true` when there is more.
pub(crate) async fn tend(shared: &Arc<Shared>) -> Result<bool> {
    let mut round = Round::default();
    count(shared, &mut round).await?;
    tend_each(shared, &mut round).await?;
    late(shared, &mut round).await?;
    expire(shared, &mut round).await?;
    forget_over(shared, &mut round).await?;
    round.end()
}

/// Counts what has ended of a page of flows, of all at once if that can be done; there may be more if it went well with
/// so many.
async fn count(shared: &Shared, round: &mut Round) -> Result<()> {
    let (mut well, mut last) = (0, Uuid::nil());
    loop {
        let arrived = flows(shared, &ARRIVED, last).await?;
        if !arrived.is_empty() && advance(shared, &arrived).await.is_err() {
            for flow in &arrived {
                let counted = advance(shared, &[*flow]).await.map(|()| false);
                well += i64::from(note(shared, round, counted).await?.is_some());
            }
        } else {
            well += arrived.len() as i64;
        }
        if is_enough(well, arrived.len()) {
            round.has_more |= well >= PAGE_FLOWS;
            return Ok(());
        }
        last = arrived.last().copied().unwrap_or(last);
    }
}

/// Tends a page of the flows that are to be; there may be more if it went well with so many.
async fn tend_each(shared: &Arc<Shared>, round: &mut Round) -> Result<()> {
    let (mut well, mut last) = (0, Uuid::nil());
    loop {
        let waiting = flows(shared, &TO_TEND, last).await?;
        for flow in &waiting {
            let tended = tend_one(shared, *flow).await;
            well += i64::from(note(shared, round, tended).await?.is_some());
        }
        if is_enough(well, waiting.len()) {
            round.has_more |= well >= PAGE_FLOWS;
            return Ok(());
        }
        last = waiting.last().copied().unwrap_or(last);
    }
}

/// Forgets a page of the flows whose time is over; there may be more if something went. Those of which something must
/// stay are passed over, so that no other waits behind them.
async fn forget_over(shared: &Shared, round: &mut Round) -> Result<()> {
    let now = shared.db.manual_now();
    let mut forgotten = 0;
    let mut last: (Option<At>, Option<Uuid>) = (None, None);
    loop {
        let rows = shared.db.read(&FORGETTABLE, &[&now, &PAGE_FLOWS, &last.0, &last.1]).await?;
        for row in &rows {
            let id: Uuid = row.get(0);
            last = (row.get(1), Some(id));
            let has_more = forget(shared, id).await;
            forgotten += i64::from(note(shared, round, has_more).await? == Some(true));
        }
        if is_enough(forgotten, rows.len()) {
            return Ok(());
        }
    }
}

/// Notes what became of one. A database that is away is so for all: that ends the round. One that answers may lack
/// something for this one alone.
async fn note(shared: &Shared, round: &mut Round, tended: Result<bool>) -> Result<Option<bool>> {
    match tended {
        Err(fault @ Error::Unavailable { .. }) if !shared.db.is_there().await => Err(fault),
        tended => Ok(round.note(tended)),
    }
}

async fn advance(shared: &Shared, flows: &[Uuid]) -> Result<()> {
    advance::advance_for(shared, flows, Tries::brief()).await
}

/// A page of the flows that a statement finds, behind this one.
async fn flows(shared: &Shared, sql: &Statement, behind: Uuid) -> Result<Vec<Uuid>> {
    let rows = shared.db.read(sql, &[&PAGE_FLOWS, &behind]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Calls off a page of the flows whose time is over; there may be more if there were some. Sagas at their point of no
/// return may stay: they are passed over, so that no other waits behind them.
async fn expire(shared: &Shared, round: &mut Round) -> Result<()> {
    let now = shared.db.manual_now();
    let mut ended = 0;
    let mut last: (Option<At>, Option<Uuid>) = (None, None);
    loop {
        let rows = shared.db.read(&EXPIRED, &[&now, &PAGE_FLOWS, &last.0, &last.1]).await?;
        for row in &rows {
            let id: Uuid = row.get(0);
            last = (row.get(1), Some(id));
            let answer = act::expire(shared, FlowId(id)).await;
            let is_ended = answer.map(|answer| matches!(answer, FlowAnswer::Acted { .. }));
            ended += i64::from(note(shared, round, is_ended).await? == Some(true));
        }
        if is_enough(ended, rows.len()) {
            return Ok(());
        }
    }
}

/// Opens the next page of each of a flow's steps, and calls off what is to be; `true`: there is more.
async fn tend_one(shared: &Arc<Shared>, flow: Uuid) -> Result<bool> {
    let mut has_more = open_page(shared, flow).await?;
    let steps = shared.db.read(&TO_CALL_OFF, &[&flow]).await?;
    for row in &steps {
        call_off_step(shared, flow, row.get(0), Cause::Noted).await?;
    }
    if !steps.is_empty() {
        advance(shared, &[flow]).await?;
        // What was sent again meanwhile waits for its place.
        has_more = true;
    }
    if !has_more {
        has_more = !untend(shared, flow).await?;
    }
    Ok(has_more)
}

/// Notes that a flow has been tended; `false`: there is more to do by now. Its lock is taken first: what is noted
/// beside us under it would not be seen by a look that began before.
async fn untend(shared: &Shared, flow: Uuid) -> Result<bool> {
    let mut tries = Tries::brief();
    loop {
        let conn = shared.db.begin().await?;
        let untended = async {
            let is_there = !advance::lock(&conn, &[flow]).await?.is_empty();
            Ok(!is_there || !conn.query(&UNTEND, &[&flow]).await?.is_empty())
        };
        let acted = untended.await;
        let untended = conn.end(acted).await;
        match untended {
            Ok(untended) => return Ok(untended),
            Err(fault) => tries.again(fault).await?,
        }
    }
}

async fn open_page(shared: &Shared, flow: Uuid) -> Result<bool> {
    let mut tries = Tries::brief();
    loop {
        let conn = shared.db.begin().await?;
        let acted = open_page_in(shared, &conn, flow).await;
        let opened = conn.end(acted).await;
        match opened {
            Ok((has_more, done)) => {
                done.tell(shared);
                return Ok(has_more);
            }
            Err(fault) => tries.again(fault).await?,
        }
    }
}

async fn open_page_in(shared: &Shared, conn: &Conn<'_>, flow: Uuid) -> Result<(bool, Done), Fault> {
    let mut boards = advance::lock(conn, &[flow]).await?;
    let mut done = Done::default();
    if boards.iter().all(|board| board.flow.at_once.is_some()) {
        // As many as may be; as jobs of it end, others are let go.
        let done = advance::carry_on(shared, conn, &mut boards).await?;
        return Ok((false, done));
    }
    let rows = conn.query(&OPENING, &[&vec![flow]]).await?;
    let steps: Vec<(Uuid, u32)> =
        rows.iter().map(|row| (flow, row.get::<_, i32>(1) as u32)).collect();
    if steps.is_empty() {
        return Ok((false, done));
    }
    advance::learn_steps(conn, &mut boards, &steps).await?;
    let page: Vec<_> = steps.iter().map(|(flow, step)| (*flow, *step, Some(PAGE_JOBS))).collect();
    advance::open(shared, conn, &mut boards, &page, &mut done).await?;
    done.and(advance::carry_on(shared, conn, &mut boards).await?);
    Ok((boards.iter().any(tidemill_core::flow::Board::wants_tending), done))
}

/// Why jobs of a step are called off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// It is noted on the step until all have been.
    Noted,
    /// Somebody asks for it at this moment.
    Asked,
}

/// Where a call-off goes on: behind this job of the step, if nothing was noted since it began.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    after: Option<Uuid>,
    noted: Option<i32>,
}

/// Calls off all jobs of a step that have not finished, a page at a time.
pub(super) async fn call_off_step(
    shared: &Shared,
    flow: Uuid,
    step: i32,
    cause: Cause,
) -> Result<()> {
    let mut next = Some(Place::default());
    while let Some(place) = next {
        let mut tries = match cause {
            Cause::Noted => Tries::brief(),
            Cause::Asked => Tries::resend(),
        };
        let search;
        (search, next) = loop {
            let conn = shared.db.begin().await?;
            let acted = call_off_page(shared, &conn, (flow, step), cause, place).await;
            match conn.end(acted).await {
                Ok(called_off) => break called_off,
                Err(fault) => tries.again(fault).await?,
            }
        };
        search.tell(shared);
    }
    Ok(())
}

/// Calls off a page, under the flow's lock: what is noted, others may have done since we read of it, and then somebody
/// may have sent the jobs again. Those are left alone, and so is what was noted then: the number of the note says so.
async fn call_off_page(
    shared: &Shared,
    conn: &Conn<'_>,
    (flow, step): (Uuid, i32),
    cause: Cause,
    place: Place,
) -> Result<(Search, Option<Place>), Fault> {
    advance::lock(conn, &[flow]).await?;
    let mut noted = None;
    if cause == Cause::Noted {
        let rows = conn.query(&TO_CALL_OFF, &[&flow]).await?;
        let note = rows.iter().find(|row| row.get::<_, i32>(0) == step);
        noted = note.map(|row| row.get::<_, i32>(1));
        if noted.is_none() || place.noted.is_some_and(|before| noted != Some(before)) {
            return Ok((Search::default(), None));
        }
    }
    let rows = conn.query(&UNFINISHED, &[&flow, &step, &place.after, &PAGE_ENDS]).await?;
    let ids: Vec<JobId> = rows.iter().map(|row| JobId(row.get(0))).collect();
    let search = cancel::cancel_in(shared, conn, &ids, "called off with its flow").await?;
    let last = ids.last().filter(|_| ids.len() as i64 == PAGE_ENDS);
    if last.is_none() && noted.is_some() {
        conn.query(&CALLED_OFF, &[&flow, &step]).await?;
    }
    Ok((search, last.map(|last| Place { after: Some(last.0), noted })))
}

/// Decides a page of the joins that have waited for as long as they may; there may be more if there were some. Those
/// that cannot be decided are passed over, so that no other waits behind them.
async fn late(shared: &Shared, round: &mut Round) -> Result<()> {
    let now = shared.db.manual_now();
    let mut decided = 0;
    let mut last: (Option<At>, Option<Uuid>, Option<i32>) = (None, None, None);
    loop {
        let page: [Param<'_>; 5] = [&now, &PAGE_FLOWS, &last.0, &last.1, &last.2];
        let rows = shared.db.read(&LATE, &page).await?;
        for row in &rows {
            let (flow, step): (Uuid, i32) = (row.get(0), row.get(1));
            last = (row.get(2), Some(flow), Some(step));
            let is_decided = decide(shared, flow, step).await;
            decided += i64::from(note(shared, round, is_decided).await? == Some(true));
        }
        if is_enough(decided, rows.len()) {
            return Ok(());
        }
    }
}

/// Decides a join that is late, if it still is.
async fn decide(shared: &Shared, flow: Uuid, step: i32) -> Result<bool> {
    let now = shared.db.manual_now();
    let mut tries = Tries::brief();
    let (is_decided, done) = loop {
        let conn = shared.db.begin().await?;
        let decided = async {
            // What has ended in time is counted first.
            let mut done = advance::advance_in(shared, &conn, &[flow]).await?;
            let mut boards = advance::lock(&conn, &[flow]).await?;
            let late = conn.query(&LATE_STEP, &[&now, &flow, &step]).await?;
            let Some(row) = late.first() else { return Ok((false, done)) };
            let left: i64 = row.get(0);
            advance::learn_steps(&conn, &mut boards, &[(flow, step as u32)]).await?;
            for board in &mut boards {
                board.overdue(step as u32, left as u64);
            }
            done.and(advance::carry_on(shared, &conn, &mut boards).await?);
            Ok((true, done))
        };
        let acted = decided.await;
        let decided = conn.end(acted).await;
        match decided {
            Ok(decided) => break decided,
            Err(fault) => tries.again(fault).await?,
        }
    };
    done.tell(shared);
    Ok(is_decided)
}
