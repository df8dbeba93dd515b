//! Dead jobs of a flow that are sent on their way again, all that there are. If only so many may be under way at once,
//! they wait in the flow for their places, as they did before they were let go for the first time.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::params;
use tidemill_core::{By, FlowId, JobId};
use uuid::Uuid;

use super::{advance, carry_on};
use crate::error::Result;
use crate::sqlite::writer::Turn;
use crate::sqlite::{dead, ready};

/// Sends these dead jobs of a flow on their way again; answers how many were dead.
pub(super) fn send_again(
    turn: &mut Turn<'_>,
    id: FlowId,
    ids: &[JobId],
    by: By<'_>,
) -> Result<u64> {
    let sent = dead::replay(turn, ids, by, None)?;
    if !sent.is_empty() && advance::board(turn, id)?.is_some_and(|flow| flow.flow.at_once.is_some())
    {
        hold(turn, id, &sent)?;
    }
    Ok(sent.len() as u64)
}

/// Lets jobs that were just sent again wait in their steps, and those go for whom there is a place. One that takes its
/// turn in a line stays in it.
fn hold(turn: &mut Turn<'_>, id: FlowId, sent: &[JobId]) -> Result<()> {
    // That they run again is counted first.
    carry_on(turn)?;
    let Some(mut board) = advance::board(turn, id)? else { return Ok(()) };
    advance::learn_all(turn, &mut board)?;
    let under_way: BTreeSet<u32> = board.under_way().collect();
    let mut held: BTreeMap<u32, u64> = BTreeMap::new();
    for job in sent {
        let Some(body) = ready::body(turn.conn, *job)? else { continue };
        let place = body.job.options.flow.as_ref().filter(|_| body.job.line().is_none());
        let Some(place) = place.filter(|place| under_way.contains(&place.step)) else { continue };
        let last = ready::last_attempt(turn.conn, *job)?;
        let Some(waiting) = ready::find(turn.conn, &body, &last)? else { continue };
        ready::delete(turn, &body.job, waiting.run_at)?;
        ready::point_job(turn.conn, *job, 0)?;
        let before = Uuid::from_u128(job.0.as_u128().saturating_sub(1));
        let mut back = turn.conn.prepare_cached(include_str!("../sql/hold_again.sql"))?;
        back.execute(params![id.0.as_bytes(), place.step, before.as_bytes()])?;
        *held.entry(place.step).or_default() += 1;
    }
    board.hold_again(&held.into_iter().collect::<Vec<_>>());
    advance::carry_on(turn, &mut board)
}
