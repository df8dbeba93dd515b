//! The same workflows for either boss: journal, signals, updates, children, objects, undos.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill::{
    Context, Enqueue, Fail, First, Job, JobFilter, ObjectKey, Payload, Settings, Signal, State,
    Worker,
};
use tidemill_testkit::eventually::eventually;

use super::kit::{Boss, Kit, SOON};

over_both_bosses!(
    a_run_goes_on_where_it_was,
    what_a_run_starts_is_its_own_or_not,
    mail_reaches_a_run_that_is_busy,
    a_large_result_is_read_again,
    a_run_that_fails_is_undone,
    a_run_continues_anew,
    objects_are_kept_from_job_to_job,
    code_that_differs_from_its_journal_is_parked,
    a_signal_that_cannot_be_read_parks_with_its_code,
);

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    text: String,
}

impl Job for Order {
    const KIND: &'static str = "order";
    type Output = String;
}

#[derive(Debug, Serialize, Deserialize)]
struct Echo {
    text: String,
}

impl Job for Echo {
    const KIND: &'static str = "echo";
    type Output = String;
}

fn echoing(worker: Worker) -> Worker {
    worker.handle(|job: Echo, _cx| async move { Ok(job.text) })
}

fn order(text: &str) -> Order {
    Order { text: text.to_owned() }
}

/// Counts how often the bodies of its steps run.
async fn wander(job: Order, cx: Context) -> Result<String, Fail> {
    let steps = cx.state::<AtomicU32>()?;
    let seen = Arc::clone(&steps);
    let first = cx.step("first").run(move |_| {
        let number = seen.fetch_add(1, Ordering::SeqCst);
        async move { Ok(number) }
    });
    let first = first.await?;
    cx.set_state("under way")?;
    let (now, drawn) = (cx.now().await?, cx.uuid());
    cx.sleep(Duration::from_millis(1100)).await?; // longer than what stays in memory
    let word = cx.signal::<String>("go").await?;
    let add = cx.update_if("add", |n: &u32| if *n > 0 { Ok(()) } else { Err("add more".into()) });
    let add = add.await?;
    let sum = add.value + 1;
    add.answer(&sum).await?;
    let last = cx.step("last").run(move |_| {
        let number = steps.fetch_add(1, Ordering::SeqCst);
        async move { Ok((number, now, drawn)) }
    });
    let (last, noted, of_step) = last.await?;
    if (noted, of_step) != (now, drawn) {
        return Err(Fail::permanent("the time or the draw is another"));
    }
    Ok(format!("{} {first} {word} {sum} {last}", job.text))
}

async fn a_run_goes_on_where_it_was(kit: Kit, boss: Boss) {
    let worker = kit.worker(boss).version("v7").state(AtomicU32::new(0)).handle(wander);
    let worker = worker.start().await.unwrap();
    let id = kit.mill.enqueue(order("x")).await.unwrap().id();
    let waits = async || {
        let run = kit.mill.run(id).await.unwrap()?;
        let waits = run.waits.as_ref()?.what.iter().any(|what| what.contains("go"));
        waits.then_some(run)
    };
    let run = eventually("the run waits for a signal", SOON, waits).await;
    assert_eq!(run.version, "v7");
    assert_eq!(kit.mill.run_state::<String>(id).await.unwrap().as_deref(), Some("under way"));
    assert_eq!(kit.mill.job(id).await.unwrap().unwrap().state, State::Blocked);
    kit.mill.signal(id, Signal::new("go", "now")).await.unwrap();
    let refused = kit.mill.update::<u32>(id, Signal::new("add", &0), SOON).await.unwrap_err();
    assert_eq!(refused.code(), "update_refused");
    let sum = kit.mill.update::<u32>(id, Signal::new("add", &4), SOON).await.unwrap();
    assert_eq!(sum, 5);
    assert_eq!(kit.output::<String>(id).await, "x 0 now 5 1", "each step has run once");
    worker.stop().await;
    kit.close().await;
}

async fn what_a_run_starts_is_its_own_or_not(kit: Kit, boss: Boss) {
    let parent = |_: Order, cx: Context| async move {
        let echo = |text: &str| Echo { text: text.to_owned() };
        let one = cx.child(echo("one")).await?;
        let all = cx.children(["a", "b"].map(|text| Echo { text: text.to_owned() })).await?;
        let all: Vec<String> = all.into_iter().collect::<Result<_, _>>()?;
        let later = cx.child(echo("later")).start().await?;
        cx.start(Enqueue::raw("nobody", "1")).await?;
        Ok(format!("{one} {} {}", all.join(""), later.result().await?))
    };
    let worker = echoing(kit.worker(boss).handle(parent)).start().await.unwrap();
    let id = kit.mill.enqueue(order("x")).await.unwrap().id();
    assert_eq!(kit.output::<String>(id).await, "one ab later");
    let mut parents = Vec::new();
    for kind in ["echo", "nobody"] {
        let filter = JobFilter { kind: Some(kind.to_owned()), ..JobFilter::default() };
        let jobs = kit.mill.jobs(&filter).await.unwrap();
        parents.push((jobs.len(), jobs.iter().all(|view| view.job.options.parent == Some(id))));
    }
    assert_eq!(parents, [(4, true), (1, false)]);
    worker.stop().await;
    kit.close().await;
}

/// A signal wins the race against a step that is under way.
async fn mail_reaches_a_run_that_is_busy(kit: Kit, boss: Boss) {
    let racing = |_: Order, cx: Context| async move {
        let long = cx.step("long").run(|_| std::future::pending::<Result<(), Fail>>());
        match cx.race((long, cx.signal::<String>("go"))).await? {
            First::A(()) => Err(Fail::permanent("it never ends")),
            First::B(word) => Ok(word),
        }
    };
    let worker = kit.worker(boss).handle(racing).start().await.unwrap();
    let id = kit.mill.enqueue(order("x")).await.unwrap().id();
    let runs =
        async || (kit.mill.job(id).await.unwrap().unwrap().state == State::Running).then_some(());
    eventually("the run runs", SOON, runs).await;
    kit.mill.signal(id, Signal::new("go", "mail")).await.unwrap();
    assert_eq!(kit.output::<String>(id).await, "mail");
    worker.stop().await;
    kit.close().await;
}

async fn a_large_result_is_read_again(kit: Kit, boss: Boss) {
    let large = |_: Order, cx: Context| async move {
        let text = cx.step("large").run(|_| async { Ok("x".repeat(300_000)) }).await?;
        cx.signal::<()>("go").await?;
        Ok(format!("{}", text.len()))
    };
    let worker = kit.worker(boss).handle(large).start().await.unwrap();
    let id = kit.mill.enqueue(order("x")).await.unwrap().id();
    let waits =
        async || (kit.mill.job(id).await.unwrap().unwrap().state == State::Blocked).then_some(());
    eventually("the run waits", SOON, waits).await;
    kit.mill.signal(id, Signal::new("go", &())).await.unwrap();
    assert_eq!(kit.output::<String>(id).await, "300000");
    worker.stop().await;
    kit.close().await;
}

async fn a_run_that_fails_is_undone(kit: Kit, boss: Boss) {
    let failing = |_: Order, cx: Context| async move {
        let undo = Enqueue::raw("release", "7");
        cx.step("hold").undo(undo).run(|_| async { Ok(()) }).await?;
        cx.step("charge").run(|_| async { Err::<(), _>(Fail::permanent("no money")) }).await?;
        Ok(String::new())
    };
    let worker = kit.worker(boss).handle(failing).start().await.unwrap();
    let id = kit.mill.enqueue(order("x")).await.unwrap().id();
    let view = kit.end(id).await;
    assert_eq!(view.state, State::Dead);
    assert!(view.error.unwrap().contains("no money"));
    let filter = JobFilter { kind: Some("release".to_owned()), ..JobFilter::default() };
    let undo = async || kit.mill.jobs(&filter).await.unwrap().pop();
    let undo = eventually("the step is undone", SOON, undo).await;
    assert!(undo.job.payload.as_str().contains(r#""payload":7"#), "{}", undo.job.payload.as_str());
    worker.stop().await;
    kit.close().await;
}

async fn a_run_continues_anew(kit: Kit, boss: Boss) {
    let turning = |job: Order, cx: Context| async move {
        let text = format!("{}.", job.text);
        cx.step("note").run(|_| async { Ok(()) }).await?;
        if text.len() < 4 { cx.continue_as_new(Order { text }).await } else { Ok(text) }
    };
    let worker = kit.worker(boss).handle(turning).start().await.unwrap();
    let id = kit.mill.enqueue(order("x")).await.unwrap().id();
    assert_eq!(kit.output::<String>(id).await, "x...");
    assert_eq!(kit.end(id).await.attempt, 1, "a turn spends none");
    worker.stop().await;
    kit.close().await;
}

async fn objects_are_kept_from_job_to_job(kit: Kit, boss: Boss) {
    let adding = |item: Payload, cx: Context| async move {
        let cart = cx.object::<Vec<String>>()?;
        let mut items = cart.get().await?.unwrap_or_default();
        items.push(item.read()?);
        cart.set(&items)?;
        Ok(Payload::trusted(items.len().to_string()))
    };
    let worker = kit.worker(boss).queues(["cart"]);
    let worker = worker.handle_raw("add", Settings::default(), adding).start().await.unwrap();
    let add = |item: &str| Enqueue::raw("add", format!("{item:?}")).object("cart", "user/7");
    let of_tenant = kit.mill.enqueue(add("lamp").tenant("a&b")).await.unwrap();
    assert_eq!(kit.output::<u32>(of_tenant.id()).await, 1);
    let receipts = kit.mill.enqueue_many(["tea", "cup", "pot"].map(add)).await.unwrap();
    assert_eq!(kit.output::<u32>(receipts[2].id()).await, 3);
    let items: Option<Vec<String>> = kit.mill.object("cart", "user/7").await.unwrap();
    assert_eq!(items.unwrap(), ["tea", "cup", "pot"]);
    let again = kit.mill.enqueue(add("oil").tenant("a&b")).await.unwrap();
    assert_eq!(kit.output::<u32>(again.id()).await, 2, "it is another object");
    let key = ObjectKey::new("user/7").tenant("a&b");
    let items: Option<Vec<String>> = kit.mill.object("cart", key).await.unwrap();
    assert_eq!(items.unwrap(), ["lamp", "oil"]);
    worker.stop().await;
    kit.close().await;
}

async fn code_that_differs_from_its_journal_is_parked(kit: Kit, boss: Boss) {
    let version = |name: &'static str| {
        kit.worker(boss).handle(move |_: Order, cx: Context| async move {
            cx.step(name).run(|_| async { Ok(()) }).await?;
            cx.signal::<()>("go").await?;
            Ok(String::new())
        })
    };
    let old = version("old").start().await.unwrap();
    let id = kit.mill.enqueue(order("x")).await.unwrap().id();
    let waits =
        async || (kit.mill.job(id).await.unwrap().unwrap().state == State::Blocked).then_some(());
    eventually("the run waits", SOON, waits).await;
    old.stop().await;
    let new = version("new").start().await.unwrap();
    kit.mill.signal(id, Signal::new("go", &())).await.unwrap();
    let parked = async || kit.mill.run(id).await.unwrap()?.parked;
    let parked = eventually("the run is parked", SOON, parked).await;
    let Some(diff) = &parked.diff else {
        panic!("parked otherwise: {parked:?}");
    };
    assert!(diff.code.contains("new") && diff.journal.contains("old"), "{diff}");
    new.stop().await;
    kit.close().await;
}

async fn a_signal_that_cannot_be_read_parks_with_its_code(kit: Kit, boss: Boss) {
    let worker = kit.worker(boss).handle(|_: Order, cx: Context| async move {
        Ok(cx.signal::<u32>("count").await?.to_string())
    });
    let worker = worker.start().await.unwrap();
    let id = kit.mill.enqueue(order("x")).await.unwrap().id();
    kit.mill.signal(id, Signal::new("count", "many")).await.unwrap();
    let parked = async || kit.mill.run(id).await.unwrap()?.parked;
    let parked = eventually("the run is parked", SOON, parked).await;
    assert_eq!(parked.code.code(), "parked_signal_unreadable", "{parked}");
    kit.mill.signal(id, Signal::new("count", &7)).await.unwrap();
    kit.mill.skip_step(id, "count", &(), "ann", "").await.unwrap();
    assert_eq!(kit.output::<String>(id).await, "7");
    worker.stop().await;
    kit.close().await;
}
