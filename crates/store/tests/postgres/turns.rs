//! Claims that take turns: what comes beside and after them waits in one order, and loses nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidemill_core::gate::{Counts, Limit, Per, QueueLimit, Rate};
use tidemill_core::{Breaker, NewJob, QueueRules, WorkerId};
use tidemill_store::{ClaimRequest, Store};
use tidemill_testkit::databases::fresh_postgres_url;
use tidemill_testkit::eventually::eventually;

use super::deadlock::{count, waiting};
use super::kit::{SOON, ask, connect, done, ids, items, job, store, worker};

fn one_at_once(breaker: Option<Breaker>) -> Arc<Vec<QueueLimit>> {
    Arc::new(vec![QueueLimit {
        queue: "default".into(),
        gate: "default/\u{1c}bank".into(),
        kind: None,
        counts: Counts::Per(Per::All),
        concurrency: Some(1),
        rate: None,
        hold: false,
        breaker,
    }])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_judges_a_gate_has_its_turn_before_its_row() {
    let url = fresh_postgres_url();
    let store = store(&url).await;
    let (mine, breaker) = (worker(&store).await, Some(Breaker::default()));
    store.enqueue(vec![job()]).await.unwrap();
    let limits = one_at_once(breaker);
    let claim = store.claim(ClaimRequest { limits, ..ask(mine, 1) }).await.unwrap();
    let (mut third, looking) = (connect(&url).await, connect(&url).await);
    let gate =
        "insert into tidemill.gate (name, base) values ('default/\u{1c}bank', 'default/\u{1c}bank')
        on conflict do nothing";
    looking.execute(gate, &[]).await.unwrap();
    // As a claim does that is under way: it has the turn, and then wants the row of the gate.
    let claiming = third.transaction().await.unwrap();
    claiming
        .execute("select tidemill.take_turns('{default/\u{1c}bank}', '{}')", &[])
        .await
        .unwrap();
    let mut ended = items(&claim, &done());
    ended[0].gates[0].breaker = breaker;
    store.settle(mine, ended).await.unwrap();
    waiting(&looking, 1).await;
    let row = "select from tidemill.gate where name = 'default/\u{1c}bank' for update nowait";
    claiming.execute(row, &[]).await.unwrap();
    claiming.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_claim_whose_bodies_cannot_be_read_is_given_back() {
    let url = fresh_postgres_url();
    let (store, third) = (store(&url).await, connect(&url).await);
    let mine = worker(&store).await;
    let new = job();
    let id = new.id;
    store.enqueue(vec![new]).await.unwrap();
    let wish = || ClaimRequest { limits: one_at_once(None), ..ask(mine, 1) };
    // A claim that has a turn reads bodies when its lease is durable and its turn is over.
    third.batch_execute("alter table tidemill.job rename to hidden").await.unwrap();
    store.claim(wish()).await.unwrap_err();
    let leases = third.query_one("select count(*) from tidemill.lease", &[]).await.unwrap();
    assert_eq!(leases.get::<_, i64>(0), 1, "it had taken the job");
    third.batch_execute("alter table tidemill.hidden rename to job").await.unwrap();
    let claim = eventually("a beat to give it back", SOON, async || {
        store.beat(mine).await.unwrap();
        let claim = store.claim(wish()).await.unwrap();
        (!claim.jobs.is_empty()).then_some(claim)
    })
    .await;
    assert_eq!(ids(&claim), [id]);
    assert_eq!((claim.jobs[0].attempt, claim.jobs[0].lost), (1, 0), "nothing was spent");
    store.settle(mine, items(&claim, &done())).await.unwrap();
    let inside = store.gates(&["default/\u{1c}bank".into()]).await.unwrap();
    assert!(inside[0].inside.is_empty(), "no place is lost: {inside:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_brings_a_limit_within_reach_waits_for_claims_under_way() {
    let url = fresh_postgres_url();
    let store = store(&url).await;
    let rules = QueueRules { concurrency: Some(30), ..QueueRules::default() };
    assert!(store.set_queue("default", Some(rules)).await.unwrap());
    let (mut third, looking) = (connect(&url).await, connect(&url).await);
    // As a claim does that is under way.
    let claiming = third.transaction().await.unwrap();
    claiming.execute("select tidemill.lock_rules(true)", &[]).await.unwrap();
    let joining = Arc::clone(&store);
    let joined = tokio::spawn(async move { worker(&joining).await });
    waiting(&looking, 1).await;
    claiming.commit().await.unwrap();
    joined.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn where_nothing_counts_who_registers_waits_for_no_claim() {
    let url = fresh_postgres_url();
    let store = store(&url).await;
    let rate = Some(Rate { jobs: 1, per_ms: 1000, burst: 1 });
    let rules = QueueRules { rate, ..QueueRules::default() };
    assert!(store.set_queue("default", Some(rules)).await.unwrap());
    let mut third = connect(&url).await;
    let claiming = third.transaction().await.unwrap();
    claiming.execute("select tidemill.lock_rules(true)", &[]).await.unwrap();
    worker(&store).await;
    claiming.commit().await.unwrap();
}

/// Beats of workers while somebody looks at all jobs that run: it stands before their bodies, and has written nothing
/// that a beat would wait for.
async fn beats_beside<T: Send + 'static>(
    url: &str,
    store: &Arc<dyn Store>,
    mine: WorkerId,
    look: impl Future<Output = T> + Send + 'static,
) -> T {
    let (mut third, looking) = (connect(url).await, connect(url).await);
    let hiding = third.transaction().await.unwrap();
    hiding.batch_execute("lock table tidemill.job in access exclusive mode").await.unwrap();
    let look = tokio::spawn(look);
    waiting(&looking, 1).await;
    let beat = tokio::time::timeout(SOON, store.beat(mine)).await;
    assert!(!beat.expect("a beat waits for nobody").unwrap().lost);
    hiding.rollback().await.unwrap();
    look.await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_beats_while_a_change_of_rules_looks_at_all_jobs_that_run() {
    let url = fresh_postgres_url();
    let store = store(&url).await;
    let mine = worker(&store).await;
    store.enqueue((0..40).map(|_| job()).collect()).await.unwrap();
    assert_eq!(store.claim(ask(mine, 30)).await.unwrap().jobs.len(), 30, "more than its reach");
    let changing = Arc::clone(&store);
    let change = async move {
        let rules = QueueRules { concurrency: Some(20), ..QueueRules::default() };
        changing.set_queue("default", Some(rules)).await.unwrap()
    };
    assert!(beats_beside(&url, &store, mine, change).await);
    let third = connect(&url).await;
    assert_eq!(count(&third, "select sum(reach) from tidemill.worker").await, 30);
    assert_eq!(count(&third, "select count(*) from tidemill.stowaway").await, 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_beats_while_it_is_to_hold_more_and_all_jobs_that_run_are_looked_at() {
    let url = fresh_postgres_url();
    let store = store(&url).await;
    let mine = worker(&store).await;
    let rules = QueueRules { concurrency: Some(20), ..QueueRules::default() };
    assert!(store.set_queue("default", Some(rules)).await.unwrap());
    store.enqueue((0..40).map(|_| job()).collect()).await.unwrap();
    let book = store.queue_rules().await.unwrap();
    let (limits, edition) = (Arc::new(book.limits("default")), Some(book.edition()));
    let wish = ClaimRequest { limits, edition, ..ask(mine, 30) };
    let claiming = Arc::clone(&store);
    let claim = async move { claiming.claim(wish).await.unwrap().jobs.len() };
    assert_eq!(beats_beside(&url, &store, mine, claim).await, 20);
    let third = connect(&url).await;
    assert_eq!(count(&third, "select sum(reach) from tidemill.worker").await, 30);
}

/// A worker that holds no more than what a limit has beyond the reach of all others cannot exceed it, whatever they do
/// meanwhile: it waits for nobody's turn, and is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_cannot_exceed_a_limit_waits_for_no_turn() {
    let of_key = Limit { per: Per::Key, concurrency: Some(3), ..Limit::default() };
    let by_key = BTreeMap::from([("x".to_owned(), of_key)]);
    for rules in [
        QueueRules { concurrency: Some(3), ..QueueRules::default() },
        QueueRules { limits: by_key, ..QueueRules::default() },
    ] {
        let url = fresh_postgres_url();
        let store = store(&url).await;
        // Each may hold two.
        let (mine, other) = (worker(&store).await, worker(&store).await);
        assert!(store.set_queue("default", Some(rules)).await.unwrap());
        let keyed = || NewJob { key: Some("a".into()), ..job() };
        store.enqueue((0..6).map(|_| keyed()).collect()).await.unwrap();
        let book = store.queue_rules().await.unwrap();
        let (limits, edition) = (Arc::new(book.limits("default")), Some(book.edition()));
        let wish = |worker, jobs_max| ClaimRequest {
            limits: Arc::clone(&limits),
            edition,
            ..ask(worker, jobs_max)
        };
        let (mut third, looking) = (connect(&url).await, connect(&url).await);
        // As claims do that are under way.
        let claiming = third.transaction().await.unwrap();
        let gate = vec![limits[0].gate.as_str()];
        claiming.execute("select tidemill.take_turns($1::text[], '{}')", &[&gate]).await.unwrap();
        claiming.execute("select from tidemill.turn for update", &[]).await.unwrap();
        for worker in [mine, other] {
            let claim = tokio::time::timeout(SOON, store.claim(wish(worker, 1))).await;
            let claim = claim.expect("a claim that waits for nobody").unwrap();
            assert_eq!((claim.jobs.len(), claim.jobs[0].gates.len()), (1, 1));
        }
        let permits = "select coalesce(sum(held), 0)::int8 from tidemill.permit";
        assert_eq!(count(&looking, permits).await, 2);
        let judged = wish(mine, 1);
        let more = if limits[0].counts == Counts::Per(Per::Key) {
            let passed_over = store.claim(judged.clone()).await.unwrap();
            assert!(passed_over.jobs.is_empty(), "its gate is in other hands");
            claiming.rollback().await.unwrap();
            store.claim(judged).await.unwrap()
        } else {
            let beside = Arc::clone(&store);
            let more = tokio::spawn(async move { beside.claim(judged).await.unwrap() });
            waiting(&looking, 1).await;
            claiming.rollback().await.unwrap();
            more.await.unwrap()
        };
        assert_eq!(more.jobs.len(), 1, "in its turn");
        assert!(store.claim(wish(other, 1)).await.unwrap().jobs.is_empty(), "it is full");
    }
}
