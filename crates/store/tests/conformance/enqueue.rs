//! Enqueue: what was answered is there, once, in its order, and waits for its time.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tidemill_core::{Due, JobId, NewJob, Priority, State};
use tidemill_store::Receipt;

use super::kit::{HOUR, Kit, SECOND, ask, done, hears, ids, item, job, json, ready};

over_both_stores!(
    one_job_is_ready_at_once,
    no_jobs_are_no_trouble,
    ten_thousand_jobs_in_one_call_are_all_there,
    an_id_sent_again_writes_nothing,
    an_id_twice_in_one_batch_is_one_job,
    an_id_sent_again_never_revives_a_finished_job,
    concurrent_single_enqueues_are_all_kept,
    bands_come_in_the_order_of_the_lanes,
    due_time_decides_then_age,
    a_delayed_job_waits_for_the_clock,
    a_due_time_in_the_past_runs_now,
    a_far_due_time_is_kept,
    every_queue_that_got_a_job_is_hinted,
);

async fn one_job_is_ready_at_once(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let view = kit.view(id).await;
    assert_eq!((view.state, view.attempt, view.lost), (State::Ready, 0, 0));
    assert_eq!(view.due_at, Some(kit.clock.now()));
    assert_eq!(view.job.created_at, kit.clock.now());
    assert_eq!(kit.store.now().await.unwrap(), kit.clock.now());
}

async fn no_jobs_are_no_trouble(kit: &Kit) {
    assert_eq!(kit.store.enqueue(Vec::new()).await.unwrap(), []);
}

async fn ten_thousand_jobs_in_one_call_are_all_there(kit: &Kit) {
    let numbered = |n: u32| NewJob { payload: json(&n.to_string()), ..job("k") };
    let jobs: Vec<_> = (0..10_000).map(numbered).collect();
    let sent: Vec<_> = jobs.iter().map(|job| job.id).collect();
    let receipts = kit.store.enqueue(jobs).await.unwrap();
    assert!(receipts.iter().zip(&sent).all(|(got, id)| *got == Receipt::Enqueued { id: *id }));
    assert_eq!(receipts.len(), 10_000);
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 10_000);

    let worker = kit.worker().await;
    let mut taken = Vec::new();
    while taken.len() < 10_000 {
        let claim = kit.take(worker, 3_000).await;
        assert!(!claim.jobs.is_empty(), "only {} of 10,000 came", taken.len());
        for one in &claim.jobs {
            let at = taken.len();
            assert_eq!(one.job.payload.as_str(), at.to_string(), "each has its own payload");
            taken.push(one.job.id);
        }
    }
    assert_eq!(taken, sent, "and they come in their order");
}

async fn an_id_sent_again_writes_nothing(kit: &Kit) {
    let first = NewJob { payload: json("1"), ..job("k") };
    let again = NewJob { payload: json("2"), queue: "other".into(), ..first.clone() };
    let id = kit.put(first).await;
    assert_eq!(kit.enqueue(again.clone()).await, Receipt::Enqueued { id });
    let receipts = kit.store.enqueue(vec![job("k"), again, job("k")]).await.unwrap();
    assert_eq!(receipts[1], Receipt::Enqueued { id });
    assert_eq!(kit.view(id).await.job.payload.as_str(), "1");
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 3, "the others of the batch are in");
    let worker = kit.worker().await;
    assert_eq!(kit.take(worker, 10).await.jobs.len(), 3);
    assert!(kit.store.claim(ask(worker, "other", 10)).await.unwrap().jobs.is_empty());
}

async fn an_id_twice_in_one_batch_is_one_job(kit: &Kit) {
    let twice = job("k");
    let id = twice.id;
    let receipts = kit.store.enqueue(vec![twice.clone(), job("k"), twice]).await.unwrap();
    assert_eq!(receipts[0], Receipt::Enqueued { id });
    assert_eq!(receipts[2], Receipt::Enqueued { id });
    let worker = kit.worker().await;
    assert_eq!(kit.take(worker, 10).await.jobs.len(), 2);
}

async fn an_id_sent_again_never_revives_a_finished_job(kit: &Kit) {
    let first = job("k");
    let id = kit.finish(first.clone(), done()).await;
    assert_eq!(kit.enqueue(first).await, Receipt::Enqueued { id });
    assert_eq!(kit.state(id).await, State::Done);
    let worker = kit.worker().await;
    assert!(kit.take(worker, 10).await.jobs.is_empty());
}

async fn concurrent_single_enqueues_are_all_kept(kit: &Kit) {
    let other = kit.neighbour().await;
    let calls: Vec<_> = (0..200)
        .map(|n| {
            let store = Arc::clone(if n % 2 == 0 { &kit.store } else { &other });
            tokio::spawn(async move { store.enqueue(vec![job("k")]).await.unwrap()[0].id() })
        })
        .collect();
    let mut sent = HashSet::new();
    for call in calls {
        sent.insert(call.await.unwrap());
    }
    let worker = kit.worker().await;
    let taken: HashSet<JobId> = ids(&kit.take(worker, 500).await).into_iter().collect();
    assert_eq!(taken, sent);
    assert_eq!(taken.len(), 200);
    other.close().await;
}

async fn bands_come_in_the_order_of_the_lanes(kit: &Kit) {
    let mut sent = Vec::new();
    for priority in [Priority::Low, Priority::Urgent, Priority::Normal, Priority::High] {
        sent.push((priority, kit.put(NewJob { priority, ..job("k") }).await));
    }
    sent.sort();
    let worker = kit.worker().await;
    let claim = kit.take(worker, 10).await;
    assert_eq!(ids(&claim), sent.iter().map(|(_, id)| *id).collect::<Vec<_>>());

    let low = kit.put(NewJob { priority: Priority::Low, ..job("k") }).await;
    let urgent = kit.put(NewJob { priority: Priority::Urgent, ..job("k") }).await;
    let mut upside_down = ask(worker, "default", 10);
    upside_down.lanes.reverse();
    assert_eq!(ids(&kit.store.claim(upside_down).await.unwrap()), [low, urgent]);
}

async fn due_time_decides_then_age(kit: &Kit) {
    let in_seconds = |s| NewJob { due: Due::In(Duration::from_secs(s)), ..job("k") };
    let batch = vec![in_seconds(3), in_seconds(1), in_seconds(2), in_seconds(1)];
    let sent: Vec<_> = batch.iter().map(|job| job.id).collect();
    kit.store.enqueue(batch).await.unwrap();
    let younger = kit.put(in_seconds(1)).await;
    kit.clock.advance(HOUR);
    let worker = kit.worker().await;
    let order = [sent[1], sent[3], younger, sent[2], sent[0]];
    assert_eq!(ids(&kit.take(worker, 2).await), order[..2]);
    assert_eq!(ids(&kit.take(worker, 10).await), order[2..]);
}

async fn a_delayed_job_waits_for_the_clock(kit: &Kit) {
    let start = kit.clock.now();
    let late = kit.put(NewJob { due: Due::In(HOUR), ..job("k") }).await;
    let soon = kit.put(NewJob { due: Due::At(start + SECOND), ..job("k") }).await;
    let view = kit.view(soon).await;
    assert_eq!((view.state, view.due_at), (State::Scheduled, Some(start + SECOND)));

    let worker = kit.worker().await;
    let claim = kit.take(worker, 10).await;
    assert!(claim.jobs.is_empty() && claim.token.is_none());
    assert_eq!(claim.next_due, Some(start + SECOND));
    kit.clock.advance(SECOND.checked_sub(Duration::from_micros(1)).unwrap());
    assert!(kit.take(worker, 10).await.jobs.is_empty(), "not a microsecond early");
    kit.clock.advance(Duration::from_micros(1));
    assert_eq!(kit.state(soon).await, State::Ready);
    let claim = kit.take(worker, 10).await;
    assert_eq!(ids(&claim), [soon]);
    assert_eq!(claim.jobs[0].due_at, start + SECOND);
    assert_eq!(claim.next_due, Some(start + HOUR));
    kit.clock.advance(HOUR);
    assert_eq!(ids(&kit.take(worker, 10).await), [late]);
}

async fn a_due_time_in_the_past_runs_now(kit: &Kit) {
    let now = kit.clock.now();
    let ordinary = kit.put(job("k")).await;
    let past = now - SignedDuration::from_hours(24 * 365);
    let id = kit.put(NewJob { due: Due::At(past), ..job("k") }).await;
    assert_eq!(kit.view(id).await.due_at, Some(now), "it does not jump the line");
    let worker = kit.worker().await;
    let claim = kit.take(worker, 10).await;
    assert_eq!(ids(&claim), [ordinary, id]);
    kit.store.settle(worker, vec![item(&claim, 1, done())]).await.unwrap();
    assert_eq!(kit.state(id).await, State::Done);
}

async fn a_far_due_time_is_kept(kit: &Kit) {
    let far = kit.clock.now() + SignedDuration::from_hours(24 * 365 * 19);
    let id = kit.put(NewJob { due: Due::At(far), ..job("k") }).await;
    assert_eq!(kit.view(id).await.due_at, Some(far));
}

async fn every_queue_that_got_a_job_is_hinted(kit: &Kit) {
    let (mut one, mut two) = (kit.store.wake().listen(), kit.store.wake().listen());
    let in_queue = |queue: &str| NewJob { queue: queue.into(), ..job("k") };
    kit.store.enqueue(vec![in_queue("a"), in_queue("b"), in_queue("a")]).await.unwrap();
    hears(&mut one, |hint| *hint == ready("a")).await;
    hears(&mut two, |hint| *hint == ready("b")).await;
}
