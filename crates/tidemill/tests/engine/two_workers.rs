//! Two workers in two processes share the work, and never run one job twice at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tidemill::{JobId, Running, Tidemill};
use tidemill_testkit::eventually::eventually;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(no_job_runs_twice);

const JOBS: usize = 500;

/// How often each job ran, and whether it runs now.
type Runs = Arc<Mutex<HashMap<JobId, (u32, bool)>>>;

async fn start(mill: &Tidemill, runs: &Runs) -> Running {
    let runs = Arc::clone(runs);
    let worker = mill.worker().slots(16).handle(move |echo: Echo, cx| {
        let runs = Arc::clone(&runs);
        async move {
            {
                let mut runs = runs.lock().unwrap();
                let run = runs.entry(cx.id()).or_default();
                assert!(!run.1, "job {} runs twice at once", cx.id());
                *run = (run.0 + 1, true);
            }
            tokio::task::yield_now().await;
            runs.lock().unwrap().entry(cx.id()).or_default().1 = false;
            Ok(echo.text)
        }
    });
    worker.start().await.unwrap()
}

async fn no_job_runs_twice(kit: Kit) {
    let (one, other) = (kit.open().await, kit.open().await);
    let runs = Runs::default();
    let workers = [start(&one, &runs).await, start(&other, &runs).await];
    for n in 0..JOBS / 50 {
        let jobs = (0..50).map(|m| Echo::new(&format!("{n} {m}")));
        one.enqueue_many(jobs).await.unwrap();
    }
    eventually("all jobs to finish", 2 * SOON, async || {
        let left = one.unfinished().await.unwrap();
        (left.waiting + left.running == 0).then_some(())
    })
    .await;
    for worker in workers {
        worker.stop().await;
    }
    let runs = runs.lock().unwrap();
    assert_eq!(runs.len(), JOBS);
    assert!(runs.values().all(|run| *run == (1, false)), "{runs:?}");
    let (one, other) = (one.counts(), other.counts());
    assert_eq!(one.done + other.done, JOBS as u64);
    assert_eq!(one.stale + other.stale, 0);
}
