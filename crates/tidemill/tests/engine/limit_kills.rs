//! Workers are killed while they run under limits: the limits hold all the same, and no place is lost.
//!
//! Every handler takes locks that the operating system frees when its process dies: one of as many places as its key,
//! its tenant, its kind and the queue may run. If others have them all, a limit was exceeded, whatever the store says.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill::{Context, Enqueue, Fail, Job, Limit, Per, Tidemill};
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
const TENANTS: u64 = 3;
/// How many may run at once: of a key, of a tenant, of one kind, of all.
const OF_KEY: u32 = 1;
const OF_TENANT: u32 = 2;
const OF_KIND: u32 = 3;
const OF_ALL: u32 = 5;

/// A job of the kind that has a limit of its own.
#[derive(Serialize, Deserialize)]
struct Ring;

impl Job for Ring {
    const KIND: &'static str = "ring";
    type Output = ();
}

/// What each of the processes does: it works until it is killed.
pub fn run() {
    let (Ok(url), Ok(folder)) = (std::env::var(URL), std::env::var(FOLDER)) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mill = Tidemill::open(&url).await.unwrap();
        let folder = PathBuf::from(folder);
        let worker = mill.worker().slots(8).lease_ttl(Duration::from_millis(1500)).lost_max(1000);
        let (one, other) = (folder.clone(), folder);
        let worker = worker
            .handle_blocking(move |echo: Echo, cx| attempt(&one, &cx).map(|()| echo.text))
            .handle_blocking(move |_: Ring, cx| attempt(&other, &cx));
        let _running = worker.start().await.unwrap();
        std::future::pending::<()>().await;
    });
}

/// Takes the locks, writes something slowly, and lets go.
fn attempt(folder: &Path, cx: &Context) -> Result<(), Fail> {
    let job = cx.job();
    let (key, tenant) = (job.key.as_deref(), job.tenant.as_deref());
    let mut gates = vec![
        (format!("key {}", key.unwrap_or_default()), OF_KEY),
        (format!("tenant {}", tenant.unwrap_or_default()), OF_TENANT),
        ("all".to_owned(), OF_ALL),
    ];
    gates.extend((job.kind == Ring::KIND).then(|| ("kind".to_owned(), OF_KIND)));
    let mut places = Vec::new();
    for (gate, most) in gates {
        places.push(place(folder, &gate, most)?);
    }
    for place in &places {
        place.sync_all()?;
    }
    Ok(())
}

/// A place inside that nobody has.
fn place(folder: &Path, gate: &str, most: u32) -> Result<File, Fail> {
    for number in 0..most {
        let file = File::create(folder.join(format!("{gate} {number}")))?;
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
    File::create(folder.join("exceeded"))?;
    Err(Fail::permanent(format!("one too many of {gate}")))
}

async fn limits_hold_while_workers_are_killed(kit: Kit) {
    let (mill, folder) = (kit.open().await, tempfile::tempdir().unwrap());
    let limit = |per, most| Limit { per, concurrency: Some(most), ..Limit::default() };
    let of_kind = Limit { kind: Some(Ring::KIND.to_owned()), ..limit(Per::All, OF_KIND) };
    let limits = [
        ("key", limit(Per::Key, OF_KEY)),
        ("tenant", limit(Per::Tenant, OF_TENANT)),
        ("kind", of_kind),
    ];
    for (name, limit) in limits {
        mill.set_limit("default", name, Some(limit)).await.unwrap();
    }
    mill.change_queue("default", |rules| rules.concurrency = Some(OF_ALL)).await.unwrap();
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["role", "--exact"]).env(URL, &kit.url).env(FOLDER, folder.path());
        Process::spawn(&mut command).unwrap()
    };
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    let jobs = (0..JOBS).map(|n| {
        let job = if n % 2 == 0 { Enqueue::from(Ring) } else { Echo::new("x").into() };
        job.key(format!("{}", n % KEYS)).tenant(format!("{}", n % TENANTS))
    });
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
    let mut names = vec!["default/".to_owned(), "default/kind".to_owned()];
    names.extend((0..KEYS).map(|key| format!("default/key\u{1f}{key}")));
    names.extend((0..TENANTS).map(|tenant| format!("default/tenant\u{1f}{tenant}")));
    let gates = mill.store().gates(&names).await.unwrap();
    assert!(gates.iter().all(|gate| gate.inside.is_empty() && gate.held == 0), "{gates:?}");
}

async fn until_left(mill: &Tidemill, left: u64) {
    eventually("jobs to finish", 2 * SOON, async || {
        let unfinished = mill.unfinished().await.unwrap();
        (unfinished.waiting + unfinished.running <= left).then_some(())
    })
    .await;
}
