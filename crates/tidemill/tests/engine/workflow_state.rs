//! What a run shows of itself: it is there as soon as it was said, and never lost.

use std::sync::Arc;

use tidemill::testing::{crash_at_every_write, drain};
use tidemill::{Context, Enqueue, Fail, JobId, Payload, Settings, Signal, State, Tidemill, Worker};
use tidemill_testkit::eventually::eventually;
use tokio::sync::Semaphore;

use super::kit::{Kit, SOON};

over_both_stores!(
    a_state_that_is_set_after_an_early_signal_is_shown,
    a_state_is_shown_while_a_step_runs,
    a_state_is_shown_while_the_code_waits_for_something_else,
    a_state_outlives_a_process_that_dies_at_any_write,
);

fn worker<F, Fut>(mill: &Tidemill, code: F) -> Worker
where
    F: Fn(Context) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Fail>> + Send + 'static,
{
    mill.worker().handle_raw("shown", Settings::default(), move |_, cx| {
        let ended = code(cx);
        async move { ended.await.map(|()| Payload::null()) }
    })
}

async fn enqueue(mill: &Tidemill) -> JobId {
    mill.enqueue(Enqueue::raw("shown", "null")).await.unwrap().id()
}

async fn shown(mill: &Tidemill, id: JobId) -> Option<String> {
    mill.run_state(id).await.unwrap()
}

async fn a_state_that_is_set_after_an_early_signal_is_shown(kit: Kit) {
    let mill = kit.open_still().await;
    let waits = |cx: Context| async move {
        cx.set_state("began")?;
        let () = cx.signal("go").await?;
        cx.signal("more").await
    };
    let ends = |cx: Context| async move {
        cx.set_state("began")?;
        Ok(())
    };
    for is_short in [false, true] {
        let id = enqueue(&mill).await;
        mill.signal(id, Signal::new("go", &())).await.unwrap();
        let worker = if is_short { worker(&mill, ends) } else { worker(&mill, waits) };
        drain(worker).await.unwrap();
        assert_eq!(shown(&mill, id).await.as_deref(), Some("began"), "ends at once: {is_short}");
    }
}

/// Waits to be let through, once.
async fn pass(gate: &Semaphore) -> Result<(), Fail> {
    gate.acquire().await.map(tokio::sync::SemaphorePermit::forget).map_err(Fail::transient)
}

/// Waits until the run shows this.
async fn shows(mill: &Tidemill, id: JobId, state: &str) {
    eventually("the state is shown", SOON, async || {
        let run = mill.run(id).await.unwrap()?;
        (run.state?.as_str() == format!("{state:?}")).then_some(())
    })
    .await;
    assert_eq!(mill.job(id).await.unwrap().unwrap().state, State::Running);
}

async fn a_state_is_shown_while_a_step_runs(kit: Kit) {
    let (mill, gate) = (kit.open().await, Arc::new(Semaphore::new(0)));
    let held = Arc::clone(&gate);
    let code = move |cx: Context| {
        let held = Arc::clone(&held);
        async move {
            cx.set_state("packing")?;
            let body = |_| async { pass(&held).await };
            cx.step("pack").run(body).await?;
            let inner = cx.clone();
            let body = |_| async {
                inner.set_state("wrapping")?;
                pass(&held).await
            };
            cx.step("wrap").run(body).await
        }
    };
    let running = worker(&mill, code).start().await.unwrap();
    let id = enqueue(&mill).await;
    shows(&mill, id, "packing").await;
    gate.add_permits(1);
    shows(&mill, id, "wrapping").await;
    gate.add_permits(1);
    mill.wait(id, SOON).await.unwrap();
    running.stop().await;
}

async fn a_state_is_shown_while_the_code_waits_for_something_else(kit: Kit) {
    let (mill, gate) = (kit.open().await, Arc::new(Semaphore::new(0)));
    let held = Arc::clone(&gate);
    let code = move |cx: Context| {
        let held = Arc::clone(&held);
        async move {
            for state in ["one", "two"] {
                cx.set_state(state)?;
                pass(&held).await?;
            }
            // One that another task has is shown as well.
            let (other, task) = (cx.clone(), Arc::clone(&held));
            let said = tokio::spawn(async move {
                pass(&task).await?;
                other.set_state("three")
            });
            said.await.map_err(Fail::transient)??;
            pass(&held).await
        }
    };
    let running = worker(&mill, code).start().await.unwrap();
    let id = enqueue(&mill).await;
    for state in ["one", "two"] {
        shows(&mill, id, state).await;
        gate.add_permits(1);
    }
    gate.add_permits(1);
    shows(&mill, id, "three").await;
    gate.add_permits(1);
    mill.wait(id, SOON).await.unwrap();
    running.stop().await;
}

async fn a_state_outlives_a_process_that_dies_at_any_write(kit: Kit) {
    let mill = kit.open_still().await;
    let code = |cx: Context| async move {
        cx.set_state("began")?;
        cx.step("a").run(|_| async { Ok(()) }).await?;
        cx.set_state("half")?;
        let () = cx.signal("go").await?;
        cx.step("b").run(|_| async { Ok(()) }).await?;
        cx.set_state("ends")?;
        Ok(())
    };
    let start = async || {
        let id = enqueue(&mill).await;
        mill.signal(id, Signal::new("go", &())).await?;
        Ok(id)
    };
    let worker = || worker(&mill, code);
    let views = crash_at_every_write(&mill, &kit.clock, worker, start).await.unwrap();
    assert!(views.len() > 4, "only {} crashes", views.len());
    for view in views {
        assert_eq!(view.state, State::Done);
        assert_eq!(shown(&mill, view.job.id).await.as_deref(), Some("ends"));
    }
}
