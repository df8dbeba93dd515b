//! Flows that are built in parts: written, given jobs as often as there are more, and let go at the end.
//!
//! A flow of any size goes in this way, and nothing of it runs before it is whole. A part that is sent again, because
//! its answer was lost or its sender died, is added once.

use tidemill_core::FlowId;
use tidemill_core::flow::Part;
use tidemill_store::Error as StoreError;
use tidemill_store::flow::{FlowAct, FlowAnswer};

use super::acted;
use super::new::Flow;
use crate::engine::Tidemill;
use crate::engine::enqueue::full_is_no_failure;
use crate::engine::telemetry::verb;
use crate::error::Result;
use crate::worker::job::Enqueue;

/// Jobs that are sent at a time when a step is given many.
const PART_JOBS: usize = 1000;

impl Tidemill {
    /// Starts a flow of which one step has more jobs than one call can carry: they are sent a thousand at a
    /// time, and nothing of the flow runs before the last. The step must be there, and may have jobs already.
    ///
    /// Called again for a flow of the same [id](Flow::id) with the same jobs, it goes on where it was stopped.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidemill::Result<()> {
    /// # let mill = tidemill::Tidemill::open("sqlite::memory:").await?;
    /// use tidemill::{Enqueue, Flow};
    /// let campaign = Flow::new("campaign")
    ///     .fan_out("mail", Vec::<Enqueue>::new())
    ///     .step("report", Enqueue::raw("report", "{}"))
    ///     .after("mail");
    /// let mails = (0..20_000).map(|user| Enqueue::raw("mail", user.to_string()));
    /// let id = mill.start_with(campaign, "mail", mails).await?;
    /// assert_eq!(mill.flow(id).await?.unwrap().head.jobs, 20_001);
    /// # Ok(()) }
    /// ```
    pub async fn start_with<E: Into<Enqueue>>(
        &self,
        flow: Flow,
        step: &str,
        jobs: impl IntoIterator<Item = E>,
    ) -> Result<FlowId> {
        let building = self.build(flow).await?;
        let mut jobs = jobs.into_iter();
        for number in 1_u64.. {
            let part: Vec<E> = jobs.by_ref().take(PART_JOBS).collect();
            if part.is_empty() {
                break;
            }
            building.add_once(&number.to_string(), step, part).await?;
        }
        building.begin().await
    }

    /// Writes a flow that does not start yet: its steps can be given more jobs until it begins.
    pub async fn build(&self, flow: Flow) -> Result<Building> {
        let id = self.start(flow.building()).await?;
        Ok(self.building(id))
    }

    /// A flow that was written before, to be built further.
    pub fn building(&self, id: FlowId) -> Building {
        Building { mill: self.clone(), id }
    }
}

/// A flow that is written and has not begun.
#[derive(Debug, Clone)]
pub struct Building {
    mill: Tidemill,
    id: FlowId,
}

impl Building {
    /// The flow's id.
    pub fn id(&self) -> FlowId {
        self.id
    }

    /// Gives a step more jobs, all or none. Answers how many are new: a job that is there under its id stays as it is.
    pub async fn add<E: Into<Enqueue>>(
        &self,
        step: &str,
        jobs: impl IntoIterator<Item = E>,
    ) -> Result<u64> {
        self.send(None, step, jobs).await
    }

    /// Gives a step more jobs, all or none, once for this key: the same part sent again adds nothing, and is
    /// answered as it was. Another one under the same key is refused (`part_reused`). Jobs are the same by kind,
    /// queue, tenant and payload; their ids may be made anew.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidemill::Result<()> {
    /// # let mill = tidemill::Tidemill::open("sqlite::memory:").await?;
    /// use tidemill::{Enqueue, Flow};
    /// let mails = |users: std::ops::Range<u32>| users.map(|user| Enqueue::raw("mail", user.to_string()));
    /// let building = mill.build(Flow::new("campaign").fan_out("mail", mails(0..0))).await?;
    /// for _ in 0..2 {
    ///     assert_eq!(building.add_once("1", "mail", mails(0..500)).await?, 500);
    /// }
    /// assert!(building.add_once("1", "mail", mails(500..900)).await.is_err());
    /// let id = building.begin().await?;
    /// assert_eq!(mill.flow(id).await?.unwrap().head.jobs, 500);
    /// # Ok(()) }
    /// ```
    pub async fn add_once<E: Into<Enqueue>>(
        &self,
        part: &str,
        step: &str,
        jobs: impl IntoIterator<Item = E>,
    ) -> Result<u64> {
        self.send(Some(part), step, jobs).await
    }

    async fn send<E: Into<Enqueue>>(
        &self,
        part: Option<&str>,
        step: &str,
        jobs: impl IntoIterator<Item = E>,
    ) -> Result<u64> {
        self.mill.know_rules().await;
        let jobs = self.mill.checked_members(step, jobs)?;
        self.mill.check_told(&jobs).await.map_err(|error| error.in_step(step))?;
        let part = part.map(|key| Part::new(key, step, &jobs)).transpose()?;
        let (number, inner) = (jobs.len(), &self.mill.0);
        let sorts = inner.measures.sorts(jobs.iter());
        let added = inner.store.add_to_flow(self.id, step, jobs, part);
        let answer = verb("add_to_flow", number, added).await?;
        if answer == (FlowAnswer::Acted { jobs: number as u64 }) {
            sorts.each().for_each(|series| series.enqueued.add(1));
        }
        acted(self.id, Some(step), answer)
    }

    /// Lets it begin; again, if it has. Refused with `flow_invalid`, which names the culprit, if it could never work
    /// with the jobs that it has, and with `flow_not_now` if it was called off. What is first in it meets the bounds of
    /// its queues: without room it is refused (`QueueFull`) and stays as it is, or waits where the rule is to wait.
    pub async fn begin(self) -> Result<FlowId> {
        let beginning = full_is_no_failure(self.mill.begin_with_room(self.id));
        let answer = verb("begin_flow", 1, beginning).await?.map_err(StoreError::QueueFull)?;
        acted(self.id, None, answer).map(|_| self.id)
    }

    /// Throws it away: nothing of it ever starts. Refused with `flow_not_now` if it has begun. Answers how many jobs
    /// that came to.
    pub async fn discard(self, reason: &str) -> Result<u64> {
        let act = FlowAct::Discard { reason: reason.to_owned() };
        acted(self.id, None, self.mill.0.store.change_flow(self.id, act).await?)
    }
}
