//! Sagas: when one turns back and nothing of it runs any more, undos are added as steps. Where one is stuck, what was
//! called off is a dead letter: nothing that is to be undone may be dropped.

use std::collections::BTreeMap;

use rusqlite::params;
use tidemill_core::flow::saga::{Became, called_off};
use tidemill_core::flow::{Board, Place, Way, plan};
use tidemill_core::webhook::{Event, Told};
use tidemill_core::{FlowId, Payload};

use super::advance;
use super::write::{insert_edge, insert_step, write_job};
use crate::error::Result;
use crate::sqlite::rows::{job_id, time};
use crate::sqlite::writer::Turn;
use crate::sqlite::{dead, ready, webhooks};

/// Judges where a saga stands, and plans its undos when that is due; `true`: there is more to decide.
pub(super) fn go_on(turn: &mut Turn<'_>, board: &mut Board) -> Result<bool> {
    if !board.flow.saga {
        return Ok(false);
    }
    advance::learn_all(turn, board)?;
    let before = board.flow.state;
    if let Some(pivot) = board.pivot_to_doubt() {
        let mut doubt = turn.conn.prepare_cached(include_str!("../sql/is_in_doubt.sql"))?;
        let of_pivot = params![board.flow.id.0.as_bytes(), pivot];
        board.learn_doubt(doubt.query_one(of_pivot, |row| row.get(0))?);
    }
    board.judge_saga();
    for step in board.stuck_at() {
        bury_called_off(turn, board.flow.id, step, true)?;
    }
    if !board.wants_undos() {
        return Ok(board.flow.state != before || board.has_judged());
    }
    let became = became(turn, board)?;
    let (steps, edges) = board.plan_undos(&became);
    let flow = board.flow.id;
    for undo in &steps {
        let (step, name) = (undo.row.number, undo.row.name.clone());
        let (joins, grows, way) = (false, false, Way::Plain);
        let place = Place { id: flow, step, name, joins, grows, due: None, way };
        insert_step(turn, flow, &undo.row)?;
        write_job(turn, flow, step, &plan::place(undo.job.clone(), place))?;
    }
    edges.iter().try_for_each(|edge| insert_edge(turn, flow, edge))?;
    Ok(true)
}

/// Gives what was called off of a step a dead letter, so that somebody can send it again or see to it; tells webhooks
/// so, if it stays one. One after the other: there may be very many, and each may be large.
pub(super) fn bury_called_off(
    turn: &mut Turn<'_>,
    flow: FlowId,
    step: u32,
    stays: bool,
) -> Result<()> {
    let (conn, of_step) = (turn.conn, params![flow.0.as_bytes(), step]);
    conn.prepare_cached(include_str!("../sql/keep_called_off.sql"))?.execute(of_step)?;
    let mut bury = conn.prepare_cached(include_str!("../sql/bury_called_off.sql"))?;
    let rows = bury.query_map(of_step, |row| {
        Ok((job_id(row, 0)?, row.get(1)?, row.get::<_, Option<String>>(2)?))
    })?;
    let rows: Vec<_> = rows.collect::<rusqlite::Result<_>>()?;
    for (id, attempt, why) in rows {
        let Some(job) = ready::body(conn, id)?.map(|body| body.job) else { continue };
        dead::bury(turn, &job, &called_off(&job.kind, why.as_deref()), attempt)?;
        if stays {
            let (event, error, at) = (Event::Dead, why.as_deref(), time(turn.now));
            let told = Told { job: &job, event, attempt, output: None, error, code: None, at };
            webhooks::tell(turn, &told)?;
        }
    }
    Ok(())
}

/// What became of each step that has an undo.
fn became(turn: &Turn<'_>, board: &Board) -> Result<BTreeMap<u32, Became>> {
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_became.sql"))?;
    let rows = select.query_map(params![board.flow.id.0.as_bytes()], |row| {
        let (state, output): (i16, Option<String>) = (row.get(1)?, row.get(2)?);
        let became = match (state, row.get(3)?) {
            (4, _) => Became::Done(Payload::trusted(output.unwrap_or_else(|| "null".to_owned()))),
            (_, true) => Became::Unknown,
            (_, false) => Became::Clean,
        };
        Ok((row.get(0)?, became))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
