//! Worker processes end the last children of a join in the same moment: it fires once.
//!
//! Each process has one slot, and so one child, which waits at a gate: a file that this test has locked. When all have
//! come there, the lock is given up, and the kernel wakes all of them.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidemill::core::flow::FlowState;
use tidemill::{Enqueue, Fail, Flow, Payload, Settings, State, Tidemill};
use tidemill_testkit::Process;
use tidemill_testkit::eventually::eventually;

use super::kit::{Kit, SOON};

over_both_stores!(a_join_fires_once_when_processes_end_its_children_together);

const URL: &str = "TIDEMILL_JOIN_URL";
const FOLDER: &str = "TIDEMILL_JOIN_FOLDER";
const PROCESSES: usize = 10;
const ROUNDS: u64 = 5;

/// What each of the processes does: it works until it is killed.
pub fn run() {
    let (Ok(url), Ok(folder)) = (std::env::var(URL), std::env::var(FOLDER)) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mill = Tidemill::open(&url).await.unwrap();
        let worker = ["part", "sum"].into_iter().fold(mill.worker().slots(1), |worker, kind| {
            let folder = PathBuf::from(&folder);
            worker.handle_raw(kind, Settings::default(), move |round, _cx| {
                let folder = folder.clone();
                let ended = tokio::task::spawn_blocking(move || end(kind, &round, &folder));
                async move { ended.await.map_err(|error| Fail::permanent(error.to_string()))? }
            })
        });
        let _running = worker.start().await.unwrap();
        std::future::pending::<()>().await;
    });
}

/// Says that it is here and, as a child of the join, waits for the others.
fn end(kind: &str, round: &Payload, folder: &Path) -> Result<Payload, Fail> {
    let seen = folder.join(format!("{kind} {}", round.as_str()));
    let mut seen = OpenOptions::new().append(true).create(true).open(seen)?;
    seen.write_all(format!("{}\n", std::process::id()).as_bytes())?;
    if kind == "part" {
        File::open(gate(folder, round.as_str()))?.lock_shared()?;
    }
    Ok(Payload::null())
}

fn gate(folder: &Path, round: &str) -> PathBuf {
    folder.join(format!("gate {round}"))
}

/// The processes that have said they are here.
fn seen(folder: &Path, kind: &str, round: u64) -> Vec<String> {
    let said = std::fs::read_to_string(folder.join(format!("{kind} {round}")));
    said.unwrap_or_default().lines().map(str::to_owned).collect()
}

async fn a_join_fires_once_when_processes_end_its_children_together(kit: Kit) {
    let (mill, folder) = (kit.open().await, tempfile::tempdir().unwrap());
    let folder = folder.path();
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["role", "--exact"]).env(URL, &kit.url).env(FOLDER, folder);
        Process::spawn(&mut command).unwrap()
    };
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    for round in 0..ROUNDS {
        let closed = File::create(gate(folder, &round.to_string())).unwrap();
        closed.lock().unwrap();
        let job = |kind: &str| Enqueue::raw(kind, round.to_string());
        let flow = Flow::new("together")
            .fan_out("part", (0..PROCESSES).map(|_| job("part")))
            .step("sum", job("sum"))
            .after("part");
        let id = mill.start(flow).await.unwrap();
        let mut at_gate = eventually("all children to run", 2 * SOON, async || {
            Some(seen(folder, "part", round)).filter(|seen| seen.len() == PROCESSES)
        })
        .await;
        at_gate.sort();
        at_gate.dedup();
        assert_eq!(at_gate.len(), PROCESSES, "each is of a process of its own");
        assert!(seen(folder, "sum", round).is_empty(), "nothing fires before the last has ended");
        drop(closed);
        let view = mill.wait_flow(id, 2 * SOON).await.unwrap();
        assert_eq!((view.head.state, view.head.done), (FlowState::Done, PROCESSES as u64 + 1));
        assert_eq!(seen(folder, "sum", round).len(), 1, "round {round}");
        let sum = mill.job(view.steps[1].first.unwrap()).await.unwrap().unwrap();
        assert_eq!((sum.state, sum.attempt), (State::Done, 1));
    }
    for process in &mut processes {
        process.kill_9().unwrap();
    }
}
