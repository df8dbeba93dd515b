//! Flows: jobs joined by edges, started in one call.

pub mod building;
pub mod json;
pub mod new;
mod room;
mod same;
mod watch;

use std::time::Duration;

use tidemill_core::flow::plan;
use tidemill_core::job::outcome::clean;
use tidemill_core::{By, Error as Invalid, FlowId, JobId, NewJob, Payload};
use tidemill_store::Hint;
use tidemill_store::flow::{
    FlowAct, FlowAnswer, FlowFilter, FlowHead, FlowView, Output, PAGE_FLOWS_MAX, Start, text,
};
#[cfg(feature = "sqlite")]
use tidemill_store::rusqlite::Connection;

use crate::engine::Tidemill;
use crate::engine::enqueue::{Target, full_is_no_failure, let_in};
use crate::engine::telemetry::verb;
use crate::error::{Error, Result};
use crate::worker::job::Enqueue;
use new::Flow;

impl Tidemill {
    /// Starts a flow: all of it is written in one transaction, or nothing. Sent twice under the same id, it is
    /// started once; another one under the id of one that is there is refused, `id_taken`. One that is
    /// [`building`](Flow::building) is written, and does not begin. Its first jobs meet the bounds of their queues:
    /// without room for them it is refused (`QueueFull`), or waits where the rule is to wait.
    pub async fn start(&self, flow: Flow) -> Result<FlowId> {
        self.start_once(flow).await.map(|(id, _)| id)
    }

    /// The same; says also whether it is new, or was there before.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidemill::Result<()> {
    /// # let mill = tidemill::Tidemill::open("sqlite::memory:").await?;
    /// use tidemill::{Enqueue, Flow, FlowId};
    /// let id = FlowId::new();
    /// let flow = || Flow::new("signup").id(id).step("mail", Enqueue::raw("mail", "1"));
    /// assert_eq!(mill.start_once(flow()).await?, (id, true));
    /// assert_eq!(mill.start_once(flow()).await?, (id, false));
    /// let other = flow().step("more", Enqueue::raw("mail", "2"));
    /// assert_eq!(mill.start_once(other).await.unwrap_err().code(), "id_taken");
    /// # Ok(()) }
    /// ```
    pub async fn start_once(&self, flow: Flow) -> Result<(FlowId, bool)> {
        self.know_rules().await;
        let again = flow.is_chosen.then(|| flow.clone());
        let plan = self.plan(flow)?;
        self.check_plan_told(&plan).await?;
        let (id, jobs) = (plan.id, plan.jobs.len());
        let sorts = self.0.measures.sorts(plan.jobs.iter().map(|planned| &planned.job));
        let is_new = if plan.options.building {
            verb("build_flow", jobs, self.0.store.start_flow(plan, Start::Later)).await?
        } else {
            let starting = full_is_no_failure(self.start_with_room(plan));
            let_in(&sorts, verb("start_flow", jobs, starting).await?)?
        };
        if is_new {
            sorts.each().for_each(|series| series.enqueued.add(1));
        } else if let Some(flow) = again
            && !self.is_same_flow(flow).await?
        {
            return Err(Error::FlowTaken { id });
        }
        Ok((id, is_new))
    }

    /// Starts a flow in the caller's own transaction: roll back and there is none, commit and there is. Nothing but one
    /// statement runs on the connection. Call [`wake_flows`](Self::wake_flows) after the commit to have it begin at
    /// once; else it begins within a second.
    pub async fn start_in<'t>(&self, target: impl Target<'t>, flow: Flow) -> Result<FlowId> {
        self.same_store(target.backend())?;
        self.know_rules().await;
        let mut plan = self.whole(flow)?;
        self.check_plan_told(&plan).await?;
        self.0.keys.hide_plan(&mut plan)?;
        let (id, jobs) = (plan.id, plan.jobs.len());
        verb("start_flow_in", jobs, target.start(text::texts(&plan)?)).await?;
        Ok(id)
    }

    /// The same in the caller's own rusqlite transaction. Begin it with `BEGIN IMMEDIATE`.
    #[cfg(feature = "sqlite")]
    pub fn start_in_rusqlite(&self, connection: &Connection, flow: Flow) -> Result<FlowId> {
        self.same_store("sqlite")?;
        let mut plan = self.whole(flow)?;
        self.0.keys.hide_plan(&mut plan)?;
        tidemill_store::sqlite::adapter::start_in_rusqlite(connection, &text::texts(&plan)?)?;
        Ok(plan.id)
    }

    /// Tells workers that a flow may have begun. Needed only after a commit of one's own.
    pub fn wake_flows(&self) {
        self.0.store.hint(Hint::Flows);
    }

    /// Whether a flow would be taken: its names, edges, joins, expressions and jobs. Writes nothing.
    pub fn check_flow(&self, flow: Flow) -> Result<()> {
        self.plan(flow).map(drop)
    }

    /// A flow with its steps, wherever it stands, and how far it is.
    pub async fn flow(&self, id: FlowId) -> Result<Option<FlowView>> {
        let view = self.0.store.flow(id).await?;
        Ok(view.map(|view| view.expected(self.0.clock.now())))
    }

    /// The queues and tenants that the jobs of a flow are of, each once. It looks at every job of it.
    pub async fn flow_places(&self, id: FlowId) -> Result<Vec<(String, Option<String>)>> {
        Ok(self.0.store.flow_places(id).await?)
    }

    /// A page of flows, newest first.
    pub async fn flows(&self, filter: &FlowFilter) -> Result<Vec<FlowHead>> {
        Ok(self.0.store.flows(filter).await?)
    }

    /// A page of what the jobs of a step returned, by id, after this one; at most 1,000.
    pub async fn flow_outputs(
        &self,
        id: FlowId,
        step: &str,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<Output>> {
        let view = self.flow(id).await?.ok_or(Error::FlowUnknown { id })?;
        let named = view.steps.iter().find(|known| known.name == step && !known.superseded);
        let step = named.ok_or_else(|| Error::StepUnknown { id, step: step.to_owned() })?;
        Ok(self.0.store.outputs(id, step.number, after, limit.min(PAGE_FLOWS_MAX)).await?)
    }

    /// Calls a flow off: what waits never starts, what runs is told, and it ends when that has ended. Answers how many
    /// of its jobs had not ended.
    pub async fn cancel_flow(&self, id: FlowId, reason: &str) -> Result<u64> {
        let act = FlowAct::Cancel { reason: clean(reason.to_owned()) };
        acted(id, None, self.0.store.change_flow(id, act).await?)
    }

    /// Sends the dead jobs of a flow on their way again, or those of one step and what was called off of it; what was
    /// skipped because of them waits again. A flow that was called off goes on behind a step that ended well in spite
    /// of it, if that is named. Answers how many jobs are on their way, or wait, again. Of a saga that is stuck it must
    /// be said why ([`By::because`]); it is noted on the dead letters.
    pub async fn retry_flow<'b>(
        &self,
        id: FlowId,
        step: Option<&str>,
        by: impl Into<By<'b>>,
    ) -> Result<u64> {
        let By { who, why } = by.into();
        let act = FlowAct::Retry {
            step: step.map(str::to_owned),
            by: clean(who.to_owned()),
            why: why.map(|why| clean(why.to_owned())),
        };
        acted(id, step, self.0.store.change_flow(id, act).await?)
    }

    /// Lets a step and everything that comes after it run again, as fresh jobs; what has run stays, as history. Refused
    /// (`flow_not_now`) while any of that has not ended, and in a saga. Answers how many jobs there are.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidemill::Result<()> {
    /// # let mill = tidemill::Tidemill::open("sqlite::memory:").await?;
    /// use tidemill::{Enqueue, Flow, Settings, testing};
    /// let report = Flow::new("report")
    ///     .step("read", Enqueue::raw("task", "1"))
    ///     .step("sum", Enqueue::raw("task", "2")).after("read")
    ///     .step("mail", Enqueue::raw("task", "3")).after("sum");
    /// let id = mill.start(report).await?;
    /// let worker = || mill.worker().handle_raw("task", Settings::default(), |payload, _| async { Ok(payload) });
    /// testing::drain(worker()).await?;
    /// assert_eq!(mill.rerun_flow(id, "sum").await?, 2);
    /// assert_eq!(testing::drain(worker()).await?.done, 2);
    /// # Ok(()) }
    /// ```
    pub async fn rerun_flow(&self, id: FlowId, step: &str) -> Result<u64> {
        let act = FlowAct::Rerun { step: step.to_owned() };
        acted(id, Some(step), self.0.store.change_flow(id, act).await?)
    }

    /// Lets the dead job of a step count as done: somebody has seen to it, or it is to be left out. For sagas that
    /// are stuck. Noted on the dead letter, with who and why.
    pub async fn resolve_step(
        &self,
        id: FlowId,
        step: &str,
        output: Option<Payload>,
        by: &str,
        why: &str,
    ) -> Result<u64> {
        if why.trim().is_empty() {
            return Err(Error::WhyMissing { id });
        }
        let act = FlowAct::Resolve {
            step: step.to_owned(),
            output,
            by: clean(by.to_owned()),
            why: clean(why.to_owned()),
        };
        acted(id, Some(step), self.0.store.change_flow(id, act).await?)
    }

    /// Waits until the flow has ended, or is a saga that is stuck, and shows it. Fails with
    /// `flow_wait_timeout` after `timeout`.
    pub async fn wait_flow(&self, id: FlowId, timeout: Duration) -> Result<FlowView> {
        watch::wait(self, id, timeout).await
    }

    fn plan(&self, flow: Flow) -> Result<tidemill_core::flow::Plan> {
        let flow = flow.resolve(self)?;
        Ok(flow.plan(&self.0.limits, self.0.retention)?)
    }

    /// Refuses a flow of which a job, or an undo, asks a webhook to be told which is not there.
    async fn check_plan_told(&self, plan: &tidemill_core::flow::Plan) -> Result<()> {
        let undos = || plan.steps.iter().filter_map(|step| Some((step, step.undo.as_deref()?)));
        let jobs = plan.jobs.iter().map(|planned| &planned.job.options);
        let all = jobs.chain(undos().map(|(_, undo)| &undo.options));
        let hearers = self.hearers(all).await?;
        for planned in &plan.jobs {
            let step = plan.steps.get(planned.step as usize).map_or("", |step| &step.name);
            hearers.check(&planned.job.options).map_err(|error| error.in_step(step))?;
        }
        undos().try_for_each(|(step, undo)| {
            hearers.check(&undo.options).map_err(|error| error.in_undo(&step.name))
        })
    }

    /// The plan of a flow that begins in the caller's own transaction.
    fn whole(&self, flow: Flow) -> Result<tidemill_core::flow::Plan> {
        let plan = self.plan(flow)?;
        if plan.options.building {
            let reason = "it is built in parts, and cannot begin in a transaction".to_owned();
            return Err(Invalid::FlowWholeInvalid { flow: plan.name, reason }.into());
        }
        Ok(plan)
    }

    pub(crate) fn checked_jobs<E: Into<Enqueue>>(
        &self,
        step: &str,
        jobs: impl IntoIterator<Item = E>,
    ) -> Result<Vec<NewJob>> {
        self.checked_members(step, jobs).map_err(Error::alone)
    }

    /// The same; says also which job is refused.
    fn checked_members<E: Into<Enqueue>>(
        &self,
        step: &str,
        jobs: impl IntoIterator<Item = E>,
    ) -> Result<Vec<NewJob>> {
        let check = |job: Enqueue| {
            let job = self.checked(job).map_err(|error| error.in_step(step))?;
            plan::check_member(step, &job)?;
            Ok(job)
        };
        let jobs = jobs
            .into_iter()
            .enumerate()
            .map(|(index, job)| check(job.into()).map_err(|error: Error| error.in_batch(index)));
        let jobs: Vec<NewJob> = jobs.collect::<Result<_>>()?;
        let jobs_max = self.0.limits.batch_jobs_max;
        if jobs.len() > jobs_max {
            let error = Error::from(Invalid::BatchTooLarge { jobs: jobs.len(), jobs_max });
            return Err(error.in_step(step));
        }
        Ok(jobs)
    }
}

/// What was done, or why not.
fn acted(id: FlowId, step: Option<&str>, answer: FlowAnswer) -> Result<u64> {
    match answer {
        FlowAnswer::Acted { jobs } | FlowAnswer::Repeated { jobs } => Ok(jobs),
        FlowAnswer::PartReused => Err(Error::PartReused { id }),
        FlowAnswer::Invalid { step, reason } => Err(Invalid::FlowInvalid { step, reason }.into()),
        FlowAnswer::Unknown => Err(Error::FlowUnknown { id }),
        FlowAnswer::WhyMissing => Err(Error::WhyMissing { id }),
        FlowAnswer::StepUnknown => {
            Err(Error::StepUnknown { id, step: step.unwrap_or_default().to_owned() })
        }
        FlowAnswer::NotNow { why } => Err(Error::FlowNotNow { id, why }),
    }
}
