//! A step and everything behind it, run again: the old rows are history, fresh ones take their places.

use rusqlite::{OptionalExtension, params};
use tidemill_core::flow::rerun::again;
use tidemill_core::{FlowId, Job};

use super::advance;
use super::write::{insert_edge, insert_step, write_job};
use crate::error::Result;
use crate::flow::FlowAnswer;
use crate::sqlite::rows::Body;
use crate::sqlite::writer::Turn;

/// Lets a step and all behind it run again.
pub(super) fn rerun(turn: &mut Turn<'_>, id: FlowId, step: &str) -> Result<FlowAnswer> {
    let Some(mut board) = advance::board(turn, id)? else { return Ok(FlowAnswer::Unknown) };
    let (conn, flow) = (turn.conn, id.0.as_bytes());
    let mut select = conn.prepare_cached(include_str!("../sql/select_step_number.sql"))?;
    let number: Option<u32> = select.query_one(params![flow, step], |row| row.get(0)).optional()?;
    let Some(number) = number else { return Ok(FlowAnswer::StepUnknown) };
    advance::learn_all(turn, &mut board)?;
    let rerun = match board.rerun(number) {
        Ok(rerun) => rerun,
        Err(why) => return Ok(FlowAnswer::NotNow { why }),
    };
    let mut retire = conn.prepare_cached(include_str!("../sql/retire_steps.sql"))?;
    for (old, name) in &rerun.old {
        retire.execute(params![flow, old, name])?;
    }
    let mut jobs = 0;
    for (old, row) in &rerun.fresh {
        insert_step(turn, id, row)?;
        for job in bodies(turn, id, *old)? {
            let Some(job) = again(job, row.number) else { continue };
            jobs += write_job(turn, id, row.number, &job)?;
        }
    }
    for edge in &rerun.edges {
        insert_edge(turn, id, edge)?;
        let mut held = conn.prepare_cached(include_str!("../sql/update_edges.sql"))?;
        held.execute(params![flow, edge.from, edge.to, edge.held])?;
    }
    advance::carry_on(turn, &mut board)?;
    Ok(FlowAnswer::Acted { jobs })
}

fn bodies(turn: &Turn<'_>, flow: FlowId, step: u32) -> Result<Vec<Job>> {
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_bodies_of_step.sql"))?;
    let bodies = select.query_map(params![flow.0.as_bytes(), step], Body::of_row)?;
    Ok(bodies.map(|body| body.map(|body| body.job)).collect::<rusqlite::Result<_>>()?)
}
