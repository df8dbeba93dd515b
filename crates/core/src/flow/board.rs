//! The rule by which a flow goes on when jobs of it end.
//!
//! A board holds the part of a flow that a change touches. Whoever keeps the flow locks it, tells the board
//! what has ended, teaches it what it asks for ([`Board::missing`]), and writes what changed. So the rule is
//! the same on every store, and a join is decided once: a step that does not wait any more hears no news.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;

use crate::flow::condition::{self, Facts};
use crate::flow::state::{FlowRow, FlowState, StepRow, StepState};
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

    /// A running job of a step adds a step of so many jobs, which starts at once (`slow`: its jobs have to wait);
    /// what comes after the one comes after the other too, unless it is decided. The board must know the edges that
    /// leave the step. Answers the edges.
    pub fn grow(
        &mut self,
        behind: u32,
        number: u32,
        name: &str,
        jobs: u64,
        slow: bool,
    ) -> Vec<Edge> {
        let mut edges =
            vec![Edge { from: behind, to: number, on: On::Either, when: None, held: None }];
        for edge in self.leaving.get(&behind).into_iter().flatten() {
            let to = self.steps.get_mut(&edge.to).filter(|step| !step.superseded);
            let Some(to) = to else { continue };
            match to.state {
                StepState::Waiting => {
                    to.parents_left += 1;
                    self.touched.insert(edge.to);
                }
                // It may wait again.
                StepState::Skipped => {}
                _ => continue,
            }
            let (from, to) = (number, edge.to);
            edges.push(Edge { from, to, on: On::Success, when: None, held: None });
        }
        let row = StepRow { grown: true, slow, ..StepRow::new(number, name, jobs) };
        self.steps.insert(number, row);
        self.open(number);
        edges
    }

    /// A step has waited for as long as it may; `left` jobs of its parents have not ended.
    pub fn overdue(&mut self, number: u32, left: u64) {
        let Some(step) = self.steps.get(&number) else { return };
        if step.state != StepState::Waiting {
            return;
        }
        match step.join.need {
            Need::All { failures_max } if step.missed + left > u64::from(failures_max) => {
                self.skip(number, format!("{left} of what it comes after did not end in time"));
            }
            Need::Quorum { jobs } => {
                let met = step.met;
                self.skip(number, format!("{met} of the {jobs} it needs succeeded in time"));
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
            self.skip(step, reason.to_owned());
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
        if from.failed > 0 && self.holds_behind(&from) {
            return;
        }
        for edge in edges {
            let holds = if news.ended { self.holds(&edge, &from) } else { Ok(false) };
            if news.ended && edge.when.is_some() {
                let held = holds.as_ref().ok().copied().filter(|_| is_judged(&edge, from.state));
                self.changes.held.push((edge.from, edge.to, held));
            }
            let Some(to) = self.steps.get_mut(&edge.to) else { continue };
            if to.state != StepState::Waiting {
                continue;
            }
            self.touched.insert(edge.to);
            hear(to, &edge, news, &from, holds);
            match judge(to, &from.name) {
                Some(Verdict::Open) => self.open(edge.to),
                Some(Verdict::Skip(reason)) => self.skip(edge.to, reason),
                None => {}
            }
        }
    }

    /// Whether an edge holds, now that the step it leaves has ended.
    fn holds(&self, edge: &Edge, from: &StepRow) -> Result<bool, String> {
        let when = edge.when.as_ref().filter(|_| is_judged(edge, from.state));
        let Some(when) = when else { return Ok(ended_as_wished(edge.on, from.state)) };
        let output = self.outputs.get(&edge.from).cloned();
        condition::holds(when, &Facts { output, done: from.ok, failed: from.failed })
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

    pub(super) fn skip(&mut self, number: u32, reason: String) {
        let Some(step) = self.steps.get_mut(&number) else { return };
        step.state = StepState::Skipped;
        step.reason = step.reason.take().or(Some(reason));
        self.touched.insert(number);
        if step.cancels_rest() && step.parents_left > 0 {
            self.changes.call_off.push(number);
        }
        if step.jobs > 0 {
            self.changes.skip.push(number);
        }
        self.news.push_back(News { step: number, ok: 0, failed: 0, ended: true });
    }
}

/// Whether a step that ended so may be what an edge waits for. A failure where success is wished is: joins count it.
pub(super) fn ended_as_wished(on: On, state: StepState) -> bool {
    match on {
        On::Failure => state == StepState::Failed,
        On::Success | On::Either => matches!(state, StepState::Done | StepState::Failed),
    }
}

/// Whether the expression on an edge is asked, now that the step it leaves has ended so.
pub(super) fn is_judged(edge: &Edge, state: StepState) -> bool {
    let is_borne = edge.on == On::Success && state == StepState::Failed;
    edge.when.is_some() && ended_as_wished(edge.on, state) && !is_borne
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
fn hear(to: &mut StepRow, edge: &Edge, news: News, from: &StepRow, holds: Result<bool, String>) {
    if edge.on == On::Success {
        to.missed += news.failed;
    }
    if edge.when.is_none() {
        to.met += met(edge.on, news.ok, news.failed);
    }
    if !news.ended {
        return;
    }
    to.parents_left = to.parents_left.saturating_sub(1);
    match holds {
        Ok(true) => {
            to.came += 1;
            if edge.when.is_some() {
                to.met += met(edge.on, from.ok, from.failed);
            }
        }
        Ok(false) => {}
        Err(why) => {
            to.reason = Some(format!("the condition after {} cannot be judged: {why}", from.name));
        }
    }
}

pub(super) enum Verdict {
    Open,
    Skip(String),
}

/// Whether a step that waits may run, or never will.
pub(super) fn judge(step: &StepRow, heard_of: &str) -> Option<Verdict> {
    let is_complete = step.parents_left == 0;
    let skip = |reason: String| Some(Verdict::Skip(reason));
    match step.join.need {
        Need::All { failures_max } if step.missed > u64::from(failures_max) => {
            skip(format!("{heard_of} failed"))
        }
        Need::Quorum { jobs } if step.met >= u64::from(jobs) => Some(Verdict::Open),
        Need::Quorum { jobs } if is_complete => {
            skip(format!("{} of the {jobs} it needs succeeded", step.met))
        }
        Need::All { .. } | Need::Finished if is_complete && step.came > 0 => Some(Verdict::Open),
        Need::All { .. } | Need::Finished if is_complete => {
            skip("nothing that it comes after ran, or no condition holds".to_owned())
        }
        _ => None,
    }
}
