//! Sagas: flows whose steps can be undone.
//!
//! When a step fails before the point of no return, or the saga is called off, nothing new starts; once nothing
//! runs any more, undos are added to the flow as steps of their own: each behind the undos of what came after its
//! step, so branches are undone one by one in reverse and independently of each other. An undo that dies holds
//! those behind it: the saga is stuck, and nothing is dropped. After the point of no return a step that dies holds
//! those behind it in the same way. Whether that point was passed must be known before it turns back: while it is under
//! way the saga waits for it, and where nobody knows whether it was done the saga is stuck.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::flow::board::Board;
use crate::flow::state::{FlowState, Lost, StepRow, StepState};
use crate::flow::{Edge, On, next_step, plan};
use crate::job::outcome::{ErrorClass, Failure};
use crate::job::{Job, NewJob, Options, Priority};
use crate::limit::Limits;
use crate::name;
use crate::payload::Payload;

/// How a step of a saga is undone.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum UndoRule {
    /// It does not say.
    #[default]
    Missing,
    /// It leaves nothing behind.
    Nothing,
    /// By this job.
    Job(Box<Undo>),
}

/// The job that undoes a step, kept as data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Undo {
    /// Which handler runs it.
    pub kind: String,
    /// What it gets, beside what became of the step.
    pub payload: Payload,
    /// Where it waits.
    pub queue: String,
    /// In which band.
    #[serde(default)]
    pub priority: Priority,
    /// Whose job it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// What per-key limits count by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The rarer wishes.
    #[serde(default)]
    pub options: Options,
}

impl From<NewJob> for Undo {
    fn from(job: NewJob) -> Self {
        let NewJob { kind, payload, queue, priority, tenant, key, options, .. } = job;
        Self { kind, payload, queue, priority, tenant, key, options }
    }
}

impl Undo {
    /// Refuses what could not become a job: it is too late to say so when it does.
    pub fn check(&self, limits: &Limits, now: Timestamp) -> Result<()> {
        Payload::parse(self.payload.as_str(), limits)?;
        name::check_own("kind", &self.kind)?;
        name::check_own("queue", &self.queue)?;
        self.options.check_wished()?;
        self.job(self.payload.clone()).check(limits, now)
    }

    /// The job that it becomes.
    fn job(&self, payload: Payload) -> NewJob {
        NewJob {
            queue: self.queue.clone(),
            priority: self.priority,
            tenant: self.tenant.clone(),
            key: self.key.clone(),
            options: self.options.clone(),
            ..NewJob::new(self.kind.clone(), payload)
        }
    }

    /// The undo that a job of a saga is, as it runs: with the payload within what it is told.
    pub fn of_job(job: Job) -> Self {
        let Job { kind, payload, queue, priority, tenant, key, options, .. } = job;
        let options = Options { flow: None, ..options };
        // One that does not read so was never told anything.
        let payload = payload.read::<Told>().map_or(payload, |told| told.payload);
        Self { kind, payload, queue, priority, tenant, key, options }
    }
}

/// What became of a step that is to be undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Became {
    /// It is done, and returned this.
    Done(Payload),
    /// It started, and nobody knows whether it took effect: a lost worker, a timeout, a call-off in its middle.
    Unknown,
    /// It failed and says that it had no effect: there is nothing to undo.
    Clean,
}

/// A step that undoes another.
#[derive(Debug, Clone, PartialEq)]
pub struct UndoStep {
    /// Its row.
    pub row: StepRow,
    /// Its job.
    pub job: NewJob,
}

impl Board {
    /// Whether a step has ended after which there is no way back.
    pub fn is_past_return(&self) -> bool {
        self.steps().any(|step| step.pivot && step.state == StepState::Done)
    }

    /// Whether it has turned back: what was done is being undone, or is. Nothing but undos goes on then. The board must
    /// know the whole flow.
    pub fn has_turned_back(&self) -> bool {
        match self.flow.state {
            FlowState::Undoing | FlowState::Undone => true,
            FlowState::Stuck => self.has_undos(),
            _ => false,
        }
    }

    /// Whether jobs may be added to it: it goes on or, past the point of no return, waits for somebody at one of its
    /// steps only. The board must know the whole flow.
    pub fn takes_jobs(&self) -> bool {
        matches!(self.flow.state, FlowState::Running | FlowState::Stuck) && !self.has_turned_back()
    }

    fn has_undos(&self) -> bool {
        self.steps().any(|step| step.undoes.is_some())
    }

    /// Why the jobs of a step cannot be marked done, if so. The board must know the whole flow.
    pub fn may_not_resolve(&self, step: u32) -> Option<String> {
        let is_undo = self.step(step).is_some_and(|step| step.undoes.is_some());
        let why = "it has turned back: only its undos can be marked done; start a new saga instead";
        (self.has_turned_back() && !is_undo).then(|| why.to_owned())
    }

    /// Whether a step that failed holds those behind it, instead of letting them be skipped.
    pub(super) fn holds_behind(&self, step: &StepRow) -> bool {
        self.flow.saga && (step.undoes.is_some() || !self.is_answered(step.number))
    }

    /// Whether something may run although a step failed: what comes after that, or a join that bears it. What its own
    /// jobs have added is more of its work, and no answer.
    fn is_answered(&self, number: u32) -> bool {
        let answers = |edge: &Edge| {
            let to = self.step(edge.to);
            to.is_none_or(|to| !to.grown)
                && (edge.on != On::Success || to.is_some_and(|to| to.join.bears()))
        };
        self.leaving.get(&number).is_some_and(|edges| edges.iter().any(answers))
    }

    /// Steps that failed and that nobody sees to: they hold those behind them or, when all has ended, nothing of what
    /// was to answer them has run. The board must know the whole flow.
    fn unseen(&self) -> Vec<&StepRow> {
        let is_over = self.steps().all(|step| step.state.is_final());
        // What is late past the point of no return cannot be put right: the flow ends as one that failed.
        let is_back_open = !self.is_past_return();
        let is_failure = |step: &&StepRow| {
            step.state == StepState::Failed || step.lost == Lost::Late && is_back_open
        };
        let failed = self.steps().filter(is_failure);
        let is_left = |step: &StepRow| is_over && self.flow.saga && !self.has_run_behind(step);
        failed.filter(|step| self.holds_behind(step) || is_left(step)).collect()
    }

    /// Whether something that comes after a step has run, or after one that was lost for it, but for steps that jobs of
    /// it added.
    fn has_run_behind(&self, step: &StepRow) -> bool {
        let (mut seen, mut next) = (BTreeSet::from([step.number]), vec![step.number]);
        while let Some(at) = next.pop() {
            for to in self.leaving.get(&at).into_iter().flatten() {
                let behind = self.step(to.to).filter(|step| !step.superseded);
                let Some(behind) = behind.filter(|_| seen.insert(to.to)) else { continue };
                match behind.state {
                    StepState::Skipped if behind.lost == Lost::Behind => next.push(to.to),
                    StepState::Waiting | StepState::Skipped => {}
                    _ if behind.grown => {}
                    _ => return true,
                }
            }
        }
        step.superseded
    }

    /// The point of no return, while it is under way: it is not known yet whether there is a way back.
    pub fn pivot_under_way(&self) -> Option<&StepRow> {
        let is_open = |step: &&StepRow| matches!(step.state, StepState::Opening | StepState::Open);
        self.steps().filter(|step| step.pivot).find(is_open)
    }

    /// The point of no return, if it failed and nothing undoes it: whoever keeps the flow must find out whether it may
    /// have taken effect, and say so.
    pub fn pivot_to_doubt(&self) -> Option<u32> {
        let failed =
            |step: &&StepRow| step.pivot && step.state == StepState::Failed && step.undo.is_none();
        let is_asked = self.flow.saga && self.flow.state == FlowState::Running;
        self.steps().filter(|_| is_asked).find(failed).map(|step| step.number)
    }

    /// Tells whether a point of no return that failed may have taken effect.
    pub fn learn_doubt(&mut self, in_doubt: bool) {
        self.pivot_in_doubt = in_doubt;
    }

    /// Calls all of it off: a saga turns back, another flow ends. Answers why not, if so. `is_told`: its point of no
    /// return was under way, and has been called off just before. The board must know the whole flow.
    pub fn call_off_whole(&mut self, reason: &str, is_told: bool) -> Option<String> {
        let state = self.flow.state;
        if is_told && self.has_turned_back() {
            return None;
        }
        if state.is_final() || self.has_turned_back() {
            return Some(format!("it is {} already", state.word()));
        }
        if self.flow.saga && self.is_past_return() {
            return Some("it is past its point of no return".to_owned());
        }
        if let Some(pivot) = self.pivot_under_way().filter(|_| self.flow.saga) {
            let what = "its point of no return, is under way, and is told to stop";
            return Some(format!("{}, {what}; ask again when it has ended", pivot.name));
        }
        if is_told && state == FlowState::Stuck {
            let what = "nobody knows whether its point of no return was passed";
            return Some(format!("{what}; if it was not, ask again: all else is undone then"));
        }
        if self.flow.saga {
            self.turn_back(reason);
        } else {
            self.call_off(reason);
        }
        None
    }

    /// Turns back: what waits is skipped, what is on its way is to be called off.
    pub fn turn_back(&mut self, reason: &str) {
        self.flow.state = FlowState::Undoing;
        let steps: Vec<(u32, StepState)> =
            self.steps().map(|step| (step.number, step.state)).collect();
        for (number, state) in steps {
            match state {
                StepState::Waiting => self.skip(number, reason.to_owned(), Lost::No),
                StepState::Opening | StepState::Open => self.changes.stop.push(number),
                StepState::Done | StepState::Failed | StepState::Skipped => {}
            }
        }
        self.silence();
    }

    /// Where a saga stands by what has become of its steps: it turns back, is stuck, or goes on. The board must know
    /// the whole flow.
    pub fn judge_saga(&mut self) {
        let held = self.unseen();
        let is_forward = held.iter().any(|step| step.undoes.is_none());
        let is_undo = held.iter().any(|step| step.undoes.is_some());
        let name = held.first().map(|step| step.name.clone()).unwrap_or_default();
        let has_undos = self.has_undos();
        match self.flow.state {
            FlowState::Running if is_forward && !self.is_past_return() => {
                self.fail_before_return(&name);
            }
            FlowState::Running if is_forward => self.flow.state = FlowState::Stuck,
            FlowState::Stuck if !has_undos && !is_forward => self.flow.state = FlowState::Running,
            FlowState::Undoing if is_undo => self.flow.state = FlowState::Stuck,
            FlowState::Stuck if has_undos && !is_undo => self.flow.state = FlowState::Undoing,
            _ => {}
        }
    }

    /// A step failed before the point of no return. If that is under way, it is told to stop and waited for; if nobody
    /// knows whether it was done, somebody has to say.
    fn fail_before_return(&mut self, name: &str) {
        match self.pivot_under_way().map(|pivot| pivot.number) {
            Some(pivot) if std::mem::take(&mut self.saw_failure) => self.changes.stop.push(pivot),
            Some(_) => {}
            None if self.pivot_in_doubt => self.flow.state = FlowState::Stuck,
            None => self.turn_back(&format!("{name} failed")),
        }
    }

    /// Whether there is something to be written of what was judged.
    pub fn has_judged(&self) -> bool {
        !self.changes.stop.is_empty()
    }

    /// The steps at which a stuck saga waits for somebody: undos that failed or, if it has not turned back, steps past
    /// the point of no return. What was called off among their jobs is as good as dead: it can be sent again, or seen
    /// to. The board must know the whole flow.
    pub fn stuck_at(&self) -> Vec<u32> {
        if self.flow.state != FlowState::Stuck {
            return Vec::new();
        }
        let has_undos = self.has_undos();
        let held = self.unseen().into_iter().filter(|step| step.undoes.is_some() == has_undos);
        held.map(|step| step.number).collect()
    }

    /// Whether undos are to be planned: it turns back, and nothing of it runs any more.
    pub fn wants_undos(&self) -> bool {
        self.flow.saga
            && self.flow.state == FlowState::Undoing
            && self.steps().all(|step| step.undoes.is_none() && step.state.is_final())
            && !self.undos_planned
    }

    /// Plans the undos, given what became of each step that has one. Answers steps and edges to be written; their jobs
    /// are opened as those of other steps.
    pub fn plan_undos(&mut self, became: &BTreeMap<u32, Became>) -> (Vec<UndoStep>, Vec<Edge>) {
        self.undos_planned = true;
        let undone: BTreeMap<u32, (StepRow, &Became)> = self
            .steps()
            .filter(|step| step.undo.is_some())
            .filter_map(|step| Some((step.number, (step.clone(), became.get(&step.number)?))))
            .filter(|(_, (_, became))| **became != Became::Clean)
            .collect();
        let mut numbers = BTreeMap::new();
        let mut steps = Vec::new();
        for (step, became) in undone.values() {
            let (number, name) = next_step(self, &format!("undo {}", step.name));
            let undoes = Some(step.number);
            let Some(undo) = step.undo.as_deref() else { continue };
            let Some(job) = undo_job(&step.name, undo, became) else { continue };
            let slow = plan::is_slow(&job);
            let row = StepRow { undoes, slow, ..StepRow::new(number, name, 1) };
            self.learn_steps([row.clone()]);
            numbers.insert(step.number, number);
            steps.push(UndoStep { row, job });
        }
        let edges = self.edges_back(&numbers);
        for undo in &mut steps {
            let parents = edges.iter().filter(|edge| edge.to == undo.row.number).count();
            undo.row.parents_left = u32::try_from(parents).unwrap_or(u32::MAX);
            self.steps.insert(undo.row.number, undo.row.clone());
            let leaving = edges.iter().filter(|edge| edge.from == undo.row.number);
            self.learn_edges(undo.row.number, leaving.cloned().collect());
        }
        self.begin();
        (steps, edges)
    }

    /// Each undo comes after the undos of the nearest steps behind its own.
    fn edges_back(&self, undos: &BTreeMap<u32, u32>) -> Vec<Edge> {
        let mut edges = Vec::new();
        for (step, undo) in undos {
            let mut seen = BTreeSet::new();
            let mut behind = VecDeque::from([*step]);
            while let Some(at) = behind.pop_front() {
                for edge in self.leaving.get(&at).into_iter().flatten() {
                    if !seen.insert(edge.to) {
                        continue;
                    }
                    match undos.get(&edge.to) {
                        Some(later) => {
                            let (from, to) = (*later, *undo);
                            edges.push(Edge { from, to, on: On::Success, when: None, held: None });
                        }
                        None => behind.push_back(edge.to),
                    }
                }
            }
        }
        edges
    }
}

/// Why a job is dead that was called off: its saga cannot go on without it, or it is to run after all.
pub fn called_off(kind: &str, why: Option<&str>) -> Failure {
    let message = format!("called off: {}", why.unwrap_or("nobody said why"));
    // Nothing sends it again by itself: somebody wanted it to stop.
    Failure::new(kind, ErrorClass::Permanent, message)
}

/// What an undo is told: what was kept for it, and what became of the step.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    step: String,
    outcome: String,
    payload: Payload,
    output: Option<Payload>,
}

/// What an undo is told, with another payload: what became of its step stays. Whoever gives back all of it, as it was
/// read, changes the payload within.
pub fn told_anew(undo: &str, told: &Payload, given: Payload) -> Result<Payload> {
    // One that does not read so was never told anything.
    let Ok(told) = told.read::<Told>() else { return Ok(given) };
    let payload = match given.read::<Told>() {
        Ok(whole) => {
            let json = |output: &Option<Payload>| output.as_ref().and_then(|o| o.read().ok());
            let output: [Option<serde_json::Value>; 2] = [json(&told.output), json(&whole.output)];
            if (&whole.step, &whole.outcome) != (&told.step, &told.outcome)
                || output[0] != output[1]
            {
                let reason = "it is told what became of its step, and that cannot be changed; give what is to stand in \
                              its payload";
                return Err(plan::invalid(undo, reason));
            }
            whole.payload
        }
        Err(_) => given,
    };
    let text = serde_json::to_string(&Told { payload, ..told });
    // Both were checked when they came in.
    Ok(Payload::trusted(text.map_err(|e| Error::PayloadNotJson { reason: e.to_string() })?))
}

/// The job of an undo: what was kept for it, and what became of the step.
pub(crate) fn undo_job(step: &str, undo: &Undo, became: &Became) -> Option<NewJob> {
    let (outcome, output) = match became {
        Became::Done(output) => ("done", Some(output.clone())),
        Became::Unknown | Became::Clean => ("unknown", None),
    };
    let (step, outcome) = (step.to_owned(), outcome.to_owned());
    let told = Told { step, outcome, payload: undo.payload.clone(), output };
    // Both were checked when they came in.
    let payload = Payload::trusted(serde_json::to_string(&told).ok()?);
    Some(undo.job(payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_payload_of_an_undo_stands_where_the_first_did() {
        let payload = |text: &str| Payload::trusted(text.to_owned());
        let told = |inner: &str| {
            payload(&format!(
                r#"{{"step":"hotel","outcome":"done","payload":{inner},"output":42}}"#
            ))
        };
        let anew = |given: &str| told_anew("undo hotel", &told("1"), payload(given));
        assert_eq!(anew(r#"{"by":"phone"}"#).unwrap(), told(r#"{"by":"phone"}"#));
        assert_eq!(anew("null").unwrap(), told("null"));
        // As it was read, with another payload within.
        assert_eq!(anew(told("2").as_str()).unwrap(), told("2"));
        for other in [
            r#"{"step":"car","outcome":"done","payload":2,"output":42}"#,
            r#"{"step":"hotel","outcome":"unknown","payload":2,"output":null}"#,
            r#"{"step":"hotel","outcome":"done","payload":2,"output":43}"#,
        ] {
            assert_eq!(anew(other).unwrap_err().code(), "flow_invalid", "{other}");
        }
        // Before, it may have been given something that is not told by a saga.
        assert_eq!(told_anew("undo hotel", &payload("7"), payload("8")).unwrap(), payload("8"));
    }
}
