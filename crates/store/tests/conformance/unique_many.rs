//! Unique: duplicates inside one batch, from many callers at once, and long after the job is gone.

use std::collections::HashSet;
use std::sync::Arc;

use tidemill_core::dead::DeadFilter;
use tidemill_core::{NewJob, OnDuplicate, Payload, Scope, Settlement, State};
use tidemill_store::Receipt;

use super::kit::{HOUR, Kit, SECOND, dead, done, ids, job, json, unique, with_payload};

over_both_stores!(
    duplicates_inside_one_batch_are_seen,
    answers_of_a_mixed_batch_stand_in_its_order,
    a_large_batch_of_keys_is_taken,
    of_fifty_callers_one_wins,
    of_fifty_callers_one_is_kept,
    opposite_batches_do_not_block_each_other,
    a_key_outlives_its_job,
    a_dead_holder_of_a_lasting_key_still_holds_it,
    a_result_goes_when_its_period_is_over,
    a_purged_job_without_a_key_is_gone,
);

fn unfinished(key: &str, policy: OnDuplicate) -> NewJob {
    unique(key, Scope::Unfinished, policy)
}

async fn duplicates_inside_one_batch_are_seen(kit: &Kit) {
    for policy in OnDuplicate::ALL {
        let batch: Vec<_> = ["1", "2", "3"]
            .map(|text| with_payload(unfinished(policy.word(), policy), text))
            .into();
        let id = batch[0].id;
        let receipts = kit.store.enqueue(batch).await.unwrap();
        let later = match policy {
            OnDuplicate::Reject => Receipt::Rejected { id },
            OnDuplicate::Replace | OnDuplicate::Debounce => Receipt::Replaced { id },
            _ => Receipt::Joined { id },
        };
        assert_eq!(
            receipts,
            [Receipt::Enqueued { id }, later.clone(), later.clone()],
            "{policy:?}"
        );
        let replaced = matches!(later, Receipt::Replaced { .. });
        let text = if replaced { "3" } else { "1" };
        assert_eq!(kit.view(id).await.job.payload.as_str(), text, "{policy:?}");
    }
    let worker = kit.worker().await;
    assert_eq!(kit.take(worker, 99).await.jobs.len(), OnDuplicate::ALL.len());
}

async fn answers_of_a_mixed_batch_stand_in_its_order(kit: &Kit) {
    let held = kit.put(unfinished("m", OnDuplicate::Reject)).await;
    let batch = vec![
        unfinished("z", OnDuplicate::Reject),
        job("plain"),
        unfinished("m", OnDuplicate::Reject),
        unfinished("a", OnDuplicate::Reject),
        job("plain"),
        unfinished("m", OnDuplicate::Join),
        unfinished("z", OnDuplicate::Join),
    ];
    let sent: Vec<_> = batch.iter().map(|job| job.id).collect();
    let receipts = kit.store.enqueue(batch).await.unwrap();
    let enqueued = |at: usize| Receipt::Enqueued { id: sent[at] };
    let expected = [
        enqueued(0),
        enqueued(1),
        Receipt::Rejected { id: held },
        enqueued(3),
        enqueued(4),
        Receipt::Joined { id: held },
        Receipt::Joined { id: sent[0] },
    ];
    assert_eq!(receipts, expected);
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 5);
}

async fn a_large_batch_of_keys_is_taken(kit: &Kit) {
    let keyed = |n: usize| unfinished(&(n % 1000).to_string(), OnDuplicate::Reject);
    let receipts = kit.store.enqueue((0..2000).map(keyed).collect()).await.unwrap();
    assert!(receipts[..1000].iter().all(Receipt::is_new));
    let first: Vec<_> = receipts[..1000].iter().map(Receipt::id).collect();
    for (receipt, id) in receipts[1000..].iter().zip(first) {
        assert_eq!(*receipt, Receipt::Rejected { id });
    }
    let worker = kit.worker().await;
    assert_eq!(kit.take(worker, 5000).await.jobs.len(), 1000);
}

/// Fifty callers of two processes, with one job each, at the same time.
async fn fifty(kit: &Kit, job: impl Fn() -> NewJob) -> Vec<Receipt> {
    let other = kit.neighbour().await;
    let calls: Vec<_> = (0..50)
        .map(|n| {
            let store = Arc::clone(if n % 2 == 0 { &kit.store } else { &other });
            let job = job();
            tokio::spawn(async move { store.enqueue(vec![job]).await.unwrap()[0].clone() })
        })
        .collect();
    let mut receipts = Vec::new();
    for call in calls {
        receipts.push(call.await.unwrap());
    }
    other.close().await;
    receipts
}

async fn of_fifty_callers_one_wins(kit: &Kit) {
    for policy in OnDuplicate::ALL {
        let receipts = fifty(kit, || unfinished(policy.word(), policy)).await;
        assert_eq!(receipts.iter().filter(|receipt| receipt.is_new()).count(), 1, "{policy:?}");
        let stand: HashSet<_> = receipts.iter().map(Receipt::id).collect();
        assert_eq!(stand.len(), 1, "{policy:?}: all are answered with the same job");
    }
    let worker = kit.worker().await;
    assert_eq!(kit.take(worker, 500).await.jobs.len(), OnDuplicate::ALL.len());
}

async fn of_fifty_callers_one_is_kept(kit: &Kit) {
    let more = || unfinished("u", OnDuplicate::RunOnceMore);
    kit.put(more()).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    let receipts = fifty(kit, more).await;
    let kept: Vec<_> = receipts.iter().filter(|receipt| receipt.is_new()).collect();
    assert_eq!(kept.len(), 1);
    assert!(receipts.iter().all(|receipt| receipt.id() == kept[0].id()));
    kit.settle(worker, &claim, done()).await;
    assert_eq!(ids(&kit.take(worker, 99).await), [kept[0].id()]);
}

async fn opposite_batches_do_not_block_each_other(kit: &Kit) {
    let other = kit.neighbour().await;
    for round in 0..10 {
        let key = |n: usize| unfinished(&format!("{round}-{n}"), OnDuplicate::Join);
        let up: Vec<_> = (0..40).map(key).collect();
        let down: Vec<_> = (0..40).rev().map(key).collect();
        let (up, down) = tokio::join!(kit.store.enqueue(up), other.enqueue(down));
        let new = up.unwrap().into_iter().chain(down.unwrap()).filter(Receipt::is_new).count();
        assert_eq!(new, 40);
    }
    other.close().await;
}

async fn a_key_outlives_its_job(kit: &Kit) {
    for (key, scope) in [("f", Scope::Forever), ("p", Scope::Period(HOUR))] {
        let job = |policy| with_payload(unique(key, scope, policy), "\"body\"");
        let output = json("\"result\"");
        let how = Settlement::Done { output: output.clone(), follow_ups: Vec::new() };
        let id = kit.finish(job(OnDuplicate::Join), how).await;
        kit.clock.advance(SECOND);
        kit.store.purge(&[id]).await.unwrap();
        assert_eq!(kit.enqueue(job(OnDuplicate::Reject)).await, Receipt::Rejected { id });
        assert_eq!(kit.enqueue(job(OnDuplicate::Join)).await, Receipt::Joined { id });
        let view = kit.view(id).await;
        assert_eq!((view.state, view.output), (State::Done, Some(output)), "{key}");
        assert_eq!(view.job.payload, Payload::null(), "the body is gone");
        kit.store.purge(&[id]).await.unwrap();
        assert_eq!(kit.enqueue(job(OnDuplicate::Join)).await, Receipt::Joined { id });
    }
}

async fn a_dead_holder_of_a_lasting_key_still_holds_it(kit: &Kit) {
    let job = || unique("u", Scope::Forever, OnDuplicate::Reject);
    let id = kit.finish(job(), dead("x")).await;
    kit.store.purge(&[id]).await.unwrap();
    assert_eq!(kit.enqueue(job()).await, Receipt::Rejected { id });
    assert!(kit.store.dead(&DeadFilter::default(), None, 9).await.unwrap().is_empty());
}

async fn a_result_goes_when_its_period_is_over(kit: &Kit) {
    let job = || unique("u", Scope::Period(HOUR), OnDuplicate::Join);
    let id = kit.finish(job(), done()).await;
    kit.store.purge(&[id]).await.unwrap();
    assert!(kit.store.job(id).await.unwrap().is_some());
    kit.clock.advance(HOUR);
    // As the sweep does: whatever is still listed is offered again.
    for _ in 0..2 {
        let page = kit.store.finished_after(None, 10).await.unwrap();
        let page: Vec<_> = page.into_iter().map(|job| job.id).collect();
        kit.store.purge(&page).await.unwrap();
    }
    assert_eq!(kit.store.job(id).await.unwrap(), None);
    kit.put(job()).await;
}

async fn a_purged_job_without_a_key_is_gone(kit: &Kit) {
    let plain = kit.finish(job("k"), done()).await;
    let keyed = kit.finish(unfinished("u", OnDuplicate::Join), done()).await;
    assert_eq!(kit.store.purge(&[plain, keyed]).await.unwrap(), 2);
    for id in [plain, keyed] {
        assert_eq!(kit.store.job(id).await.unwrap(), None, "its key was free already");
    }
}
