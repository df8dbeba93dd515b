//! The verbs of flows, each handed to the file that does it.

use async_trait::async_trait;
use tidemill_core::flow::{Part, Plan};
use tidemill_core::{FlowId, JobId, NewJob};

use crate::error::{Error, Result};
use crate::flow::{
    FlowAct, FlowAnswer, FlowFilter, FlowHead, FlowView, Flows, Input, Output, Start,
};
use crate::sqlite::{Sqlite, flows};

#[async_trait]
impl Flows for Sqlite {
    async fn start_flow(&self, plan: Plan, start: Start) -> Result<bool> {
        self.write(move |turn| flows::start(turn, &plan, start)).await?.map_err(Error::QueueFull)
    }

    async fn add_to_flow(
        &self,
        id: FlowId,
        step: &str,
        jobs: Vec<NewJob>,
        part: Option<Part>,
    ) -> Result<FlowAnswer> {
        let step = step.to_owned();
        self.write(move |turn| flows::add(turn, id, &step, &jobs, part.as_ref())).await
    }

    async fn begin_flow(&self, id: FlowId) -> Result<FlowAnswer> {
        self.write(move |turn| flows::begin_if_room(turn, id)).await?.map_err(Error::QueueFull)
    }

    async fn change_flow(&self, id: FlowId, act: FlowAct) -> Result<FlowAnswer> {
        self.write(move |turn| flows::change(turn, id, &act)).await
    }

    async fn flow(&self, id: FlowId) -> Result<Option<FlowView>> {
        self.read(move |conn| flows::flow(conn, id)).await
    }

    async fn flow_places(&self, id: FlowId) -> Result<Vec<(String, Option<String>)>> {
        self.read(move |conn| flows::places(conn, id)).await
    }

    async fn flows(&self, filter: &FlowFilter) -> Result<Vec<FlowHead>> {
        let filter = filter.clone();
        self.read(move |conn| flows::list(conn, &filter)).await
    }

    async fn inputs(&self, places: &[(FlowId, u32)]) -> Result<Vec<Vec<Input>>> {
        let places = places.to_vec();
        self.read(move |conn| flows::inputs(conn, &places)).await
    }

    async fn outputs(
        &self,
        id: FlowId,
        step: u32,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<Output>> {
        self.read(move |conn| flows::outputs(conn, id, step, after, limit)).await
    }

    async fn tend_flows(&self) -> Result<bool> {
        flows::tend(self).await
    }
}
