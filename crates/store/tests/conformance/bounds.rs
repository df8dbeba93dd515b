//! Bounded queues: what each policy does with a job for which there is no room, by every way in.

use std::time::Duration;

use tidemill_core::flow::Plan;
use tidemill_core::gate::Per;
use tidemill_core::retention::Retention;
use tidemill_core::{
    Due, JobId, Limits, NewJob, OnDead, OnDuplicate, Options, Overflow, Payload, Priority,
    QueueRules, Scope, Settlement, State,
};
use tidemill_store::flow::{FlowAnswer, Start};
use tidemill_store::run::{Room, Signal};
use tidemill_store::{Error, Full, JobPlace, Receipt};
use tidemill_testkit::eventually::eventually;
use tokio::task::JoinSet;

use super::depth::{depth, is_exact};
use super::flows::{flow_of, many, step};
use super::kit::{HOUR, Kit, SECOND, ask, dead, item, job, retry, unique};
use super::limits::{at_once, of_key, take};
use super::plain_sql::run;

over_both_stores!(
    a_full_queue_rejects_and_says_when_to_try_again,
    room_is_there_again_when_jobs_leave,
    a_batch_fits_wholly_or_not_at_all,
    a_batch_that_never_fits_is_told_so,
    a_job_sent_again_is_not_refused,
    duplicates_need_no_room,
    many_at_once_do_not_pass_the_bound_for_long,
    what_the_system_writes_is_never_refused,
    other_queues_are_not_touched,
    a_pattern_bounds_each_of_its_queues_and_the_name_goes_first,
    a_bound_holds_everywhere_and_goes_when_it_is_taken_away,
    the_oldest_of_the_lowest_band_is_dropped,
    higher_bands_are_dropped_where_lower_ones_are_not_enough,
    nothing_is_dropped_for_a_lower_band,
    a_batch_drops_what_is_older_and_nothing_of_its_own,
    a_batch_drops_nothing_that_it_has_replaced,
    what_is_held_at_a_gate_is_dropped_by_its_age,
    running_jobs_are_not_dropped,
    a_dropped_job_frees_its_key,
    a_full_queue_diverts_once,
    jobs_that_take_turns_are_neither_diverted_nor_dropped,
    workflows_and_the_children_they_wait_for_are_not_dropped,
    what_waits_is_told_for_how_long_it_may,
    plain_sql_meets_the_same_bounds,
    a_flow_is_judged_by_what_writes_it,
    flows_that_start_at_once_are_judged_one_by_one,
    a_flow_that_was_built_in_parts_is_judged_when_it_begins,
);

pub async fn bound(kit: &Kit, queue: &str, depth_max: u64, overflow: Overflow) {
    let rules = QueueRules { depth_max: Some(depth_max), overflow, ..QueueRules::default() };
    rules.check_for(queue).unwrap();
    assert!(kit.store.set_queue(queue, Some(rules)).await.unwrap());
}

async fn fill(kit: &Kit, jobs: usize) {
    kit.store.enqueue((0..jobs).map(|_| job("k")).collect()).await.unwrap();
}

async fn refused(kit: &Kit, jobs: Vec<NewJob>) -> Full {
    let count = jobs.len();
    match kit.store.enqueue(jobs).await {
        Err(Error::QueueFull(full)) => full,
        other => panic!("{count} jobs are refused, not {other:?}"),
    }
}

async fn a_full_queue_rejects_and_says_when_to_try_again(kit: &Kit) {
    bound(kit, "default", 3, Overflow::Reject).await;
    fill(kit, 3).await;
    let full = refused(kit, vec![job("k")]).await;
    assert_eq!((full.queue.as_str(), full.depth, full.depth_max, full.jobs), ("default", 3, 3, 1));
    let after = full.retry_after().unwrap();
    assert!((Duration::from_secs(1)..=Duration::from_mins(1)).contains(&after), "{after:?}");
    assert_eq!(Error::QueueFull(full).code(), "queue_full");
    let worker = kit.worker().await;
    depth(kit, "default").await;
    kit.clock.advance(10 * SECOND);
    assert_eq!(kit.take(worker, 2).await.jobs.len(), 2);
    fill(kit, 2).await;
    let full = refused(kit, vec![job("k"), job("k")]).await;
    assert_eq!(full.retry_after(), Some(Duration::from_secs(10)), "two went in ten seconds");
    is_exact(&kit.store).await;
}

async fn room_is_there_again_when_jobs_leave(kit: &Kit) {
    bound(kit, "default", 2, Overflow::Reject).await;
    fill(kit, 2).await;
    let worker = kit.worker().await;
    refused(kit, vec![job("k")]).await;
    kit.take_one(worker).await;
    let last = kit.put(job("k")).await;
    refused(kit, vec![job("k")]).await;
    kit.store.cancel(vec![last], "no").await.unwrap();
    kit.put(NewJob { due: Due::In(HOUR), ..job("k") }).await;
    refused(kit, vec![job("k")]).await;
}

async fn a_batch_fits_wholly_or_not_at_all(kit: &Kit) {
    bound(kit, "default", 10, Overflow::Reject).await;
    fill(kit, 4).await;
    let mixed: Vec<_> =
        (0..7).map(|_| job("k")).chain([NewJob { queue: "free".into(), ..job("k") }]).collect();
    let full = refused(kit, mixed).await;
    assert_eq!((full.depth, full.jobs), (4, 7));
    assert_eq!((depth(kit, "default").await.depth(), depth(kit, "free").await.depth()), (4, 0));
    fill(kit, 6).await;
    is_exact(&kit.store).await;
}

async fn a_batch_that_never_fits_is_told_so(kit: &Kit) {
    for overflow in [Overflow::Reject, Overflow::DropOldest] {
        bound(kit, "default", 10, overflow).await;
        let full = refused(kit, (0..11).map(|_| job("k")).collect()).await;
        assert_eq!(full.retry_after(), None);
        assert!(full.to_string().contains("never fits"), "{full}");
    }
}

async fn a_job_sent_again_is_not_refused(kit: &Kit) {
    bound(kit, "default", 1, Overflow::Reject).await;
    let sent = job("k");
    kit.put(sent.clone()).await;
    kit.put(sent).await;
    refused(kit, vec![job("k")]).await;
    assert_eq!(depth(kit, "default").await.depth(), 1);
}

async fn duplicates_need_no_room(kit: &Kit) {
    bound(kit, "default", 2, Overflow::Reject).await;
    let keyed = |policy| unique("u", Scope::Unfinished, policy);
    let id = kit.put(keyed(OnDuplicate::Reject)).await;
    fill(kit, 1).await;
    assert_eq!(kit.enqueue(keyed(OnDuplicate::Reject)).await, Receipt::Rejected { id });
    assert_eq!(kit.enqueue(keyed(OnDuplicate::Join)).await, Receipt::Joined { id });
    assert_eq!(kit.enqueue(keyed(OnDuplicate::Replace)).await, Receipt::Replaced { id });
    let other = unique("v", Scope::Unfinished, OnDuplicate::Join);
    refused(kit, vec![keyed(OnDuplicate::Join), other]).await;
    is_exact(&kit.store).await;
}

async fn many_at_once_do_not_pass_the_bound_for_long(kit: &Kit) {
    bound(kit, "default", 20, Overflow::Reject).await;
    let calls = (0..60).map(|_| kit.store.enqueue(vec![job("k")]));
    let answers = futures::future::join_all(calls).await;
    let taken = answers.iter().filter(|answer| answer.is_ok()).count();
    let there = depth(kit, "default").await.depth();
    assert_eq!(taken as u64, there, "who was told yes is in");
    // SQLite has one writer. Postgres may pass by what two commits of one process carry at once.
    let passes = if kit.store.backend() == "sqlite" { 0 } else { 60 };
    assert!((20..=20 + passes).contains(&there), "{there}");
    refused(kit, vec![job("k")]).await;
    is_exact(&kit.store).await;
}

async fn what_the_system_writes_is_never_refused(kit: &Kit) {
    bound(kit, "default", 2, Overflow::Reject).await;
    fill(kit, 2).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 2).await;
    fill(kit, 2).await;
    let follow_ups = vec![job("k"), unique("f", Scope::Unfinished, OnDuplicate::Join)];
    let done = Settlement::Done { output: Payload::null(), follow_ups };
    let items = vec![item(&claim, 0, retry(SECOND, 1)), item(&claim, 1, done)];
    kit.store.settle(worker, items).await.unwrap();
    assert_eq!(depth(kit, "default").await.depth(), 5, "a retry and two that follow");
    let claim = kit.take(worker, 1).await;
    kit.settle(worker, &claim, dead("it broke")).await;
    kit.store.dead_replay(&[claim.jobs[0].job.id], "ada".into(), None).await.unwrap();
    kit.take(worker, 2).await;
    kit.lose_workers().await;
    assert_eq!(depth(kit, "default").await.depth(), 5, "replayed and rescued");
    refused(kit, vec![job("k")]).await;
    is_exact(&kit.store).await;
}

async fn other_queues_are_not_touched(kit: &Kit) {
    bound(kit, "default", 1, Overflow::DropOldest).await;
    let elsewhere = kit.put(NewJob { queue: "free".into(), ..job("k") }).await;
    fill(kit, 1).await;
    fill(kit, 1).await;
    for _ in 0..3 {
        kit.put(NewJob { queue: "free".into(), ..job("k") }).await;
    }
    assert_eq!(kit.state(elsewhere).await, State::Ready);
    assert_eq!(depth(kit, "free").await.depth(), 4);
}

async fn a_pattern_bounds_each_of_its_queues_and_the_name_goes_first(kit: &Kit) {
    bound(kit, "mail:*", 1, Overflow::Reject).await;
    kit.store.set_queue("mail:free", Some(QueueRules::default())).await.unwrap();
    let mail = |queue: &str| NewJob { queue: queue.into(), ..job("k") };
    for queue in ["mail:a", "mail:b", "mail:free", "mail:free"] {
        kit.put(mail(queue)).await;
    }
    assert_eq!(refused(kit, vec![mail("mail:a")]).await.queue, "mail:a");
    assert_eq!(refused(kit, vec![mail("mail:free"), mail("mail:b")]).await.queue, "mail:b");
}

async fn a_bound_holds_everywhere_and_goes_when_it_is_taken_away(kit: &Kit) {
    let other = kit.neighbour().await;
    fill(kit, 3).await;
    other.enqueue(vec![job("k")]).await.unwrap();
    bound(kit, "default", 2, Overflow::Reject).await;
    refused(kit, vec![job("k")]).await;
    eventually("another process to refuse too", HOUR, async || {
        other.enqueue(vec![job("k")]).await.err().map(drop)
    })
    .await;
    kit.store.set_queue("default", None).await.unwrap();
    other.enqueue(vec![job("k")]).await.unwrap();
    kit.put(job("k")).await;
    other.close().await;
}

async fn the_oldest_of_the_lowest_band_is_dropped(kit: &Kit) {
    bound(kit, "default", 4, Overflow::DropOldest).await;
    let put = async |priority, tenant: Option<&str>| {
        kit.clock.advance(SECOND);
        kit.put(NewJob { priority, tenant: tenant.map(str::to_owned), ..job("k") }).await
    };
    let high = put(Priority::High, None).await;
    let normal = put(Priority::Normal, None).await;
    let first = put(Priority::Low, Some("b")).await;
    let second = put(Priority::Low, None).await;
    put(Priority::Low, Some("a")).await;
    assert_eq!(kit.state(first).await, State::Cancelled);
    assert_eq!(
        kit.view(first).await.error.unwrap(),
        "dropped: the queue was full, and newer jobs came"
    );
    assert_eq!(kit.state(second).await, State::Ready);
    kit.clock.advance(SECOND);
    kit.store.enqueue((0..2).map(|_| job("k")).collect()).await.unwrap();
    assert_eq!(kit.state(second).await, State::Cancelled);
    put(Priority::Urgent, None).await;
    assert_eq!(kit.state(normal).await, State::Cancelled, "the lowest there is");
    assert_eq!(kit.state(high).await, State::Ready);
    let seen = depth(kit, "default").await;
    assert_eq!((seen.now.came, seen.now.went), (4, 0), "what is dropped was not worked off");
    is_exact(&kit.store).await;
}

async fn higher_bands_are_dropped_where_lower_ones_are_not_enough(kit: &Kit) {
    let put = async |job: NewJob| {
        kit.clock.advance(SECOND);
        kit.put(job).await
    };
    let with = |priority| NewJob { priority, ..job("k") };
    let ordered = Options { ordered: Some(OnDead::Block), ..Options::default() };
    let lined = NewJob { key: Some("a".into()), options: ordered, ..with(Priority::Low) };
    // The lowest band has only one that takes turns: the next band gives way.
    bound(kit, "default", 3, Overflow::DropOldest).await;
    let lined = put(lined).await;
    let (first, second) = (put(job("k")).await, put(job("k")).await);
    let third = put(job("k")).await;
    assert_eq!(kit.state(first).await, State::Cancelled);
    for id in [lined, second, third] {
        assert_eq!(kit.state(id).await, State::Ready);
    }
    put(with(Priority::High)).await;
    assert_eq!(kit.state(second).await, State::Cancelled);
    put(with(Priority::High)).await;
    refused(kit, vec![job("k")]).await;
    assert_eq!(depth(kit, "default").await.depth(), 3);
    // The bound is lowered: one newcomer makes all go that is too much, from the lowest band on, or nothing.
    kit.store.set_queue("default", None).await.unwrap();
    let mut old = Vec::new();
    for n in 0..9 {
        let tenant = (n % 2 == 0).then(|| format!("tenant {n}"));
        old.push(put(NewJob { tenant, ..job("k") }).await);
    }
    let low = put(with(Priority::Low)).await;
    bound(kit, "default", 6, Overflow::DropOldest).await;
    // 3 + 9 + 1 wait, and one comes: eight go, of which one is low.
    put(job("k")).await;
    assert_eq!(kit.state(low).await, State::Cancelled);
    for (n, id) in old.iter().enumerate() {
        let expected = if n < 7 { State::Cancelled } else { State::Ready };
        assert_eq!(kit.state(*id).await, expected, "number {n}");
    }
    assert_eq!(depth(kit, "default").await.depth(), 6);
    bound(kit, "default", 2, Overflow::DropOldest).await;
    refused(kit, vec![job("k")]).await;
    assert_eq!(depth(kit, "default").await.depth(), 6, "nothing went for one that was refused");
    is_exact(&kit.store).await;
}

async fn nothing_is_dropped_for_a_lower_band(kit: &Kit) {
    bound(kit, "default", 2, Overflow::DropOldest).await;
    let with = |priority| NewJob { priority, ..job("k") };
    kit.store.enqueue(vec![with(Priority::High), with(Priority::High)]).await.unwrap();
    refused(kit, vec![with(Priority::Normal)]).await;
    kit.put(with(Priority::High)).await;
    assert_eq!(depth(kit, "default").await.depth(), 2);
    is_exact(&kit.store).await;
}

async fn a_batch_drops_what_is_older_and_nothing_of_its_own(kit: &Kit) {
    bound(kit, "default", 2, Overflow::DropOldest).await;
    let with = |priority| NewJob { priority, ..job("k") };
    // It counts as its lowest job, and that one has nobody to make room for it.
    let old = kit.put(job("k")).await;
    kit.clock.advance(SECOND);
    for batch in [[Priority::Low, Priority::High], [Priority::High, Priority::Low]] {
        let full = refused(kit, batch.map(with).into()).await;
        assert_eq!((full.depth, full.jobs), (1, 2), "{batch:?}");
    }
    assert_eq!(kit.state(old).await, State::Ready);
    // What is due later is older all the same; with keys as without.
    let keyed = |key| unique(key, Scope::Unfinished, OnDuplicate::Reject);
    // More than one statement of those that are not judged would take.
    let text = format!("{:?}", "x".repeat(17 * 1024 * 1024));
    let large = || NewJob { payload: Payload::trusted(text.clone()), ..job("k") };
    for batch in [[job("k"), job("k")], [keyed("u"), keyed("v")], [large(), large()]] {
        let later = || NewJob { due: Due::In(HOUR), ..job("k") };
        let former = vec![later(), later()];
        let old: Vec<_> = former.iter().map(|job| job.id).collect();
        kit.store.enqueue(former).await.unwrap();
        let new = batch.each_ref().map(|job| job.id);
        kit.store.enqueue(batch.into()).await.unwrap();
        for id in old {
            assert_eq!(kit.state(id).await, State::Cancelled);
        }
        for id in new {
            assert_eq!(kit.state(id).await, State::Ready);
        }
    }
    assert_eq!(depth(kit, "default").await.depth(), 2);
    let more = vec![keyed("w"), keyed("x"), keyed("y")];
    assert!(refused(kit, more).await.to_string().contains("never fits"));
    is_exact(&kit.store).await;
}

async fn what_is_held_at_a_gate_is_dropped_by_its_age(kit: &Kit) {
    bound(kit, "default", 2, Overflow::DropOldest).await;
    let (worker, limits) = (kit.worker().await, [at_once(Per::Key, 1)]);
    let put = async |job: NewJob| {
        kit.clock.advance(SECOND);
        kit.put(job).await
    };
    put(of_key("a")).await;
    assert_eq!(take(kit, worker, &limits, 1).await.jobs.len(), 1);
    let held = put(of_key("a")).await;
    assert!(take(kit, worker, &limits, 1).await.jobs.is_empty());
    let in_line = put(job("k")).await;
    let newer = put(job("k")).await;
    assert_eq!(kit.state(held).await, State::Cancelled, "the oldest of all");
    for id in [in_line, newer] {
        assert_eq!(kit.state(id).await, State::Ready);
    }
    is_exact(&kit.store).await;
}

async fn a_batch_drops_nothing_that_it_has_replaced(kit: &Kit) {
    bound(kit, "default", 3, Overflow::DropOldest).await;
    let low = |job| NewJob { priority: Priority::Low, ..job };
    let replacing = || low(unique("u", Scope::Unfinished, OnDuplicate::Replace));
    let batch = || vec![job("k"), replacing()];
    let held = kit.put(replacing()).await;
    let high = || NewJob { priority: Priority::High, ..job("k") };
    kit.store.enqueue(vec![high(), high()]).await.unwrap();
    kit.clock.advance(SECOND);
    refused(kit, batch()).await;
    assert_eq!(kit.state(held).await, State::Ready);
    kit.store.set_queue("default", None).await.unwrap();
    bound(kit, "default", 4, Overflow::DropOldest).await;
    let other = kit.put(NewJob { due: Due::In(HOUR), ..low(job("k")) }).await;
    let receipts = kit.store.enqueue(batch()).await.unwrap();
    assert_eq!(receipts[1], Receipt::Replaced { id: held });
    assert_eq!(kit.state(held).await, State::Ready);
    assert_eq!(kit.state(other).await, State::Cancelled);
    is_exact(&kit.store).await;
}

async fn running_jobs_are_not_dropped(kit: &Kit) {
    bound(kit, "default", 1, Overflow::DropOldest).await;
    let runs = kit.put(job("k")).await;
    let worker = kit.worker().await;
    kit.take_one(worker).await;
    let waits = kit.put(job("k")).await;
    kit.clock.advance(SECOND);
    kit.put(job("k")).await;
    assert_eq!(kit.state(runs).await, State::Running);
    assert_eq!(kit.state(waits).await, State::Cancelled);
    is_exact(&kit.store).await;
}

async fn a_dropped_job_frees_its_key(kit: &Kit) {
    bound(kit, "default", 1, Overflow::DropOldest).await;
    let keyed = || unique("u", Scope::Unfinished, OnDuplicate::Reject);
    let first = kit.put(keyed()).await;
    kit.clock.advance(SECOND);
    kit.put(job("k")).await;
    assert_eq!(kit.state(first).await, State::Cancelled);
    kit.clock.advance(SECOND);
    kit.put(keyed()).await;
    is_exact(&kit.store).await;
}

async fn a_full_queue_diverts_once(kit: &Kit) {
    bound(kit, "default", 2, Overflow::Divert { queue: "spill".into() }).await;
    bound(kit, "spill", 2, Overflow::Divert { queue: "never".into() }).await;
    fill(kit, 1).await;
    let (one, other) = (job("k"), NewJob { tenant: Some("ann".into()), ..job("k") });
    let ids = [one.id, other.id];
    kit.store.enqueue(vec![one, other]).await.unwrap();
    for id in ids {
        assert_eq!(kit.view(id).await.job.queue, "spill", "a batch goes one way or the other");
    }
    let fits = kit.put(job("k")).await;
    assert_eq!(kit.view(fits).await.job.queue, "default");
    let asked = vec![ids[0], fits, JobId::new()];
    let queues = kit.store.queues_of(asked).await.unwrap();
    let expected = [(ids[0], "spill"), (fits, "default")].map(|(id, queue)| (id, queue.to_owned()));
    assert_eq!(queues, expected.into());
    let places = kit.store.places_of(vec![ids[1], fits, JobId::new()]).await.unwrap();
    let place = |queue: &str, tenant| JobPlace { queue: queue.to_owned(), tenant };
    let expected = [(ids[1], place("spill", Some("ann".into()))), (fits, place("default", None))];
    assert_eq!(places, expected.into());
    let full = refused(kit, vec![job("k")]).await;
    assert_eq!(full.queue, "spill", "one hop, no more");
    let full = refused(kit, vec![unique("u", Scope::Unfinished, OnDuplicate::Reject)]).await;
    assert_eq!(full.queue, "spill", "with a key or without");
    assert_eq!(depth(kit, "never").await.depth(), 0);
    let worker = kit.worker().await;
    assert_eq!(kit.store.claim(ask(worker, "spill", 9)).await.unwrap().jobs.len(), 2);
    let keyed = kit.put(unique("u", Scope::Unfinished, OnDuplicate::Reject)).await;
    assert_eq!(kit.view(keyed).await.job.queue, "spill");
    is_exact(&kit.store).await;
}

async fn jobs_that_take_turns_are_neither_diverted_nor_dropped(kit: &Kit) {
    let options = Options { ordered: Some(OnDead::Block), ..Options::default() };
    let lined = || NewJob { key: Some("a".into()), options: options.clone(), ..job("k") };
    for overflow in [Overflow::DropOldest, Overflow::Divert { queue: "spill".into() }] {
        kit.store.set_queue("default", None).await.unwrap();
        let jobs = vec![lined(), lined()];
        let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
        kit.store.enqueue(jobs).await.unwrap();
        let there = depth(kit, "default").await.depth();
        bound(kit, "default", there, overflow.clone()).await;
        assert_eq!(refused(kit, vec![lined()]).await.depth, there);
        if overflow == Overflow::DropOldest {
            refused(kit, vec![job("k")]).await;
        }
        for id in ids {
            assert!(matches!(kit.state(id).await, State::Ready | State::Blocked));
        }
    }
    assert_eq!(depth(kit, "spill").await.depth(), 0);
}

/// Nobody would tell the parent, and nobody would undo what the workflow has done.
async fn workflows_and_the_children_they_wait_for_are_not_dropped(kit: &Kit) {
    let run = kit.put(job("k")).await;
    let signal = Signal { to: run, name: "x".into(), payload: Payload::null(), id: None };
    kit.store.signal(None, vec![signal], Room::default()).await.unwrap();
    let options = Options { parent: Some(run), ..Options::default() };
    let child = || NewJob { options: options.clone(), ..job("k") };
    // More than are looked at beyond those that are too much.
    for _ in 0..40 {
        kit.put(child()).await;
    }
    let child = kit.put(child()).await;
    kit.clock.advance(SECOND);
    let plain = kit.put(job("k")).await;
    bound(kit, "default", 43, Overflow::DropOldest).await;
    let newer = kit.put(job("k")).await;
    eprintln!(
        "{:?} {:?} {:?} {:?} {:?}",
        kit.state(run).await,
        kit.state(child).await,
        kit.state(plain).await,
        kit.state(newer).await,
        depth(kit, "default").await
    );
    assert_eq!(kit.state(plain).await, State::Cancelled, "the oldest that nobody counts on");
    for id in [run, child, newer] {
        assert_eq!(kit.state(id).await, State::Ready);
    }
    bound(kit, "default", 42, Overflow::DropOldest).await;
    refused(kit, vec![job("k")]).await;
    assert_eq!(depth(kit, "default").await.depth(), 43);
    is_exact(&kit.store).await;
}

async fn what_waits_is_told_for_how_long_it_may(kit: &Kit) {
    bound(kit, "default", 1, Overflow::Wait { wait_ms: 1234 }).await;
    fill(kit, 1).await;
    assert_eq!(refused(kit, vec![job("k")]).await.wait_ms, Some(1234));
    bound(kit, "default", 1, Overflow::Reject).await;
    assert_eq!(refused(kit, vec![job("k")]).await.wait_ms, None);
}

async fn plain_sql_meets_the_same_bounds(kit: &Kit) {
    bound(kit, "r", 1, Overflow::Reject).await;
    bound(kit, "o*", 1, Overflow::DropOldest).await;
    bound(kit, "d", 1, Overflow::Divert { queue: "spill".into() }).await;
    let insert = async |queue: &str| {
        let columns = "INSERT INTO tidemill_enqueue (kind, queue) VALUES";
        run(kit, &format!("{columns} ('k', '{queue}')")).await
    };
    for queue in ["r", "old", "d"] {
        insert(queue).await.unwrap();
    }
    let said = insert("r").await.unwrap_err();
    assert!(said.starts_with("tidemill: queue_full: "), "{said}");
    insert("old").await.unwrap();
    insert("d").await.unwrap();
    for (queue, jobs) in [("r", 1), ("old", 1), ("d", 1), ("spill", 1)] {
        assert_eq!(depth(kit, queue).await.depth(), jobs, "{queue}");
    }
    is_exact(&kit.store).await;
}

/// A flow whose first step has so many jobs, of which so many may run at once.
fn wide(jobs: usize, at_once: Option<u32>) -> Plan {
    let mut flow = flow_of(vec![many("item", jobs, &[]), step("sum", &["item"])]);
    flow.options.at_once = at_once;
    flow.plan(&Limits::default(), Retention::default()).unwrap()
}

async fn start(kit: &Kit, plan: &Plan) -> Result<bool, Error> {
    kit.store.start_flow(plan.clone(), Start::IfRoom).await
}

async fn a_flow_is_judged_by_what_writes_it(kit: &Kit) {
    bound(kit, "default", 3, Overflow::Reject).await;
    let first = wide(2, None);
    assert!(start(kit, &first).await.unwrap());
    for (jobs, at_once) in [(2, None), (2, Some(5)), (700, None)] {
        let plan = wide(jobs, at_once);
        let refused = start(kit, &plan).await;
        let Err(Error::QueueFull(full)) = refused else { panic!("{jobs} jobs: {refused:?}") };
        let told = (&*full.queue, full.depth, full.depth_max, full.jobs);
        assert_eq!(told, ("default", 2, 3, jobs as u64));
        assert!(kit.store.flow(plan.id).await.unwrap().is_none(), "nothing of it is written");
    }
    assert!(!start(kit, &first).await.unwrap(), "sent again, it needs no room");
    assert!(start(kit, &wide(2, Some(1))).await.unwrap(), "one at a time fits");
    assert_eq!(depth(kit, "default").await.depth(), 3);
    let system = kit.store.start_flow(wide(2, None), Start::Now).await;
    assert!(system.unwrap(), "what the system starts is never refused");
    bound(kit, "default", 3, Overflow::DropOldest).await;
    assert!(start(kit, &wide(2, None)).await.unwrap(), "it goes in");
}

async fn flows_that_start_at_once_are_judged_one_by_one(kit: &Kit) {
    bound(kit, "default", 10, Overflow::Reject).await;
    let mut tasks = JoinSet::new();
    for _ in 0..40 {
        let store = kit.store.clone();
        tasks.spawn(async move { store.start_flow(wide(3, None), Start::IfRoom).await });
    }
    let answers = tasks.join_all().await;
    let started = answers.iter().filter(|answer| matches!(answer, Ok(true))).count() as u64;
    assert_eq!(depth(kit, "default").await.depth(), 3 * started);
    // Where two commits are under way, neither sees the other.
    assert!((3..=6).contains(&started), "{started} flows of 3 jobs within 10");
    assert!(matches!(start(kit, &wide(3, None)).await, Err(Error::QueueFull(_))));
}

async fn a_flow_that_was_built_in_parts_is_judged_when_it_begins(kit: &Kit) {
    let worker = kit.worker().await;
    bound(kit, "default", 5, Overflow::Reject).await;
    fill(kit, 2).await;
    let plan = wide(2, None);
    assert!(kit.store.start_flow(plan.clone(), Start::Later).await.unwrap());
    let part = (0..2).map(|_| job("item")).collect();
    let added = kit.store.add_to_flow(plan.id, "item", part, None).await.unwrap();
    assert_eq!(added, FlowAnswer::Acted { jobs: 2 });
    let refused = kit.store.begin_flow(plan.id).await;
    let Err(Error::QueueFull(full)) = refused else { panic!("{refused:?}") };
    assert_eq!((&*full.queue, full.depth, full.depth_max, full.jobs), ("default", 2, 5, 4));
    assert_eq!(depth(kit, "default").await.depth(), 2, "it has not begun");
    assert_eq!(kit.take(worker, 1).await.jobs.len(), 1);
    let begun = kit.store.begin_flow(plan.id).await.unwrap();
    assert_eq!(begun, FlowAnswer::Acted { jobs: 4 });
    assert_eq!(depth(kit, "default").await.depth(), 5);
    assert!(kit.store.begin_flow(plan.id).await.is_ok(), "sent again, it needs no room");
}
