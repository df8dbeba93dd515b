//! Processes are killed while they enqueue, claim and settle under bounds: the counters of depth stay true.
//!
//! Whatever a killed process had under way has happened wholly, counted, or not at all. So when all are dead, what is
//! counted for a queue and for each of its tenants is what is found when the jobs themselves are counted.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use tidemill::store::JobFilter;
use tidemill::store::request::RescueRules;
use tidemill::{Enqueue, Fail, OnDead, Overflow, Priority, QueueRules, State, Tidemill, testing};
use tidemill_testkit::Process;
use tidemill_testkit::eventually::eventually;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(depths_are_true_after_producers_and_workers_are_killed);

const URL: &str = "TIDEMILL_DEPTH_URL";
const PROCESSES: usize = 3;
const KILLS: u64 = 7;
/// How many jobs start between two kills.
const STARTS: u64 = 60;
const TENANTS: u64 = 4;

/// Refuses, drops, and sends on to another that refuses.
const QUEUES: [&str; 4] = ["refusing", "dropping", "diverting", "aside"];

fn bound(queue: &str) -> QueueRules {
    let overflow = match queue {
        "dropping" => Overflow::DropOldest,
        "diverting" => Overflow::Divert { queue: "aside".into() },
        _ => Overflow::Reject,
    };
    QueueRules { depth_max: Some(30), overflow, ..QueueRules::default() }
}

/// The n-th job: of several tenants and bands, some delayed, some in line.
fn job(n: u64) -> Enqueue {
    let queue = QUEUES[(n % 3) as usize];
    let job = Enqueue::from(Echo::new(&n.to_string())).queue(queue);
    let job = if n.is_multiple_of(5) { job.delay(Duration::from_millis(n % 40)) } else { job };
    let job = if n.is_multiple_of(7) { job.priority(Priority::Low) } else { job };
    match n % (TENANTS + 2) {
        0 => job,
        1 => job.key(format!("line {}", n % 3)).ordered(OnDead::Block),
        tenant => job.tenant(format!("tenant {tenant}")),
    }
}

/// What each of the processes does, until it is killed: it enqueues more than there is room for, and works.
pub fn run() {
    let Ok(url) = std::env::var(URL) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mill = Tidemill::open(&url).await.unwrap();
        let worker = mill.worker().queues(QUEUES).slots(4).lease_ttl(Duration::from_millis(1500));
        let _running = worker.lost_max(1000).handle(attempt).start().await.unwrap();
        let mut n = u64::from(std::process::id());
        loop {
            let batch = 1 + n % 6;
            // A full queue is what it is about; a store that is busy is tried again.
            drop(mill.enqueue_many((n..n + batch).map(job)).await);
            n += batch;
        }
    });
}

async fn attempt(echo: Echo, cx: tidemill::Context) -> Result<String, Fail> {
    if cx.attempt() == 1 && echo.text.ends_with('3') {
        return Err(Fail::transient("once more").retry_after(Duration::from_millis(5)));
    }
    Ok(echo.text)
}

async fn depths_are_true_after_producers_and_workers_are_killed(kit: Kit) {
    let mill = kit.open().await;
    for queue in QUEUES {
        mill.set_queue(queue, Some(bound(queue))).await.unwrap();
    }
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["role", "--exact"]).env(URL, &kit.url);
        Process::spawn(&mut command).unwrap()
    };
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    for kill in 1..=KILLS {
        until_started(&mill, kill * STARTS).await;
        let victim = kill as usize % PROCESSES;
        processes[victim].kill_9().unwrap();
        compare_while_others_write(&mill).await;
        processes[victim] = start();
    }
    for process in &mut processes {
        process.kill_9().unwrap();
    }
    compare(&mill).await;
    let all = RescueRules { lease_ttl: Duration::ZERO, clear_for: None, lost_max: 1000 };
    mill.store().rescue(all).await.unwrap();
    compare(&mill).await;
    eventually("all to finish", SOON, async || {
        testing::drain(mill.worker().queues(QUEUES).handle(attempt)).await.unwrap();
        (mill.unfinished().await.unwrap().waiting == 0).then_some(())
    })
    .await;
    for queue in QUEUES {
        let depth = mill.depth(queue).await.unwrap();
        assert_eq!((depth.depth(), depth.tenants.len()), (0, 0), "{depth:?}");
    }
}

async fn until_started(mill: &Tidemill, jobs: u64) {
    eventually("jobs to start", 2 * SOON, async || {
        let mut went = 0;
        for queue in QUEUES {
            went += mill.depth(queue).await.unwrap().now.went;
        }
        (went >= jobs).then_some(())
    })
    .await;
}

/// The counters of a moment cannot be compared with the jobs of another, but they cannot go wild.
async fn compare_while_others_write(mill: &Tidemill) {
    for queue in QUEUES {
        let depth = mill.depth(queue).await.unwrap();
        assert!(depth.now.came >= depth.now.went, "{depth:?}");
    }
}

/// What is counted is what is there, once the server has ended what the dead had under way.
async fn compare(mill: &Tidemill) {
    eventually("the counters to be true", SOON, async || {
        for queue in QUEUES {
            let (counted, found) = (counted(mill, queue).await, found(mill, queue).await);
            if counted != found {
                return None;
            }
        }
        Some(())
    })
    .await;
}

/// How many wait in a queue, and of whom.
type Depth = (u64, BTreeMap<String, u64>);

async fn counted(mill: &Tidemill, queue: &str) -> Depth {
    let depth = mill.depth(queue).await.unwrap();
    let of_tenants = depth.tenants.iter().map(|one| (one.tenant.clone(), one.depth)).collect();
    (depth.depth(), of_tenants)
}

async fn found(mill: &Tidemill, queue: &str) -> Depth {
    let (mut found, mut of_tenants) = (0, BTreeMap::new());
    for state in [State::Ready, State::Scheduled, State::Blocked] {
        let (state, queue) = (Some(state), Some(queue.to_owned()));
        let filter = JobFilter { state, queue, limit: 1000, ..JobFilter::default() };
        for view in mill.jobs(&filter).await.unwrap() {
            found += 1;
            if let Some(tenant) = view.job.tenant {
                *of_tenants.entry(tenant).or_insert(0) += 1;
            }
        }
    }
    (found, of_tenants)
}
