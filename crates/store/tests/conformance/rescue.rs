//! Rescue: a lost worker's jobs come back in time, unspent, once, and not for ever.

use std::time::Duration;

use tidemill_core::dead::DeadFilter;
use tidemill_core::{ErrorClass, JobId, NewJob, Priority, State, Token, WorkerId};
use tidemill_store::lease::LeaseView;
use tidemill_store::request::{Beat, RescueRules, Rescued};
use tidemill_store::{Hint, Settled, WorkerCard};

use super::kit::{
    Kit, SECOND, TTL, ask, card, done, hears, ids, item, job, ready, retry, rules, unique,
    with_payload,
};

over_both_stores!(
    a_lost_workers_jobs_are_ready_again_unspent,
    a_worker_that_beats_keeps_its_jobs,
    who_takes_jobs_lives,
    only_the_unsettled_come_back,
    the_third_loss_is_poison,
    a_retry_does_not_forgive_a_loss,
    a_given_up_worker_is_told_so,
    two_rescuers_rescue_once,
    a_called_off_job_is_not_run_again,
    a_stopped_worker_gives_back_unspent,
    a_stopped_worker_with_called_off_jobs,
    a_beat_tells_what_was_called_off,
    rescued_jobs_keep_their_body_and_lane,
    a_loss_is_in_the_history,
    rescued_queues_are_hinted,
    a_large_lease_comes_back_whole,
    a_worker_may_have_a_longer_lease,
    nobody_is_given_up_who_could_not_beat_for_a_lease,
    a_lease_is_seen_by_those_who_did_not_make_it,
);

async fn a_lost_workers_jobs_are_ready_again_unspent(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    kit.settle(worker, &claim, retry(Duration::ZERO, 1)).await;
    kit.take_one(worker).await;
    kit.clock.advance(TTL.checked_sub(SECOND).unwrap());
    assert_eq!(kit.rescue().await, Rescued::default(), "it may still live");
    assert_eq!(kit.state(id).await, State::Running);
    kit.clock.advance(SECOND * 2);
    assert_eq!(kit.rescue().await, Rescued { workers: 1, ready: 1, ..Rescued::default() });
    let view = kit.view(id).await;
    assert_eq!((view.state, view.attempt, view.lost), (State::Ready, 1, 1));
    assert_eq!(view.due_at, Some(kit.clock.now()));
    let other = kit.worker().await;
    let claim = kit.take_one(other).await;
    assert_eq!((claim.jobs[0].attempt, claim.jobs[0].lost), (2, 1));
    assert_eq!(kit.rescue().await, Rescued::default(), "nothing is left to rescue");
}

async fn a_worker_that_beats_keeps_its_jobs(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    for _ in 0..5 {
        kit.clock.advance(TTL.checked_sub(SECOND).unwrap());
        assert_eq!(kit.store.beat(worker).await.unwrap(), Beat::default());
        assert_eq!(kit.rescue().await, Rescued::default());
    }
    assert_eq!(kit.state(id).await, State::Running);
    assert_eq!(kit.settle(worker, &claim, done()).await, Settled::Accepted);
}

async fn who_takes_jobs_lives(kit: &Kit) {
    let worker = kit.worker().await;
    kit.clock.advance(TTL + SECOND);
    let id = kit.put(job("k")).await;
    kit.take_one(worker).await;
    assert_eq!(kit.rescue().await, Rescued::default(), "it has just claimed");
    assert_eq!(kit.state(id).await, State::Running);
    kit.clock.advance(TTL);
    kit.take(worker, 1).await;
    kit.clock.advance(SECOND);
    let lost = kit.rescue().await;
    assert_eq!(
        lost.workers, 1,
        "to ask in vain is no sign of life: a claim may stand for those who are gone"
    );
}

async fn only_the_unsettled_come_back(kit: &Kit) {
    kit.store.enqueue((0..6).map(|_| job("k")).collect()).await.unwrap();
    let (lost, alive) = (kit.worker().await, kit.worker().await);
    let first = kit.take(lost, 4).await;
    let others = kit.take(alive, 2).await;
    let items = vec![item(&first, 0, done()), item(&first, 2, retry(SECOND * 99, 1))];
    kit.store.settle(lost, items).await.unwrap();
    kit.clock.advance(TTL + SECOND);
    kit.store.beat(alive).await.unwrap();
    assert_eq!(kit.rescue().await, Rescued { workers: 1, ready: 2, ..Rescued::default() });
    let states = [State::Done, State::Ready, State::Scheduled, State::Ready];
    for (id, state) in ids(&first).into_iter().zip(states) {
        assert_eq!(kit.state(id).await, state);
    }
    for id in ids(&others) {
        assert_eq!(kit.state(id).await, State::Running, "the living are left alone");
    }
}

async fn the_third_loss_is_poison(kit: &Kit) {
    let id = kit.put(job("k")).await;
    for loss in 1..=2 {
        let worker = kit.worker().await;
        kit.take_one(worker).await;
        assert_eq!(kit.lose_workers().await.ready, 1);
        assert_eq!(kit.view(id).await.lost, loss);
    }
    let worker = kit.worker().await;
    let (third, claimed_at) = (kit.take_one(worker).await, kit.clock.now());
    let found = kit.lose_workers().await;
    assert_eq!(found, Rescued { workers: 1, poisoned: 1, ..Rescued::default() });
    let attempts = kit.store.attempts(id).await.unwrap();
    let classes: Vec<_> = attempts.iter().map(|a| (a.attempt, a.class)).collect();
    assert_eq!(classes, [(1, Some(ErrorClass::Lost)); 3], "the last one, too");
    assert_eq!(attempts.last().and_then(|a| a.started_at), Some(claimed_at));
    assert_eq!(
        attempts.last().map(|a| (Some(a.token), a.worker)),
        Some((third.token, Some(worker)))
    );
    let view = kit.view(id).await;
    assert_eq!((view.state, view.attempt, view.lost), (State::Dead, 0, 3));
    assert_eq!(view.finished_at, Some(kit.clock.now()));
    let letters = kit.store.dead(&DeadFilter::default(), None, 10).await.unwrap();
    assert_eq!((letters[0].id, letters[0].class), (id, ErrorClass::Poison));
    assert!(!letters[0].error.is_empty() && letters[0].fingerprint.len() == 16);
    let last = kit.worker().await;
    assert!(kit.take(last, 9).await.jobs.is_empty());
}

async fn a_retry_does_not_forgive_a_loss(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let worker = kit.worker().await;
    kit.take_one(worker).await;
    kit.lose_workers().await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    kit.settle(worker, &claim, retry(Duration::ZERO, 1)).await;
    let view = kit.view(id).await;
    assert_eq!((view.attempt, view.lost), (1, 1));
    let claim = kit.take_one(worker).await;
    assert_eq!((claim.jobs[0].attempt, claim.jobs[0].lost), (2, 1));
    kit.settle(worker, &claim, done()).await;
    assert_eq!(kit.view(id).await.lost, 1);
}

async fn a_given_up_worker_is_told_so(kit: &Kit) {
    let worker = kit.worker().await;
    kit.put(job("k")).await;
    let claim = kit.take_one(worker).await;
    kit.lose_workers().await;
    assert!(kit.store.beat(worker).await.unwrap().lost);
    assert!(kit.store.beat(WorkerId::new()).await.unwrap().lost, "so is one nobody knows");
    assert_eq!(kit.settle(worker, &claim, done()).await, Settled::Stale);
    assert_eq!(kit.store.deregister(worker).await.unwrap(), Rescued::default());
}

async fn two_rescuers_rescue_once(kit: &Kit) {
    let other = kit.neighbour().await;
    for round in 0..5 {
        let jobs = (0..40).map(|_| NewJob { queue: format!("q{round}"), ..job("k") });
        kit.store.enqueue(jobs.collect()).await.unwrap();
        for _ in 0..4 {
            let worker = kit.worker().await;
            let claim = kit.store.claim(ask(worker, &format!("q{round}"), 10)).await.unwrap();
            assert_eq!(claim.jobs.len(), 10);
        }
        kit.clock.advance(TTL + SECOND);
        let (one, two, three) =
            tokio::join!(kit.store.rescue(rules()), other.rescue(rules()), kit.rescue());
        let (one, two) = (one.unwrap(), two.unwrap());
        assert_eq!(one.ready + two.ready + three.ready, 40);
        assert_eq!(one.workers + two.workers + three.workers, 4);
    }
    let worker = kit.worker().await;
    for round in 0..5 {
        let claim = kit.store.claim(ask(worker, &format!("q{round}"), 99)).await.unwrap();
        assert_eq!(claim.jobs.len(), 40);
        assert!(claim.jobs.iter().all(|taken| taken.lost == 1));
    }
    other.close().await;
}

async fn a_called_off_job_is_not_run_again(kit: &Kit) {
    kit.store.enqueue(vec![job("k"), job("k")]).await.unwrap();
    let worker = kit.worker().await;
    let claim = kit.take(worker, 2).await;
    let [off, on] = ids(&claim)[..] else { panic!("two jobs were due") };
    kit.store.cancel(vec![off], "enough").await.unwrap();
    let found = kit.lose_workers().await;
    assert_eq!(found, Rescued { workers: 1, ready: 1, cancelled: 1, poisoned: 0 });
    assert_eq!(kit.state(off).await, State::Cancelled);
    assert_eq!(kit.state(on).await, State::Ready);
}

async fn a_stopped_worker_gives_back_unspent(kit: &Kit) {
    kit.store.enqueue((0..3).map(|_| job("k")).collect()).await.unwrap();
    let worker = kit.worker().await;
    let claim = kit.take(worker, 3).await;
    kit.settle(worker, &claim, done()).await;
    let found = kit.store.deregister(worker).await.unwrap();
    assert_eq!((found.ready, found.poisoned, found.cancelled), (2, 0, 0));
    for id in &ids(&claim)[1..] {
        let view = kit.view(*id).await;
        assert_eq!((view.state, view.attempt, view.lost), (State::Ready, 0, 0));
    }
    assert!(kit.store.workers().await.unwrap().is_empty());
    let stale = kit.store.settle(worker, vec![item(&claim, 1, done())]).await.unwrap();
    assert_eq!(stale, [Settled::Stale]);
    let other = kit.worker().await;
    let again = kit.take(other, 9).await;
    assert!(again.jobs.iter().all(|taken| (taken.attempt, taken.lost) == (1, 0)));
    assert_eq!(again.jobs.len(), 2);
}

async fn a_stopped_worker_with_called_off_jobs(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let worker = kit.worker().await;
    kit.take_one(worker).await;
    kit.store.cancel(vec![id], "enough").await.unwrap();
    assert_eq!(kit.store.deregister(worker).await.unwrap().cancelled, 1);
    assert_eq!(kit.state(id).await, State::Cancelled);
}

async fn a_beat_tells_what_was_called_off(kit: &Kit) {
    kit.store.enqueue((0..3).map(|_| job("k")).collect()).await.unwrap();
    let (worker, other) = (kit.worker().await, kit.worker().await);
    let mine = kit.take(worker, 2).await;
    let theirs = kit.take(other, 1).await;
    let called_off = vec![ids(&mine)[1], ids(&theirs)[0]];
    kit.store.cancel(called_off.clone(), "enough").await.unwrap();
    for _ in 0..2 {
        let beat = kit.store.beat(worker).await.unwrap();
        assert_eq!(beat, Beat { cancelled: vec![called_off[0]], ..Beat::default() });
    }
    kit.store.settle(worker, vec![item(&mine, 1, done())]).await.unwrap();
    assert_eq!(kit.store.beat(worker).await.unwrap(), Beat::default(), "it runs no more");
}

async fn rescued_jobs_keep_their_body_and_lane(kit: &Kit) {
    let sent = NewJob {
        queue: "q".into(),
        priority: Priority::High,
        tenant: Some("t".into()),
        ..with_payload(job("special"), "[1]")
    };
    kit.put(sent).await;
    kit.put(NewJob { queue: "q".into(), ..job("plain") }).await;
    let worker = kit.worker().await;
    let before = kit.store.claim(ask(worker, "q", 9)).await.unwrap();
    kit.lose_workers().await;
    let other = kit.worker().await;
    let after = kit.store.claim(ask(other, "q", 9)).await.unwrap();
    let bodies = |claim: &tidemill_store::Claim| {
        claim.jobs.iter().map(|taken| taken.job.clone()).collect::<Vec<_>>()
    };
    assert_eq!(bodies(&before), bodies(&after), "also the band, which decides the order");
}

async fn a_loss_is_in_the_history(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let worker = kit.worker().await;
    let (claim, claimed_at) = (kit.take_one(worker).await, kit.clock.now());
    kit.lose_workers().await;
    let attempts = kit.store.attempts(id).await.unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].class, Some(ErrorClass::Lost));
    assert_eq!((Some(attempts[0].token), attempts[0].worker), (claim.token, Some(worker)));
    assert_eq!(attempts[0].ended_at, kit.clock.now());
    assert_eq!(attempts[0].started_at, Some(claimed_at), "its lease began then");
    // Known to have begun, it is still not known to have ended: what its worker says comes too late.
    let items = vec![item(&claim, 0, done())];
    assert_eq!(kit.store.settle(worker, items).await.unwrap(), [Settled::Stale]);
    assert_eq!(kit.state(id).await, State::Ready);
}

async fn rescued_queues_are_hinted(kit: &Kit) {
    use tidemill_core::{OnDuplicate, Scope};
    kit.put(unique("u", Scope::Unfinished, OnDuplicate::Reject)).await;
    let worker = kit.worker().await;
    kit.take_one(worker).await;
    let mut heard = kit.store.wake().listen();
    kit.lose_workers().await;
    hears(&mut heard, |hint| *hint == Hint::Any || *hint == ready("default")).await;
}

async fn a_large_lease_comes_back_whole(kit: &Kit) {
    kit.store.enqueue((0..1000).map(|_| job("k")).collect()).await.unwrap();
    let worker = kit.worker().await;
    let claim = kit.take(worker, 1000).await;
    assert_eq!(kit.lose_workers().await.ready, 1000);
    let other = kit.worker().await;
    let mut again = ids(&kit.take(other, 2000).await);
    again.sort();
    assert_eq!(again, ids(&claim));
}

async fn a_worker_may_have_a_longer_lease(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let patient = WorkerCard { lease_ttl: Some(TTL * 3), ..card(WorkerId::new()) };
    kit.store.register(patient.clone()).await.unwrap();
    kit.take_one(patient.id).await;
    kit.clock.advance(TTL * 2);
    assert_eq!(kit.rescue().await, Rescued::default());
    assert_eq!(kit.state(id).await, State::Running);
    kit.clock.advance(TTL + SECOND);
    assert_eq!(kit.rescue().await.ready, 1);
}

async fn nobody_is_given_up_who_could_not_beat_for_a_lease(kit: &Kit) {
    let id = kit.put(job("k")).await;
    kit.take_one(kit.worker().await).await;
    kit.clock.advance(TTL * 2);
    let after = |clear_for| RescueRules { clear_for: Some(clear_for), ..rules() };
    let rescued = kit.store.rescue(after(TTL.checked_sub(SECOND).unwrap())).await.unwrap();
    assert_eq!(rescued, Rescued::default());
    assert_eq!(kit.state(id).await, State::Running);
    assert_eq!(kit.store.rescue(after(TTL)).await.unwrap().ready, 1);
}

async fn a_lease_is_seen_by_those_who_did_not_make_it(kit: &Kit) {
    let (one, two) = (kit.put(job("k")).await, kit.put(job("k")).await);
    let worker = kit.worker().await;
    let claim = kit.store.claim(ask(worker, "default", 10)).await.unwrap();
    let (token, at) = (claim.token.unwrap(), kit.clock.now());
    kit.clock.advance(SECOND);
    let there = kit.neighbour().await;
    let seen = there.leases(worker).await.unwrap();
    assert_eq!(seen, [LeaseView { token, claimed_at: at, jobs: vec![one, two] }]);
    assert!(there.leases(WorkerId::new()).await.unwrap().is_empty());
    let (stale, unknown) = (Token(token.0 + 1), JobId::new());
    let asked = [(token, two), (stale, one), (token, unknown), (token, one)];
    let held = there.held(worker, &asked).await.unwrap();
    let attempts: Vec<_> =
        held.iter().map(|held| held.as_ref().map(|held| (held.job.id, held.attempt))).collect();
    assert_eq!(attempts, [Some((two, 1)), Some((one, 0)), None, Some((one, 1))]);
    let others = there.held(WorkerId::new(), &[(token, one)]).await.unwrap();
    assert!(others[0].is_none(), "it is another worker's");
    assert_eq!(kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap().len(), 1);
    let seen = there.leases(worker).await.unwrap();
    assert_eq!(seen[0].jobs, [two]);
    there.close().await;
}
