//! Cancel and run-now: what is called off does not start, and what waits for the clock can be hurried.

use std::collections::HashSet;
use std::sync::Arc;

use tidemill_core::{Due, JobId, NewJob, OnDuplicate, Scope, State};
use tidemill_store::{CancelAnswer, Hint, JobFilter, Receipt};

use super::kit::{
    HOUR, Kit, SECOND, TTL, ask, card, dead, done, hears, ids, job, ready, retry, rules, unique,
};

over_both_stores!(
    a_waiting_job_is_cancelled,
    a_running_job_is_told,
    a_finished_job_stays_as_it_is,
    answers_stand_in_the_order_of_the_ids,
    one_of_many_in_a_batch_is_cancelled,
    many_are_called_off_at_once_and_no_others,
    cancelling_frees_the_key,
    cancel_and_claim_at_the_same_time_agree,
    a_scheduled_job_can_be_run_now,
    what_does_not_wait_for_the_clock_cannot,
    a_hurried_retry_keeps_its_count,
);

async fn cancel(kit: &Kit, id: JobId) -> CancelAnswer {
    kit.store.cancel(vec![id], "not needed").await.unwrap()[0]
}

async fn a_waiting_job_is_cancelled(kit: &Kit) {
    let ready = kit.put(job("k")).await;
    let scheduled = kit.put(NewJob { due: Due::In(HOUR), ..job("k") }).await;
    let retrying = kit.put(NewJob { queue: "r".into(), ..job("k") }).await;
    let worker = kit.worker().await;
    let claim = kit.store.claim(ask(worker, "r", 1)).await.unwrap();
    kit.settle(worker, &claim, retry(HOUR, 1)).await;
    for id in [ready, scheduled, retrying] {
        assert_eq!(cancel(kit, id).await, CancelAnswer::Cancelled);
        let view = kit.view(id).await;
        assert_eq!((view.state, view.error.as_deref()), (State::Cancelled, Some("not needed")));
        assert_eq!((view.finished_at, view.due_at), (Some(kit.clock.now()), None));
        assert_eq!(view.attempt, u16::from(id == retrying));
        assert_eq!(cancel(kit, id).await, CancelAnswer::Finished, "twice is once");
    }
    kit.clock.advance(HOUR);
    assert!(kit.take(worker, 9).await.jobs.is_empty());
    assert!(kit.store.claim(ask(worker, "r", 9)).await.unwrap().jobs.is_empty());
}

async fn a_running_job_is_told(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let worker = kit.worker().await;
    kit.take_one(worker).await;
    let mut heard = kit.store.wake().listen();
    for _ in 0..2 {
        assert_eq!(cancel(kit, id).await, CancelAnswer::Requested);
    }
    hears(&mut heard, |hint| *hint == Hint::Cancel { worker }).await;
    let view = kit.view(id).await;
    assert_eq!((view.state, view.cancel_requested), (State::Running, true));
    assert_eq!(kit.store.beat(worker).await.unwrap().cancelled, [id], "once, not twice");
}

async fn a_finished_job_stays_as_it_is(kit: &Kit) {
    for end in [done(), dead("x"), super::kit::cancelled("y")] {
        let id = kit.finish(job("k"), end).await;
        let before = kit.view(id).await;
        assert_eq!(cancel(kit, id).await, CancelAnswer::Finished);
        assert_eq!(kit.view(id).await, before);
    }
    assert_eq!(cancel(kit, JobId::new()).await, CancelAnswer::Unknown);
}

async fn answers_stand_in_the_order_of_the_ids(kit: &Kit) {
    assert_eq!(kit.store.cancel(Vec::new(), "x").await.unwrap(), []);
    let finished = kit.finish(job("k"), done()).await;
    let running = kit.put(job("k")).await;
    let worker = kit.worker().await;
    kit.take_one(worker).await;
    let waiting = kit.put(job("k")).await;
    let all = vec![JobId::new(), waiting, running, finished];
    let answers = kit.store.cancel(all, "x").await.unwrap();
    assert_eq!(
        answers,
        [
            CancelAnswer::Unknown,
            CancelAnswer::Cancelled,
            CancelAnswer::Requested,
            CancelAnswer::Finished,
        ]
    );
}

async fn one_of_many_in_a_batch_is_cancelled(kit: &Kit) {
    let jobs: Vec<_> = (0..120).map(|_| job("k")).collect();
    let sent: Vec<_> = jobs.iter().map(|job| job.id).collect();
    kit.store.enqueue(jobs).await.unwrap();
    let worker = kit.worker().await;
    assert_eq!(ids(&kit.take(worker, 30).await), sent[..30]);
    let off = vec![sent[30], sent[31], sent[50], sent[99], sent[100], sent[119]];
    let answers = kit.store.cancel(off.clone(), "x").await.unwrap();
    assert_eq!(answers, vec![CancelAnswer::Cancelled; off.len()]);
    assert_eq!(cancel(kit, sent[29]).await, CancelAnswer::Requested);
    let rest: Vec<_> = sent[30..].iter().copied().filter(|id| !off.contains(id)).collect();
    assert_eq!(ids(&kit.take(worker, 999).await), rest);
}

async fn many_are_called_off_at_once_and_no_others(kit: &Kit) {
    let worker = kit.worker().await;
    kit.store.enqueue((0..400).map(|_| job("k")).collect()).await.unwrap();
    let mut running = ids(&kit.take(worker, 150).await);
    running.extend(ids(&kit.take(worker, 150).await));
    let ready = JobFilter { state: Some(State::Ready), limit: 100, ..JobFilter::default() };
    let waiting = kit.store.jobs(&ready).await.unwrap().jobs;
    let waiting: Vec<_> = waiting.into_iter().map(|view| view.job.id).collect();
    // More than half of the second lease, nothing of the first, and every second one that waits.
    let mut meant: Vec<_> = running[160..].to_vec();
    let told = meant.len();
    meant.extend(waiting.iter().step_by(2));
    let answers = kit.store.cancel(meant.clone(), "enough").await.unwrap();
    assert!(answers[..told].iter().all(|answer| *answer == CancelAnswer::Requested));
    assert!(answers[told..].iter().all(|answer| *answer == CancelAnswer::Cancelled));
    let mut called_off = kit.store.beat(worker).await.unwrap().cancelled;
    called_off.sort();
    let mut expected = running[160..].to_vec();
    expected.sort();
    assert_eq!(called_off, expected);
    let mut left: Vec<_> = waiting.iter().skip(1).step_by(2).copied().collect();
    left.sort();
    assert_eq!(ids(&kit.take(worker, 400).await), left, "the others are in their order");
}

async fn cancelling_frees_the_key(kit: &Kit) {
    let job = || unique("u", Scope::Unfinished, OnDuplicate::Reject);
    for due in [Due::Now, Due::In(HOUR)] {
        let id = kit.put(NewJob { due, ..job() }).await;
        assert_eq!(cancel(kit, id).await, CancelAnswer::Cancelled);
    }
    let running = kit.put(job()).await;
    let worker = kit.worker().await;
    kit.take_one(worker).await;
    assert_eq!(cancel(kit, running).await, CancelAnswer::Requested);
    assert_eq!(kit.enqueue(job()).await, Receipt::Rejected { id: running }, "while it runs");
}

async fn cancel_and_claim_at_the_same_time_agree(kit: &Kit) {
    let jobs: Vec<_> = (0..300).map(|_| job("k")).collect();
    let sent: Vec<_> = jobs.iter().map(|job| job.id).collect();
    kit.store.enqueue(jobs).await.unwrap();
    let other = kit.neighbour().await;
    let claimer = {
        let store = Arc::clone(&other);
        tokio::spawn(async move {
            let worker = tidemill_core::WorkerId::new();
            store.register(card(worker)).await.unwrap();
            let mut taken = HashSet::new();
            for _ in 0..30 {
                taken.extend(ids(&store.claim(ask(worker, "default", 4)).await.unwrap()));
            }
            taken
        })
    };
    let mut answers = Vec::new();
    for chunk in sent.chunks(10) {
        answers.extend(kit.store.cancel(chunk.to_vec(), "x").await.unwrap());
    }
    let taken = claimer.await.unwrap();
    for (id, answer) in sent.iter().zip(&answers) {
        let expected =
            if taken.contains(id) { CancelAnswer::Requested } else { CancelAnswer::Cancelled };
        assert_eq!(*answer, expected);
    }
    kit.clock.advance(TTL + SECOND);
    assert_eq!(other.rescue(rules()).await.unwrap().cancelled, taken.len() as u64);
    other.close().await;
}

async fn a_scheduled_job_can_be_run_now(kit: &Kit) {
    let id = kit.put(NewJob { due: Due::In(HOUR), ..job("k") }).await;
    let mut heard = kit.store.wake().listen();
    assert!(kit.store.run_now(id).await.unwrap());
    let view = kit.view(id).await;
    assert_eq!((view.state, view.due_at), (State::Ready, Some(kit.clock.now())));
    hears(&mut heard, |hint| *hint == ready("default")).await;
    let worker = kit.worker().await;
    assert_eq!(ids(&kit.take(worker, 9).await), [id]);
    kit.clock.advance(HOUR);
    assert!(kit.take(worker, 9).await.jobs.is_empty(), "it does not come a second time");
}

async fn what_does_not_wait_for_the_clock_cannot(kit: &Kit) {
    let running = kit.put(job("k")).await;
    let worker = kit.worker().await;
    kit.take_one(worker).await;
    let ready = kit.put(job("k")).await;
    let finished = kit.put(NewJob { due: Due::In(HOUR), ..job("k") }).await;
    kit.store.cancel(vec![finished], "x").await.unwrap();
    for id in [running, ready, finished, JobId::new()] {
        assert!(!kit.store.run_now(id).await.unwrap());
    }
    assert_eq!(ids(&kit.take(worker, 9).await), [ready]);
}

async fn a_hurried_retry_keeps_its_count(kit: &Kit) {
    let id = kit.put(job("k")).await;
    kit.run_to(id, retry(HOUR, 1)).await;
    assert!(kit.store.run_now(id).await.unwrap());
    assert_eq!(cancel(kit, id).await, CancelAnswer::Cancelled, "it can still be found");
    let id = kit.put(job("k")).await;
    kit.run_to(id, retry(HOUR, 1)).await;
    assert!(kit.store.run_now(id).await.unwrap());
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    assert_eq!(claim.jobs[0].attempt, 2);
    kit.settle(worker, &claim, retry(HOUR, 2)).await;
    assert_eq!(kit.view(id).await.due_at, Some(kit.clock.now() + HOUR));
}
