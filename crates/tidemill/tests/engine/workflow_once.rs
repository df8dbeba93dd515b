//! Steps that run at most once: no try follows one of which nobody knows the end.

use std::sync::Arc;
use std::time::Duration;

use tidemill::testing::{crash_at_every_write, skip_time};
use tidemill::{Backoff, Context, Fail, Retry, State, Stop, Tidemill, Worker};
use tokio::sync::Notify;

use super::kit::{Kit, SOON};
use super::workflow::{Flowing, Log};

over_both_stores!(
    a_step_that_runs_at_most_once_is_not_tried_again_by_default,
    a_failure_that_says_that_nothing_was_done_is_tried_again_if_that_is_asked_for,
    a_run_that_dies_in_a_further_try_of_such_a_step_does_not_try_it_once_more,
    a_step_that_a_stopping_worker_does_not_begin_begins_on_the_next_one,
);

/// Charges at most once, by a body that comes to this at each try.
fn worker(mill: &Tidemill, log: &Log, retry: Option<Retry>, comes: Comes) -> Worker {
    let log = log.clone();
    mill.worker().handle(move |job: Flowing, cx: Context| {
        let (log, retry) = (log.clone(), retry.clone());
        async move {
            let body = |tries| {
                log.add(job.text.as_str());
                async move {
                    match comes(tries) {
                        Came::Fails(fail) => Err(fail),
                        Came::Hangs => std::future::pending().await,
                        Came::Pays => Ok("paid".to_owned()),
                    }
                }
            };
            let mut step = cx.step("charge").at_most_once().timeout(Duration::from_millis(20));
            if let Some(retry) = retry {
                step = step.retry(retry);
            }
            let charged = step.run(|s| body(usize::from(s.attempt()))).await;
            Ok(charged.unwrap_or_else(|fail| fail.to_string()))
        }
    })
}

/// What the body comes to at each try.
type Comes = fn(usize) -> Came;

enum Came {
    Fails(Fail),
    Hangs,
    Pays,
}

async fn run(mill: &Tidemill, kit: &Kit, worker: impl Fn() -> Worker) -> String {
    let id = mill.enqueue(Flowing { text: "charge".to_owned() }).await.unwrap().id();
    skip_time(mill, &kit.clock, worker).await.unwrap();
    let view = mill.job(id).await.unwrap().unwrap();
    assert_eq!(view.state, State::Done);
    view.output.unwrap().read().unwrap()
}

async fn a_step_that_runs_at_most_once_is_not_tried_again_by_default(kit: Kit) {
    let mill = kit.open_still().await;
    let cases: [(&str, Comes); 4] = [
        ("any error", |_| Came::Fails("x".parse::<u8>().unwrap_err().into())),
        ("ambiguous", |_| Came::Fails(Fail::ambiguous("no answer"))),
        ("timeout", |_| Came::Hangs),
        ("rate limited", |_| Came::Fails(Fail::rate_limited(Duration::from_mins(1)))),
    ];
    for (what, comes) in cases {
        let log = Log::default();
        run(&mill, &kit, || worker(&mill, &log, None, comes)).await;
        assert_eq!(log.all().len(), 1, "{what}");
    }
}

fn thrice() -> Retry {
    Retry::attempts(3).backoff(Backoff::Fixed { delay_ms: 60_000 })
}

async fn a_failure_that_says_that_nothing_was_done_is_tried_again_if_that_is_asked_for(kit: Kit) {
    let mill = kit.open_still().await;
    let cases: [(&str, Comes, usize, bool); 3] = [
        ("busy once", |n| if n == 1 { busy() } else { Came::Pays }, 2, true),
        ("busy always", |_| busy(), 3, false),
        ("busy, then hangs", |n| if n == 1 { busy() } else { Came::Hangs }, 2, false),
    ];
    for (what, comes, tries, is_paid) in cases {
        let log = Log::default();
        let came = run(&mill, &kit, || worker(&mill, &log, Some(thrice()), comes)).await;
        assert_eq!((log.all().len(), came == "paid"), (tries, is_paid), "{what}: {came}");
    }
}

fn busy() -> Came {
    Came::Fails(Fail::transient("busy"))
}

async fn a_run_that_dies_in_a_further_try_of_such_a_step_does_not_try_it_once_more(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let start = async || {
        let text = tidemill::JobId::new().to_string();
        Ok(mill.enqueue(Flowing { text }).await?.id())
    };
    let comes = |tries| if tries == 1 { busy() } else { Came::Pays };
    let worker = || worker(&mill, &log, Some(thrice()), comes);
    let runs = crash_at_every_write(&mill, &kit.clock, worker, start).await.unwrap();
    let mut lost = 0;
    for run in runs {
        let text = run.job.payload.read::<Flowing>().unwrap().text;
        let tries = log.all().into_iter().filter(|of| *of == text).count();
        let came: String = run.output.unwrap().read().unwrap();
        assert!(tries <= 2, "{tries} tries: {came}");
        lost += usize::from(came.contains("nobody knows"));
    }
    assert!(lost > 1, "a try was lost, the first or the second");
}

async fn a_step_that_a_stopping_worker_does_not_begin_begins_on_the_next_one(kit: Kit) {
    let mill = kit.open().await;
    let (log, started) = (Log::default(), Arc::new(Notify::new()));
    let worker = || {
        let (log, started) = (log.clone(), Arc::clone(&started));
        let stop = Stop { drain: Duration::ZERO, grace: SOON };
        mill.worker().stop_as(stop).handle(move |_: Flowing, cx: Context| {
            let (log, started) = (log.clone(), Arc::clone(&started));
            async move {
                // It ends when the worker tells it to, so that the code comes to the next step after that.
                let (told, starts) = (&cx, &started);
                let reserve = |_| async move {
                    starts.notify_one();
                    told.cancelled().await;
                    Ok(())
                };
                cx.step("reserve").run(reserve).await?;
                let charge = |_| {
                    log.add("charge");
                    async { Ok("paid".to_owned()) }
                };
                cx.step("charge").at_most_once().run(charge).await
            }
        })
    };
    let running = worker().start().await.unwrap();
    let id = mill.enqueue(Flowing { text: "x".to_owned() }).await.unwrap().id();
    started.notified().await;
    running.stop().await;
    assert!(log.all().is_empty(), "it was told to end");
    let running = worker().start().await.unwrap();
    assert_eq!(mill.result::<Flowing>(id, SOON).await.unwrap(), "paid");
    assert_eq!(log.all(), ["charge"]);
    running.stop().await;
}
