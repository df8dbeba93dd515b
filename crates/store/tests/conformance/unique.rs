//! Unique: what a duplicate gets, for every policy, every scope and every state of the other job.

use tidemill_core::workflow::Origin;
use tidemill_core::{Due, JobId, NewJob, OnDuplicate, Options, Priority, Scope, State, UniqueKey};
use tidemill_store::Receipt;

use super::kit::{
    HOUR, Kit, SECOND, cancelled, dead, done, ids, job, json, retry, unique, with_payload,
};

over_both_stores!(
    every_policy_in_every_scope_and_state,
    replace_takes_over_every_wish,
    what_is_a_jobs_own_stays_when_it_is_replaced,
    debounce_counts_the_due_time_anew,
    a_replaced_retry_keeps_its_place_in_the_count,
    a_period_that_is_over_frees_the_key,
    an_old_holder_does_not_free_the_key_of_the_new_one,
    throttle_lets_one_in_per_period,
    force_enqueues_although_the_key_is_held,
    a_forced_job_holds_the_key,
    the_same_id_sent_again_is_no_duplicate_of_itself,
    keys_of_different_jobs_do_not_meet,
);

const PERIOD: Scope = Scope::Period(HOUR);

/// What stands in the way when the duplicate comes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Holder {
    Ready,
    Scheduled,
    Running,
    Retrying,
    Done,
    Dead,
    Cancelled,
}

use Holder::{Cancelled, Dead, Done, Ready, Retrying, Running, Scheduled};
const HOLDERS: [Holder; 7] = [Ready, Scheduled, Running, Retrying, Done, Dead, Cancelled];

/// The rule, as the design says it.
fn expected(policy: OnDuplicate, scope: Scope, holder: Holder, old: JobId, new: JobId) -> Receipt {
    use OnDuplicate::{Debounce, Join, Reject, Replace, RunOnceMore, Throttle};
    let finished = matches!(holder, Done | Dead | Cancelled);
    if finished && scope == Scope::Unfinished {
        return Receipt::Enqueued { id: new };
    }
    match (policy, holder) {
        (Reject, _) => Receipt::Rejected { id: old },
        (Debounce | RunOnceMore, Running) => Receipt::Kept { id: new },
        (Replace | Debounce, Ready | Scheduled | Retrying) => Receipt::Replaced { id: old },
        (Join | Throttle | Replace | Debounce | RunOnceMore, _) => Receipt::Joined { id: old },
    }
}

async fn bring_to(kit: &Kit, holder: Holder, mut job: NewJob) -> JobId {
    if holder == Scheduled {
        job.due = Due::In(SECOND);
    }
    let id = kit.put(job).await;
    let end = match holder {
        Ready | Scheduled | Running => None,
        Retrying => Some(retry(SECOND, 1)),
        Done => Some(done()),
        Dead => Some(dead("x")),
        Cancelled => Some(cancelled("y")),
    };
    if holder == Running {
        let worker = kit.worker().await;
        assert_eq!(ids(&kit.take(worker, 1).await), [id]);
    }
    if let Some(end) = end {
        kit.run_to(id, end).await;
    }
    id
}

async fn every_policy_in_every_scope_and_state(kit: &Kit) {
    let mut number = 0;
    for policy in OnDuplicate::ALL {
        for scope in [Scope::Unfinished, PERIOD, Scope::Forever] {
            for holder in HOLDERS {
                number += 1;
                let key = number.to_string();
                let first = with_payload(unique(&key, scope, policy), "\"first\"");
                let old = bring_to(kit, holder, first).await;
                let second = with_payload(unique(&key, scope, policy), "\"second\"");
                let new = second.id;
                let receipt = kit.enqueue(second).await;
                let case = format!("{policy:?} {scope:?} {holder:?}");
                assert_eq!(receipt, expected(policy, scope, holder, old, new), "{case}");
                let written = kit.store.job(new).await.unwrap().map(|view| view.state);
                let state = match receipt {
                    Receipt::Enqueued { .. } => Some(State::Ready),
                    Receipt::Kept { .. } => Some(State::Blocked),
                    _ => None,
                };
                assert_eq!(written, state, "{case}");
                let payload = kit.view(old).await.job.payload;
                let replaced = matches!(receipt, Receipt::Replaced { .. });
                let text = if replaced { "\"second\"" } else { "\"first\"" };
                assert_eq!(payload.as_str(), text, "{case}");
                // Leave nothing behind that the next case's worker could take.
                let left = vec![old, receipt.id(), new];
                kit.store.cancel(left, "next case").await.unwrap();
            }
        }
    }
}

async fn replace_takes_over_every_wish(kit: &Kit) {
    let first = unique("u", Scope::Unfinished, OnDuplicate::Replace);
    let id = kit.put(NewJob { due: Due::In(HOUR), ..first }).await;
    let mut second = NewJob {
        queue: "other".into(),
        priority: Priority::Urgent,
        tenant: Some("t".into()),
        key: Some("c".into()),
        due: Due::In(SECOND),
        payload: json("[2]"),
        ..unique("u", Scope::Unfinished, OnDuplicate::Replace)
    };
    second.options.tags = vec!["blue".into()];
    assert_eq!(kit.enqueue(second.clone()).await, Receipt::Replaced { id });
    let view = kit.view(id).await;
    assert_eq!((view.job.queue.as_str(), view.job.priority), ("other", Priority::Urgent));
    assert_eq!((view.job.tenant.as_deref(), view.job.key.as_deref()), (Some("t"), Some("c")));
    assert_eq!((view.job.payload, view.job.options), (second.payload, second.options));
    assert_eq!(view.due_at, Some(kit.clock.now() + SECOND));
    kit.clock.advance(HOUR);
    let worker = kit.worker().await;
    assert!(kit.take(worker, 9).await.jobs.is_empty(), "it waits in its new queue only");
    let claim = kit.store.claim(super::kit::ask(worker, "other", 9)).await.unwrap();
    assert_eq!(ids(&claim), [id]);
    assert_eq!(claim.jobs[0].job.payload.as_str(), "[2]");
}

async fn debounce_counts_the_due_time_anew(kit: &Kit) {
    let typing = || NewJob {
        due: Due::In(SECOND * 10),
        ..unique("u", Scope::Unfinished, OnDuplicate::Debounce)
    };
    let id = kit.put(typing()).await;
    for _ in 0..5 {
        kit.clock.advance(SECOND * 9);
        assert_eq!(kit.enqueue(typing()).await, Receipt::Replaced { id });
        assert_eq!(kit.view(id).await.due_at, Some(kit.clock.now() + SECOND * 10));
    }
    let worker = kit.worker().await;
    kit.clock.advance(SECOND * 9);
    assert!(kit.take(worker, 9).await.jobs.is_empty());
    kit.clock.advance(SECOND);
    assert_eq!(ids(&kit.take(worker, 9).await), [id], "once, after the last");
}

/// A job that a run started, in its third turn.
fn child_of(run: JobId, policy: OnDuplicate) -> NewJob {
    let mut child = unique(policy.word(), Scope::Unfinished, policy);
    child.options.parent = Some(run);
    child.options.turn = 3;
    child.options.origins = vec![Origin { run, until: 7 }];
    child
}

async fn what_is_a_jobs_own_stays_when_it_is_replaced(kit: &Kit) {
    let worker = kit.worker().await;
    let (run, other) = (JobId::new(), JobId::new());
    let wish = |policy| {
        let mut wish = child_of(other, policy);
        wish.options.tags = vec!["new".to_owned()];
        wish
    };
    let check = async |id: JobId| {
        let options = kit.view(id).await.job.options;
        let own = child_of(run, OnDuplicate::Replace).options;
        assert_eq!(options, Options { tags: vec!["new".to_owned()], ..own });
    };
    for policy in [OnDuplicate::Replace, OnDuplicate::Debounce] {
        let id = kit.put(child_of(run, policy)).await;
        assert_eq!(kit.enqueue(wish(policy)).await, Receipt::Replaced { id });
        check(id).await;
        kit.run_to(id, done()).await;
        // Of one who replaces a job that nobody started nothing is taken over but wishes.
        let id = kit.put(unique(policy.word(), Scope::Unfinished, policy)).await;
        assert_eq!(kit.enqueue(child_of(run, policy)).await, Receipt::Replaced { id });
        assert_eq!(kit.view(id).await.job.options, Options::default());
        kit.run_to(id, done()).await;
    }
    let policy = OnDuplicate::RunOnceMore;
    kit.put(unique(policy.word(), Scope::Unfinished, policy)).await;
    kit.take_one(worker).await;
    let kept = child_of(run, policy);
    let id = kept.id;
    assert_eq!(kit.enqueue(kept).await, Receipt::Kept { id });
    assert_eq!(kit.enqueue(wish(policy)).await, Receipt::Joined { id });
    check(id).await;
}

async fn a_replaced_retry_keeps_its_place_in_the_count(kit: &Kit) {
    let again = || unique("u", Scope::Unfinished, OnDuplicate::Replace);
    let id = kit.put(again()).await;
    kit.run_to(id, retry(HOUR, 1)).await;
    assert_eq!(kit.enqueue(with_payload(again(), "2")).await, Receipt::Replaced { id });
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    assert_eq!((claim.jobs[0].attempt, claim.jobs[0].job.payload.as_str()), (2, "2"));
}

async fn a_period_that_is_over_frees_the_key(kit: &Kit) {
    for holder in [Ready, Running, Done] {
        let key = format!("{holder:?}");
        let job = || unique(&key, PERIOD, OnDuplicate::Reject);
        let old = bring_to(kit, holder, job()).await;
        assert_eq!(kit.enqueue(job()).await, Receipt::Rejected { id: old });
        kit.clock.advance(HOUR);
        let new = kit.put(job()).await;
        assert_eq!(kit.enqueue(job()).await, Receipt::Rejected { id: new });
        kit.store.cancel(vec![old, new], "next case").await.unwrap();
    }
}

async fn an_old_holder_does_not_free_the_key_of_the_new_one(kit: &Kit) {
    let job = |scope| unique("u", scope, OnDuplicate::Reject);
    let old = kit.put(job(PERIOD)).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    kit.clock.advance(HOUR);
    let new = kit.put(job(Scope::Unfinished)).await;
    assert_ne!(old, new);
    kit.settle(worker, &claim, done()).await;
    assert_eq!(kit.enqueue(job(Scope::Unfinished)).await, Receipt::Rejected { id: new });
    kit.run_to(new, done()).await;
    kit.put(job(Scope::Unfinished)).await;
}

async fn throttle_lets_one_in_per_period(kit: &Kit) {
    let job = || unique("u", PERIOD, OnDuplicate::Throttle);
    let first = kit.finish(job(), done()).await;
    for _ in 0..3 {
        kit.clock.advance(SECOND * 1000);
        assert_eq!(kit.enqueue(job()).await, Receipt::Joined { id: first });
    }
    kit.clock.advance(SECOND * 600);
    kit.put(job()).await;
}

fn forced(job: NewJob) -> NewJob {
    let unique = job.unique.clone().map(|unique| UniqueKey { force: true, ..unique });
    NewJob { unique, ..job }
}

async fn force_enqueues_although_the_key_is_held(kit: &Kit) {
    for scope in [Scope::Unfinished, PERIOD, Scope::Forever] {
        for holder in HOLDERS {
            let key = format!("{scope:?} {holder:?}");
            let old = bring_to(kit, holder, unique(&key, scope, OnDuplicate::Reject)).await;
            let new = kit.put(forced(unique(&key, scope, OnDuplicate::Reject))).await;
            assert_eq!(kit.state(new).await, State::Ready, "{key}");
            assert_ne!(old, new);
            kit.store.cancel(vec![old, new], "next case").await.unwrap();
        }
    }
}

async fn a_forced_job_holds_the_key(kit: &Kit) {
    let job = || unique("u", Scope::Unfinished, OnDuplicate::Reject);
    let old = kit.put(job()).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    let new = kit.put(forced(job())).await;
    assert_eq!(kit.enqueue(job()).await, Receipt::Rejected { id: new });
    assert_eq!(kit.settle(worker, &claim, done()).await, tidemill_store::Settled::Accepted);
    assert_eq!(kit.state(old).await, State::Done);
    assert_eq!(kit.enqueue(job()).await, Receipt::Rejected { id: new }, "it is still held");
    kit.run_to(new, done()).await;
    kit.put(job()).await;
}

async fn the_same_id_sent_again_is_no_duplicate_of_itself(kit: &Kit) {
    for policy in OnDuplicate::ALL {
        let job = NewJob { queue: "q".into(), ..unique(policy.word(), Scope::Unfinished, policy) };
        let id = kit.put(job.clone()).await;
        assert_eq!(kit.enqueue(job).await, Receipt::Enqueued { id }, "{policy:?}");
    }
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 6);
}

async fn keys_of_different_jobs_do_not_meet(kit: &Kit) {
    let keyed = |key: &str| unique(key, Scope::Forever, OnDuplicate::Reject);
    kit.put(keyed("a")).await;
    kit.put(keyed("A")).await;
    kit.put(keyed("a ")).await;
    kit.put(job("k")).await;
    kit.put(job("k")).await;
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 5);
}
