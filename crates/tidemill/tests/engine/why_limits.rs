//! Why a job is not running: limits of every sort, beside the clock, a pause and each other.

use std::sync::Arc;
use std::time::Duration;

use tidemill::core::gate::{Lacking, RETRY_CREDIT};
use tidemill::core::why::Gate;
use tidemill::{
    Breaker, Context, Enqueue, Fail, JobId, Limit, Per, Priority, Rate, Running, State, Tidemill,
};
use tidemill_testkit::eventually::eventually;
use tokio::sync::Semaphore;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    a_spent_retry_budget_is_named_alone,
    a_full_limit_is_named_beside_the_clock,
    a_rate_is_named_beside_a_pause,
    no_start_is_told_while_a_limit_is_full_beside_its_rate,
    no_start_is_told_while_all_slots_are_taken,
    a_breaker_is_named_beside_a_full_limit,
);

const HOUR: Duration = Duration::from_hours(1);
const HOUR_MS: u64 = 3_600_000;

fn echo(text: &str) -> Enqueue {
    Enqueue::from(Echo::new(text)).queue("q")
}

/// A worker whose jobs do as they say: `stay` until `go` has a permit, `stumble` at first, `fail` each time.
async fn worker(mill: &Tidemill, slots: usize, go: &Arc<Semaphore>) -> Running {
    let go = Arc::clone(go);
    let handler = move |echo: Echo, cx: Context| {
        let go = Arc::clone(&go);
        async move {
            match echo.text.as_str() {
                "stay" => go.acquire().await.map_err(|_| Fail::permanent("closed"))?.forget(),
                "stumble" if cx.attempt() == 1 => {
                    return Err(Fail::transient("once").retry_after(Duration::ZERO));
                }
                "fail" => return Err(Fail::transient("no answer").retry_after(HOUR)),
                _ => {}
            }
            Ok(echo.text)
        }
    };
    mill.worker().queues(["q"]).slots(slots).handle(handler).start().await.unwrap()
}

async fn runs(mill: &Tidemill, id: JobId) {
    eventually("it to run", SOON, async || {
        (mill.job(id).await.unwrap().unwrap().state == State::Running).then_some(())
    })
    .await;
}

/// A limit that only the clock or others can open.
fn held_at(limit: &str) -> Gate {
    let (limit, workers) = (limit.to_owned(), Vec::new());
    Gate::Limit { limit, inside: 0, most: None, workers, is_broken: false, opens_at: None }
}

async fn a_spent_retry_budget_is_named_alone(kit: Kit) {
    let (mill, go) = (kit.open().await, Arc::new(Semaphore::new(0)));
    mill.change_queue("q", |rules| rules.retry_percent = Some(1)).await.unwrap();
    let worker = worker(&mill, 1, &go).await;
    // What is given at first is spent, and so few first attempts pay for none.
    for _ in 0..RETRY_CREDIT {
        let id = mill.enqueue(echo("stumble")).await.unwrap().id();
        mill.result::<Echo>(id, SOON).await.unwrap();
    }
    let first = mill.enqueue(echo("stay")).await.unwrap().id();
    runs(&mill, first).await;
    let retried = mill.enqueue(echo("stumble").priority(Priority::Urgent)).await.unwrap().id();
    let others = mill.enqueue_many((0..3).map(|_| echo("stay"))).await.unwrap();
    go.add_permits(1);
    eventually("it to have stumbled", SOON, async || {
        let view = mill.job(retried).await.unwrap().unwrap();
        (view.state == State::Ready && view.attempt == 1).then_some(())
    })
    .await;
    // The next claim meets it, and takes a first attempt.
    go.add_permits(1);
    eventually("it to be held", SOON, async || mill.job(retried).await.unwrap().unwrap().gate)
        .await;
    let why = mill.why(retried).await.unwrap();
    assert_eq!(why.gates, [held_at("the retry budget of queue q")]);
    assert_eq!((why.state, why.expected_at), (State::Ready, None));
    assert_eq!(why.to_string(), "it waits at the retry budget of queue q");
    let of_queue = mill.why_queue("q").await.unwrap().to_string();
    let bound = "bound by the retry budget of queue q, which holds 1";
    assert!(of_queue.contains(bound), "{of_queue}");
    // A first attempt is not held by it.
    let other = mill.why(others[2].id()).await.unwrap();
    assert!(!other.to_string().contains("retry budget"), "{other}");
    go.add_permits(2);
    mill.result::<Echo>(retried, SOON).await.unwrap();
    // Nor is a retry that no claim has met: there may be a slot for it that nobody else wants.
    let later = mill.enqueue(echo("fail")).await.unwrap().id();
    let at = eventually("it to have failed", SOON, async || {
        let view = mill.job(later).await.unwrap().unwrap();
        (view.state == State::Scheduled).then_some(view.due_at).flatten()
    })
    .await;
    let why = mill.why(later).await.unwrap();
    assert_eq!((why.gates, why.expected_at), (vec![Gate::Due { at, attempt: 1 }], Some(at)));
    worker.stop().await;
}

async fn a_full_limit_is_named_beside_the_clock(kit: Kit) {
    let (mill, go) = (kit.open().await, Arc::new(Semaphore::new(0)));
    let one = Limit { concurrency: Some(1), ..Limit::default() };
    mill.set_limit("q", "one", Some(one)).await.unwrap();
    let worker = worker(&mill, 4, &go).await;
    let inside = mill.enqueue(echo("stay")).await.unwrap().id();
    runs(&mill, inside).await;
    let id = mill.enqueue(echo("x").delay(HOUR)).await.unwrap().id();
    let at = mill.job(id).await.unwrap().unwrap().due_at.unwrap();
    let why = mill.why(id).await.unwrap();
    let full = Gate::Limit {
        limit: "limit one of q".into(),
        inside: 1,
        most: Some(1),
        workers: vec![worker.id()],
        is_broken: false,
        opens_at: None,
    };
    assert_eq!(why.gates, [Gate::Due { at, attempt: 0 }, full]);
    assert_eq!(why.expected_at, None, "nobody knows when a place is free");
    go.add_permits(1);
    mill.result::<Echo>(inside, SOON).await.unwrap();
    let why = mill.why(id).await.unwrap();
    assert_eq!((why.gates, why.expected_at), (vec![Gate::Due { at, attempt: 0 }], Some(at)));
    worker.stop().await;
}

async fn a_rate_is_named_beside_a_pause(kit: Kit) {
    let (mill, go) = (kit.open().await, Arc::new(Semaphore::new(0)));
    let hourly = Some(Rate { jobs: 1, per_ms: HOUR_MS, burst: 1 });
    mill.change_queue("q", |rules| rules.rate = hourly).await.unwrap();
    let worker = worker(&mill, 4, &go).await;
    let first = mill.enqueue(echo("x")).await.unwrap().id();
    mill.result::<Echo>(first, SOON).await.unwrap();
    let id = mill.enqueue(echo("x")).await.unwrap().id();
    mill.pause("q").await.unwrap();
    let why = mill.why(id).await.unwrap();
    let paused = Gate::Paused { queue: "q".into(), rule: "q".into() };
    let [first, Gate::Limit { limit, opens_at: Some(at), is_broken: false, .. }] = &*why.gates
    else {
        panic!("{why}")
    };
    assert_eq!((first, limit.as_str()), (&paused, "the limit of queue q"));
    assert_eq!(why.expected_at, None, "nobody knows when a pause ends");
    mill.resume("q").await.unwrap();
    assert_eq!(mill.why(id).await.unwrap().expected_at, Some(*at));
    worker.stop().await;
}

async fn no_start_is_told_while_a_limit_is_full_beside_its_rate(kit: Kit) {
    let (mill, go) = (kit.open().await, Arc::new(Semaphore::new(0)));
    let hourly = Some(Rate { jobs: 1, per_ms: HOUR_MS, burst: 1 });
    let both = Limit { concurrency: Some(1), rate: hourly, ..Limit::default() };
    mill.set_limit("q", "both", Some(both)).await.unwrap();
    let worker = worker(&mill, 4, &go).await;
    let inside = mill.enqueue(echo("stay")).await.unwrap().id();
    runs(&mill, inside).await;
    let id = mill.enqueue(echo("x")).await.unwrap().id();
    let why = mill.why(id).await.unwrap();
    assert_eq!(why.expected_at, None, "nobody knows when a place is free: {why}");
    let said = why.to_string();
    assert!(said.contains("is full: 1 of 1 run") && said.contains("nobody pass before"), "{said}");
    go.add_permits(1);
    mill.result::<Echo>(inside, SOON).await.unwrap();
    let why = mill.why(id).await.unwrap();
    assert!(why.expected_at.is_some(), "the rate alone is in its way: {why}");
    assert!(!why.to_string().contains("is full"), "{why}");
    worker.stop().await;
}

async fn no_start_is_told_while_all_slots_are_taken(kit: Kit) {
    let (mill, go) = (kit.open().await, Arc::new(Semaphore::new(0)));
    let hourly = Some(Rate { jobs: 1, per_ms: HOUR_MS, burst: 1 });
    let of_key = Limit { per: Per::Key, lacking: Lacking::Pass, rate: hourly, ..Limit::default() };
    mill.set_limit("q", "crm", Some(of_key)).await.unwrap();
    let worker = worker(&mill, 1, &go).await;
    let first = mill.enqueue(echo("x").key("a")).await.unwrap().id();
    mill.result::<Echo>(first, SOON).await.unwrap();
    let inside = mill.enqueue(echo("stay")).await.unwrap().id();
    runs(&mill, inside).await;
    let id = mill.enqueue(echo("x").key("a")).await.unwrap().id();
    let why = mill.why(id).await.unwrap();
    assert_eq!(why.expected_at, None, "nobody knows when the slot is free: {why}");
    go.add_permits(1);
    mill.result::<Echo>(inside, SOON).await.unwrap();
    eventually("the rate alone to be in its way", SOON, async || {
        mill.why(id).await.unwrap().expected_at
    })
    .await;
    worker.stop().await;
}

async fn a_breaker_is_named_beside_a_full_limit(kit: Kit) {
    let (mill, go) = (kit.open().await, Arc::new(Semaphore::new(0)));
    let (per, lacking, concurrency) = (Per::Key, Lacking::Pass, Some(1));
    let one = Limit { per, lacking, concurrency, ..Limit::default() };
    mill.set_limit("q", "one", Some(one)).await.unwrap();
    let breaker = Breaker { attempts_min: 3, open_ms: HOUR_MS, ..Breaker::default() };
    let bank = Limit { breaker: Some(breaker), ..Limit::default() };
    mill.set_limit("q", "bank", Some(bank)).await.unwrap();
    let worker = worker(&mill, 4, &go).await;
    let inside = mill.enqueue(echo("stay").key("a")).await.unwrap().id();
    runs(&mill, inside).await;
    mill.enqueue_many((0..3).map(|_| echo("fail"))).await.unwrap();
    let id = mill.enqueue(echo("x").key("a")).await.unwrap().id();
    let why = eventually("both to hold it", SOON, async || {
        let why = mill.why(id).await.unwrap();
        // Until the three have failed, they stand before it.
        matches!(&*why.gates, [_, Gate::Limit { .. }]).then_some(why)
    })
    .await;
    let [Gate::Limit { limit: full, inside: 1, .. }, broken] = &*why.gates else { panic!("{why}") };
    let Gate::Limit { limit, is_broken: true, opens_at: Some(at), .. } = broken else {
        panic!("{why}")
    };
    assert_eq!((full.as_str(), limit.as_str()), ("limit one of q for a", "limit bank of q"));
    assert_eq!(why.expected_at, None, "a probe decides");
    let sentence = format!(
        "limit one of q for a is full: 1 of 1 run, at worker {}; \
         too much failed at limit bank of q: it is spared until {at}, then one job probes it",
        worker.id()
    );
    assert_eq!(why.to_string(), sentence);
    // With the place free again, the breaker alone is left.
    go.add_permits(1);
    mill.result::<Echo>(inside, SOON).await.unwrap();
    assert_eq!(mill.why(id).await.unwrap().gates.len(), 1);
    worker.stop().await;
}
