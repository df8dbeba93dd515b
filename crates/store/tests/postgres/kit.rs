//! What these tests are told in.

use std::sync::Arc;
use std::time::Duration;

use tidemill_core::{ErrorClass, Failure, JobId, NewJob, Payload, Priority, Settlement, WorkerId};
use tidemill_store::request::GateEnd;
use tidemill_store::{
    Claim, ClaimRequest, Lane, OpenOptions, SettleItem, Share, Store, WorkerCard, open,
};
use tokio_postgres::{Client, NoTls};

/// How long anything here may take.
pub const SOON: Duration = Duration::from_secs(20);

/// A store on this database, by the server's clock.
pub async fn store(url: &str) -> Arc<dyn Store> {
    open(url, OpenOptions::default()).await.unwrap()
}

/// A connection of the test's own.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A job with every wish at its default.
pub fn job() -> NewJob {
    NewJob::new("k", Payload::null())
}

/// Registers a worker.
pub async fn worker(store: &Arc<dyn Store>) -> WorkerId {
    let id = WorkerId::new();
    let (queues, kinds) = (vec!["default".into()], Vec::new());
    store
        .register(WorkerCard {
            id,
            name: "w".into(),
            queues,
            kinds,
            slots: 1,
            slots_of: std::collections::BTreeMap::new(),
            lease_ttl: None,
        })
        .await
        .unwrap();
    // Before the first claim there is a rehearsal, which a test may take for the claim.
    let lanes = vec![Lane { queue: "of nobody".into(), priority: Priority::Normal }];
    store.claim(ClaimRequest { lanes, ..ask(id, 1) }).await.unwrap();
    id
}

/// A wish for the normal band of the default queue.
pub fn ask(worker: WorkerId, jobs_max: usize) -> ClaimRequest {
    let lanes = vec![Lane { queue: "default".into(), priority: Priority::Normal }];
    ClaimRequest {
        worker,
        lanes,
        share: Share::default(),
        limits: Arc::default(),
        edition: None,
        kinds: None,
        jobs_max,
        stand: None,
    }
}

/// The ids of a claim.
pub fn ids(claim: &Claim) -> Vec<JobId> {
    claim.jobs.iter().map(|taken| taken.job.id).collect()
}

/// All jobs of a claim, settled so.
pub fn items(claim: &Claim, how: &Settlement) -> Vec<SettleItem> {
    let token = claim.token.unwrap();
    let item = |taken: &tidemill_store::ClaimedJob| SettleItem {
        job: Arc::clone(&taken.job),
        token,
        attempt: taken.attempt,
        lost: taken.lost,
        started_at: claim.now,
        gates: taken.gates.iter().cloned().map(GateEnd::new).collect(),
        settlement: how.clone(),
        decided: false,
        run: None,
    };
    claim.jobs.iter().map(item).collect()
}

/// Finished well.
pub fn done() -> Settlement {
    Settlement::Done { output: Payload::null(), follow_ups: Vec::new() }
}

/// Failed, and runs again at once.
pub fn retry() -> Settlement {
    let failure = Some(Failure::new("k", ErrorClass::Transient, "it broke"));
    Settlement::Again { delay: Duration::ZERO, spent: 1, failure }
}
