//! Order: jobs of one queue, tenant and key start one after the other, whatever comes between.

use tidemill_core::{Due, JobId, NewJob, OnDead, State};
use tidemill_store::{Hint, JobFilter, Receipt, Settled};

use super::kit::{
    HOUR, Kit, SECOND, TTL, ask, cancelled, dead, done, hears, ids, item, job, ordered, ready,
    retry,
};

over_both_stores!(
    one_at_a_time_in_the_order_of_enqueue,
    other_keys_queues_and_plain_jobs_do_not_wait,
    a_retry_and_a_snooze_keep_their_place,
    a_lost_worker_keeps_the_place_of_its_job,
    a_stopped_worker_keeps_the_place_of_its_job,
    the_next_waits_for_its_own_time_as_well,
    the_first_holds_up_the_others_while_it_waits_for_the_clock,
    a_blocked_job_cannot_be_run_now,
    blocked_jobs_are_seen,
    the_place_in_line_is_known,
    sent_again_it_keeps_its_place,
    follow_ups_take_their_turn,
    the_next_is_told_of,
    order_without_a_key_is_no_order_for_a_store,
);

/// Three of one line.
pub async fn three(kit: &Kit, on_dead: OnDead) -> [JobId; 3] {
    let jobs = [(); 3].map(|()| ordered("order:42", on_dead));
    let ids = [jobs[0].id, jobs[1].id, jobs[2].id];
    for job in jobs {
        kit.put(job).await;
    }
    ids
}

/// Where each of them stands.
pub async fn states<const N: usize>(kit: &Kit, ids: [JobId; N]) -> Vec<State> {
    let mut states = Vec::new();
    for id in ids {
        states.push(kit.state(id).await);
    }
    states
}

async fn one_at_a_time_in_the_order_of_enqueue(kit: &Kit) {
    let all = three(kit, OnDead::Block).await;
    assert_eq!(states(kit, all).await, [State::Ready, State::Blocked, State::Blocked]);
    let worker = kit.worker().await;
    for id in all {
        let claim = kit.take(worker, 9).await;
        assert_eq!(ids(&claim), [id], "it alone");
        assert!(kit.take(worker, 9).await.jobs.is_empty(), "nothing else while it runs");
        assert_eq!(kit.settle(worker, &claim, done()).await, Settled::Accepted);
    }
    assert_eq!(states(kit, all).await, [State::Done; 3]);
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 0);
    // The line is empty and begins anew.
    kit.finish(ordered("order:42", OnDead::Block), done()).await;
}

async fn other_keys_queues_and_plain_jobs_do_not_wait(kit: &Kit) {
    let [first, ..] = three(kit, OnDead::Block).await;
    let other = kit.put(ordered("order:43", OnDead::Block)).await;
    let plain = kit.put(NewJob { key: Some("order:42".into()), ..job("k") }).await;
    let elsewhere = NewJob { queue: "mail".into(), ..ordered("order:42", OnDead::Block) };
    let elsewhere = kit.put(elsewhere).await;
    let worker = kit.worker().await;
    let mut started = ids(&kit.take(worker, 9).await);
    started.sort_unstable();
    assert_eq!(started, [first, other, plain]);
    let claim = kit.store.claim(ask(worker, "mail", 9)).await.unwrap();
    assert_eq!(ids(&claim), [elsewhere], "a line is of one queue");
}

async fn a_retry_and_a_snooze_keep_their_place(kit: &Kit) {
    let [first, second, _] = three(kit, OnDead::Skip).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    kit.settle(worker, &claim, retry(HOUR, 1)).await;
    assert!(kit.take(worker, 9).await.jobs.is_empty(), "they wait for the retry");
    kit.clock.advance(HOUR);
    kit.store.beat(worker).await.unwrap();
    let claim = kit.take_one(worker).await;
    assert_eq!(ids(&claim), [first]);
    let snooze = tidemill_core::Settlement::Again { delay: SECOND, spent: 1, failure: None };
    kit.settle(worker, &claim, snooze).await;
    kit.clock.advance(SECOND);
    let claim = kit.take(worker, 9).await;
    assert_eq!(ids(&claim), [first]);
    kit.settle(worker, &claim, done()).await;
    assert_eq!(ids(&kit.take(worker, 9).await), [second]);
}

async fn a_lost_worker_keeps_the_place_of_its_job(kit: &Kit) {
    let [first, second, third] = three(kit, OnDead::Block).await;
    let worker = kit.worker().await;
    let lost = kit.take_one(worker).await;
    assert_eq!(kit.lose_workers().await.ready, 1);
    assert_eq!(states(kit, [first, second, third]).await[1..], [State::Blocked; 2]);
    let worker = kit.worker().await;
    let claim = kit.take(worker, 9).await;
    assert_eq!(ids(&claim), [first]);
    // The lost one comes late: it changes nothing, and lets nobody pass.
    assert_eq!(kit.settle(worker, &lost, done()).await, Settled::Stale);
    assert!(kit.take(worker, 9).await.jobs.is_empty());
    kit.settle(worker, &claim, done()).await;
    assert_eq!(ids(&kit.take(worker, 9).await), [second]);
}

async fn a_stopped_worker_keeps_the_place_of_its_job(kit: &Kit) {
    let [first, ..] = three(kit, OnDead::Block).await;
    let worker = kit.worker().await;
    kit.take_one(worker).await;
    assert_eq!(kit.store.deregister(worker).await.unwrap().ready, 1);
    let worker = kit.worker().await;
    assert_eq!(ids(&kit.take(worker, 9).await), [first]);
}

async fn the_next_waits_for_its_own_time_as_well(kit: &Kit) {
    kit.put(ordered("a", OnDead::Block)).await;
    let later = kit.put(NewJob { due: Due::In(HOUR), ..ordered("a", OnDead::Block) }).await;
    let soon = kit.put(NewJob { due: Due::In(SECOND), ..ordered("a", OnDead::Block) }).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    kit.settle(worker, &claim, done()).await;
    let view = kit.view(later).await;
    assert_eq!((view.state, view.due_at), (State::Scheduled, Some(view.job.created_at + HOUR)));
    kit.clock.advance(HOUR);
    kit.store.beat(worker).await.unwrap();
    let claim = kit.take_one(worker).await;
    assert_eq!(ids(&claim), [later], "order goes before time");
    kit.settle(worker, &claim, done()).await;
    let now = kit.store.now().await.unwrap();
    assert_eq!(kit.view(soon).await.due_at, Some(now), "its own time has passed");
    assert_eq!(ids(&kit.take(worker, 9).await), [soon]);
}

async fn the_first_holds_up_the_others_while_it_waits_for_the_clock(kit: &Kit) {
    let first = kit.put(NewJob { due: Due::In(HOUR), ..ordered("a", OnDead::Block) }).await;
    let second = kit.put(ordered("a", OnDead::Block)).await;
    let worker = kit.worker().await;
    assert!(kit.take(worker, 9).await.jobs.is_empty());
    assert!(kit.store.run_now(first).await.unwrap());
    let claim = kit.take(worker, 9).await;
    assert_eq!(ids(&claim), [first]);
    kit.settle(worker, &claim, done()).await;
    assert_eq!(ids(&kit.take(worker, 9).await), [second]);
}

async fn a_blocked_job_cannot_be_run_now(kit: &Kit) {
    let [first, second, _] = three(kit, OnDead::Block).await;
    assert!(!kit.store.run_now(second).await.unwrap());
    let later = NewJob { due: Due::In(HOUR), ..ordered("order:42", OnDead::Block) };
    let later = kit.put(later).await;
    assert!(!kit.store.run_now(later).await.unwrap());
    let worker = kit.worker().await;
    assert_eq!(ids(&kit.take(worker, 9).await), [first]);
}

async fn blocked_jobs_are_seen(kit: &Kit) {
    let [_, second, third] = three(kit, OnDead::Block).await;
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 3);
    let filter = JobFilter { state: Some(State::Blocked), ..JobFilter::default() };
    let blocked = kit.store.jobs(&filter).await.unwrap().jobs;
    let blocked: Vec<_> = blocked.iter().map(|view| view.job.id).collect();
    assert_eq!(blocked, [third, second], "newest first");
    let filter = JobFilter { key: Some("order:1".into()), ..filter };
    assert!(kit.store.jobs(&filter).await.unwrap().jobs.is_empty());
}

async fn the_place_in_line_is_known(kit: &Kit) {
    let [first, second, third] = three(kit, OnDead::Block).await;
    let place = async |id| kit.store.line(id).await.unwrap();
    assert_eq!(place(first).await, None, "nobody is before it");
    let line = place(third).await.unwrap();
    assert_eq!((&*line.key, line.ahead, line.head, line.dead), ("order:42", 2, first, false));
    kit.run_to(first, done()).await;
    assert_eq!(place(third).await.unwrap().head, second);
    kit.run_to(second, dead("no")).await;
    let line = place(third).await.unwrap();
    assert_eq!((line.ahead, line.head, line.dead), (1, second, true));
}

async fn sent_again_it_keeps_its_place(kit: &Kit) {
    let jobs = [(); 3].map(|()| ordered("a", OnDead::Block));
    let receipts = kit.store.enqueue(jobs.to_vec()).await.unwrap();
    for _ in 0..2 {
        assert_eq!(kit.store.enqueue(jobs.to_vec()).await.unwrap(), receipts);
        assert_eq!(kit.enqueue(jobs[1].clone()).await, receipts[1]);
    }
    for job in &jobs {
        kit.run_to(job.id, done()).await;
    }
    assert_eq!(kit.enqueue(jobs[1].clone()).await, Receipt::Enqueued { id: jobs[1].id });
    assert_eq!(kit.state(jobs[1].id).await, State::Done);
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 0);
}

async fn follow_ups_take_their_turn(kit: &Kit) {
    let [first, second, third] = three(kit, OnDead::Block).await;
    let follow_ups = vec![ordered("order:42", OnDead::Block), ordered("new", OnDead::Block)];
    let [last, other] = [follow_ups[0].id, follow_ups[1].id];
    let end =
        tidemill_core::Settlement::Done { output: tidemill_core::Payload::null(), follow_ups };
    kit.run_to(first, end).await;
    assert_eq!(kit.state(other).await, State::Ready, "alone in its line");
    let worker = kit.worker().await;
    let claim = kit.take(worker, 9).await;
    assert_eq!(claim.jobs.len(), 2);
    assert!(ids(&claim).contains(&second) && ids(&claim).contains(&other));
    let items = vec![item(&claim, 0, done()), item(&claim, 1, cancelled("x"))];
    kit.store.settle(worker, items).await.unwrap();
    kit.run_to(third, done()).await;
    kit.run_to(last, done()).await;
}

async fn the_next_is_told_of(kit: &Kit) {
    let [first, second, _] = three(kit, OnDead::Block).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    assert_eq!(ids(&claim), [first]);
    let mut heard = kit.store.wake().listen();
    kit.settle(worker, &claim, done()).await;
    hears(&mut heard, |hint: &Hint| *hint == ready("default")).await;
    assert_eq!(kit.state(second).await, State::Ready);
    kit.clock.advance(TTL);
}

async fn order_without_a_key_is_no_order_for_a_store(kit: &Kit) {
    // Every way in refuses it; whatever comes in all the same must not be stuck.
    let lone = || NewJob { key: None, ..ordered("", OnDead::Block) };
    let all = [kit.put(lone()).await, kit.put(lone()).await];
    let worker = kit.worker().await;
    let claim = kit.take(worker, 9).await;
    assert_eq!(ids(&claim), all);
    kit.store
        .settle(worker, vec![item(&claim, 0, done()), item(&claim, 1, dead("x"))])
        .await
        .unwrap();
}
