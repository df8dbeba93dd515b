//! Order under a crowd: large batches, concurrent enqueuers, several claimers, plain SQL.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rusqlite::Connection;
use tidemill_core::{JobId, NewJob, OnDead, OnDuplicate, Scope, State, UniqueKey};
use tidemill_store::{Receipt, Store};

use super::kit::{HOUR, Kit, ask, card, done, item, job, json, ordered};

over_both_stores!(
    a_thousand_jobs_of_fifty_keys_run_in_order,
    plain_keyed_and_ordered_jobs_go_in_one_batch,
    concurrent_batches_do_not_block_each_other,
    each_enqueuer_finds_its_own_order_whoever_claims,
    a_rolled_back_enqueue_leaves_no_gap,
);

/// Claims and settles until nothing is left; answers the ids of each key in the order they ran in.
async fn drain(store: &Arc<dyn Store>, jobs_max: usize) -> BTreeMap<String, Vec<JobId>> {
    let mut ran: BTreeMap<String, Vec<JobId>> = BTreeMap::new();
    let worker = tidemill_core::WorkerId::new();
    store.register(card(worker)).await.unwrap();
    loop {
        let claim = store.claim(ask(worker, "default", jobs_max)).await.unwrap();
        if claim.jobs.is_empty() {
            return ran;
        }
        let mut keys = Vec::new();
        for taken in &claim.jobs {
            let key = taken.job.key.clone().unwrap_or_default();
            ran.entry(key.clone()).or_default().push(taken.job.id);
            keys.push(key);
        }
        let number = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert!(keys.len() == number || keys[0].is_empty(), "one of each key at a time");
        let items = (0..claim.jobs.len()).map(|at| item(&claim, at, done())).collect();
        store.settle(worker, items).await.unwrap();
    }
}

async fn a_thousand_jobs_of_fifty_keys_run_in_order(kit: &Kit) {
    let jobs: Vec<NewJob> =
        (0..1000).map(|n| ordered(&format!("key:{}", (n * 7) % 50), OnDead::Block)).collect();
    let mut expected: BTreeMap<String, Vec<JobId>> = BTreeMap::new();
    for job in &jobs {
        expected.entry(job.key.clone().unwrap()).or_default().push(job.id);
    }
    kit.store.enqueue(jobs).await.unwrap();
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 1000);
    assert_eq!(drain(&kit.store, 100).await, expected);
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 0);
}

async fn plain_keyed_and_ordered_jobs_go_in_one_batch(kit: &Kit) {
    let unique = |n: u32| {
        let key = UniqueKey::given("k", &format!("u{n}"));
        let (scope, on_duplicate) = (Scope::Unfinished, OnDuplicate::Reject);
        Some(UniqueKey {
            key,
            scope,
            on_duplicate,
            force: false,
            together: false,
            within: Vec::new(),
        })
    };
    let mut jobs = Vec::new();
    for n in 0..40 {
        jobs.push(job("k"));
        jobs.push(ordered("a", OnDead::Block));
        // Keys that stand in another order than the jobs, so that places are not given by them.
        jobs.push(NewJob { unique: unique(90 - n), ..ordered("a", OnDead::Skip) });
        jobs.push(NewJob { unique: unique(n + 100), ..job("k") });
    }
    let expected: Vec<JobId> =
        jobs.iter().filter(|job| job.line().is_some()).map(|job| job.id).collect();
    let receipts = kit.store.enqueue(jobs.clone()).await.unwrap();
    let enqueued: Vec<_> = jobs.iter().map(|job| Receipt::Enqueued { id: job.id }).collect();
    assert_eq!(receipts, enqueued);
    let ran = drain(&kit.store, 100).await;
    assert_eq!((ran[""].len(), &ran["a"]), (80, &expected));
}

async fn concurrent_batches_do_not_block_each_other(kit: &Kit) {
    let stores = [kit.store.clone(), kit.neighbour().await];
    let mut sending = Vec::new();
    for n in 0..20 {
        let store = stores[n % 2].clone();
        sending.push(tokio::spawn(async move {
            // Half of them name the keys backwards.
            let key = |k: usize| if n % 4 < 2 { k } else { 29 - k };
            let jobs =
                (0..60).map(|k| ordered(&format!("{}", key(k % 30)), OnDead::Block)).collect();
            store.enqueue(jobs).await.unwrap();
        }));
    }
    for sent in sending {
        sent.await.unwrap();
    }
    let ran = drain(&kit.store, 100).await;
    assert_eq!(ran.values().map(Vec::len).collect::<Vec<_>>(), [40; 30]);
    stores[1].close().await;
}

async fn each_enqueuer_finds_its_own_order_whoever_claims(kit: &Kit) {
    const ENQUEUERS: usize = 4;
    const EACH: usize = 40;
    let stores = [kit.store.clone(), kit.neighbour().await];
    let mut tasks = Vec::new();
    for enqueuer in 0..ENQUEUERS {
        let store = stores[enqueuer % 2].clone();
        tasks.push(tokio::spawn(async move {
            for n in 0..EACH {
                let payload = json(&format!("[{enqueuer},{n}]"));
                let job = NewJob { payload, ..ordered(&format!("{}", n % 3), OnDead::Skip) };
                store.enqueue(vec![job]).await.unwrap();
            }
        }));
    }
    let ran = Arc::new(std::sync::Mutex::new(Vec::<(String, usize, usize)>::new()));
    let mut claiming = Vec::new();
    for claimer in 0..3 {
        let (store, ran) = (stores[claimer % 2].clone(), ran.clone());
        claiming.push(tokio::spawn(async move {
            let worker = tidemill_core::WorkerId::new();
            store.register(card(worker)).await.unwrap();
            while ran.lock().unwrap().len() < ENQUEUERS * EACH {
                let claim = store.claim(ask(worker, "default", 2)).await.unwrap();
                let mut items = Vec::new();
                for (at, taken) in claim.jobs.iter().enumerate() {
                    let (enqueuer, n) = serde_json::from_str(taken.job.payload.as_str()).unwrap();
                    ran.lock().unwrap().push((taken.job.key.clone().unwrap(), enqueuer, n));
                    items.push(item(&claim, at, done()));
                }
                store.settle(worker, items).await.unwrap();
                tokio::task::yield_now().await;
            }
        }));
    }
    for task in tasks.into_iter().chain(claiming) {
        task.await.unwrap();
    }
    // Recorded after the claim and before the settle, so the record of a key has its order.
    let mut last: HashMap<(String, usize), usize> = HashMap::new();
    for (key, enqueuer, n) in ran.lock().unwrap().drain(..) {
        let before = last.insert((key.clone(), enqueuer), n);
        assert!(before.is_none_or(|before| before < n), "{enqueuer} of {key}: {before:?}, {n}");
    }
    stores[1].close().await;
}

async fn a_rolled_back_enqueue_leaves_no_gap(kit: &Kit) {
    const ADD: &str =
        "INSERT INTO tidemill_enqueue (kind, key, ordered) VALUES ('k', 'a', 'block')";
    let first = kit.put(ordered("a", OnDead::Block)).await;
    if let Some(file) = kit.url.strip_prefix("sqlite:") {
        let mut conn = Connection::open(file).unwrap();
        let tx = conn.transaction().unwrap();
        tx.execute(ADD, []).unwrap();
        tx.rollback().unwrap();
        conn.execute(ADD, []).unwrap();
    } else {
        let (mut client, connection) =
            tokio_postgres::connect(&kit.url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let tx = client.transaction().await.unwrap();
        tx.execute(ADD, &[]).await.unwrap();
        tx.rollback().await.unwrap();
        client.execute(ADD, &[]).await.unwrap();
    }
    let last = kit.put(ordered("a", OnDead::Block)).await;
    assert_eq!(kit.state(last).await, State::Blocked);
    assert_eq!(kit.store.line(last).await.unwrap().unwrap().ahead, 2);
    // What plain SQL adds is due by the database's own clock.
    kit.clock.advance(HOUR * 24 * 366 * 19);
    let ran = drain(&kit.store, 9).await;
    assert_eq!((ran["a"].len(), ran["a"][0], ran["a"][2]), (3, first, last));
}
