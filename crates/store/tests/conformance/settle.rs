//! Settle: what an attempt came to is written once, with everything it causes.

use std::time::Duration;

use tidemill_core::{ErrorClass, Failure, NewJob, OnDuplicate, Scope, Settlement, State};
use tidemill_store::{Hint, Receipt, Settled};

use super::kit::{
    HOUR, Kit, SECOND, cancelled, dead, done, hears, ids, item, job, json, ready, retry, unique,
    with_payload,
};

over_both_stores!(
    done_keeps_the_output,
    a_retry_waits_and_counts,
    a_retry_without_delay_is_ready,
    a_snooze_spends_nothing,
    a_snooze_of_ages_is_a_century,
    a_rate_limit_is_remembered_as_one,
    a_handler_may_call_its_job_off,
    dead_is_a_dead_letter,
    attempts_are_kept_oldest_first,
    a_lease_may_be_settled_in_parts,
    a_thousand_ends_of_all_sorts_in_one_call,
    follow_ups_come_with_the_settle,
    follow_ups_obey_unique_keys,
    settling_nothing_is_no_trouble,
    a_watched_job_says_that_it_finished,
);

async fn done_keeps_the_output(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    kit.clock.advance(SECOND);
    let output = json(r#"{"sum":9007199254740993}"#);
    let how = Settlement::Done { output: output.clone(), follow_ups: Vec::new() };
    assert_eq!(kit.settle(worker, &claim, how).await, Settled::Accepted);
    let view = kit.view(id).await;
    assert_eq!((view.state, view.attempt, view.lost), (State::Done, 1, 0));
    assert_eq!((view.output, view.error), (Some(output), None));
    assert_eq!(view.finished_at, Some(kit.clock.now()));
    assert_eq!((view.worker, view.token), (Some(worker), claim.token));
    assert_eq!(view.due_at, None, "it waits no more");
    assert_eq!(kit.store.unfinished().await.unwrap(), tidemill_store::view::Unfinished::default());
}

async fn a_retry_waits_and_counts(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    assert_eq!(kit.settle(worker, &claim, retry(HOUR, 1)).await, Settled::Accepted);
    let view = kit.view(id).await;
    assert_eq!((view.state, view.attempt, view.lost), (State::Scheduled, 1, 0));
    assert_eq!(view.due_at, Some(kit.clock.now() + HOUR));
    assert_eq!(view.error.as_deref(), Some("it broke"));
    assert_eq!(view.finished_at, None);
    assert_eq!(kit.take(worker, 1).await.next_due, Some(kit.clock.now() + HOUR));
    kit.clock.advance(HOUR);
    let second = kit.take_one(worker).await;
    assert_eq!((second.jobs[0].attempt, second.jobs[0].due_at), (2, kit.clock.now()));
    kit.settle(worker, &second, done()).await;
    assert_eq!(kit.view(id).await.attempt, 2);
}

async fn a_retry_without_delay_is_ready(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    kit.settle(worker, &claim, retry(Duration::ZERO, 1)).await;
    assert_eq!(kit.state(id).await, State::Ready);
    assert_eq!(kit.take_one(worker).await.jobs[0].attempt, 2);
}

async fn a_snooze_of_ages_is_a_century(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    let ages = Settlement::Again { delay: Duration::MAX, spent: 0, failure: None };
    assert_eq!(kit.settle(worker, &claim, ages).await, Settled::Accepted);
    let view = kit.view(id).await;
    assert_eq!(view.state, State::Scheduled);
    let days = view.due_at.unwrap().duration_since(kit.clock.now()).as_hours() / 24;
    assert_eq!(days, 36_600, "and nothing is lost from view");
}

async fn a_snooze_spends_nothing(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let worker = kit.worker().await;
    for _ in 0..3 {
        let claim = kit.take_one(worker).await;
        assert_eq!(claim.jobs[0].attempt, 1);
        let how = Settlement::Again { delay: SECOND, spent: 0, failure: None };
        assert_eq!(kit.settle(worker, &claim, how).await, Settled::Accepted);
        let view = kit.view(id).await;
        assert_eq!((view.state, view.attempt, view.error), (State::Scheduled, 0, None));
        kit.clock.advance(SECOND);
    }
    let attempts = kit.store.attempts(id).await.unwrap();
    assert!(attempts.iter().all(|attempt| attempt.class.is_none() && attempt.error.is_none()));
}

async fn a_rate_limit_is_remembered_as_one(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    let failure = Some(Failure::new("k", ErrorClass::RateLimited, "429"));
    let how = Settlement::Again { delay: HOUR, spent: 0, failure };
    kit.settle(worker, &claim, how).await;
    assert_eq!(kit.view(id).await.attempt, 0);
    let attempts = kit.store.attempts(id).await.unwrap();
    assert_eq!(attempts[0].class, Some(ErrorClass::RateLimited));
    assert_eq!(attempts[0].error.as_deref(), Some("429"));
}

async fn a_handler_may_call_its_job_off(kit: &Kit) {
    let id = kit.finish(job("k"), cancelled("no such user")).await;
    let view = kit.view(id).await;
    assert_eq!((view.state, view.error.as_deref()), (State::Cancelled, Some("no such user")));
    assert_eq!(view.finished_at, Some(kit.clock.now()));
    assert_eq!(view.output, None);
}

async fn dead_is_a_dead_letter(kit: &Kit) {
    let id = kit.finish(job("k"), dead("user 42 is gone")).await;
    let view = kit.view(id).await;
    assert_eq!((view.state, view.attempt), (State::Dead, 1));
    assert_eq!(view.error.as_deref(), Some("user 42 is gone"));
    let letters =
        kit.store.dead(&tidemill_core::dead::DeadFilter::default(), None, 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].id, letters[0].attempt), (id, 1));
    assert_eq!(letters[0].died_at, kit.clock.now());
}

async fn attempts_are_kept_oldest_first(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let worker = kit.worker().await;
    let mut tokens = Vec::new();
    for number in 1..=3 {
        let claim = kit.take_one(worker).await;
        tokens.push(claim.token.unwrap());
        kit.clock.advance(SECOND);
        kit.settle(worker, &claim, retry(HOUR, number)).await;
        kit.clock.advance(HOUR);
    }
    let claim = kit.take_one(worker).await;
    kit.settle(worker, &claim, done()).await;
    let attempts = kit.store.attempts(id).await.unwrap();
    assert!(attempts.len() >= 3);
    for (at, attempt) in attempts.iter().take(3).enumerate() {
        assert_eq!((usize::from(attempt.attempt), attempt.token), (at + 1, tokens[at]));
        assert_eq!(attempt.worker, Some(worker));
        assert_eq!(attempt.class, Some(ErrorClass::Transient));
        assert_eq!(attempt.next_at, Some(attempt.ended_at + HOUR));
        assert_eq!(attempt.started_at, Some(attempt.ended_at - SECOND));
    }
}

async fn a_lease_may_be_settled_in_parts(kit: &Kit) {
    kit.store.enqueue((0..5).map(|_| job("k")).collect()).await.unwrap();
    let worker = kit.worker().await;
    let claim = kit.take(worker, 5).await;
    let ends = [done(), retry(SECOND, 1), dead("x"), cancelled("y"), done()];
    for (at, how) in ends.into_iter().enumerate() {
        let answer = kit.store.settle(worker, vec![item(&claim, at, how)]).await.unwrap();
        assert_eq!(answer, [Settled::Accepted]);
        assert_eq!(kit.store.unfinished().await.unwrap().running, 4 - at as u64);
    }
    for (id, state) in ids(&claim).into_iter().zip([
        State::Done,
        State::Scheduled,
        State::Dead,
        State::Cancelled,
        State::Done,
    ]) {
        assert_eq!(kit.state(id).await, state);
    }
    kit.lose_workers().await;
    let other = kit.worker().await;
    assert_eq!(ids(&kit.take(other, 9).await), [claim.jobs[1].job.id], "nothing else was leased");
}

const ENDS: [State; 4] = [State::Done, State::Scheduled, State::Dead, State::Cancelled];

async fn a_thousand_ends_of_all_sorts_in_one_call(kit: &Kit) {
    kit.store.enqueue((0..1000).map(|_| job("k")).collect()).await.unwrap();
    let worker = kit.worker().await;
    let (first, second) = (kit.take(worker, 400).await, kit.take(worker, 600).await);
    let end = |n: usize| match n % 4 {
        0 => done(),
        1 => retry(HOUR, 1),
        2 => dead("x"),
        _ => cancelled("y"),
    };
    let items = (0..400)
        .map(|at| item(&first, at, end(at)))
        .chain((0..600).map(|at| item(&second, at, end(at))));
    let answers = kit.store.settle(worker, items.collect()).await.unwrap();
    assert_eq!(answers, vec![Settled::Accepted; 1000]);
    let left = kit.store.unfinished().await.unwrap();
    assert_eq!((left.waiting, left.running), (250, 0));
    for (at, state) in ENDS.into_iter().enumerate() {
        assert_eq!(kit.state(second.jobs[at].job.id).await, state);
    }
}

async fn follow_ups_come_with_the_settle(kit: &Kit) {
    let mut heard = kit.store.wake().listen();
    let next = NewJob { queue: "next".into(), payload: json("[7]"), ..job("follow") };
    let later = NewJob { due: tidemill_core::Due::In(HOUR), ..job("follow") };
    let (next_id, later_id) = (next.id, later.id);
    let how = Settlement::Done { output: json("1"), follow_ups: vec![next, later] };
    kit.finish(job("k"), how).await;
    let view = kit.view(next_id).await;
    assert_eq!((view.state, view.job.payload.as_str()), (State::Ready, "[7]"));
    assert_eq!(view.job.created_at, kit.clock.now());
    assert_eq!(kit.state(later_id).await, State::Scheduled);
    hears(&mut heard, |hint| *hint == ready("next")).await;
}

async fn follow_ups_obey_unique_keys(kit: &Kit) {
    let holder = unique("u", Scope::Unfinished, OnDuplicate::Reject);
    let holder = NewJob { queue: "slow".into(), ..holder };
    let held = kit.put(holder).await;
    let duplicate = unique("u", Scope::Unfinished, OnDuplicate::Reject);
    let replacing = unique("u", Scope::Unfinished, OnDuplicate::Replace);
    let replacing = NewJob { queue: "slow".into(), ..with_payload(replacing, "2") };
    let fresh = unique("v", Scope::Unfinished, OnDuplicate::Reject);
    let (duplicate_id, replacing_id, fresh_id) = (duplicate.id, replacing.id, fresh.id);
    let follow_ups = vec![duplicate, replacing, fresh];
    kit.finish(job("k"), Settlement::Done { output: json("1"), follow_ups }).await;
    assert_eq!(kit.store.job(duplicate_id).await.unwrap(), None);
    assert_eq!(kit.store.job(replacing_id).await.unwrap(), None);
    assert_eq!(kit.view(held).await.job.payload.as_str(), "2");
    let again = unique("v", Scope::Unfinished, OnDuplicate::Reject);
    assert_eq!(kit.enqueue(again).await, Receipt::Rejected { id: fresh_id });
}

async fn settling_nothing_is_no_trouble(kit: &Kit) {
    let worker = kit.worker().await;
    assert_eq!(kit.store.settle(worker, Vec::new()).await.unwrap(), []);
}

async fn a_watched_job_says_that_it_finished(kit: &Kit) {
    for how in [done(), dead("x"), cancelled("y")] {
        let id = kit.put(job("k")).await;
        kit.store.hint(Hint::Watch { id });
        let mut heard = kit.store.wake().listen();
        kit.run_to(id, how).await;
        hears(&mut heard, |hint| *hint == Hint::Finished { id }).await;
    }
    let id = kit.put(job("k")).await;
    kit.store.hint(Hint::Watch { id });
    let mut heard = kit.store.wake().listen();
    kit.store.cancel(vec![id], "enough").await.unwrap();
    hears(&mut heard, |hint| *hint == Hint::Finished { id }).await;
}
