//! Sleeps that outlive the process.

use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::workflow::Ask;

use super::Op;
use crate::worker::context::Context;
use crate::worker::fail::Fail;

impl Context {
    /// Sleeps, also for months: nothing of the run is in memory meanwhile, and it goes on in any process.
    pub fn sleep(
        &self,
        duration: Duration,
    ) -> impl Future<Output = Result<(), Fail>> + Send + use<> {
        let (cx, key) = (self.clone(), self.next_key("sleep"));
        async move {
            let until = cx.present().checked_add(duration).unwrap_or(Timestamp::MAX);
            sleep(cx, key, until).await
        }
    }

    /// Sleeps until this moment; not at all if it has passed.
    pub fn sleep_until(
        &self,
        until: Timestamp,
    ) -> impl Future<Output = Result<(), Fail>> + Send + use<> {
        sleep(self.clone(), self.next_key("sleep"), until)
    }
}

async fn sleep(cx: Context, key: String, until: Timestamp) -> Result<(), Fail> {
    Op::new(&cx, key, Ask::Sleep { until }).answer().await;
    Ok(())
}
