//! A process that holds runs is killed: another one has them within the time of a lease, and goes on where they were.

use std::process::Command;
use std::time::{Duration, Instant};

use tidemill::{Context, Enqueue, Fail, JobId, Payload, Settings, Tidemill, Worker};
use tidemill_testkit::Process;

use super::kit::{Kit, SOON};
use super::workflow::Log;

over_both_stores!(runs_of_a_process_that_is_killed_are_anothers_within_ten_seconds);

const URL: &str = "TIDEMILL_WORKFLOW_URL";
const HOLDS: &str = "it holds";
const RUNS: usize = 5;
/// What is promised for the default settings.
const MOVED_WITHIN: Duration = Duration::from_secs(10);

/// Runs whose second step ends only if it may.
fn worker(mill: &Tidemill, log: &Log, ends: bool) -> Worker {
    let log = log.clone();
    mill.worker().handle_raw("held", Settings::default(), move |_, cx: Context| {
        let log = log.clone();
        async move {
            let first = cx.step("first").run(|_| {
                log.add("first");
                async { Ok(1) }
            });
            let first: u32 = first.await?;
            let second = cx.step("second").run(|_| async move {
                println!("{HOLDS}");
                if !ends {
                    std::future::pending::<()>().await;
                }
                Ok::<u32, Fail>(2)
            });
            Ok(Payload::trusted((first + second.await?).to_string()))
        }
    })
}

/// What the process does: it takes the runs, and keeps them.
pub fn run() {
    let Ok(url) = std::env::var(URL) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mill = Tidemill::open(&url).await.unwrap();
        let _running = worker(&mill, &Log::default(), false).start().await.unwrap();
        std::future::pending::<()>().await;
    });
}

async fn runs_of_a_process_that_is_killed_are_anothers_within_ten_seconds(kit: Kit) {
    let (mill, log) = (kit.open().await, Log::default());
    let held = (0..RUNS).map(|_| Enqueue::raw("held", "null"));
    let receipts = mill.enqueue_many(held).await.unwrap();
    let ids: Vec<JobId> = receipts.iter().map(tidemill::Receipt::id).collect();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["role", "--exact", "--nocapture"]).env(URL, &kit.url);
    let mut process = Process::spawn(&mut command).unwrap();
    for _ in 0..RUNS {
        process.wait_for_line(HOLDS, SOON).unwrap();
    }
    let running = worker(&mill, &log, true).start().await.unwrap();
    process.kill_9().unwrap();
    let killed = Instant::now();
    for id in ids {
        let view = mill.wait(id, SOON).await.unwrap();
        assert_eq!(view.output.unwrap().as_str(), "3");
    }
    let moved = killed.elapsed();
    assert!(moved < MOVED_WITHIN, "it took {moved:?}");
    assert!(log.all().is_empty(), "what was done before the kill is not done again");
    running.stop().await;
}
