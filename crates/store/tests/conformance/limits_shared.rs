//! Gates that several queues share, and rules that change while many are held.

use std::sync::Arc;

use tidemill_core::gate::{Counts, Limit, Per, QueueLimit, Rate};
use tidemill_core::{JobId, NewJob, QueueRules};
use tidemill_store::{Claim, ClaimRequest, Hint};

use super::kit::{Kit, SECOND, ask, done, hears, item, job, rules as rescue_rules};
use super::limits::{fill, limit};

over_both_stores!(
    who_is_held_of_a_queue_that_nobody_serves_is_in_nobodys_way,
    who_serves_another_queue_hides_nobody_at_a_gate,
    all_queues_that_are_held_at_a_gate_are_told,
    rules_that_change_let_thousands_try_anew,
    rules_of_another_queue_let_nobody_try_anew,
    who_was_held_by_rules_of_before_is_let_through_by_a_sweep,
);

const ABANDONED: usize = 2500;

fn shared(queue: &str) -> QueueLimit {
    let all = limit("*/\u{1c}slow", Counts::Per(Per::All));
    let (queue, kind) = (queue.into(), Some("k".into()));
    QueueLimit { queue, kind, concurrency: Some(1), ..all }
}

fn of_queue(queue: &str) -> NewJob {
    NewJob { queue: queue.into(), ..job("k") }
}

async fn take(kit: &Kit, worker: tidemill_core::WorkerId, queue: &str, jobs_max: usize) -> Claim {
    let limits = Arc::new(vec![shared(queue)]);
    kit.store.claim(ClaimRequest { limits, ..ask(worker, queue, jobs_max) }).await.unwrap()
}

/// Holds many of another queue, which nobody serves afterwards, behind one that runs.
async fn abandon(kit: &Kit, worker: tidemill_core::WorkerId) -> Claim {
    kit.put(of_queue("default")).await;
    let first = take(kit, worker, "default", 1).await;
    assert_eq!(first.jobs.len(), 1);
    fill(kit, &of_queue("abandoned"), ABANDONED).await;
    while held(kit).await < ABANDONED as u64 {
        assert!(take(kit, worker, "abandoned", ABANDONED).await.jobs.is_empty());
    }
    kit.clock.advance(SECOND);
    first
}

async fn held(kit: &Kit) -> u64 {
    kit.store.gates(&["*/\u{1c}slow".into()]).await.unwrap()[0].held
}

/// Settles what a claim took, and waits until this queue is told.
async fn end(kit: &Kit, worker: tidemill_core::WorkerId, claim: &Claim, queue: &str) {
    let mut heard = kit.store.wake().listen();
    kit.store.settle(worker, vec![item(claim, 0, done())]).await.unwrap();
    hears(&mut heard, |hint| *hint == Hint::Ready { queue: queue.into() }).await;
}

async fn who_is_held_of_a_queue_that_nobody_serves_is_in_nobodys_way(kit: &Kit) {
    let worker = kit.worker().await;
    let mut claim = abandon(kit, worker).await;
    fill(kit, &of_queue("default"), 3).await;
    assert!(take(kit, worker, "default", 5).await.jobs.is_empty(), "they are held, too");
    for _ in 0..3 {
        end(kit, worker, &claim, "default").await;
        claim = take(kit, worker, "default", 5).await;
        assert_eq!(claim.jobs.len(), 1, "it did not wait for those before it, of another queue");
    }
    end(kit, worker, &claim, "abandoned").await;
    let last = take(kit, worker, "default", 5).await;
    assert!(last.jobs.is_empty());
    let asks_again = take(kit, worker, "default", 5).await.next_due;
    assert!(
        asks_again.is_none_or(|at| at > last.now),
        "there is nothing to ask for: {asks_again:?}"
    );
    let served = take(kit, worker, "abandoned", 5).await;
    assert_eq!(served.jobs.len(), 1, "whoever serves them now, finds them");
}

async fn who_serves_another_queue_hides_nobody_at_a_gate(kit: &Kit) {
    let worker = kit.worker().await;
    let rate = Some(Rate { jobs: 1, per_ms: 1000, burst: 1 });
    let of_rate = |queue| QueueLimit { concurrency: None, rate, ..shared(queue) };
    let take = async |queue| {
        let limits = Arc::new(vec![of_rate(queue)]);
        kit.store.claim(ClaimRequest { limits, ..ask(worker, queue, 5) }).await.unwrap()
    };
    fill(kit, &of_queue("mail"), 4).await;
    kit.clock.advance(SECOND);
    assert_eq!(take("mail").await.jobs.len(), 1);
    for cell in 0..3 {
        assert!(take("mail").await.jobs.is_empty());
        kit.clock.advance(SECOND);
        assert!(take("default").await.jobs.is_empty(), "it has none");
        assert_eq!(take("mail").await.jobs.len(), 1, "cell {cell} is free");
    }
}

async fn all_queues_that_are_held_at_a_gate_are_told(kit: &Kit) {
    let worker = kit.worker().await;
    let first = abandon(kit, worker).await;
    kit.put(of_queue("default")).await;
    assert!(take(kit, worker, "default", 5).await.jobs.is_empty());
    // `abandoned` comes first, by name and by age.
    end(kit, worker, &first, "default").await;
}

fn each_key(queue: &str, jobs: u32) -> QueueLimit {
    let gate = format!("{queue}/\u{1c}each");
    let of_key = limit(&gate, Counts::Per(Per::Key));
    QueueLimit { queue: queue.into(), concurrency: Some(jobs), ..of_key }
}

/// Holds two of each of these keys, and lets one of each run.
async fn hold(kit: &Kit, worker: tidemill_core::WorkerId, queue: &str, keys: usize) {
    let of = |key: usize| NewJob { key: Some(key.to_string()), ..of_queue(queue) };
    let jobs: Vec<_> = (0..3 * keys).map(|n| NewJob { id: JobId::new(), ..of(n % keys) }).collect();
    kit.store.enqueue(jobs).await.unwrap();
    let mut taken = 0;
    while taken < keys {
        taken += claim_each(kit, worker, queue, 1).await.jobs.len();
    }
    let gates = kit.store.gates(&[format!("{queue}/\u{1c}each\u{1f}")]).await.unwrap();
    assert_eq!(gates[0].held, 2 * keys as u64);
}

async fn claim_each(kit: &Kit, worker: tidemill_core::WorkerId, queue: &str, jobs: u32) -> Claim {
    let limits = Arc::new(vec![each_key(queue, jobs)]);
    kit.store.claim(ClaimRequest { limits, ..ask(worker, queue, 5000) }).await.unwrap()
}

async fn rules_that_change_let_thousands_try_anew(kit: &Kit) {
    let worker = kit.worker().await;
    hold(kit, worker, "default", 1250).await;
    assert!(kit.store.set_queue("default", Some(QueueRules::default())).await.unwrap());
    let gates = kit.store.gates(&["default/\u{1c}each\u{1f}".into()]).await.unwrap();
    assert_eq!(gates[0].held, 0, "all of them, in however many pieces");
    let mut taken = 0;
    while taken < 1250 {
        let claim = claim_each(kit, worker, "default", 2).await;
        assert!(!claim.jobs.is_empty() || claim.next_due.is_some(), "{taken} so far");
        taken += claim.jobs.len();
    }
    assert_eq!(taken, 1250, "one more of each");
}

async fn rules_of_another_queue_let_nobody_try_anew(kit: &Kit) {
    let worker = kit.worker().await;
    hold(kit, worker, "mail:eu", 5).await;
    let gate = ["mail:eu/\u{1c}each\u{1f}".to_owned()];
    let held = async || kit.store.gates(&gate).await.unwrap()[0].held;
    for name in ["other", "mail:e", "mail:eux", "mail:us:*"] {
        assert!(kit.store.set_queue(name, Some(QueueRules::default())).await.unwrap());
        assert_eq!(held().await, 10, "{name}");
    }
    assert!(kit.store.set_queue("mail:*", Some(QueueRules::default())).await.unwrap());
    assert_eq!(held().await, 0);
}

/// Another process may not know yet that rules have changed, and holds somebody by the old ones.
async fn who_was_held_by_rules_of_before_is_let_through_by_a_sweep(kit: &Kit) {
    let worker = kit.worker().await;
    let two = Limit { per: Per::Key, concurrency: Some(2), ..Limit::default() };
    let raised = QueueRules { limits: [("each".into(), two)].into(), ..QueueRules::default() };
    for (queue, rules, known) in [("raised", Some(raised), 2), ("lifted", None, 9)] {
        let of = || NewJob { key: Some("a".into()), ..of_queue(queue) };
        kit.put(of()).await;
        assert_eq!(claim_each(kit, worker, queue, 1).await.jobs.len(), 1);
        kit.put(of()).await;
        assert!(kit.store.set_queue(queue, rules).await.unwrap());
        assert_eq!(claim_each(kit, worker, queue, 1).await.jobs.len(), 0, "as if it had not heard");
        assert_eq!(
            claim_each(kit, worker, queue, known).await.jobs.len(),
            0,
            "nobody lets it through"
        );
        kit.clock.advance(6 * SECOND);
        kit.store.beat(worker).await.unwrap();
        // By another process: each of them looks only now and then.
        let neighbour = kit.neighbour().await;
        neighbour.rescue(rescue_rules()).await.unwrap();
        neighbour.close().await;
        assert_eq!(claim_each(kit, worker, queue, known).await.jobs.len(), 1, "{queue}");
    }
}
