//! Whose turn it is at a limit that binds: bands and tenants share it, whoever has many waiting there.

use std::collections::VecDeque;
use std::sync::Arc;

use tidemill_core::gate::{Per, QueueLimit};
use tidemill_core::{Job, NewJob, Priority, WorkerId};
use tidemill_store::{ClaimRequest, Share};

use super::kit::{Kit, ask, done, item, job};
use super::limits::{at_once, fill, take, take_soon};

over_both_stores!(
    a_higher_band_is_not_behind_all_that_was_held_before,
    tenants_take_turns_at_a_limit,
    of_one_tenant_the_first_is_first,
    tenants_take_turns_however_much_is_asked_for,
    a_favoured_tenant_has_its_weight_at_a_limit,
);

fn of(tenant: &str, priority: Priority) -> NewJob {
    NewJob { tenant: Some(tenant.into()), priority, ..job("k") }
}

/// Two at once of a kind.
fn two_at_once() -> Vec<QueueLimit> {
    vec![QueueLimit { kind: Some("k".into()), ..at_once(Per::All, 2) }]
}

/// All that waits is held at the gate.
async fn hold(kit: &Kit, worker: WorkerId) {
    let claim = take(kit, worker, &two_at_once(), 1).await;
    assert!(claim.jobs.is_empty(), "the gate is shut");
}

/// Lets two run, and then one after the other as they end; answers those that started.
async fn starts(kit: &Kit, number: usize, meanwhile: Vec<NewJob>) -> Vec<Arc<Job>> {
    let (worker, limits) = (kit.worker().await, two_at_once());
    let mut running = VecDeque::new();
    for _ in 0..2 {
        running.push_back(take(kit, worker, &limits, 1).await);
    }
    hold(kit, worker).await;
    kit.store.enqueue(meanwhile).await.unwrap();
    hold(kit, worker).await;
    let mut started = Vec::new();
    for _ in 0..number {
        let ended = running.pop_front().unwrap();
        kit.store.settle(worker, vec![item(&ended, 0, done())]).await.unwrap();
        let next = take_soon(kit, worker, &limits, 1).await;
        started.push(Arc::clone(&next.jobs[0].job));
        running.push_back(next);
    }
    started
}

fn tenants(jobs: &[Arc<Job>]) -> Vec<&str> {
    jobs.iter().map(|job| job.tenant.as_deref().unwrap_or_default()).collect()
}

async fn a_higher_band_is_not_behind_all_that_was_held_before(kit: &Kit) {
    fill(kit, &of("big", Priority::Low), 40).await;
    let started = starts(kit, 2, vec![of("small", Priority::Urgent)]).await;
    assert_eq!(tenants(&started), ["small", "big"]);
}

async fn tenants_take_turns_at_a_limit(kit: &Kit) {
    fill(kit, &of("big", Priority::Normal), 40).await;
    let others = ["s1", "s2", "s3"].map(|tenant| of(tenant, Priority::Normal)).into();
    let started = starts(kit, 4, others).await;
    let mut started = tenants(&started);
    started.sort_unstable();
    assert_eq!(started, ["big", "s1", "s2", "s3"], "each once, in whichever order");
}

async fn of_one_tenant_the_first_is_first(kit: &Kit) {
    let mut expected = Vec::new();
    for _ in 0..6 {
        expected.push(kit.put(of("one", Priority::Normal)).await);
    }
    let started = starts(kit, 4, Vec::new()).await;
    let ran: Vec<_> = started.iter().map(|job| job.id).collect();
    assert_eq!(ran, expected[2..]);
}

/// Asks for so many, each time one of those that run ends; answers who started, in order.
async fn started(kit: &Kit, wish: &ClaimRequest, number: usize) -> Vec<String> {
    let (mut running, mut started) = (VecDeque::new(), Vec::new());
    while started.len() < number {
        if let Some(ended) = running.pop_front() {
            kit.store.settle(wish.worker, vec![ended]).await.unwrap();
        }
        let claim = kit.store.claim(wish.clone()).await.unwrap();
        for at in 0..claim.jobs.len() {
            started.push(claim.jobs[at].job.tenant.clone().unwrap_or_default());
            running.push_back(item(&claim, at, done()));
        }
    }
    started
}

fn of_aa(started: &[String]) -> usize {
    started.iter().filter(|tenant| *tenant == "aa").count()
}

/// A limit on all of the queue, one on its kind, and one by a key that all have.
fn three_at_once() -> [QueueLimit; 3] {
    [
        at_once(Per::All, 3),
        QueueLimit { kind: Some("k".into()), ..at_once(Per::All, 3) },
        at_once(Per::Key, 3),
    ]
}

/// Claims of ten from a queue of two tenants with so many jobs each, under each of these limits.
async fn wishes(kit: &Kit, jobs: usize) -> Vec<ClaimRequest> {
    let mut wishes = Vec::new();
    for (number, limit) in three_at_once().into_iter().enumerate() {
        let queue = format!("q{number}");
        let gate = format!("{queue}/\u{1c}turns");
        let limit = QueueLimit { queue: queue.clone(), gate, ..limit };
        for tenant in ["aa", "bb"] {
            let (queue, key) = (queue.clone(), Some("all".into()));
            fill(kit, &NewJob { queue, key, ..of(tenant, Priority::Normal) }, jobs).await;
        }
        let limits = Arc::new(vec![limit]);
        wishes.push(ClaimRequest { limits, ..ask(kit.worker().await, &queue, 10) });
    }
    wishes
}

async fn tenants_take_turns_however_much_is_asked_for(kit: &Kit) {
    for wish in wishes(kit, 60).await {
        let started = started(kit, &wish, 60).await;
        assert!(of_aa(&started).abs_diff(30) <= 6, "{:?}: {started:?}", wish.limits);
    }
}

async fn a_favoured_tenant_has_its_weight_at_a_limit(kit: &Kit) {
    for wish in wishes(kit, 100).await {
        let queue = wish.lanes[0].queue.clone();
        let tenants = Arc::new([((queue, "bb".to_owned()), 9)].into());
        let share = Share { tenants, ..Share::default() };
        let wish = ClaimRequest { share, ..wish };
        let started = started(kit, &wish, 80).await;
        assert!((5..=14).contains(&of_aa(&started)), "{:?}: {started:?}", wish.limits);
    }
}
