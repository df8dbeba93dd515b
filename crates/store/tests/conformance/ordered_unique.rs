//! Order and uniqueness together: who is replaced keeps its place, who is kept gets one when it comes.

use tidemill_core::{Due, JobId, NewJob, OnDead, OnDuplicate, Options, Scope, State, UniqueKey};
use tidemill_store::{CancelAnswer, Receipt};

use super::kit::{HOUR, Kit, SECOND, dead, done, ids, job, json, ordered, with_payload};
use super::ordered::states;

over_both_stores!(
    a_replaced_one_keeps_its_place,
    a_replaced_first_one_keeps_its_place,
    a_replacement_may_go_to_another_line,
    a_replacement_may_leave_its_line_or_enter_one,
    one_that_waits_in_line_counts_as_waiting,
    a_kept_one_enters_the_line_when_it_comes,
    a_refreshed_one_has_the_wishes_of_the_latest,
    a_forced_one_sets_the_kept_one_free_into_its_line,
    a_kept_one_is_called_off_before_it_enters,
    rejected_and_joined_ones_take_no_place,
    duplicates_within_one_batch_are_treated_as_ever,
);

/// A job of a line with a unique key.
fn both(key: &str, unique: &str, on_duplicate: OnDuplicate) -> NewJob {
    let scope = Scope::Unfinished;
    let key_of = UniqueKey {
        key: UniqueKey::given("k", unique),
        scope,
        on_duplicate,
        force: false,
        together: false,
        within: Vec::new(),
    };
    NewJob { unique: Some(key_of), ..ordered(key, OnDead::Block) }
}

fn plain(job: NewJob) -> NewJob {
    NewJob { options: Options::default(), ..job }
}

async fn a_replaced_one_keeps_its_place(kit: &Kit) {
    for policy in [OnDuplicate::Replace, OnDuplicate::Debounce] {
        let first = kit.put(ordered("a", OnDead::Block)).await;
        let second = kit.put(both("a", "u", policy)).await;
        let third = kit.put(ordered("a", OnDead::Block)).await;
        let newer = NewJob { due: Due::In(HOUR), ..with_payload(both("a", "u", policy), "7") };
        assert_eq!(kit.enqueue(newer).await, Receipt::Replaced { id: second });
        let view = kit.view(second).await;
        assert_eq!((view.state, view.job.payload), (State::Blocked, json("7")));
        kit.run_to(first, done()).await;
        assert_eq!(kit.state(second).await, State::Scheduled, "its new time");
        assert_eq!(kit.state(third).await, State::Blocked);
        kit.clock.advance(HOUR);
        kit.run_to(second, done()).await;
        kit.run_to(third, done()).await;
    }
}

async fn a_replaced_first_one_keeps_its_place(kit: &Kit) {
    let first = kit.put(both("a", "u", OnDuplicate::Replace)).await;
    let second = kit.put(ordered("a", OnDead::Block)).await;
    let newer = NewJob { due: Due::In(HOUR), ..both("a", "u", OnDuplicate::Replace) };
    assert_eq!(kit.enqueue(newer).await, Receipt::Replaced { id: first });
    assert_eq!(states(kit, [first, second]).await, [State::Scheduled, State::Blocked]);
    assert!(kit.store.run_now(first).await.unwrap());
    kit.run_to(first, done()).await;
    kit.run_to(second, done()).await;
}

async fn a_replacement_may_go_to_another_line(kit: &Kit) {
    let head = kit.put(both("a", "u", OnDuplicate::Replace)).await;
    let behind = kit.put(both("a", "v", OnDuplicate::Replace)).await;
    let last = kit.put(ordered("a", OnDead::Block)).await;
    let other = kit.put(ordered("b", OnDead::Block)).await;
    // From the middle, and from the front.
    let receipt = kit.enqueue(both("b", "v", OnDuplicate::Replace)).await;
    assert_eq!(receipt, Receipt::Replaced { id: behind });
    assert_eq!(
        states(kit, [head, last, other, behind]).await[1..],
        [State::Blocked, State::Ready, State::Blocked]
    );
    kit.enqueue(both("b", "u", OnDuplicate::Replace)).await;
    assert_eq!(
        states(kit, [last, other, behind, head]).await,
        [State::Ready, State::Ready, State::Blocked, State::Blocked]
    );
    // To a line where nobody is.
    kit.enqueue(both("c", "u", OnDuplicate::Replace)).await;
    assert_eq!(kit.state(head).await, State::Ready);
    kit.store.cancel(vec![last, head], "enough").await.unwrap();
    kit.run_to(other, done()).await;
    kit.run_to(behind, done()).await;
}

async fn a_replacement_may_leave_its_line_or_enter_one(kit: &Kit) {
    let head = kit.put(both("a", "u", OnDuplicate::Replace)).await;
    let behind = kit.put(both("a", "v", OnDuplicate::Replace)).await;
    let last = kit.put(ordered("a", OnDead::Block)).await;
    kit.enqueue(plain(both("a", "v", OnDuplicate::Replace))).await;
    assert_eq!(
        states(kit, [head, behind, last]).await,
        [State::Ready, State::Ready, State::Blocked]
    );
    kit.enqueue(plain(both("a", "u", OnDuplicate::Replace))).await;
    assert_eq!(states(kit, [head, behind, last]).await, [State::Ready; 3]);
    kit.enqueue(both("a", "u", OnDuplicate::Replace)).await;
    assert_eq!(
        states(kit, [head, behind, last]).await,
        [State::Blocked, State::Ready, State::Ready]
    );
    kit.store.cancel(vec![behind], "enough").await.unwrap();
    kit.run_to(last, done()).await;
    kit.run_to(head, done()).await;
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 0);
}

async fn one_that_waits_in_line_counts_as_waiting(kit: &Kit) {
    kit.put(ordered("a", OnDead::Block)).await;
    let id = kit.put(both("a", "u", OnDuplicate::RunOnceMore)).await;
    let again = kit.enqueue(both("a", "u", OnDuplicate::RunOnceMore)).await;
    assert_eq!(again, Receipt::Joined { id });
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 2);
}

async fn a_kept_one_enters_the_line_when_it_comes(kit: &Kit) {
    let first = kit.put(both("a", "u", OnDuplicate::RunOnceMore)).await;
    let second = kit.put(ordered("a", OnDead::Block)).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    assert_eq!(ids(&claim), [first]);
    let next = both("a", "u", OnDuplicate::RunOnceMore);
    let kept = next.id;
    assert_eq!(kit.enqueue(next).await, Receipt::Kept { id: kept });
    assert_eq!(kit.store.line(kept).await.unwrap(), None, "not yet");
    kit.settle(worker, &claim, done()).await;
    assert_eq!(states(kit, [second, kept]).await, [State::Ready, State::Blocked]);
    kit.run_to(second, done()).await;
    kit.run_to(kept, done()).await;

    // Of one that is dead and blocks: its key is free, its line is not.
    let first = kit.put(both("a", "u", OnDuplicate::RunOnceMore)).await;
    let claim = kit.take_one(worker).await;
    let next = both("a", "u", OnDuplicate::RunOnceMore);
    let kept = next.id;
    assert_eq!(kit.enqueue(next).await, Receipt::Kept { id: kept });
    kit.settle(worker, &claim, dead("no")).await;
    assert_eq!(states(kit, [first, kept]).await, [State::Dead, State::Blocked]);
    kit.store.dead_replay(&[first], "ada".into(), None).await.unwrap();
    kit.run_to(first, done()).await;
    kit.run_to(kept, done()).await;
}

async fn a_refreshed_one_has_the_wishes_of_the_latest(kit: &Kit) {
    let policy = OnDuplicate::RunOnceMore;
    kit.put(NewJob { key: None, ..plain(both("a", "u", policy)) }).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    let kept = kit.enqueue(NewJob { key: None, ..plain(both("a", "u", policy)) }).await.id();
    assert_eq!(kit.enqueue(both("a", "u", policy)).await, Receipt::Joined { id: kept });
    kit.put(ordered("a", OnDead::Block)).await;
    kit.settle(worker, &claim, done()).await;
    assert_eq!(kit.state(kept).await, State::Blocked, "it takes its turn by its latest wish");
}

async fn a_forced_one_sets_the_kept_one_free_into_its_line(kit: &Kit) {
    let policy = OnDuplicate::RunOnceMore;
    kit.put(both("a", "u", policy)).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    let kept = kit.enqueue(both("a", "u", policy)).await.id();
    let mut forced = both("a", "u", policy);
    forced.unique.as_mut().unwrap().force = true;
    let forced = kit.put(forced).await;
    assert_eq!(states(kit, [kept, forced]).await, [State::Blocked; 2]);
    kit.settle(worker, &claim, done()).await;
    kit.run_to(kept, done()).await;
    kit.run_to(forced, done()).await;
}

async fn a_kept_one_is_called_off_before_it_enters(kit: &Kit) {
    let policy = OnDuplicate::RunOnceMore;
    kit.put(both("a", "u", policy)).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    let kept = kit.enqueue(both("a", "u", policy)).await.id();
    let answers = kit.store.cancel(vec![kept], "enough").await.unwrap();
    assert_eq!(answers, [CancelAnswer::Cancelled]);
    kit.settle(worker, &claim, done()).await;
    kit.clock.advance(SECOND);
    kit.finish(both("a", "u", policy), done()).await;
}

async fn rejected_and_joined_ones_take_no_place(kit: &Kit) {
    let first = kit.put(both("a", "u", OnDuplicate::Reject)).await;
    assert_eq!(
        kit.enqueue(both("a", "u", OnDuplicate::Reject)).await,
        Receipt::Rejected { id: first }
    );
    assert_eq!(kit.enqueue(both("a", "u", OnDuplicate::Join)).await, Receipt::Joined { id: first });
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 1);
    kit.run_to(first, done()).await;
    kit.finish(NewJob { unique: None, ..job("k") }, done()).await;
}

async fn duplicates_within_one_batch_are_treated_as_ever(kit: &Kit) {
    for (policy, receipt) in [
        (OnDuplicate::Reject, (|id| Receipt::Rejected { id }) as fn(JobId) -> Receipt),
        (OnDuplicate::Join, |id| Receipt::Joined { id }),
        (OnDuplicate::RunOnceMore, |id| Receipt::Joined { id }),
        (OnDuplicate::Replace, |id| Receipt::Replaced { id }),
        (OnDuplicate::Debounce, |id| Receipt::Replaced { id }),
    ] {
        let first = both("a", "u", policy);
        let batch = vec![
            ordered("a", OnDead::Block),
            first.clone(),
            ordered("a", OnDead::Block),
            with_payload(both("a", "u", policy), "2"),
        ];
        let all = [batch[0].id, first.id, batch[2].id];
        let receipts = kit.store.enqueue(batch).await.unwrap();
        assert_eq!(receipts[3], receipt(first.id), "{policy:?}");
        assert_eq!(kit.store.unfinished().await.unwrap().waiting, 3, "{policy:?}");
        for id in all {
            kit.run_to(id, done()).await;
        }
    }
    // It ceases to ask for order, or goes to another line, within the batch.
    for other in [plain(both("a", "u", OnDuplicate::Replace)), both("b", "u", OnDuplicate::Replace)]
    {
        let first = both("a", "u", OnDuplicate::Replace);
        let batch = vec![ordered("a", OnDead::Block), first.clone(), other];
        let head = batch[0].id;
        kit.store.enqueue(batch).await.unwrap();
        assert_eq!(states(kit, [head, first.id]).await, [State::Ready; 2]);
        kit.store.cancel(vec![head], "enough").await.unwrap();
        kit.run_to(first.id, done()).await;
    }
}
