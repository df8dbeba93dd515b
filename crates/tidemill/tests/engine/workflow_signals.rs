//! Signals that the code cannot read: an operator passes them over, or corrects them, and the run goes on. Signals that
//! nobody takes: so many, and no more.

use std::sync::Arc;
use std::time::Duration;

use tidemill::core::workflow::{ActWord, Ending};
use tidemill::testing::drain;
use tidemill::{
    Clock, Context, Enqueue, Fail, JobId, Limits, Payload, Settings, Signal, State, Tidemill,
    Worker,
};

use tokio::sync::Notify;

use super::kit::Kit;

over_both_stores!(
    a_signal_of_the_wrong_type_is_passed_over_and_the_next_is_taken,
    a_signal_of_the_wrong_type_is_corrected,
    a_signal_that_was_passed_over_stays_so_in_a_scope_a_replay_and_a_next_turn,
    of_a_signal_nothing_else_can_be_said,
    a_run_keeps_so_many_signals_that_it_has_not_taken_in_every_turn,
    a_signal_that_another_process_sends_is_heard_beside_a_step,
);

/// Adds up two numbers that it is told.
async fn adds(cx: Context) -> Result<Payload, Fail> {
    let first: u32 = cx.signal("add").await?;
    cx.step("hear").run(|_| async { Ok(()) }).await?;
    let second: u32 = cx.signal("add").await?;
    Ok(Payload::trusted((first + second).to_string()))
}

fn worker(mill: &Tidemill) -> Worker {
    mill.worker().handle_raw("adds", Settings::default(), |_, cx| adds(cx))
}

/// A run that is parked, because its first signal is no number; a number comes after it.
async fn stuck(mill: &Tidemill) -> JobId {
    let id = mill.enqueue(Enqueue::raw("adds", "null")).await.unwrap().id();
    mill.signal(id, Signal::new("add", "five").id("one")).await.unwrap();
    mill.signal(id, Signal::new("add", &5)).await.unwrap();
    for _ in 0..2 {
        drain(worker(mill)).await.unwrap();
        let parked = mill.run(id).await.unwrap().unwrap().parked.unwrap().to_string();
        assert!(parked.contains("the signal \"add\" that came cannot be read"), "{parked}");
        // Resumed as it is, it comes to the same.
        mill.resume_run(id, "ann", "").await.unwrap();
    }
    drain(worker(mill)).await.unwrap();
    id
}

async fn output(mill: &Tidemill, id: JobId) -> String {
    let view = mill.job(id).await.unwrap().unwrap();
    let output = view.output.unwrap_or_else(|| panic!("it is {:?}: {:?}", view.state, view.error));
    output.as_str().to_owned()
}

async fn a_signal_of_the_wrong_type_is_passed_over_and_the_next_is_taken(kit: Kit) {
    let mill = kit.open_still().await;
    let id = stuck(&mill).await;
    mill.skip_step(id, "add", &(), "ann", "sent by mistake").await.unwrap();
    drain(worker(&mill)).await.unwrap();
    assert_eq!(mill.run(id).await.unwrap().unwrap().parked, None);
    // Sent again under its id, it is still known: nothing comes of it.
    mill.signal(id, Signal::new("add", "five").id("one")).await.unwrap();
    mill.signal(id, Signal::new("add", &7)).await.unwrap();
    drain(worker(&mill)).await.unwrap();
    assert_eq!(output(&mill, id).await, "12");
    let act = mill.run_acts(id).await.unwrap().pop().unwrap();
    let said = (act.act, act.step.as_deref(), act.by.as_str(), act.why.as_str());
    assert_eq!(said, (ActWord::Skipped, Some("add"), "ann", "sent by mistake"));
    assert_eq!(act.was, Some(Ending::Ok(Payload::trusted("\"five\"".to_owned()))));
}

async fn a_signal_of_the_wrong_type_is_corrected(kit: Kit) {
    let mill = kit.open_still().await;
    let id = stuck(&mill).await;
    mill.edit_step(id, "add", &50, "ann", "").await.unwrap();
    drain(worker(&mill)).await.unwrap();
    assert_eq!(output(&mill, id).await, "55");
    let act = mill.run_acts(id).await.unwrap().pop().unwrap();
    let ok = |text: &str| Some(Ending::Ok(Payload::trusted(text.to_owned())));
    assert_eq!((act.act, act.was, act.became), (ActWord::Edited, ok("\"five\""), ok("50")));
}

/// Hears a number in a scope, and goes on for another turn; the second turn ends with what it hears.
async fn turns(payload: Payload, cx: Context) -> Result<Payload, Fail> {
    let n: u32 = cx.scope("hear", |cx| async move { cx.signal("add").await }).await?;
    cx.signal::<()>("on").await?;
    if payload.as_str() != "null" {
        return Ok(Payload::trusted(format!("[{},{n}]", payload.as_str())));
    }
    cx.continue_as_new(Turn(n)).await
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Turn(u32);

impl tidemill::Job for Turn {
    const KIND: &'static str = "turns";
    type Output = serde_json::Value;
}

async fn a_signal_that_was_passed_over_stays_so_in_a_scope_a_replay_and_a_next_turn(kit: Kit) {
    let mill = kit.open_still().await;
    let worker = || mill.worker().handle_raw("turns", Settings::default(), turns);
    let id = mill.enqueue(Enqueue::raw("turns", "null")).await.unwrap().id();
    mill.signal(id, Signal::new("add", "one")).await.unwrap();
    mill.signal(id, Signal::new("add", "two")).await.unwrap();
    for _ in 0..2 {
        drain(worker()).await.unwrap();
        mill.skip_step(id, "hear/add", &(), "ann", "").await.unwrap();
    }
    mill.signal(id, Signal::new("add", &3)).await.unwrap();
    for _ in 0..2 {
        // The scope has ended; the run waits, and is led along its journal once more.
        drain(worker()).await.unwrap();
        mill.signal(id, Signal::new("other", &())).await.unwrap();
    }
    mill.signal(id, Signal::new("on", &())).await.unwrap();
    drain(worker()).await.unwrap();
    mill.signal(id, Signal::new("add", &4)).await.unwrap();
    mill.signal(id, Signal::new("on", &())).await.unwrap();
    drain(worker()).await.unwrap();
    assert_eq!(output(&mill, id).await, "[3,4]");
}

async fn a_run_keeps_so_many_signals_that_it_has_not_taken_in_every_turn(kit: Kit) {
    let limits = Limits { mailbox_signals_max: 2, ..Limits::default() };
    let clock = Clock::Manual(kit.clock.clone());
    let mill = Tidemill::builder().clock(clock).limits(limits).open(&kit.url).await.unwrap();
    // It takes one in each turn, and continues anew with what it took unwritten.
    let takes = |job: Payload, cx: Context| async move {
        let turn: u32 = job.read()?;
        let _: u32 = cx.signal("add").await?;
        cx.continue_as_new(Turn(turn + 1)).await
    };
    let worker = || mill.worker().handle_raw("turns", Settings::default(), takes);
    let id = mill.enqueue(Enqueue::raw("turns", "0")).await.unwrap().id();
    let fill = async || {
        let mut kept = 0;
        loop {
            match mill.signal(id, Signal::new("add", &1)).await {
                Ok(()) => kept += 1,
                Err(refused) => return (kept, refused),
            }
        }
    };
    for _ in 0..3 {
        let (kept, refused) = fill().await;
        assert_eq!((kept, refused.code()), (2, "mailbox_full"), "{refused}");
        let update = mill.update::<u32>(id, Signal::new("ask", &1), Duration::ZERO).await;
        assert_eq!(update.unwrap_err().code(), "mailbox_full");
        drain(worker()).await.unwrap();
        assert_eq!(mill.run(id).await.unwrap().unwrap().signals_unread, 0);
    }
    mill.signal(id, Signal::new("other", &1)).await.unwrap();
    assert_eq!((fill().await.0, mill.run(id).await.unwrap().unwrap().signals_unread), (1, 2));
    mill.close().await;
}

async fn of_a_signal_nothing_else_can_be_said(kit: Kit) {
    let mill = kit.open_still().await;
    let id = stuck(&mill).await;
    let output = mill.skip_step(id, "add", &7, "ann", "").await.unwrap_err();
    let fails = mill.fail_step(id, "add", "no", "ann", "").await.unwrap_err();
    for error in [output, fails] {
        assert_eq!(error.code(), "run_not_now");
        assert!(error.to_string().contains("edit it to change what it carries"), "{error}");
    }
    assert_eq!(mill.job(id).await.unwrap().unwrap().state, State::Blocked);
    assert!(mill.run(id).await.unwrap().unwrap().parked.is_some(), "nothing was done");
}

async fn a_signal_that_another_process_sends_is_heard_beside_a_step(kit: Kit) {
    let (mill, other) = (kit.open().await, kit.open().await);
    let (began, heard) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let told = (Arc::clone(&began), Arc::clone(&heard));
    let worker = mill.worker().handle_raw("hears", Settings::default(), move |_, cx| {
        let (began, heard) = told.clone();
        async move {
            let step = cx.step("slow").run(|_| async {
                began.notify_one();
                heard.notified().await;
                Ok(())
            });
            let signal = async {
                let said: Payload = cx.signal("go").await?;
                heard.notify_one();
                Ok(said)
            };
            let ((), said) = cx.join((step, signal)).await?;
            Ok(said)
        }
    });
    let id = mill.enqueue(Enqueue::raw("hears", "null")).await.unwrap().id();
    let (drained, ()) = tokio::join!(drain(worker), async {
        began.notified().await;
        other.signal(id, Signal::new("go", "now")).await.unwrap();
    });
    assert_eq!((drained.unwrap().done, output(&mill, id).await.as_str()), (1, "\"now\""));
}
