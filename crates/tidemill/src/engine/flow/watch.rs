//! Awaiting the end of a flow, from any process.

use std::time::Duration;

use tidemill_core::{FlowId, JobId};
use tidemill_store::Hint;
use tidemill_store::flow::FlowView;
use tokio::time::Instant;

use crate::engine::Tidemill;
use crate::engine::patience::ends_at;
use crate::engine::wait::{LOOK_FIRST, LOOK_RARELY, WATCH_AGAIN};
use crate::error::{Error, Result};

/// Waits as one waits for a job: whoever ends the flow says so, and the store is looked at, ever more rarely.
pub(super) async fn wait(mill: &Tidemill, id: FlowId, timeout: Duration) -> Result<FlowView> {
    let deadline = ends_at(timeout);
    let watched = JobId(id.0);
    let finished = mill.0.store.wake().expect([Hint::Finished { id: watched }]);
    let mut pause = LOOK_FIRST;
    let mut watched_until = Instant::now();
    loop {
        if Instant::now() >= watched_until {
            mill.0.store.hint(Hint::Watch { id: watched });
            watched_until = Instant::now() + WATCH_AGAIN;
        }
        let view = mill.flow(id).await?.ok_or(Error::FlowUnknown { id })?;
        if view.head.state.is_resting() {
            return Ok(view);
        }
        if Instant::now() >= deadline {
            let waited_ms = timeout.as_millis() as u64;
            return Err(Error::FlowWaitTimeout { id, waited_ms, state: view.head.state });
        }
        let next_look = (Instant::now() + pause).min(deadline);
        pause = (pause * 2).min(LOOK_RARELY);
        tokio::select! {
            () = tokio::time::sleep_until(next_look) => {}
            () = finished.come() => {}
        }
    }
}
