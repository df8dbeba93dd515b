//! From a flow to the rows that are written for it, or to what is wrong with it.
//!
//! Everything is checked before anything is written: names, edges, cycles, sizes, joins that could never be
//! met, expressions. An error names the culprit.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::error::{Error, Result};
use crate::flow::{
    After, EDGES_MAX, Edge, Flow, FlowOptions, Join, Need, On, Place, SAGA_STEPS_MAX, StepRow,
    UndoRule, WHEN_BYTES_MAX, Way, condition, nest, part,
};
use crate::id::FlowId;
use crate::job::{Due, NewJob};
use crate::limit::{Limits, NAME_BYTES_MAX};
use crate::name;
use crate::retention::Retention;

/// A flow that was found good, as rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Names it.
    pub id: FlowId,
    /// For people.
    pub name: String,
    /// How the whole is treated.
    pub options: FlowOptions,
    /// How long it is kept if it does not say.
    pub retention: Retention,
    /// Its steps, by number.
    pub steps: Vec<StepRow>,
    /// Its edges.
    pub edges: Vec<Edge>,
    /// Its jobs, step by step.
    pub jobs: Vec<PlannedJob>,
}

impl Plan {
    /// Whether a step waits for nobody.
    pub fn is_first(&self, step: u32) -> bool {
        self.steps.get(step as usize).is_some_and(|step| step.parents_left == 0)
    }

    /// How many jobs wait in each queue once it has begun.
    pub fn first_jobs(&self) -> BTreeMap<String, u64> {
        let mut first = BTreeMap::new();
        for planned in self.jobs.iter().filter(|planned| self.is_first(planned.step)) {
            match first.get_mut(&planned.job.queue) {
                Some(jobs) => *jobs += 1,
                None => drop(first.insert(planned.job.queue.clone(), 1)),
            }
        }
        let at_once = self.options.at_once.map_or(u64::MAX, u64::from);
        for jobs in first.values_mut() {
            *jobs = at_once.min(*jobs);
        }
        first
    }
}

/// A job and its step.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedJob {
    /// The number of its step.
    pub step: u32,
    /// The job; its options say where in the flow it stands.
    pub job: NewJob,
}

impl Flow {
    /// Checks the flow and makes its rows.
    pub fn plan(self, limits: &Limits, retention: Retention) -> Result<Plan> {
        name::check("flow", &self.name, NAME_BYTES_MAX)?;
        if self.options.at_once == Some(0) {
            let reason =
                "its at_once is 0, so no job of it could start; give 1 or more, or none".to_owned();
            return Err(Error::FlowWholeInvalid { flow: self.name, reason });
        }
        if self.options.finish_within_ms == Some(0) {
            let reason =
                "it may take 0 ms, and would be called off at once; give 1 or more, or none";
            return Err(Error::FlowWholeInvalid { flow: self.name, reason: reason.to_owned() });
        }
        let mut steps = nest::flatten(self.steps, self.options.saga)?;
        if steps.is_empty() {
            let reason = "it has no steps; give it one at least".to_owned();
            return Err(Error::FlowWholeInvalid { flow: self.name, reason });
        }
        let numbers = number(&steps)?;
        let edges = join_up(&steps, &numbers)?;
        refuse_cycles(&steps, &edges)?;
        let jobs: usize = steps.iter().map(|step| step.jobs.len()).sum();
        if jobs > limits.batch_jobs_max {
            return Err(Error::BatchTooLarge { jobs, jobs_max: limits.batch_jobs_max });
        }
        let mut ids = HashSet::with_capacity(jobs);
        for step in &steps {
            for job in &step.jobs {
                check_member(&step.name, job)?;
                if !ids.insert(job.id) {
                    let why = format!("its job has the id {}, as another one of the flow", job.id);
                    return Err(invalid(&step.name, why));
                }
            }
        }
        let mut rows: Vec<StepRow> =
            steps.iter().zip(0..).map(|(step, number)| step.row(number)).collect();
        guard(&mut rows, &edges);
        check_joins(&steps, &rows)?;
        let beyond = check_undos(&steps, &rows, &edges, self.options.saga)?;
        if !self.options.building {
            part::check_numbers(rows.iter(), edges.iter())?;
        }
        forward(&mut steps, &beyond);
        let way = |number: u32| match (self.options.saga, beyond.contains(&number)) {
            (false, _) => Way::Plain,
            (true, false) => Way::Back,
            (true, true) => Way::Forward,
        };
        let jobs = steps
            .into_iter()
            .zip(0..)
            .flat_map(|(step, number)| place_all(self.id, step, number, way(number)))
            .collect();
        let Self { id, name, options, .. } = self;
        let (options, retention) = (options.bounded(), retention.bounded());
        Ok(Plan { id, name, options, retention, steps: rows, edges, jobs })
    }
}

/// Whether a job can stand in a step of a flow.
pub fn check_member(step: &str, job: &NewJob) -> Result<()> {
    if job.unique.is_some() {
        return Err(invalid(
            step,
            "its job has a unique key, but a job of a flow cannot stand for another; make the flow's id of \
             what is unique",
        ));
    }
    Ok(())
}

/// Whether a job waits for the clock or in a line when its step is opened.
pub fn is_slow(job: &NewJob) -> bool {
    job.due != Due::Now || job.line().is_some()
}

/// Puts a job into its place in a flow.
pub fn place(mut job: NewJob, place: Place) -> NewJob {
    let due = (job.due != Due::Now).then_some(job.due);
    job.options.flow = Some(Box::new(Place { due, ..place }));
    job
}

/// What a running job of a flow adds to it.
#[derive(Debug, Clone, Copy)]
pub struct Growth<'a> {
    /// The step of the job that adds it.
    pub behind: &'a Place,
    /// Its name.
    pub name: &'a str,
    /// It leaves nothing behind that would have to be undone.
    pub nothing_to_undo: bool,
}

impl<'a> Growth<'a> {
    /// A step of this name that does not say how it is undone.
    pub fn new(behind: &'a Place, name: &'a str) -> Self {
        Self { behind, name, nothing_to_undo: false }
    }
}

/// Marks a job that a running job of a flow adds to it: a step of its own, behind the one that adds it. The rules of a
/// saga hold for it too.
pub fn grow(
    mut job: NewJob,
    Growth { behind, name, nothing_to_undo }: Growth<'_>,
) -> Result<NewJob> {
    name::check("step", name, NAME_BYTES_MAX)?;
    check_member(name, &job)?;
    match behind.way {
        Way::Back if !nothing_to_undo => {
            return Err(invalid(
                name,
                "it is added before the point of no return and does not say how it is undone; say that there is \
                 nothing to undo, or add it after that point",
            ));
        }
        Way::Forward => retry_forward(&mut job),
        Way::Back | Way::Plain => {}
    }
    let name = name.to_owned();
    Ok(place(job, Place { name, joins: true, grows: true, ..behind.clone() }))
}

/// A step that is no flow.
pub(super) struct Flat {
    pub name: String,
    pub jobs: Vec<NewJob>,
    pub after: Vec<After>,
    pub join: Join,
    pub undo: UndoRule,
    pub pivot: bool,
}

impl Flat {
    /// Its row, as it is written first.
    fn row(&self, number: u32) -> StepRow {
        let undo = match &self.undo {
            UndoRule::Job(undo) => Some(undo.clone()),
            UndoRule::Missing | UndoRule::Nothing => None,
        };
        let alarms = self.after.iter().filter(|edge| edge.on == On::Failure).count();
        StepRow {
            join: self.join.bounded(),
            // Each edge was checked to be there once.
            parents_left: u32::try_from(self.after.len()).unwrap_or(u32::MAX),
            alarms: (alarms > 0).then_some(alarms as u32),
            early: alarms > 0
                || self.join.is_quorum()
                || self.after.iter().any(|edge| edge.when.is_some()),
            undo,
            pivot: self.pivot,
            slow: self.jobs.iter().any(is_slow),
            ..StepRow::new(number, self.name.clone(), self.jobs.len() as u64)
        }
    }
}

fn place_all(flow: FlowId, step: Flat, number: u32, way: Way) -> impl Iterator<Item = PlannedJob> {
    let Flat { name, jobs, after, .. } = step;
    let joins = !after.is_empty();
    let spot = Place { id: flow, step: number, name, joins, grows: false, due: None, way };
    jobs.into_iter().map(move |job| PlannedJob { step: number, job: place(job, spot.clone()) })
}

pub(super) fn invalid(step: &str, reason: impl Into<String>) -> Error {
    Error::FlowInvalid { step: step.to_owned(), reason: reason.into() }
}

fn number(steps: &[Flat]) -> Result<HashMap<String, u32>> {
    let mut numbers = HashMap::with_capacity(steps.len());
    for (step, number) in steps.iter().zip(0..) {
        if numbers.insert(step.name.clone(), number).is_some() {
            return Err(invalid(&step.name, "two steps have this name"));
        }
    }
    Ok(numbers)
}

fn join_up(steps: &[Flat], numbers: &HashMap<String, u32>) -> Result<Vec<Edge>> {
    let mut edges = Vec::new();
    for (step, to) in steps.iter().zip(0..) {
        let mut parents = BTreeSet::new();
        for after in &step.after {
            let Some(from) = numbers.get(&after.step).copied() else {
                let why = format!("it comes after {:?}, which is no step of the flow", after.step);
                return Err(invalid(&step.name, why));
            };
            if from == to {
                return Err(invalid(&step.name, "it comes after itself"));
            }
            if !parents.insert(from) {
                let why = format!("it comes after {:?} twice", after.step);
                return Err(invalid(&step.name, why));
            }
            if let Some(when) = &after.when {
                check_when(&step.name, when)?;
            }
            edges.push(Edge { from, to, on: after.on, when: after.when.clone(), held: None });
        }
    }
    if edges.len() > EDGES_MAX {
        return Err(Error::FlowTooLarge { what: "edges", number: edges.len(), max: EDGES_MAX });
    }
    Ok(edges)
}

fn check_when(step: &str, when: &str) -> Result<()> {
    let fault = if when.len() > WHEN_BYTES_MAX {
        Err(format!("it has {} bytes, {WHEN_BYTES_MAX} at most", when.len()))
    } else {
        condition::check(when)
    };
    fault.map_err(|why| invalid(step, format!("the expression {when:?} is not understood: {why}")))
}

/// A flow must come to an end; the error names a cycle, step by step.
fn refuse_cycles(steps: &[Flat], edges: &[Edge]) -> Result<()> {
    let mut leaving: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut waits = vec![0_usize; steps.len()];
    for edge in edges {
        leaving.entry(edge.from).or_default().push(edge.to);
        waits[edge.to as usize] += 1;
    }
    let mut free: Vec<u32> =
        (0..steps.len() as u32).filter(|at| waits[*at as usize] == 0).collect();
    let mut sorted = 0;
    while let Some(at) = free.pop() {
        sorted += 1;
        for to in leaving.get(&at).into_iter().flatten() {
            waits[*to as usize] -= 1;
            if waits[*to as usize] == 0 {
                free.push(*to);
            }
        }
    }
    if sorted == steps.len() {
        return Ok(());
    }
    Err(Error::FlowCycle { cycle: cycle(steps, edges, &waits) })
}

/// One of the cycles: from any step that still waits, back along the edges until one comes again.
fn cycle(steps: &[Flat], edges: &[Edge], waits: &[usize]) -> String {
    let stuck = |at: u32| waits[at as usize] > 0;
    let parent: HashMap<u32, u32> =
        edges.iter().filter(|e| stuck(e.from) && stuck(e.to)).map(|e| (e.to, e.from)).collect();
    let Some(mut at) = (0..steps.len() as u32).find(|at| parent.contains_key(at)) else {
        return String::new();
    };
    for _ in 0..steps.len() {
        at = parent.get(&at).copied().unwrap_or(at);
    }
    let first = at;
    let mut names = vec![steps[first as usize].name.as_str()];
    while let Some(next) = parent.get(&at).copied() {
        names.push(steps[next as usize].name.as_str());
        at = next;
        if at == first {
            break;
        }
    }
    names.reverse();
    names.join(" → ")
}

/// A join must be able to be met.
fn check_joins(steps: &[Flat], rows: &[StepRow]) -> Result<()> {
    for (step, row) in steps.iter().zip(rows) {
        if row.parents_left == 0 && step.join != Join::default() {
            return Err(invalid(&step.name, "it has a join but comes after nothing"));
        }
        if step.join.need == (Need::Quorum { jobs: 0 }) {
            return Err(invalid(&step.name, "its quorum is 0; it is 1 at least"));
        }
        if step.join.within_ms == Some(0) {
            let why = "its join waits for 0 ms (within_ms), so it would be late at once; give 1 or more, or none";
            return Err(invalid(&step.name, why));
        }
    }
    Ok(())
}

/// What comes after the point of no return is retried until it works, unless it says otherwise.
pub fn retry_forward(job: &mut NewJob) {
    job.options.retry.get_or_insert_default().attempts_max.get_or_insert(u16::MAX);
}

fn forward(steps: &mut [Flat], beyond: &BTreeSet<u32>) {
    for number in beyond {
        if let Some(step) = steps.get_mut(*number as usize).filter(|step| !step.pivot) {
            step.jobs.iter_mut().for_each(retry_forward);
        }
    }
}

/// These steps, and all that come after them.
pub(super) fn reached<E: Iterator<Item = u32>>(
    from: impl Iterator<Item = u32>,
    leaving: impl Fn(u32) -> E,
) -> BTreeSet<u32> {
    let mut next: Vec<u32> = from.collect();
    let mut found: BTreeSet<u32> = next.iter().copied().collect();
    while let Some(at) = next.pop() {
        next.extend(leaving(at).filter(|to| found.insert(*to)));
    }
    found
}

/// Marks the steps that want the success only of others whose failure has a branch of its own.
fn guard(rows: &mut [StepRow], edges: &[Edge]) {
    let answers = |edge: &&Edge| edge.on == On::Failure && edge.when.is_none();
    let answered: BTreeSet<u32> = edges.iter().filter(answers).map(|edge| edge.from).collect();
    let mut guarded = vec![true; rows.len()];
    for edge in edges.iter().filter(|edge| edge.on == On::Success) {
        guarded[edge.to as usize] &= answered.contains(&edge.from);
    }
    for (row, guarded) in rows.iter_mut().zip(guarded) {
        row.guarded = guarded;
    }
}

/// The point of no return, and all steps that cannot run unless it is done.
pub(super) fn beyond<'a>(
    steps: impl Iterator<Item = &'a StepRow>,
    edges: &[Edge],
) -> BTreeSet<u32> {
    let steps: BTreeMap<u32, &StepRow> = steps.map(|step| (step.number, step)).collect();
    let arriving = |to: u32| edges.iter().filter(move |edge| edge.to == to);
    let leaving = |at: u32| edges.iter().filter(move |edge| edge.from == at).map(|edge| edge.to);
    let asked = edges.iter().filter(|edge| edge.when.is_some() || edge.on == On::Failure);
    let guarded = edges.iter().filter(|edge| steps.get(&edge.to).is_some_and(|to| to.guarded));
    // Those that may not be taken: with a condition, or another branch beside them, or behind one that has.
    let optional = reached(asked.chain(guarded).map(|edge| edge.to), leaving);
    let mut beyond: BTreeSet<u32> =
        steps.values().filter(|step| step.pivot).map(|step| step.number).collect();
    let needs_it = |step: u32, beyond: &BTreeSet<u32>| {
        let is_of_it = |edge: &&Edge| edge.on == On::Success && beyond.contains(&edge.from);
        let all = arriving(step).all(|edge| is_of_it(&edge));
        let any_sure = arriving(step).filter(is_of_it).any(|edge| !optional.contains(&edge.from));
        let wants_all = steps.get(&step).is_some_and(|step| step.join.need == Need::default());
        wants_all && (all || any_sure)
    };
    let mut next: Vec<u32> = beyond.iter().flat_map(|pivot| leaving(*pivot)).collect();
    while let Some(step) = next.pop() {
        if !beyond.contains(&step) && needs_it(step, &beyond) {
            beyond.insert(step);
            next.extend(leaving(step));
        }
    }
    beyond
}

/// Every step of a saga that can be turned back from says how it is undone. Answers the steps from the point of
/// no return on.
fn check_undos(
    steps: &[Flat],
    rows: &[StepRow],
    edges: &[Edge],
    is_saga: bool,
) -> Result<BTreeSet<u32>> {
    if !is_saga {
        let odd = steps.iter().find(|step| step.pivot || step.undo != UndoRule::Missing);
        return match odd {
            Some(step) => {
                Err(invalid(&step.name, "it says how it is undone, but the flow is no saga"))
            }
            None => Ok(BTreeSet::new()),
        };
    }
    if steps.len() > SAGA_STEPS_MAX {
        let (number, max) = (steps.len(), SAGA_STEPS_MAX);
        return Err(Error::FlowTooLarge { what: "steps of a saga", number, max });
    }
    let mut pivots = steps.iter().filter(|step| step.pivot);
    if let (Some(first), Some(second)) = (pivots.next(), pivots.next()) {
        let why = format!("it is a point of no return, and so is {:?}; a saga has one", first.name);
        return Err(invalid(&second.name, why));
    }
    let beyond = beyond(rows.iter(), edges);
    for (step, number) in steps.iter().zip(0..) {
        if step.undo == UndoRule::Missing && !beyond.contains(&number) {
            return Err(invalid(
                &step.name,
                "it does not say how it is undone; give it an undo, or say that there is nothing to \
                 undo, or put it after the point of no return, so that it cannot run without that",
            ));
        }
    }
    Ok(beyond)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::flow::{Step, Work};
    use crate::payload::Payload;

    pub(in crate::flow) fn step(name: &str, after: &[&str]) -> Step {
        let work = Work::Jobs(vec![NewJob::new(name, Payload::null())]);
        let after = after.iter().map(|name| After::success(*name)).collect();
        Step { after, ..Step::new(name, work) }
    }

    pub(in crate::flow) fn plan(steps: Vec<Step>) -> Plan {
        let options = FlowOptions::default();
        let flow = Flow { id: FlowId::new(), name: "test".to_owned(), steps, options };
        flow.plan(&Limits::default(), Retention::default()).unwrap()
    }

    fn saga(steps: Vec<Step>) -> Result<Plan> {
        let options = FlowOptions { saga: true, ..FlowOptions::default() };
        let flow = Flow { id: FlowId::new(), name: "test".to_owned(), steps, options };
        flow.plan(&Limits::default(), Retention::default())
    }

    #[test]
    fn only_what_cannot_run_without_the_pivot_needs_no_undo() {
        let safe = |name, after: &[&str]| Step { undo: UndoRule::Nothing, ..step(name, after) };
        let pivot = || Step { pivot: true, ..step("pay", &["a"]) };
        let on = |on, when: Option<&str>| {
            vec![After { on, when: when.map(str::to_owned), ..After::success("pay") }]
        };
        let begin = || vec![safe("a", &[]), safe("b", &[]), pivot()];
        let with = |last: Step| saga(begin().into_iter().chain([last]).collect());
        let quorum = Join { need: Need::Quorum { jobs: 1 }, ..Join::default() };
        assert!(with(step("m", &["pay"])).is_ok());
        assert!(with(step("m", &["b", "pay"])).is_ok());
        assert!(
            with(Step { after: on(On::Success, Some("output > 1")), ..step("m", &[]) }).is_ok()
        );
        let refused = [
            step("m", &["b"]),
            Step { after: on(On::Failure, None), ..step("m", &[]) },
            Step { after: on(On::Either, None), ..step("m", &[]) },
            Step { join: quorum, ..step("m", &["pay"]) },
            Step { join: quorum, ..step("m", &["b", "pay"]) },
            Step { join: Join { need: Need::Finished, ..Join::default() }, ..step("m", &["pay"]) },
        ];
        for last in refused {
            let why = format!("{:?} {:?}", last.after, last.join);
            assert_eq!(with(last).map(|_| ()).unwrap_err().code(), "flow_invalid", "{why}");
        }
        // A pivot that may be passed over is not before what also comes after another.
        let mut steps = begin();
        let when = Some("output > 1".to_owned());
        steps[2].after = vec![After { when, ..After::success("a") }];
        let both = saga(steps.iter().cloned().chain([step("m", &["a", "pay"])]).collect());
        assert!(both.is_err());
        // Nor is one beside which another branch may be taken.
        let refund = Step {
            after: vec![After { on: On::Failure, ..After::success("a") }],
            ..safe("c", &[])
        };
        let beside = [refund, step("m", &["pay", "b"])];
        assert!(saga(begin().into_iter().chain(beside).collect()).is_err());
        assert!(saga(steps.into_iter().chain([step("m", &["pay"])]).collect()).is_ok());
    }

    #[test]
    fn a_join_may_bear_as_many_failures_as_there_can_be() {
        let bearing = |failures_max| {
            let join = Join { need: Need::All { failures_max }, ..Join::default() };
            let empty = Step::new("empty", Work::Jobs(Vec::new()));
            let steps = vec![step("a", &[]), empty, Step { join, ..step("b", &["a", "empty"]) }];
            let options = FlowOptions::default();
            let flow = Flow { id: FlowId::new(), name: "test".to_owned(), steps, options };
            flow.plan(&Limits::default(), Retention::default()).map(drop)
        };
        assert!(bearing(2).is_ok());
        assert_eq!(bearing(3).unwrap_err().code(), "flow_invalid");
    }

    #[test]
    fn a_step_is_guarded_where_failures_have_branches_of_their_own() {
        let release = After { on: On::Failure, ..After::success("pay") };
        let plan = plan(vec![
            step("pay", &[]),
            step("ship", &["pay"]),
            Step { after: vec![release], ..step("release", &[]) },
            step("tell", &["ship", "release"]),
        ]);
        let guarded: Vec<bool> = plan.steps.iter().map(|step| step.guarded).collect();
        assert_eq!(guarded, [true, true, true, false]);
        let early: Vec<bool> = plan.steps.iter().map(|step| step.early).collect();
        assert_eq!(early, [false, false, true, false]);
        assert_eq!(plan.steps[2].alarms, Some(1));
    }
}
