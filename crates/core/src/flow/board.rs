//! The rule by which a flow goes on when jobs of it end.
//!
//! A board holds the part of a flow that a change touches. Whoever keeps the flow locks it, tells the board
//! what has ended, teaches it what it asks for ([`Board::missing`]), and writes what changed. So the rule is
//! the same on every store, and a join is decided once: a step that does not wait any more hears no news.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;

use crate::flow::condition::{self, Facts};
use crate::flow::state::{FlowRow, FlowState, Lost, StepRow, StepState};
use crate::flow::{Edge, Need, On, Plan};
use crate::payload::Payload;

/// Jobs of a step that have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    /// The step.
    pub step: u32,
    /// How many are done.
    pub ok: u64,
    /// How many are dead or were called off; fewer than none when dead ones were sent on their way again: an arrival
    /// of its own. Then the board must know the whole flow.
    pub failed: i64,
}

/// What the store is to write. The rows themselves are changed on the board.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Steps whose jobs are to be let go.
    pub open: Vec<u32>,
    /// Steps that will not run, whose jobs end here.
    pub skip: Vec<u32>,
    /// Steps that are decided and do not want the rest: their parents that have not ended are called off.
    pub call_off: Vec<u32>,
    /// What expressions came to, by the edge's ends; nothing when they were not judged or cannot be.
    pub held: Vec<(u32, u32, Option<bool>)>,
    /// Steps that were skipped and wait again: their jobs have not ended after all.
    pub revive: Vec<u32>,
    /// Steps whose jobs are to be called off.
    pub stop: Vec<u32>,
}

/// What a step has to tell those that wait for it.
#[derive(Debug, Clone, Copy)]
struct News {
    step: u32,
    ok: u64,
    failed: u64,
    ended: bool,
}

/// The part of a flow that a change touches.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Board {
    /// The flow; locked.
    pub flow: FlowRow,
    state_before: FlowState,
    pub(super) steps: BTreeMap<u32, StepRow>,
    /// The edges that leave a step, where they are known.
    pub(super) leaving: BTreeMap<u32, Vec<Edge>>,
    outputs: BTreeMap<u32, Payload>,
    news: VecDeque<News>,
    pub(super) touched: BTreeSet<u32>,
    pub(super) changes: Changes,
    wants_tending: bool,
    pub(super) undos_planned: bool,
    /// A step failed since the board was made.
    pub(super) saw_failure: bool,
    /// What is known of a point of no return that failed: whether it may have taken effect.
    pub(super) pivot_in_doubt: bool,
}

impl Board {
    /// A board of this flow that knows nothing of its steps.
    pub fn new(flow: FlowRow) -> Self {
        Self {
            state_before: flow.state,
            flow,
            steps: BTreeMap::new(),
            leaving: BTreeMap::new(),
            outputs: BTreeMap::new(),
            news: VecDeque::new(),
            touched: BTreeSet::new(),
            changes: Changes::default(),
            wants_tending: false,
            undos_planned: false,
            saw_failure: false,
            pivot_in_doubt: false,
        }
    }

    /// A board of all of a flow that is about to be written.
    pub fn of_plan(plan: &Plan, now: Timestamp) -> Self {
        let mut board = Self::new(FlowRow {
            id: plan.id,
            name: plan.name.clone(),
            state: FlowState::Running,
            jobs_open: 0,
            at_once: plan.options.at_once,
            created_at: now,
            saga: plan.options.saga,
        });
        board.learn_steps(plan.steps.iter().cloned());
        board.leaving = plan.steps.iter().map(|step| (step.number, Vec::new())).collect();
        for edge in &plan.edges {
            board.leaving.entry(edge.from).or_default().push(edge.clone());
        }
        board
    }

    /// Puts steps on the board. One that is there already stays as it is.
    pub fn learn_steps(&mut self, steps: impl IntoIterator<Item = StepRow>) {
        for step in steps {
            self.steps.entry(step.number).or_insert(step);
        }
    }

    /// Tells the edges that leave a step. The steps they lead to must be on the board.
    pub fn learn_edges(&mut self, from: u32, edges: Vec<Edge>) {
        self.leaving.entry(from).or_insert(edges);
    }

    /// Tells what the only job of a step returned.
    pub fn learn_output(&mut self, step: u32, output: Payload) {
        self.outputs.insert(step, output);
    }

    /// Jobs of these steps have ended. What runs again is told apart from what has ended since: it is not the same
    /// to be sent on their way and fail once more, and to be sent on their way before the failure was counted.
    pub fn arrive(&mut self, arrivals: &[Arrival]) {
        let mut uncounted: BTreeMap<u32, u64> = BTreeMap::new();
        let mut again = Vec::new();
        for arrival in arrivals.iter().filter(|arrival| arrival.failed < 0) {
            let (number, jobs) = (arrival.step, arrival.failed.unsigned_abs());
            let counted = self.steps.get(&number).map_or(0, |step| step.failed).min(jobs);
            again.extend((counted > 0).then_some((number, counted)));
            *uncounted.entry(number).or_default() += jobs - counted;
        }
        // Taken back before anything is counted: who waits is counted anew from all steps, and hears no news twice.
        self.take_back(&again);
        for arrival in arrivals {
            let mut failed = u64::try_from(arrival.failed).unwrap_or(0);
            if let Some(never) = uncounted.get_mut(&arrival.step) {
                let cancelled = failed.min(*never);
                (failed, *never) = (failed - cancelled, *never - cancelled);
            }
            self.count(arrival.step, arrival.ok, failed);
        }
    }

    fn count(&mut self, number: u32, ok: u64, failed: u64) {
        let ended = ok + failed;
        self.flow.jobs_open = self.flow.jobs_open.saturating_sub(ended);
        // A job of a step that is skipped meanwhile may have been called off before: if it runs after all, that counts.
        let is_over = |step: &StepRow| matches!(step.state, StepState::Done | StepState::Failed);
        let Some(step) = self.steps.get_mut(&number).filter(|step| !is_over(step)) else { return };
        if ended == 0 {
            return;
        }
        step.ok += ok;
        step.failed += failed;
        step.left = step.left.saturating_sub(ended);
        self.touched.insert(number);
        let ended = self.end_if_over(number);
        self.news.push_back(News { step: number, ok, failed, ended });
    }

    /// Lets the steps that wait for nobody begin: the flow is complete.
    pub fn begin(&mut self) {
        let first: Vec<u32> = self
            .steps
            .values()
            .filter(|step| step.state == StepState::Waiting && step.parents_left == 0)
            .map(|step| step.number)
            .collect();
        for step in first {
            self.open(step);
        }
    }

    /// A step has waited for as long as it may; `left` jobs of its parents have not ended.
    pub fn overdue(&mut self, number: u32, left: u64) {
        let Some(step) = self.steps.get(&number) else { return };
        if step.state != StepState::Waiting {
            return;
        }
        // An empty step that has not ended is missed, too.
        let left = if step.parents_left > 0 { left.max(1) } else { left };
        match step.join.need {
            Need::All { .. } | Need::Finished if step.refused || step.alarms == Some(0) => {
                self.skip(number, "a condition does not hold".to_owned(), Lost::No);
            }
            Need::All { failures_max } if step.missed + left > u64::from(failures_max) => {
                let reason = format!("{left} of what it comes after did not end in time");
                self.skip(number, reason, Lost::Late);
            }
            Need::Quorum { jobs } => {
                let met = step.met;
                let reason = format!("{met} of the {jobs} it needs succeeded in time");
                self.skip(number, reason, Lost::Late);
            }
            Need::All { .. } | Need::Finished => self.open(number),
        }
    }

    /// Calls the flow off: what waits is skipped. What is on its way has to be told by the store.
    pub fn call_off(&mut self, reason: &str) {
        self.flow.state = FlowState::Cancelling;
        let waiting: Vec<u32> = self
            .steps
            .values()
            .filter(|step| step.state == StepState::Waiting)
            .map(|step| step.number)
            .collect();
        for step in waiting {
            self.skip(step, reason.to_owned(), Lost::CalledOff);
        }
        self.news.clear();
    }

    /// Steps whose leaving edges it must know before it can go on; none when all is decided.
    pub fn missing(&mut self) -> Vec<u32> {
        while let Some(news) = self.news.front().copied() {
            if !self.leaving.contains_key(&news.step) {
                let unknown =
                    |news: &News| (!self.leaving.contains_key(&news.step)).then_some(news.step);
                let unknown: BTreeSet<u32> = self.news.iter().filter_map(unknown).collect();
                return unknown.into_iter().collect();
            }
            self.news.pop_front();
            self.pass_on(news);
        }
        Vec::new()
    }

    /// What is to be done beside writing the steps, since this was asked last.
    pub fn take_changes(&mut self) -> Changes {
        self.wants_tending |= !self.changes.call_off.is_empty() || !self.changes.stop.is_empty();
        std::mem::take(&mut self.changes)
    }

    /// The steps that are not as they were when this was asked last.
    pub fn take_touched(&mut self) -> Vec<StepRow> {
        let touched = std::mem::take(&mut self.touched);
        touched.iter().filter_map(|number| self.steps.get(number).cloned()).collect()
    }

    /// Whether jobs are left to be called off or, by no end of another job, to be let go.
    pub fn wants_tending(&self) -> bool {
        let opening = |step: &StepRow| step.state == StepState::Opening;
        self.wants_tending || self.flow.at_once.is_none() && self.steps.values().any(opening)
    }

    /// The steps of the board, by number.
    pub fn steps(&self) -> impl Iterator<Item = &StepRow> {
        self.steps.values()
    }

    /// A step of the board.
    pub fn step(&self, number: u32) -> Option<&StepRow> {
        self.steps.get(&number)
    }

    /// How many jobs of its steps have not ended. The board must know the whole flow.
    pub fn jobs_left(&self) -> u64 {
        self.steps.values().filter(|step| !step.state.is_final()).map(|step| step.left).sum()
    }

    /// Whether all of its steps may have ended: those of the board have, and whoever keeps it looks at the others.
    pub fn may_be_over(&self) -> bool {
        self.steps.values().all(|step| step.state.is_final())
    }

    /// Whether the flow's own row is not as it was when the board was made, or cannot be known to be.
    pub fn is_flow_touched(&self) -> bool {
        let is_counted = self.flow.at_once.is_some();
        is_counted
            || self.flow.state != self.state_before
            || self.wants_tending()
            || self.may_be_over()
    }

    /// Forgets what steps have to tell.
    pub(super) fn silence(&mut self) {
        self.news.clear();
    }

    fn pass_on(&mut self, news: News) {
        let edges = self.leaving.get(&news.step).cloned().unwrap_or_default();
        let Some(from) = self.steps.get(&news.step).cloned() else { return };
        if from.failed > 0 && from.state != StepState::Skipped && self.holds_behind(&from) {
            return;
        }
        for edge in edges {
            let came = news.ended.then(|| self.came(&edge, &from));
            if news.ended && edge.when.is_some() {
                let held = match &came {
                    Some(Ok(came)) if is_judged(&edge, &from) => Some(*came == Came::Holds),
                    _ => None,
                };
                self.changes.held.push((edge.from, edge.to, held));
            }
            let Some(to) = self.steps.get_mut(&edge.to) else { continue };
            if to.state != StepState::Waiting {
                continue;
            }
            self.touched.insert(edge.to);
            hear(to, &edge, news, &from, came);
            match judge(to, Some(&from)) {
                Some(Verdict::Open) => self.open(edge.to),
                Some(Verdict::Skip(reason, lost)) => self.skip(edge.to, reason, lost),
                None => {}
            }
        }
    }

    /// What an edge comes to, now that the step it leaves has ended.
    fn came(&self, edge: &Edge, from: &StepRow) -> Result<Came, String> {
        let Some(when) = edge.when.as_ref().filter(|_| is_judged(edge, from)) else {
            return Ok(came(edge.on, from, true));
        };
        let output = self.outputs.get(&edge.from).cloned();
        let facts = Facts { output, done: from.ok, failed: from.failures() };
        Ok(came(edge.on, from, condition::holds(when, &facts)?))
    }

    /// Whether the step's last job has ended; if so, it has.
    fn end_if_over(&mut self, number: u32) -> bool {
        let Some(step) = self.steps.get_mut(&number) else { return false };
        if step.left > 0 || !matches!(step.state, StepState::Opening | StepState::Open) {
            return false;
        }
        step.state = if step.failed > 0 { StepState::Failed } else { StepState::Done };
        self.saw_failure |= step.state == StepState::Failed;
        true
    }

    /// All jobs of a step have been let go: it may be over already.
    pub fn opened(&mut self, number: u32) {
        if let Some(step) = self.steps.get_mut(&number)
            && step.state == StepState::Opening
        {
            step.state = StepState::Open;
            self.touched.insert(number);
            if self.end_if_over(number) {
                self.news.push_back(News { step: number, ok: 0, failed: 0, ended: true });
            }
        }
    }

    pub(super) fn open(&mut self, number: u32) {
        let Some(step) = self.steps.get_mut(&number) else { return };
        step.state = StepState::Opening;
        self.touched.insert(number);
        if step.cancels_rest() && step.parents_left > 0 {
            self.changes.call_off.push(number);
        }
        if step.left == 0 {
            self.opened(number);
        } else {
            self.changes.open.push(number);
        }
    }

    pub(super) fn skip(&mut self, number: u32, reason: String, lost: Lost) {
        let Some(step) = self.steps.get_mut(&number) else { return };
        step.state = StepState::Skipped;
        step.lost = lost;
        step.reason = step.reason.take().or(Some(reason));
        self.touched.insert(number);
        self.saw_failure |= lost == Lost::Late;
        if step.cancels_rest() && step.parents_left > 0 {
            self.changes.call_off.push(number);
        }
        if step.jobs > 0 {
            self.changes.skip.push(number);
        }
        // What was called off while it waited has been told.
        let failed =
            if lost == Lost::No { 0 } else { step.failures() - step.failed.min(step.jobs) };
        self.news.push_back(News { step: number, ok: 0, failed, ended: true });
    }
}

/// One of the failures that a step comes after has happened: others need not.
pub(super) const HAPPENED: u32 = i32::MAX as u32;

/// What an edge comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    /// The step that it leaves was not taken: it is as if there were no such edge.
    NotTaken,
    /// It ended as wished, or failed where success was wished: joins count that.
    Holds,
    /// It ended otherwise, or its expression does not hold.
    Refuses,
}

/// What an edge comes to once a step has ended, by whether its expression holds where that is asked.
pub(super) fn came(on: On, from: &StepRow, holds: bool) -> Came {
    let is_wished = match on {
        On::Failure => from.has_failed(),
        On::Success | On::Either => true,
    };
    match from.state {
        StepState::Skipped if from.lost == Lost::No => Came::NotTaken,
        _ if is_wished && holds => Came::Holds,
        _ => Came::Refuses,
    }
}

/// Whether the expression on an edge is asked, now that the step it leaves has ended.
pub(super) fn is_judged(edge: &Edge, from: &StepRow) -> bool {
    let is_taken = from.state != StepState::Skipped || from.lost != Lost::No;
    let is_asked = match edge.on {
        On::Success => !from.has_failed(),
        On::Failure => from.has_failed(),
        On::Either => true,
    };
    edge.when.is_some() && is_taken && is_asked
}

/// Jobs that ended as an edge wishes, of so many.
pub(super) fn met(on: On, ok: u64, failed: u64) -> u64 {
    match on {
        On::Success => ok,
        On::Failure => failed,
        On::Either => ok + failed,
    }
}

/// What a step that waits makes of the news of one it comes after. Jobs behind an expression count when that holds.
fn hear(
    to: &mut StepRow,
    edge: &Edge,
    news: News,
    from: &StepRow,
    came: Option<Result<Came, String>>,
) {
    if edge.on == On::Success {
        to.missed += news.failed;
    }
    if edge.when.is_none() {
        to.met += met(edge.on, news.ok, news.failed);
    }
    let Some(came) = came else { return };
    to.parents_left = to.parents_left.saturating_sub(1);
    let came = came.unwrap_or_else(|why| {
        to.reason = Some(format!("{}: {why}", unjudged(&from.name)));
        Came::Refuses
    });
    if came == Came::Holds && edge.when.is_some() {
        to.met += met(edge.on, from.ok, from.failures());
    }
    count(to, edge.on, came);
}

/// Why a step does not run if the expression on an edge has no answer.
pub(super) fn unjudged(from: &str) -> String {
    format!("the condition after {from} cannot be judged")
}

/// Counts an edge of a step that waits, by what it came to.
pub(super) fn count(step: &mut StepRow, on: On, came: Came) {
    step.came += u32::from(came == Came::Holds);
    if on != On::Failure {
        step.refused |= came == Came::Refuses;
        return;
    }
    step.alarms = match step.alarms {
        Some(_) if came == Came::Holds => Some(HAPPENED),
        Some(HAPPENED) | None => step.alarms,
        Some(left) => Some(left.saturating_sub(1)),
    };
}

pub(super) enum Verdict {
    Open,
    Skip(String, Lost),
}

/// Whether a step that waits may run, or never will. What failed is heard before all has ended, and goes before
/// whatever else may keep it from running: so it does not matter who ends first.
pub(super) fn judge(step: &StepRow, heard_of: Option<&StepRow>) -> Option<Verdict> {
    let is_complete = step.parents_left == 0;
    let missing = if step.guarded { Lost::No } else { Lost::Behind };
    let skip = |reason: String, lost| Some(Verdict::Skip(reason, lost));
    let skip_for = |reason: &str| skip(reason.to_owned(), Lost::No);
    match step.join.need {
        Need::All { failures_max } if step.missed > u64::from(failures_max) => {
            let name = heard_of.map_or("another step", |heard_of| &heard_of.name);
            let is_lost = heard_of.is_some_and(|heard_of| heard_of.lost != Lost::No);
            skip(format!("{name} {}", if is_lost { "could not run" } else { "failed" }), missing)
        }
        Need::Quorum { jobs } if step.met >= u64::from(jobs) => Some(Verdict::Open),
        _ if !is_complete => None,
        Need::Quorum { jobs } => {
            let lost = if step.missed > 0 { missing } else { Lost::No };
            skip(format!("{} of the {jobs} it needs succeeded", step.met), lost)
        }
        Need::All { .. } | Need::Finished if step.refused => skip_for("a condition does not hold"),
        Need::All { .. } | Need::Finished if step.alarms == Some(0) => {
            skip_for("nothing failed that it is for")
        }
        Need::All { .. } | Need::Finished if step.came == 0 => {
            skip_for("nothing that it comes after ran")
        }
        Need::All { .. } | Need::Finished => Some(Verdict::Open),
    }
}
