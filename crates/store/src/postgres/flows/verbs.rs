//! The verbs of flows, each handed to the file that does it.

use async_trait::async_trait;
use tidemill_core::flow::{Part, Plan};
use tidemill_core::{FlowId, JobId, NewJob};

use crate::error::Result;
use crate::flow::{
    FlowAct, FlowAnswer, FlowFilter, FlowHead, FlowView, Flows, Input, Output, Start,
};
use crate::postgres::{Postgres, flows};

#[async_trait]
impl Flows for Postgres {
    async fn start_flow(&self, plan: Plan, start: Start) -> Result<bool> {
        flows::start(&self.shared, plan, start).await
    }

    async fn add_to_flow(
        &self,
        id: FlowId,
        step: &str,
        jobs: Vec<NewJob>,
        part: Option<Part>,
    ) -> Result<FlowAnswer> {
        flows::add(&self.shared, id, step, &jobs, part.as_ref()).await
    }

    async fn begin_flow(&self, id: FlowId) -> Result<FlowAnswer> {
        flows::begin(&self.shared, id).await
    }

    async fn change_flow(&self, id: FlowId, act: FlowAct) -> Result<FlowAnswer> {
        flows::change(&self.shared, id, &act).await
    }

    async fn flow(&self, id: FlowId) -> Result<Option<FlowView>> {
        flows::flow(&self.shared, id).await
    }

    async fn flow_places(&self, id: FlowId) -> Result<Vec<(String, Option<String>)>> {
        flows::places(&self.shared, id).await
    }

    async fn flows(&self, filter: &FlowFilter) -> Result<Vec<FlowHead>> {
        flows::list(&self.shared, filter).await
    }

    async fn inputs(&self, places: &[(FlowId, u32)]) -> Result<Vec<Vec<Input>>> {
        flows::inputs(&self.shared, places).await
    }

    async fn outputs(
        &self,
        id: FlowId,
        step: u32,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<Output>> {
        flows::outputs(&self.shared, id, step, after, limit).await
    }

    async fn tend_flows(&self) -> Result<bool> {
        flows::tend(&self.shared).await
    }

    async fn rest_flows(&self) {
        self.shared.arrivals.rest().await;
    }
}
