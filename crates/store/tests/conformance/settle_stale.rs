//! Settle with a token that holds no more, or settled before: refused, or changes nothing.

use std::sync::Arc;

use tidemill_core::dead::DeadFilter;
use tidemill_core::{NewJob, OnDuplicate, Payload, Scope, Settlement, State, Token};
use tidemill_store::{CancelAnswer, Receipt, SettleItem, Settled};

use super::kit::{HOUR, Kit, SECOND, cancelled, dead, done, ids, item, job, json, retry, unique};

over_both_stores!(
    the_same_token_may_settle_twice_and_changes_nothing,
    a_settle_repeated_after_a_retry_changes_nothing,
    settled_at_the_same_time_it_happens_once,
    a_zombie_is_refused_and_writes_nothing,
    a_zombie_is_refused_while_another_runs_the_job,
    a_zombie_spoils_nothing_of_its_batch,
    a_made_up_token_is_refused,
    a_retry_of_a_called_off_job_is_cancelled,
    a_called_off_job_may_still_finish,
    after_a_cancelled_retry_the_key_is_free,
);

fn with_follow_up(follow_up: NewJob) -> Settlement {
    Settlement::Done { output: json("\"late\""), follow_ups: vec![follow_up] }
}

async fn the_same_token_may_settle_twice_and_changes_nothing(kit: &Kit) {
    let worker = kit.worker().await;
    for first in [done(), dead("x"), cancelled("y")] {
        let id = kit.put(job("k")).await;
        kit.put(NewJob { queue: "noise".into(), ..job("k") }).await;
        let claim = kit.take_one(worker).await;
        assert_eq!(kit.settle(worker, &claim, first).await, Settled::Accepted);
        let before = kit.view(id).await;
        kit.clock.advance(SECOND);
        let extra = NewJob { queue: "extra".into(), ..job("k") };
        let extra_id = extra.id;
        for again in [with_follow_up(extra), dead("other"), cancelled("z"), retry(SECOND, 1)] {
            assert_eq!(kit.settle(worker, &claim, again).await, Settled::Accepted);
        }
        assert_eq!(kit.view(id).await, before);
        assert_eq!(kit.store.job(extra_id).await.unwrap(), None, "no second follow-up");
    }
}

async fn a_settle_repeated_after_a_retry_changes_nothing(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let worker = kit.worker().await;
    let first = kit.take_one(worker).await;
    kit.settle(worker, &first, retry(SECOND, 1)).await;
    let before = kit.view(id).await;
    assert_eq!(kit.settle(worker, &first, retry(HOUR, 1)).await, Settled::Accepted);
    assert_eq!(kit.view(id).await, before);
    kit.clock.advance(SECOND);
    let second = kit.take_one(worker).await;
    assert_eq!(kit.settle(worker, &first, done()).await, Settled::Accepted);
    assert_eq!(kit.state(id).await, State::Running, "the second attempt still runs");
    assert_eq!(kit.settle(worker, &second, done()).await, Settled::Accepted);
    assert_eq!(kit.settle(worker, &first, dead("late")).await, Settled::Accepted);
    assert_eq!(kit.state(id).await, State::Done);
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 0);
}

async fn settled_at_the_same_time_it_happens_once(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let worker = kit.worker().await;
    let claim = Arc::new(kit.take_one(worker).await);
    let calls: Vec<_> = (0..6)
        .map(|_| {
            let (store, claim) = (Arc::clone(&kit.store), Arc::clone(&claim));
            tokio::spawn(async move {
                let how = with_follow_up(NewJob { queue: "next".into(), ..job("k") });
                store.settle(worker, vec![item(&claim, 0, how)]).await.unwrap()[0]
            })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), Settled::Accepted);
    }
    assert_eq!(kit.state(id).await, State::Done);
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 1, "one follow-up, not six");
}

async fn a_zombie_is_refused_and_writes_nothing(kit: &Kit) {
    let zombie = kit.worker().await;
    let keyed = unique("u", Scope::Unfinished, OnDuplicate::Reject);
    let id = kit.put(keyed).await;
    let claim = kit.take_one(zombie).await;
    kit.lose_workers().await;
    let before = kit.view(id).await;
    let follow_up = unique("v", Scope::Forever, OnDuplicate::Reject);
    let follow_id = follow_up.id;
    let ends = [with_follow_up(follow_up), retry(SECOND, 1), dead("x"), cancelled("y"), done()];
    for how in ends {
        assert_eq!(kit.settle(zombie, &claim, how).await, Settled::Stale);
    }
    assert_eq!(kit.view(id).await, before);
    assert_eq!(kit.store.job(follow_id).await.unwrap(), None);
    let again = unique("u", Scope::Unfinished, OnDuplicate::Reject);
    assert_eq!(kit.enqueue(again).await, Receipt::Rejected { id }, "its key is still held");
    kit.put(unique("v", Scope::Forever, OnDuplicate::Reject)).await;
    assert!(kit.store.dead(&DeadFilter::default(), None, 10).await.unwrap().is_empty());
}

async fn a_zombie_is_refused_while_another_runs_the_job(kit: &Kit) {
    let zombie = kit.worker().await;
    let id = kit.put(job("k")).await;
    let old = kit.take_one(zombie).await;
    kit.lose_workers().await;
    let worker = kit.worker().await;
    let new = kit.take_one(worker).await;
    assert!(new.token > old.token);
    assert_eq!(kit.settle(zombie, &old, dead("x")).await, Settled::Stale);
    assert_eq!(kit.state(id).await, State::Running);
    assert_eq!(kit.settle(worker, &new, done()).await, Settled::Accepted);
    assert_eq!(kit.settle(zombie, &old, done()).await, Settled::Stale);
    assert_eq!(kit.view(id).await.token, new.token);
}

async fn a_zombie_spoils_nothing_of_its_batch(kit: &Kit) {
    let (zombie, worker) = (kit.worker().await, kit.worker().await);
    kit.put(job("k")).await;
    let old = kit.take_one(zombie).await;
    kit.clock.advance(super::kit::TTL + SECOND);
    kit.store.beat(worker).await.unwrap();
    kit.rescue().await;
    kit.store.enqueue(vec![job("k"), job("k")]).await.unwrap();
    let live = kit.take(worker, 3).await;
    let follow_ups: Vec<_> = (0..3).map(|_| NewJob { queue: "n".into(), ..job("k") }).collect();
    let next: Vec<_> = follow_ups.iter().map(|job| job.id).collect();
    let ends: Vec<_> = follow_ups.into_iter().map(with_follow_up).collect();
    let items = vec![
        item(&live, 1, ends[0].clone()),
        item(&old, 0, ends[1].clone()),
        item(&live, 2, ends[2].clone()),
    ];
    let answers = kit.store.settle(worker, items).await.unwrap();
    assert_eq!(answers, [Settled::Accepted, Settled::Stale, Settled::Accepted]);
    assert_eq!(kit.state(next[0]).await, State::Ready);
    assert_eq!(kit.store.job(next[1]).await.unwrap(), None);
    assert_eq!(kit.state(next[2]).await, State::Ready);
    assert_eq!(kit.state(ids(&live)[0]).await, State::Running);
}

async fn a_made_up_token_is_refused(kit: &Kit) {
    let worker = kit.worker().await;
    kit.store.enqueue(vec![job("k"), job("k")]).await.unwrap();
    let (first, second) = (kit.take_one(worker).await, kit.take_one(worker).await);
    let real = item(&first, 0, done());
    for token in [Token(0), Token(-1), Token(i64::MAX), second.token.unwrap()] {
        let items = vec![SettleItem { token, ..real.clone() }];
        assert_eq!(kit.store.settle(worker, items).await.unwrap(), [Settled::Stale], "{token}");
    }
    assert_eq!(kit.state(real.job.id).await, State::Running);
    assert_eq!(kit.store.settle(worker, vec![real]).await.unwrap(), [Settled::Accepted]);
}

async fn a_retry_of_a_called_off_job_is_cancelled(kit: &Kit) {
    let worker = kit.worker().await;
    let snooze = Settlement::Again { delay: HOUR, spent: 0, failure: None };
    for how in [retry(SECOND, 1), snooze] {
        let id = kit.put(job("k")).await;
        let claim = kit.take_one(worker).await;
        let answers = kit.store.cancel(vec![id], "enough").await.unwrap();
        assert_eq!(answers, [CancelAnswer::Requested]);
        assert!(kit.view(id).await.cancel_requested);
        assert_eq!(kit.settle(worker, &claim, how).await, Settled::Cancelled);
        let view = kit.view(id).await;
        assert_eq!((view.state, view.due_at), (State::Cancelled, None));
        assert!(!view.cancel_requested, "it runs no more");
        kit.clock.advance(HOUR);
        assert!(kit.take(worker, 1).await.jobs.is_empty(), "no further attempt starts");
    }
}

async fn a_called_off_job_may_still_finish(kit: &Kit) {
    let worker = kit.worker().await;
    let ends = [
        (done(), State::Done),
        (dead("x"), State::Dead),
        (cancelled("it obeyed"), State::Cancelled),
    ];
    for (how, state) in ends {
        let id = kit.put(job("k")).await;
        let claim = kit.take_one(worker).await;
        kit.store.cancel(vec![id], "enough").await.unwrap();
        assert_eq!(kit.settle(worker, &claim, how).await, Settled::Accepted);
        let view = kit.view(id).await;
        assert_eq!(view.state, state);
        assert_eq!(view.output.is_some(), state == State::Done, "{:?}", Payload::null());
    }
}

async fn after_a_cancelled_retry_the_key_is_free(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(unique("u", Scope::Unfinished, OnDuplicate::Reject)).await;
    let claim = kit.take_one(worker).await;
    kit.store.cancel(vec![id], "enough").await.unwrap();
    assert_eq!(kit.settle(worker, &claim, retry(SECOND, 1)).await, Settled::Cancelled);
    kit.put(unique("u", Scope::Unfinished, OnDuplicate::Reject)).await;
}
