//! Limits as a user sees them: several workers in several processes, changed while everything runs, and explained.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidemill::core::why::Gate;
use tidemill::{
    Breaker, Enqueue, Fail, Job, JobId, Limit, Per, QueueRules, Rate, Running, State, Tidemill,
};
use tidemill_testkit::eventually::eventually;
use tokio::sync::Semaphore;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    a_limit_holds_across_workers_and_changes_live,
    a_limit_that_is_set_while_jobs_run_counts_them,
    a_queue_that_is_paused_starts_nothing_from_then_on,
    keys_take_turns_and_all_get_through,
    a_rate_is_kept_across_workers,
    a_handler_that_is_told_to_wait_holds_back_its_key_for_everyone,
    a_handler_that_is_told_to_wait_holds_back_its_queue,
    who_has_no_time_to_wait_holds_back_its_queue_all_the_same,
    a_breaker_spares_a_dying_service_and_closes_again,
    a_full_limit_says_who_is_inside,
    a_queue_is_bound_by_what_holds_its_own_jobs,
    a_rate_says_when_it_opens,
    limits_are_listed_and_taken_away,
    bad_limits_are_refused_and_change_nothing,
    what_is_set_for_a_queue_keeps_the_rest_of_what_its_pattern_gave_it,
);

const HOUR: Duration = Duration::from_hours(1);

fn echo(text: &str) -> Enqueue {
    Enqueue::from(Echo::new(text)).queue("q")
}

fn at_once(jobs: u32) -> Limit {
    Limit { concurrency: Some(jobs), ..Limit::default() }
}

/// How many run now, and the most that ever ran at once, by the text of the job.
#[derive(Debug, Default)]
struct Crowd {
    now: HashMap<String, usize>,
    most: HashMap<String, usize>,
    most_of_all: usize,
}

impl Crowd {
    fn enter(&mut self, text: &str) {
        let now = self.now.entry(text.to_owned()).or_default();
        *now += 1;
        let most = self.most.entry(text.to_owned()).or_default();
        *most = (*most).max(*now);
        self.most_of_all = self.most_of_all.max(self.now.values().sum());
    }
}

/// A worker whose handlers wait for a permit of `go` before they end.
async fn worker(mill: &Tidemill, crowd: &Arc<Mutex<Crowd>>, go: &Arc<Semaphore>) -> Running {
    let (crowd, go) = (Arc::clone(crowd), Arc::clone(go));
    let handler = move |echo: Echo, _| {
        let (crowd, go) = (Arc::clone(&crowd), Arc::clone(&go));
        async move {
            crowd.lock().unwrap().enter(&echo.text);
            let passed = go.acquire().await.map_err(|_| Fail::permanent("closed"))?;
            *crowd.lock().unwrap().now.get_mut(&echo.text).unwrap() -= 1;
            drop(passed);
            Ok(echo.text)
        }
    };
    mill.worker().queues(["q"]).slots(16).handle(handler).start().await.unwrap()
}

async fn finished(mill: &Tidemill) {
    eventually("all jobs to finish", 2 * SOON, async || {
        let left = mill.unfinished().await.unwrap();
        (left.waiting + left.running == 0).then_some(())
    })
    .await;
}

async fn running(mill: &Tidemill, number: u64) {
    eventually("so many to run", SOON, async || {
        (mill.unfinished().await.unwrap().running == number).then_some(())
    })
    .await;
}

async fn a_limit_holds_across_workers_and_changes_live(kit: Kit) {
    let (one, other) = (kit.open().await, kit.open().await);
    one.set_limit("q*", "three", Some(at_once(3))).await.unwrap();
    let (crowd, go) = (Arc::new(Mutex::default()), Arc::new(Semaphore::new(0)));
    let workers = [worker(&one, &crowd, &go).await, worker(&other, &crowd, &go).await];
    one.enqueue_many((0..40).map(|_| echo("a"))).await.unwrap();
    running(&one, 3).await;
    one.set_limit("q*", "three", Some(at_once(5))).await.unwrap();
    eventually("five to have started", SOON, async || {
        (crowd.lock().unwrap().most_of_all == 5).then_some(())
    })
    .await;
    go.add_permits(1);
    finished(&one).await;
    assert_eq!(crowd.lock().unwrap().most_of_all, 5, "never more");
    for worker in workers {
        worker.stop().await;
    }
}

/// From the moment it is set, in all processes, although nothing that runs went through it.
async fn a_limit_that_is_set_while_jobs_run_counts_them(kit: Kit) {
    let (one, other) = (kit.open().await, kit.open().await);
    let (crowd, go) = (Arc::new(Mutex::default()), Arc::new(Semaphore::new(0)));
    let workers = [worker(&one, &crowd, &go).await, worker(&other, &crowd, &go).await];
    one.enqueue_many((0..6).map(|_| echo("before"))).await.unwrap();
    running(&one, 6).await;
    other.set_limit("*", "four", Some(at_once(4))).await.unwrap();
    let later = one.enqueue_many((0..20).map(|_| echo("after"))).await.unwrap();
    let why = one.why(later[0].id()).await.unwrap();
    assert!(why.to_string().contains("limit four of * is full: 6 of 4 run"), "{why}");
    go.add_permits(1);
    finished(&one).await;
    {
        let crowd = crowd.lock().unwrap();
        assert!(crowd.most["after"] <= 4 && crowd.most_of_all == 6, "{crowd:?}");
    }
    for worker in workers {
        worker.stop().await;
    }
}

async fn a_queue_that_is_paused_starts_nothing_from_then_on(kit: Kit) {
    let (one, other) = (kit.open().await, kit.open().await);
    let (crowd, go) = (Arc::new(Mutex::default()), Arc::new(Semaphore::new(1)));
    let workers = [worker(&one, &crowd, &go).await, worker(&other, &crowd, &go).await];
    for round in 0..10 {
        one.pause("q").await.unwrap();
        // Both claim as soon as they hear of it, by rules that let nothing start.
        let id = other.enqueue(echo("x")).await.unwrap().id();
        let again = one.enqueue(echo("x")).await.unwrap().id();
        for id in [id, again] {
            assert_eq!(one.job(id).await.unwrap().unwrap().state, State::Ready, "round {round}");
        }
        other.resume("q").await.unwrap();
        finished(&one).await;
    }
    for worker in workers {
        worker.stop().await;
    }
}

async fn keys_take_turns_and_all_get_through(kit: Kit) {
    let (one, other) = (kit.open().await, kit.open().await);
    one.set_limit("q", "each", Some(Limit { per: Per::Key, ..at_once(1) })).await.unwrap();
    let (crowd, go) = (Arc::new(Mutex::default()), Arc::new(Semaphore::new(4)));
    let workers = [worker(&one, &crowd, &go).await, worker(&other, &crowd, &go).await];
    let jobs = (0..200).map(|n| (n % 10).to_string()).map(|key| echo(&key).key(&key));
    one.enqueue_many(jobs).await.unwrap();
    finished(&one).await;
    for worker in workers {
        worker.stop().await;
    }
    assert_eq!(one.counts().done + other.counts().done, 200);
    let crowd = crowd.lock().unwrap();
    assert!(crowd.most.len() == 10 && crowd.most.values().all(|most| *most == 1), "{crowd:?}");
}

async fn a_rate_is_kept_across_workers(kit: Kit) {
    let (one, other) = (kit.open().await, kit.open().await);
    let rate = Some(Rate { jobs: 100, per_ms: 1000, burst: 5 });
    one.change_queue("q", |rules| rules.rate = rate).await.unwrap();
    let (crowd, go) = (Arc::new(Mutex::default()), Arc::new(Semaphore::new(100)));
    let workers = [worker(&one, &crowd, &go).await, worker(&other, &crowd, &go).await];
    let start = Instant::now();
    one.enqueue_many((0..55).map(|_| echo("a"))).await.unwrap();
    finished(&one).await;
    assert!(
        start.elapsed() >= Duration::from_millis(500),
        "{:?}: fifty after the burst",
        start.elapsed()
    );
    for worker in workers {
        worker.stop().await;
    }
}

/// A worker that is told to wait by jobs that say so.
async fn told_to_wait(mill: &Tidemill) -> Running {
    let handler = |echo: Echo, _| async move {
        if echo.text == "wait" { Err(Fail::rate_limited(HOUR)) } else { Ok(echo.text) }
    };
    mill.worker().queues(["q"]).slots(1).handle(handler).start().await.unwrap()
}

async fn a_handler_that_is_told_to_wait_holds_back_its_key_for_everyone(kit: Kit) {
    let mill = kit.open().await;
    mill.change_queue("q", |rules| rules.hold = Some(Per::Key)).await.unwrap();
    let first = mill.enqueue(echo("wait").key("a")).await.unwrap().id();
    let worker = told_to_wait(&mill).await;
    waits(&mill, first).await;
    let held = mill.enqueue(echo("x").key("a")).await.unwrap().id();
    let free = mill.enqueue(echo("x").key("b")).await.unwrap().id();
    mill.result::<Echo>(free, SOON).await.unwrap();
    assert_eq!(mill.job(held).await.unwrap().unwrap().state, State::Ready);
    let why = mill.why(held).await.unwrap();
    assert!(why.to_string().contains("the pause asked of queue q for a"), "{why}");
    assert!(why.expected_at.is_some());
    let of_queue = mill.why_queue("q").await.unwrap().to_string();
    assert!(of_queue.contains("bound by the pause asked of queue q, which holds 1"), "{of_queue}");
    let refused = mill.why_queue("q*").await.unwrap_err();
    assert_eq!(refused.code(), "rule_invalid", "{refused}");
    // It waits for its own clock and for the pause, which it asked for itself.
    let why = mill.why(first).await.unwrap();
    assert!(why.gates.len() == 2 && why.expected_at.is_some(), "{why:?}");
    worker.stop().await;
}

async fn waits(mill: &Tidemill, id: JobId) {
    eventually("it to wait", SOON, async || {
        let view = mill.job(id).await.unwrap().unwrap();
        (view.state == State::Scheduled).then_some(())
    })
    .await;
}

async fn a_handler_that_is_told_to_wait_holds_back_its_queue(kit: Kit) {
    let mill = kit.open().await;
    mill.change_queue("q", |rules| rules.hold = Some(Per::All)).await.unwrap();
    let first = mill.enqueue(echo("wait")).await.unwrap().id();
    let worker = told_to_wait(&mill).await;
    waits(&mill, first).await;
    let held = mill.enqueue(echo("x")).await.unwrap().id();
    let why = mill.why(held).await.unwrap();
    let Some(Gate::Limit { opens_at: Some(at), .. }) = why.gates.first() else { panic!("{why}") };
    assert_eq!(why.expected_at, Some(*at));
    assert_eq!(mill.job(held).await.unwrap().unwrap().state, State::Ready);
    // Whoever takes the rule away lets them go on.
    mill.change_queue("q", |rules| rules.hold = None).await.unwrap();
    mill.result::<Echo>(held, SOON).await.unwrap();
    worker.stop().await;
}

async fn who_has_no_time_to_wait_holds_back_its_queue_all_the_same(kit: Kit) {
    let mill = kit.open().await;
    mill.change_queue("q", |rules| rules.hold = Some(Per::All)).await.unwrap();
    let hasty = mill.enqueue(echo("wait").finish_within(HOUR / 2)).await.unwrap().id();
    let worker = told_to_wait(&mill).await;
    eventually("it to die", SOON, async || {
        let view = mill.job(hasty).await.unwrap().unwrap();
        (view.state == State::Dead).then_some(())
    })
    .await;
    let held = mill.enqueue(echo("x")).await.unwrap().id();
    let why = mill.why(held).await.unwrap();
    let is_shut = matches!(why.gates.first(), Some(Gate::Limit { opens_at: Some(_), .. }));
    assert!(is_shut, "{why}");
    worker.stop().await;
}

async fn a_breaker_spares_a_dying_service_and_closes_again(kit: Kit) {
    let mill = kit.open().await;
    let breaker = Breaker { attempts_min: 5, open_ms: 300, ..Breaker::default() };
    let limit = Limit { kind: Some(Echo::KIND.into()), breaker: Some(breaker), ..Limit::default() };
    mill.set_limit("q", "bank", Some(limit)).await.unwrap();
    let calls = Arc::new(Mutex::new((0_u32, true)));
    let called = Arc::clone(&calls);
    let handler = move |echo: Echo, _| {
        let called = Arc::clone(&called);
        async move {
            let mut calls = called.lock().unwrap();
            calls.0 += 1;
            if calls.1 {
                Err(Fail::transient("no answer").retry_after(Duration::ZERO))
            } else {
                Ok(echo.text)
            }
        }
    };
    let worker = mill.worker().queues(["q"]).slots(2).handle(handler).start().await.unwrap();
    let retry = tidemill::Retry { attempts_max: 1000, ..tidemill::Retry::default() };
    let jobs = (0..20).map(|_| echo("x").retry(retry.clone()));
    let last = mill.enqueue_many(jobs).await.unwrap().last().unwrap().id();
    let why = eventually("the breaker to open", SOON, async || {
        let why = mill.why(last).await.unwrap();
        let is_broken = |gate: &Gate| matches!(gate, Gate::Limit { is_broken: true, .. });
        why.gates.iter().any(is_broken).then_some(why)
    })
    .await;
    assert!(why.to_string().contains("too much failed at limit bank of q"), "{why}");
    calls.lock().unwrap().1 = false;
    finished(&mill).await;
    let calls = calls.lock().unwrap().0;
    assert!(calls < 100, "{calls} calls: a dying service was spared");
    worker.stop().await;
}

async fn a_full_limit_says_who_is_inside(kit: Kit) {
    let mill = kit.open().await;
    let limit = Limit { per: Per::Tenant, ..at_once(1) };
    mill.set_limit("*", "stripe", Some(limit)).await.unwrap();
    let (crowd, go) = (Arc::new(Mutex::default()), Arc::new(Semaphore::new(0)));
    let worker = worker(&mill, &crowd, &go).await;
    mill.enqueue(echo("x").tenant("acme")).await.unwrap();
    running(&mill, 1).await;
    let held = mill.enqueue(echo("x").tenant("acme")).await.unwrap().id();
    eventually("it to be held", SOON, async || mill.job(held).await.unwrap().unwrap().gate).await;
    let said = mill.why_queue("q").await.unwrap().to_string();
    assert!(said.contains("; bound by limit stripe of *, which holds 1; "), "{said}");
    let why = mill.why(held).await.unwrap();
    let full = Gate::Limit {
        limit: "limit stripe of * for acme".into(),
        inside: 1,
        most: Some(1),
        workers: vec![worker.id()],
        is_broken: false,
        opens_at: None,
    };
    assert_eq!(why.gates, [full]);
    let sentence =
        format!("limit stripe of * for acme is full: 1 of 1 run, at worker {}", worker.id());
    assert_eq!(why.to_string(), sentence);
    mill.pause("q").await.unwrap();
    assert_eq!(mill.why(held).await.unwrap().gates.len(), 2, "paused, and full");
    mill.resume("q").await.unwrap();
    go.add_permits(1);
    mill.result::<Echo>(held, SOON).await.unwrap();
    worker.stop().await;
}

async fn a_queue_is_bound_by_what_holds_its_own_jobs(kit: Kit) {
    let mill = kit.open().await;
    let stripe = Limit { per: Per::Tenant, ..at_once(1) };
    mill.set_limit("*", "stripe", Some(stripe)).await.unwrap();
    let bank = Limit { kind: Some("echo".to_owned()), ..at_once(1) };
    mill.set_limit("*", "bank", Some(bank)).await.unwrap();
    let hourly = Some(Rate { jobs: 1, per_ms: 3_600_000, burst: 1 });
    mill.change_queue("slow", |rules| rules.rate = hourly).await.unwrap();
    let (crowd, go) = (Arc::new(Mutex::default()), Arc::new(Semaphore::new(0)));
    let worker = worker(&mill, &crowd, &go).await;
    mill.enqueue(echo("x").tenant("acme")).await.unwrap();
    running(&mill, 1).await;
    for queue in ["q", "q", "other", "slow"] {
        let stranger = Enqueue::raw("stranger", "null").queue(queue).tenant("zeta");
        mill.enqueue(stranger).await.unwrap();
    }
    let held = mill.enqueue(echo("x").tenant("acme")).await.unwrap().id();
    eventually("it to be held", SOON, async || mill.job(held).await.unwrap().unwrap().gate).await;
    let holders = async |queue| {
        let why = mill.why_queue(queue).await.unwrap();
        why.holders.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let bound = "bound by limit stripe of *, which holds 1";
    assert_eq!(holders("q").await, ["no live worker of it knows stranger", bound]);
    assert_eq!(holders("other").await, ["no live worker takes from it"]);
    assert_eq!(holders("slow").await, ["no live worker takes from it"]);
    assert_eq!(holders("empty").await, ["no live worker takes from it"]);
    go.add_permits(2);
    mill.result::<Echo>(held, SOON).await.unwrap();
    worker.stop().await;
}

async fn a_rate_says_when_it_opens(kit: Kit) {
    let mill = kit.open().await;
    let rate = Some(Rate { jobs: 1, per_ms: 3_600_000, burst: 1 });
    mill.change_queue("q", |rules| rules.rate = rate).await.unwrap();
    let (crowd, go) = (Arc::new(Mutex::default()), Arc::new(Semaphore::new(1)));
    let worker = worker(&mill, &crowd, &go).await;
    let first = mill.enqueue(echo("x")).await.unwrap().id();
    mill.result::<Echo>(first, SOON).await.unwrap();
    let held = mill.enqueue(echo("x")).await.unwrap().id();
    let why = mill.why(held).await.unwrap();
    assert!(why.to_string().starts_with("the limit of queue q lets nobody pass before"), "{why}");
    assert!(why.expected_at.is_some());
    let of_queue = mill.why_queue("q").await.unwrap().to_string();
    assert!(of_queue.contains("; bound by the limit of queue q"), "{of_queue}");
    worker.stop().await;
}

async fn limits_are_listed_and_taken_away(kit: Kit) {
    let mill = kit.open().await;
    mill.set_limit("mail:*", "smtp", Some(at_once(4))).await.unwrap();
    mill.set_limit("mail:*", "relay", Some(at_once(9))).await.unwrap();
    let names = async || {
        mill.limits().await.unwrap().into_iter().map(|limit| limit.name).collect::<Vec<_>>()
    };
    assert_eq!(names().await, ["relay", "smtp"]);
    mill.set_limit("mail:*", "smtp", None).await.unwrap();
    assert_eq!(names().await, ["relay"]);
}

async fn bad_limits_are_refused_and_change_nothing(kit: Kit) {
    let mill = kit.open().await;
    let rate = Some(Rate { jobs: 0, per_ms: 1000, burst: 1 });
    let nothing = Limit::default();
    for limit in [nothing.clone(), at_once(0), Limit { rate, ..nothing }] {
        let refused = mill.set_limit("q", "bad", Some(limit)).await.unwrap_err();
        assert_eq!(refused.code(), "rule_invalid", "{refused}");
    }
    let rules = QueueRules { rate, ..QueueRules::default() };
    assert_eq!(mill.set_queue("q", Some(rules)).await.unwrap_err().code(), "rule_invalid");
    assert!(mill.limits().await.unwrap().is_empty());
    assert_eq!(mill.queue_rules("q").await.unwrap().version, 0);
}

async fn what_is_set_for_a_queue_keeps_the_rest_of_what_its_pattern_gave_it(kit: Kit) {
    let mill = kit.open().await;
    let of_pattern =
        |rules: &mut QueueRules| (rules.concurrency, rules.depth_max) = (Some(1), Some(9));
    mill.change_queue("p:*", of_pattern).await.unwrap();
    mill.set_limit("p:*", "named", Some(at_once(3))).await.unwrap();
    let own = async || mill.store().queue_rules().await.unwrap().set_for("p:a").cloned();
    let holds = async || {
        let rules = mill.queue_rules("p:a").await.unwrap();
        (rules.concurrency, rules.depth_max, rules.limits.len(), rules.paused)
    };
    assert_eq!(
        holds().await,
        (Some(1), Some(9), 0, false),
        "a named limit of the pattern holds beside it"
    );
    mill.pause("p:a").await.unwrap();
    assert_eq!(holds().await, (Some(1), Some(9), 0, true));
    mill.resume("p:a").await.unwrap();
    assert_eq!(own().await, None, "it follows its pattern again");
    mill.pause("p:a").await.unwrap();
    mill.change_queue("p:*", |rules| rules.depth_max = Some(99)).await.unwrap();
    mill.resume("p:a").await.unwrap();
    assert_eq!(holds().await, (Some(1), Some(99), 0, false), "as that is by now");
    mill.pause("p:a").await.unwrap();
    mill.change_queue("p:a", |rules| rules.concurrency = Some(4)).await.unwrap();
    mill.resume("p:a").await.unwrap();
    assert_eq!(holds().await, (Some(4), Some(99), 0, false), "what is its own outlives the pause");
    mill.set_queue("p:a", None).await.unwrap();
    mill.change_queue("p:*", |rules| rules.depth_max = Some(9)).await.unwrap();
    mill.set_limit("p:a", "mine", Some(at_once(2))).await.unwrap();
    assert_eq!(holds().await, (Some(1), Some(9), 1, false));
    assert_eq!(mill.store().queue_rules().await.unwrap().limits("p:a").len(), 3);
    mill.pause("p:*").await.unwrap();
    mill.set_limit("p:a", "mine", None).await.unwrap();
    assert_eq!(own().await, None);
    mill.change_queue("p:a", |rules| rules.concurrency = Some(7)).await.unwrap();
    mill.resume("p:*").await.unwrap();
    assert_eq!(holds().await, (Some(7), Some(9), 0, false), "the pause was that of the pattern");
}
