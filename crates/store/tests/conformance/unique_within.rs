//! Unique keys that only jobs of some queues may hold: what others have is told to nobody, and stays as it was.

use tidemill_core::{Due, JobId, NewJob, OnDuplicate, Scope, State};
use tidemill_store::Receipt;

use super::kit::{HOUR, Kit, SECOND, ask, done, job, json, unique};

over_both_stores!(
    a_duplicate_of_what_is_out_of_reach_is_refused_and_changes_nothing,
    names_and_patterns_say_what_is_in_reach,
    who_is_kept_for_afterwards_must_be_in_reach_too,
    a_batch_is_refused_as_a_whole,
    a_period_that_is_over_is_nobodys,
    what_follows_is_left_out,
);

/// A job of the queue `mine` that may be a duplicate of jobs of these queues alone.
fn within(queues: &[&str], scope: Scope, on_duplicate: OnDuplicate) -> NewJob {
    let mut job = unique("u", scope, on_duplicate);
    job.unique.as_mut().unwrap().within = queues.iter().map(|q| (*q).to_owned()).collect();
    NewJob { queue: "mine".into(), payload: json("2"), ..job }
}

/// The holder of the key, in this queue.
async fn hold(kit: &Kit, queue: &str, scope: Scope, due: Due) -> JobId {
    let held = unique("u", scope, OnDuplicate::Reject);
    let held = NewJob { queue: queue.into(), payload: json("1"), due, ..held };
    kit.store.enqueue(vec![held]).await.unwrap()[0].id()
}

async fn code(kit: &Kit, jobs: Vec<NewJob>) -> Option<&'static str> {
    kit.store.enqueue(jobs).await.err().map(|error| error.code())
}

async fn a_duplicate_of_what_is_out_of_reach_is_refused_and_changes_nothing(kit: &Kit) {
    let id = hold(kit, "theirs", Scope::Unfinished, Due::In(HOUR)).await;
    let before = kit.view(id).await;
    for on_duplicate in OnDuplicate::ALL {
        for force in [false, true] {
            let mut wish = within(&["mine", "our:*"], Scope::Unfinished, on_duplicate);
            wish.unique.as_mut().unwrap().force = force;
            let new = wish.id;
            assert_eq!(code(kit, vec![wish]).await, Some("duplicate_rejected"));
            assert_eq!(kit.view(id).await, before, "{on_duplicate:?}");
            assert_eq!(kit.store.job(new).await.unwrap(), None);
        }
    }
    // It still holds the key.
    let again = unique("u", Scope::Unfinished, OnDuplicate::Reject);
    assert_eq!(kit.store.enqueue(vec![again]).await.unwrap(), [Receipt::Rejected { id }]);
}

async fn names_and_patterns_say_what_is_in_reach(kit: &Kit) {
    let id = hold(kit, "mail:eu", Scope::Unfinished, Due::In(HOUR)).await;
    for (queues, is_in_reach) in [
        (&["mail:eu"][..], true),
        (&["mail:*"], true),
        (&["*"], true),
        (&["other", "mail:e*"], true),
        (&["mail:eu*"], true),
        (&["mail"], false),
        (&["mail:"], false),
        (&["mail:eu2"], false),
        (&["mail:eu:*"], false),
        (&["MAIL:*"], false),
        (&["m%*", "mail_eu", "%"], false),
    ] {
        let joined = kit.store.enqueue(vec![within(queues, Scope::Unfinished, OnDuplicate::Join)]);
        let joined = joined.await.ok();
        assert_eq!(joined, is_in_reach.then(|| vec![Receipt::Joined { id }]), "{queues:?}");
    }
    let replaced = within(&["mail:*"], Scope::Unfinished, OnDuplicate::Replace);
    assert_eq!(kit.store.enqueue(vec![replaced]).await.unwrap(), [Receipt::Replaced { id }]);
    // Where it is now counts, not where it was.
    let again = within(&["mail:*"], Scope::Unfinished, OnDuplicate::Replace);
    assert_eq!(code(kit, vec![again]).await, Some("duplicate_rejected"));
}

async fn who_is_kept_for_afterwards_must_be_in_reach_too(kit: &Kit) {
    let first = hold(kit, "mine", Scope::Unfinished, Due::Now).await;
    let worker = kit.worker().await;
    let claim = kit.store.claim(ask(worker, "mine", 1)).await.unwrap();
    let kept = unique("u", Scope::Unfinished, OnDuplicate::RunOnceMore);
    let kept = NewJob { queue: "theirs".into(), payload: json("3"), ..kept };
    let next = kept.id;
    assert_eq!(kit.store.enqueue(vec![kept]).await.unwrap(), [Receipt::Kept { id: next }]);
    let before = kit.view(next).await;
    for on_duplicate in [OnDuplicate::RunOnceMore, OnDuplicate::Debounce, OnDuplicate::Join] {
        let wish = within(&["mine"], Scope::Unfinished, on_duplicate);
        assert_eq!(code(kit, vec![wish]).await, Some("duplicate_rejected"));
        assert_eq!(kit.view(next).await, before);
    }
    kit.settle(worker, &claim, done()).await;
    assert_eq!(kit.view(first).await.state, State::Done);
    assert_eq!(kit.view(next).await.state, State::Ready);
}

async fn a_batch_is_refused_as_a_whole(kit: &Kit) {
    let id = hold(kit, "theirs", Scope::Unfinished, Due::In(HOUR)).await;
    let own = NewJob { queue: "mine".into(), ..job("k") };
    let other = unique("v", Scope::Unfinished, OnDuplicate::Reject);
    let bad = within(&["mine"], Scope::Unfinished, OnDuplicate::Replace);
    let ids = [own.id, other.id, bad.id];
    let batch = vec![own.clone(), other, bad];
    assert_eq!(code(kit, batch).await, Some("duplicate_rejected"));
    for one in ids {
        assert_eq!(kit.store.job(one).await.unwrap(), None);
    }
    assert_eq!(kit.view(id).await.job.payload.as_str(), "1");
    assert_eq!(kit.store.enqueue(vec![own]).await.unwrap().len(), 1);
}

async fn a_period_that_is_over_is_nobodys(kit: &Kit) {
    let period = Scope::Period(SECOND);
    hold(kit, "theirs", period, Due::In(HOUR)).await;
    let wish = within(&["mine"], period, OnDuplicate::Reject);
    assert_eq!(code(kit, vec![wish.clone()]).await, Some("duplicate_rejected"));
    kit.clock.advance(SECOND);
    assert_eq!(
        kit.store.enqueue(vec![wish.clone()]).await.unwrap(),
        [Receipt::Enqueued { id: wish.id }]
    );
}

async fn what_follows_is_left_out(kit: &Kit) {
    let id = hold(kit, "theirs", Scope::Unfinished, Due::In(HOUR)).await;
    let before = kit.view(id).await;
    let own = NewJob { queue: "mine".into(), ..job("k") };
    kit.store.enqueue(vec![own.clone()]).await.unwrap();
    let worker = kit.worker().await;
    let claim = kit.store.claim(ask(worker, "mine", 1)).await.unwrap();
    let bad = within(&["mine"], Scope::Unfinished, OnDuplicate::Debounce);
    let good = NewJob { queue: "mine".into(), ..job("k") };
    let follow_ups = vec![bad.clone(), good.clone()];
    let end = tidemill_core::Settlement::Done { output: json("null"), follow_ups };
    kit.settle(worker, &claim, end).await;
    assert_eq!(kit.view(own.id).await.state, State::Done);
    assert_eq!(kit.view(good.id).await.state, State::Ready);
    assert_eq!(kit.store.job(bad.id).await.unwrap(), None);
    assert_eq!(kit.view(id).await, before);
}
