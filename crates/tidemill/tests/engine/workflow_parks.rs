//! Runs that are parked, and what lets them go on.

use tidemill::core::stream::Chunk;
use tidemill::core::webhook::{Event as Told, Webhook};
use tidemill::core::why::Gate;
use tidemill::core::workflow::{ActWord, Ending, ParkCode};
use tidemill::testing::drain;
use tidemill::{
    Backoff, Context, Enqueue, Event, Fail, Job, JobId, Payload, Retry, Said, Settings, Signal,
    State, Tidemill, Worker,
};

use super::kit::{Kit, SOON};
use super::workflow::DAY;

over_both_stores!(
    a_look_at_a_journal_that_cannot_be_read_parks_the_run_and_changes_nothing,
    a_run_whose_journal_is_full_goes_on_with_a_larger_limit,
    each_way_to_be_parked_has_its_code,
    a_first_step_that_cannot_be_parks_the_run,
    a_value_that_json_has_no_word_for_parks_the_run_at_once,
    what_cannot_be_written_parks_the_run_and_nothing_is_undone,
    who_follows_a_run_hears_that_it_is_parked_and_goes_on,
);

fn worker<F, Fut>(mill: &Tidemill, code: F) -> Worker
where
    F: Fn(Context) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<u32, Fail>> + Send + 'static,
{
    mill.worker().handle_raw("parks", Settings::default(), move |_, cx| {
        let ended = code(cx);
        async move { Ok(Payload::trusted(ended.await?.to_string())) }
    })
}

async fn enqueue(mill: &Tidemill) -> JobId {
    mill.enqueue(Enqueue::raw("parks", "null")).await.unwrap().id()
}

async fn parked(mill: &Tidemill, id: JobId) -> String {
    let (run, view) = (mill.run(id).await.unwrap().unwrap(), mill.job(id).await.unwrap().unwrap());
    assert_eq!(view.state, State::Blocked, "{:?}", view.error);
    let parked = run.parked.unwrap_or_else(|| panic!("it is not parked"));
    format!("{}: {parked}", parked.code.code())
}

async fn a_look_at_a_journal_that_cannot_be_read_parks_the_run_and_changes_nothing(kit: Kit) {
    let mill = kit.open_still().await;
    let steps = |cx: Context| async move {
        let n = cx.step("a").run(|_| async { Ok(7) }).await?;
        let () = cx.signal("go").await?;
        Ok(n)
    };
    // Code that has no durable call at all: the journal is looked at when it has ended.
    let ends = |_: Context| async { Ok(1) };
    let fails = |_: Context| async { Err(Fail::permanent("no")) };
    let id = enqueue(&mill).await;
    drain(worker(&mill, steps)).await.unwrap();
    let journal = mill.store().journal(id).await.unwrap().0;
    kit.execute(r#"update tidemill_journal set entry = '{"unheard":{"key":"a"}}'"#).await;
    mill.signal(id, Signal::new("go", &())).await.unwrap();
    for worker in [worker(&mill, ends), worker(&mill, fails), worker(&mill, steps)] {
        drain(worker).await.unwrap();
        let why = parked(&mill, id).await;
        assert!(why.starts_with("parked_journal_unreadable: its journal cannot be read"), "{why}");
        assert!(mill.history(id).await.is_err(), "nor can it be exported");
        mill.resume_run(id, "ann", "").await.unwrap();
    }
    // What was there is there: put right, it goes on.
    let entry = &journal[0].entry;
    kit.execute(&format!("update tidemill_journal set entry = '{entry}' where number = 0")).await;
    drain(worker(&mill, steps)).await.unwrap();
    assert_eq!(mill.job(id).await.unwrap().unwrap().output.unwrap().as_str(), "7");
}

/// Fails once, and is tried again tomorrow.
async fn retries(cx: Context) -> Result<u32, Fail> {
    let retry = Retry::attempts(9).backoff(Backoff::Fixed { delay_ms: 86_400_000 });
    let body = |s: tidemill::StepContext| async move {
        if s.attempt() < 2 { Err(Fail::transient("no")) } else { Ok(7) }
    };
    cx.step("a").retry(retry).run(body).await
}

async fn a_run_whose_journal_is_full_goes_on_with_a_larger_limit(kit: Kit) {
    let mill = kit.open_still().await;
    let id = enqueue(&mill).await;
    drain(worker(&mill, retries)).await.unwrap();
    // As if it had failed a hundred thousand times more.
    kit.execute(
        "insert into tidemill_journal (job, number, at, entry) \
         with recursive n(n) as (select 1 union all select n + 1 from n where n < 100000) \
         select j.job, n.n, j.at, j.entry from n, tidemill_journal j where j.number = 0",
    )
    .await;
    kit.advance(DAY);
    for _ in 0..2 {
        drain(worker(&mill, retries)).await.unwrap();
        let why = parked(&mill, id).await;
        assert!(why.starts_with("parked_journal_full: its journal has more than 100000"), "{why}");
        assert!(why.contains("resume it with a larger limit"), "{why}");
        mill.resume_run(id, "ann", "").await.unwrap();
    }
    for wrong in [0, 99_999, 1_000_001] {
        let error = mill.resume_run_with_journal(id, wrong, "ann", "").await.unwrap_err();
        assert_eq!(error.code(), "journal_limit_invalid");
    }
    drain(worker(&mill, retries)).await.unwrap();
    let fork = mill.fork_run(id, "a", tidemill::ForkAs::Beside, "ann", "").await.unwrap();
    assert_eq!(mill.run(fork).await.unwrap().unwrap().journal_entries_max, None);
    mill.resume_run_with_journal(id, 200_000, "ann", "it is nearly through").await.unwrap();
    assert_eq!(mill.run(id).await.unwrap().unwrap().journal_entries_max, Some(200_000));
    let fork = mill.fork_run(id, "a", tidemill::ForkAs::Beside, "ann", "").await.unwrap();
    assert_eq!(mill.run(fork).await.unwrap().unwrap().journal_entries_max, Some(200_000));
    drain(worker(&mill, retries)).await.unwrap();
    assert_eq!(mill.job(id).await.unwrap().unwrap().output.unwrap().as_str(), "7");
    let acts = mill.run_acts(id).await.unwrap();
    let act = acts.iter().find(|act| act.became.is_some()).unwrap();
    let allowed = Some(Ending::Ok(Payload::trusted("200000".to_owned())));
    assert_eq!((act.act, &act.became), (ActWord::Resumed, &allowed));
}

async fn who_follows_a_run_hears_that_it_is_parked_and_goes_on(kit: Kit) {
    let mill = kit.open_still().await;
    let only = Webhook { events: vec![Told::Parked], queues: vec!["*".into()], ..hook() };
    mill.webhooks().set("parked", only).await.unwrap();
    let code = |cx: Context| async move {
        cx.log("begins").await?;
        cx.signal("go").await
    };
    let id = enqueue(&mill).await;
    let mut stream = mill.stream(id, 0).await.unwrap();
    mill.signal(id, Signal::new("go", "a word")).await.unwrap();
    drain(worker(&mill, code)).await.unwrap();
    let why = parked(&mill, id).await;
    mill.pause_run(id, "ann", "").await.unwrap();
    mill.pause_run(id, "ann", "").await.unwrap();
    mill.edit_step(id, "go", &7, "ann", "").await.unwrap();
    mill.resume_run(id, "ann", "").await.unwrap();
    drain(worker(&mill, code)).await.unwrap();
    let mut heard = Vec::new();
    while let Some(event) = stream.next().await.unwrap() {
        heard.push(match event {
            Event::Chunk(Chunk { said: Said::Parked { code, why }, number, .. }) => {
                format!("{} {}: {why}", number.unwrap(), code.code())
            }
            Event::Chunk(chunk) => format!("{} {}", chunk.number.unwrap(), chunk.said.word()),
            Event::End(end) => end.state.word().to_owned(),
        });
    }
    let parked = format!("2 {why}");
    assert_eq!(heard, ["1 log", &parked, "3 paused", "4 resumed", "5 log", "done"]);
    let (told, _) = mill.webhooks().deliveries("parked", None, None, 9).await.unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].job, Some(id.to_string()));
}

fn hook() -> Webhook {
    Webhook::new("https://example.com/in")
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Other;

impl Job for Other {
    const KIND: &'static str = "other";
    type Output = u32;
}

/// What cannot be written, as long as that is asked for.
struct Unwritten(bool);

impl serde::Serialize for Unwritten {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 {
            Err(serde::ser::Error::custom("not to be written"))
        } else {
            serializer.serialize_u32(7)
        }
    }
}

impl<'de> serde::Deserialize<'de> for Unwritten {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u32::deserialize(deserializer).map(|_| Self(false))
    }
}

async fn a_first_step_that_cannot_be_parks_the_run(kit: Kit) {
    let mill = kit.open_still().await;
    let bad_input = |cx: Context| async move {
        cx.step("a").input(&Unwritten(true)).run(|_| async { Ok(1) }).await
    };
    let bad_undo = |cx: Context| async move {
        cx.step("a").undo(Enqueue::raw("undo", "no JSON")).run(|_| async { Ok(1) }).await
    };
    let good = |cx: Context| async move { cx.step("a").run(|_| async { Ok(1) }).await };
    for worker_of in [worker(&mill, bad_input), worker(&mill, bad_undo)] {
        let id = enqueue(&mill).await;
        tokio::time::timeout(SOON, drain(worker_of)).await.unwrap().unwrap();
        let why = parked(&mill, id).await;
        assert!(why.starts_with("parked_step_invalid: the step \"a\": its "), "{why}");
        mill.resume_run(id, "ann", "").await.unwrap();
        drain(worker(&mill, good)).await.unwrap();
        assert_eq!(mill.job(id).await.unwrap().unwrap().output.unwrap().as_str(), "1");
    }
}

async fn a_value_that_json_has_no_word_for_parks_the_run_at_once(kit: Kit) {
    let mill = kit.open_still().await;
    let code = |number: f64| {
        move |cx: Context| async move {
            let nothing = cx.step("nothing").run(|_| async { Ok(None::<f64>) }).await?;
            let some = cx.step("some").run(|_| async { Ok(number) }).await?;
            Ok(some as u32 + u32::from(nothing.is_some()))
        }
    };
    let id = enqueue(&mill).await;
    drain(worker(&mill, code(f64::NAN))).await.unwrap();
    let why = parked(&mill, id).await;
    assert!(why.starts_with("parked_value_refused: what \"some\" returned"), "{why}");
    mill.resume_run(id, "ann", "").await.unwrap();
    drain(worker(&mill, code(7.0))).await.unwrap();
    assert_eq!(mill.job(id).await.unwrap().unwrap().output.unwrap().as_str(), "7");
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Unkept {
    way: String,
}

impl Job for Unkept {
    const KIND: &'static str = "unkept";
    type Output = Unwritten;
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Given {
    text: String,
}

impl Job for Given {
    const KIND: &'static str = "given";
    type Output = Unwritten;
}

/// What no database can hold, as long as that is asked for.
fn given(is_bad: bool) -> String {
    if is_bad { "a\0b".to_owned() } else { "ab".to_owned() }
}

async fn what_cannot_be_written_parks_the_run_and_nothing_is_undone(kit: Kit) {
    let mill = kit.open_still().await;
    let worker = |is_bad: bool| {
        mill.worker()
            .handle(move |job: Unkept, cx: Context| async move {
                if job.way == "plain" {
                    return Ok(Unwritten(is_bad));
                }
                let undo = Enqueue::raw("undo", "1");
                cx.step("a").undo(undo).run(|_| async { Ok(1) }).await?;
                match job.way.as_str() {
                    "state" => cx.set_state(&Unwritten(is_bad))?,
                    "answer" => {
                        let update = cx.update::<u32>("ask").await?;
                        update.answer(&Unwritten(is_bad)).await?;
                    }
                    "object" => cx.object::<Unwritten>()?.set(&Unwritten(is_bad))?,
                    "child" => return cx.child(Given { text: given(is_bad) }).await,
                    "children" => {
                        let mut all = cx.children([Given { text: given(is_bad) }]).await?;
                        return all.remove(0);
                    }
                    "start" => {
                        let child = cx.child(Given { text: given(is_bad) }).start().await?;
                        return child.result().await;
                    }
                    "nobody" => drop(cx.start(Given { text: given(is_bad) }).await?),
                    _ => return Ok(Unwritten(is_bad)),
                }
                Ok(Unwritten(false))
            })
            .handle(|_: Given, _cx| async { Ok(Unwritten(false)) })
    };
    let ways = [
        ("output", "the output"),
        ("state", "its state"),
        ("answer", "the answer"),
        ("object", "the object \"own\""),
        ("child", "what a child is given"),
        ("children", "what a child is given"),
        ("start", "what a child is given"),
        ("nobody", "what a child is given"),
    ];
    for (way, what) in ways {
        let unkept = Enqueue::from(Unkept { way: way.to_owned() }).object("default", "own");
        let id = mill.enqueue(unkept).await.unwrap().id();
        mill.signal(id, Signal::new("ask", &1)).await.unwrap();
        drain(worker(true)).await.unwrap();
        let why = parked(&mill, id).await;
        assert!(why.starts_with(&format!("parked_value_refused: {what}")), "{why}");
        mill.resume_run(id, "ann", "").await.unwrap();
        drain(worker(false)).await.unwrap();
        let view = mill.job(id).await.unwrap().unwrap();
        assert_eq!(view.output.unwrap().as_str(), "7", "{way}");
    }
    // A job that is no run has nothing to go on from.
    let id = mill.enqueue(Unkept { way: "plain".to_owned() }).await.unwrap().id();
    drain(worker(true)).await.unwrap();
    assert_eq!(mill.job(id).await.unwrap().unwrap().state, State::Dead);
}

/// Goes one of the ways to be parked.
async fn parks(way: ParkCode, cx: Context) -> Result<u32, Fail> {
    match way {
        ParkCode::Misplaced => {
            let inner = cx.clone();
            let body = |_| async { inner.step("b").run(|_| async { Ok(1) }).await };
            cx.step("a").run(body).await
        }
        ParkCode::RenewalRefused => cx.continue_as_new(Other).await,
        ParkCode::SignalUnreadable => cx.signal("go").await,
        ParkCode::StepInvalid => cx.step("a/b").run(|_| async { Ok(1) }).await,
        ParkCode::UndosTooMany => {
            for _ in 0..1001 {
                let undo = Enqueue::raw("undo", "1");
                cx.step("a").undo(undo).run(|_| async { Ok(()) }).await?;
            }
            Ok(1)
        }
        ParkCode::ValueRefused => {
            cx.step("a").run(|_| async { Ok("x".repeat(65 * 1024 * 1024)) }).await?;
            Ok(1)
        }
        ParkCode::ValueUnreadable => {
            cx.step("a").run(|_| async { Ok("text".to_owned()) }).await?;
            cx.sleep(DAY).await?;
            Ok(1)
        }
        _ => cx.step("a").run(|_| async { Ok(1) }).await,
    }
}

async fn each_way_to_be_parked_has_its_code(kit: Kit) {
    let mill = kit.open_still().await;
    for code in ParkCode::ALL {
        let way = move |cx: Context| parks(code, cx);
        let id = enqueue(&mill).await;
        match code {
            // They have tests of their own, or come from workers elsewhere.
            ParkCode::JournalFull
            | ParkCode::JournalUnreadable
            | ParkCode::KeyMissing
            | ParkCode::ByWorker => continue,
            ParkCode::SignalUnreadable => {
                mill.signal(id, Signal::new("go", "a word")).await.unwrap();
            }
            ParkCode::Differs => {
                let before = |cx: Context| async move {
                    cx.step("before").run(|_| async { Ok(()) }).await?;
                    cx.sleep(DAY).await.map(|()| 1)
                };
                drain(worker(&mill, before)).await.unwrap();
                mill.resume_run(id, "ann", "").await.unwrap();
            }
            ParkCode::ValueUnreadable => {
                drain(worker(&mill, way)).await.unwrap();
                mill.edit_step(id, "a", &[1], "ann", "").await.unwrap();
            }
            _ => {}
        }
        drain(worker(&mill, way)).await.unwrap();
        let why = parked(&mill, id).await;
        assert!(why.starts_with(code.code()), "{code:?}: {why}");
        let why = mill.why(id).await.unwrap();
        let told = why.gates.iter().find_map(|gate| match gate {
            Gate::Run { parked, .. } => parked.as_ref(),
            _ => None,
        });
        assert_eq!(told.map(|parked| parked.code), Some(code));
        mill.cancel_run(id, "ann", "").await.unwrap();
    }
}
