//! A job that kills whoever runs it must not kill for ever.

use std::time::Duration;

use tidemill::{DeadFilter, Enqueue, ErrorClass, State, Tidemill};

use super::field::Database;
use super::role;
use super::work::{Plan, Work};

const RESCUE_MAX: Duration = Duration::from_secs(30);

/// Three workers die of it, the fourth finds it dead, and runs what stands behind it.
pub async fn kills_three_workers(database: Database) {
    let files = tempfile::tempdir().unwrap();
    let mill = Tidemill::open(&database.url).await.unwrap();
    let work = |plan| Enqueue::from(Work { plan, takes_ms: 0 });
    let killer = mill.enqueue(work(Plan::Killer)).await.unwrap().id();
    for _ in 0..3 {
        let mut worker = role::start("short_lived_worker", &database.url, files.path(), 0);
        let status = worker.wait(RESCUE_MAX).unwrap();
        assert!(!status.success(), "the worker survived: {status}");
    }
    let _worker = role::start("short_lived_worker", &database.url, files.path(), 0);
    let innocent = mill.enqueue(work(Plan::Plain)).await.unwrap().id();
    let view = mill.wait(killer, RESCUE_MAX).await.unwrap();
    assert_eq!((view.state, view.attempt), (State::Dead, 0), "{view:?}");
    let filter = DeadFilter { ids: vec![killer], ..DeadFilter::default() };
    let letters = mill.dead().list(&filter, None, 10).await.unwrap();
    assert_eq!(letters[0].class, ErrorClass::Poison);
    assert_eq!(mill.wait(innocent, RESCUE_MAX).await.unwrap().state, State::Done);
}
