//! Flows: their jobs and undos go in encrypted; what their steps returned comes out as it was.

use async_trait::async_trait;
use tidemill_core::flow::{Part, Plan};
use tidemill_core::{FlowId, JobId, NewJob};

use super::{Encrypted, passed_on};
use crate::error::Result;
use crate::flow::{
    FlowAct, FlowAnswer, FlowFilter, FlowHead, FlowView, Flows, Input, Output, Start,
};
use crate::keyring::What;
use crate::nul::{self, Texts};

passed_on! {
    Flows {
        async fn start_flow(&self, mut plan: Plan, start: Start) -> Result<bool> {
            self.keys.hide_plan(&mut plan)?;
            self.inner.start_flow(plan, start).await
        }

        async fn add_to_flow(
            &self,
            id: FlowId,
            step: &str,
            mut jobs: Vec<NewJob>,
            part: Option<Part>,
        ) -> Result<FlowAnswer> {
            nul::check("step", [step])?;
            self.keys.hide_jobs(&mut jobs)?;
            self.inner.add_to_flow(id, step, jobs, part).await
        }

        async fn change_flow(&self, id: FlowId, mut act: FlowAct) -> Result<FlowAnswer> {
            act.check_nul()?;
            if let FlowAct::Resolve { output: Some(output), .. } = &mut act {
                // Of whichever job of the step is dead.
                self.keys.hide(What::Output, None, output)?;
            }
            self.inner.change_flow(id, act).await
        }

        async fn flows(&self, filter: &FlowFilter) -> Result<Vec<FlowHead>> {
            filter.check_nul()?;
            self.inner.flows(filter).await
        }

        async fn flow(&self, id: FlowId) -> Result<Option<FlowView>> {
            let mut view = self.inner.flow(id).await?;
            let steps = view.iter_mut().flat_map(|view| &mut view.steps);
            for undo in steps.filter_map(|step| step.undo.as_mut()) {
                self.keys.show(None, &mut undo.payload)?;
            }
            Ok(view)
        }

        async fn inputs(&self, places: &[(FlowId, u32)]) -> Result<Vec<Vec<Input>>> {
            let mut inputs = self.inner.inputs(places).await?;
            for output in inputs.iter_mut().flatten().filter_map(|input| input.output.as_mut()) {
                self.keys.show(None, output)?;
            }
            Ok(inputs)
        }

        async fn outputs(
            &self,
            id: FlowId,
            step: u32,
            after: Option<JobId>,
            limit: usize,
        ) -> Result<Vec<Output>> {
            let mut outputs = self.inner.outputs(id, step, after, limit).await?;
            for Output { id, output } in &mut outputs {
                self.keys.show_output(*id, output)?;
            }
            Ok(outputs)
        }
    }
    async fn begin_flow(&self, id: FlowId) -> Result<FlowAnswer>;
    async fn flow_places(&self, id: FlowId) -> Result<Vec<(String, Option<String>)>>;
    async fn rest_flows(&self);
    async fn tend_flows(&self) -> Result<bool>;
}
