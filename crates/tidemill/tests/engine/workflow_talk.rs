//! Workflows that answer, go on for ever, keep objects, and those that talk behind their context's back.

use std::time::Duration;

use tidemill::testing::{crash_at_every_write, drain, skip_time};
use tidemill::{
    Context, Enqueue, Fail, First, Job, JobId, ObjectKey, Payload, Settings, Signal, State,
    Tidemill, Worker,
};

use super::kit::{Echo, Kit, SOON};
use super::workflow::DAY;

over_both_stores!(
    an_update_is_answered_once_and_the_answer_kept,
    an_update_that_cannot_be_read_or_checked_is_refused_and_the_run_goes_on,
    an_update_to_a_run_that_ends_without_an_answer_is_an_error,
    a_run_that_continues_anew_stays_the_same_job_with_an_empty_journal,
    a_run_that_continues_anew_dies_at_any_write_and_loses_nothing,
    a_run_that_continues_anew_right_after_a_signal_waits_for_the_next,
    undos_before_a_pivot_forbid_to_continue_anew,
    jobs_of_an_object_run_one_at_a_time_in_order_and_keep_its_state,
    a_job_that_fails_leaves_its_object_as_it_was,
    the_same_key_of_two_tenants_is_two_objects,
    durable_calls_of_another_task_park_the_run,
    large_results_stand_beside_the_journal_and_keep_their_place,
);

async fn output(mill: &Tidemill, id: JobId) -> String {
    let view = mill.job(id).await.unwrap().unwrap();
    let output = view.output.unwrap_or_else(|| panic!("it is {:?}: {:?}", view.state, view.error));
    output.as_str().to_owned()
}

/// Adds what it is told to until it is told to stop, with 0.
fn adder(mill: &Tidemill) -> Worker {
    mill.worker().handle_raw("adder", Settings::default(), |_, cx: Context| async move {
        let mut sum = 0;
        loop {
            let more = cx.update_if("add", |more: &i64| match more {
                ..0 => Err("it must not be negative".to_owned()),
                _ => Ok(()),
            });
            let more = more.await?;
            let value = more.value;
            sum += value;
            more.answer(&sum).await?;
            if value == 0 {
                return Ok(Payload::trusted(sum.to_string()));
            }
        }
    })
}

async fn start(mill: &Tidemill, kind: &str) -> JobId {
    mill.enqueue(Enqueue::raw(kind, "null")).await.unwrap().id()
}

async fn an_update_is_answered_once_and_the_answer_kept(kit: Kit) {
    let mill = kit.open().await;
    let id = start(&mill, "adder").await;
    let running = adder(&mill).start().await.unwrap();
    let add = |n: i64| Signal::new("add", &n);
    let first: i64 = mill.update(id, add(3).id("one"), SOON).await.unwrap();
    let second: i64 = mill.update(id, add(4), SOON).await.unwrap();
    let again: i64 = mill.update(id, add(3).id("one"), SOON).await.unwrap();
    assert_eq!((first, second, again), (3, 7, 3));
    let last: i64 = mill.update(id, add(0).id("last"), SOON).await.unwrap();
    mill.wait(id, SOON).await.unwrap();
    assert_eq!((last, output(&mill, id).await.as_str()), (7, "7"));
    // Whoever did not hear the answer asks again, also when the run has finished since.
    let asked_again: i64 = mill.update(id, add(0).id("last"), SOON).await.unwrap();
    assert_eq!(asked_again, 7);
    running.stop().await;
}

async fn an_update_that_cannot_be_read_or_checked_is_refused_and_the_run_goes_on(kit: Kit) {
    let mill = kit.open().await;
    let id = start(&mill, "adder").await;
    let running = adder(&mill).start().await.unwrap();
    for (signal, why) in [
        (Signal::new("add", &-1), "it must not be negative"),
        (Signal::new("add", "five"), "it cannot be read"),
    ] {
        let error = mill.update::<i64>(id, signal, SOON).await.unwrap_err();
        assert_eq!(error.code(), "update_refused");
        assert!(error.to_string().contains(why), "{error}");
    }
    let sum: i64 = mill.update(id, Signal::new("add", &5), SOON).await.unwrap();
    assert_eq!(sum, 5);
    running.stop().await;
}

async fn an_update_to_a_run_that_ends_without_an_answer_is_an_error(kit: Kit) {
    let mill = kit.open().await;
    let id = start(&mill, "deaf").await;
    let asking = mill.clone();
    let asked = tokio::spawn(async move {
        asking.update::<i64>(id, Signal::new("add", &1).id("x"), SOON).await.unwrap_err()
    });
    let worker = mill.worker().handle_raw("deaf", Settings::default(), |_, cx| async move {
        let _: i64 = cx.signal("add").await?;
        Ok(Payload::null())
    });
    let running = worker.start().await.unwrap();
    assert_eq!(asked.await.unwrap().code(), "run_finished");
    let late = mill.update::<i64>(id, Signal::new("add", &1), SOON).await.unwrap_err();
    assert_eq!(late.code(), "run_finished");
    running.stop().await;
    let id = start(&mill, "adder").await;
    let short = Duration::from_millis(1);
    let error = mill.update::<i64>(id, Signal::new("add", &1), short).await.unwrap_err();
    assert_eq!(error.code(), "wait_timeout");
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Rounds {
    left: u32,
    heard: Vec<String>,
}

impl Job for Rounds {
    const KIND: &'static str = "rounds";
    type Output = Vec<String>;
}

/// Hears one word per day, each in a turn of its own.
async fn rounds(job: Rounds, cx: Context) -> Result<Vec<String>, Fail> {
    let Rounds { left, mut heard } = job;
    let word: String = cx.signal("word").await?;
    cx.sleep(DAY).await?;
    heard.push(cx.step("keep").run(|_| async { Ok(format!("{word}{left}")) }).await?);
    if left == 1 {
        return Ok(heard);
    }
    cx.continue_as_new(Rounds { left: left - 1, heard }).await
}

async fn a_run_that_continues_anew_stays_the_same_job_with_an_empty_journal(kit: Kit) {
    let mill = kit.open_still().await;
    let id = mill.enqueue(Rounds { left: 3, heard: Vec::new() }).await.unwrap().id();
    let word = |word: &str| Signal::new("word", word);
    // The second one of an id is not sent again, also when the first was taken in an earlier turn.
    mill.signal(id, word("a").id("1")).await.unwrap();
    mill.signal(id, word("b")).await.unwrap();
    let worker = || mill.worker().handle(rounds);
    drain(worker()).await.unwrap();
    kit.advance(DAY);
    drain(worker()).await.unwrap();
    mill.signal(id, word("a").id("1")).await.unwrap();
    let keys: Vec<String> =
        mill.journal(id).await.unwrap().iter().map(|r| r.entry.key().to_owned()).collect();
    assert_eq!(keys, ["word", "sleep"], "only what the second turn did");
    mill.signal(id, word("c")).await.unwrap();
    skip_time(&mill, &kit.clock, worker).await.unwrap();
    assert_eq!(output(&mill, id).await, r#"["a3","b2","c1"]"#);
}

async fn a_run_that_continues_anew_dies_at_any_write_and_loses_nothing(kit: Kit) {
    let mill = kit.open_still().await;
    let start = async || {
        let id = mill.enqueue(Rounds { left: 3, heard: Vec::new() }).await?.id();
        for word in ["a", "b", "c"] {
            mill.signal(id, Signal::new("word", word)).await?;
        }
        Ok(id)
    };
    let worker = || mill.worker().handle(rounds);
    let views = crash_at_every_write(&mill, &kit.clock, worker, start).await.unwrap();
    assert!(views.len() > 4, "only {} crashes", views.len());
    for view in views {
        assert_eq!(view.output.unwrap().as_str(), r#"["a3","b2","c1"]"#);
    }
}

async fn a_run_that_continues_anew_right_after_a_signal_waits_for_the_next(kit: Kit) {
    let mill = kit.open_still().await;
    let worker = || {
        mill.worker().handle(|job: Rounds, cx: Context| async move {
            let Rounds { left, mut heard } = job;
            heard.push(cx.signal("word").await?);
            if left == 1 {
                return Ok(heard);
            }
            cx.continue_as_new(Rounds { left: left - 1, heard }).await
        })
    };
    let id = mill.enqueue(Rounds { left: 3, heard: Vec::new() }).await.unwrap().id();
    for (turn, word) in ["a", "b", "c"].into_iter().enumerate() {
        mill.signal(id, Signal::new("word", word)).await.unwrap();
        let attempts = drain(worker()).await.unwrap().attempts;
        // It takes the word and continues, then it waits; in the last turn it ends.
        assert_eq!(attempts, if turn == 2 { 1 } else { 2 }, "turn {turn}");
        assert!(mill.store().mail(id, 0).await.unwrap().len() <= 2, "rows do not gather");
    }
    assert_eq!(output(&mill, id).await, r#"["a","b","c"]"#);
}

async fn undos_before_a_pivot_forbid_to_continue_anew(kit: Kit) {
    let mill = kit.open_still().await;
    for with_pivot in [false, true] {
        let worker = mill.worker().handle(move |job: Rounds, cx: Context| async move {
            let undo = Enqueue::raw("undo", "null");
            cx.step("book").undo(undo).run(|_| async { Ok(()) }).await?;
            if with_pivot {
                cx.pivot().await?;
            }
            if job.left == 0 {
                return Ok(Vec::new());
            }
            cx.continue_as_new(Rounds { left: 0, heard: Vec::new() }).await
        });
        let id = mill.enqueue(Rounds { left: 1, heard: Vec::new() }).await.unwrap().id();
        drain(worker).await.unwrap();
        let parked = mill.run(id).await.unwrap().unwrap().parked;
        assert_eq!(parked.is_none(), with_pivot, "{parked:?}");
        let state = mill.job(id).await.unwrap().unwrap().state;
        assert_eq!(state == State::Done, with_pivot);
    }
}

/// Adds a word to the object `book`, under the job's key; `fail` fails after it has.
fn writer(mill: &Tidemill) -> Worker {
    mill.worker().queues(["book"]).handle(|job: Echo, cx: Context| async move {
        let book = cx.object::<Vec<String>>()?;
        let mut words = book.get().await?.unwrap_or_default();
        words.push(job.text.clone());
        book.set(&words)?;
        assert_eq!(book.get().await?, Some(words.clone()));
        if job.text == "nap" {
            cx.sleep(DAY).await?;
        }
        match job.text.as_str() {
            "fail" => return Err(Fail::permanent("it failed")),
            "clear" => book.clear(),
            _ => {}
        }
        Ok(words.join(" "))
    })
}

async fn jobs_of_an_object_run_one_at_a_time_in_order_and_keep_its_state(kit: Kit) {
    let mill = kit.open_still().await;
    let send = async |key: &str, word: &str| {
        mill.enqueue(Enqueue::from(Echo::new(word)).object("book", key)).await.unwrap().id()
    };
    // One that sleeps holds up those behind it, and nobody else.
    send("a", "nap").await;
    let last = send("a", "second").await;
    send("b", "other").await;
    drain(writer(&mill)).await.unwrap();
    let read = async |key: &str| mill.object::<Vec<String>>("book", key).await.unwrap();
    assert_eq!((read("a").await, read("b").await), (None, Some(vec!["other".to_owned()])));
    skip_time(&mill, &kit.clock, || writer(&mill)).await.unwrap();
    assert_eq!(output(&mill, last).await, "\"nap second\"");
    assert_eq!(read("a").await.unwrap(), ["nap", "second"]);
    send("a", "clear").await;
    drain(writer(&mill)).await.unwrap();
    assert_eq!(read("a").await, None);
    let wrong = mill.object::<u64>("book", "b").await.unwrap_err();
    assert_eq!(wrong.code(), "object_unreadable");
}

async fn a_job_that_fails_leaves_its_object_as_it_was(kit: Kit) {
    let mill = kit.open_still().await;
    for word in ["one", "fail", "two"] {
        let job = Enqueue::from(Echo::new(word)).object("book", "a");
        mill.enqueue(job).await.unwrap();
    }
    drain(writer(&mill)).await.unwrap();
    let words: Option<Vec<String>> = mill.object("book", "a").await.unwrap();
    assert_eq!(words.unwrap(), ["one", "two"]);
}

async fn the_same_key_of_two_tenants_is_two_objects(kit: Kit) {
    let mill = kit.open_still().await;
    let send = async |tenant: Option<&str>, word: &str| {
        let job = Enqueue::from(Echo::new(word)).object("book", "a");
        let job = tenant.into_iter().fold(job, Enqueue::tenant);
        mill.enqueue(job).await.unwrap()
    };
    // That of one sleeps, and holds up those behind it; the others do not wait.
    for (tenant, word) in [(Some("acme"), "nap"), (Some("other"), "one"), (None, "mine")] {
        send(tenant, word).await;
        send(tenant, "two").await;
    }
    drain(writer(&mill)).await.unwrap();
    let read = async |tenant: Option<&str>| {
        let key = ObjectKey::new("a").tenant(tenant);
        mill.object::<Vec<String>>("book", key).await.unwrap().map(|words| words.join(" "))
    };
    let words = async || [read(Some("acme")).await, read(Some("other")).await, read(None).await];
    assert_eq!(words().await, [None, Some("one two".to_owned()), Some("mine two".to_owned())]);
    skip_time(&mill, &kit.clock, || writer(&mill)).await.unwrap();
    assert_eq!(read(Some("acme")).await.unwrap(), "nap two");
    send(Some("other"), "clear").await;
    drain(writer(&mill)).await.unwrap();
    assert_eq!(words().await, [Some("nap two".to_owned()), None, Some("mine two".to_owned())]);
}

async fn durable_calls_of_another_task_park_the_run(kit: Kit) {
    let mill = kit.open_still().await;
    let worker =
        mill.worker().handle_raw("astray", Settings::default(), |_, cx: Context| async move {
            let other = cx.clone();
            let spawned =
                tokio::spawn(async move { other.step("a").run(|_| async { Ok(1) }).await });
            spawned.await.map_err(Fail::transient)??;
            Ok(Payload::null())
        });
    let id = start(&mill, "astray").await;
    drain(worker).await.unwrap();
    let parked = mill.run(id).await.unwrap().unwrap().parked.unwrap().to_string();
    assert!(parked.contains("in another task"), "{parked}");
}

/// Five mebibytes would not fit into an entry.
const LARGE: usize = 5 * 1024 * 1024;

async fn large_results_stand_beside_the_journal_and_keep_their_place(kit: Kit) {
    let mill = kit.open_still().await;
    let worker = || {
        mill.worker().handle_raw("large", Settings::default(), |_, cx: Context| async move {
            let large = cx.step("large").run(|_| async { Ok("x".repeat(LARGE)) });
            // It ended first, so it wins again, although it takes longer to read.
            let small = async {
                let _: bool = cx.signal("never").await?;
                Ok::<_, Fail>(())
            };
            let First::A(large) = cx.race((large, small)).await? else {
                return Err(Fail::permanent("the other one won"));
            };
            let scoped: String = cx.scope("scope", |_| async { Ok("y".repeat(LARGE)) }).await?;
            let other = cx.step("other").run(|_| async { Ok(7) });
            let read = cx.step("none").run(|_| async { Ok(0) });
            let (other, none) = cx.join((other, read)).await?;
            cx.sleep(DAY).await?;
            Ok(Payload::trusted(format!("{}", large.len() + scoped.len() + other + none)))
        })
    };
    let id = start(&mill, "large").await;
    drain(worker()).await.unwrap();
    mill.signal(id, Signal::new("never", &true)).await.unwrap();
    skip_time(&mill, &kit.clock, worker).await.unwrap();
    assert_eq!(mill.run(id).await.unwrap().unwrap().parked, None);
    assert_eq!(output(&mill, id).await, (2 * LARGE + 7).to_string());
    let journal = mill.store().journal(id).await.unwrap().0;
    assert!(journal.iter().all(|row| row.entry.len() < 200), "{journal:?}");
    let history = mill.history(id).await.unwrap();
    assert!(serde_json::to_string(&history).unwrap().len() > 2 * LARGE);
}
