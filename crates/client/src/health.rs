//! How everything stands: the present, and what somebody should look at.

use serde::Deserialize;
use tidemill::store::view::Finding;
use tidemill::{Alert, Glance, Timestamp};

use crate::error::Result;
use crate::http::{Client, path};

#[derive(Deserialize)]
struct Present {
    now: Timestamp,
}

impl Client {
    /// The store's present, by which leases and due times are judged.
    pub async fn now(&self) -> Result<Timestamp> {
        Ok(self.get::<Present>(&path(["now"]), &()).await?.now)
    }

    /// The built-in alerts that hold now.
    pub async fn alerts(&self) -> Result<Vec<Alert>> {
        self.get(&path(["alerts"]), &()).await
    }

    /// The queues and the workers, at most about a second old.
    pub async fn glance(&self) -> Result<Glance> {
        self.get(&path(["overview"]), &()).await
    }

    /// The health of the store. It takes up to some seconds.
    pub async fn examine(&self) -> Result<Vec<Finding>> {
        self.get(&path(["doctor"]), &()).await
    }
}
