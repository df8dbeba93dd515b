//! Recorded histories: today's code is led along what runs did, and nothing is done by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tidemill::testing::{self, drain};
use tidemill::{
    Context, Enqueue, Fail, First, History, JobId, Replayed, RunsToReplay, Settings, Signal,
    Tidemill, Worker,
};

use super::kit::{Echo, Kit};
use super::workflow::{DAY, Flowing};

over_both_stores!(
    a_history_is_followed_at_every_moment_of_a_run_and_no_body_runs,
    code_that_differs_from_a_history_is_told_how,
    code_that_ends_otherwise_than_a_run_that_is_done_differs,
    code_that_does_not_come_to_the_end_of_a_history_says_why,
    runs_under_way_are_looked_at_and_left_alone,
    a_run_that_continues_anew_is_followed,
    a_history_of_a_kind_without_a_handler_is_refused,
);

/// A workflow of everything there is. Counts the bodies that ran.
async fn all(cx: Context, bodies: Arc<AtomicU32>) -> Result<String, Fail> {
    let body = |name: &'static str| {
        let bodies = Arc::clone(&bodies);
        cx.step(name).input(&name).undo(Enqueue::raw("take_back", "{}")).run(move |_| {
            bodies.fetch_add(1, Ordering::SeqCst);
            async move { Ok(name.len()) }
        })
    };
    let began = cx.now().await?;
    let hold = body("reserve").await?;
    let (tax, risk) = cx.join((body("tax"), body("risk"))).await?;
    let first = cx.race((cx.signal::<bool>("approve"), cx.sleep(DAY))).await?;
    assert!(matches!(first, First::A(true)), "{first:?} {began}");
    cx.sleep(DAY).await?;
    let each = cx.map("each", 0..3_u32, 2, |cx, n| async move {
        cx.sleep(DAY).await?;
        cx.step("one").run(|_| async move { Ok(n) }).await
    });
    let sum: u32 = each.await?.iter().sum();
    let said = cx.child(Echo::new("child")).await?;
    cx.pivot().await?;
    let version = cx.version("letters", 1..=2).await?;
    body("charge").await?;
    Ok(format!("{hold} {tax} {risk} {sum} {said} {version} {}", cx.random() % 2 < 2))
}

fn worker(mill: &Tidemill, bodies: &Arc<AtomicU32>) -> Worker {
    let bodies = Arc::clone(bodies);
    let worker = mill.worker().handle(move |_: Flowing, cx| all(cx, Arc::clone(&bodies)));
    worker.handle(|echo: Echo, _| async move { Ok(echo.text) })
}

fn coded<F, Fut>(mill: &Tidemill, code: F) -> Worker
where
    F: Fn(Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, Fail>> + Send + 'static,
{
    mill.worker().handle(move |_: Flowing, cx| code(cx))
}

async fn enqueue(mill: &Tidemill) -> JobId {
    mill.enqueue(Flowing { text: "x".to_owned() }).await.unwrap().id()
}

/// A history as a fixture keeps it.
async fn kept(mill: &Tidemill, id: JobId) -> History {
    let history = mill.history(id).await.unwrap();
    let text = serde_json::to_string(&history).unwrap();
    let read: History = serde_json::from_str(&text).unwrap();
    assert_eq!(read, history, "{text}");
    read
}

async fn a_history_is_followed_at_every_moment_of_a_run_and_no_body_runs(kit: Kit) {
    let (mill, elsewhere) = (kit.open_still().await, Tidemill::open("sqlite::memory:").await);
    let (elsewhere, looked) = (elsewhere.unwrap(), Arc::new(AtomicU32::new(0)));
    let bodies = Arc::default();
    let id = enqueue(&mill).await;
    let mut told = Vec::new();
    loop {
        drain(worker(&mill, &bodies)).await.unwrap();
        let history = kept(&mill, id).await;
        // Somewhere else, at another time: the history says all.
        let replayed = testing::replay(worker(&elsewhere, &looked), &history).await.unwrap();
        assert!(replayed.follows(), "{replayed} {history:?}");
        told.push(replayed.to_string());
        if matches!(replayed, Replayed::Returns { .. }) {
            break;
        }
        if told.len() == 1 {
            mill.signal(id, Signal::new("approve", &true)).await.unwrap();
            let history = kept(&mill, id).await;
            let replayed = testing::replay(worker(&elsewhere, &looked), &history).await.unwrap();
            told.push(replayed.to_string());
        } else {
            kit.advance(DAY);
        }
        assert!(told.len() < 20, "{told:?}");
    }
    assert_eq!(looked.load(Ordering::SeqCst), 0, "no body ran for a look");
    assert_eq!(bodies.load(Ordering::SeqCst), 4);
    assert_eq!(told[0], "follows, and waits for signal approve, sleep sleep");
    assert_eq!(told[1], "follows, and waits for sleep sleep#2", "the mail is part of the history");
    assert!(told.contains(&"follows, and waits for sleep each[2]/sleep".to_owned()), "{told:?}");
    assert_eq!(told.last().unwrap(), "follows, and ends well");
}

async fn two(cx: Context, first: &str, second: &str) -> Result<String, Fail> {
    cx.step(first).run(|_| async { Ok(()) }).await?;
    cx.sleep(DAY).await?;
    cx.step(second).run(|_| async { Ok(second.to_owned()) }).await
}

async fn code_that_differs_from_a_history_is_told_how(kit: Kit) {
    let mill = kit.open_still().await;
    let id = enqueue(&mill).await;
    drain(coded(&mill, |cx| two(cx, "a", "b"))).await.unwrap();
    let history = kept(&mill, id).await;
    let replayed = testing::replay(coded(&mill, |cx| two(cx, "a", "c")), &history).await.unwrap();
    assert_eq!(replayed.to_string(), "follows, and waits for sleep sleep");
    let replayed = testing::replay(coded(&mill, |cx| two(cx, "x", "b")), &history).await.unwrap();
    let Replayed::Differs { diff } = &replayed else { panic!("{replayed}") };
    assert_eq!(diff.journal, "the step or scope \"a\" next (entry 0)");
    assert_eq!(diff.code, "asks for \"x\"");
    let none = coded(&mill, |_| async { Ok(String::new()) });
    let replayed = testing::replay(none, &history).await.unwrap();
    assert!(replayed.to_string().ends_with("but the code ends"), "{replayed}");
    let woken = coded(&mill, |cx| async move {
        cx.sleep(DAY).await?;
        Ok(String::new())
    });
    let replayed = testing::replay(woken, &history).await.unwrap();
    assert!(!replayed.follows(), "{replayed}");
}

async fn code_that_ends_otherwise_than_a_run_that_is_done_differs(kit: Kit) {
    let mill = kit.open_still().await;
    let id = enqueue(&mill).await;
    drain(coded(&mill, |cx| two(cx, "a", "b"))).await.unwrap();
    kit.advance(DAY);
    drain(coded(&mill, |cx| two(cx, "a", "b"))).await.unwrap();
    let history = kept(&mill, id).await;
    let other = |end: &'static str, more: bool| {
        coded(&mill, move |cx| async move {
            two(cx.clone(), "a", "b").await?;
            if more {
                cx.step("more").run(|_| async { Ok(()) }).await?;
            }
            Ok(end.to_owned())
        })
    };
    let cases = [("b", false, true), ("z", false, false), ("b", true, false)];
    for (end, more, follows) in cases {
        let replayed = testing::replay(other(end, more), &history).await.unwrap();
        assert_eq!(replayed.follows(), follows, "{end} {more}: {replayed}");
    }
    let replayed = testing::replay(other("b", true), &history).await.unwrap();
    let told = r#"the journal has the end next, with "b", but the code begins more"#;
    assert_eq!(replayed.to_string(), told);
}

async fn code_that_does_not_come_to_the_end_of_a_history_says_why(kit: Kit) {
    let mill = kit.open_still().await;
    let id = enqueue(&mill).await;
    drain(coded(&mill, |cx| two(cx, "a", "b"))).await.unwrap();
    let history = kept(&mill, id).await;
    let stops = async |worker: Worker, why: &str| {
        let replayed = testing::replay(worker, &history).await.unwrap();
        assert!(matches!(replayed, Replayed::Stops { .. }), "{replayed}");
        assert!(replayed.to_string().contains(why), "{replayed}");
    };
    let failing = |_| async { Err(Fail::transient("no configuration")) };
    stops(coded(&mill, failing), "no configuration").await;
    stops(coded(&mill, |_| async { panic!("nothing works") }), "nothing works").await;
    let reads = coded(&mill, |cx| async move {
        let number: u32 = cx.step("a").run(|_| async { Ok(1) }).await?;
        Ok(number.to_string())
    });
    stops(reads, "cannot be read").await;
}

async fn runs_under_way_are_looked_at_and_left_alone(kit: Kit) {
    let mill = kit.open_still().await;
    let id = enqueue(&mill).await;
    let kind = Settings::default();
    let plain = |mill: &Tidemill, ran: &Arc<AtomicU32>| {
        let ran = Arc::clone(ran);
        mill.worker().handle_raw("plain", kind.clone(), move |_, _| {
            let ran = Arc::clone(&ran);
            async move { Err(Fail::permanent(ran.fetch_add(1, Ordering::SeqCst))) }
        })
    };
    drain(coded(&mill, |cx| two(cx, "a", "b"))).await.unwrap();
    let other = mill.enqueue(Enqueue::raw("plain", "{}")).await.unwrap().id();
    mill.signal(other, Signal::new("hello", &1)).await.unwrap();
    let before = kept(&mill, id).await;

    let ran = Arc::new(AtomicU32::new(0));
    let which = RunsToReplay::default();
    let seen = plain(&mill, &ran).replay_runs(&which).await.unwrap();
    assert!(seen.is_empty(), "no run of its kinds has begun: {seen:?}");
    assert_eq!(ran.load(Ordering::SeqCst), 0, "what only got mail is not run for a look");

    let same = coded(&mill, |cx| two(cx, "a", "b")).replay_runs(&which).await.unwrap();
    assert_eq!((same.len(), same[0].run, same[0].replayed.follows()), (1, id, true), "{same:?}");
    let one = RunsToReplay { run: Some(id), ..RunsToReplay::default() };
    let changed = coded(&mill, |cx| two(cx, "x", "b")).replay_runs(&one).await.unwrap();
    assert!(!changed[0].replayed.follows(), "{changed:?}");
    let none = RunsToReplay { kind: Some("other".to_owned()), ..RunsToReplay::default() };
    assert!(coded(&mill, |cx| two(cx, "a", "b")).replay_runs(&none).await.unwrap().is_empty());
    assert_eq!(kept(&mill, id).await, before);
}

async fn a_run_that_continues_anew_is_followed(kit: Kit) {
    let mill = kit.open_still().await;
    let code = |cx: Context| async move {
        let Flowing { text } = cx.job().payload.read().map_err(Fail::permanent)?;
        cx.step("a").run(|_| async { Ok(()) }).await?;
        cx.signal::<()>("go").await?;
        if text == "x" {
            return cx.continue_as_new(Flowing { text: "xx".to_owned() }).await;
        }
        Ok(text)
    };
    let id = enqueue(&mill).await;
    let mut told = Vec::new();
    for _ in 0..2 {
        drain(coded(&mill, code)).await.unwrap();
        for is_called in [false, true] {
            if is_called {
                mill.signal(id, Signal::new("go", &())).await.unwrap();
            }
            let history = kept(&mill, id).await;
            let replayed = testing::replay(coded(&mill, code), &history).await.unwrap();
            told.push(replayed.to_string());
        }
    }
    let waits = "follows, and waits for signal go";
    let expected = [waits, "follows, and continues anew", waits, "follows, and ends well"];
    assert_eq!(told, expected);
}

async fn a_history_of_a_kind_without_a_handler_is_refused(kit: Kit) {
    let mill = kit.open_still().await;
    let id = enqueue(&mill).await;
    assert_eq!(mill.history(id).await.unwrap_err().code(), "run_unknown");
    assert_eq!(mill.history(JobId::new()).await.unwrap_err().code(), "job_unknown");
    drain(coded(&mill, |cx| two(cx, "a", "b"))).await.unwrap();
    let history = kept(&mill, id).await;
    let refused = testing::replay(mill.worker(), &history).await.unwrap_err();
    assert_eq!(refused.code(), "handler_missing");
}
