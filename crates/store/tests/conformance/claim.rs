//! Claim: each due job under exactly one lease, only what was asked for, only for the living.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tidemill_core::{Due, JobId, NewJob, Priority, State, Token, WorkerId};
use tidemill_store::{ClaimRequest, Lane, Settled};

use super::kit::{HOUR, Kit, SECOND, ask, card, done, ids, item, job, lanes, retry};

over_both_stores!(
    a_claim_holds_all_its_jobs_under_one_token,
    a_claim_takes_no_more_than_asked_and_leaves_the_rest_in_order,
    unknown_kinds_stay_and_do_not_block,
    several_kinds_may_be_asked_for,
    other_queues_and_bands_stay,
    a_stranger_gets_nothing,
    tokens_only_grow,
    next_due_is_the_earliest_of_the_lanes_asked,
    next_due_is_silent_when_nothing_waits,
    no_job_is_ever_under_two_leases,
    a_retry_goes_behind_what_is_due_earlier,
);

async fn a_claim_holds_all_its_jobs_under_one_token(kit: &Kit) {
    let worker = kit.worker().await;
    let sent = [kit.put(job("k")).await, kit.put(job("k")).await];
    kit.clock.advance(SECOND);
    let claim = kit.take(worker, 10).await;
    assert_eq!(ids(&claim), sent);
    assert_eq!(claim.now, kit.clock.now());
    assert!(claim.jobs.iter().all(|taken| (taken.attempt, taken.lost) == (1, 0)));
    for id in sent {
        let view = kit.view(id).await;
        assert_eq!((view.state, view.attempt), (State::Running, 0), "the running one not counted");
        assert_eq!((view.worker, view.token), (Some(worker), claim.token));
        assert!(!view.cancel_requested);
    }
    assert!(kit.take(worker, 10).await.jobs.is_empty(), "a leased job is nobody else's");
}

async fn a_claim_takes_no_more_than_asked_and_leaves_the_rest_in_order(kit: &Kit) {
    let jobs: Vec<_> = (0..350).map(|_| job("k")).collect();
    let sent: Vec<_> = jobs.iter().map(|job| job.id).collect();
    kit.store.enqueue(jobs).await.unwrap();
    let worker = kit.worker().await;
    let mut taken = Vec::new();
    for size in [1, 0, 7, 99, 101, 120, 50] {
        let before = taken.len();
        taken.extend(ids(&kit.take(worker, size).await));
        let left: usize = 350 - before;
        assert_eq!(taken.len() - before, size.min(left));
    }
    assert_eq!(taken, sent);
}

async fn unknown_kinds_stay_and_do_not_block(kit: &Kit) {
    kit.store.enqueue((0..700).map(|_| job("other")).collect()).await.unwrap();
    let mine = kit.put(job("mine")).await;
    let worker = kit.worker().await;
    let kinds = Some(Arc::new(vec!["mine".to_owned()]));
    let ask = ClaimRequest { kinds, ..ask(worker, "default", 5) };
    assert_eq!(ids(&kit.store.claim(ask.clone()).await.unwrap()), [mine]);
    assert!(kit.store.claim(ask).await.unwrap().jobs.is_empty());
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 700);
}

async fn several_kinds_may_be_asked_for(kit: &Kit) {
    let mut sent = HashMap::new();
    for kind in ["a", "b", "c", "a", "b", "c"] {
        sent.entry(kind).or_insert_with(Vec::new).push(kit.put(job(kind)).await);
    }
    let worker = kit.worker().await;
    let asking = |kinds: &[&str]| {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        kit.store.claim(ClaimRequest { kinds: Some(Arc::new(kinds)), ..ask(worker, "default", 10) })
    };
    assert!(asking(&[]).await.unwrap().jobs.is_empty(), "no kinds are no kinds");
    let claim = asking(&["a", "c", "unheard of"]).await.unwrap();
    assert_eq!(ids(&claim), [sent["a"][0], sent["c"][0], sent["a"][1], sent["c"][1]]);
    assert_eq!(ids(&asking(&["b"]).await.unwrap()), sent["b"]);
}

async fn other_queues_and_bands_stay(kit: &Kit) {
    let here = NewJob { queue: "here".into(), ..job("k") };
    let low = kit.put(NewJob { priority: Priority::Low, ..here.clone() }).await;
    let normal = kit.put(NewJob { id: JobId::new(), ..here }).await;
    kit.put(NewJob { queue: "there".into(), ..job("k") }).await;
    let worker = kit.worker().await;
    let only_low = vec![Lane { queue: "here".into(), priority: Priority::Low }];
    let claim = kit.store.claim(ClaimRequest { lanes: only_low, ..ask(worker, "", 10) }).await;
    assert_eq!(ids(&claim.unwrap()), [low]);
    assert_eq!(ids(&kit.store.claim(ask(worker, "here", 10)).await.unwrap()), [normal]);
    let nowhere = ClaimRequest { lanes: Vec::new(), ..ask(worker, "", 10) };
    assert!(kit.store.claim(nowhere).await.unwrap().jobs.is_empty());
}

async fn a_stranger_gets_nothing(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let gone = kit.worker().await;
    kit.store.deregister(gone).await.unwrap();
    let lost = kit.worker().await;
    kit.lose_workers().await;
    for stranger in [WorkerId::new(), gone, lost] {
        let claim = kit.take(stranger, 10).await;
        assert!(claim.jobs.is_empty() && claim.token.is_none());
        assert_eq!(kit.state(id).await, State::Ready);
    }
}

async fn tokens_only_grow(kit: &Kit) {
    let other = kit.neighbour().await;
    kit.put(job("k")).await;
    let mut last = Token(i64::MIN);
    for round in 0..12 {
        let worker = kit.worker().await;
        let store = if round % 2 == 0 { &kit.store } else { &other };
        let claim = store.claim(ask(worker, "default", 1)).await.unwrap();
        let token = claim.token.expect("the job is due");
        assert!(token > last, "{token} after {last}");
        last = token;
        match round % 3 {
            0 => {
                kit.settle(worker, &claim, retry(SECOND, 1)).await;
                kit.clock.advance(SECOND);
            }
            1 => assert_eq!(kit.store.deregister(worker).await.unwrap().ready, 1),
            _ => {
                kit.settle(worker, &claim, done()).await;
                kit.put(job("k")).await;
            }
        }
    }
    other.close().await;
}

async fn next_due_is_the_earliest_of_the_lanes_asked(kit: &Kit) {
    let start = kit.clock.now();
    let later = |seconds, queue: &str, priority| NewJob {
        due: Due::In(SECOND * seconds),
        queue: queue.into(),
        priority,
        ..job("k")
    };
    kit.put(later(9, "default", Priority::Urgent)).await;
    kit.put(later(5, "default", Priority::Low)).await;
    kit.put(later(1, "elsewhere", Priority::Urgent)).await;
    let ready = kit.put(job("k")).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 10).await;
    assert_eq!(ids(&claim), [ready]);
    assert_eq!(claim.next_due, Some(start + SECOND * 5));
    let both = [lanes("default"), lanes("elsewhere")].concat();
    let claim = kit.store.claim(ClaimRequest { lanes: both, ..ask(worker, "", 10) }).await.unwrap();
    assert_eq!(claim.next_due, Some(start + SECOND));
}

async fn next_due_is_silent_when_nothing_waits(kit: &Kit) {
    let worker = kit.worker().await;
    assert_eq!(kit.take(worker, 1).await.next_due, None);
    kit.put(job("k")).await;
    kit.take_one(worker).await;
    assert_eq!(kit.take(worker, 1).await.next_due, None, "a running job is no alarm");
}

async fn no_job_is_ever_under_two_leases(kit: &Kit) {
    for at in 0..4 {
        let jobs = (0..500).map(|_| NewJob { priority: Priority::ALL[at], ..job("k") });
        kit.store.enqueue(jobs.collect()).await.unwrap();
    }
    let other = kit.neighbour().await;
    let claimers: Vec<_> = (0..8)
        .map(|n| {
            let store = Arc::clone(if n % 2 == 0 { &kit.store } else { &other });
            tokio::spawn(async move {
                let worker = WorkerId::new();
                store.register(card(worker)).await.unwrap();
                let mut mine = Vec::new();
                loop {
                    let claim = store.claim(ask(worker, "default", 7 + n * 5)).await.unwrap();
                    if claim.jobs.is_empty() {
                        return mine;
                    }
                    mine.extend(ids(&claim));
                    let all = (0..claim.jobs.len()).map(|at| item(&claim, at, done()));
                    let answers = store.settle(worker, all.collect()).await.unwrap();
                    assert!(answers.iter().all(|answer| *answer == Settled::Accepted));
                }
            })
        })
        .collect();
    let mut all = Vec::new();
    for claimer in claimers {
        all.extend(claimer.await.unwrap());
    }
    // A claimer may leave early when others hold the last rows; whatever is left is still there.
    let worker = kit.worker().await;
    all.extend(ids(&kit.take(worker, 2_000).await));
    assert_eq!(all.len(), 2_000);
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), 2_000);
    other.close().await;
}

async fn a_retry_goes_behind_what_is_due_earlier(kit: &Kit) {
    let failed = kit.put(job("k")).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    kit.clock.advance(SECOND);
    let fresh = kit.put(job("k")).await;
    kit.settle(worker, &claim, retry(SECOND, 1)).await;
    assert_eq!(kit.take(worker, 0).await.jobs.len(), 0);
    kit.clock.advance(HOUR);
    assert_eq!(ids(&kit.take(worker, 10).await), [fresh, failed]);
}
