//! Flows that are built in parts: any number of jobs, and nothing starts before all are there.

use http::{HeaderName, Method};
use serde::Serialize;
use tidemill::{Enqueue, Flow, FlowId};
use tidemill_core::{NewJob, Wish};

use crate::error::Result;
use crate::flows::{Acted, Cancel, Started, of};
use crate::http::Client;
use crate::jobs::checked;

/// Jobs of a part that is made of many.
const PART_JOBS: usize = 1000;
/// And bytes of their payloads: a server takes bodies of 16 MiB, unless it was told otherwise.
const PART_BYTES: usize = 8 * 1024 * 1024;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");

#[derive(Serialize)]
struct Part<'a> {
    step: &'a str,
    jobs: Vec<Wish>,
}

impl Client {
    /// Starts a flow of which one step has more jobs than one call can carry: they are sent part by part, and
    /// nothing of the flow runs before the last. Called again for a flow of the same id with the same jobs, it goes
    /// on where it was stopped.
    pub async fn start_with<E: Into<Enqueue>>(
        &self,
        flow: Flow,
        step: &str,
        jobs: impl IntoIterator<Item = E>,
    ) -> Result<FlowId> {
        let building = self.build(flow).await?;
        let mut jobs = jobs.into_iter().map(|job| checked(job.into()));
        for number in 1_u64.. {
            let (mut part, mut bytes) = (Vec::new(), 0);
            while part.len() < PART_JOBS && bytes < PART_BYTES {
                let Some(job) = jobs.next().transpose()? else { break };
                bytes += job.payload.as_str().len();
                part.push(job);
            }
            if part.is_empty() {
                break;
            }
            building.send(Some(&number.to_string()), step, &part).await?;
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
        Building { client: self.clone(), id }
    }
}

/// A flow that is written and has not begun.
#[derive(Debug, Clone)]
pub struct Building {
    client: Client,
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
        self.send(None, step, &all(jobs)?).await
    }

    /// Gives a step more jobs, all or none, once for this key: the same part sent again adds nothing, and is
    /// answered as it was. Another one under the same key is refused (`idempotency_key_reused`).
    pub async fn add_once<E: Into<Enqueue>>(
        &self,
        part: &str,
        step: &str,
        jobs: impl IntoIterator<Item = E>,
    ) -> Result<u64> {
        self.send(Some(part), step, &all(jobs)?).await
    }

    async fn send(&self, key: Option<&str>, step: &str, jobs: &[NewJob]) -> Result<u64> {
        let part = Part { step, jobs: jobs.iter().map(Wish::from).collect() };
        let mut request = self.client.request(Method::POST, &of(self.id, "jobs")).json(&part);
        if let Some(key) = key {
            request = request.header(KEY, key);
        }
        Ok(self.client.value::<Acted>(request).await?.jobs)
    }

    /// Lets it begin; again, if it has.
    pub async fn begin(self) -> Result<FlowId> {
        let begun: Started = self.client.ask(Method::POST, &of(self.id, "begin")).await?;
        Ok(begun.id)
    }

    /// Throws it away: nothing of it ever starts. Answers how many jobs that came to.
    pub async fn discard(self, reason: &str) -> Result<u64> {
        let discarded: Acted =
            self.client.post(&of(self.id, "discard"), &Cancel { reason }).await?;
        Ok(discarded.jobs)
    }
}

fn all<E: Into<Enqueue>>(jobs: impl IntoIterator<Item = E>) -> Result<Vec<NewJob>> {
    jobs.into_iter().map(|job| checked(job.into())).collect()
}
