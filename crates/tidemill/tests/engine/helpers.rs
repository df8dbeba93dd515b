//! The help for users' tests: no server, no waiting.

use std::time::Duration;

use tidemill::core::Settlement;
use tidemill::testing::{assert_enqueued, drain, enqueued, run_inline};
use tidemill::{Context, Enqueue, Fail, JobId, RunFilter};

use super::kit::{Echo, Kit};

over_both_stores!(
    assert_enqueued_finds_what_waits,
    assert_enqueued_names_what_is_missing,
    run_inline_answers_what_would_be_settled_and_touches_nothing,
    run_inline_runs_a_workflow_up_to_where_it_waits_and_writes_nothing,
    drain_runs_all_that_is_due_and_nothing_else,
);

async fn assert_enqueued_finds_what_waits(kit: Kit) {
    let mill = kit.open_still().await;
    mill.enqueue(Enqueue::from(Echo::new("later")).delay(Duration::from_secs(9))).await.unwrap();
    mill.enqueue(Echo::new("now")).await.unwrap();
    assert_enqueued::<Echo>(&mill, |echo| echo.text == "later").await;
    assert_enqueued::<Echo>(&mill, |echo| echo.text == "now").await;
    assert_eq!(enqueued::<Echo>(&mill).await.unwrap().len(), 2);
    drain(mill.worker().handle(|echo: Echo, _cx| async move { Ok(echo.text) })).await.unwrap();
    assert_eq!(enqueued::<Echo>(&mill).await.unwrap(), [Echo::new("later")]);
}

async fn assert_enqueued_names_what_is_missing(kit: Kit) {
    let mill = kit.open_still().await;
    mill.enqueue(Echo::new("x")).await.unwrap();
    let asserting =
        tokio::spawn(async move { assert_enqueued::<Echo>(&mill, |echo| echo.text == "y").await });
    let panic = asserting.await.unwrap_err().into_panic();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("helpers.rs"), "{message}");
    assert!(message.contains("of 1 waiting jobs of kind echo, none fits"), "{message}");
}

async fn run_inline_answers_what_would_be_settled_and_touches_nothing(kit: Kit) {
    let mill = kit.open_still().await;
    let next = JobId::new();
    let worker = || {
        mill.worker().handle(move |echo: Echo, cx| async move {
            cx.follow_up(Enqueue::from(Echo::new("next")).id(next))?;
            if echo.text == "bad" { Err(Fail::permanent("bad words")) } else { Ok(echo.text) }
        })
    };
    match run_inline(worker(), Echo::new("good")).await.unwrap() {
        Settlement::Done { output, follow_ups } => {
            assert_eq!(output.as_str(), "\"good\"");
            assert_eq!(follow_ups.len(), 1);
        }
        other => panic!("{other:?}"),
    }
    match run_inline(worker(), Echo::new("bad")).await.unwrap() {
        Settlement::Dead { failure } => assert_eq!(failure.message, "bad words"),
        other => panic!("{other:?}"),
    }
    assert_eq!(mill.unfinished().await.unwrap().waiting, 0);
    assert!(mill.job(next).await.unwrap().is_none());
}

async fn run_inline_runs_a_workflow_up_to_where_it_waits_and_writes_nothing(kit: Kit) {
    let mill = kit.open_still().await;
    let worker = || {
        mill.worker().handle(|echo: Echo, cx: Context| async move {
            let undo = Enqueue::raw("undo", "1");
            let text = echo.text.clone();
            let said = cx.step("say").undo(undo).run(|_| std::future::ready(Ok(text.clone())));
            let (said, n) = cx.join((said, cx.step("n").run(|_| async { Ok(7) }))).await?;
            cx.step("more").run(|_| async { Ok(()) }).await?;
            match echo.text.as_str() {
                "waits" => drop(cx.signal::<()>("go").await?),
                "starts" => drop(cx.child(Echo::new("child")).await?),
                "asleep" => cx.sleep(Duration::from_hours(1)).await?,
                "fails" => return Err(Fail::permanent("it fails")),
                _ => {}
            }
            Ok(format!("{said} {n}"))
        })
    };
    let settled = async |text: &str| run_inline(worker(), Echo::new(text)).await.unwrap();
    for (text, what) in [("waits", "signal go"), ("starts", "children echo"), ("asleep", "sleep")] {
        match settled(text).await {
            Settlement::Wait(waiting) => assert!(waiting.waits.what[0].starts_with(what)),
            other => panic!("{other:?}"),
        }
    }
    match settled("ends").await {
        Settlement::Done { output, .. } => assert_eq!(output.as_str(), r#""ends 7""#),
        other => panic!("{other:?}"),
    }
    assert!(matches!(settled("fails").await, Settlement::Dead { .. }));
    assert_eq!(mill.unfinished().await.unwrap().waiting, 0);
    assert!(mill.runs(&RunFilter::default()).await.unwrap().is_empty());
}

async fn drain_runs_all_that_is_due_and_nothing_else(kit: Kit) {
    let mill = kit.open_still().await;
    mill.enqueue_many((0..250).map(|n| Echo::new(&n.to_string()))).await.unwrap();
    mill.enqueue(Enqueue::from(Echo::new("later")).delay(Duration::from_secs(9))).await.unwrap();
    mill.enqueue(Enqueue::raw("unknown", "1")).await.unwrap();
    let worker = || mill.worker().handle(|echo: Echo, _cx| async move { Ok(echo.text) });
    assert_eq!(drain(worker()).await.unwrap().done, 250);
    assert_eq!(mill.unfinished().await.unwrap().waiting, 2);
    assert!(mill.workers().await.unwrap().is_empty());
    kit.advance(Duration::from_secs(9));
    assert_eq!(drain(worker()).await.unwrap().done, 1);
}
