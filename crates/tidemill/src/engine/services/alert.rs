//! Watches built-in alerts, every few seconds, in every process: whoever is told need not ask which one looks.

use std::time::Duration;

use async_trait::async_trait;

use crate::engine::Tidemill;
use crate::engine::alert::Watching;
use crate::engine::service::Service;
use crate::error::Result;

/// What this process has seen.
#[derive(Default)]
pub struct Alert(tokio::sync::Mutex<Watching>);

#[async_trait]
impl Service for Alert {
    fn name(&self) -> &'static str {
        "alert"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn turn(&self, mill: &Tidemill) -> Result<()> {
        self.0.lock().await.turn(mill).await
    }
}
