//! What a handler writes in a transaction of its own is there once, however often its job is delivered: by a mark
//! beside it, or because the job is settled in that very transaction. The same for every driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidemill::core::flow::FlowState;
use tidemill::store::request::RescueRules;
use tidemill::testing::drain;
use tidemill::{
    Context, Enqueue, Fail, Flow, OnDead, OnDuplicate, Settings, Tidemill, Unique, Worker,
};

use super::ledger::{End, Ledger, by_every_driver, output, pay};

by_every_driver!(
    a_redelivered_job_returns_what_was_recorded_without_doing_the_work,
    an_effect_that_was_rolled_back_is_done_again,
    two_deliveries_at_once_yield_one_effect,
    effects_of_other_names_are_done_each,
    a_missing_table_is_named,
    old_marks_are_forgotten_and_young_ones_kept,
    what_was_settled_in_a_transaction_is_done_whatever_the_handler_says,
    a_settle_that_was_rolled_back_is_none,
    a_stale_attempt_is_refused,
    a_worker_lost_after_the_commit_leaves_a_job_that_is_done,
    what_follows_is_said_before_the_settle,
    a_run_is_not_settled_in_a_transaction_that_would_lose_its_end,
);

const AT_ONCE: Duration = Duration::ZERO;
/// Gives up every worker, whatever it does.
const ALL: RescueRules = RescueRules { lease_ttl: Duration::ZERO, clear_for: None, lost_max: 100 };

fn again(why: &str) -> Fail {
    Fail::transient(why).retry_after(AT_ONCE)
}

/// A worker whose handler of `pay` gets the ledger, and the number of its run.
fn worker<L, F, Fut>(mill: &Tidemill, ledger: &Arc<L>, handle: F) -> Worker
where
    L: Ledger,
    F: Fn(Arc<L>, Context, u64) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<u64, Fail>> + Send + 'static,
{
    let (ledger, runs) = (Arc::clone(ledger), Arc::new(AtomicU64::new(0)));
    let handle = Arc::new(handle);
    mill.worker().handle_raw("pay", Settings::default(), move |_, cx| {
        let (ledger, handle) = (Arc::clone(&ledger), Arc::clone(&handle));
        let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            let output = handle(ledger, cx, run).await?;
            Ok(tidemill::Payload::trusted(output.to_string()))
        }
    })
}

async fn open<L: Ledger>(ledger: L) -> (Tidemill, Arc<L>) {
    let mill = Tidemill::open(ledger.url()).await.unwrap();
    ledger.create(true).await;
    (mill, Arc::new(ledger))
}

async fn a_redelivered_job_returns_what_was_recorded_without_doing_the_work(ledger: impl Ledger) {
    let (mill, ledger) = open(ledger).await;
    let id = pay(&mill).await;
    let worker = worker(&mill, &ledger, |ledger, cx, run| async move {
        let recorded = ledger.write(&cx, "", run, End::Commit).await?;
        if run == 1 { Err(again("after the commit")) } else { Ok(recorded) }
    });
    let drained = drain(worker).await.unwrap();
    assert_eq!((drained.attempts, ledger.lines().await), (2, 1));
    assert_eq!(output(&mill, id).await, "1", "what the first run recorded");
}

async fn an_effect_that_was_rolled_back_is_done_again(ledger: impl Ledger) {
    let (mill, ledger) = open(ledger).await;
    let id = pay(&mill).await;
    let worker = worker(&mill, &ledger, |ledger, cx, run| async move {
        let end = if run == 1 { End::RollBack } else { End::Commit };
        let recorded = ledger.write(&cx, "", run, end).await?;
        if run == 1 { Err(again("rolled back")) } else { Ok(recorded) }
    });
    drain(worker).await.unwrap();
    assert_eq!((ledger.lines().await, output(&mill, id).await.as_str()), (1, "2"));
}

async fn two_deliveries_at_once_yield_one_effect(ledger: impl Ledger) {
    let (mill, ledger) = open(ledger).await;
    let id = pay(&mill).await;
    let worker = worker(&mill, &ledger, |ledger, cx, _| async move {
        let write = |output| {
            let (ledger, cx) = (Arc::clone(&ledger), cx.clone());
            tokio::spawn(async move { ledger.write(&cx, "", output, End::Commit).await })
        };
        let (one, two, three) = (write(1), write(2), write(3));
        let (one, two, three) = (one.await??, two.await??, three.await??);
        assert!(one == two && two == three, "{one} {two} {three}");
        Ok(one)
    });
    drain(worker).await.unwrap();
    assert_eq!(ledger.lines().await, 1);
    output(&mill, id).await;
}

async fn effects_of_other_names_are_done_each(ledger: impl Ledger) {
    let (mill, ledger) = open(ledger).await;
    let id = pay(&mill).await;
    let worker = worker(&mill, &ledger, |ledger, cx, run| async move {
        let mut sum = 0;
        for (name, output) in [("", 1), ("charge", 20), ("mail", 300), ("charge", 4000)] {
            sum += ledger.write(&cx, name, output, End::Commit).await?;
        }
        if run == 1 { Err(again("once more")) } else { Ok(sum) }
    });
    drain(worker).await.unwrap();
    assert_eq!((ledger.lines().await, output(&mill, id).await.as_str()), (3, "341"));
}

async fn a_missing_table_is_named(ledger: impl Ledger) {
    let mill = Tidemill::open(ledger.url()).await.unwrap();
    ledger.create(false).await;
    let ledger = Arc::new(ledger);
    pay(&mill).await;
    let worker = worker(&mill, &ledger, |ledger, cx, _| async move {
        let refused = ledger.write(&cx, "", 1, End::Commit).await.unwrap_err().to_string();
        assert!(refused.contains("make it with tidemill::effect::create_in"), "{refused}");
        Ok(0)
    });
    assert_eq!(drain(worker).await.unwrap().done, 1);
}

async fn old_marks_are_forgotten_and_young_ones_kept(ledger: impl Ledger) {
    let (mill, ledger) = open(ledger).await;
    for _ in 0..3 {
        pay(&mill).await;
    }
    let worker = worker(&mill, &ledger, |ledger, cx, run| async move {
        ledger.write(&cx, "", run, End::Commit).await
    });
    assert_eq!(drain(worker).await.unwrap().done, 3);
    assert_eq!(ledger.forget(Duration::from_hours(1)).await, 0);
    let mut forgotten = 0;
    while forgotten < 3 {
        forgotten += ledger.forget(AT_ONCE).await;
    }
    assert_eq!((forgotten, ledger.forget(AT_ONCE).await), (3, 0));
}

async fn what_was_settled_in_a_transaction_is_done_whatever_the_handler_says(ledger: impl Ledger) {
    let (mill, ledger) = open(ledger).await;
    let job = || Enqueue::raw("pay", "{}").key("c").ordered(OnDead::Block);
    let unique = || Unique::by_key("k").on_duplicate(OnDuplicate::Reject);
    let id = mill.enqueue(job().unique(unique())).await.unwrap().id();
    let behind = mill.enqueue(job()).await.unwrap().id();
    let handler = worker(&mill, &ledger, |ledger, cx, run| async move {
        cx.follow_up(Enqueue::raw("bill", r#"{"n":9007199254740993}"#).queue("bills"))?;
        ledger.settle(&cx, run, End::Commit).await?;
        if run == 1 { Err(again("after the commit")) } else { Ok(0) }
    });
    let drained = drain(handler).await.unwrap();
    assert_eq!((drained.attempts, ledger.lines().await), (2, 2), "each ran once");
    assert_eq!((output(&mill, id).await, output(&mill, behind).await), ("1".into(), "2".into()));
    let bills = mill.depth("bills").await.unwrap();
    assert_eq!(bills.depth(), 2, "what follows came with each");
    assert!(mill.enqueue(job().unique(unique())).await.unwrap().is_new(), "its key is free");
}

async fn a_settle_that_was_rolled_back_is_none(ledger: impl Ledger) {
    let (mill, ledger) = open(ledger).await;
    let id = pay(&mill).await;
    let worker = worker(&mill, &ledger, |ledger, cx, run| async move {
        let end = if run == 1 { End::RollBack } else { End::Commit };
        ledger.settle(&cx, run, end).await?;
        Err(again("rolled back, or not"))
    });
    let drained = drain(worker).await.unwrap();
    assert_eq!((drained.attempts, ledger.lines().await), (2, 1));
    assert_eq!(output(&mill, id).await, "2");
}

async fn a_stale_attempt_is_refused(ledger: impl Ledger) {
    let (mill, ledger) = open(ledger).await;
    let id = pay(&mill).await;
    let handle = |ledger: Arc<_>, cx: Context, run| async move {
        if run == 1 {
            cx.mill()?.store().rescue(ALL).await?;
            let refused = Ledger::settle(&*ledger, &cx, run, End::Commit).await;
            assert!(refused.unwrap_err().to_string().contains("roll the transaction back"));
            return Ok(run);
        }
        Ledger::settle(&*ledger, &cx, run, End::Commit).await?;
        Ok(0)
    };
    let stale = worker(&mill, &ledger, handle);
    let drained = drain(stale).await.unwrap();
    assert_eq!((drained.attempts, ledger.lines().await), (1, 0));
    let next = worker(&mill, &ledger, move |ledger, cx, run| handle(ledger, cx, run + 1));
    drain(next).await.unwrap();
    assert_eq!((ledger.lines().await, output(&mill, id).await.as_str()), (1, "2"));
}

async fn a_worker_lost_after_the_commit_leaves_a_job_that_is_done(ledger: impl Ledger) {
    let (mill, ledger) = open(ledger).await;
    let flow = Flow::new("order")
        .step("pay", Enqueue::raw("pay", "{}"))
        .step("ship", Enqueue::raw("pay", "{}"))
        .after("pay");
    let flow = mill.start(flow).await.unwrap();
    let lost = worker(&mill, &ledger, |ledger, cx, run| async move {
        cx.follow_up(Enqueue::raw("bill", "{}").queue("bills"))?;
        cx.fan_out("more", [Enqueue::raw("pay", "{}")])?;
        ledger.settle(&cx, run, End::Commit).await?;
        cx.mill()?.store().rescue(ALL).await?;
        Err(again("too late"))
    });
    assert_eq!(drain(lost).await.unwrap().attempts, 1);
    let pay = mill.flow(flow).await.unwrap().unwrap().steps[0].first.unwrap();
    assert_eq!((output(&mill, pay).await.as_str(), ledger.lines().await), ("1", 1));
    assert_eq!(mill.depth("bills").await.unwrap().depth(), 1);
    let plain = worker(&mill, &ledger, |_, _, run| async move { Ok(run) });
    assert_eq!(drain(plain).await.unwrap().done, 2, "the step that was added, and the one behind");
    assert_eq!(mill.flow(flow).await.unwrap().unwrap().head.state, FlowState::Done);
}

async fn what_follows_is_said_before_the_settle(ledger: impl Ledger) {
    let (mill, ledger) = open(ledger).await;
    pay(&mill).await;
    let worker = worker(&mill, &ledger, |ledger, cx, _| async move {
        ledger.settle(&cx, 1, End::Commit).await?;
        let refused = cx.follow_up(Enqueue::raw("bill", "{}").queue("bills")).unwrap_err();
        assert_eq!(refused.code(), "settled_before");
        Ok(1)
    });
    assert_eq!(drain(worker).await.unwrap().done, 1);
    assert_eq!(mill.depth("bills").await.unwrap().depth(), 0);
}

async fn a_run_is_not_settled_in_a_transaction_that_would_lose_its_end(ledger: impl Ledger) {
    let (mill, ledger) = open(ledger).await;
    pay(&mill).await;
    let worker = worker(&mill, &ledger, |ledger, cx, _| async move {
        let one = cx.step("one").run(|_| async { Ok(1) }).await?;
        let refused = ledger.settle(&cx, 2, End::Commit).await.unwrap_err().to_string();
        assert!(refused.contains("keeps a journal or an object"), "{refused}");
        Ok(one)
    });
    assert_eq!(drain(worker).await.unwrap().done, 1);
    assert_eq!(ledger.lines().await, 0, "nothing was written beside the end that was refused");
}
