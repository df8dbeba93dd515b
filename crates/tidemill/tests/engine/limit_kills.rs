//! Workers are killed while they run under limits: the limits hold all the same, and no place is lost.
//!
//! Every handler takes locks that the operating system frees when its process dies: one for its key, and one of as
//! many places as the queue may run. If another has it, the limit was exceeded, whatever the store says.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tidemill::{Enqueue, Fail, Limit, Per, Tidemill};
use tidemill_testkit::Process;
use tidemill_testkit::eventually::eventually;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(limits_hold_while_workers_are_killed);

const URL: &str = "TIDEMILL_LIMITS_URL";
const FOLDER: &str = "TIDEMILL_LIMITS_FOLDER";
const PROCESSES: usize = 3;
const KILLS: u64 = 6;
const JOBS: u64 = 240;
const KEYS: u64 = 12;
const AT_ONCE: u32 = 4;

/// What each of the processes does: it works until it is killed.
pub fn run() {
    let (Ok(url), Ok(folder)) = (std::env::var(URL), std::env::var(FOLDER)) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mill = Tidemill::open(&url).await.unwrap();
        let folder = PathBuf::from(folder);
        let worker = mill.worker().slots(8).lease_ttl(Duration::from_millis(1500)).lost_max(1000);
        let worker = worker.handle_blocking(move |echo: Echo, cx| {
            let key = cx.job().key.clone().unwrap_or_default();
            attempt(&folder, &key).map(|()| echo.text)
        });
        let _running = worker.start().await.unwrap();
        std::future::pending::<()>().await;
    });
}

/// Takes the locks, writes something slowly, and lets go.
fn attempt(folder: &Path, key: &str) -> Result<(), Fail> {
    let lock = |name: String| -> Result<Option<File>, Fail> {
        let file = File::create(folder.join(name))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    };
    let exceeded = |what: &str| {
        let _ = File::create(folder.join("exceeded"));
        Fail::permanent(format!("{what} runs twice"))
    };
    let _of_key = lock(format!("key {key}"))?.ok_or_else(|| exceeded(key))?;
    let mut place = None;
    for number in 0..AT_ONCE {
        place = lock(format!("place {number}"))?;
        if place.is_some() {
            break;
        }
    }
    let place = place.ok_or_else(|| exceeded("one too many"))?;
    for _ in 0..3 {
        place.sync_all()?;
    }
    Ok(())
}

async fn limits_hold_while_workers_are_killed(kit: Kit) {
    let (mill, folder) = (kit.open().await, tempfile::tempdir().unwrap());
    let each = Limit { per: Per::Key, concurrency: Some(1), ..Limit::default() };
    mill.set_limit("default", "each", Some(each)).await.unwrap();
    mill.change_queue("default", |rules| rules.concurrency = Some(AT_ONCE)).await.unwrap();
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["role", "--exact"]).env(URL, &kit.url).env(FOLDER, folder.path());
        Process::spawn(&mut command).unwrap()
    };
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    let jobs = (0..JOBS).map(|n| Enqueue::from(Echo::new("x")).key(format!("{}", n % KEYS)));
    mill.enqueue_many(jobs).await.unwrap();
    for kill in 1..=KILLS {
        let left = JOBS - kill * JOBS / (KILLS + 2);
        until_left(&mill, left).await;
        let victim = kill as usize % PROCESSES;
        processes[victim].kill_9().unwrap();
        processes[victim] = start();
    }
    until_left(&mill, 0).await;
    for process in &mut processes {
        process.kill_9().unwrap();
    }
    assert!(!folder.path().join("exceeded").exists(), "a limit was exceeded");
    let names: Vec<String> = (0..KEYS).map(|key| format!("default/each\u{1f}{key}")).collect();
    let gates = mill.store().gates(&[names, vec!["default/".to_owned()]].concat()).await.unwrap();
    assert!(gates.iter().all(|gate| gate.inside.is_empty() && gate.held == 0), "{gates:?}");
}

async fn until_left(mill: &Tidemill, left: u64) {
    eventually("jobs to finish", 2 * SOON, async || {
        let unfinished = mill.unfinished().await.unwrap();
        (unfinished.waiting + unfinished.running <= left).then_some(())
    })
    .await;
}
