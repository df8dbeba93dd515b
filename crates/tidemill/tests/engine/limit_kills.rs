//! Workers are killed while they run under limits: the limits hold all the same, and no place is lost.
//!
//! Every handler takes locks that the operating system frees when its process dies: one of as many places as its key,
//! its tenant, its kind and the queue may run. If others have them all, a limit was exceeded, whatever the store says.
//! Attempts that began before there was a limit have locks of another name, and count as well.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill::{Context, Enqueue, Fail, Job, Limit, Per, Tidemill};
use tidemill_testkit::Process;
use tidemill_testkit::eventually::eventually;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    limits_hold_while_workers_are_killed,
    a_limit_set_while_jobs_run_holds_while_workers_are_killed,
);

const URL: &str = "TIDEMILL_LIMITS_URL";
const FOLDER: &str = "TIDEMILL_LIMITS_FOLDER";
const PROCESSES: usize = 3;
const SLOTS: usize = 8;
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

/// A job that, if it starts while there is no limit, stays until it may go.
#[derive(Serialize, Deserialize)]
struct Stay;

impl Job for Stay {
    const KIND: &'static str = "stay";
    type Output = ();
}

/// What each of the processes does: it works until it is killed.
pub fn run() {
    let (Ok(url), Ok(folder)) = (std::env::var(URL), std::env::var(FOLDER)) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mill = Tidemill::open(&url).await.unwrap();
        let folder = PathBuf::from(folder);
        let worker =
            mill.worker().slots(SLOTS).lease_ttl(Duration::from_millis(1500)).lost_max(1000);
        let (one, other, third) = (folder.clone(), folder.clone(), folder);
        let worker = worker
            .handle_blocking(move |echo: Echo, cx| attempt(&one, &cx).map(|()| echo.text))
            .handle_blocking(move |_: Ring, cx| attempt(&other, &cx))
            .handle_blocking(move |_: Stay, _| stay(&third));
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

/// Before there is a limit: stays until it may go. Since then: there must be room for it.
fn stay(folder: &Path) -> Result<(), Fail> {
    let is_limited = folder.join("limited").exists();
    for number in 0..(PROCESSES * SLOTS) as u32 {
        let file = File::create(
            folder.join(format!("{} {number}", if is_limited { "new" } else { "old" })),
        )?;
        match file.try_lock() {
            Ok(()) if !is_limited => {
                File::create(folder.join("go"))?.lock_shared()?;
                return Ok(());
            }
            // Whoever began before it and still runs, ran while the places below this one were taken.
            Ok(()) if number as usize + 1 + old(folder)? <= OF_ALL as usize => {
                file.sync_all()?;
                return Ok(());
            }
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
    File::create(folder.join("exceeded"))?;
    Err(Fail::permanent("one too many"))
}

/// How many run that began before there was a limit.
fn old(folder: &Path) -> std::io::Result<usize> {
    let mut held = 0;
    for number in 0..PROCESSES * SLOTS {
        match File::create(folder.join(format!("old {number}")))?.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => held += 1,
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(held)
}

async fn a_limit_set_while_jobs_run_holds_while_workers_are_killed(kit: Kit) {
    let (mill, folder) = (kit.open().await, tempfile::tempdir().unwrap());
    let go = File::create(folder.path().join("go")).unwrap();
    go.lock().unwrap();
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| start(&kit, folder.path())).collect();
    let all = PROCESSES * SLOTS;
    let jobs = |number| (0..number).map(|_| Enqueue::from(Stay));
    mill.enqueue_many(jobs(all)).await.unwrap();
    let run = async |number: usize| {
        eventually("so many to run", 2 * SOON, async || {
            (old(folder.path()).unwrap() == number).then_some(())
        })
        .await;
    };
    run(all).await;
    mill.change_queue("default", |rules| rules.concurrency = Some(OF_ALL)).await.unwrap();
    File::create(folder.path().join("limited")).unwrap();
    mill.enqueue_many(jobs(60)).await.unwrap();
    processes[0].kill_9().unwrap();
    processes[0] = start(&kit, folder.path());
    run(all - SLOTS).await;
    let inside = async |number: u64| {
        eventually("so many to be inside", 2 * SOON, async || {
            let gate = mill.store().gates(&["default/\u{1c}".to_owned()]).await.unwrap().remove(0);
            (gate.inside.iter().map(|(_, jobs)| jobs).sum::<u64>() == number).then_some(())
        })
        .await;
    };
    // Those of the one that was killed wait again, with all the others, while so many still run.
    inside((all - SLOTS) as u64).await;
    go.unlock().unwrap();
    until_left(&mill, 40).await;
    processes[1].kill_9().unwrap();
    processes[1] = start(&kit, folder.path());
    until_left(&mill, 0).await;
    for process in &mut processes {
        process.kill_9().unwrap();
    }
    assert!(!folder.path().join("exceeded").exists(), "a limit was exceeded");
    inside(0).await;
}

fn start(kit: &Kit, folder: &Path) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["role", "--exact"]).env(URL, &kit.url).env(FOLDER, folder);
    Process::spawn(&mut command).unwrap()
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
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| start(&kit, folder.path())).collect();
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
        processes[victim] = start(&kit, folder.path());
    }
    until_left(&mill, 0).await;
    for process in &mut processes {
        process.kill_9().unwrap();
    }
    assert!(!folder.path().join("exceeded").exists(), "a limit was exceeded");
    let limits = mill.store().queue_rules().await.unwrap().limits("default");
    let of = |n: u64| (format!("{}", n % TENANTS), format!("{}", n % KEYS));
    let of_job = |n: u64| {
        let (tenant, key) = of(n);
        limits.iter().filter_map(move |limit| limit.gate_of(Ring::KIND, &tenant, &key, false))
    };
    let names: BTreeSet<String> = (0..KEYS * TENANTS).flat_map(of_job).collect();
    assert_eq!(names.len() as u64, KEYS + TENANTS + 2);
    let gates = mill.store().gates(&names.into_iter().collect::<Vec<_>>()).await.unwrap();
    assert!(gates.iter().all(|gate| gate.inside.is_empty() && gate.held == 0), "{gates:?}");
}

async fn until_left(mill: &Tidemill, left: u64) {
    eventually("jobs to finish", 2 * SOON, async || {
        let unfinished = mill.unfinished().await.unwrap();
        (unfinished.waiting + unfinished.running <= left).then_some(())
    })
    .await;
}
