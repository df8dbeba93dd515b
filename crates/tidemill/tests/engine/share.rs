//! Queues, bands and tenants: who is served when, and rules that hold in every process at once.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tidemill::core::BandWeights;
use tidemill::{Enqueue, Fail, Priority, QueueRules, Retry, State, Tidemill, Worker};
use tidemill_testkit::eventually::eventually;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    a_paused_queue_starts_nothing_until_it_is_resumed,
    a_pause_reaches_a_worker_of_another_process,
    low_work_starts_within_its_bound_while_urgent_never_dries,
    low_work_starts_within_its_bound_with_more_slots_and_queues,
    queues_are_served_alike_whatever_bands_their_jobs_are_in,
    small_tenants_start_while_a_large_one_has_hundreds,
    a_pattern_takes_from_queues_that_come_later,
    dedicated_slots_are_free_when_shared_ones_are_not,
    overflowing_work_takes_shared_slots_too,
    a_queue_says_how_its_jobs_are_retried,
    rules_that_cannot_be_followed_change_nothing,
    changes_of_rules_that_cross_are_all_made,
);

fn echo(queue: &str, text: &str) -> Enqueue {
    Enqueue::from(Echo::new(text)).queue(queue)
}

/// What started, in order.
type Order = Arc<Mutex<Vec<String>>>;

fn noting(mill: &Tidemill, order: &Order) -> Worker {
    let order = Arc::clone(order);
    mill.worker().handle(move |echo: Echo, _| {
        order.lock().unwrap().push(echo.text.clone());
        async { Ok(echo.text) }
    })
}

async fn all_done(mill: &Tidemill) {
    eventually("all jobs to finish", 2 * SOON, async || {
        let left = mill.unfinished().await.unwrap();
        (left.waiting + left.running == 0).then_some(())
    })
    .await;
}

async fn state(mill: &Tidemill, id: tidemill::JobId) -> State {
    mill.job(id).await.unwrap().unwrap().state
}

async fn a_paused_queue_starts_nothing_until_it_is_resumed(kit: Kit) {
    let (mill, other) = (kit.open().await, kit.open().await);
    other.pause("held").await.unwrap();
    let held = mill.enqueue(echo("held", "held")).await.unwrap().id();
    let worker = noting(&mill, &Order::default()).queues(["held", "open"]).start().await.unwrap();
    let open = mill.enqueue(echo("open", "open")).await.unwrap().id();
    mill.result::<Echo>(open, SOON).await.unwrap();
    assert_eq!(state(&mill, held).await, State::Ready);
    other.resume("held").await.unwrap();
    mill.result::<Echo>(held, SOON).await.unwrap();
    worker.stop().await;
}

async fn a_pause_reaches_a_worker_of_another_process(kit: Kit) {
    let (mill, other) = (kit.open().await, kit.open().await);
    let worker = noting(&mill, &Order::default()).queues(["q", "open"]).start().await.unwrap();
    other.pause("q").await.unwrap();
    let held = eventually("the pause to be known", SOON, async || {
        let id = other.enqueue(echo("q", "held")).await.unwrap().id();
        let open = other.enqueue(echo("open", "open")).await.unwrap().id();
        mill.result::<Echo>(open, SOON).await.unwrap();
        (state(&other, id).await == State::Ready).then_some(id)
    })
    .await;
    other.resume("q").await.unwrap();
    mill.result::<Echo>(held, SOON).await.unwrap();
    worker.stop().await;
}

async fn low_work_starts_within_its_bound_while_urgent_never_dries(kit: Kit) {
    let (mill, order) = (kit.open().await, Order::default());
    let many = |text: &'static str, priority| {
        (0..200).map(move |_| echo("default", text).priority(priority))
    };
    mill.enqueue_many(many("urgent", Priority::Urgent)).await.unwrap();
    mill.enqueue_many(many("low", Priority::Low).take(12)).await.unwrap();
    let worker = noting(&mill, &order).slots(1).start().await.unwrap();
    all_done(&mill).await;
    worker.stop().await;
    let order = order.lock().unwrap();
    // Weights 8 and 1: one of every nine, and no later than after all the weights there are.
    let places = order.iter().enumerate().filter(|(_, text)| *text == "low").map(|(at, _)| at);
    for (number, at) in places.enumerate() {
        assert!(at < 15 * (number + 1), "low job {number} started after {at} others");
    }
    let first = &order[..90];
    assert!(first.iter().filter(|text| *text == "urgent").count() >= 78, "urgent has its share");
}

async fn low_work_starts_within_its_bound_with_more_slots_and_queues(kit: Kit) {
    for (slots, queues) in [(4, 1), (1, 3), (4, 2)] {
        let (mill, order) = (kit.open().await, Order::default());
        let names: Vec<String> = (0..queues).map(|n| format!("of-{slots}-{queues}-{n}")).collect();
        for name in &names {
            for priority in Priority::ALL {
                let text = format!("{name} {}", priority.word());
                let number = if priority == Priority::Low { 5 } else { 150 };
                let jobs = (0..number).map(|_| echo(name, &text).priority(priority));
                mill.enqueue_many(jobs).await.unwrap();
            }
        }
        let worker = noting(&mill, &order).queues(names.clone()).slots(slots);
        let worker = worker.start().await.unwrap();
        all_done(&mill).await;
        worker.stop().await;
        let order = order.lock().unwrap();
        for name in &names {
            let low = format!("{name} low");
            let places = order.iter().enumerate().filter(|(_, text)| **text == low);
            for (number, (at, _)) in places.enumerate() {
                let bound = 15 * queues * (number + 1) + slots;
                assert!(
                    at <= bound,
                    "job {number} of {low} started after {at}, not {bound} others"
                );
            }
        }
    }
}

async fn queues_are_served_alike_whatever_bands_their_jobs_are_in(kit: Kit) {
    for slots in [1, 3] {
        let (mill, order) = (kit.open().await, Order::default());
        let names = [format!("a-{slots}"), format!("b-{slots}")];
        for (name, band) in names.iter().zip([Priority::Urgent, Priority::Low]) {
            let jobs = (0..60).map(|_| echo(name, name).priority(band));
            mill.enqueue_many(jobs).await.unwrap();
        }
        // Its other bands have their share of what the queue gets.
        mill.enqueue_many((0..6).map(|_| echo(&names[0], "low").priority(Priority::Low)))
            .await
            .unwrap();
        let worker = noting(&mill, &order).queues(names.clone()).slots(slots);
        let worker = worker.start().await.unwrap();
        all_done(&mill).await;
        worker.stop().await;
        let order = order.lock().unwrap();
        let first = &order[..80];
        let of_b = first.iter().filter(|text| **text == names[1]).count();
        assert!((36..=44).contains(&of_b), "{of_b} of 80 with {slots} slots");
        let low = first.iter().filter(|text| *text == "low").count();
        assert!((2..=6).contains(&low), "{low} of 80 with {slots} slots");
    }
}

async fn small_tenants_start_while_a_large_one_has_hundreds(kit: Kit) {
    let (mill, order) = (kit.open().await, Order::default());
    let large = (0..300).map(|_| echo("default", "large").tenant("large"));
    mill.enqueue_many(large).await.unwrap();
    let small = (0..20).map(|n| echo("default", "small").tenant(format!("small {n}")));
    mill.enqueue_many(small).await.unwrap();
    let worker = noting(&mill, &order).slots(1).start().await.unwrap();
    all_done(&mill).await;
    worker.stop().await;
    let order = order.lock().unwrap();
    let last = order.iter().rposition(|text| text == "small").unwrap();
    assert!(last <= 24, "the last of 20 small tenants started after {last} others");
}

async fn a_pattern_takes_from_queues_that_come_later(kit: Kit) {
    let (mill, other) = (kit.open().await, kit.open().await);
    let worker = noting(&mill, &Order::default()).queues(["mail:*"]).start().await.unwrap();
    let elsewhere = other.enqueue(echo("post", "not for it")).await.unwrap().id();
    for queue in ["mail:eu", "mail:us"] {
        let id = other.enqueue(echo(queue, queue)).await.unwrap().id();
        mill.result::<Echo>(id, SOON).await.unwrap();
    }
    assert_eq!(state(&mill, elsewhere).await, State::Ready);
    worker.stop().await;
}

/// Handlers that wait until they are let go, and how many do.
#[derive(Default)]
struct Held {
    now: AtomicUsize,
    go: Notify,
}

fn holding(mill: &Tidemill, held: &Arc<Held>) -> Worker {
    let held = Arc::clone(held);
    mill.worker().queues(["bulk"]).slots(2).handle(move |echo: Echo, _| {
        let held = Arc::clone(&held);
        async move {
            if echo.text == "hold" {
                held.now.fetch_add(1, SeqCst);
                held.go.notified().await;
            }
            Ok(echo.text)
        }
    })
}

async fn holds(held: &Held, number: usize) {
    eventually("handlers to be held", SOON, async || {
        (held.now.load(SeqCst) == number).then_some(())
    })
    .await;
}

async fn dedicated_slots_are_free_when_shared_ones_are_not(kit: Kit) {
    let (mill, held) = (kit.open().await, Arc::<Held>::default());
    let worker = holding(&mill, &held).dedicated("critical", 1).start().await.unwrap();
    mill.enqueue_many((0..2).map(|_| echo("bulk", "hold"))).await.unwrap();
    holds(&held, 2).await;
    let id = mill.enqueue(echo("critical", "quick")).await.unwrap().id();
    mill.result::<Echo>(id, SOON).await.unwrap();
    held.go.notify_waiters();
    all_done(&mill).await;
    // Its own slot is all it has, also when the shared ones are free.
    mill.enqueue(echo("critical", "hold")).await.unwrap();
    holds(&held, 3).await;
    let waits = mill.enqueue(echo("critical", "quick")).await.unwrap().id();
    let id = mill.enqueue(echo("bulk", "quick")).await.unwrap().id();
    mill.result::<Echo>(id, SOON).await.unwrap();
    assert_eq!(state(&mill, waits).await, State::Ready);
    held.go.notify_waiters();
    all_done(&mill).await;
    worker.stop().await;
}

async fn overflowing_work_takes_shared_slots_too(kit: Kit) {
    let (mill, held) = (kit.open().await, Arc::<Held>::default());
    let worker =
        holding(&mill, &held).dedicated_with_overflow("critical", 1).start().await.unwrap();
    mill.enqueue_many((0..5).map(|_| echo("critical", "hold"))).await.unwrap();
    holds(&held, 3).await;
    assert_eq!(worker.busy(), 3);
    held.go.notify_waiters();
    holds(&held, 5).await;
    held.go.notify_waiters();
    all_done(&mill).await;
    worker.stop().await;
}

async fn a_queue_says_how_its_jobs_are_retried(kit: Kit) {
    let mill = kit.open().await;
    let once = QueueRules { retry: Some(Retry::attempts(1)), ..QueueRules::default() };
    mill.set_queue("fragile", Some(once)).await.unwrap();
    let failing = |_: Echo, _| async { Err(Fail::transient("no")) };
    let worker =
        mill.worker().queues(["fragile"]).handle::<Echo, _, _>(failing).start().await.unwrap();
    let id = mill.enqueue(echo("fragile", "x")).await.unwrap().id();
    eventually("the job to be dead", SOON, async || {
        (state(&mill, id).await == State::Dead).then_some(())
    })
    .await;
    worker.stop().await;
}

async fn rules_that_cannot_be_followed_change_nothing(kit: Kit) {
    let mill = kit.open().await;
    mill.pause("q").await.unwrap();
    let none = BandWeights { urgent: 0, high: 0, normal: 0, low: 0 };
    let wrong = QueueRules { weights: none, ..QueueRules::default() };
    let error = mill.set_queue("q", Some(wrong)).await.unwrap_err();
    assert_eq!(error.code(), "rule_invalid");
    assert!(error.to_string().contains("at least 1"), "{error}");
    let read = mill.queue_rules("q").await.unwrap();
    assert_eq!((read.paused, read.version), (true, 1));
    mill.resume("q").await.unwrap();
    let late = mill.set_queue("q", Some(read)).await.unwrap_err();
    assert_eq!(late.code(), "rule_changed");
}

async fn changes_of_rules_that_cross_are_all_made(kit: Kit) {
    let (one, other) = (kit.open().await, kit.open().await);
    for queue in ["a", "b", "c", "d", "e"] {
        let mut changes = JoinSet::new();
        for number in 0..8_u64 {
            let mill = if number % 2 == 0 { one.clone() } else { other.clone() };
            changes.spawn(async move {
                let tenant = format!("t{number}");
                let heavier = |rules: &mut QueueRules| {
                    rules.tenant_weights.insert(tenant.clone(), 2);
                };
                mill.change_queue(queue, heavier).await
            });
        }
        for changed in changes.join_all().await {
            changed.unwrap();
        }
        assert_eq!(one.queue_rules(queue).await.unwrap().tenant_weights.len(), 8, "{queue}");
    }
}
