//! A flow as one JSON document: the head and the steps side by side, each word once.

use serde::Serialize;
use tidemill::{FlowId, FlowProgress, FlowView, StepView, Timestamp};
use tidemill_core::flow::FlowState;

/// What `--json` prints of a flow.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    id: FlowId,
    name: &'a str,
    state: FlowState,
    created_at: Timestamp,
    finished_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    reason: Option<&'a str>,
    steps_left: u64,
    jobs: u64,
    done: u64,
    failed: u64,
    progress: FlowProgress,
    steps: &'a [StepView],
}

impl<'a> From<&'a FlowView> for Document<'a> {
    fn from(view: &'a FlowView) -> Self {
        let head = &view.head;
        Self {
            id: head.id,
            name: &head.name,
            state: head.state,
            created_at: head.created_at,
            finished_at: head.finished_at,
            since: head.since,
            reason: head.reason.as_deref(),
            steps_left: head.steps_left,
            jobs: head.jobs,
            done: head.done,
            failed: head.failed,
            progress: view.progress,
            steps: &view.steps,
        }
    }
}
