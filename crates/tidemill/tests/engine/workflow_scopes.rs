//! Resets and forks where scopes have ended: what was inside is forgotten, so the whole scope is done anew or nothing.

use tidemill::testing::drain;
use tidemill::{Context, Enqueue, Fail, ForkAs, Job, JobId, Signal, State, Tidemill, Worker};

use super::kit::Kit;
use super::workflow::{DAY, Flowing, Log, TakeBack, undoing};

over_both_stores!(
    nothing_goes_on_from_inside_of_a_scope_that_has_ended,
    a_scope_that_has_ended_is_done_anew_as_a_whole,
    a_scope_that_ended_beside_what_is_reset_is_done_anew_as_a_whole,
    a_branch_of_a_join_or_race_that_is_over_is_done_anew,
    steps_are_undone_whatever_they_and_their_scopes_are_called,
);

async fn say(cx: &Context, log: &Log, what: &str) -> Result<(), Fail> {
    let undo = Enqueue::raw(TakeBack::KIND, "\"x\"");
    let body = |_| {
        log.add(what);
        async { Ok(()) }
    };
    // One that can be undone stays in the journal when its scope has ended.
    if what.starts_with("undoable") {
        return cx.step(what).undo(undo).run(body).await;
    }
    cx.step(what).run(body).await
}

/// A scope in which a step comes before a signal, and items that are mapped; then a step.
async fn packs(cx: Context, log: Log) -> Result<String, Fail> {
    cx.scope("pack", |cx| {
        let log = log.clone();
        async move {
            say(&cx, &log, "fold").await?;
            cx.signal::<()>("go").await?;
            say(&cx, &log, "undoable tape").await
        }
    })
    .await?;
    cx.map("each", 0..2, 1, |cx, _| {
        let log = log.clone();
        async move { say(&cx, &log, "undoable one").await }
    })
    .await?;
    cx.pivot().await?;
    say(&cx, &log, "send").await?;
    cx.sleep(DAY).await?;
    Ok("sent".to_owned())
}

/// The same scope beside a step that ends before it does.
async fn beside(cx: Context, log: Log) -> Result<String, Fail> {
    let scope = cx.scope("pack", |cx| {
        let log = log.clone();
        async move {
            say(&cx, &log, "fold").await?;
            cx.signal::<()>("go").await?;
            cx.signal::<()>("on").await
        }
    });
    let label = async {
        cx.signal::<()>("label").await?;
        say(&cx, &log, "label").await
    };
    cx.join((scope, label)).await?;
    cx.sleep(DAY).await?;
    Ok("sent".to_owned())
}

/// A join and a race, and a step after each.
async fn joins(cx: Context, log: Log) -> Result<String, Fail> {
    cx.join((say(&cx, &log, "left"), say(&cx, &log, "right"))).await?;
    say(&cx, &log, "joined").await?;
    cx.race((cx.sleep(DAY), say(&cx, &log, "fast"))).await?;
    say(&cx, &log, "raced").await?;
    cx.signal::<()>("end").await?;
    Ok("sent".to_owned())
}

fn worker<F, Fut>(mill: &Tidemill, log: &Log, code: F) -> Worker
where
    F: Fn(Context, Log) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<String, Fail>> + Send + 'static,
{
    let (log, undone) = (log.clone(), log.clone());
    undoing(mill.worker().handle(move |_: Flowing, cx| code(cx, log.clone())), &undone)
}

async fn enqueue(mill: &Tidemill) -> JobId {
    mill.enqueue(Flowing { text: "x".to_owned() }).await.unwrap().id()
}

async fn send(mill: &Tidemill, id: JobId, name: &str) {
    mill.signal(id, Signal::new(name, &())).await.unwrap();
}

/// What the run came to from here, which is not parked.
async fn done(kit: &Kit, mill: &Tidemill, id: JobId, worker: impl Fn() -> Worker) {
    drain(worker()).await.unwrap();
    let run = mill.run(id).await.unwrap().unwrap();
    assert_eq!(run.parked, None);
    kit.advance(DAY);
    drain(worker()).await.unwrap();
    assert_eq!(mill.job(id).await.unwrap().unwrap().state, State::Done, "{:?}", run.waits);
}

async fn nothing_goes_on_from_inside_of_a_scope_that_has_ended(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let id = enqueue(&mill).await;
    send(&mill, id, "go").await;
    drain(worker(&mill, &log, packs)).await.unwrap();
    let before = mill.journal(id).await.unwrap();
    for inside in ["pack/go", "pack/undoable tape", "each[0]/undoable one"] {
        let scope = inside.split('/').next().unwrap();
        let told = format!("is inside the scope {scope:?}, which has ended");
        let reset = mill.reset_run(id, inside, "ann", "").await.unwrap_err();
        let fork = mill.fork_run(id, inside, ForkAs::Beside, "ann", "").await.unwrap_err();
        for error in [reset, fork] {
            assert_eq!(error.code(), "run_not_now");
            assert!(error.to_string().contains(&told), "{error}");
        }
    }
    assert_eq!(mill.journal(id).await.unwrap(), before);
    done(&kit, &mill, id, || worker(&mill, &log, packs)).await;
    assert_eq!(log.all().iter().filter(|said| *said == "fold").count(), 1);
}

async fn a_scope_that_has_ended_is_done_anew_as_a_whole(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let id = enqueue(&mill).await;
    send(&mill, id, "go").await;
    drain(worker(&mill, &log, packs)).await.unwrap();
    let fork = mill.fork_run(id, "pack", ForkAs::Beside, "ann", "").await.unwrap();
    send(&mill, fork, "go").await;
    mill.reset_run(id, "pack", "ann", "").await.unwrap();
    done(&kit, &mill, id, || worker(&mill, &log, packs)).await;
    assert_eq!(mill.job(fork).await.unwrap().unwrap().state, State::Done);
    let said = log.all();
    for what in ["fold", "undoable tape", "send"] {
        assert_eq!(said.iter().filter(|said| *said == what).count(), 3, "{what}: {said:?}");
    }
}

async fn a_scope_that_ended_beside_what_is_reset_is_done_anew_as_a_whole(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let id = enqueue(&mill).await;
    for name in ["go", "label", "on"] {
        send(&mill, id, name).await;
        drain(worker(&mill, &log, beside)).await.unwrap();
    }
    assert_eq!(log.all(), ["fold", "label"]);
    mill.reset_run(id, "label#2", "ann", "").await.unwrap();
    done(&kit, &mill, id, || worker(&mill, &log, beside)).await;
    let mut said = log.all();
    said.sort();
    assert_eq!(said, ["fold", "fold", "label", "label"]);
}

async fn a_branch_of_a_join_or_race_that_is_over_is_done_anew(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let id = enqueue(&mill).await;
    drain(worker(&mill, &log, joins)).await.unwrap();
    assert_eq!(log.all(), ["left", "right", "joined", "fast", "raced"]);
    for (to, again) in [
        ("right", vec!["right", "joined", "fast", "raced"]),
        ("fast", vec!["fast", "raced"]),
        ("sleep", vec!["fast", "raced"]),
    ] {
        let before = log.all().len();
        mill.reset_run(id, to, "ann", "").await.unwrap();
        drain(worker(&mill, &log, joins)).await.unwrap();
        assert_eq!(log.all()[before..], again, "{to}");
        let fork = mill.fork_run(id, to, ForkAs::Beside, "ann", "").await.unwrap();
        drain(worker(&mill, &log, joins)).await.unwrap();
        assert_eq!(log.all()[before + again.len()..], again, "a fork from {to}");
        assert_eq!(mill.run(fork).await.unwrap().unwrap().parked, None);
    }
    send(&mill, id, "end").await;
    done(&kit, &mill, id, || worker(&mill, &log, joins)).await;
}

async fn steps_are_undone_whatever_they_and_their_scopes_are_called(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let worker = undoing(mill.worker(), &log).handle(move |_: Flowing, cx| {
        // What is said is undone by the same words.
        let log = Log::default();
        async move {
            let name = format!("undoable {}", "n".repeat(191));
            cx.scope(&"s".repeat(200), async |cx| say(&cx, &log, &name).await).await?;
            cx.scope("undoable", async |cx| say(&cx, &log, "undoable x").await).await?;
            for step in [&name, "undoable undoable x", "undoable undoable\tx", "undoable "] {
                say(&cx, &log, step).await?;
            }
            Err::<String, _>(Fail::permanent("no"))
        }
    });
    let id = mill.enqueue(Flowing { text: String::new() }).await.unwrap().id();
    drain(worker).await.unwrap();
    assert_eq!(mill.job(id).await.unwrap().unwrap().state, State::Dead);
    assert_eq!(log.all(), ["undo x Done null"; 6]);
}
