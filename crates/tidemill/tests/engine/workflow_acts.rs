//! Operators help runs that are stuck: a step gets its outcome by hand, or what it returned is corrected.

use tidemill::core::workflow::ActWord;
use tidemill::testing::drain;
use tidemill::{
    Backoff, Context, Enqueue, Fail, Job, JobFilter, JobId, Retry, Signal, State, Tidemill, Worker,
};

use super::kit::{Echo, Kit};
use super::workflow::{DAY, Flowing, Log, TakeBack, undoing};

over_both_stores!(
    a_step_that_keeps_failing_is_given_its_outcome,
    a_step_is_told_to_have_failed_and_the_code_hears_it,
    a_skipped_step_is_undone_with_the_output_it_was_given,
    a_sleep_can_be_skipped,
    what_a_step_returned_is_corrected_and_the_rest_is_done_again,
    a_run_that_was_edited_into_a_difference_is_parked_and_can_be_helped,
    a_run_that_died_of_a_step_goes_on_with_the_outcome_it_is_given,
    code_that_differs_leaves_no_trace_in_the_journal,
    acts_on_a_run_that_runs_or_has_finished_are_refused,
);

async fn pay(cx: Context, log: Log) -> Result<String, Fail> {
    let undo = Enqueue::raw(TakeBack::KIND, "\"x\"");
    let retry = Retry::attempts(9).backoff(Backoff::Fixed { delay_ms: 86_400_000 });
    let price: u32 = say(&cx, &log, "price", 100).await?;
    let paid: Result<u32, Fail> = cx
        .step("charge")
        .retry(retry)
        .undo(undo)
        .run(|_| {
            log.add(format!("charge {price}"));
            async { Err(Fail::transient("no answer")) }
        })
        .await;
    let paid = match paid {
        Ok(paid) => paid,
        Err(fail) => return Ok(format!("not paid: {fail}")),
    };
    if paid == 13 {
        return Err(Fail::permanent("unlucky"));
    }
    cx.sleep(DAY).await?;
    Ok(format!("{price} {paid}"))
}

async fn say(cx: &Context, log: &Log, what: &str, value: u32) -> Result<u32, Fail> {
    let body = || {
        log.add(what);
        async move { Ok(value) }
    };
    cx.step(what).run(|_| body()).await
}

fn worker(mill: &Tidemill, log: &Log) -> Worker {
    let (log, undone) = (log.clone(), log.clone());
    let worker = mill.worker().handle(move |_: Flowing, cx| pay(cx, log.clone()));
    undoing(worker, &undone)
}

/// A run whose step `charge` is tried again tomorrow.
async fn stuck(mill: &Tidemill, log: &Log) -> JobId {
    let id = mill.enqueue(Flowing { text: "x".to_owned() }).await.unwrap().id();
    drain(worker(mill, log)).await.unwrap();
    assert_eq!(log.all(), ["price", "charge 100"]);
    id
}

async fn output(mill: &Tidemill, id: JobId) -> String {
    let view = mill.job(id).await.unwrap().unwrap();
    let output = view.output.unwrap_or_else(|| panic!("it is {:?}: {:?}", view.state, view.error));
    output.read().unwrap()
}

async fn a_step_that_keeps_failing_is_given_its_outcome(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let id = stuck(&mill, &log).await;
    mill.skip_step(id, "charge", &99, "ann", "paid by hand").await.unwrap();
    drain(worker(&mill, &log)).await.unwrap();
    kit.advance(DAY);
    drain(worker(&mill, &log)).await.unwrap();
    assert_eq!(output(&mill, id).await, "100 99");
    assert_eq!(log.all(), ["price", "charge 100"], "its body did not run again");
    let acts = mill.run_acts(id).await.unwrap();
    assert_eq!(
        (acts.len(), acts[0].act, acts[0].why.as_str()),
        (1, ActWord::Skipped, "paid by hand")
    );
}

async fn a_step_is_told_to_have_failed_and_the_code_hears_it(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let id = stuck(&mill, &log).await;
    mill.fail_step(id, "charge", "the card is gone", "ann", "").await.unwrap();
    drain(worker(&mill, &log)).await.unwrap();
    assert_eq!(output(&mill, id).await, "not paid: permanent: the card is gone");
}

async fn a_skipped_step_is_undone_with_the_output_it_was_given(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let id = stuck(&mill, &log).await;
    mill.skip_step(id, "charge", &13, "ann", "").await.unwrap();
    drain(worker(&mill, &log)).await.unwrap();
    assert_eq!(mill.job(id).await.unwrap().unwrap().state, State::Dead);
    let undone = log.all().pop().unwrap();
    assert!(undone.contains("13"), "{undone}");
}

async fn a_sleep_can_be_skipped(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let id = stuck(&mill, &log).await;
    mill.skip_step(id, "charge", &1, "ann", "").await.unwrap();
    drain(worker(&mill, &log)).await.unwrap();
    mill.skip_step(id, "sleep", &(), "ann", "").await.unwrap();
    drain(worker(&mill, &log)).await.unwrap();
    assert_eq!(output(&mill, id).await, "100 1");
}

async fn what_a_step_returned_is_corrected_and_the_rest_is_done_again(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let id = stuck(&mill, &log).await;
    mill.edit_step(id, "price", &80, "ann", "a discount was forgotten").await.unwrap();
    drain(worker(&mill, &log)).await.unwrap();
    assert_eq!(log.all(), ["price", "charge 100", "charge 80"]);
    let act = mill.run_acts(id).await.unwrap().remove(0);
    assert_eq!((act.act, act.step.as_deref()), (ActWord::Edited, Some("price")));
}

async fn a_run_that_was_edited_into_a_difference_is_parked_and_can_be_helped(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let id = stuck(&mill, &log).await;
    mill.edit_step(id, "price", "many", "ann", "").await.unwrap();
    drain(worker(&mill, &log)).await.unwrap();
    let parked = mill.run(id).await.unwrap().unwrap().parked.unwrap().to_string();
    assert!(parked.contains("\"price\" cannot be read"), "{parked}");
    mill.edit_step(id, "price", &70, "ann", "").await.unwrap();
    drain(worker(&mill, &log)).await.unwrap();
    assert_eq!(log.all(), ["price", "charge 100", "charge 70"]);
    assert_eq!(mill.run(id).await.unwrap().unwrap().parked, None);
}

async fn a_run_that_died_of_a_step_goes_on_with_the_outcome_it_is_given(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let once = || {
        let log = log.clone();
        mill.worker().handle(move |_: Flowing, cx: Context| {
            let log = log.clone();
            async move {
                say(&cx, &log, "price", 5).await?;
                let body = || {
                    log.add("charge");
                    async { Err(Fail::ambiguous("the line is dead")) }
                };
                let retry = Retry::attempts(1);
                let paid: u32 =
                    cx.step("charge").at_most_once().retry(retry).run(|_| body()).await?;
                Ok(format!("paid {paid}"))
            }
        })
    };
    let id = mill.enqueue(Flowing { text: "x".to_owned() }).await.unwrap().id();
    drain(once()).await.unwrap();
    assert_eq!(mill.job(id).await.unwrap().unwrap().state, State::Dead);
    mill.edit_step(id, "charge", &5, "ann", "the bank says so").await.unwrap();
    drain(once()).await.unwrap();
    assert_eq!(output(&mill, id).await, "paid 5");
    assert_eq!(log.all(), ["price", "charge"], "it ran once");
}

async fn code_that_differs_leaves_no_trace_in_the_journal(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |wrong: Option<&'static str>| {
        let log = log.clone();
        let worker = mill.worker().handle(move |_: Flowing, cx: Context| {
            let log = log.clone();
            async move {
                let undo = || Enqueue::raw(TakeBack::KIND, "\"x\"");
                match wrong {
                    Some("step") => cx.step("new").undo(undo()).run(|_| async { Ok(()) }).await?,
                    Some("sleep") => cx.sleep(DAY).await?,
                    Some("child") => drop(cx.child(Echo::new("child")).await?),
                    Some("state") => {
                        cx.set_state("wrong")?;
                        return Ok(String::new());
                    }
                    _ => {}
                }
                say(&cx, &log, "a", 1).await?;
                cx.signal::<()>("go").await?;
                Ok("the end".to_owned())
            }
        });
        undoing(worker, &Log::default())
    };
    let id = mill.enqueue(Flowing { text: "x".to_owned() }).await.unwrap().id();
    drain(code(None)).await.unwrap();
    let journal = mill.journal(id).await.unwrap();
    for wrong in ["step", "sleep", "child", "state"] {
        mill.resume_run(id, "ann", wrong).await.unwrap();
        drain(code(Some(wrong))).await.unwrap();
        let run = mill.run(id).await.unwrap().unwrap();
        assert!(run.parked.is_some() && run.state.is_none(), "{wrong}: {run:?}");
        assert_eq!(mill.journal(id).await.unwrap(), journal, "{wrong}");
    }
    assert_eq!(mill.jobs(&JobFilter::default()).await.unwrap().len(), 1, "no child was started");
    mill.resume_run(id, "ann", "it was mended").await.unwrap();
    mill.signal(id, Signal::new("go", &())).await.unwrap();
    drain(code(None)).await.unwrap();
    assert_eq!(output(&mill, id).await, "the end");
}

async fn acts_on_a_run_that_runs_or_has_finished_are_refused(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let id = stuck(&mill, &log).await;
    for (refused, why) in [
        (mill.skip_step(id, "price", &1, "ann", "").await, "edit it to correct"),
        (mill.skip_step(id, "nothing", &1, "ann", "").await, "has nothing under"),
        (mill.edit_step(id, "charge", &1, "ann", "").await, "skip gives one"),
    ] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), "run_not_now");
        assert!(refused.to_string().contains(why), "{refused}");
    }
    mill.cancel_run(id, "ann", "no more").await.unwrap();
    let refused = mill.skip_step(id, "charge", &1, "ann", "").await.unwrap_err();
    assert!(refused.to_string().contains("it has finished: it is cancelled"), "{refused}");
    assert_eq!(mill.run_acts(id).await.unwrap().len(), 1, "only what was done is kept");
    let unknown = mill.pause_run(JobId::new(), "ann", "").await.unwrap_err();
    assert_eq!(unknown.code(), "run_unknown");

    let running = || {
        mill.worker().handle(|_: Flowing, cx: Context| async move {
            cx.step("a").run(|_| async { Ok(()) }).await?;
            cx.sleep(DAY).await?;
            let refused = cx.mill()?.edit_step(cx.id(), "a", &1, "ann", "").await.unwrap_err();
            Ok(refused.to_string())
        })
    };
    let id = mill.enqueue(Flowing { text: "y".to_owned() }).await.unwrap().id();
    drain(running()).await.unwrap();
    kit.advance(DAY);
    drain(running()).await.unwrap();
    let said = output(&mill, id).await;
    assert!(said.contains("it runs; pause it first"), "{said}");
}
