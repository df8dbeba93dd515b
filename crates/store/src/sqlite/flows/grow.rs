//! Steps that running jobs add to their flows: they commit with the end of the job that adds them.

use tidemill_core::flow::growth::{Wanted, steps_of};
use tidemill_core::flow::{Board, Place, next_step, plan};
use tidemill_core::{Error as Invalid, NewJob};

use super::advance;
use super::write::{insert_edge, insert_step, write_job};
use crate::error::Result;
use crate::sqlite::writer::Turn;

/// Flows that jobs are added to. None of their steps may change before that is done.
pub(in crate::sqlite) struct Growth {
    boards: Vec<Board>,
}

impl Growth {
    /// The flows that these jobs are added to.
    pub fn of(turn: &Turn<'_>, jobs: &[NewJob]) -> Result<Self> {
        let mut boards: Vec<Board> = Vec::new();
        for (place, _) in steps_of(jobs) {
            if boards.iter().any(|board| board.flow.id == place.id) {
                continue;
            }
            let Some(mut board) = advance::board(turn, place.id)? else { continue };
            advance::learn_all(turn, &mut board)?;
            boards.push(board);
        }
        Ok(Self { boards })
    }

    /// Whether the flows may have these jobs.
    pub fn check(&self, jobs: &[NewJob]) -> Result<(), Invalid> {
        Wanted::default().add(&self.boards, jobs)
    }

    /// Adds the jobs: a step for each name, opened at once. A flow that is called off meanwhile, or turns back, takes
    /// none.
    pub fn grow(&mut self, turn: &mut Turn<'_>, jobs: &[NewJob]) -> Result<()> {
        for (place, of_step) in steps_of(jobs) {
            let board = self.boards.iter_mut().find(|board| board.flow.id == place.id);
            if let Some(board) = board.filter(|board| board.takes_jobs()) {
                add_step(turn, board, place, of_step)?;
                advance::carry_on(turn, board)?;
            }
        }
        Ok(())
    }
}

fn add_step(turn: &mut Turn<'_>, board: &mut Board, place: &Place, jobs: &[NewJob]) -> Result<()> {
    let (number, name) = next_step(board, &place.name);
    let is_slow = jobs.iter().any(plan::is_slow);
    let edges = board.grow(place.step, number, &name, jobs.len() as u64, is_slow);
    let row = board.step(number).cloned();
    row.iter().try_for_each(|row| insert_step(turn, place.id, row))?;
    for edge in edges {
        insert_edge(turn, place.id, &edge)?;
    }
    let spot = Place { step: number, name, grows: false, due: None, ..place.clone() };
    for job in jobs {
        write_job(turn, place.id, number, &plan::place(job.clone(), spot.clone()))?;
    }
    Ok(())
}
