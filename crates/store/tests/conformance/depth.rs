//! Depth is counted, not looked up, and yet right: after every act, whoever does what at the same time.

use std::sync::Arc;

use tidemill_core::{Due, NewJob, OnDead, OnDuplicate, Options, Scope, Settlement, WorkerId};
use tidemill_store::{DepthView, Store};

use super::kit::{
    HOUR, Kit, SECOND, ask, card, dead, done, ids, item, job, retry, unique, with_payload,
};
use super::plain_sql::run;

over_both_stores!(
    jobs_that_wait_are_counted_and_those_that_run_are_not,
    tenants_are_counted_each,
    every_act_is_counted,
    what_replaces_another_does_not_count_twice,
    those_behind_another_of_their_line_count,
    plain_sql_is_counted,
    counters_are_right_after_everybody_at_once,
    what_is_rolled_back_was_never_counted,
    rates_are_told_by_samples,
    a_queue_that_is_empty_and_still_is_forgotten,
);

pub async fn depth(kit: &Kit, queue: &str) -> DepthView {
    kit.store.depths(&[queue.to_owned()]).await.unwrap().remove(0)
}

/// What was counted must be what is there, in every queue.
pub async fn is_exact(store: &Arc<dyn Store>) {
    for queue in store.queues().await.unwrap() {
        let there = queue.ready.values().sum::<u64>() + queue.scheduled;
        let counted = store.depths(std::slice::from_ref(&queue.name)).await.unwrap().remove(0);
        assert_eq!((queue.depth, counted.depth()), (there, there), "the depth of {}", queue.name);
    }
}

fn of(queue: &str, tenant: Option<&str>) -> NewJob {
    NewJob { queue: queue.into(), tenant: tenant.map(str::to_owned), ..job("k") }
}

async fn jobs_that_wait_are_counted_and_those_that_run_are_not(kit: &Kit) {
    let mut jobs: Vec<_> = (0..250).map(|_| job("k")).collect();
    jobs.push(NewJob { due: Due::In(HOUR), ..job("k") });
    kit.store.enqueue(jobs).await.unwrap();
    assert_eq!(depth(kit, "default").await.depth(), 251, "those that wait for the clock too");
    let worker = kit.worker().await;
    assert_eq!(kit.take(worker, 30).await.jobs.len(), 30);
    let seen = depth(kit, "default").await;
    assert_eq!((seen.depth(), seen.now.came, seen.now.went), (221, 251, 30));
    assert_eq!(depth(kit, "unheard of").await.depth(), 0);
    is_exact(&kit.store).await;
}

async fn tenants_are_counted_each(kit: &Kit) {
    for (tenant, jobs) in [("a", 3), ("b", 150), ("c", 1)] {
        let jobs = (0..jobs).map(|_| of("q", Some(tenant))).collect();
        kit.store.enqueue(jobs).await.unwrap();
    }
    kit.put(of("q", None)).await;
    let tenants = async || {
        let seen = depth(kit, "q").await.tenants;
        seen.into_iter().map(|one| (one.tenant, one.depth)).collect::<Vec<_>>()
    };
    let counted = [("b".to_owned(), 150), ("a".to_owned(), 3), ("c".to_owned(), 1)];
    assert_eq!(tenants().await, counted, "most first");
    let worker = kit.worker().await;
    assert_eq!(kit.store.claim(ask(worker, "q", 200)).await.unwrap().jobs.len(), 155);
    assert_eq!(tenants().await, [], "who has nothing waiting is not named");
    let jobs = (0..30).map(|n| of("q", Some(&format!("t{n:02}")))).collect();
    kit.store.enqueue(jobs).await.unwrap();
    assert_eq!(tenants().await.len(), 10, "the largest few");
}

async fn every_act_is_counted(kit: &Kit) {
    let at = async |expected: u64, what: &str| {
        assert_eq!(depth(kit, "default").await.depth(), expected, "{what}");
        is_exact(&kit.store).await;
    };
    let jobs: Vec<_> = (0..8).map(|n| of("default", (n % 2 == 0).then_some("t"))).collect();
    let all: Vec<_> = jobs.iter().map(|job| job.id).collect();
    kit.store.enqueue(jobs.clone()).await.unwrap();
    kit.store.enqueue(jobs).await.unwrap();
    at(8, "sent again they are not counted again").await;
    kit.store.cancel(all[..2].to_vec(), "not wanted").await.unwrap();
    at(6, "cancelled").await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 3).await;
    at(3, "claimed").await;
    kit.settle(worker, &claim, retry(HOUR, 1)).await;
    at(4, "put off").await;
    assert!(kit.store.run_now(claim.jobs[0].job.id).await.unwrap());
    at(4, "made due").await;
    kit.store.settle(worker, vec![item(&claim, 1, dead("it broke"))]).await.unwrap();
    at(4, "dead").await;
    kit.store.dead_replay(&[claim.jobs[1].job.id], "ada".into(), None).await.unwrap();
    at(5, "replayed").await;
    kit.lose_workers().await;
    at(6, "its worker was lost").await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 10).await;
    assert_eq!(claim.jobs.len(), 6);
    kit.store.deregister(worker).await.unwrap();
    at(6, "its worker stopped").await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 10).await;
    let follow_ups = vec![job("k"), of("other", None)];
    let done = Settlement::Done { output: tidemill_core::Payload::null(), follow_ups };
    let items = (0..6).map(|n| item(&claim, n, done.clone())).collect::<Vec<_>>();
    kit.store.settle(worker, items[..1].to_vec()).await.unwrap();
    at(1, "followed by one here").await;
    assert_eq!(depth(kit, "other").await.depth(), 1, "and one there");
    kit.store.purge(&ids(&claim)).await.unwrap();
    at(1, "and what is forgotten does not count").await;
}

async fn what_replaces_another_does_not_count_twice(kit: &Kit) {
    let keyed = |policy| unique("u", Scope::Unfinished, policy);
    kit.put(keyed(OnDuplicate::Replace)).await;
    let moved = NewJob { queue: "elsewhere".into(), ..keyed(OnDuplicate::Replace) };
    kit.store.enqueue(vec![with_payload(moved, "1"), keyed(OnDuplicate::Join)]).await.unwrap();
    let depths =
        async || (depth(kit, "default").await.depth(), depth(kit, "elsewhere").await.depth());
    assert_eq!(depths().await, (0, 1), "it moved");
    let worker = kit.worker().await;
    let claim = kit.store.claim(ask(worker, "elsewhere", 1)).await.unwrap();
    kit.enqueue(keyed(OnDuplicate::RunOnceMore)).await;
    assert_eq!(depths().await, (0, 0), "one that is kept for afterwards does not wait yet");
    kit.settle(worker, &claim, done()).await;
    assert_eq!(depths().await, (1, 0), "now it does");
    let forced = unique("u", Scope::Unfinished, OnDuplicate::Reject);
    let forced_key =
        forced.unique.clone().map(|unique| tidemill_core::UniqueKey { force: true, ..unique });
    kit.put(NewJob { unique: forced_key, ..forced }).await;
    assert_eq!(depths().await, (2, 0), "one that insists");
    is_exact(&kit.store).await;
}

async fn those_behind_another_of_their_line_count(kit: &Kit) {
    let options = Options { ordered: Some(OnDead::Skip), ..Options::default() };
    let lined = || NewJob { key: Some("a".into()), options: options.clone(), ..job("k") };
    let jobs: Vec<_> = (0..4).map(|_| lined()).collect();
    let last = jobs[3].id;
    kit.store.enqueue(jobs).await.unwrap();
    let seen = async || {
        let seen = depth(kit, "default").await;
        (seen.depth(), seen.now.came, seen.now.went)
    };
    assert_eq!(seen().await, (4, 4, 0), "the first, and three behind it");
    let worker = kit.worker().await;
    let claim = kit.take(worker, 4).await;
    assert_eq!((claim.jobs.len(), seen().await), (1, (3, 4, 1)));
    kit.settle(worker, &claim, done()).await;
    assert_eq!(seen().await, (3, 4, 1), "the next is the first now, and came only once");
    kit.store.cancel(vec![last], "no").await.unwrap();
    assert_eq!(depth(kit, "default").await.depth(), 2);
    let insert = "INSERT INTO tidemill_enqueue (kind, key, ordered) VALUES ('k', 'a', 'block')";
    run(kit, insert).await.unwrap();
    assert_eq!(depth(kit, "default").await.depth(), 3);
    // The clock of plain SQL is the real one, and ahead of ours.
    for left in [2, 1] {
        let claim = kit.take(worker, 4).await;
        assert_eq!((claim.jobs.len(), depth(kit, "default").await.depth()), (1, left));
        kit.settle(worker, &claim, done()).await;
    }
    is_exact(&kit.store).await;
}

async fn plain_sql_is_counted(kit: &Kit) {
    let insert =
        "INSERT INTO tidemill_enqueue (kind, queue, tenant, unique_key, on_duplicate) VALUES ";
    run(kit, &format!("{insert} ('k', 'q', 'a', NULL, NULL), ('k', 'q', 'b', 'u', 'reject')"))
        .await
        .unwrap();
    run(kit, &format!("{insert} ('k', 'q', 'b', 'u', 'replace'), ('k', 'q', 'b', 'u', 'reject')"))
        .await
        .unwrap();
    assert!(
        run(kit, &format!("{insert} ('k', 'q', 'a', NULL, NULL), ('', 'q', NULL, 'u', 'reject')"))
            .await
            .is_err()
    );
    let seen = depth(kit, "q").await;
    let tenants: Vec<_> = seen.tenants.iter().map(|one| (one.tenant.as_str(), one.depth)).collect();
    assert_eq!((seen.depth(), tenants), (2, vec![("a", 1), ("b", 1)]));
    is_exact(&kit.store).await;
}

async fn counters_are_right_after_everybody_at_once(kit: &Kit) {
    let other = kit.neighbour().await;
    let stores = [Arc::clone(&kit.store), Arc::clone(&other)];
    let mut working = tokio::task::JoinSet::new();
    for n in 0..6_usize {
        let store = Arc::clone(&stores[n % 2]);
        working.spawn(async move {
            for round in 0..15 {
                let tenant = (round % 3 == 0).then_some("t");
                let jobs = (0..=round * 7 % 23).map(|_| of("q", tenant)).collect::<Vec<_>>();
                let some: Vec<_> = jobs.iter().step_by(5).map(|job| job.id).collect();
                store.enqueue(jobs).await.unwrap();
                store.cancel(some, "no").await.unwrap();
            }
        });
    }
    for n in 0..4_usize {
        let store = Arc::clone(&stores[n % 2]);
        working.spawn(async move {
            let worker = WorkerId::new();
            store.register(card(worker)).await.unwrap();
            for round in 0..20 {
                let claim = store.claim(ask(worker, "q", 1 + round * 5 % 17)).await.unwrap();
                let how = |at: usize| if at.is_multiple_of(3) { retry(HOUR, 1) } else { done() };
                let items = (0..claim.jobs.len()).map(|at| item(&claim, at, how(at))).collect();
                store.settle(worker, items).await.unwrap();
                store.depths(&["q".to_owned()]).await.unwrap();
            }
            store.deregister(worker).await.unwrap();
        });
    }
    while let Some(worked) = working.join_next().await {
        worked.unwrap();
    }
    is_exact(&kit.store).await;
    is_exact(&other).await;
    let worker = kit.worker().await;
    kit.clock.advance(HOUR);
    while !kit.store.claim(ask(worker, "q", 1000)).await.unwrap().jobs.is_empty() {}
    let seen = depth(kit, "q").await;
    assert_eq!((seen.depth(), seen.tenants), (0, Vec::new()));
    other.close().await;
}

async fn what_is_rolled_back_was_never_counted(kit: &Kit) {
    kit.put(job("k")).await;
    let insert = "INSERT INTO tidemill_enqueue (kind) VALUES ('k'), ('k')";
    let undone = format!("BEGIN; {insert}; ROLLBACK; BEGIN; {insert}");
    if let Some(file) = kit.url.strip_prefix("sqlite:") {
        // The second one is cut off with its connection, as by a crash.
        rusqlite::Connection::open(file).unwrap().execute_batch(&undone).unwrap();
    } else {
        let connected = tokio_postgres::connect(&kit.url, tokio_postgres::NoTls).await;
        let (client, connection) = connected.unwrap();
        let running = tokio::spawn(connection);
        client.batch_execute(&undone).await.unwrap();
        running.abort();
    }
    assert_eq!(depth(kit, "default").await.depth(), 1);
    is_exact(&kit.store).await;
}

async fn rates_are_told_by_samples(kit: &Kit) {
    assert_eq!(depth(kit, "default").await.before, None, "nothing is known of it");
    kit.store.enqueue((0..10).map(|_| job("k")).collect()).await.unwrap();
    let first = depth(kit, "default").await.before.expect("from its first job on");
    assert_eq!(first.came, 0, "what came first counts");
    assert_eq!(kit.clock.now().duration_since(first.at).as_micros(), 1);
    for _ in 0..12 {
        kit.clock.advance(10 * SECOND);
        kit.put(job("k")).await;
        depth(kit, "default").await;
    }
    let seen = depth(kit, "default").await;
    let before = seen.before.expect("there are many by now");
    let age = seen.now.at.duration_since(before.at).as_secs();
    assert!((60..=70).contains(&age), "of about a minute ago, not {age} s");
    assert_eq!(seen.now.came - before.came, age as u64 / 10);
    // Nobody looks for an hour, then something comes, and nobody looks for two minutes.
    kit.clock.advance(3600 * SECOND);
    kit.put(job("k")).await;
    let seen = depth(kit, "default").await;
    assert!(seen.now.came > seen.before.expect("it was still").came);
    kit.clock.advance(120 * SECOND);
    let seen = depth(kit, "default").await;
    assert_eq!(seen.now.came, seen.before.expect("it is still").came);
}

async fn a_queue_that_is_empty_and_still_is_forgotten(kit: &Kit) {
    kit.finish(job("k"), done()).await;
    assert_eq!(depth(kit, "default").await.now.came, 1);
    kit.clock.advance(11 * 60 * SECOND);
    depth(kit, "default").await;
    kit.clock.advance(11 * 60 * SECOND);
    depth(kit, "default").await;
    let seen = depth(kit, "default").await;
    assert_eq!((seen.now.came, seen.now.went, seen.before), (0, 0, None));
}
