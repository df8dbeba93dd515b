//! A step of a workflow commits together with rows of the handler's own: they are there once, wherever the process dies
//! and whatever becomes of the commit's answer. The same for every driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidemill::testing::{crash_at_every_write, skip_time};
use tidemill::{
    Clock, Context, Fail, ManualClock, Payload, Proof, Recorder, Settings, State, Tidemill, Worker,
};

use super::ledger::{End, Ledger, by_every_driver, output, pay};

by_every_driver!(
    rows_and_their_step_are_there_once_wherever_the_process_dies,
    a_commit_whose_answer_is_lost_is_found_in_the_journal,
    a_transaction_that_was_rolled_back_is_tried_again,
    a_transaction_that_was_not_committed_is_no_success,
);

async fn open<L: Ledger>(ledger: L) -> (Tidemill, ManualClock, Arc<L>) {
    let clock = ManualClock::default();
    let builder = Tidemill::builder().clock(Clock::Manual(clock.clone()));
    let mill = builder.open(ledger.url()).await.unwrap();
    ledger.create(false).await;
    (mill, clock, Arc::new(ledger))
}

/// A worker whose workflow has one transaction between two steps; its body gets the number of its run.
fn worker<L, F, Fut>(mill: &Tidemill, ledger: &Arc<L>, body: F) -> Worker
where
    L: Ledger,
    F: Fn(Arc<L>, Recorder, u64) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Proof<u64>, Fail>> + Send + 'static,
{
    let (ledger, runs) = (Arc::clone(ledger), Arc::new(AtomicU64::new(0)));
    mill.worker().handle_raw("pay", Settings::default(), move |_, cx: Context| {
        let (ledger, runs, body) = (Arc::clone(&ledger), Arc::clone(&runs), body.clone());
        async move {
            let before = cx.step("before").run(|_| async { Ok(1) }).await?;
            let paid: u64 = cx
                .transaction("charge")
                .run(|t| body(Arc::clone(&ledger), t, runs.fetch_add(1, Ordering::SeqCst) + 1))
                .await?;
            let after = cx.step("after").run(|_| async { Ok(2) }).await?;
            Ok(Payload::trusted(format!("\"{before} {paid} {after}\"")))
        }
    })
}

async fn rows_and_their_step_are_there_once_wherever_the_process_dies(ledger: impl Ledger) {
    let (mill, clock, ledger) = open(ledger).await;
    let worker = || {
        worker(
            &mill,
            &ledger,
            |ledger, t, _| async move { ledger.record(&t, 7, End::Commit).await },
        )
    };
    let start = async || Ok(pay(&mill).await);
    let views = crash_at_every_write(&mill, &clock, worker, start).await.unwrap();
    assert!(views.len() > 6, "only {} crashes", views.len());
    for view in &views {
        assert_eq!(view.output.as_ref().unwrap().as_str(), "\"1 7 2\"", "{view:?}");
    }
    assert_eq!(ledger.lines().await, views.len() as i64);
}

async fn a_commit_whose_answer_is_lost_is_found_in_the_journal(ledger: impl Ledger) {
    let (mill, clock, ledger) = open(ledger).await;
    let id = pay(&mill).await;
    let worker = || {
        worker(&mill, &ledger, |ledger, t, run| async move {
            let _ = ledger.record(&t, run, End::Commit).await?;
            Err(Fail::transient("the answer to the commit was lost"))
        })
    };
    skip_time(&mill, &clock, worker).await.unwrap();
    assert_eq!((ledger.lines().await, output(&mill, id).await.as_str()), (1, "\"1 1 2\""));
}

async fn a_transaction_that_was_rolled_back_is_tried_again(ledger: impl Ledger) {
    let (mill, clock, ledger) = open(ledger).await;
    let id = pay(&mill).await;
    // One worker for all attempts, so that it counts them.
    let worker = || {
        worker(&mill, &ledger, |ledger, t, run| async move {
            let end = if t.attempt() == 1 { End::RollBack } else { End::Commit };
            let proof = ledger.record(&t, run, end).await?;
            if t.attempt() == 1 { Err(Fail::transient("rolled back")) } else { Ok(proof) }
        })
    };
    skip_time(&mill, &clock, worker).await.unwrap();
    assert_eq!(ledger.lines().await, 1);
    assert!(output(&mill, id).await.starts_with("\"1 "));
}

async fn a_transaction_that_was_not_committed_is_no_success(ledger: impl Ledger) {
    let (mill, clock, ledger) = open(ledger).await;
    let id = pay(&mill).await;
    let worker = || {
        worker(&mill, &ledger, |ledger, t, run| async move {
            ledger.record(&t, run, End::RollBack).await
        })
    };
    skip_time(&mill, &clock, worker).await.unwrap();
    let job = mill.job(id).await.unwrap().unwrap();
    assert_eq!((job.state, ledger.lines().await), (State::Dead, 0));
    assert!(job.error.as_ref().unwrap().contains("was not committed"), "{job:?}");
}
