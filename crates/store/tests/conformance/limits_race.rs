//! Limits under many claimers in two processes: never exceeded, and everybody gets through.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidemill_core::WorkerId;
use tidemill_core::gate::{Per, QueueLimit, Rate};
use tidemill_store::{ClaimRequest, Settled, Store};
use tokio::task::JoinSet;

use super::kit::{Kit, ask, done, item, job};
use super::limits::{at_once, fill, of_key};
use super::limits_budget::{budget, fail_once};

over_both_stores!(
    a_hundred_keys_and_many_claimers_never_meet,
    a_limit_by_key_that_changes_meanwhile_holds_and_forgets_nobody,
    a_limit_holds_among_many_claimers,
    many_claimers_spend_a_retry_budget_once,
    who_asks_for_more_than_its_slots_exceeds_no_limit,
);

/// Claims and settles until all are done; asserts that never too many run at once.
async fn race(kit: &Kit, limits: Vec<QueueLimit>, jobs: usize, most: fn(&Running) -> bool) {
    race_of(kit, &[Arc::new(limits)], jobs, most).await;
}

/// The same with claimers of which each knows one of these rules, in turns.
async fn race_of(
    kit: &Kit,
    rules: &[Arc<Vec<QueueLimit>>],
    jobs: usize,
    most: fn(&Running) -> bool,
) {
    let running = Arc::new(Mutex::new(Running::default()));
    let mut tasks = JoinSet::new();
    for number in 0..6 {
        let store = if number % 2 == 0 { kit.store.clone() } else { kit.neighbour().await };
        let worker = kit.worker().await;
        let running = Arc::clone(&running);
        let limits = Arc::clone(&rules[number / 2 % rules.len()]);
        tasks.spawn(run(store, worker, limits, running, jobs, most));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert_eq!(running.lock().unwrap().done, jobs);
}

/// What runs now.
#[derive(Default)]
struct Running {
    keys: BTreeMap<String, usize>,
    all: usize,
    done: usize,
}

async fn run(
    store: Arc<dyn Store>,
    worker: WorkerId,
    limits: Arc<Vec<QueueLimit>>,
    running: Arc<Mutex<Running>>,
    jobs: usize,
    is_right: fn(&Running) -> bool,
) {
    let mut heard = store.wake().listen();
    while running.lock().unwrap().done < jobs {
        let wish = ClaimRequest { limits: Arc::clone(&limits), ..ask(worker, "default", 7) };
        let claim = store.claim(wish).await.unwrap();
        {
            let mut running = running.lock().unwrap();
            for taken in &claim.jobs {
                *running.keys.entry(taken.job.key.clone().unwrap_or_default()).or_default() += 1;
                running.all += 1;
            }
            assert!(is_right(&running), "{:?}", running.keys);
        }
        if claim.jobs.is_empty() {
            let _ = tokio::time::timeout(Duration::from_millis(100), heard.recv()).await;
            continue;
        }
        tokio::task::yield_now().await;
        {
            // It has run; whoever takes the next one of its key may do so once this is settled.
            let mut running = running.lock().unwrap();
            for taken in &claim.jobs {
                let key = taken.job.key.clone().unwrap_or_default();
                *running.keys.get_mut(&key).unwrap() -= 1;
                running.all -= 1;
            }
        }
        let items = (0..claim.jobs.len()).map(|at| item(&claim, at, done())).collect();
        let answers = store.settle(worker, items).await.unwrap();
        assert!(answers.iter().all(|answer| *answer == Settled::Accepted));
        running.lock().unwrap().done += answers.len();
    }
}

async fn a_hundred_keys_and_many_claimers_never_meet(kit: &Kit) {
    let jobs = (0..600).map(|n| of_key(&format!("key {}", n % 100))).collect();
    kit.store.enqueue(jobs).await.unwrap();
    race(kit, vec![at_once(Per::Key, 1)], 600, |running| running.keys.values().all(|n| *n <= 1))
        .await;
}

/// While rules change, some claim under the old ones: with one of each key, three of them, or a rate besides.
async fn a_limit_by_key_that_changes_meanwhile_holds_and_forgets_nobody(kit: &Kit) {
    let jobs = (0..400).map(|n| of_key(&format!("key {}", n % 20))).collect();
    kit.store.enqueue(jobs).await.unwrap();
    let rate = Some(Rate { jobs: 1000, per_ms: 1, burst: 1000 });
    let three = || at_once(Per::Key, 3);
    let rules = [at_once(Per::Key, 1), three(), QueueLimit { rate, ..three() }];
    let rules = rules.map(|limit| Arc::new(vec![limit]));
    race_of(kit, &rules, 400, |running| running.keys.values().all(|n| *n <= 3)).await;
}

async fn a_limit_holds_among_many_claimers(kit: &Kit) {
    fill(kit, &job("k"), 400).await;
    race(kit, vec![at_once(Per::All, 5)], 400, |running| running.all <= 5).await;
}

async fn many_claimers_spend_a_retry_budget_once(kit: &Kit) {
    fail_once(kit, &job("k"), 100).await;
    fill(kit, &job("k"), 300).await;
    let (limits, mut tasks) = (Arc::new(vec![budget(1)]), JoinSet::new());
    for _ in 0..20 {
        let (store, worker, limits) = (kit.store.clone(), kit.worker().await, Arc::clone(&limits));
        let wish = ClaimRequest { limits, ..ask(worker, "default", 5) };
        tasks.spawn(async move { store.claim(wish).await.unwrap() });
    }
    let claims = tasks.join_all().await;
    let attempts: Vec<u16> = claims.iter().flat_map(|c| c.jobs.iter().map(|j| j.attempt)).collect();
    let retries = attempts.iter().filter(|attempt| **attempt > 1).count();
    assert!(retries <= 11, "{retries} retries: ten were free, ninety first attempts paid for none");
    assert_eq!(attempts.len(), 100);
}

/// Eight claim at once, each many times what it said that it can run, and more than the limit lets pass.
async fn who_asks_for_more_than_its_slots_exceeds_no_limit(kit: &Kit) {
    fill(kit, &of_key("one"), 3000).await;
    for limit in [at_once(Per::All, 240), at_once(Per::Key, 240)] {
        let mut tasks = JoinSet::new();
        for number in 0..8 {
            let store = if number % 2 == 0 { kit.store.clone() } else { kit.neighbour().await };
            let (worker, limits) = (kit.worker().await, Arc::new(vec![limit.clone()]));
            tasks.spawn(async move {
                let mut taken = 0;
                for _ in 0..3 {
                    let wish =
                        ClaimRequest { limits: Arc::clone(&limits), ..ask(worker, "default", 100) };
                    taken += store.claim(wish).await.unwrap().jobs.len();
                }
                taken
            });
        }
        let taken: usize = tasks.join_all().await.into_iter().sum();
        assert_eq!(taken, 240);
        kit.lose_workers().await;
    }
}
