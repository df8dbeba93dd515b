//! Keeps what is known of depths up to date: samples for rates, and watermarks that were crossed.

use std::time::Duration;

use async_trait::async_trait;

use crate::engine::Tidemill;
use crate::engine::service::Service;
use crate::error::Result;

/// Every process does it: whoever comes second finds nothing to do.
pub struct Depth;

#[async_trait]
impl Service for Depth {
    fn name(&self) -> &'static str {
        "depth"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn turn(&self, mill: &Tidemill) -> Result<()> {
        mill.0.store.depths(&[]).await?;
        Ok(())
    }
}
