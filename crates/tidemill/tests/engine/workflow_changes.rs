//! Code that changes under a run, and what its order depends on.

use tidemill::testing::drain;
use tidemill::{Context, Enqueue, Fail, Job, JobFilter, JobId, State, Tidemill, Worker};

use super::kit::{Echo, Kit};
use super::workflow::{DAY, Flowing, Log, TakeBack, undoing};

over_both_stores!(
    what_is_new_before_the_end_of_the_journal_is_found_out_and_does_nothing,
    what_has_ended_and_is_left_out_is_found_out,
    a_version_is_decided_once_for_a_run_and_all_its_rounds,
    an_object_is_read_beside_a_wait,
    what_was_done_after_a_pivot_is_undone,
);

fn worker<F, Fut>(mill: &Tidemill, code: F) -> Worker
where
    F: Fn(Context) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<String, Fail>> + Send + 'static,
{
    mill.worker().handle(move |_: Flowing, cx| code(cx))
}

fn flowing() -> Flowing {
    Flowing { text: "x".to_owned() }
}

async fn something_new(cx: &Context, what: &str) -> Result<(), Fail> {
    match what {
        "start" => drop(cx.start(Echo::new("new")).await?),
        "child" => drop(cx.child(Echo::new("new")).start().await?),
        "now" => drop(cx.now().await?),
        "step" => cx.step("new").run(|_| async { Ok(()) }).await?,
        "signal" => drop(cx.signal::<String>("new").await?),
        _ => cx.pivot().await?,
    }
    Ok(())
}

async fn what_is_new_before_the_end_of_the_journal_is_found_out_and_does_nothing(kit: Kit) {
    let mill = kit.open_still().await;
    for what in ["start", "child", "now", "pivot", "step", "signal"] {
        for has_step in [false, true] {
            let code = move |is_new: bool| {
                move |cx: Context| async move {
                    cx.step("a").run(|_| async { Ok(()) }).await?;
                    if is_new {
                        something_new(&cx, what).await?;
                    }
                    if has_step {
                        cx.step("b").run(|_| async { Ok(()) }).await?;
                    }
                    cx.sleep(DAY).await?;
                    Ok("slept".to_owned())
                }
            };
            let id = mill.enqueue(flowing()).await.unwrap().id();
            drain(worker(&mill, code(false))).await.unwrap();
            let journal = mill.journal(id).await.unwrap();
            kit.advance(DAY);
            drain(worker(&mill, code(true))).await.unwrap();
            let parked = mill.run(id).await.unwrap().unwrap().parked;
            assert!(parked.is_some(), "{what}, with a step: {has_step}");
            assert_eq!(mill.journal(id).await.unwrap().len(), journal.len(), "{what}");
            let filter = JobFilter { kind: Some(Echo::KIND.to_owned()), ..JobFilter::default() };
            assert!(mill.jobs(&filter).await.unwrap().is_empty(), "{what}");
            mill.resume_run(id, "ann", "").await.unwrap();
            drain(worker(&mill, code(false))).await.unwrap();
            assert_eq!(output(&mill, id).await, "slept", "{what}");
        }
    }
}

async fn what_has_ended_and_is_left_out_is_found_out(kit: Kit) {
    let mill = kit.open_still().await;
    let code = |names: &'static [&'static str]| {
        move |cx: Context| async move {
            for name in names {
                cx.step(name).run(|_| async { Ok(()) }).await?;
            }
            cx.sleep(DAY).await?;
            Ok("slept".to_owned())
        }
    };
    let id = mill.enqueue(flowing()).await.unwrap().id();
    drain(worker(&mill, code(&["a", "b"]))).await.unwrap();
    kit.advance(DAY);
    for names in [&["b"] as &[_], &["b", "a"]] {
        drain(worker(&mill, code(names))).await.unwrap();
        let why = mill.run(id).await.unwrap().unwrap().parked.unwrap().to_string();
        assert!(why.contains(r#""a" next (entry 0), but the code asks for "b""#), "{why}");
        mill.resume_run(id, "ann", "").await.unwrap();
    }
    drain(worker(&mill, code(&["a", "b"]))).await.unwrap();
    assert_eq!(output(&mill, id).await, "slept");
}

async fn output(mill: &Tidemill, id: JobId) -> String {
    let view = mill.job(id).await.unwrap().unwrap();
    let output = view.output.unwrap_or_else(|| panic!("it is {:?}: {:?}", view.state, view.error));
    output.read().unwrap()
}

async fn a_version_is_decided_once_for_a_run_and_all_its_rounds(kit: Kit) {
    let mill = kit.open_still().await;
    let code = |has_version: bool| {
        move |cx: Context| async move {
            let mut said = String::new();
            for _ in 0..3 {
                if has_version {
                    let version =
                        cx.scope("round", |cx| async move { cx.version("fix/1", 1..=2).await });
                    said += &version.await?.to_string();
                    said += &cx.version("fix/1", 1..=2).await?.to_string();
                }
                cx.sleep(DAY).await?;
            }
            Ok(said)
        }
    };
    let old = mill.enqueue(flowing()).await.unwrap().id();
    drain(worker(&mill, code(false))).await.unwrap();
    let new = mill.enqueue(flowing()).await.unwrap().id();
    for _ in 0..4 {
        drain(worker(&mill, code(true))).await.unwrap();
        kit.advance(DAY);
    }
    for (id, versions) in [(old, "111111"), (new, "222222")] {
        assert_eq!(mill.run(id).await.unwrap().unwrap().parked, None);
        assert_eq!(output(&mill, id).await, versions);
    }
}

async fn an_object_is_read_beside_a_wait(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let noted = log.clone();
    let worker = || {
        let log = noted.clone();
        mill.worker().queues(["count"]).handle(move |_: Flowing, cx: Context| {
            let log = log.clone();
            async move {
                let count = cx.object::<u32>()?;
                let counted = async {
                    let so_far = count.get().await?.unwrap_or_default();
                    let body = || {
                        log.add("count");
                        async { Ok(()) }
                    };
                    cx.step("count").run(|_| body()).await?;
                    count.set(&(so_far + 1))?;
                    Ok(so_far)
                };
                let (so_far, ()) = cx.join((counted, cx.sleep(DAY))).await?;
                Ok(so_far.to_string())
            }
        })
    };
    let add = || Enqueue::from(flowing()).object("count", "c");
    for round in 0..2 {
        let id = mill.enqueue(add()).await.unwrap().id();
        drain(worker()).await.unwrap();
        assert_eq!(log.all().len(), round + 1, "it was read, and the step beside the sleep began");
        kit.advance(DAY);
        drain(worker()).await.unwrap();
        assert_eq!(mill.run(id).await.unwrap().unwrap().parked, None);
        assert_eq!(output(&mill, id).await, round.to_string());
    }
    assert_eq!(mill.object("count", "c").await.unwrap(), Some(2));
}

async fn what_was_done_after_a_pivot_is_undone(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let code = |cx: Context| async move {
        for what in ["hotel", "flight"] {
            let undo = Enqueue::raw(TakeBack::KIND, format!("{what:?}"));
            cx.step(what).undo(undo).run(|_| async move { Ok(what.to_owned()) }).await?;
            if what == "hotel" {
                cx.pivot().await?;
            }
        }
        Err(Fail::permanent("the card was refused"))
    };
    let id = mill.enqueue(flowing()).await.unwrap().id();
    drain(undoing(worker(&mill, code), &log)).await.unwrap();
    assert_eq!(mill.job(id).await.unwrap().unwrap().state, State::Dead);
    assert_eq!(log.all(), ["undo flight Done \"flight\""]);
}
