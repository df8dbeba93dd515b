//! Carries flows on: what has ended is counted, joins are decided, steps are opened, under the flows' locks.
//!
//! Many flows go together, by whole columns: a batch of chains costs as many statements as one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tidemill_core::flow::{Arrival, Board, Changes, Edge, StepRow, StepState};
use tidemill_core::{JobId, Payload};
use uuid::Uuid;

use super::{rows, saga};
use crate::error::Result;
use crate::postgres::Shared;
use crate::postgres::connect::Conn;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{Param, Statement, sql};
use crate::wake::Hint;

const LOCK: Statement = sql!("lock_flows", UUID_ARRAY);
const ARRIVALS: Statement = sql!("take_arrivals", UUID_ARRAY);
const STEPS: Statement = sql!("select_steps", UUID_ARRAY, INT4_ARRAY);
const EDGES: Statement = sql!("select_edges", UUID_ARRAY, INT4_ARRAY, BOOL);
const OUTPUTS: Statement = sql!("select_step_outputs", UUID_ARRAY, INT4_ARRAY);
const OPENING: Statement = sql!("select_opening", UUID_ARRAY);
const OPEN: Statement = sql!("open_steps", TIMESTAMPTZ, UUID_ARRAY, INT4_ARRAY, INT8_ARRAY);
const SKIP: Statement = sql!("skip_steps", TIMESTAMPTZ, UUID_ARRAY, INT4_ARRAY, TEXT_ARRAY);
const REVIVE: Statement = sql!("revive_steps", UUID_ARRAY, INT4_ARRAY);
const RENEW: Statement = sql!("renew_steps", TIMESTAMPTZ, UUID_ARRAY, INT4_ARRAY);
const STOP: Statement = sql!("stop_step", UUID_ARRAY, INT4_ARRAY);
const CALL_OFF: Statement = sql!("call_off_steps", UUID_ARRAY, INT4_ARRAY);
const UPDATE_EDGES: Statement =
    sql!("update_edges", UUID_ARRAY, INT4_ARRAY, INT4_ARRAY, BOOL_ARRAY);
const UPDATE_STEPS: Statement = sql!(
    "update_steps",
    TIMESTAMPTZ,
    UUID_ARRAY,
    INT4_ARRAY,
    INT2_ARRAY,
    INT8_ARRAY,
    INT8_ARRAY,
    INT8_ARRAY,
    INT4_ARRAY,
    INT4_ARRAY,
    INT8_ARRAY,
    INT8_ARRAY,
    TEXT_ARRAY,
    INT4_ARRAY,
    INT2_ARRAY,
    BOOL_ARRAY,
);
const UPDATE_FLOWS: Statement =
    sql!("update_flows", TIMESTAMPTZ, UUID_ARRAY, INT2_ARRAY, BOOL_ARRAY, INT8_ARRAY, BOOL_ARRAY,);

/// A step with more jobs than this is opened bit by bit, off the path of whoever ended the one before it.
pub(super) const OPEN_AT_ONCE_MAX: u64 = 1000;
/// Jobs that are let go in one transaction.
pub(super) const PAGE_JOBS: i64 = 10_000;

/// What is told once it is committed.
#[derive(Debug, Default)]
pub(crate) struct Done {
    queues: BTreeSet<String>,
    over: Vec<Uuid>,
    has_more: bool,
}

impl Done {
    /// Jobs wait in these queues, and these flows are over.
    pub fn new(queues: Vec<String>, over: Vec<Uuid>) -> Self {
        Self { queues: queues.into_iter().collect(), over, has_more: false }
    }

    /// The queues in which jobs wait now; it has to be told of the rest.
    pub fn take_queues(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.queues)
    }

    /// Together with what more was done.
    pub fn and(&mut self, more: Self) {
        self.queues.extend(more.queues);
        self.over.extend(more.over);
        self.has_more |= more.has_more;
    }

    pub fn tell(self, shared: &Shared) {
        for queue in self.queues {
            shared.hint(Hint::Ready { queue });
        }
        shared.finished(self.over.into_iter().map(JobId));
        if self.has_more {
            shared.wake.tell(Hint::Flows);
        }
    }
}

/// Counts what has ended of these flows, and carries them on.
pub(super) async fn advance(shared: &Shared, flows: &[Uuid]) -> Result<()> {
    advance_for(shared, flows, Tries::resend()).await
}

/// The same with this patience.
pub(super) async fn advance_for(shared: &Shared, flows: &[Uuid], mut tries: Tries) -> Result<()> {
    loop {
        match advance_once(shared, flows).await {
            Ok(done) => {
                done.tell(shared);
                return Ok(());
            }
            Err(fault) => tries.again(fault).await?,
        }
    }
}

async fn advance_once(shared: &Shared, flows: &[Uuid]) -> Result<Done, Fault> {
    let conn = shared.db.begin().await?;
    let acted = advance_in(shared, &conn, flows).await;
    conn.end(acted).await
}

/// The same in the caller's transaction, which holds the flows' locks from then on.
pub(super) async fn advance_in(
    shared: &Shared,
    conn: &Conn<'_>,
    flows: &[Uuid],
) -> Result<Done, Fault> {
    let mut boards = lock(conn, flows).await?;
    arrive(conn, flows, &mut boards).await?;
    if boards.is_empty() {
        return Ok(Done::default());
    }
    carry_on(shared, conn, &mut boards).await
}

/// Locks flows, in order; a board for each that is there.
pub(super) async fn lock(conn: &Conn<'_>, flows: &[Uuid]) -> Result<Vec<Board>, Fault> {
    let rows = conn.query(&LOCK, &[&flows]).await?;
    Ok(rows.iter().map(|row| Board::new(rows::flow(row))).collect())
}

/// Puts all steps and edges of flows on their boards.
pub(super) async fn learn_all(conn: &Conn<'_>, boards: &mut [&mut Board]) -> Result<(), Fault> {
    let flows: Vec<Uuid> = boards.iter().map(|board| board.flow.id.0).collect();
    let all: Vec<Option<i32>> = vec![None; flows.len()];
    let mut steps: HashMap<Uuid, Vec<StepRow>> = HashMap::new();
    for row in conn.query(&STEPS, &[&flows, &all]).await? {
        steps.entry(row.get(0)).or_default().push(rows::step(&row)?);
    }
    let numbers =
        steps.iter().flat_map(|(flow, steps)| steps.iter().map(move |step| (*flow, step.number)));
    let numbers: Vec<(Uuid, u32)> = numbers.collect();
    for board in boards.iter_mut() {
        board.learn_steps(steps.remove(&board.flow.id.0).unwrap_or_default());
    }
    learn_edges(conn, boards, &numbers, false).await
}

/// Takes what has ended and tells the boards; those of which somebody else has counted all are put away.
pub(super) async fn arrive(
    conn: &Conn<'_>,
    flows: &[Uuid],
    boards: &mut Vec<Board>,
) -> Result<(), Fault> {
    let mut arrivals: BTreeMap<Uuid, Vec<Arrival>> = BTreeMap::new();
    // Those of flows that are gone go with the rest.
    for row in conn.query(&ARRIVALS, &[&flows]).await? {
        let (ok, failed): (i64, i64) = (row.get(2), row.get(3));
        let arrival = Arrival { step: row.get::<_, i32>(1) as u32, ok: ok.max(0) as u64, failed };
        arrivals.entry(row.get(0)).or_default().push(arrival);
    }
    boards.retain(|board| arrivals.contains_key(&board.flow.id.0));
    if boards.is_empty() {
        return Ok(());
    }
    let runs_again = |flow: Uuid| {
        arrivals.get(&flow).is_some_and(|all| all.iter().any(|arrival| arrival.failed < 0))
    };
    let mut again: Vec<&mut Board> =
        boards.iter_mut().filter(|board| board.flow.saga || runs_again(board.flow.id.0)).collect();
    if !again.is_empty() {
        learn_all(conn, &mut again).await?;
    }
    let touched = arrivals.iter().flat_map(|(flow, all)| all.iter().map(move |a| (*flow, a.step)));
    let (of, numbers): (Vec<Uuid>, Vec<i32>) =
        touched.map(|(flow, step)| (flow, step as i32)).unzip();
    let mut steps: HashMap<Uuid, Vec<StepRow>> = HashMap::new();
    for row in conn.query(&STEPS, &[&of, &numbers]).await? {
        steps.entry(row.get(0)).or_default().push(rows::step(&row)?);
    }
    for board in boards {
        let flow = board.flow.id.0;
        board.learn_steps(steps.remove(&flow).unwrap_or_default());
        board.arrive(arrivals.get(&flow).map_or(&[], Vec::as_slice));
    }
    Ok(())
}

/// Decides all that can be decided, and writes it.
pub(super) async fn carry_on(
    shared: &Shared,
    conn: &Conn<'_>,
    boards: &mut [Board],
) -> Result<Done, Fault> {
    let mut done = Done::default();
    let mut written = Written::default();
    loop {
        decide(conn, boards).await?;
        let changes: Vec<(Uuid, Changes)> =
            boards.iter_mut().map(|board| (board.flow.id.0, board.take_changes())).collect();
        written.note(&changes);
        if changes.iter().all(|(_, changes)| changes.open.is_empty()) {
            if saga::go_on(shared, conn, boards, &mut done).await? {
                continue;
            }
            break;
        }
        written.write_steps(shared, conn, boards).await?;
        // First, so that jobs which have not ended after all are let go with the others.
        written.revive(shared, conn).await?;
        let opening = changes
            .iter()
            .flat_map(|(flow, changes)| changes.open.iter().map(move |step| (*flow, *step)));
        let opening: Vec<(Uuid, u32)> = opening.collect();
        open_whole(shared, conn, boards, &opening, &mut done).await?;
    }
    written.write_steps(shared, conn, boards).await?;
    written.write_rest(shared, conn, boards).await?;
    open_capped(shared, conn, boards, &mut done).await?;
    write_flows(shared, conn, boards, &mut done).await?;
    Ok(done)
}

/// Lets boards learn what they ask for until nothing is left to decide.
async fn decide(conn: &Conn<'_>, boards: &mut [Board]) -> Result<(), Fault> {
    loop {
        let mut is_deep = false;
        let mut missing = Vec::new();
        for board in boards.iter_mut() {
            for step in board.missing() {
                let skipped =
                    |step: &StepRow| matches!(step.state, StepState::Skipped | StepState::Failed);
                is_deep |= board.step(step).is_some_and(skipped);
                missing.push((board.flow.id.0, step));
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let mut all: Vec<&mut Board> = boards.iter_mut().collect();
        learn_edges(conn, &mut all, &missing, is_deep).await?;
    }
}

async fn learn_edges(
    conn: &Conn<'_>,
    boards: &mut [&mut Board],
    from: &[(Uuid, u32)],
    is_deep: bool,
) -> Result<(), Fault> {
    let flows: Vec<Uuid> = from.iter().map(|(flow, _)| *flow).collect();
    let numbers: Vec<i32> = from.iter().map(|(_, step)| *step as i32).collect();
    let mut edges: HashMap<(Uuid, u32), Vec<Edge>> = HashMap::new();
    let mut steps: HashMap<Uuid, Vec<StepRow>> = HashMap::new();
    for row in conn.query(&EDGES, &[&flows, &numbers, &is_deep]).await? {
        let (flow, edge) = (row.get::<_, Uuid>(0), rows::edge(&row));
        let step = rows::step(&row)?;
        if is_deep {
            // A step that nobody comes after has no row of its own.
            edges.entry((flow, step.number)).or_default();
        }
        edges.entry((flow, edge.from)).or_default().push(edge);
        steps.entry(flow).or_default().push(step);
    }
    let judged = edges.iter().filter(|(_, all)| all.iter().any(|edge| edge.when.is_some()));
    let outputs = outputs(conn, judged.map(|(from, _)| *from)).await?;
    for board in boards.iter_mut() {
        let flow = board.flow.id.0;
        board.learn_steps(steps.remove(&flow).unwrap_or_default());
        for ((_, step), output) in outputs.iter().filter(|((of, _), _)| *of == flow) {
            board.learn_output(*step, output.clone());
        }
    }
    let asked = from.iter().copied();
    let known: BTreeSet<(Uuid, u32)> = asked.chain(edges.keys().copied()).collect();
    let at: HashMap<Uuid, usize> =
        boards.iter().enumerate().map(|(at, board)| (board.flow.id.0, at)).collect();
    for (flow, step) in known {
        if let Some(at) = at.get(&flow) {
            boards[*at].learn_edges(step, edges.remove(&(flow, step)).unwrap_or_default());
        }
    }
    Ok(())
}

async fn outputs(
    conn: &Conn<'_>,
    of: impl Iterator<Item = (Uuid, u32)>,
) -> Result<HashMap<(Uuid, u32), Payload>, Fault> {
    let (flows, steps): (Vec<Uuid>, Vec<i32>) = of.map(|(flow, step)| (flow, step as i32)).unzip();
    if flows.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = conn.query(&OUTPUTS, &[&flows, &steps]).await?;
    let output = |row: &tokio_postgres::Row| {
        let (step, output): (i32, String) = (row.get(1), row.get(2));
        let output = conn.keys().decrypt(&output, None).map_err(Fault::Refused)?.into_owned();
        Ok(((row.get(0), step as u32), Payload::trusted(output)))
    };
    rows.iter().map(output).collect()
}

/// Opens steps that are small enough to be opened at once; the others are left to be tended.
async fn open_whole(
    shared: &Shared,
    conn: &Conn<'_>,
    boards: &mut [Board],
    steps: &[(Uuid, u32)],
    done: &mut Done,
) -> Result<(), Fault> {
    let of: HashMap<Uuid, &Board> = boards.iter().map(|board| (board.flow.id.0, board)).collect();
    let is_small = |(flow, step): &&(Uuid, u32)| {
        let Some(board) = of.get(flow) else { return false };
        let small = |step: &StepRow| step.jobs <= OPEN_AT_ONCE_MAX;
        board.flow.at_once.is_none() && board.step(*step).is_some_and(small)
    };
    let small: Vec<(Uuid, u32, Option<i64>)> =
        steps.iter().filter(is_small).map(|(flow, step)| (*flow, *step, None)).collect();
    open(shared, conn, boards, &small, done).await
}

/// Opens the next jobs of steps of flows that may have only so many under way.
async fn open_capped(
    shared: &Shared,
    conn: &Conn<'_>,
    boards: &mut [Board],
    done: &mut Done,
) -> Result<(), Fault> {
    loop {
        let room = |board: &Board| {
            let room = u64::from(board.flow.at_once?).saturating_sub(board.flow.jobs_open);
            (room > 0).then_some((board.flow.id.0, room as i64))
        };
        let mut rooms: HashMap<Uuid, i64> = boards.iter().filter_map(room).collect();
        if rooms.is_empty() {
            return Ok(());
        }
        let flows: Vec<Uuid> = rooms.keys().copied().collect();
        let mut next = Vec::new();
        for row in conn.query(&OPENING, &[&flows]).await? {
            // One step after the other: what the first leaves is for the next round.
            if let Some(room) = rooms.remove(&row.get(0)) {
                next.push((row.get(0), row.get::<_, i32>(1) as u32, Some(room.min(PAGE_JOBS))));
            }
        }
        if next.is_empty() {
            return Ok(());
        }
        let missing: Vec<(Uuid, u32)> = next.iter().map(|(flow, step, _)| (*flow, *step)).collect();
        learn_steps(conn, boards, &missing).await?;
        open(shared, conn, boards, &next, done).await?;
        decide(conn, boards).await?;
        let mut written = Written::default();
        for board in boards.iter_mut() {
            written.note(&[(board.flow.id.0, board.take_changes())]);
        }
        written.write_steps(shared, conn, boards).await?;
        written.write_rest(shared, conn, boards).await?;
    }
}

/// Puts these steps on their boards.
pub(super) async fn learn_steps(
    conn: &Conn<'_>,
    boards: &mut [Board],
    steps: &[(Uuid, u32)],
) -> Result<(), Fault> {
    let (flows, numbers): (Vec<Uuid>, Vec<i32>) =
        steps.iter().map(|(flow, step)| (*flow, *step as i32)).unzip();
    for row in conn.query(&STEPS, &[&flows, &numbers]).await? {
        let (flow, step): (Uuid, _) = (row.get(0), rows::step(&row)?);
        if let Some(board) = boards.iter_mut().find(|board| board.flow.id.0 == flow) {
            board.learn_steps([step]);
        }
    }
    Ok(())
}

/// Lets jobs of steps go, so many of each, and tells the boards.
pub(super) async fn open(
    shared: &Shared,
    conn: &Conn<'_>,
    boards: &mut [Board],
    steps: &[(Uuid, u32, Option<i64>)],
    done: &mut Done,
) -> Result<(), Fault> {
    if steps.is_empty() {
        return Ok(());
    }
    let flows: Vec<Uuid> = steps.iter().map(|(flow, ..)| *flow).collect();
    let numbers: Vec<i32> = steps.iter().map(|(_, step, _)| *step as i32).collect();
    let rooms: Vec<Option<i64>> = steps.iter().map(|(.., room)| *room).collect();
    let at: HashMap<Uuid, usize> =
        boards.iter().enumerate().map(|(at, board)| (board.flow.id.0, at)).collect();
    for row in conn.query(&OPEN, &[&shared.db.manual_now(), &flows, &numbers, &rooms]).await? {
        let (flow, step, jobs): (Uuid, i32, i64) = (row.get(0), row.get(1), row.get(2));
        done.queues.extend(row.get::<_, Vec<String>>(4));
        let Some(board) = at.get(&flow).and_then(|at| boards.get_mut(*at)) else { continue };
        board.flow.jobs_open += jobs as u64;
        if row.get(3) {
            board.opened(step as u32);
        }
    }
    Ok(())
}

fn unzip(steps: &[(Uuid, u32)]) -> (Vec<Uuid>, Vec<i32>) {
    steps.iter().map(|(flow, step)| (*flow, *step as i32)).unzip()
}

/// What is still to be written.
#[derive(Default)]
struct Written {
    skip: Vec<(Uuid, u32)>,
    revive: Vec<(Uuid, u32)>,
    call_off: Vec<(Uuid, u32)>,
    stop: Vec<(Uuid, u32)>,
    held: Vec<(Uuid, u32, u32, Option<bool>)>,
}

impl Written {
    fn note(&mut self, changes: &[(Uuid, Changes)]) {
        for (flow, changes) in changes {
            let of = |steps: &[u32]| steps.iter().map(|step| (*flow, *step)).collect::<Vec<_>>();
            self.skip.extend(of(&changes.skip));
            self.revive.extend(of(&changes.revive));
            self.call_off.extend(of(&changes.call_off));
            self.stop.extend(of(&changes.stop));
            self.held
                .extend(changes.held.iter().map(|(from, to, held)| (*flow, *from, *to, *held)));
        }
    }

    async fn write_steps(
        &self,
        shared: &Shared,
        conn: &Conn<'_>,
        boards: &mut [Board],
    ) -> Result<(), Fault> {
        let steps: Vec<(Uuid, StepRow)> = boards
            .iter_mut()
            .flat_map(|board| {
                let flow = board.flow.id.0;
                board.take_touched().into_iter().map(move |step| (flow, step))
            })
            .collect();
        if steps.is_empty() {
            return Ok(());
        }
        let flows: Vec<Uuid> = steps.iter().map(|(flow, _)| *flow).collect();
        let small = |of: fn(&StepRow) -> u32| -> Vec<i32> {
            steps.iter().map(|(_, step)| of(step) as i32).collect()
        };
        let large = |of: fn(&StepRow) -> u64| -> Vec<i64> {
            steps.iter().map(|(_, step)| of(step) as i64).collect()
        };
        let states: Vec<i16> = steps.iter().map(|(_, step)| step.state.number()).collect();
        let reasons: Vec<Option<&str>> =
            steps.iter().map(|(_, step)| step.reason.as_deref()).collect();
        let alarms: Vec<Option<i32>> =
            steps.iter().map(|(_, step)| step.alarms.map(|number| number as i32)).collect();
        let refused: Vec<bool> = steps.iter().map(|(_, step)| step.refused).collect();
        let lost: Vec<i16> = steps.iter().map(|(_, step)| step.lost.number()).collect();
        conn.query(
            &UPDATE_STEPS,
            &[
                &shared.db.manual_now(),
                &flows,
                &small(|step| step.number),
                &states,
                &large(|step| step.left),
                &large(|step| step.ok),
                &large(|step| step.failed),
                &small(|step| step.parents_left),
                &small(|step| step.came),
                &large(|step| step.met),
                &large(|step| step.missed),
                &reasons,
                &alarms,
                &lost,
                &refused,
            ],
        )
        .await?;
        Ok(())
    }

    /// Takes back that jobs of these steps have ended.
    async fn revive(&mut self, shared: &Shared, conn: &Conn<'_>) -> Result<(), Fault> {
        if !self.revive.is_empty() {
            let (flows, steps) = unzip(&std::mem::take(&mut self.revive));
            conn.query(&REVIVE, &[&flows, &steps]).await?;
            conn.query(&RENEW, &[&shared.db.manual_now(), &flows, &steps]).await?;
        }
        Ok(())
    }

    async fn write_rest(
        &mut self,
        shared: &Shared,
        conn: &Conn<'_>,
        boards: &[Board],
    ) -> Result<(), Fault> {
        self.revive(shared, conn).await?;
        if !self.skip.is_empty() {
            let of: HashMap<Uuid, &Board> =
                boards.iter().map(|board| (board.flow.id.0, board)).collect();
            let reason = |(flow, step): &(Uuid, u32)| {
                of.get(flow).and_then(|board| board.step(*step)?.reason.as_deref()).unwrap_or("")
            };
            let reasons: Vec<&str> = self.skip.iter().map(reason).collect();
            let (flows, steps) = unzip(&self.skip);
            conn.query(&SKIP, &[&shared.db.manual_now(), &flows, &steps, &reasons]).await?;
        }
        if !self.call_off.is_empty() {
            let (flows, steps) = unzip(&self.call_off);
            conn.query(&CALL_OFF, &[&flows, &steps]).await?;
        }
        if !self.stop.is_empty() {
            let (flows, steps) = unzip(&self.stop);
            conn.query(&STOP, &[&flows, &steps]).await?;
        }
        if !self.held.is_empty() {
            let flows: Vec<Uuid> = self.held.iter().map(|(flow, ..)| *flow).collect();
            let from: Vec<i32> = self.held.iter().map(|(_, from, ..)| *from as i32).collect();
            let to: Vec<i32> = self.held.iter().map(|(_, _, to, _)| *to as i32).collect();
            let held: Vec<Option<bool>> = self.held.iter().map(|(.., held)| *held).collect();
            conn.query(&UPDATE_EDGES, &[&flows, &from, &to, &held]).await?;
        }
        Ok(())
    }
}

async fn write_flows(
    shared: &Shared,
    conn: &Conn<'_>,
    boards: &[Board],
    done: &mut Done,
) -> Result<(), Fault> {
    let boards: Vec<&Board> = boards.iter().filter(|board| board.is_flow_touched()).collect();
    if boards.is_empty() {
        return Ok(());
    }
    let flows: Vec<Uuid> = boards.iter().map(|board| board.flow.id.0).collect();
    let states: Vec<i16> = boards.iter().map(|board| board.flow.state.number()).collect();
    let over: Vec<bool> = boards.iter().map(|board| board.may_be_over()).collect();
    let open: Vec<i64> = boards.iter().map(|board| board.flow.jobs_open as i64).collect();
    let tend: Vec<bool> = boards.iter().map(|board| board.wants_tending()).collect();
    done.has_more = tend.iter().any(|tend| *tend);
    let now = shared.db.manual_now();
    let params: [Param<'_>; 6] = [&now, &flows, &states, &over, &open, &tend];
    for row in conn.query(&UPDATE_FLOWS, &params).await? {
        let state = tidemill_core::flow::FlowState::of_number(row.get(1));
        if state.is_final() {
            done.over.push(row.get(0));
        }
    }
    Ok(())
}
