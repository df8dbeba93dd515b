//! Children that outlive their run, and children that are started now and waited for later.

use serde::{Deserialize, Serialize};
use tidemill::core::workflow::ENTRY_BYTES_MAX;
use tidemill::testing::{crash_at_every_write, drain, tend};
use tidemill::{
    Clock, Context, Fail, First, ForkAs, Job, JobFilter, JobId, Keyring, Settings, Signal, State,
    Tidemill, Unique, Worker,
};

use super::kit::{Echo, Kit};
use super::workflow::{DAY, Flowing};

over_both_stores!(
    a_child_that_returns_nothing_is_done,
    a_join_of_more_than_an_entry_holds_is_told_and_told_again,
    a_child_whose_key_is_held_is_an_error_and_nobody_waits_for_it,
    a_child_that_outlives_its_run_goes_on_without_it,
    a_loser_of_a_race_is_called_off_when_the_run_waits_next,
    a_loser_of_a_race_that_outlives_is_not_called_off,
    a_child_is_started_and_waited_for_later_and_again,
    a_child_that_was_started_is_called_off_with_its_run,
    children_are_called_off_with_their_run_however_many,
    a_child_is_called_off_by_who_cannot_read_it,
    a_fork_starts_the_children_anew_that_nobody_had_waited_for,
    a_run_that_continues_anew_leaves_those_that_outlive_it,
    whom_a_run_has_not_started_it_cannot_wait_for,
    a_run_with_a_started_child_dies_at_any_write_and_comes_to_the_same,
);

#[derive(Debug, Serialize, Deserialize)]
struct Quiet;

impl Job for Quiet {
    const KIND: &'static str = "quiet";
    type Output = ();
}

async fn a_child_that_returns_nothing_is_done(kit: Kit) {
    let mill = kit.open_still().await;
    let code = |cx: Context| async move {
        cx.child(Quiet).await?;
        cx.child(Quiet).start().await?.result().await?;
        Ok("quiet".to_owned())
    };
    let id = enqueue(&mill).await;
    drain(parent(&mill, code).handle(|_: Quiet, _cx| async { Ok(()) })).await.unwrap();
    assert_eq!(output(&mill, id).await, "quiet");
}

#[derive(Debug, Serialize, Deserialize)]
struct Large(usize);

impl Job for Large {
    const KIND: &'static str = "large";
    type Output = String;
}

async fn a_join_of_more_than_an_entry_holds_is_told_and_told_again(kit: Kit) {
    const CHILDREN: usize = 12;
    const BYTES: usize = 700_000;
    const { assert!(CHILDREN * BYTES > ENTRY_BYTES_MAX) };
    let mill = kit.open_still().await;
    let code = |cx: Context| async move {
        let all = cx.children((0..CHILDREN).map(Large)).await?;
        let heard: Vec<String> = all.into_iter().collect::<Result<_, _>>()?;
        cx.sleep(DAY).await?;
        let firsts: Vec<&str> = heard.iter().map(|one| one[..2].trim()).collect();
        Ok(format!("{} of {}", heard.iter().map(String::len).sum::<usize>(), firsts.join(" ")))
    };
    let worker = || {
        let large = |job: Large, _cx: Context| async move {
            Ok(format!("{:<2}{}", job.0, "x".repeat(BYTES - 2)))
        };
        parent(&mill, code).handle(large)
    };
    let id = enqueue(&mill).await;
    drain(worker()).await.unwrap();
    let entries = mill.store().journal(id).await.unwrap().0;
    let joined: Vec<_> = entries.iter().filter(|row| row.entry.contains("joined")).collect();
    assert_eq!(joined.len(), CHILDREN, "no two of them fit together");
    assert!(joined.iter().all(|row| row.entry.len() < 1000), "what they returned stands beside");
    let history = mill.history(id).await.unwrap();
    assert!(serde_json::to_string(&history).unwrap().len() > 2 * CHILDREN * BYTES);
    kit.advance(DAY);
    drain(worker()).await.unwrap();
    let firsts: Vec<String> = (0..CHILDREN).map(|n| n.to_string()).collect();
    let told = format!("{} of {}", CHILDREN * BYTES, firsts.join(" "));
    assert_eq!(output(&mill, id).await, told);
}

#[derive(Debug, Serialize, Deserialize)]
struct Single;

impl Job for Single {
    const KIND: &'static str = "single";
    type Output = ();
    fn settings() -> Settings {
        Settings { unique: Some(Unique::by_key("one")), ..Settings::default() }
    }
}

async fn a_child_whose_key_is_held_is_an_error_and_nobody_waits_for_it(kit: Kit) {
    let mill = kit.open_still().await;
    let code = |cx: Context| async move {
        let awaited = cx.child(Single).await.unwrap_err().to_string();
        let started = cx.child(Single).start().await?;
        let later = started.result().await.unwrap_err().to_string();
        Ok(format!("{awaited} / {later}"))
    };
    let holder = mill.enqueue(Single).await.unwrap().id();
    let id = enqueue(&mill).await;
    drain(parent(&mill, code)).await.unwrap();
    let said = output(&mill, id).await;
    assert_eq!(said.matches(&format!("it is a duplicate of {holder}")).count(), 2, "{said}");
}

/// Runs [`Flowing`] by this code. Who echoes is up to the test.
fn parent<F, Fut>(mill: &Tidemill, code: F) -> Worker
where
    F: Fn(Context) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<String, Fail>> + Send + 'static,
{
    mill.worker().handle(move |_: Flowing, cx| code(cx))
}

fn echoing(worker: Worker) -> Worker {
    worker.handle(|job: Echo, _cx| async move { Ok(job.text) })
}

async fn enqueue(mill: &Tidemill) -> JobId {
    mill.enqueue(Flowing { text: "x".to_owned() }).await.unwrap().id()
}

/// How the children stand, by what they echo.
async fn children(mill: &Tidemill) -> Vec<(String, State)> {
    let filter = JobFilter { kind: Some(Echo::KIND.to_owned()), ..JobFilter::default() };
    let jobs = mill.jobs(&filter).await.unwrap();
    let told = |job: &tidemill::JobView| job.job.payload.read::<Echo>().unwrap().text;
    let mut all: Vec<_> = jobs.iter().map(|job| (told(job), job.state)).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

fn stand(all: &[(String, State)]) -> Vec<(&str, State)> {
    all.iter().map(|(text, state)| (text.as_str(), *state)).collect()
}

async fn output(mill: &Tidemill, id: JobId) -> String {
    let view = mill.job(id).await.unwrap().unwrap();
    let output = view.output.unwrap_or_else(|| panic!("it is {:?}: {:?}", view.state, view.error));
    output.read().unwrap()
}

async fn a_child_that_outlives_its_run_goes_on_without_it(kit: Kit) {
    let mill = kit.open_still().await;
    let code = |cx: Context| async move {
        let plain = cx.child(Echo::new("plain"));
        let lasting = cx.child(Echo::new("lasting")).outlives();
        let (a, b) = cx.join((plain, lasting)).await?;
        Ok(a + &b)
    };
    let id = enqueue(&mill).await;
    drain(parent(&mill, code)).await.unwrap();
    mill.cancel_run(id, "ann", "").await.unwrap();
    drain(parent(&mill, code)).await.unwrap();
    let all = children(&mill).await;
    assert_eq!(stand(&all), [("lasting", State::Ready), ("plain", State::Cancelled)]);
    drain(echoing(parent(&mill, code))).await.unwrap();
    let all = children(&mill).await;
    assert_eq!(stand(&all), [("lasting", State::Done), ("plain", State::Cancelled)]);
    let both = enqueue(&mill).await;
    drain(echoing(parent(&mill, code))).await.unwrap();
    assert_eq!(output(&mill, both).await, "plainlasting", "it is waited for as any child is");
}

async fn a_loser_of_a_race_is_called_off_when_the_run_waits_next(kit: Kit) {
    let mill = kit.open_still().await;
    let code = |cx: Context| async move {
        cx.race((cx.child(Echo::new("slow")), cx.sleep(DAY))).await?;
        cx.signal::<()>("go").await?;
        cx.race((cx.child(Echo::new("slower")), cx.signal::<()>("stop"))).await?;
        cx.sleep(DAY).await?;
        Ok("went".to_owned())
    };
    let id = enqueue(&mill).await;
    drain(parent(&mill, code)).await.unwrap();
    assert_eq!(stand(&children(&mill).await), [("slow", State::Ready)]);
    kit.advance(DAY);
    drain(parent(&mill, code)).await.unwrap();
    assert_eq!(stand(&children(&mill).await), [("slow", State::Cancelled)]);
    for name in ["go", "stop"] {
        mill.signal(id, Signal::new(name, &())).await.unwrap();
    }
    drain(parent(&mill, code)).await.unwrap();
    let all = children(&mill).await;
    assert_eq!(stand(&all), [("slow", State::Cancelled), ("slower", State::Cancelled)]);
    kit.advance(DAY);
    drain(parent(&mill, code)).await.unwrap();
    assert_eq!(output(&mill, id).await, "went");
}

async fn a_loser_of_a_race_that_outlives_is_not_called_off(kit: Kit) {
    let mill = kit.open_still().await;
    let code = |cx: Context| async move {
        let lasting = cx.child(Echo::new("lasting")).outlives();
        cx.race((cx.child(Echo::new("plain")), lasting, cx.signal::<()>("go"))).await?;
        Ok("went".to_owned())
    };
    let id = enqueue(&mill).await;
    drain(parent(&mill, code)).await.unwrap();
    mill.signal(id, Signal::new("go", &())).await.unwrap();
    drain(parent(&mill, code)).await.unwrap();
    assert_eq!(output(&mill, id).await, "went");
    let all = children(&mill).await;
    assert_eq!(stand(&all), [("lasting", State::Ready), ("plain", State::Cancelled)]);
}

async fn waits_later(cx: Context) -> Result<String, Fail> {
    let child = cx.child(Echo::new("report")).start().await?;
    cx.step("meanwhile").run(|_| async { Ok(()) }).await?;
    let early = match cx.race((child.result(), cx.sleep(DAY))).await? {
        First::A(text) => text,
        First::B(()) => "not yet".to_owned(),
    };
    let late = child.result().await?;
    let again = cx.result_of::<Echo>(child.id()).await?;
    Ok(format!("{early}, {late}, {again}"))
}

async fn a_child_is_started_and_waited_for_later_and_again(kit: Kit) {
    let mill = kit.open_still().await;
    let id = enqueue(&mill).await;
    drain(parent(&mill, waits_later)).await.unwrap();
    assert_eq!(stand(&children(&mill).await), [("report", State::Ready)]);
    kit.advance(DAY);
    drain(parent(&mill, waits_later)).await.unwrap();
    assert_eq!(stand(&children(&mill).await), [("report", State::Ready)], "it was only left");
    drain(echoing(parent(&mill, waits_later))).await.unwrap();
    assert_eq!(output(&mill, id).await, "not yet, report, report");
    let soon = enqueue(&mill).await;
    drain(echoing(parent(&mill, waits_later))).await.unwrap();
    assert_eq!(output(&mill, soon).await, "report, report, report");
}

async fn a_child_that_was_started_is_called_off_with_its_run(kit: Kit) {
    let mill = kit.open_still().await;
    let code = |cx: Context| async move {
        cx.scope("inside", |cx| async move {
            cx.child(Echo::new("plain")).start().await?;
            Ok(())
        })
        .await?;
        cx.child(Echo::new("lasting")).outlives().start().await?;
        Err(Fail::permanent("it fails"))
    };
    let id = enqueue(&mill).await;
    drain(parent(&mill, code)).await.unwrap();
    assert_eq!(mill.job(id).await.unwrap().unwrap().state, State::Dead);
    let all = children(&mill).await;
    assert_eq!(stand(&all), [("lasting", State::Ready), ("plain", State::Cancelled)]);
}

async fn children_are_called_off_with_their_run_however_many(kit: Kit) {
    // More than are looked for at once, and one page of them not full.
    const CHILDREN: usize = 1001;
    let mill = kit.open_still().await;
    let code = |cx: Context| async move {
        cx.children((0..CHILDREN).map(|number| Echo::new(&number.to_string()))).await?;
        Ok(String::new())
    };
    let id = enqueue(&mill).await;
    drain(parent(&mill, code)).await.unwrap();
    mill.cancel_run(id, "ann", "").await.unwrap();
    tend(&mill).await.unwrap();
    let of = |state| JobFilter { state, limit: 1000, ..JobFilter::default() };
    assert!(mill.jobs(&of(Some(State::Ready))).await.unwrap().is_empty());
    assert_eq!(mill.jobs(&of(Some(State::Cancelled))).await.unwrap().len(), 1000);
}

async fn a_child_is_called_off_by_who_cannot_read_it(kit: Kit) {
    let open = async |keys: Keyring| {
        let clock = Clock::Manual(kit.clock.clone());
        Tidemill::builder().keys(keys).clock(clock).open(&kit.url).await.unwrap()
    };
    let key = "old AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
    let keyed = open(Keyring::parse(key).unwrap()).await;
    let plain = open(Keyring::default()).await;
    let code = |cx: Context| async move { cx.child(Echo::new("secret")).await };
    let id = enqueue(&keyed).await;
    drain(parent(&keyed, code)).await.unwrap();
    assert_eq!(stand(&children(&keyed).await), [("secret", State::Ready)]);
    keyed.cancel_run(id, "ann", "").await.unwrap();
    // The first takes the debt away.
    for mill in [&plain, &keyed] {
        tend(mill).await.unwrap();
    }
    assert_eq!(stand(&children(&keyed).await), [("secret", State::Cancelled)]);
    for mill in [plain, keyed] {
        mill.close().await;
    }
}

async fn a_fork_starts_the_children_anew_that_nobody_had_waited_for(kit: Kit) {
    let mill = kit.open_still().await;
    let code = |cx: Context| async move {
        let child = cx.child(Quiet).start().await?;
        cx.step("a").run(|_| async { Ok(()) }).await?;
        cx.step("b").run(|_| async { Ok(()) }).await?;
        child.result().await?;
        Ok(child.id().to_string())
    };
    let work = || drain(parent(&mill, code).handle(|_: Quiet, _cx| async { Ok(()) }));
    let id = enqueue(&mill).await;
    work().await.unwrap();
    let fork = mill.fork_run(id, "b", ForkAs::Beside, "ann", "").await.unwrap();
    work().await.unwrap();
    assert_ne!(output(&mill, id).await, output(&mill, fork).await);
}

async fn a_run_that_continues_anew_leaves_those_that_outlive_it(kit: Kit) {
    let mill = kit.open_still().await;
    let worker = || {
        mill.worker().handle(|job: Flowing, cx: Context| async move {
            if job.text == "x" {
                cx.child(Echo::new("plain")).start().await?;
                cx.child(Echo::new("lasting")).outlives().start().await?;
                return cx.continue_as_new(Flowing { text: "y".to_owned() }).await;
            }
            Ok(job.text)
        })
    };
    let id = enqueue(&mill).await;
    drain(worker()).await.unwrap();
    assert_eq!(output(&mill, id).await, "y");
    let all = children(&mill).await;
    assert_eq!(stand(&all), [("lasting", State::Ready), ("plain", State::Cancelled)]);
}

async fn whom_a_run_has_not_started_it_cannot_wait_for(kit: Kit) {
    let mill = kit.open_still().await;
    let stranger = mill.enqueue(Echo::new("stranger")).await.unwrap().id();
    let code = move |cx: Context| async move { cx.result_of::<Echo>(stranger).await };
    let id = enqueue(&mill).await;
    drain(parent(&mill, code)).await.unwrap();
    let view = mill.job(id).await.unwrap().unwrap();
    assert_eq!(view.state, State::Dead);
    assert!(view.error.unwrap().contains("has started no child"));
}

async fn a_run_with_a_started_child_dies_at_any_write_and_comes_to_the_same(kit: Kit) {
    let mill = kit.open_still().await;
    let worker = || echoing(parent(&mill, waits_later));
    let start = async || Ok(mill.enqueue(Flowing { text: "x".to_owned() }).await?.id());
    let runs = crash_at_every_write(&mill, &kit.clock, worker, start).await.unwrap();
    assert!(runs.len() > 4, "{}", runs.len());
    let started = children(&mill).await.len();
    assert_eq!(started, runs.len().min(50), "each has one child, whatever happened");
    for run in runs {
        let output = run.output.unwrap();
        let told: String = output.read().unwrap();
        assert!(told.ends_with("report, report"), "{told}");
    }
}
