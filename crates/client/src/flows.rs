//! Flows and sagas: started, looked at, waited for, called off, and helped on.

use std::time::Duration;

use http::Method;
use serde::{Deserialize, Serialize};
use tidemill::core::flow::FlowState;
use tidemill::{By, Flow, FlowFilter, FlowHead, FlowId, FlowView, JobId, Output, Payload};
use tidemill_core::{Clock, cursor};
use tokio::time::Instant;

use crate::error::Result;
use crate::http::{Client, PAGE_MAX, Path, Raw, path, raw};
use crate::jobs::{known, limits};

/// Between two looks at a flow that is waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

#[derive(Deserialize)]
pub(crate) struct Started {
    pub(crate) id: FlowId,
    #[serde(default)]
    answer: Option<String>,
}

#[derive(Serialize)]
struct Asked<'a> {
    state: Option<FlowState>,
    name: Option<&'a str>,
    cursor: Option<String>,
    limit: usize,
}

#[derive(Deserialize)]
struct Page {
    flows: Vec<FlowHead>,
}

#[derive(Deserialize)]
pub(crate) struct Acted {
    pub(crate) jobs: u64,
}

#[derive(Serialize)]
pub(crate) struct Cancel<'a> {
    pub(crate) reason: &'a str,
}

#[derive(Serialize)]
struct OfStep<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

#[derive(Serialize)]
struct Resolve<'a> {
    step: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Raw>,
    why: &'a str,
}

#[derive(Serialize)]
struct AskedOutputs<'a> {
    step: &'a str,
    cursor: Option<String>,
    limit: usize,
}

#[derive(Deserialize)]
struct Outputs {
    outputs: Vec<Output>,
}

impl Client {
    /// Starts a flow: all of it is written, or nothing. Sent twice under the same id, it is started once.
    pub async fn start(&self, flow: Flow) -> Result<FlowId> {
        self.start_once(flow).await.map(|(id, _)| id)
    }

    /// The same; says also whether it is new, or was there before.
    pub async fn start_once(&self, flow: Flow) -> Result<(FlowId, bool)> {
        let text = flow.to_json(&limits(), Clock::System.now())?;
        let Started { id, answer } = self.post(&path(["flows"]), &raw(&text)?).await?;
        Ok((id, answer.as_deref() != Some("existing")))
    }

    /// A flow with its steps, if it is kept.
    pub async fn flow(&self, id: FlowId) -> Result<Option<FlowView>> {
        known(self.get(&path(["flows", &id.to_string()]), &()).await, "flow_unknown")
    }

    /// Flows, newest first.
    pub async fn flows(&self, filter: &FlowFilter) -> Result<Vec<FlowHead>> {
        let asked = Asked {
            state: filter.state,
            name: filter.name.as_deref(),
            cursor: filter.before.map(|id| cursor::write("flows", &id.to_string())),
            limit: filter.page_rows(),
        };
        Ok(self.get::<Page>(&path(["flows"]), &asked).await?.flows)
    }

    /// What the jobs of a step returned, by id.
    pub async fn flow_outputs(
        &self,
        id: FlowId,
        step: &str,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<Output>> {
        let cursor = after.map(|id| cursor::write("outputs", &id.to_string()));
        let asked = AskedOutputs { step, cursor, limit: limit.clamp(1, PAGE_MAX) };
        Ok(self.get::<Outputs>(&of(id, "outputs"), &asked).await?.outputs)
    }

    /// Calls a flow off. Answers how many of its jobs had not ended.
    pub async fn cancel_flow(&self, id: FlowId, reason: &str) -> Result<u64> {
        self.act(id, "cancel", &Cancel { reason }).await
    }

    /// Sends the dead jobs of a flow, or of one step, on their way again. Who did it is whose credential it is,
    /// whatever `by` says.
    pub async fn retry_flow<'b>(
        &self,
        id: FlowId,
        step: Option<&str>,
        by: impl Into<By<'b>>,
    ) -> Result<u64> {
        self.act(id, "retry", &OfStep { step, why: by.into().why }).await
    }

    /// Lets a step and everything that comes after it run again.
    pub async fn rerun_flow(&self, id: FlowId, step: &str) -> Result<u64> {
        self.act(id, "rerun", &OfStep { step: Some(step), why: None }).await
    }

    /// Lets the dead job of a step count as done. Who did it is whose credential it is, whatever `by` says.
    pub async fn resolve_step(
        &self,
        id: FlowId,
        step: &str,
        output: Option<Payload>,
        by: &str,
        why: &str,
    ) -> Result<u64> {
        let _ = by;
        let output = output.map(|output| raw(output.as_str())).transpose()?;
        self.act(id, "resolve", &Resolve { step, output, why }).await
    }

    /// Waits until a flow has ended; an error with the code `flow_wait_timeout` if it has not in this time.
    pub async fn wait_flow(&self, id: FlowId, timeout: Duration) -> Result<FlowView> {
        let began = Instant::now();
        loop {
            let view = self.flow(id).await?.ok_or(tidemill::Error::FlowUnknown { id })?;
            let state = view.head.state;
            if state.is_resting() {
                return Ok(view);
            }
            let left = timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                let waited_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                return Err(tidemill::Error::FlowWaitTimeout { id, waited_ms, state }.into());
            }
            tokio::time::sleep(left.min(LOOK_AGAIN)).await;
        }
    }

    async fn act(&self, id: FlowId, act: &str, body: &impl Serialize) -> Result<u64> {
        let acted: Acted = self.value(self.request(Method::POST, &of(id, act)).json(body)).await?;
        Ok(acted.jobs)
    }
}

pub(crate) fn of(id: FlowId, what: &str) -> Path {
    path(["flows", &id.to_string(), what])
}
