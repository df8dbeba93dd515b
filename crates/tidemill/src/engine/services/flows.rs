//! Does for flows what no job's end does: opens large steps, calls off, minds deadlines, forgets.

use std::time::Duration;

use tidemill_store::Hint;
use tokio_util::sync::CancellationToken;

use crate::engine::Tidemill;
use crate::engine::service::Tending;
use crate::error::Result;

/// Tends until `stop`: when it is told to, and every second.
pub(crate) async fn run(mill: Tidemill, stop: CancellationToken) {
    let tending = Tending {
        every: Duration::from_secs(1),
        is_meant: |hint| matches!(hint, Hint::Flows),
        failed: "flows could not be tended",
    };
    tending.run(mill, stop, |mill| async move { tend(&mill).await }).await;
}

/// Does all there is to do.
pub(crate) async fn tend(mill: &Tidemill) -> Result<()> {
    while mill.0.store.tend_flows().await? {}
    Ok(())
}
