//! Dead runs that are sent on their way again, and forks: history is not rewritten.

use tidemill::core::workflow::UNDOS_MAX;
use tidemill::testing::drain;
use tidemill::{
    Context, Enqueue, Fail, ForkAs, Job, JobId, Retry, Signal, State, Tidemill, Worker,
};

use super::kit::{Echo, Kit};
use super::workflow::{Flowing, Log, TakeBack, undoing};

over_both_stores!(
    the_step_that_a_run_died_of_is_tried_again_also_beside_others_that_went_on,
    a_failure_that_was_handled_stays_when_the_run_dies_of_something_else,
    a_failure_after_which_the_code_went_on_is_told_as_it_was,
    a_step_that_dies_again_is_tried_again_each_time,
    a_step_that_runs_at_most_once_is_not_tried_again,
    items_of_a_map_that_failed_are_tried_again_and_no_others,
    a_map_tries_no_more_items_again_than_it_has_places,
    a_child_that_a_run_died_of_is_started_anew,
    a_fork_goes_on_from_its_step_with_what_was_heard_before,
    a_fork_undoes_only_what_it_did_itself,
    a_run_that_could_not_be_undone_as_a_whole_is_parked_in_time,
);

/// A step that fails for good the first times, as the log counts them.
async fn flaky(cx: &Context, log: &Log, name: &'static str, bad: usize) -> Result<String, Fail> {
    let body = || {
        log.add(name);
        let tries = log.all().iter().filter(|what| *what == name).count();
        async move { if tries <= bad { Err(Fail::permanent("tails")) } else { Ok(name.to_owned()) } }
    };
    cx.step(name).run(|_| body()).await
}

fn worker<F, Fut>(mill: &Tidemill, log: &Log, code: F) -> Worker
where
    F: Fn(Context, Log) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<String, Fail>> + Send + 'static,
{
    let log = log.clone();
    let worker = mill.worker().handle(|job: Echo, _cx| async move { Ok(job.text) });
    worker.handle(move |_: Flowing, cx| code(cx, log.clone()))
}

async fn state(mill: &Tidemill, id: JobId) -> State {
    let run = mill.run(id).await.unwrap().unwrap();
    assert_eq!(run.parked, None);
    mill.job(id).await.unwrap().unwrap().state
}

/// Runs it, sends it on its way again, and runs it again; answers how it stands.
async fn twice(mill: &Tidemill, worker: impl Fn() -> Worker) -> (JobId, State) {
    let id = mill.enqueue(Flowing { text: "x".to_owned() }).await.unwrap().id();
    drain(worker()).await.unwrap();
    assert_eq!(state(mill, id).await, State::Dead);
    assert!(mill.dead().replay_one(id, "op", None).await.unwrap());
    drain(worker()).await.unwrap();
    (id, state(mill, id).await)
}

async fn the_step_that_a_run_died_of_is_tried_again_also_beside_others_that_went_on(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        let branch = cx.scope("branch", |cx| {
            let log = log.clone();
            async move {
                flaky(&cx, &log, "b1", 0).await?;
                flaky(&cx, &log, "b2", 0).await
            }
        });
        let both = cx.join((flaky(&cx, &log, "toss", 1), branch)).await;
        let (toss, branch) = both.map_err(|fail| fail.context("together"))?;
        Ok(format!("{toss} {branch}"))
    };
    let (id, state) = twice(&mill, || worker(&mill, &log, code)).await;
    let view = mill.job(id).await.unwrap().unwrap();
    assert_eq!((state, view.output.unwrap().as_str()), (State::Done, r#""toss b2""#));
    let mut done = log.all();
    done.sort();
    assert_eq!(done, ["b1", "b2", "toss", "toss"], "what went well is not done again");
    let words: Vec<_> = mill.journal(id).await.unwrap().iter().map(|of| of.entry.word()).collect();
    assert_eq!(words, ["ended", "ended"], "nothing tells of the failure any more");
}

async fn a_failure_that_was_handled_stays_when_the_run_dies_of_something_else(kit: Kit) {
    let mill = kit.open_still().await;
    for goes_on in [false, true] {
        let code = move |cx: Context, log: Log| async move {
            let risk = flaky(&cx, &log, "risk", 1).await.unwrap_or_else(|_| "high".to_owned());
            if goes_on {
                flaky(&cx, &log, "note", 0).await?;
            }
            Err(Fail::permanent(format!("the risk is {risk}")))
        };
        let log = Log::default();
        let (id, state) = twice(&mill, || worker(&mill, &log, code)).await;
        assert_eq!(state, State::Dead);
        let error = mill.job(id).await.unwrap().unwrap().error;
        assert_eq!(error.as_deref(), Some("the risk is high"));
        assert_eq!(log.all().len(), 1 + usize::from(goes_on), "nothing is done again");
    }
}

async fn a_failure_after_which_the_code_went_on_is_told_as_it_was(kit: Kit) {
    let mill = kit.open_still().await;
    for what in ["step", "start", "pivot"] {
        let log = Log::default();
        let code = move |cx: Context, log: Log| async move {
            let tossed = flaky(&cx, &log, "toss", 1).await;
            if tossed.is_err() {
                match what {
                    "step" => drop(flaky(&cx, &log, "clean up", 0).await?),
                    "start" => drop(cx.start(Echo::new("clean up")).await?),
                    _ => cx.pivot().await?,
                }
            }
            tossed
        };
        let (_, state) = twice(&mill, || worker(&mill, &log, code)).await;
        assert_eq!(state, State::Dead, "{what}");
        let tossed = log.all().iter().filter(|what| *what == "toss").count();
        assert_eq!(tossed, 1, "{what}: history is as it was");
    }
}

async fn a_step_that_dies_again_is_tried_again_each_time(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        flaky(&cx, &log, "a", 0).await?;
        flaky(&cx, &log, "toss", 2).await?;
        flaky(&cx, &log, "b", 0).await
    };
    let (id, again) = twice(&mill, || worker(&mill, &log, code)).await;
    assert_eq!(again, State::Dead);
    assert!(mill.dead().replay_one(id, "op", None).await.unwrap());
    drain(worker(&mill, &log, code)).await.unwrap();
    assert_eq!(state(&mill, id).await, State::Done);
    assert_eq!(log.all(), ["a", "toss", "toss", "toss", "b"]);
}

async fn items_of_a_map_that_failed_are_tried_again_and_no_others(kit: Kit) {
    let mill = kit.open_still().await;
    for (at_once, is_nested) in [(1, false), (2, false), (9, false), (1, true)] {
        let log = Log::default();
        let code = move |cx: Context, log: Log| async move {
            let item = async |cx: Context, log: Log, (name, bad): (&'static str, usize)| {
                flaky(&cx, &log, "before", 0).await?;
                flaky(&cx, &log, name, bad).await
            };
            let items = [("i0", 0), ("i1", 1), ("i2", 0), ("i3", 0)];
            let all = move |cx: Context, log: Log| async move {
                let each = |cx, of| item(cx, log.clone(), of);
                Ok(cx.map("items", items, at_once, each).await?.join(" "))
            };
            if !is_nested {
                return all(cx, log).await;
            }
            let outer = cx.map("rounds", [0, 1], 1, |cx, _| all(cx, log.clone()));
            Ok(outer.await?.join(" "))
        };
        let (id, state) = twice(&mill, || worker(&mill, &log, code)).await;
        assert_eq!(state, State::Done, "{at_once} at once, nested: {is_nested}");
        let output = mill.job(id).await.unwrap().unwrap().output.unwrap();
        let all = if is_nested { r#""i0 i1 i2 i3 i0 i1 i2 i3""# } else { r#""i0 i1 i2 i3""# };
        assert_eq!(output.as_str(), all);
        let rounds = 1 + usize::from(is_nested);
        let tries = |name: &str| log.all().iter().filter(|of| *of == name).count();
        assert_eq!((tries("i1"), tries("before")), (rounds + 1, 4 * rounds));
        assert_eq!((tries("i0"), tries("i2"), tries("i3")), (rounds, rounds, rounds));
    }
}

async fn a_map_tries_no_more_items_again_than_it_has_places(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        let each = |cx: Context, name: &'static str| {
            let log = log.clone();
            async move { flaky(&cx, &log, name, 1).await }
        };
        Ok(cx.map("items", ["a", "b", "c"], 2, each).await?.join(" "))
    };
    let (id, again) = twice(&mill, || worker(&mill, &log, code)).await;
    assert_eq!(again, State::Dead, "of the third");
    assert_eq!(log.all().len(), 5);
    assert!(mill.dead().replay_one(id, "op", None).await.unwrap());
    drain(worker(&mill, &log, code)).await.unwrap();
    assert_eq!(state(&mill, id).await, State::Done);
    let output = mill.job(id).await.unwrap().unwrap().output.unwrap();
    assert_eq!((output.as_str(), log.all().len()), (r#""a b c""#, 6));
}

async fn a_child_that_a_run_died_of_is_started_anew(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        let each = |cx: Context, name: &'static str| {
            let log = log.clone();
            async move {
                flaky(&cx, &log, "before", 0).await?;
                cx.child(Tossed { text: name.to_owned() }).await
            }
        };
        Ok(cx.map("items", ["a", "b", "c"], 1, each).await?.join(" "))
    };
    let tossed = log.clone();
    let worker = || {
        let log = tossed.clone();
        worker(&mill, &tossed, code).handle(move |job: Tossed, _cx| {
            let log = log.clone();
            async move {
                log.add(job.text.clone());
                let tries = log.all().iter().filter(|what| **what == job.text).count();
                let is_bad = job.text == "b" && tries == 1;
                if is_bad { Err(Fail::permanent("tails")) } else { Ok(job.text) }
            }
        })
    };
    let (id, state) = twice(&mill, worker).await;
    let view = mill.job(id).await.unwrap().unwrap();
    assert_eq!((state, view.output.unwrap().as_str()), (State::Done, r#""a b c""#));
    let started = log.all().into_iter().filter(|what| what != "before").collect::<Vec<_>>();
    assert_eq!(started, ["a", "b", "c", "b"], "those that went well are not started again");
    let words: Vec<_> = mill.journal(id).await.unwrap().iter().map(|of| of.entry.word()).collect();
    assert_eq!(words, ["ended", "ended", "ended"], "nothing tells of the first one any more");
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Tossed {
    text: String,
}

impl Job for Tossed {
    const KIND: &'static str = "tossed";
    type Output = String;
}

async fn a_step_that_runs_at_most_once_is_not_tried_again(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        let body = || {
            log.add("charge");
            async { Err(Fail::ambiguous("no answer")) }
        };
        cx.step("charge").at_most_once().retry(Retry::attempts(1)).run(|_| body()).await
    };
    let (_, state) = twice(&mill, || worker(&mill, &log, code)).await;
    assert_eq!((state, log.all().len()), (State::Dead, 1));
}

async fn output(mill: &Tidemill, id: JobId) -> String {
    mill.job(id).await.unwrap().unwrap().output.unwrap().read().unwrap()
}

async fn a_fork_goes_on_from_its_step_with_what_was_heard_before(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        let step = async |name: &'static str, given: String| {
            let body = || {
                log.add(name);
                async { Ok(()) }
            };
            cx.step(name).input(&given).run(|_| body()).await
        };
        let first = cx.uuid();
        step("a", first.to_string()).await?;
        let said: u32 = cx.signal("say").await?;
        let second = cx.uuid();
        step("b", second.to_string()).await?;
        let more: u32 = cx.signal("say").await?;
        Ok(format!("{first} {said} {second} {more}"))
    };
    let say = async |id: JobId, number: u32| {
        mill.signal(id, Signal::new("say", &number)).await.unwrap();
        drain(worker(&mill, &log, code)).await.unwrap();
    };
    let id = mill.enqueue(Flowing { text: "x".to_owned() }).await.unwrap().id();
    say(id, 1).await;
    say(id, 2).await;
    let fork = mill.fork_run(id, "b", ForkAs::Beside, "ann", "").await.unwrap();
    drain(worker(&mill, &log, code)).await.unwrap();
    assert_eq!(
        state(&mill, fork).await,
        State::Blocked,
        "what was said later was said to the other"
    );
    say(fork, 5).await;
    let again = mill.fork_run(fork, "say#2", ForkAs::Beside, "ann", "").await.unwrap();
    say(again, 7).await;
    let told: Vec<Vec<String>> = {
        let mut told = Vec::new();
        for id in [id, fork, again] {
            told.push(output(&mill, id).await.split(' ').map(str::to_owned).collect());
        }
        told
    };
    assert_eq!(log.all(), ["a", "b", "b"], "what was done before is not done again");
    assert!(told.iter().all(|told| told[1] == "1"), "{told:?}");
    assert_eq!(told[0][0], told[1][0], "chance gave it what it gave the other");
    assert_ne!(told[0][2], told[1][2], "and from there on something of its own");
    assert_eq!(told[1][..3], told[2][..3], "so it is with a fork of a fork");
    assert_eq!([&told[0][3], &told[1][3], &told[2][3]], ["2", "5", "7"]);
}

async fn a_fork_undoes_only_what_it_did_itself(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, log: Log| async move {
        for name in ["reserve", "charge"] {
            let undo = Enqueue::raw(TakeBack::KIND, format!("{name:?}"));
            let body = || {
                log.add(name);
                async { Ok(()) }
            };
            cx.step(name).undo(undo).run(|_| body()).await?;
        }
        cx.signal::<()>("go").await?;
        Err(Fail::permanent("not approved"))
    };
    let both = || undoing(worker(&mill, &log, code), &log);
    let id = mill.enqueue(Flowing { text: "x".to_owned() }).await.unwrap().id();
    drain(both()).await.unwrap();
    let refused = mill.fork_run(id, "charge", ForkAs::Instead, "ann", "").await.unwrap_err();
    assert!(refused.to_string().contains("reserve"), "{refused}");
    let fork = mill.fork_run(id, "charge", ForkAs::Beside, "ann", "").await.unwrap();
    mill.signal(fork, Signal::new("go", &())).await.unwrap();
    drain(both()).await.unwrap();
    assert_eq!(state(&mill, fork).await, State::Dead);
    let undone = log.all().split_off(3);
    assert_eq!(undone.len(), 1, "{undone:?}");
    assert!(undone[0].contains("charge"), "{undone:?}");
    assert_eq!(state(&mill, id).await, State::Blocked, "the other is as it was");
}

async fn a_run_that_could_not_be_undone_as_a_whole_is_parked_in_time(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context, _: Log| async move {
        let undoable = |name: &str| {
            let undo = Enqueue::raw(TakeBack::KIND, "\"x\"");
            cx.step(name).undo(undo).run(|_| async { Ok(()) })
        };
        cx.join_all((0..UNDOS_MAX).map(|_| undoable("one"))).await?;
        cx.signal::<()>("go").await?;
        undoable("one more").await?;
        Err(Fail::permanent("it is undone"))
    };
    let both = || undoing(worker(&mill, &log, code), &log);
    let id = mill.enqueue(Flowing { text: "x".to_owned() }).await.unwrap().id();
    drain(both()).await.unwrap();
    assert_eq!(mill.run(id).await.unwrap().unwrap().parked, None);
    mill.signal(id, Signal::new("go", &())).await.unwrap();
    drain(both()).await.unwrap();
    let parked = mill.run(id).await.unwrap().unwrap().parked.unwrap().to_string();
    assert!(parked.contains("999 steps that can be undone"), "{parked}");
    assert!(log.all().is_empty(), "its last step did not begin, and nothing is undone");
}
