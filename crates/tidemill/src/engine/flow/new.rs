//! A flow on its way in: a builder that reads as the flow runs.

use std::time::Duration;

use tidemill_core::flow::{After, FlowOptions, Join, Need, On, Rest, Step, UndoRule, Work, plan};
use tidemill_core::{Error as Invalid, FlowId};

use crate::engine::Tidemill;
use crate::error::Result;
use crate::worker::job::Enqueue;

/// A flow on its way in. What is said after a step is said of that step.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidemill::Result<()> {
/// # let mill = tidemill::Tidemill::open("sqlite::memory:").await?;
/// use tidemill::{Enqueue, Flow};
/// let job = |kind: &str| Enqueue::raw(kind, r#"{"user":42}"#);
/// let signup = Flow::new("signup")
///     .step("account", job("create_account"))
///     .step("mail", job("send_welcome")).after("account")
///     .step("keys", job("make_keys")).after("account")
///     .step("ready", job("announce")).after_all(["mail", "keys"]);
/// let id = mill.start(signup).await?;
/// # assert_eq!(mill.flow(id).await?.unwrap().steps.len(), 4);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Flow {
    pub(super) id: FlowId,
    /// Somebody has chosen the id: one of it may be there.
    pub(super) is_chosen: bool,
    pub(super) name: String,
    pub(super) steps: Vec<Draft>,
    pub(super) options: FlowOptions,
    /// The first thing that was said of no step.
    pub(super) astray: Option<&'static str>,
}

/// A step on its way in.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub name: String,
    pub work: DraftWork,
    pub after: Vec<After>,
    pub join: Join,
    pub undo: DraftUndo,
    pub pivot: bool,
}

/// How a step is undone, before its job is checked.
#[derive(Debug, Clone, Default)]
pub(super) enum DraftUndo {
    #[default]
    Missing,
    Nothing,
    Job(Box<Enqueue>),
}

#[derive(Debug, Clone)]
pub(super) enum DraftWork {
    Jobs(Vec<Enqueue>),
    Flow(Vec<Draft>),
}

impl Draft {
    fn has_jobs(&self) -> bool {
        match &self.work {
            DraftWork::Jobs(jobs) => !jobs.is_empty(),
            DraftWork::Flow(steps) => steps.iter().any(Self::has_jobs),
        }
    }

    fn each_job<E>(
        &mut self,
        see: &mut impl FnMut(&mut Enqueue) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if let DraftUndo::Job(undo) = &mut self.undo {
            see(undo)?;
        }
        match &mut self.work {
            DraftWork::Jobs(jobs) => jobs.iter_mut().try_for_each(see),
            DraftWork::Flow(steps) => steps.iter_mut().try_for_each(|step| step.each_job(see)),
        }
    }
}

impl Flow {
    /// Shows every job of it, those that undo others too, to whoever may change or refuse them.
    pub fn each_job<E>(
        &mut self,
        mut see: impl FnMut(&mut Enqueue) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.steps.iter_mut().try_for_each(|step| step.each_job(&mut see))
    }

    /// A flow without steps.
    pub fn new(name: impl Into<String>) -> Self {
        let (id, name, options) = (FlowId::new(), name.into(), FlowOptions::default());
        Self { id, is_chosen: false, name, steps: Vec::new(), options, astray: None }
    }

    /// A flow whose steps can be undone: when one fails before the point of no return, what was done is undone, in
    /// reverse.
    pub fn saga(name: impl Into<String>) -> Self {
        let mut flow = Self::new(name);
        flow.options.saga = true;
        flow
    }

    /// The id it will have. Starting the same flow twice under it starts it once; another one is refused, `id_taken`.
    #[must_use]
    pub fn id(self, id: FlowId) -> Self {
        Self { id, is_chosen: true, ..self }
    }

    /// A step with one job.
    #[must_use]
    pub fn step(self, name: impl Into<String>, job: impl Into<Enqueue>) -> Self {
        self.with(name.into(), DraftWork::Jobs(vec![job.into()]))
    }

    /// A step with one job, after the step before it: a chain.
    #[must_use]
    pub fn then(self, name: impl Into<String>, job: impl Into<Enqueue>) -> Self {
        let before = self.steps.last().map(|step| step.name.clone());
        let flow = self.step(name, job);
        match before {
            Some(before) => flow.after(before),
            None => flow,
        }
    }

    /// A step with many jobs. It ends when the last of them has.
    #[must_use]
    pub fn fan_out<E: Into<Enqueue>>(
        self,
        name: impl Into<String>,
        jobs: impl IntoIterator<Item = E>,
    ) -> Self {
        let jobs = jobs.into_iter().map(Into::into).collect();
        self.with(name.into(), DraftWork::Jobs(jobs))
    }

    /// A step that is a flow: its steps are named `outer/inner`. It ends when its last steps have.
    #[must_use]
    pub fn nested(mut self, name: impl Into<String>, inner: Self) -> Self {
        self.astray = self.astray.or(inner.astray);
        self.with(name.into(), DraftWork::Flow(inner.steps))
    }

    /// The step runs after this one has succeeded.
    #[must_use]
    pub fn after(self, step: impl Into<String>) -> Self {
        self.edge("after", After::success(step))
    }

    /// The step runs after all of these have succeeded.
    #[must_use]
    pub fn after_all<S: Into<String>>(self, steps: impl IntoIterator<Item = S>) -> Self {
        steps.into_iter().fold(self, Self::after)
    }

    /// The step runs if a job of this one is dead or was called off.
    #[must_use]
    pub fn after_failure(self, step: impl Into<String>) -> Self {
        self.edge("after_failure", After { on: On::Failure, ..After::success(step) })
    }

    /// The step runs after this one has ended, well or not.
    #[must_use]
    pub fn after_either(self, step: impl Into<String>) -> Self {
        self.edge("after_either", After { on: On::Either, ..After::success(step) })
    }

    /// The step runs after this one has succeeded, if the expression holds: `output.total > 100`. It is written in
    /// CEL and sees `output`, `done` and `failed`.
    #[must_use]
    pub fn after_when(self, step: impl Into<String>, when: impl Into<String>) -> Self {
        self.edge("after_when", After { when: Some(when.into()), ..After::success(step) })
    }

    /// The step waits for all it comes after to end, well or not.
    #[must_use]
    pub fn when_finished(self) -> Self {
        self.join("when_finished", |join| join.need = Need::Finished)
    }

    /// The step waits for the first success among what it comes after.
    #[must_use]
    pub fn when_any(self) -> Self {
        self.when_quorum(1)
    }

    /// The step waits for so many successes among the jobs it comes after.
    #[must_use]
    pub fn when_quorum(self, jobs: u32) -> Self {
        self.join("when_quorum", |join| join.need = Need::Quorum { jobs })
    }

    /// The step waits for all it comes after, and bears so many failed jobs among them.
    #[must_use]
    pub fn bearing(self, failures_max: u32) -> Self {
        self.join("bearing", |join| join.need = Need::All { failures_max })
    }

    /// The step waits no longer than this after the start of the flow: what has not ended then counts as failed.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        self.join("within", |join| join.within_ms = Some(millis(limit)))
    }

    /// Once the step is decided, what it comes after and has not ended is called off.
    #[must_use]
    pub fn cancel_rest(self) -> Self {
        self.join("cancel_rest", |join| join.rest = Rest::Cancel)
    }

    /// The step is undone by this job. It gets this payload, and what became of the step: see [`Undo`](crate::Undo).
    #[must_use]
    pub fn undo(self, job: impl Into<Enqueue>) -> Self {
        let job = Box::new(job.into());
        self.last("undo", |step| step.undo = DraftUndo::Job(job))
    }

    /// The step leaves nothing behind that would have to be undone.
    #[must_use]
    pub fn nothing_to_undo(self) -> Self {
        self.last("nothing_to_undo", |step| step.undo = DraftUndo::Nothing)
    }

    /// The step is the point of no return: once it is done, the saga goes forward only.
    #[must_use]
    pub fn pivot(self) -> Self {
        self.last("pivot", |step| step.pivot = true)
    }

    /// The whole flow: it does not begin before it is told to; until then its steps are given more jobs. See
    /// [`Building`](crate::Building).
    #[must_use]
    pub fn building(mut self) -> Self {
        self.options.building = true;
        self
    }

    /// Whether it is [`building`](Self::building).
    pub fn is_building(&self) -> bool {
        self.options.building
    }

    /// Whether a step of it has a job.
    pub fn has_jobs(&self) -> bool {
        self.steps.iter().any(Draft::has_jobs)
    }

    /// The whole flow: at most so many of its jobs are under way at once.
    #[must_use]
    pub fn at_once(mut self, jobs: u32) -> Self {
        self.options.at_once = Some(jobs);
        self
    }

    /// The whole flow: it is called off if it has not ended by then.
    #[must_use]
    pub fn finish_within(mut self, limit: Duration) -> Self {
        self.options.finish_within_ms = Some(millis(limit));
        self
    }

    /// The whole flow: it is kept this long after it ended, with all its jobs.
    #[must_use]
    pub fn retain(mut self, retain: Duration) -> Self {
        self.options.retain_ms = Some(millis(retain));
        self
    }

    fn with(mut self, name: String, work: DraftWork) -> Self {
        let (join, undo) = (Join::default(), DraftUndo::Missing);
        self.steps.push(Draft { name, work, after: Vec::new(), join, undo, pivot: false });
        self
    }

    fn edge(self, what: &'static str, after: After) -> Self {
        self.last(what, |step| step.after.push(after))
    }

    fn join(self, what: &'static str, change: impl FnOnce(&mut Join)) -> Self {
        self.last(what, |step| change(&mut step.join))
    }

    fn last(mut self, what: &'static str, change: impl FnOnce(&mut Draft)) -> Self {
        match self.steps.last_mut() {
            Some(step) => change(step),
            None => self.astray = self.astray.or(Some(what)),
        }
        self
    }

    /// Refuses what was said of no step.
    pub(super) fn refuse_astray(&self) -> Result<()> {
        let Some(what) = self.astray else { return Ok(()) };
        let reason = format!("{what} was said before any step; say it after the step it is about");
        Err(Invalid::FlowWholeInvalid { flow: self.name.clone(), reason }.into())
    }

    /// Checks all jobs, and makes the flow that is planned.
    pub(super) fn resolve(self, mill: &Tidemill) -> Result<tidemill_core::Flow> {
        self.refuse_astray()?;
        let steps = resolve_steps(mill, "", self.steps)?;
        Ok(tidemill_core::Flow { id: self.id, name: self.name, steps, options: self.options })
    }
}

/// The steps of a flow, or of one within another: `outer` is what their names begin with.
fn resolve_steps(mill: &Tidemill, outer: &str, steps: Vec<Draft>) -> Result<Vec<Step>> {
    let resolve = |step: Draft| {
        let named = format!("{outer}{}", step.name);
        let work = match step.work {
            DraftWork::Jobs(jobs) => Work::Jobs(mill.checked_jobs(&named, jobs)?),
            DraftWork::Flow(steps) => Work::Flow(resolve_steps(mill, &format!("{named}/"), steps)?),
        };
        let undo = match step.undo {
            DraftUndo::Missing => UndoRule::Missing,
            DraftUndo::Nothing => UndoRule::Nothing,
            DraftUndo::Job(job) => {
                let job = mill.checked(*job).map_err(|error| error.in_undo(&named))?;
                plan::check_member(&named, &job)?;
                UndoRule::Job(Box::new(job.into()))
            }
        };
        let Draft { name, after, join, pivot, .. } = step;
        Ok(Step { name, work, after, join, undo, pivot })
    };
    steps.into_iter().map(resolve).collect()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
