//! Several processes open one empty database at the same moment, and all of them can use it.

use std::process::Command;

use tidemill::Tidemill;
use tidemill_testkit::Process;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(processes_that_start_at_once_all_get_in);

const URL: &str = "TIDEMILL_ENGINE_URL";
const PROCESSES: usize = 5;
const JOBS: u64 = 20;

/// What each of the processes does: it opens, enqueues and leaves.
pub fn run() {
    let Ok(url) = std::env::var(URL) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mill = Tidemill::open(&url).await.unwrap();
        for n in 0..JOBS {
            mill.enqueue(Echo::new(&n.to_string())).await.unwrap();
        }
        mill.close().await;
    });
}

async fn processes_that_start_at_once_all_get_in(kit: Kit) {
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["role", "--exact"]).env(URL, &kit.url);
        Process::spawn(&mut command).unwrap()
    };
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    for process in &mut processes {
        let status = process.wait(2 * SOON).unwrap();
        assert!(status.success(), "{status}");
    }
    let mill = kit.open().await;
    assert_eq!(mill.unfinished().await.unwrap().waiting, PROCESSES as u64 * JOBS);
}
