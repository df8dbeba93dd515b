//! Processes that fire slots are killed, again and again: each slot fires once, and none is lost.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use tidemill::store::schedule::What;
use tidemill::{JobFilter, Missed, Schedule, Tidemill, slot_of};
use tidemill_testkit::Process;
use tidemill_testkit::eventually::eventually;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(slots_fire_once_while_processes_are_killed);

const URL: &str = "TIDEMILL_SCHEDULE_URL";
const PROCESSES: usize = 3;
const KILLS: usize = 6;

/// What each of the processes does: it works until it is killed.
pub fn run() {
    let Ok(url) = std::env::var(URL) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mill = Tidemill::open(&url).await.unwrap();
        let worker = mill.worker().handle(|echo: Echo, _cx| async move { Ok(echo.text) });
        let _running = worker.start().await.unwrap();
        std::future::pending::<()>().await;
    });
}

async fn slots_fire_once_while_processes_are_killed(kit: Kit) {
    let mill = kit.open().await;
    let every = Schedule::every("s", Duration::from_secs(1), Echo::new("tick"));
    mill.schedules().set(every.missed(Missed::All(1000))).await.unwrap();
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["role", "--exact"]).env(URL, &kit.url);
        Process::spawn(&mut command).unwrap()
    };
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    for kill in 0..KILLS {
        let more = mill.schedules().history("s", 1000).await.unwrap().len() + 1;
        // Right after a slot, when whoever fired it is still busy with it.
        eventually("another slot", SOON, async || {
            let history = mill.schedules().history("s", 1000).await.unwrap();
            (history.len() >= more).then_some(())
        })
        .await;
        processes[kill % PROCESSES].kill_9().unwrap();
        processes[kill % PROCESSES] = start();
    }
    for process in &mut processes {
        process.kill_9().unwrap();
    }
    check(&mill).await;
}

async fn check(mill: &Tidemill) {
    let history = mill.schedules().history("s", 1000).await.unwrap();
    let slots: Vec<_> = history.iter().rev().map(|entry| entry.slot).collect();
    assert!(history.iter().all(|entry| entry.what == What::Fired && entry.jobs == 1));
    assert!(
        slots.windows(2).all(|pair| pair[1].duration_since(pair[0]).as_secs() == 1),
        "each second, each once: {slots:?}"
    );
    let filter = JobFilter { tag: Some("schedule:s".into()), limit: 1000, ..JobFilter::default() };
    let mut jobs = BTreeMap::new();
    for view in mill.jobs(&filter).await.unwrap() {
        *jobs.entry(slot_of(&view.job.options).unwrap()).or_insert(0) += 1;
    }
    assert_eq!(jobs, slots.into_iter().map(|slot| (slot, 1)).collect(), "one job each");
}
