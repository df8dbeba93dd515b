//! Steps that running jobs add to their flows: they commit with the end of the job that adds them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use tidemill_core::NewJob;
use tidemill_core::flow::growth::Wanted;
use tidemill_core::flow::{Board, Edge, Place, PlannedJob, next_step, plan};
use uuid::Uuid;

use super::advance;
use crate::flow::text::{is_slow_job, jobs_text};
use crate::postgres::Shared;
use crate::postgres::connect::Conn;
use crate::postgres::error::Fault;
use crate::postgres::statement::{Param, Statement, sql};
use crate::request::SettleItem;

const INSERT: Statement =
    sql!("insert_step", UUID, INT4, TEXT, BOOL, INT4_ARRAY, INT4_ARRAY, INT2_ARRAY,);
const WRITE_JOBS: Statement = sql!("write_flow_jobs", TIMESTAMPTZ, UUID, TEXT);

/// Flows that jobs are added to, locked before anything else.
pub(crate) struct Growth {
    boards: Vec<Board>,
}

impl Growth {
    /// Locks flows; before unique keys, lines and leases.
    pub async fn lock(conn: &Conn<'_>, flows: &[Uuid]) -> Result<Self, Fault> {
        if flows.is_empty() {
            return Ok(Self { boards: Vec::new() });
        }
        let mut boards = advance::lock(conn, flows).await?;
        let mut all: Vec<&mut Board> = boards.iter_mut().collect();
        advance::learn_all(conn, &mut all).await?;
        boards.retain(Board::takes_jobs);
        Ok(Self { boards })
    }

    /// The items, as they can be kept: one that would add more to its flow than that may have is dead, so that what
    /// was to follow from it is not lost without a word.
    pub fn kept<'a>(&self, items: Cow<'a, [SettleItem]>) -> Cow<'a, [SettleItem]> {
        let mut wanted = Wanted::default();
        let refused = |(at, item): (usize, &SettleItem)| {
            let refused = wanted.add(&self.boards, item.settlement.follow_ups()).err()?;
            Some((at, item.unkept(&refused)))
        };
        let refused: Vec<(usize, SettleItem)> =
            items.iter().enumerate().filter_map(refused).collect();
        if refused.is_empty() {
            return items;
        }
        let mut items = items.into_owned();
        for (at, item) in refused {
            items[at] = item;
        }
        Cow::Owned(items)
    }

    /// Adds the jobs: a step for each name, opened at once. A flow that is called off meanwhile, or turns
    /// back, takes none. Answers the queues in which jobs wait now.
    pub async fn grow(
        &mut self,
        shared: &Shared,
        conn: &Conn<'_>,
        jobs: &[&NewJob],
    ) -> Result<BTreeSet<String>, Fault> {
        if jobs.is_empty() {
            return Ok(BTreeSet::new());
        }
        for of_step in jobs.chunk_by(|a, b| a.options.flow == b.options.flow) {
            let Some(place) = of_step.first().and_then(|job| job.options.flow.as_deref()) else {
                continue;
            };
            let board = self.boards.iter_mut().find(|board| board.flow.id == place.id);
            if let Some(board) = board {
                add_step(shared, conn, board, place, of_step).await?;
            }
        }
        let mut done = advance::carry_on(shared, conn, &mut self.boards).await?;
        Ok(done.take_queues())
    }
}

async fn add_step(
    shared: &Shared,
    conn: &Conn<'_>,
    board: &mut Board,
    place: &Place,
    jobs: &[&NewJob],
) -> Result<(), Fault> {
    let (number, name) = next_step(board, &place.name);
    let is_slow = jobs.iter().any(|job| plan::is_slow(job));
    let edges = board.grow(place.step, number, &name, jobs.len() as u64, is_slow);
    let spot = Place { step: number, name, grows: false, due: None, ..place.clone() };
    let planned =
        |job: &&NewJob| PlannedJob { step: number, job: plan::place((*job).clone(), spot.clone()) };
    let planned: Vec<PlannedJob> = jobs.iter().map(planned).collect();
    insert(
        shared,
        conn,
        board,
        &StepIn { place: &spot, undoes: None, parents: 0 },
        &edges,
        &planned,
    )
    .await
}

/// A step that is added.
pub(super) struct StepIn<'a> {
    pub place: &'a Place,
    pub undoes: Option<u32>,
    pub parents: u32,
}

/// Writes a step with its jobs and edges.
pub(super) async fn insert(
    shared: &Shared,
    conn: &Conn<'_>,
    board: &Board,
    step: &StepIn<'_>,
    edges: &[Edge],
    jobs: &[PlannedJob],
) -> Result<(), Fault> {
    let is_slow = jobs.iter().any(is_slow_job);
    let from: Vec<i32> = edges.iter().map(|edge| edge.from as i32).collect();
    let to: Vec<i32> = edges.iter().map(|edge| edge.to as i32).collect();
    let on: Vec<i16> = edges.iter().map(|edge| edge.on.number()).collect();
    let (flow, number) = (step.place.id.0, step.place.step as i32);
    let (parents, undoes) = (step.parents as i32, step.undoes.map(|number| number as i32));
    let name = step.place.name.as_str();
    let params: [Param<'_>; 9] =
        [&flow, &number, &name, &is_slow, &from, &to, &on, &parents, &undoes];
    conn.query(&INSERT, &params).await?;
    let text = jobs_text(jobs, is_slow, board.flow.at_once.is_some()).map_err(Fault::Refused)?;
    conn.query(&WRITE_JOBS, &[&shared.db.manual_now(), &flow, &text]).await?;
    Ok(())
}
