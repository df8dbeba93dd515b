//! Does for flows what no job's end does: opens large steps, calls off, minds deadlines, forgets.

use std::time::Duration;

use tidemill_store::Hint;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use crate::engine::Tidemill;
use crate::error::Result;

/// How often it is looked at without a hint.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Tends until `stop`: when it is told to, and every second.
pub(crate) async fn run(mill: Tidemill, stop: CancellationToken) {
    let mut hints = mill.0.store.wake().listen();
    let mut failing = false;
    loop {
        match tend(&mill).await {
            Ok(()) => failing = false,
            Err(error) if !failing => {
                failing = true;
                tracing::warn!(%error, "flows could not be tended; it goes on trying");
            }
            Err(_) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = told(&mut hints) => {}
        }
    }
}

/// Does all there is to do.
pub(crate) async fn tend(mill: &Tidemill) -> Result<()> {
    while mill.0.store.tend_flows().await? {}
    Ok(())
}

async fn told(hints: &mut Receiver<Hint>) {
    loop {
        match hints.recv().await {
            Ok(Hint::Flows) => return,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
