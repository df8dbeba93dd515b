//! How late the runtime wakes whoever sleeps: a handler that blocks a thread, or a machine with too much to do, is
//! seen here before anything else suffers from it.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::engine::Tidemill;

const EVERY: Duration = Duration::from_millis(250);

/// Measures until `stop`.
pub(crate) async fn run(mill: Tidemill, stop: CancellationToken) {
    loop {
        let due = Instant::now() + EVERY;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep_until(due) => {}
        }
        mill.0.measures.wakes_late.see_time(due.elapsed());
    }
}
