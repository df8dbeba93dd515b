//! Unique: the one more that is kept while a job runs, and how it comes to its turn.

use tidemill_core::{
    Due, JobId, NewJob, OnDuplicate, Payload, Scope, Settlement, State, UniqueKey, WorkerId,
};
use tidemill_store::{CancelAnswer, Claim, Receipt, Settled};

use super::kit::{
    HOUR, Kit, SECOND, cancelled, dead, done, ids, retry, rules, unique, with_payload,
};

over_both_stores!(
    the_kept_job_comes_after_every_end,
    the_kept_job_comes_after_a_poisoned_one,
    the_kept_job_comes_when_the_other_is_called_off,
    the_kept_job_waits_through_retries_and_rescues,
    the_kept_job_waits_through_a_deregistration,
    only_one_more_is_kept_with_the_latest_payload,
    the_kept_job_inherits_the_key,
    a_kept_job_may_be_called_off,
    a_forced_job_sets_the_kept_one_free,
    one_after_another_none_overlap,
    a_kept_job_waits_for_its_own_time,
    a_kept_job_sent_again_is_no_news,
    a_follow_up_may_have_the_key_of_the_job_it_follows,
);

fn more() -> NewJob {
    unique("u", Scope::Unfinished, OnDuplicate::RunOnceMore)
}

/// A running job and one kept for afterwards.
async fn kept(kit: &Kit) -> (WorkerId, Claim, JobId) {
    kit.put(more()).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    let next = more();
    let id = next.id;
    assert_eq!(kit.enqueue(next).await, Receipt::Kept { id });
    assert_eq!(kit.state(id).await, State::Blocked);
    assert!(kit.take(worker, 9).await.jobs.is_empty(), "not while the other runs");
    assert_eq!(kit.store.key_holder(id).await.unwrap(), Some(ids(&claim)[0]));
    (worker, claim, id)
}

async fn the_kept_job_comes_after_every_end(kit: &Kit) {
    for end in [done(), dead("x"), cancelled("y")] {
        let (worker, claim, next) = kept(kit).await;
        assert_eq!(kit.settle(worker, &claim, end).await, Settled::Accepted);
        assert_eq!(kit.state(next).await, State::Ready);
        assert_eq!(kit.store.key_holder(next).await.unwrap(), None, "it holds the key itself");
        kit.run_to(next, done()).await;
    }
    let (worker, claim, next) = kept(kit).await;
    kit.store.cancel(ids(&claim), "enough").await.unwrap();
    assert_eq!(kit.state(next).await, State::Blocked, "it still runs");
    assert_eq!(kit.settle(worker, &claim, retry(SECOND, 1)).await, Settled::Cancelled);
    assert_eq!(kit.state(next).await, State::Ready);
}

async fn the_kept_job_comes_after_a_poisoned_one(kit: &Kit) {
    let id = kit.put(more()).await;
    for loss in 1..=3 {
        let worker = kit.worker().await;
        assert_eq!(ids(&kit.take(worker, 9).await), [id]);
        if loss == 3 {
            let next = more();
            let next_id = next.id;
            assert_eq!(kit.enqueue(next).await, Receipt::Kept { id: next_id });
            assert_eq!(kit.lose_workers().await.poisoned, 1);
            assert_eq!(kit.state(id).await, State::Dead);
            assert_eq!(kit.state(next_id).await, State::Ready);
        } else {
            assert_eq!(kit.lose_workers().await.ready, 1);
        }
    }
}

async fn the_kept_job_comes_when_the_other_is_called_off(kit: &Kit) {
    let (worker, claim, next) = kept(kit).await;
    kit.settle(worker, &claim, retry(HOUR, 1)).await;
    let answers = kit.store.cancel(ids(&claim), "enough").await.unwrap();
    assert_eq!(answers, [CancelAnswer::Cancelled]);
    assert_eq!(kit.state(next).await, State::Ready);

    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    let third = more();
    let third_id = third.id;
    assert_eq!(kit.enqueue(third).await, Receipt::Kept { id: third_id });
    kit.store.cancel(ids(&claim), "enough").await.unwrap();
    assert_eq!(kit.lose_workers().await.cancelled, 1);
    assert_eq!(kit.state(third_id).await, State::Ready, "also when its worker is lost then");
}

async fn the_kept_job_waits_through_retries_and_rescues(kit: &Kit) {
    let (worker, claim, next) = kept(kit).await;
    kit.settle(worker, &claim, retry(SECOND, 1)).await;
    assert_eq!(kit.state(next).await, State::Blocked);
    kit.clock.advance(SECOND);
    let claim = kit.take(worker, 9).await;
    assert_eq!(claim.jobs.len(), 1);
    assert_eq!(kit.lose_workers().await.ready, 1);
    assert_eq!(kit.state(next).await, State::Blocked);
    kit.run_to(claim.jobs[0].job.id, done()).await;
    assert_eq!(kit.state(next).await, State::Ready);
}

async fn the_kept_job_waits_through_a_deregistration(kit: &Kit) {
    let (worker, claim, next) = kept(kit).await;
    assert_eq!(kit.store.deregister(worker).await.unwrap().ready, 1);
    assert_eq!(kit.state(next).await, State::Blocked);
    kit.run_to(claim.jobs[0].job.id, done()).await;
    kit.run_to(next, done()).await;
}

async fn only_one_more_is_kept_with_the_latest_payload(kit: &Kit) {
    let (worker, claim, next) = kept(kit).await;
    for text in ["1", "2", "3"] {
        let job = with_payload(more(), text);
        let id = job.id;
        assert_eq!(kit.enqueue(job).await, Receipt::Joined { id: next });
        assert_eq!(kit.store.job(id).await.unwrap(), None);
    }
    let rejected = unique("u", Scope::Unfinished, OnDuplicate::Reject);
    let holder = claim.jobs[0].job.id;
    assert_eq!(kit.enqueue(rejected).await, Receipt::Rejected { id: holder });
    kit.settle(worker, &claim, done()).await;
    let claim = kit.take(worker, 9).await;
    assert_eq!(ids(&claim), [next]);
    assert_eq!(claim.jobs[0].job.payload.as_str(), "3");
}

async fn the_kept_job_inherits_the_key(kit: &Kit) {
    let (worker, claim, next) = kept(kit).await;
    kit.settle(worker, &claim, done()).await;
    assert_eq!(kit.enqueue(more()).await, Receipt::Joined { id: next });
    let claim = kit.take_one(worker).await;
    let third = more();
    let id = third.id;
    assert_eq!(kit.enqueue(third).await, Receipt::Kept { id });
    kit.settle(worker, &claim, done()).await;
    kit.run_to(id, done()).await;
    kit.put(more()).await;
}

async fn a_kept_job_may_be_called_off(kit: &Kit) {
    let (worker, claim, next) = kept(kit).await;
    let answers = kit.store.cancel(vec![next], "not needed").await.unwrap();
    assert_eq!(answers, [CancelAnswer::Cancelled]);
    let another = more();
    let id = another.id;
    assert_eq!(kit.enqueue(another).await, Receipt::Kept { id }, "its place is free again");
    kit.settle(worker, &claim, done()).await;
    assert_eq!(kit.state(next).await, State::Cancelled);
    assert_eq!(ids(&kit.take(worker, 9).await), [id]);
}

async fn a_forced_job_sets_the_kept_one_free(kit: &Kit) {
    let (worker, claim, next) = kept(kit).await;
    let mut forced = more();
    forced.unique = forced.unique.map(|unique| UniqueKey { force: true, ..unique });
    let forced = kit.put(forced).await;
    assert_eq!(kit.state(next).await, State::Ready, "it is not lost");
    kit.settle(worker, &claim, done()).await;
    let mut left = ids(&kit.take(worker, 9).await);
    left.sort();
    let mut both = vec![next, forced];
    both.sort();
    assert_eq!(left, both);
}

async fn one_after_another_none_overlap(kit: &Kit) {
    let worker = kit.worker().await;
    kit.put(more()).await;
    for _ in 0..5 {
        let claim = kit.take(worker, 9).await;
        assert_eq!(claim.jobs.len(), 1, "never two of one key at once");
        assert!(kit.enqueue(more()).await.is_new());
        assert!(kit.take(worker, 9).await.jobs.is_empty());
        kit.settle(worker, &claim, done()).await;
        kit.store.beat(worker).await.unwrap();
        kit.store.rescue(rules()).await.unwrap();
    }
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 1);
}

async fn a_kept_job_waits_for_its_own_time(kit: &Kit) {
    let start = kit.clock.now();
    let late = |policy, seconds| NewJob {
        due: Due::In(SECOND * seconds),
        ..unique("u", Scope::Unfinished, policy)
    };
    kit.put(more()).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    let next = late(OnDuplicate::RunOnceMore, 60);
    let id = next.id;
    assert_eq!(kit.enqueue(next).await, Receipt::Kept { id });
    kit.clock.advance(SECOND);
    let joined = kit.enqueue(late(OnDuplicate::RunOnceMore, 90)).await;
    assert_eq!(joined, Receipt::Joined { id });
    kit.settle(worker, &claim, done()).await;
    let view = kit.view(id).await;
    assert_eq!((view.state, view.due_at), (State::Scheduled, Some(start + SECOND * 60)));

    kit.clock.advance(SECOND * 59);
    let claim = kit.take_one(worker).await;
    let next = late(OnDuplicate::Debounce, 10);
    let id = next.id;
    assert_eq!(kit.enqueue(next).await, Receipt::Kept { id });
    kit.clock.advance(SECOND * 5);
    let joined = kit.enqueue(late(OnDuplicate::Debounce, 10)).await;
    assert_eq!(joined, Receipt::Joined { id });
    kit.settle(worker, &claim, done()).await;
    assert_eq!(kit.view(id).await.due_at, Some(kit.clock.now() + SECOND * 10), "counted anew");
}

async fn a_kept_job_sent_again_is_no_news(kit: &Kit) {
    kit.put(more()).await;
    let worker = kit.worker().await;
    kit.take_one(worker).await;
    let next = more();
    let id = next.id;
    assert_eq!(kit.enqueue(next.clone()).await, Receipt::Kept { id });
    assert_eq!(kit.enqueue(next).await, Receipt::Enqueued { id });
    assert_eq!(kit.state(id).await, State::Blocked);
}

async fn a_follow_up_may_have_the_key_of_the_job_it_follows(kit: &Kit) {
    for policy in OnDuplicate::ALL {
        let link = || unique(policy.word(), Scope::Unfinished, policy);
        let id = kit.put(link()).await;
        let follow_up = link();
        let next = follow_up.id;
        let follow_ups = vec![follow_up];
        kit.run_to(id, Settlement::Done { output: Payload::null(), follow_ups }).await;
        assert_eq!(kit.state(next).await, State::Ready, "{policy:?}: the job has finished");
        kit.run_to(next, done()).await;
    }
}
