//! Why a job is not running: each gate, alone and with others, and none that is not there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidemill::core::why::{Deadline, Gate, Holder, KeyHolder};
use tidemill::store::WorkerCard;
use tidemill::{
    Enqueue, Fail, Flow, JobId, OnDead, OnDuplicate, QueueRules, Rate, Receipt, Running, Settings,
    State, Tidemill, Unique, WorkerId,
};
use tidemill_testkit::eventually::eventually;
use tokio::sync::Notify;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    a_job_that_nobody_takes_says_so,
    a_worker_that_died_with_all_others_is_not_waited_for,
    a_deadline_that_is_over_is_named,
    no_start_is_promised_behind_a_deadline,
    a_kind_that_nobody_knows_is_named,
    a_pause_is_named_with_its_rule,
    the_clock_is_named_and_the_start_is_expected,
    all_gates_that_hold_are_named_together,
    a_full_worker_is_a_matter_of_turns,
    what_runs_or_has_finished_says_so,
    a_retry_says_what_it_waits_for,
    whoever_holds_the_unique_key_is_named,
    what_is_blocked_says_its_own_time_too,
);

const HOUR: Duration = Duration::from_hours(1);

fn echo(queue: &str) -> Enqueue {
    Enqueue::from(Echo::new("x")).queue(queue)
}

async fn gates(mill: &Tidemill, id: JobId) -> Vec<Gate> {
    mill.why(id).await.unwrap().gates
}

async fn worker(mill: &Tidemill, queue: &str) -> Running {
    let handler = |echo: Echo, _| async move { Ok(echo.text) };
    mill.worker().queues([queue]).handle(handler).start().await.unwrap()
}

async fn a_job_that_nobody_takes_says_so(kit: Kit) {
    let mill = kit.open().await;
    let id = mill.enqueue(echo("q")).await.unwrap().id();
    assert_eq!(gates(&mill, id).await, [Gate::NoWorker { queue: "q".into() }]);
    let elsewhere = worker(&mill, "r*").await;
    assert_eq!(gates(&mill, id).await, [Gate::NoWorker { queue: "q".into() }]);
    elsewhere.stop().await;
    let unknown = mill.why(JobId::new()).await.unwrap_err();
    assert_eq!(unknown.code(), "job_unknown");
}

async fn a_worker_that_died_with_all_others_is_not_waited_for(kit: Kit) {
    let mill = kit.open_still().await;
    let id = mill.enqueue(echo("q")).await.unwrap().id();
    let card = |lease_ttl| WorkerCard {
        id: WorkerId::new(),
        name: "w".into(),
        queues: vec!["q".into()],
        kinds: Vec::new(),
        slots: 4,
        slots_of: BTreeMap::new(),
        lease_ttl,
    };
    mill.store().register(card(None)).await.unwrap();
    assert_eq!(gates(&mill, id).await, [Gate::Slot { workers: 1, slots: 4 }]);
    kit.advance(Duration::from_secs(11));
    // Nobody is there who would give it up.
    assert_eq!(mill.workers().await.unwrap().len(), 1);
    assert_eq!(gates(&mill, id).await, [Gate::NoWorker { queue: "q".into() }]);
    assert_eq!(mill.why_queue("q").await.unwrap().holders, [Holder::NoWorker]);
    // One that may be silent for longer is not missed so soon.
    mill.store().register(card(Some(HOUR))).await.unwrap();
    kit.advance(HOUR);
    assert_eq!(gates(&mill, id).await, [Gate::Slot { workers: 1, slots: 4 }]);
    kit.advance(Duration::from_secs(11));
    assert_eq!(gates(&mill, id).await, [Gate::NoWorker { queue: "q".into() }]);
}

async fn a_deadline_that_is_over_is_named(kit: Kit) {
    let mill = kit.open_still().await;
    let second = Duration::from_secs(1);
    let start = mill.enqueue(echo("q").start_within(second * 2)).await.unwrap().id();
    let finish = mill.enqueue(echo("r").finish_within(second * 3)).await.unwrap().id();
    let unserved = |queue: &str| Gate::NoWorker { queue: queue.into() };
    kit.advance(second);
    assert_eq!(gates(&mill, start).await, [unserved("q")]);
    let now = mill.now().await.unwrap();
    kit.advance(second * 2);
    let late = Gate::Late { to: Deadline::Start, at: now + second };
    assert_eq!(gates(&mill, start).await, [unserved("q"), late]);
    let late = Gate::Late { to: Deadline::Finish, at: now + second * 2 };
    let why = mill.why(finish).await.unwrap();
    assert_eq!(why.gates, [unserved("r"), late], "{why}");
    assert!(why.to_string().contains("it had to finish by"), "{why}");
}

async fn no_start_is_promised_behind_a_deadline(kit: Kit) {
    let mill = kit.open_still().await;
    let second = Duration::from_secs(1);
    let rate =
        |rules: &mut QueueRules| rules.rate = Some(Rate { jobs: 1, per_ms: 60_000, burst: 1 });
    mill.change_queue("q", rate).await.unwrap();
    let worker = worker(&mill, "q").await;
    let first = mill.enqueue(echo("q")).await.unwrap().id();
    mill.wait(first, SOON).await.unwrap();
    let held = mill.enqueue(echo("q")).await.unwrap().id();
    let late = mill.enqueue(echo("q").start_within(second)).await.unwrap().id();
    let why = mill.why(held).await.unwrap();
    assert!(why.expected_at.is_some(), "{why}");
    let why = mill.why(late).await.unwrap();
    assert!(matches!(why.gates.last(), Some(Gate::Late { to: Deadline::Start, .. })), "{why}");
    assert_eq!(why.expected_at, None, "{why}");
    worker.stop().await;
}

async fn a_kind_that_nobody_knows_is_named(kit: Kit) {
    let mill = kit.open().await;
    let worker = worker(&mill, "*").await;
    let id = mill.enqueue(Enqueue::raw("strange", "1").queue("q")).await.unwrap().id();
    assert_eq!(gates(&mill, id).await, [Gate::KindUnknown { kind: "strange".into(), workers: 1 }]);
    worker.stop().await;
}

async fn a_pause_is_named_with_its_rule(kit: Kit) {
    let mill = kit.open().await;
    mill.pause("mail:*").await.unwrap();
    let worker = worker(&mill, "mail:*").await;
    let id = mill.enqueue(echo("mail:eu")).await.unwrap().id();
    let paused = Gate::Paused { queue: "mail:eu".into(), rule: "mail:*".into() };
    assert_eq!(gates(&mill, id).await, [paused]);
    mill.resume("mail:*").await.unwrap();
    mill.result::<Echo>(id, SOON).await.unwrap();
    worker.stop().await;
}

async fn the_clock_is_named_and_the_start_is_expected(kit: Kit) {
    let mill = kit.open().await;
    let worker = worker(&mill, "q").await;
    let id = mill.enqueue(echo("q").delay(HOUR)).await.unwrap().id();
    let at = mill.job(id).await.unwrap().unwrap().due_at.unwrap();
    let why = mill.why(id).await.unwrap();
    assert_eq!(why.gates, [Gate::Due { at, attempt: 0 }]);
    assert_eq!((why.state, why.expected_at), (State::Scheduled, Some(at)));
    worker.stop().await;
}

async fn all_gates_that_hold_are_named_together(kit: Kit) {
    let mill = kit.open().await;
    mill.pause("q").await.unwrap();
    let id = mill.enqueue(echo("q").delay(HOUR)).await.unwrap().id();
    let why = mill.why(id).await.unwrap();
    let at = mill.job(id).await.unwrap().unwrap().due_at.unwrap();
    let (queue, rule) = ("q".to_owned(), "q".to_owned());
    let all = [
        Gate::Due { at, attempt: 0 },
        Gate::Paused { queue: queue.clone(), rule },
        Gate::NoWorker { queue },
    ];
    assert_eq!(why.gates, all);
    assert_eq!(why.expected_at, None, "nobody knows when a pause ends");
}

async fn a_full_worker_is_a_matter_of_turns(kit: Kit) {
    let (mill, go) = (kit.open().await, Arc::new(Notify::new()));
    let held = Arc::clone(&go);
    let handler = move |echo: Echo, _| {
        let held = Arc::clone(&held);
        async move {
            held.notified().await;
            Ok(echo.text)
        }
    };
    let worker = mill.worker().queues(["q"]).slots(1).dedicated("own", 2).handle(handler);
    let worker = worker.start().await.unwrap();
    let first = mill.enqueue(echo("q")).await.unwrap().id();
    eventually("the first to run", SOON, async || {
        let view = mill.job(first).await.unwrap().unwrap();
        (view.state == State::Running).then_some(())
    })
    .await;
    let second = mill.enqueue(echo("q")).await.unwrap().id();
    assert_eq!(gates(&mill, second).await, [Gate::Slot { workers: 1, slots: 1 }]);
    let expected = Gate::Running { worker: Some(worker.id()), called_off: false };
    assert_eq!(gates(&mill, first).await, [expected]);
    go.notify_one();
    mill.result::<Echo>(first, SOON).await.unwrap();
    go.notify_one();
    mill.result::<Echo>(second, SOON).await.unwrap();
    worker.stop().await;
}

async fn what_runs_or_has_finished_says_so(kit: Kit) {
    let mill = kit.open().await;
    let worker = worker(&mill, "q").await;
    let id = mill.enqueue(echo("q")).await.unwrap().id();
    mill.result::<Echo>(id, SOON).await.unwrap();
    let at = mill.job(id).await.unwrap().unwrap().finished_at;
    assert_eq!(gates(&mill, id).await, [Gate::Finished { state: State::Done, at }]);
    worker.stop().await;
}

async fn a_retry_says_what_it_waits_for(kit: Kit) {
    let mill = kit.open().await;
    let failing = |_, _| async { Err(Fail::transient("no").retry_after(HOUR)) };
    let worker = mill
        .worker()
        .queues(["q"])
        .handle_raw("k", Settings::default(), failing)
        .start()
        .await
        .unwrap();
    let id = mill.enqueue(Enqueue::raw("k", "1").queue("q")).await.unwrap().id();
    let at = eventually("the retry to wait", SOON, async || {
        let view = mill.job(id).await.unwrap().unwrap();
        view.due_at.filter(|_| view.state == State::Scheduled)
    })
    .await;
    assert_eq!(gates(&mill, id).await, [Gate::Due { at, attempt: 1 }]);
    worker.stop().await;
}

async fn whoever_holds_the_unique_key_is_named(kit: Kit) {
    let (mill, go) = (kit.open().await, Arc::new(Notify::new()));
    let held = Arc::clone(&go);
    let handler = move |_: Echo, _| {
        let held = Arc::clone(&held);
        async move {
            held.notified().await;
            Err::<String, _>(Fail::permanent("no"))
        }
    };
    let worker = mill.worker().queues(["q"]).handle(handler).start().await.unwrap();
    let once = || echo("q").unique(Unique::by_key("u").on_duplicate(OnDuplicate::RunOnceMore));
    let id = mill.enqueue(once()).await.unwrap().id();
    eventually("it runs", SOON, async || {
        (mill.job(id).await.unwrap().unwrap().state == State::Running).then_some(())
    })
    .await;
    let next = mill.enqueue(once()).await.unwrap();
    let Receipt::Kept { id: next } = next else { panic!("it is kept, not {next:?}") };
    let holder = Some(KeyHolder { id, state: State::Running });
    let why = mill.why(next).await.unwrap();
    assert_eq!(why.gates, [Gate::Blocked { holder }]);
    assert!(
        why.to_string().contains(&format!("until {id}, which holds its unique key and is running"))
    );
    go.notify_one();
    mill.wait(id, SOON).await.unwrap();
    let why = mill.why(id).await.unwrap();
    assert!(matches!(why.gates[..], [Gate::Finished { state: State::Dead, .. }]), "{why}");
    assert!(why.to_string().contains("`tidemill dead replay` lets it run again"), "{why}");
    go.notify_one();
    mill.wait(next, SOON).await.unwrap();
    worker.stop().await;
}

async fn what_is_blocked_says_its_own_time_too(kit: Kit) {
    let mill = kit.open_still().await;
    let at = mill.store().now().await.unwrap() + HOUR;
    let (unserved, due) = (Gate::NoWorker { queue: "q".into() }, Gate::Due { at, attempt: 0 });
    let ordered = || echo("q").key("k").ordered(OnDead::Block);
    let head = mill.enqueue(ordered()).await.unwrap().id();
    let second = mill.enqueue(ordered().delay(HOUR)).await.unwrap().id();
    let line = |ahead| Gate::Line { key: "k".into(), ahead, head: Some(head), dead: false };
    let why = mill.why(second).await.unwrap();
    assert_eq!(why.gates, [line(1), due.clone(), unserved.clone()], "{why}");
    assert_eq!(why.expected_at, None, "the line decides too");
    let third = mill.enqueue(ordered()).await.unwrap().id();
    assert_eq!(gates(&mill, third).await, [line(2), unserved.clone()], "it has no time of its own");
    let steps = |flow: Flow, due: fn(Enqueue) -> Enqueue| {
        flow.then("first", echo("q")).then("second", due(echo("q")).id(JobId::new()))
    };
    for (due_in_flow, own) in [
        ((|job| job.delay(HOUR)) as fn(Enqueue) -> Enqueue, Gate::Delay { delay_ms: 3_600_000 }),
        (|job| job, unserved.clone()),
    ] {
        let id = mill.start(steps(Flow::new("f"), due_in_flow)).await.unwrap();
        let filter = tidemill::store::JobFilter { limit: 50, ..Default::default() };
        let page = mill.jobs(&filter).await.unwrap();
        let is_second = |view: &&tidemill::store::JobView| {
            let place = view.job.options.flow.as_deref();
            place.is_some_and(|place| place.id == id && place.name == "second")
        };
        let second = page.iter().find(is_second).expect("it is there").job.id;
        let why = mill.why(second).await.unwrap();
        assert!(matches!(why.gates[0], Gate::Flow { .. }) && why.gates[1] == own, "{why}");
    }
    kit.advance(HOUR);
    assert_eq!(gates(&mill, second).await, [line(1), unserved], "its time has come");
}
