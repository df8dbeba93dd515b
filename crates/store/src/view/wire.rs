//! Views as they are read. A payload is read as it was written, digit by digit, which serde cannot do in a struct that
//! is flattened into another: here all fields stand side by side.

use jiff::Timestamp;
use serde::Deserialize;
use tidemill_core::job::Options;
use tidemill_core::stream::Progress;
use tidemill_core::{Job, JobId, Payload, Priority, State, Token, UniqueKey, WorkerId};

#[derive(Deserialize)]
pub(super) struct JobView {
    id: JobId,
    kind: String,
    queue: String,
    priority: Priority,
    tenant: Option<String>,
    key: Option<String>,
    unique_key: Option<String>,
    payload: Payload,
    options: Options,
    created_at: Timestamp,
    state: State,
    attempt: u16,
    lost: u16,
    due_at: Option<Timestamp>,
    #[serde(default)]
    gate: Option<String>,
    worker: Option<WorkerId>,
    token: Option<Token>,
    finished_at: Option<Timestamp>,
    output: Option<Payload>,
    error: Option<String>,
    cancel_requested: bool,
    #[serde(default)]
    bare: bool,
    #[serde(default)]
    progress: Option<Progress>,
}

impl From<JobView> for super::JobView {
    fn from(view: JobView) -> Self {
        let JobView { id, kind, queue, priority, tenant, key, unique_key, payload, .. } = view;
        // As it was given: kept, it has the mark of its kind.
        let unique_key = unique_key.map(|given| UniqueKey::given(&kind, &given));
        let (options, created_at) = (view.options, view.created_at);
        Self {
            job: Job {
                id,
                kind,
                queue,
                priority,
                tenant,
                key,
                unique_key,
                payload,
                options,
                created_at,
            },
            state: view.state,
            attempt: view.attempt,
            lost: view.lost,
            due_at: view.due_at,
            gate: view.gate,
            worker: view.worker,
            token: view.token,
            finished_at: view.finished_at,
            output: view.output,
            error: view.error,
            cancel_requested: view.cancel_requested,
            bare: view.bare,
            progress: view.progress,
        }
    }
}
