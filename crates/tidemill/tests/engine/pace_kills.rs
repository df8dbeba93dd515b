//! Workers are killed while rates and retry budgets pace them: no window has more starts than allowed, retries stay
//! within their share while first attempts wait, and all get through in the end.
//!
//! Every handler writes down its start, with the time of its claim by the clock of the store. Whoever is killed before
//! he could is found by his lease, which outlives him. So all starts are known, and the bounds are checked as they are
//! declared, without any allowance for a slow machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use tidemill::core::gate::{GateView, RETRY_CREDIT};
use tidemill::store::lease::LeaseView;
use tidemill::{
    Context, Enqueue, Fail, Job, JobFilter, JobId, Limit, Per, Priority, Rate, State, Tidemill,
    Token,
};
use tidemill_testkit::Process;
use tidemill_testkit::eventually::{eventually, until};

use super::kit::{Kit, SOON};

over_both_stores!(
    rates_hold_while_workers_are_killed,
    a_retry_budget_holds_while_workers_are_killed,
);

const URL: &str = "TIDEMILL_PACE_URL";
const FOLDER: &str = "TIDEMILL_PACE_FOLDER";
const PROCESSES: usize = 3;
const SLOTS: usize = 6;
const KILLS: usize = 5;
const JOBS: usize = 240;
const KEYS: usize = 4;
const OF_ALL: Rate = Rate { jobs: 100, per_ms: 1000, burst: 5 };
const OF_KEY: Rate = Rate { jobs: 30, per_ms: 1000, burst: 2 };
const RETRY_PERCENT: u32 = 20;
/// Longest time from one moment to kill somebody to the next, beyond the starts that are waited for.
const MOMENT_US_MAX: u64 = 30_000;

/// Fails so many times before it ends well.
#[derive(Serialize, Deserialize)]
struct Stumble {
    times: u16,
}

impl Job for Stumble {
    const KIND: &'static str = "stumble";
    type Output = ();
}

/// One start, as far as a budget or a rate looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Start {
    claimed_us: i64,
    is_retry: bool,
}

/// All starts, in the order of the claims: a job starts once by each lease.
type Starts = BTreeMap<Token, BTreeMap<JobId, Start>>;

/// What each of the processes does: it works until it is killed.
pub fn run() {
    let (Ok(url), Ok(folder)) = (std::env::var(URL), std::env::var(FOLDER)) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mill = Tidemill::open(&url).await.unwrap();
        let folder = PathBuf::from(folder);
        let handler = move |job: Stumble, cx: Context| {
            let folder = folder.clone();
            async move { stumble(&folder, &job, &cx).await }
        };
        let worker = mill.worker().slots(SLOTS).lease_ttl(Duration::from_secs(2)).lost_max(1000);
        let _running = worker.handle(handler).start().await.unwrap();
        std::future::pending::<()>().await;
    });
}

async fn stumble(folder: &Path, job: &Stumble, cx: &Context) -> Result<(), Fail> {
    let mill = cx.mill()?;
    let view = mill.job(cx.id()).await?;
    let Some(worker) = view.and_then(|view| view.worker) else {
        return Err(Fail::transient("taken away"));
    };
    let leases = mill.store().leases(worker).await.map_err(Fail::transient)?;
    note(folder, &leases, |token, id| (token, id) == (cx.token(), cx.id()), cx.attempt() > 1)?;
    if cx.attempt() > job.times {
        return Ok(());
    }
    Err(Fail::transient("not yet").retry_after(Duration::ZERO))
}

/// Writes down the starts of these leases that are meant; one `write` each, so that several processes never mix.
fn note(
    folder: &Path,
    leases: &[LeaseView],
    is_meant: impl Fn(Token, JobId) -> bool,
    is_retry: bool,
) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(folder.join("starts"))?;
    for lease in leases {
        for id in lease.jobs.iter().filter(|id| is_meant(lease.token, **id)) {
            let (token, claimed_us) = (lease.token.0, lease.claimed_at.as_microsecond());
            file.write_all(format!("{token} {id} {claimed_us} {is_retry};\n").as_bytes())?;
        }
    }
    Ok(())
}

fn starts(folder: &Path) -> Starts {
    let text = fs::read_to_string(folder.join("starts")).unwrap_or_default();
    let start = |line: &str| {
        let words: Vec<&str> = line.strip_suffix(';')?.split(' ').collect();
        let [token, id, claimed_us, is_retry] = words.as_slice() else { return None };
        let (claimed_us, is_retry) = (claimed_us.parse().ok()?, is_retry.parse().ok()?);
        Some((Token(token.parse().ok()?), id.parse().ok()?, Start { claimed_us, is_retry }))
    };
    let mut starts = Starts::new();
    for (token, id, start) in text.lines().filter_map(start) {
        starts.entry(token).or_default().insert(id, start);
    }
    starts
}

fn number(starts: &Starts) -> usize {
    starts.values().map(BTreeMap::len).sum()
}

/// Kills at moments drawn from a seed until it was enough, lets the others end, and answers all starts.
async fn torture(kit: &Kit, mill: &Tidemill, jobs: Vec<Enqueue>) -> Starts {
    let seed = std::env::var("TIDEMILL_SEED")
        .map_or_else(|_| fastrand::u64(..1_000_000), |seed| seed.parse().unwrap());
    println!("TIDEMILL_SEED={seed}");
    let (mut rng, folder, all) = (Rng::with_seed(seed), tempfile::tempdir().unwrap(), jobs.len());
    let folder = folder.path();
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["role", "--exact"]).env(URL, &kit.url).env(FOLDER, folder);
        Process::spawn(&mut command).unwrap()
    };
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    mill.enqueue_many(jobs).await.unwrap();
    for kill in 0..KILLS {
        let share = JOBS / KILLS;
        let some = kill * share + rng.usize(1..share);
        eventually("some to start", SOON, async || {
            unseen(mill, folder).await;
            (number(&starts(folder)) >= some).then_some(())
        })
        .await;
        until(Duration::from_micros(rng.u64(..MOMENT_US_MAX)), || None::<()>);
        let victim = rng.usize(..PROCESSES);
        processes[victim].kill_9().unwrap();
        processes[victim] = start();
    }
    eventually("all to finish", 2 * SOON, async || {
        unseen(mill, folder).await;
        let left = mill.unfinished().await.unwrap();
        (left.waiting + left.running == 0).then_some(())
    })
    .await;
    for process in &mut processes {
        process.kill_9().unwrap();
    }
    let done = JobFilter { state: Some(State::Done), limit: 1000, ..JobFilter::default() };
    assert_eq!(mill.jobs(&done).await.unwrap().len(), all, "seed {seed}: all end well");
    starts(folder)
}

/// Writes down what was claimed and may not have come to write it down itself. It is asked again and again: what a
/// process asked of Postgres before it was killed may be done after that.
async fn unseen(mill: &Tidemill, folder: &Path) {
    let seen = starts(folder);
    let is_seen = |token, id| seen.get(&token).is_some_and(|of_lease| of_lease.contains_key(&id));
    for worker in mill.store().workers().await.unwrap() {
        for lease in mill.store().leases(worker.id).await.unwrap() {
            for id in lease.jobs.iter().copied().filter(|id| !is_seen(lease.token, *id)) {
                // Settled meanwhile: then it has been seen.
                let view = mill.job(id).await.unwrap().unwrap();
                if view.state == State::Running && view.token == Some(lease.token) {
                    let lease = std::slice::from_ref(&lease);
                    note(folder, lease, |_, of| of == id, view.attempt > 0).unwrap();
                }
            }
        }
    }
}

async fn rates_hold_while_workers_are_killed(kit: Kit) {
    let mill = kit.open().await;
    let of_key = Limit { per: Per::Key, rate: Some(OF_KEY), ..Limit::default() };
    mill.set_limit("default", "key", Some(of_key)).await.unwrap();
    mill.change_queue("default", |rules| rules.rate = Some(OF_ALL)).await.unwrap();
    let mut key_of = BTreeMap::new();
    let jobs = (0..JOBS).map(|number| {
        let id = JobId::new();
        key_of.insert(id, number % KEYS);
        Enqueue::from(Stumble { times: 0 }).id(id).key((number % KEYS).to_string())
    });
    let jobs = jobs.collect();
    let starts = torture(&kit, &mill, jobs).await;
    assert!(number(&starts) >= JOBS, "{} starts", number(&starts));
    let all = || starts.values().flatten();
    check_rate(OF_ALL, all().map(|(_, start)| start.claimed_us));
    for key in 0..KEYS {
        let of_key = all().filter(|(id, _)| key_of[*id] == key);
        check_rate(OF_KEY, of_key.map(|(_, start)| start.claimed_us));
    }
    let gates = gates(&mill).await;
    assert_eq!(gates.len(), KEYS + 1);
    let soon = mill.store().now().await.unwrap() + Duration::from_micros(2 * OF_KEY.every_us());
    // That of a key which its rate has caught up with may be forgotten by now.
    assert!(gates.iter().all(|gate| gate.tat.is_none_or(|tat| tat < soon)), "{gates:?}");
    assert!(gates[0].tat.is_some(), "{gates:?}");
}

/// No window, wherever it begins, has more starts than the burst and what the rate brings in its time.
fn check_rate(rate: Rate, times: impl Iterator<Item = i64>) {
    let mut times: Vec<i64> = times.collect();
    times.sort_unstable();
    for (first, from) in times.iter().enumerate() {
        for (last, to) in times.iter().enumerate().skip(first) {
            let (number, within) = ((last - first + 1) as u64, to.abs_diff(*from));
            let most = u64::from(rate.burst) + within / rate.every_us();
            assert!(number <= most, "{number} starts within {within} µs, where {rate} lets {most}");
        }
    }
}

/// The gates that all jobs go through: nobody may be inside or held there in the end.
async fn gates(mill: &Tidemill) -> Vec<GateView> {
    let limits = mill.store().queue_rules().await.unwrap().limits("default");
    let names = limits.iter().flat_map(|limit| {
        (0..KEYS).filter_map(|key| limit.gate_of(Stumble::KIND, "", &key.to_string(), true))
    });
    let mut names: Vec<_> = names.collect();
    names.sort();
    names.dedup();
    let gates = mill.store().gates(&names).await.unwrap();
    assert!(gates.iter().all(|gate| gate.inside.is_empty() && gate.held == 0), "{gates:?}");
    gates
}

async fn a_retry_budget_holds_while_workers_are_killed(kit: Kit) {
    let mill = kit.open().await;
    let percent = Some(RETRY_PERCENT);
    mill.change_queue("default", |rules| rules.retry_percent = percent).await.unwrap();
    let ids: Vec<JobId> = (0..JOBS).map(|_| JobId::new()).collect();
    // Retries would go before two thirds of the first attempts, if nothing held them.
    let job = |(number, id): (usize, &JobId)| {
        let (times, band) =
            if number.is_multiple_of(3) { (2, Priority::Urgent) } else { (0, Priority::Low) };
        Enqueue::from(Stumble { times }).id(*id).priority(band)
    };
    let starts = torture(&kit, &mill, ids.iter().enumerate().map(job).collect()).await;
    // While somebody waits who has never started, there is a first attempt for each slot, and no retry is free.
    let mut unstarted: BTreeSet<JobId> = ids.into_iter().collect();
    let (mut firsts, mut retries) = (0_u32, 0_u32);
    for of_lease in starts.values() {
        for (id, start) in of_lease {
            *if start.is_retry { &mut retries } else { &mut firsts } += 1;
            unstarted.remove(id);
        }
        if unstarted.is_empty() {
            break;
        }
        let paid = RETRY_CREDIT + firsts * RETRY_PERCENT / 100;
        assert!(
            retries <= paid,
            "{retries} retries after {firsts} first attempts: {paid} were paid for"
        );
    }
    let paid = RETRY_CREDIT + firsts * RETRY_PERCENT / 100;
    assert!(2 * retries >= paid, "{retries} retries, while {paid} were paid for");
    gates(&mill).await;
}
