//! Workflows from a user's side: handlers whose context is durable.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill::core::flow::FlowState;
use tidemill::testing::drain;
use tidemill::{
    Backoff, Context, Enqueue, Fail, First, FlowId, Job, JobId, OnDuplicate, Retry, RunFilter,
    Signal, State, Tidemill, Undo, Unique, Worker,
};

use super::kit::{Echo, Kit};

over_both_stores!(
    a_step_that_ended_is_not_run_again,
    a_long_sleep_holds_nothing_and_ends_in_its_time,
    a_signal_is_kept_from_before_it_is_waited_for,
    a_signal_wakes_the_run_that_waits_for_it,
    the_first_of_a_race_wins_and_stays_the_winner,
    parallel_steps_replay_in_any_order,
    a_parent_waits_for_its_children_without_a_slot,
    a_child_that_dies_is_an_error_of_its_own,
    a_step_is_retried_by_its_own_policy,
    code_that_differs_from_its_journal_parks_the_run,
    what_a_failed_run_did_is_undone_in_reverse,
    a_cancelled_run_is_undone_and_its_children_are_called_off,
    past_the_pivot_nothing_is_undone,
    values_stay_the_same,
    a_run_shows_its_state_while_it_waits,
    a_run_can_be_paused_resumed_and_reset,
    a_dead_run_is_tried_again_from_where_it_failed,
    signal_with_start_reaches_the_run_that_is_there,
    signals_to_nobody_are_refused,
    a_scope_that_ended_takes_one_entry,
    durable_calls_in_a_step_park_the_run,
    a_deadline_finds_a_run_that_waits,
    a_worker_runs_workflows_by_itself,
);

pub const DAY: Duration = Duration::from_hours(24);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Flowing {
    pub text: String,
}

impl Job for Flowing {
    const KIND: &'static str = "flowing";
    type Output = String;
}

fn flowing() -> Flowing {
    Flowing { text: "x".to_owned() }
}

/// What happened, in order.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

async fn say(cx: &Context, log: &Log, what: &str) -> Result<String, Fail> {
    cx.step(what).run(|_| async { Ok(log.clone().said(what)) }).await
}

impl Log {
    fn said(&self, what: &str) -> String {
        self.add(what);
        what.to_owned()
    }
}

fn worker<F, Fut>(mill: &Tidemill, log: &Log, code: F) -> Worker
where
    F: Fn(Context, Log) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<String, Fail>> + Send + 'static,
{
    let log = log.clone();
    mill.worker().handle(move |_: Flowing, cx| code(cx, log.clone()))
}

async fn state(mill: &Tidemill, id: JobId) -> State {
    mill.job(id).await.unwrap().unwrap().state
}

async fn output(mill: &Tidemill, id: JobId) -> String {
    let view = mill.job(id).await.unwrap().unwrap();
    let output = view.output.unwrap_or_else(|| panic!("it is {:?}: {:?}", view.state, view.error));
    output.read().unwrap()
}

async fn enqueue(mill: &Tidemill) -> JobId {
    mill.enqueue(flowing()).await.unwrap().id()
}

async fn a_step_that_ended_is_not_run_again(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        let a = say(&cx, &log, "a").await?;
        log.add(format!("attempt {}", cx.attempt()));
        if cx.attempt() == 1 {
            return Err(Fail::transient("again"));
        }
        let b = say(&cx, &log, "b").await?;
        Ok(a + &b)
    };
    let id = enqueue(&mill).await;
    drain(worker(&mill, &log, code)).await.unwrap();
    kit.advance(DAY);
    drain(worker(&mill, &log, code)).await.unwrap();
    assert_eq!(output(&mill, id).await, "ab");
    assert_eq!(log.all(), ["a", "attempt 1", "attempt 2", "b"]);
    let words: Vec<_> =
        mill.journal(id).await.unwrap().iter().map(|r| r.entry.key().to_owned()).collect();
    assert_eq!(words, ["a", "b"]);
}

async fn a_long_sleep_holds_nothing_and_ends_in_its_time(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        say(&cx, &log, "before").await?;
        cx.sleep(DAY).await?;
        say(&cx, &log, "after").await
    };
    let id = enqueue(&mill).await;
    assert_eq!(drain(worker(&mill, &log, code)).await.unwrap().attempts, 1);
    assert_eq!(state(&mill, id).await, State::Scheduled);
    kit.advance(Duration::from_hours(23));
    assert_eq!(drain(worker(&mill, &log, code)).await.unwrap().attempts, 0);
    let run = mill.run(id).await.unwrap().unwrap();
    assert_eq!(run.waits.unwrap().what, ["sleep sleep"]);
    kit.advance(Duration::from_hours(1));
    assert_eq!(drain(worker(&mill, &log, code)).await.unwrap().done, 1);
    assert_eq!(log.all(), ["before", "after"]);
}

async fn a_signal_is_kept_from_before_it_is_waited_for(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, _| async move {
        let first: u32 = cx.signal("n").await?;
        let second: u32 = cx.signal("n").await?;
        Ok(format!("{first} {second}"))
    };
    let id = enqueue(&mill).await;
    for n in [1, 2, 2] {
        mill.signal(id, Signal::new("n", &n).id(format!("id {n}"))).await.unwrap();
    }
    drain(worker(&mill, &log, code)).await.unwrap();
    assert_eq!(output(&mill, id).await, "1 2");
}

async fn a_signal_wakes_the_run_that_waits_for_it(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        let told: String = cx.signal("go").await?;
        say(&cx, &log, &told).await
    };
    let id = enqueue(&mill).await;
    drain(worker(&mill, &log, code)).await.unwrap();
    assert_eq!(state(&mill, id).await, State::Blocked);
    let why = mill.why(id).await.unwrap().to_string();
    assert!(why.contains("it waits for signal go"), "{why}");
    mill.signal(id, Signal::new("other", &1)).await.unwrap();
    drain(worker(&mill, &log, code)).await.unwrap();
    assert_eq!(state(&mill, id).await, State::Blocked);
    kit.advance(DAY);
    assert_eq!(drain(worker(&mill, &log, code)).await.unwrap().attempts, 0);
    mill.signal(id, Signal::new("go", "now")).await.unwrap();
    drain(worker(&mill, &log, code)).await.unwrap();
    assert_eq!((output(&mill, id).await.as_str(), log.all()), ("now", vec!["now".to_owned()]));
}

async fn the_first_of_a_race_wins_and_stays_the_winner(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        let approved = cx.race((cx.signal::<bool>("approve"), cx.sleep(DAY))).await?;
        let word = match approved {
            First::A(true) => "granted",
            First::A(false) => "denied",
            First::B(()) => "too late",
        };
        say(&cx, &log, word).await?;
        cx.sleep(DAY).await?;
        say(&cx, &log, "end").await?;
        Ok(word.to_owned())
    };
    let (granted, late) = (enqueue(&mill).await, enqueue(&mill).await);
    drain(worker(&mill, &log, code)).await.unwrap();
    mill.signal(granted, Signal::new("approve", &true)).await.unwrap();
    drain(worker(&mill, &log, code)).await.unwrap();
    kit.advance(DAY);
    drain(worker(&mill, &log, code)).await.unwrap();
    // It comes too late, and does not change who won.
    mill.signal(late, Signal::new("approve", &true)).await.unwrap();
    kit.advance(DAY);
    drain(worker(&mill, &log, code)).await.unwrap();
    assert_eq!(output(&mill, granted).await, "granted");
    assert_eq!(output(&mill, late).await, "too late");
    assert_eq!(log.all().iter().filter(|what| *what == "end").count(), 2);
}

async fn parallel_steps_replay_in_any_order(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        let (a, b) = cx.join((say(&cx, &log, "a"), say(&cx, &log, "b"))).await?;
        let squares = cx.map("square", 0..20_u64, 7, |cx, n| async move {
            cx.step("one").run(|_| async move { Ok(n * n) }).await
        });
        let sum: u64 = squares.await?.iter().sum();
        cx.sleep(DAY).await?;
        Ok(format!("{a}{b}{sum}"))
    };
    let id = enqueue(&mill).await;
    drain(worker(&mill, &log, code)).await.unwrap();
    kit.advance(DAY);
    drain(worker(&mill, &log, code)).await.unwrap();
    assert_eq!(output(&mill, id).await, "ab2470");
    assert_eq!(log.all(), ["a", "b"]);
}

async fn a_parent_waits_for_its_children_without_a_slot(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        let one = cx.child(Echo::new("one")).await?;
        let many = cx.children((0..100).map(|n| Echo::new(&n.to_string()))).await?;
        let many: Vec<String> = many.into_iter().collect::<Result<_, _>>()?;
        say(&cx, &log, "joined").await?;
        Ok(format!("{one} {} {}", many.len(), many[99]))
    };
    let id = enqueue(&mill).await;
    let worker = worker(&mill, &log, code).handle(|echo: Echo, _| async move { Ok(echo.text) });
    drain(worker).await.unwrap();
    assert_eq!(output(&mill, id).await, "one 100 99");
    assert_eq!(log.all(), ["joined"]);
}

async fn a_child_that_dies_is_an_error_of_its_own(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, _| async move {
        let ends = cx.children(["good", "bad"].map(Echo::new)).await?;
        Ok(ends.iter().map(|end| if end.is_ok() { "+" } else { "-" }).collect())
    };
    let id = enqueue(&mill).await;
    let worker = worker(&mill, &log, code).handle(|echo: Echo, _| async move {
        if echo.text == "bad" { Err(Fail::permanent("bad words")) } else { Ok(echo.text) }
    });
    drain(worker).await.unwrap();
    assert_eq!(output(&mill, id).await, "+-");
}

async fn a_step_is_retried_by_its_own_policy(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        let retry = Retry::attempts(3).backoff(Backoff::Fixed { delay_ms: 60_000 });
        let tried = cx.step("try").retry(retry).run(|s| {
            let log = log.clone();
            async move {
                log.add(format!(
                    "try {} of {}",
                    s.attempt(),
                    s.idempotency_key().rsplit('/').next().unwrap()
                ));
                Err::<(), Fail>(Fail::transient("no luck"))
            }
        });
        match tried.await {
            Ok(()) => Ok("lucky".to_owned()),
            Err(fail) => Ok(fail.to_string()),
        }
    };
    let id = enqueue(&mill).await;
    for _ in 0..3 {
        drain(worker(&mill, &log, code)).await.unwrap();
        kit.advance(Duration::from_mins(1));
    }
    assert_eq!(output(&mill, id).await, "permanent: no luck");
    assert_eq!(log.all(), ["try 1 of try", "try 2 of try", "try 3 of try"]);
}

async fn code_that_differs_from_its_journal_parks_the_run(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let old = |cx: Context, log: Log| async move {
        say(&cx, &log, "a").await?;
        cx.sleep(DAY).await?;
        say(&cx, &log, "b").await
    };
    let other = |cx: Context, log: Log| async move {
        say(&cx, &log, "c").await?;
        cx.sleep(DAY).await?;
        say(&cx, &log, "b").await
    };
    let id = enqueue(&mill).await;
    drain(worker(&mill, &log, old)).await.unwrap();
    kit.advance(DAY);
    drain(worker(&mill, &log, other)).await.unwrap();
    let run = mill.run(id).await.unwrap().unwrap();
    let why = run.parked.unwrap().to_string();
    assert!(
        why.contains("the step or scope \"a\" next (entry 0)") && why.contains("asks for \"c\""),
        "{why}"
    );
    kit.advance(DAY);
    assert_eq!(drain(worker(&mill, &log, other)).await.unwrap().attempts, 0, "it is parked");
    let parked = mill.runs(&RunFilter { parked: true, ..RunFilter::default() }).await.unwrap();
    assert_eq!(parked.len(), 1);
    let why = mill.why(id).await.unwrap().to_string();
    assert!(why.contains("it is parked until somebody resumes it: the journal has"), "{why}");
    mill.resume_run(id, "ann", "").await.unwrap();
    drain(worker(&mill, &log, old)).await.unwrap();
    assert_eq!(output(&mill, id).await, "b");
    assert_eq!(log.all(), ["a", "b"]);
}

#[derive(Debug, Serialize, Deserialize)]
pub struct TakeBack(Undo<String, serde_json::Value>);

impl Job for TakeBack {
    const KIND: &'static str = "take_back";
    type Output = ();
}

fn take_back(what: &str) -> Enqueue {
    Enqueue::raw(TakeBack::KIND, format!("{what:?}"))
}

pub fn undoing(worker: Worker, log: &Log) -> Worker {
    let log = log.clone();
    worker.handle(move |TakeBack(undo): TakeBack, _| {
        let output = undo.output.unwrap_or_default();
        log.add(format!("undo {} {:?} {output}", undo.payload, undo.outcome));
        async { Ok(()) }
    })
}

async fn booked(cx: &Context, log: &Log, what: &str) -> Result<String, Fail> {
    cx.step(what).undo(take_back(what)).run(|_| async { Ok(log.said(what)) }).await
}

async fn what_a_failed_run_did_is_undone_in_reverse(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        booked(&cx, &log, "hotel").await?;
        cx.sleep(DAY).await?;
        booked(&cx, &log, "flight").await?;
        Err(Fail::permanent("the card was refused"))
    };
    let id = enqueue(&mill).await;
    for _ in 0..2 {
        drain(undoing(worker(&mill, &log, code), &log)).await.unwrap();
        kit.advance(DAY);
    }
    assert_eq!(state(&mill, id).await, State::Dead);
    let expected = ["hotel", "flight", "undo flight Done \"flight\"", "undo hotel Done \"hotel\""];
    assert_eq!(log.all(), expected);
    let flow = mill.flow(FlowId(id.0)).await.unwrap().unwrap();
    assert_eq!(flow.head.state, FlowState::Done, "{flow:?}");
    // It cannot go on from where it was: what it did is gone.
    let refused = mill.dead().replay_one(id, "op", None).await.unwrap_err();
    assert_eq!(refused.code(), "run_not_now");
    assert!(refused.to_string().contains("is undone; enqueue it anew"), "{refused}");
    drain(undoing(worker(&mill, &log, code), &log)).await.unwrap();
    assert_eq!(log.all(), expected);
}

async fn a_cancelled_run_is_undone_and_its_children_are_called_off(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        booked(&cx, &log, "hotel").await?;
        cx.child(Echo::new("waits")).await
    };
    let id = enqueue(&mill).await;
    drain(undoing(worker(&mill, &log, code), &log)).await.unwrap();
    assert_eq!(state(&mill, id).await, State::Blocked);
    mill.cancel(id, "changed my mind").await.unwrap();
    drain(undoing(worker(&mill, &log, code), &log)).await.unwrap();
    assert_eq!(log.all(), ["hotel", "undo hotel Done \"hotel\""]);
    let filter = tidemill::JobFilter { kind: Some("echo".to_owned()), ..Default::default() };
    let child = mill.jobs(&filter).await.unwrap().pop().unwrap();
    assert_eq!(child.state, State::Cancelled);
}

async fn past_the_pivot_nothing_is_undone(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        booked(&cx, &log, "hotel").await?;
        cx.pivot().await?;
        Err(Fail::permanent("too bad"))
    };
    let id = enqueue(&mill).await;
    drain(undoing(worker(&mill, &log, code), &log)).await.unwrap();
    assert_eq!((state(&mill, id).await, log.all()), (State::Dead, vec!["hotel".to_owned()]));
    assert!(mill.flow(FlowId(id.0)).await.unwrap().is_none());
}

async fn values_stay_the_same(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        let (now, random, uuid) = (cx.now().await?, cx.random(), cx.uuid());
        let version = cx.version("fix", 1..=2).await?;
        log.add(format!("{now} {random} {uuid} {version}"));
        cx.sleep(DAY).await?;
        Ok(String::new())
    };
    enqueue(&mill).await;
    drain(worker(&mill, &log, code)).await.unwrap();
    kit.advance(DAY);
    drain(worker(&mill, &log, code)).await.unwrap();
    let all = log.all();
    assert_eq!((all.len(), &all[0]), (2, &all[1]));
}

async fn a_run_shows_its_state_while_it_waits(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        cx.set_state("packing")?;
        say(&cx, &log, "packed").await?;
        cx.set_state("waits for the postman")?;
        let () = cx.signal("postman").await?;
        Ok(String::new())
    };
    let id = enqueue(&mill).await;
    drain(worker(&mill, &log, code)).await.unwrap();
    assert_eq!(
        mill.run_state::<String>(id).await.unwrap().as_deref(),
        Some("waits for the postman")
    );
}

async fn a_run_can_be_paused_resumed_and_reset(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        say(&cx, &log, "a").await?;
        say(&cx, &log, "b").await?;
        cx.sleep(DAY).await?;
        say(&cx, &log, "c").await
    };
    let id = enqueue(&mill).await;
    drain(worker(&mill, &log, code)).await.unwrap();
    mill.pause_run(id, "ann", "").await.unwrap();
    kit.advance(DAY);
    assert_eq!(drain(worker(&mill, &log, code)).await.unwrap().attempts, 0, "it is paused");
    assert!(mill.run(id).await.unwrap().unwrap().paused);
    let why = mill.why(id).await.unwrap().to_string();
    assert!(why.contains("it is paused until somebody resumes it"), "{why}");
    let unknown = mill.reset_run(id, "nothing", "ann", "").await.unwrap_err();
    assert_eq!(unknown.code(), "run_not_now");
    mill.reset_run(id, "b", "ann", "").await.unwrap();
    assert_eq!(drain(worker(&mill, &log, code)).await.unwrap().attempts, 0, "it stays paused");
    mill.resume_run(id, "ann", "").await.unwrap();
    drain(worker(&mill, &log, code)).await.unwrap();
    assert_eq!(log.all(), ["a", "b", "b"], "it sleeps anew");
    kit.advance(DAY);
    drain(worker(&mill, &log, code)).await.unwrap();
    assert_eq!(output(&mill, id).await, "c");
    assert_eq!(mill.reset_run(id, "b", "ann", "").await.unwrap_err().code(), "run_not_now");
}

async fn a_dead_run_is_tried_again_from_where_it_failed(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let luck = Arc::new(AtomicU32::new(0));
    let tossed = Arc::clone(&luck);
    let code = move |cx: Context, log: Log| {
        let luck = Arc::clone(&tossed);
        async move {
            say(&cx, &log, "a").await?;
            let toss = || {
                let luck = luck.load(Ordering::SeqCst);
                async move { if luck == 0 { Err(Fail::permanent("tails")) } else { Ok(()) } }
            };
            cx.step("toss").run(|_| toss()).await?;
            say(&cx, &log, "b").await
        }
    };
    let id = enqueue(&mill).await;
    drain(worker(&mill, &log, code.clone())).await.unwrap();
    assert_eq!(state(&mill, id).await, State::Dead);
    luck.store(1, Ordering::SeqCst);
    assert!(mill.dead().replay_one(id, "op", None).await.unwrap());
    drain(worker(&mill, &log, code)).await.unwrap();
    assert_eq!(
        (output(&mill, id).await.as_str(), log.all()),
        ("b", vec!["a".to_owned(), "b".to_owned()])
    );
}

async fn signal_with_start_reaches_the_run_that_is_there(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, _| async move {
        let (a, b): (String, String) = (cx.signal("add").await?, cx.signal("add").await?);
        Ok(a + &b)
    };
    let start = || {
        Enqueue::from(flowing()).unique(Unique::by_key("cart:1").on_duplicate(OnDuplicate::Join))
    };
    let first = mill.signal_with_start(start(), Signal::new("add", "a")).await.unwrap();
    drain(worker(&mill, &log, code)).await.unwrap();
    let second = mill.signal_with_start(start(), Signal::new("add", "b")).await.unwrap();
    assert_eq!((first.is_new(), second.is_new(), first.id()), (true, false, second.id()));
    drain(worker(&mill, &log, code)).await.unwrap();
    assert_eq!(output(&mill, first.id()).await, "ab");
}

async fn signals_to_nobody_are_refused(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let signal = || Signal::new("x", &1);
    assert_eq!(mill.signal(JobId::new(), signal()).await.unwrap_err().code(), "job_unknown");
    let id = enqueue(&mill).await;
    drain(worker(&mill, &log, |_, _| async { Ok(String::new()) })).await.unwrap();
    assert_eq!(mill.signal(id, signal()).await.unwrap_err().code(), "run_finished");
    assert_eq!(mill.resume_run(id, "ann", "").await.unwrap_err().code(), "run_unknown");
    assert_eq!(mill.signal(id, Signal::new("", &1)).await.unwrap_err().code(), "name_empty");
}

async fn a_scope_that_ended_takes_one_entry(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        for round in 0..5 {
            let log = log.clone();
            let scope = cx.scope("round", move |cx| async move {
                for what in ["a", "b", "c"] {
                    say(&cx, &log, what).await?;
                }
                cx.sleep(DAY).await?;
                Ok(round)
            });
            scope.await?;
        }
        Ok(String::new())
    };
    let id = enqueue(&mill).await;
    for _ in 0..6 {
        drain(worker(&mill, &log, code)).await.unwrap();
        kit.advance(DAY);
    }
    assert_eq!(state(&mill, id).await, State::Done);
    assert_eq!(log.all().len(), 15);
    let journal = mill.journal(id).await.unwrap();
    let keys: Vec<_> = journal.iter().map(|recorded| recorded.entry.key()).collect();
    assert_eq!(keys, ["round", "round#2", "round#3", "round#4", "round#5"]);
}

async fn durable_calls_in_a_step_park_the_run(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, _| async move {
        let outer = cx.step("outer").run(|_| {
            let cx = cx.clone();
            async move { cx.step("inner").run(|_| async { Ok(1) }).await }
        });
        outer.await?;
        Ok(String::new())
    };
    let id = enqueue(&mill).await;
    drain(worker(&mill, &log, code)).await.unwrap();
    let why = mill.run(id).await.unwrap().unwrap().parked.unwrap().to_string();
    assert!(why.contains("\"inner\" was asked for in the body of a step"), "{why}");
}

async fn a_deadline_finds_a_run_that_waits(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, _| async move { cx.signal::<String>("never").await };
    let job = Enqueue::from(flowing()).finish_within(DAY);
    let id = mill.enqueue(job).await.unwrap().id();
    drain(worker(&mill, &log, code)).await.unwrap();
    assert_eq!(state(&mill, id).await, State::Scheduled);
    kit.advance(DAY);
    drain(worker(&mill, &log, code)).await.unwrap();
    let view = mill.job(id).await.unwrap().unwrap();
    assert_eq!(view.error.as_deref(), Some("it did not finish within its deadline"));
}

async fn a_worker_runs_workflows_by_itself(kit: Kit) {
    let (mill, log) = (kit.open().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        say(&cx, &log, "a").await?;
        cx.sleep(Duration::from_millis(20)).await?;
        let both = cx.race((cx.signal::<String>("never"), say(&cx, &log, "won"))).await?;
        let told: String = cx.signal("told").await?;
        let child = cx.child(Echo::new("child")).await?;
        Ok(format!("{both:?} {told} {child}"))
    };
    let worker = worker(&mill, &log, code).handle(|echo: Echo, _| async move { Ok(echo.text) });
    let running = worker.start().await.unwrap();
    let id = enqueue(&mill).await;
    mill.signal(id, Signal::new("told", "heard")).await.unwrap();
    let output = mill.result::<Flowing>(id, super::kit::SOON).await.unwrap();
    assert_eq!(output, "B(\"won\") heard child");
    running.stop().await;
}
