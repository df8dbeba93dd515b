//! The plain case of a flow that goes on: jobs are done, and what waits for them is opened when it was the last.
//!
//! Most ends of jobs are such, and the rule of `core` costs them more than their own settle: it reads whole steps, with
//! their joins as JSON. Here the same is decided by four small statements, which are looked up once for all flows of a
//! turn. None of them answers what it wrote: SQLite makes a table for such answers, which took longer than the write.
//!
//! It refuses whatever is not plain (failures, expressions, quorums, sagas, caps, delays, lines, large steps): that
//! goes by the rule (`advance.rs`). The model of joins plays both against one oracle.

use rusqlite::{CachedStatement, Connection, Row, params};
use tidemill_core::flow::{Arrival, FlowState};
use tidemill_core::{FlowId, JobId};

use super::advance::{self, OPEN_AT_ONCE_MAX};
use super::write::millis;
use crate::error::Result;
use crate::sqlite::writer::Turn;

/// Carries on all flows of which jobs have ended in this turn.
pub(in crate::sqlite) fn carry_on(turn: &mut Turn<'_>) -> Result<()> {
    if turn.news.flows.is_empty() {
        return Ok(());
    }
    let mut plain = Plain::new(turn.conn)?;
    while let Some((flow, arrivals)) = turn.news.flows.pop_first() {
        let counted = plain.carry_on(turn, flow, &arrivals)?;
        if counted < arrivals.len() {
            advance::advance(turn, flow, &arrivals[counted..])?;
        }
    }
    Ok(())
}

/// The statements of the plain case.
struct Plain<'c> {
    conn: &'c Connection,
    select: CachedStatement<'c>,
    count: CachedStatement<'c>,
    hear: CachedStatement<'c>,
    ready: CachedStatement<'c>,
}

/// A step that waits for one of which jobs are done.
struct Next {
    number: u32,
    is_plain: bool,
    parents_left: u32,
    may_open: bool,
    /// Its only job, if it has one and is opened now.
    lone: Option<Lone>,
}

/// What is to be known of a job to let it go.
struct Lone {
    id: [u8; 16],
    queue: String,
    band: i16,
    tenant: Option<String>,
    kind: String,
    key: Option<String>,
}

impl<'c> Plain<'c> {
    fn new(conn: &'c Connection) -> Result<Self> {
        Ok(Self {
            conn,
            select: conn.prepare_cached(include_str!("../sql/select_plain.sql"))?,
            count: conn.prepare_cached(include_str!("../sql/count_done.sql"))?,
            hear: conn.prepare_cached(include_str!("../sql/hear_of_done.sql"))?,
            ready: conn.prepare_cached(include_str!("../sql/insert_ready.sql"))?,
        })
    }

    /// Carries a flow on as far as that is plain; answers how many of the arrivals are counted.
    fn carry_on(
        &mut self,
        turn: &mut Turn<'_>,
        flow: FlowId,
        arrivals: &[Arrival],
    ) -> Result<usize> {
        // What failed, or runs again, may be of a step that another of these would open.
        if arrivals.iter().any(|arrival| arrival.failed != 0) {
            return Ok(0);
        }
        for (at, arrival) in arrivals.iter().enumerate() {
            if !self.count(turn, flow, *arrival)? {
                return Ok(at);
            }
        }
        Ok(arrivals.len())
    }

    /// Counts jobs of a step that are done; `false`, and nothing is changed, if that is not plain.
    fn count(&mut self, turn: &mut Turn<'_>, flow: FlowId, arrival: Arrival) -> Result<bool> {
        let (id, done) = (flow.0.as_bytes(), millis(arrival.ok));
        let Some((left, ahead)) = self.look(flow, arrival)? else { return Ok(false) };
        let is_last = left == done;
        let opens = |next: &Next| is_last && next.parents_left == 1;
        if ahead.iter().any(|next| !next.is_plain || opens(next) && !next.may_open) {
            return Ok(false);
        }
        self.count.execute(params![id, arrival.step, done, is_last, turn.now])?;
        for next in &ahead {
            let is_open = opens(next);
            self.hear.execute(params![id, next.number, done, is_last, is_open, turn.now])?;
            match &next.lone {
                Some(lone) if is_open => self.let_go(turn, lone)?,
                _ if is_open => advance::let_go_whole(turn, flow, next.number).map(drop)?,
                _ => {}
            }
        }
        if is_last && ahead.is_empty() {
            self.end(turn, flow)?;
        }
        Ok(true)
    }

    fn let_go(&mut self, turn: &mut Turn<'_>, lone: &Lone) -> Result<()> {
        let Lone { id, queue, band, tenant, kind, key } = lone;
        self.ready.execute(params![queue, band, tenant, turn.now, id, kind, key, 0, 0])?;
        turn.depths.came(queue, tenant.as_deref(), 1);
        turn.news.ready(queue);
        Ok(())
    }

    /// Ends a flow if all its steps have.
    fn end(&self, turn: &mut Turn<'_>, flow: FlowId) -> Result<()> {
        let id = flow.0.as_bytes();
        let mut select = self.conn.prepare_cached(include_str!("../sql/select_step_ends.sql"))?;
        let ends = select.query_one([id], |row| Ok((row.get(0)?, row.get(1)?)))?;
        match ends {
            (false, _) => Ok(()),
            (true, true) => advance::write_state(turn, flow, FlowState::Running, true, 0, false),
            (true, false) => {
                let mut end = self.conn.prepare_cached(include_str!("../sql/end_flow.sql"))?;
                end.execute(params![id, turn.now])?;
                turn.news.finished.push(JobId(flow.0));
                Ok(())
            }
        }
    }

    /// How many jobs of the step are left, and who waits for it; nothing, if it is not plain.
    fn look(&mut self, flow: FlowId, arrival: Arrival) -> Result<Option<(i64, Vec<Next>)>> {
        let most = millis(OPEN_AT_ONCE_MAX);
        let of_step = params![flow.0.as_bytes(), arrival.step, millis(arrival.ok), most];
        let mut rows = self.select.query(of_step)?;
        let (mut left, mut ahead) = (None, Vec::new());
        while let Some(row) = rows.next()? {
            left = Some(row.get(0)?);
            // A step that does not wait any more hears no news.
            let Some(parents_left) = row.get(3)? else { continue };
            ahead.push(Next {
                number: row.get(1)?,
                is_plain: row.get(2)?,
                parents_left,
                may_open: row.get(4)?,
                lone: lone(row)?,
            });
        }
        Ok(left.map(|left| (left, ahead)))
    }
}

fn lone(row: &Row<'_>) -> rusqlite::Result<Option<Lone>> {
    let Some(id) = row.get(5)? else { return Ok(None) };
    let (queue, band, tenant) = (row.get(6)?, row.get(7)?, row.get(8)?);
    Ok(Some(Lone { id, queue, band, tenant, kind: row.get(9)?, key: row.get(10)? }))
}
