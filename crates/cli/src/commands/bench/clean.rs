//! Takes away what was measured with.
//!
//! A store purges the jobs of the queue. A server purges what its rules no longer keep, so the queue gets such rules
//! until it is empty.

use std::time::Duration;

use tidemill::{JobFilter, QueueRules, Retention};

use super::phases::KIND;
use crate::exit::Outcome;
use crate::mill::Mill;
use crate::progress::Late;

const PAGE: usize = 1000;
/// The sweep of a server takes a turn a second.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Leaves nothing in the queue, whose jobs have all ended.
pub async fn up(mill: &Mill) -> Outcome<()> {
    let mut wait = Late::wait("cleaning up");
    let purged = wait.during(purge(mill));
    let Mill::Server(server) = mill else { return purged.await };
    let retention = Retention { finished_ms: 0, dead_ms: 0, ..Retention::default() };
    server.set_queue(KIND, Some(QueueRules { retention, ..QueueRules::default() })).await?;
    purged.await?;
    Ok(server.set_queue(KIND, None).await?)
}

async fn purge(mill: &Mill) -> Outcome<()> {
    let queue = Some(KIND.to_owned());
    let filter = JobFilter { queue, limit: PAGE, ..JobFilter::default() };
    loop {
        let page = mill.jobs_page(&filter).await?;
        if page.jobs.is_empty() && page.next.is_none() {
            return Ok(());
        }
        match mill {
            Mill::Store(store) => {
                let ids: Vec<_> = page.jobs.iter().map(|view| view.job.id).collect();
                store.store().purge(&ids).await?;
            }
            Mill::Server(_) => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}
