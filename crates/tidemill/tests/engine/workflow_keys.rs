//! Jobs with unique keys that runs start: another may hold the key.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill::testing::{crash_at_every_write, drain};
use tidemill::{Context, Fail, Job, JobFilter, JobId, Settings, State, Tidemill, Unique, Worker};
use tidemill_testkit::eventually::eventually;
use tokio::sync::Semaphore;

use super::kit::{Kit, SOON};
use super::workflow::{DAY, Flowing, Log};

over_both_stores!(
    a_child_that_a_reset_starts_anew_waits_for_the_one_that_was_called_off,
    a_job_that_a_run_starts_is_the_one_that_holds_its_key,
    a_job_with_a_key_is_started_once_wherever_the_process_dies,
);

#[derive(Debug, Serialize, Deserialize)]
struct Single;

impl Job for Single {
    const KIND: &'static str = "single";
    type Output = ();
    fn settings() -> Settings {
        Settings { unique: Some(Unique::by_key("one")), ..Settings::default() }
    }
}

fn parent<F, Fut>(mill: &Tidemill, code: F) -> Worker
where
    F: Fn(Context) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<String, Fail>> + Send + 'static,
{
    mill.worker().handle(move |_: Flowing, cx| code(cx))
}

async fn enqueue(mill: &Tidemill) -> JobId {
    mill.enqueue(Flowing { text: "x".to_owned() }).await.unwrap().id()
}

async fn singles(mill: &Tidemill) -> Vec<(JobId, State)> {
    let filter = JobFilter { kind: Some(Single::KIND.to_owned()), ..JobFilter::default() };
    mill.jobs(&filter).await.unwrap().iter().map(|view| (view.job.id, view.state)).collect()
}

async fn output(mill: &Tidemill, id: JobId) -> String {
    let view = mill.job(id).await.unwrap().unwrap();
    let output = view.output.unwrap_or_else(|| panic!("it is {:?}: {:?}", view.state, view.error));
    output.read().unwrap()
}

async fn a_child_that_a_reset_starts_anew_waits_for_the_one_that_was_called_off(kit: Kit) {
    let (mill, log, gate) = (kit.open().await, Log::default(), Arc::new(Semaphore::new(0)));
    let code = |cx: Context| async move {
        cx.step("a").run(|_| async { Ok(()) }).await?;
        cx.child(Single).await?;
        Ok("both".to_owned())
    };
    let (said, held) = (log.clone(), Arc::clone(&gate));
    // It does not hear that it was called off before it is let go.
    let single = move |_: Single, _cx| {
        let (said, held) = (said.clone(), Arc::clone(&held));
        async move {
            said.add("begins");
            held.acquire().await.map_err(Fail::transient)?.forget();
            said.add("ends");
            Ok(())
        }
    };
    let running = parent(&mill, code).handle(single).start().await.unwrap();
    let id = enqueue(&mill).await;
    let begun = async |times: usize| {
        let is_begun = || log.all().iter().filter(|said| *said == "begins").count() == times;
        eventually("the child begins", SOON, async || is_begun().then_some(())).await;
    };
    begun(1).await;
    eventually("the run waits", SOON, async || mill.reset_run(id, "a", "ann", "").await.ok()).await;
    eventually("the child is started anew", SOON, async || {
        let all = singles(&mill).await;
        assert!(!mill.job(id).await.unwrap().unwrap().state.is_final(), "it was turned away");
        (all.len() == 2).then_some(())
    })
    .await;
    assert_eq!(log.all(), ["begins"], "while the other runs, it does not");
    gate.add_permits(1);
    begun(2).await;
    gate.add_permits(1);
    mill.wait(id, SOON).await.unwrap();
    assert_eq!(output(&mill, id).await, "both");
    assert_eq!(log.all(), ["begins", "ends", "begins", "ends"]);
    running.stop().await;
}

async fn a_job_that_a_run_starts_is_the_one_that_holds_its_key(kit: Kit) {
    let mill = kit.open_still().await;
    let code = |cx: Context| async move {
        let first = cx.start(Single).await?;
        cx.sleep(DAY).await?;
        let second = cx.start(Single).await?;
        Ok(format!("{first} {second}"))
    };
    let holder = mill.enqueue(Single).await.unwrap().id();
    let id = enqueue(&mill).await;
    drain(parent(&mill, code)).await.unwrap();
    assert_eq!(singles(&mill).await.len(), 1);
    drain(mill.worker().handle(|_: Single, _cx| async { Ok(()) })).await.unwrap();
    kit.advance(DAY);
    drain(parent(&mill, code)).await.unwrap();
    let all = singles(&mill).await;
    let (made, _) = all.iter().find(|(single, _)| *single != holder).unwrap();
    assert_eq!(output(&mill, id).await, format!("{holder} {made}"));
}

async fn a_job_with_a_key_is_started_once_wherever_the_process_dies(kit: Kit) {
    let mill = kit.open_still().await;
    let code = |cx: Context| async move {
        let started = cx.start(Single).await?;
        cx.sleep(DAY).await?;
        cx.step("after").run(|_| async { Ok(()) }).await?;
        Ok(started.to_string())
    };
    let worker = || parent(&mill, code).handle(|_: Single, _cx| async { Ok(()) });
    let start = async || Ok(enqueue(&mill).await);
    let runs = crash_at_every_write(&mill, &kit.clock, worker, start).await.unwrap();
    assert!(runs.len() > 3, "{}", runs.len());
    let mut said: Vec<String> =
        runs.iter().map(|run| run.output.as_ref().unwrap().read().unwrap()).collect();
    let mut made: Vec<String> =
        singles(&mill).await.into_iter().map(|(id, _)| id.to_string()).collect();
    said.sort();
    made.sort();
    assert_eq!(made, said, "each run has started one, and knows which");
}
