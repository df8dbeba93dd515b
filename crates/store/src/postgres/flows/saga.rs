//! Sagas: when one turns back and nothing of it runs any more, undos are added as steps. Where one is stuck, what was
//! called off is a dead letter: nothing that is to be undone may be dropped.

use std::collections::BTreeMap;

use tidemill_core::Payload;
use tidemill_core::flow::saga::{Became, called_off};
use tidemill_core::flow::{Board, Edge, Place, PlannedJob, Way, plan};
use tidemill_core::webhook::QUEUE;
use uuid::Uuid;

use super::advance::{self, Done};
use super::grow::{self, StepIn};
use crate::postgres::connect::Conn;
use crate::postgres::error::Fault;
use crate::postgres::record::{Letter, write_letters};
use crate::postgres::statement::{Statement, sql};
use crate::postgres::{Shared, webhooks};

const BECAME: Statement = sql!("select_became", UUID);
const IN_DOUBT: Statement = sql!("is_in_doubt", UUID, INT4);
const BURY: Statement = sql!("bury_called_off", UUID, INT4_ARRAY);

/// Judges where sagas stand, and plans their undos when that is due; `true`: there is more to decide.
pub(super) async fn go_on(
    shared: &Shared,
    conn: &Conn<'_>,
    boards: &mut [Board],
    done: &mut Done,
) -> Result<bool, Fault> {
    let mut is_more = false;
    let mut sagas: Vec<&mut Board> = boards.iter_mut().filter(|board| board.flow.saga).collect();
    if !sagas.is_empty() {
        advance::learn_all(conn, &mut sagas).await?;
    }
    for board in sagas {
        let before = board.flow.state;
        if let Some(pivot) = board.pivot_to_doubt() {
            let rows = conn.query(&IN_DOUBT, &[&board.flow.id.0, &(pivot as i32)]).await?;
            board.learn_doubt(rows.first().is_some_and(|row| row.get(0)));
        }
        board.judge_saga();
        is_more |= board.flow.state != before || board.has_judged();
        bury_called_off(shared, conn, board, done).await?;
        if board.wants_undos() {
            undo(shared, conn, board).await?;
            is_more = true;
        }
    }
    Ok(is_more)
}

/// Gives what was called off where a saga is stuck a dead letter, so that somebody can send it again or see to it.
async fn bury_called_off(
    shared: &Shared,
    conn: &Conn<'_>,
    board: &Board,
    done: &mut Done,
) -> Result<(), Fault> {
    let steps: Vec<i32> = board.stuck_at().into_iter().map(|step| step as i32).collect();
    if steps.is_empty() {
        return Ok(());
    }
    let dead = bury_steps(shared, conn, board.flow.id.0, &steps).await?;
    if webhooks::tell_ends(conn, shared.db.manual_now(), &dead).await? {
        done.and(Done::new(vec![QUEUE.to_owned()], Vec::new()));
    }
    Ok(())
}

/// Gives what was called off of these steps a dead letter; answers these jobs. The flow's lock is held.
pub(super) async fn bury_steps(
    shared: &Shared,
    conn: &Conn<'_>,
    flow: Uuid,
    steps: &[i32],
) -> Result<Vec<Uuid>, Fault> {
    let letter = |row: &tokio_postgres::Row| {
        let (kind, why): (String, Option<String>) = (row.get(1), row.get(5));
        let failure = called_off(&kind, why.as_deref());
        Letter {
            id: row.get(0),
            kind,
            queue: row.get(2),
            tenant: row.get(3),
            attempt: row.get(4),
            started_at: None,
            failure,
        }
    };
    let rows = conn.query(&BURY, &[&flow, &steps]).await?;
    let letters: Vec<Letter> = rows.iter().map(letter).collect();
    write_letters(conn, shared.db.manual_now(), &letters).await?;
    Ok(letters.into_iter().map(|letter| letter.id).collect())
}

async fn undo(shared: &Shared, conn: &Conn<'_>, board: &mut Board) -> Result<(), Fault> {
    let flow = board.flow.id;
    let became = became(conn, flow.0).await?;
    let (steps, edges) = board.plan_undos(&became);
    for undo in steps {
        let (step, name) = (undo.row.number, undo.row.name);
        let (joins, grows, way) = (false, false, Way::Plain);
        let place = Place { id: flow, step, name, joins, grows, due: None, way };
        let job = plan::place(undo.job, place.clone());
        let into: Vec<Edge> = edges.iter().filter(|edge| edge.to == step).cloned().collect();
        let row = StepIn { place: &place, undoes: undo.row.undoes, parents: undo.row.parents_left };
        grow::insert(shared, conn, board, &row, &into, &[PlannedJob { step, job }]).await?;
    }
    Ok(())
}

/// What became of each step that has an undo.
async fn became(conn: &Conn<'_>, flow: Uuid) -> Result<BTreeMap<u32, Became>, Fault> {
    let rows = conn.query(&BECAME, &[&flow]).await?;
    let became = rows.iter().map(|row| {
        let (state, output): (i16, Option<String>) = (row.get(1), row.get(2));
        let became = match (state, row.get(3)) {
            (4, _) => Became::Done(Payload::trusted(output.unwrap_or_else(|| "null".to_owned()))),
            (_, true) => Became::Unknown,
            (_, false) => Became::Clean,
        };
        (row.get::<_, i32>(0) as u32, became)
    });
    Ok(became.collect())
}
