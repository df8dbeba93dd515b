//! Many things at once: maps within maps, and who is asked, heard and let go in which order.

use std::future::ready;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::future::maybe_done;
use futures::stream::FuturesOrdered;
use futures::{StreamExt, poll};
use tidemill::testing::{crash_at_every_write, drain};
use tidemill::{Context, Fail, First, Flow, JobId, Signal, State, Tidemill, Worker};
use tokio::time::timeout;

use super::kit::{Echo, Kit, SOON};
use super::workflow::{DAY, Flowing, Log};

over_both_stores!(
    maps_within_maps_come_to_the_same_whenever_they_die,
    a_signal_is_heard_wherever_in_maps_it_is_asked_for,
    bodies_that_wake_themselves_let_others_run,
    a_handler_that_wakes_itself_outside_of_steps_is_let_go_on,
    an_item_of_a_map_that_takes_long_holds_up_no_other,
    answers_that_nobody_takes_hold_up_no_step,
    what_is_enqueued_and_not_awaited_hides_no_other_code,
);

const HOUR: Duration = Duration::from_hours(1);

fn worker<F, Fut>(mill: &Tidemill, code: F) -> Worker
where
    F: Fn(Context) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<String, Fail>> + Send + 'static,
{
    let echo = |echo: Echo, _cx: Context| async move { Ok(echo.text) };
    mill.worker().handle(move |_: Flowing, cx| code(cx)).handle(echo)
}

async fn enqueue(mill: &Tidemill) -> JobId {
    mill.enqueue(Flowing { text: "x".to_owned() }).await.unwrap().id()
}

async fn output(mill: &Tidemill, id: JobId) -> String {
    let view = mill.job(id).await.unwrap().unwrap();
    let run = mill.run(id).await.unwrap();
    let parked = run.and_then(|run| run.parked);
    let output = view.output.unwrap_or_else(|| panic!("it is {:?}: {parked:?}", view.state));
    output.read().unwrap()
}

/// Three at once, each of which does two at once that wait, and do something.
async fn nested(cx: Context) -> Result<String, Fail> {
    let outer = cx.map("outer", 0..4_u64, 3, |cx, i| async move {
        let inner = cx.map("inner", 0..3_u64, 2, |cx, j| async move {
            cx.sleep(HOUR * (j as u32 + 1)).await?;
            cx.step("add").run(|_| async move { Ok(i * 10 + j) }).await
        });
        let said = cx.child(Echo::new("x"));
        let (inner, said) = cx.join((inner, said)).await?;
        Ok(format!("{said}{inner:?}"))
    });
    Ok(outer.await?.join(" "))
}

async fn maps_within_maps_come_to_the_same_whenever_they_die(kit: Kit) {
    let mill = kit.open_still().await;
    let start = async || Ok(enqueue(&mill).await);
    let worker = || worker(&mill, nested);
    let views = crash_at_every_write(&mill, &kit.clock, worker, start).await.unwrap();
    let told = "x[0, 1, 2] x[10, 11, 12] x[20, 21, 22] x[30, 31, 32]";
    for view in views {
        assert_eq!(output(&mill, view.job.id).await, told);
    }
}

async fn a_signal_is_heard_wherever_in_maps_it_is_asked_for(kit: Kit) {
    let mill = kit.open_still().await;
    let code = |cx: Context| async move {
        let each = cx.map("outer", 0..9_u64, 9, |cx, i| async move {
            let inner = cx.map("inner", 0..1_u64, 1, |cx, _| async move {
                if i < 8 { cx.sleep(DAY).await } else { cx.signal::<()>("go").await }
            });
            inner.await?;
            cx.set_state(&i)
        });
        each.await?;
        Ok("done".to_owned())
    };
    let id = enqueue(&mill).await;
    drain(worker(&mill, code)).await.unwrap();
    let waits = mill.run(id).await.unwrap().unwrap().waits.unwrap();
    assert_eq!(waits.what.len(), 9, "{waits:?}");
    mill.signal(id, Signal::new("go", &())).await.unwrap();
    drain(worker(&mill, code)).await.unwrap();
    let state = mill.run(id).await.unwrap().unwrap().state;
    assert_eq!(state.map(|state| state.as_str().to_owned()).as_deref(), Some("8"));
    kit.advance(DAY);
    drain(worker(&mill, code)).await.unwrap();
    assert_eq!(output(&mill, id).await, "done");
}

/// Pending once, and woken at once.
async fn wake_oneself() {
    let mut is_woken = false;
    std::future::poll_fn(|task| {
        if std::mem::replace(&mut is_woken, true) {
            return Poll::Ready(());
        }
        task.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn bodies_that_wake_themselves_let_others_run(kit: Kit) {
    let (mill, is_set) = (kit.open_still().await, Arc::new(AtomicBool::new(false)));
    let code = move |cx: Context| {
        let is_set = Arc::clone(&is_set);
        async move {
            // Two wait, without a pause, for what the third does in its second step, after a write.
            let each = cx.map("each", 0..3, 3, |cx, n| {
                let is_set = Arc::clone(&is_set);
                async move {
                    let first = cx.step("first").run(|_| async {
                        while n < 2 && !is_set.load(Ordering::SeqCst) {
                            wake_oneself().await;
                        }
                        Ok(n)
                    });
                    first.await?;
                    let second = cx.step("second").input(&n).run(|_| async {
                        is_set.store(true, Ordering::SeqCst);
                        Ok(n)
                    });
                    second.await
                }
            });
            Ok(format!("{:?}", each.await?))
        }
    };
    let id = enqueue(&mill).await;
    timeout(SOON, drain(worker(&mill, code))).await.unwrap().unwrap();
    assert_eq!(output(&mill, id).await, "[0, 1, 2]");
}

async fn a_handler_that_wakes_itself_outside_of_steps_is_let_go_on(kit: Kit) {
    let mill = kit.open_still().await;
    let code = |cx: Context| async move {
        // One that never rests beside one that asks and is answered.
        let restless: Pin<Box<dyn Future<Output = Result<(), Fail>> + Send>> = Box::pin(async {
            loop {
                wake_oneself().await;
            }
        });
        let asks = async {
            for n in 0..3 {
                cx.step("n").run(|_| async move { Ok(n) }).await?;
            }
            Ok(())
        };
        match cx.race((restless, asks)).await? {
            First::A(()) => Ok("restless".to_owned()),
            First::B(()) => Ok("asked".to_owned()),
        }
    };
    let id = enqueue(&mill).await;
    timeout(SOON, drain(worker(&mill, code))).await.unwrap().unwrap();
    assert_eq!(output(&mill, id).await, "asked");
    assert_eq!(mill.job(id).await.unwrap().unwrap().state, State::Done);
}

/// The first takes until tomorrow; the others, of which one is asleep for an hour, do not wait for it.
async fn uneven(cx: Context, log: Log) -> Result<String, Fail> {
    let each = cx.map("each", 0..6_u32, 2, |cx, n| {
        let log = log.clone();
        async move {
            if n == 0 {
                cx.sleep(DAY).await?;
            } else if n == 3 {
                cx.sleep(HOUR).await?;
            }
            let said = cx.step("say").input(&n).run(|_| async {
                log.add(n.to_string());
                Ok(n)
            });
            said.await
        }
    });
    Ok(format!("{:?}", each.await?))
}

async fn an_item_of_a_map_that_takes_long_holds_up_no_other(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let worker = || {
        let log = log.clone();
        worker(&mill, move |cx: Context| uneven(cx, log.clone()))
    };
    let id = enqueue(&mill).await;
    drain(worker()).await.unwrap();
    assert_eq!(log.all(), ["1", "2"]);
    kit.advance(HOUR);
    drain(worker()).await.unwrap();
    assert_eq!(log.all(), ["1", "2", "3", "4", "5"]);
    kit.advance(DAY);
    drain(worker()).await.unwrap();
    assert_eq!(output(&mill, id).await, "[0, 1, 2, 3, 4, 5]");
    let start = async || Ok(enqueue(&mill).await);
    for view in crash_at_every_write(&mill, &kit.clock, worker, start).await.unwrap() {
        assert_eq!(output(&mill, view.job.id).await, "[0, 1, 2, 3, 4, 5]");
    }
}

/// The second of two that read at once is told, and not polled before a step has ended.
async fn buffered(cx: Context) -> Result<String, Fail> {
    let mut said = String::new();
    let outputs = ["a", "b"].map(|step| cx.output_of::<String>(step));
    let mut outputs: FuturesOrdered<_> = outputs.into_iter().collect();
    while let Some(output) = outputs.next().await {
        let output = output?;
        said += &cx.step("use").run(|_| ready(Ok(output.clone()))).await?;
    }
    Ok(said)
}

/// A read is begun, and looked at when a step has ended.
async fn begun(cx: Context) -> Result<String, Fail> {
    cx.inputs().await?;
    let mut read = pin!(maybe_done(cx.outputs_of("a", None)));
    let _ = poll!(read.as_mut());
    let said: String = cx.step("use").run(|_| async { Ok("b".to_owned()) }).await?;
    read.as_mut().await;
    let outputs = read.take_output().unwrap()?;
    let output: String = outputs[0].output.as_ref().unwrap().read().unwrap();
    Ok(format!("{output}{said}"))
}

async fn answers_that_nobody_takes_hold_up_no_step(kit: Kit) {
    let mill = kit.open().await;
    for is_begun in [false, true] {
        let flow = Flow::new("f")
            .step("a", Echo::new("a"))
            .step("b", Echo::new("b"))
            .step("last", Flowing { text: "x".to_owned() })
            .after_all(["a", "b"]);
        let id = mill.start(flow).await.unwrap();
        let code = move |cx: Context| async move {
            if is_begun { begun(cx).await } else { buffered(cx).await }
        };
        timeout(SOON, drain(worker(&mill, code))).await.expect("it goes on").unwrap();
        let view = mill.flow(id).await.unwrap().unwrap();
        assert_eq!(output(&mill, view.steps[2].first.unwrap()).await, "ab", "{is_begun}");
    }
}

async fn what_is_enqueued_and_not_awaited_hides_no_other_code(kit: Kit) {
    let mill = kit.open_still().await;
    let code = |names: &'static [&'static str]| {
        move |cx: Context| async move {
            let mut enqueued = pin!(maybe_done(cx.enqueue(Echo::new("x"))));
            let _ = poll!(enqueued.as_mut());
            for name in names {
                cx.step(name).run(|_| async { Ok(()) }).await?;
            }
            cx.sleep(DAY).await?;
            Ok(names.concat())
        }
    };
    let id = enqueue(&mill).await;
    drain(worker(&mill, code(&["a", "b"]))).await.unwrap();
    kit.advance(DAY);
    timeout(SOON, drain(worker(&mill, code(&["b"])))).await.expect("it is found out").unwrap();
    let why = mill.run(id).await.unwrap().unwrap().parked.unwrap().to_string();
    assert!(why.contains(r#""a" next (entry 0), but the code asks for "b""#), "{why}");
    mill.resume_run(id, "ann", "").await.unwrap();
    drain(worker(&mill, code(&["a", "b"]))).await.unwrap();
    assert_eq!(output(&mill, id).await, "ab");
}
