//! Results: awaited from another process, typed, and honest about what did not work.

use std::time::Duration;

use tidemill::core::flow::FlowState;
use tidemill::{
    Context, Enqueue, Fail, Flow, Job, JobId, Payload, Settings, Signal, State, Tidemill, Worker,
};

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    output_reaches_another_process,
    waiting_starts_before_the_job_does,
    wait_that_is_too_short_says_where_the_job_stands,
    every_wait_may_be_as_long_as_it_takes,
    dead_and_cancelled_jobs_have_no_result,
    unknown_job_and_unreadable_output_are_told_apart,
);

fn echo(mill: &Tidemill) -> Worker {
    mill.worker().handle(|echo: Echo, _cx| async move {
        if echo.text == "bad" { Err(Fail::permanent("bad words")) } else { Ok(echo.text) }
    })
}

async fn output_reaches_another_process(kit: Kit) {
    let (asking, working) = (kit.open().await, kit.open().await);
    let running = echo(&working).start().await.unwrap();
    for n in 0..20 {
        let receipt = asking.enqueue(Echo::new(&n.to_string())).await.unwrap();
        assert_eq!(asking.result::<Echo>(receipt.id(), SOON).await.unwrap(), n.to_string());
    }
    running.stop().await;
}

async fn waiting_starts_before_the_job_does(kit: Kit) {
    let (asking, working) = (kit.open().await, kit.open().await);
    let id = asking.enqueue(Echo::new("late")).await.unwrap().id();
    let (result, running) =
        tokio::join!(asking.result::<Echo>(id, SOON), async { echo(&working).start().await });
    assert_eq!(result.unwrap(), "late");
    running.unwrap().stop().await;
}

async fn wait_that_is_too_short_says_where_the_job_stands(kit: Kit) {
    let mill = kit.open().await;
    let id = mill.enqueue(Enqueue::from(Echo::new("x")).delay(SOON)).await.unwrap().id();
    let error = mill.wait(id, Duration::from_millis(30)).await.unwrap_err();
    assert_eq!(error.code(), "wait_timeout");
    assert!(error.to_string().ends_with("it is scheduled"), "{error}");
}

async fn every_wait_may_be_as_long_as_it_takes(kit: Kit) {
    const EVER: Duration = Duration::MAX;
    let mill = kit.open().await;
    let worker = echo(&mill).handle_raw("sums", Settings::default(), |_, cx: Context| async move {
        let asked = cx.update::<u64>("add").await?;
        let sum = asked.value + 1;
        asked.answer(&sum).await?;
        Ok(Payload::null())
    });
    let running = worker.start().await.unwrap();
    let id = mill.enqueue(Echo::new("x")).await.unwrap().id();
    assert_eq!(mill.result::<Echo>(id, EVER).await.unwrap(), "x");
    assert_eq!(mill.wait(id, EVER).await.unwrap().state, State::Done);
    let flow = mill.start(Flow::new("f").then("a", Echo::new("x"))).await.unwrap();
    assert_eq!(mill.wait_flow(flow, EVER).await.unwrap().head.state, FlowState::Done);
    let run = mill.enqueue(Enqueue::raw("sums", "1")).await.unwrap().id();
    assert_eq!(mill.update::<u64>(run, Signal::new("add", &1), EVER).await.unwrap(), 2);
    assert!(mill.until_below("default", EVER).await.unwrap());
    running.stop().await;
}

async fn dead_and_cancelled_jobs_have_no_result(kit: Kit) {
    let mill = kit.open().await;
    let running = echo(&mill).start().await.unwrap();
    let dead = mill.enqueue(Echo::new("bad")).await.unwrap().id();
    let error = mill.result::<Echo>(dead, SOON).await.unwrap_err();
    assert_eq!(error.code(), "job_not_done");
    assert!(error.to_string().ends_with("is dead: bad words"), "{error}");
    let off = mill.enqueue(Enqueue::from(Echo::new("x")).delay(SOON)).await.unwrap().id();
    mill.cancel(off, "changed my mind").await.unwrap();
    let error = mill.result::<Echo>(off, SOON).await.unwrap_err();
    assert!(error.to_string().ends_with("is cancelled: changed my mind"), "{error}");
    running.stop().await;
}

async fn unknown_job_and_unreadable_output_are_told_apart(kit: Kit) {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Count;
    impl Job for Count {
        const KIND: &'static str = "echo";
        type Output = u64;
    }
    let mill = kit.open().await;
    let error = mill.wait(JobId::new(), SOON).await.unwrap_err();
    assert_eq!(error.code(), "job_unknown");
    let running = echo(&mill).start().await.unwrap();
    let id = mill.enqueue(Echo::new("words")).await.unwrap().id();
    let error = mill.result::<Count>(id, SOON).await.unwrap_err();
    assert_eq!(error.code(), "output_unreadable");
    running.stop().await;
}
