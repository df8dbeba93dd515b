//! Encryption at rest: nothing that was given stands in the database, everything comes back as it was, keys are
//! changed while nothing is lost, and what was moved or changed behind its back is refused.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill::store::rusqlite;
use tidemill::store::value::{Place, Spot};
use tidemill::testing::{drain, tend};
use tidemill::{
    Clock, Context, DeadFilter, Enqueue, Event, Fail, Flow, Job, JobId, KeyCount, Keyring,
    ObjectKey, Payload, Progress, Reach, Rotated, RunFilter, Schedule, Settings, Signal, State,
    Tidemill, Undo, Unique, Worker,
};
use tidemill_testkit::eventually::eventually;

use super::kit::{Kit, SOON};

over_both_stores!(
    nothing_that_was_given_stands_in_the_database_and_all_comes_back,
    a_job_whose_key_is_missing_waits_and_runs_when_it_is_brought,
    a_run_whose_key_is_missing_is_parked_and_goes_on_when_it_is_resumed_with_it,
    a_run_whose_key_is_missing_goes_on_when_a_worker_comes_that_has_it,
    what_was_written_before_stays_readable,
    keys_are_changed_through_a_crash_and_the_old_one_is_not_needed_any_more,
    a_walk_in_small_parts_comes_to_the_same_as_one_at_once,
    values_that_were_swapped_or_forged_are_refused,
    what_is_encrypted_is_not_searched,
    an_edit_knows_the_job_that_it_was_made_of,
    an_outcome_that_looks_encrypted_is_dead_and_holds_up_nobody,
);

/// Stands in everything that is given.
const MARKER: &str = "pssst-4711";
const HOUR: Duration = Duration::from_hours(1);

const OLD: &str = "old AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
const NEW: &str = "new HxwdHhsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA";
const SECRET: &str = "unique AAAAHhsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA";

fn keys(lines: &[&str]) -> Keyring {
    Keyring::parse(&lines.join("\n")).unwrap()
}

async fn open(kit: &Kit, lines: &[&str]) -> Tidemill {
    let keys = if lines.is_empty() { Keyring::default() } else { keys(lines) };
    let clock = Clock::Manual(kit.clock.clone());
    Tidemill::builder().keys(keys).clock(clock).open(&kit.url).await.unwrap()
}

/// Everything that is in the database, as text.
async fn dump(kit: &Kit) -> String {
    if let Some(file) = kit.url.strip_prefix("sqlite:") {
        let folder = Path::new(file).parent().unwrap();
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let texts =
            files.map(|file| String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned());
        return texts.collect();
    }
    let client = kit.client().await;
    let tables = "select tablename::text from pg_tables where schemaname = 'tidemill'";
    let mut all = String::new();
    for table in client.query(tables, &[]).await.unwrap() {
        let rows = format!("select t::text from tidemill.{} t", table.get::<_, String>(0));
        for row in client.query(&rows, &[]).await.unwrap() {
            all.push_str(row.get(0));
        }
    }
    all
}

/// A word that must not be seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Word(String);

impl Job for Word {
    const KIND: &'static str = "word";
    type Output = Word;
}

/// The same for another handler.
fn raw(kind: &str, about: &str) -> Enqueue {
    Enqueue::raw(kind, serde_json::to_string(&word(about)).unwrap())
}

fn word(about: &str) -> Word {
    Word(format!("{MARKER} {about}"))
}

/// A run with everything in it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Story(String);

impl Job for Story {
    const KIND: &'static str = "story";
    type Output = Vec<String>;
}

async fn story(job: Story, cx: Context) -> Result<Vec<String>, Fail> {
    if job.0 == "anew" {
        return cx.continue_as_new(Story(format!("{MARKER} again"))).await;
    }
    let short = cx.step("short").run(|_| async { Ok(word("short").0) }).await?;
    let long = cx.step("long").run(|_| async { Ok(format!("{}{}", MARKER, "x".repeat(300_000))) });
    let long = long.await?;
    cx.set_state(&word("state"))?;
    let told: String = cx.signal("tell").await?;
    let asked = cx.update::<String>("ask").await?;
    let question = asked.value.clone();
    asked.answer(&word("answer")).await?;
    let child = cx.child(word("child")).await?.0;
    Ok(vec![job.0, short, long[..MARKER.len()].to_owned(), told, question, child])
}

#[derive(Serialize, Deserialize)]
struct TakeBack(Undo<Word>);

impl Job for TakeBack {
    const KIND: &'static str = "take_back";
    type Output = ();
}

fn worker(mill: &Tidemill) -> Worker {
    mill.worker()
        .queues(["default", "book"])
        .handle(|word: Word, _| async move {
            if word.0.ends_with("fails") { Err(Fail::permanent("it fails")) } else { Ok(word) }
        })
        .handle(story)
        .handle(|TakeBack(undo): TakeBack, _| async move {
            assert!(undo.payload.0.starts_with(MARKER));
            Ok(())
        })
        .handle_raw("keep", Settings::default(), |payload: Payload, cx: Context| async move {
            cx.object::<Payload>()?.set(&payload)?;
            Ok(payload)
        })
        .handle_raw("speak", Settings::default(), |payload: Payload, cx: Context| async move {
            cx.text(word("text").0).await.map_err(Fail::transient)?;
            cx.log(word("log").0).await.map_err(Fail::transient)?;
            let progress = Progress::of(1, 2).message(word("progress").0).tool(MARKER);
            cx.progress(progress).await.map_err(Fail::transient)?;
            cx.ephemeral(tidemill::Said::text(word("ephemeral").0))
                .await
                .map_err(Fail::transient)?;
            Ok(payload)
        })
}

async fn output(mill: &Tidemill, id: JobId) -> String {
    let view = mill.job(id).await.unwrap().unwrap();
    assert_eq!(view.state, State::Done, "{:?}", view.error);
    view.output.unwrap().as_str().to_owned()
}

/// Does all that there is to do, and answers what came of it.
async fn everything(mill: &Tidemill, kit: &Kit) {
    let send = async |job: Enqueue| mill.enqueue(job).await.unwrap().id();
    let plain = send(word("plain").into()).await;
    let keyed = Enqueue::from(word("unique")).unique(Unique::by_payload());
    let first = send(keyed.clone()).await;
    assert!(mill.enqueue(keyed).await.unwrap().id() == first, "it is the same");
    let dead = send(word("fails").into()).await;
    let waits = send(Enqueue::from(word("waits")).delay(HOUR)).await;
    let changes = serde_json::from_value(serde_json::json!({ "payload": [word("edited").0] }));
    mill.edit(waits, changes.unwrap(), None).await.unwrap();
    let kept = send(raw("keep", "object").object("book", "a")).await;
    send(raw("keep", "of a tenant").object("book", "a").tenant("acme")).await;
    let spoke = send(Enqueue::raw("speak", format!("\"{MARKER}\""))).await;
    let run = send(Story(format!("{MARKER} run")).into()).await;
    let anew = send(Story("anew".to_owned()).into()).await;

    let judged = Flow::new("judged")
        .step("a", word("a"))
        .step("b", word("b"))
        .after_when("a", "size(output) == 12")
        .step("c", word("c"))
        .after_when("a", "size(output) == 1");
    let judged = mill.start(judged).await.unwrap();
    let saga = Flow::saga("saga")
        .step("done", word("done"))
        .undo(raw("take_back", "undo"))
        .then("fails", word("fails"))
        .nothing_to_undo();
    let saga = mill.start(saga).await.unwrap();
    mill.schedules().set(Schedule::every("often", HOUR, word("scheduled"))).await.unwrap();
    transaction(mill, kit).await;

    drain(worker(mill)).await.unwrap();
    for run in [run, anew] {
        mill.signal(run, Signal::new("tell", &word("told"))).await.unwrap();
        drain(worker(mill)).await.unwrap();
        let working = worker(mill).start().await.unwrap();
        let answer: Word =
            mill.update(run, Signal::new("ask", &word("question")), SOON).await.unwrap();
        assert_eq!(answer.0, word("answer").0);
        mill.wait(run, SOON).await.unwrap();
        working.stop().await;
    }
    assert_eq!(output(mill, plain).await, format!("\"{MARKER} plain\""));
    assert_eq!(mill.result::<Word>(plain, SOON).await.unwrap().0, word("plain").0);
    let told: Vec<String> = serde_json::from_str(&output(mill, run).await).unwrap();
    let expected = ["run", "short", "", "told", "question", "child"];
    assert_eq!(told, expected.map(|word| format!("{MARKER} {word}").trim_end().to_owned()));
    assert!(output(mill, anew).await.contains(&format!("{MARKER} again")));
    assert_eq!(mill.run_state::<Word>(run).await.unwrap().unwrap().0, word("state").0);
    assert_eq!(mill.object::<Word>("book", "a").await.unwrap().unwrap().0, word("object").0);
    let of_tenant = ObjectKey::new("a").tenant("acme");
    let object = mill.object::<Word>("book", of_tenant).await.unwrap().unwrap();
    assert_eq!(object.0, word("of a tenant").0);
    assert!(output(mill, kept).await.contains(MARKER));

    let mut stream = mill.stream(spoke, 0).await.unwrap();
    let mut said = String::new();
    while let Some(event) = stream.next().await.unwrap() {
        if let Event::Chunk(chunk) = event {
            said.push_str(&serde_json::to_string(&chunk.said).unwrap());
        }
    }
    assert_eq!(said.matches(MARKER).count(), 4, "text, log, message and tool: {said}");
    let view = mill.job(spoke).await.unwrap().unwrap();
    assert_eq!(view.progress.unwrap().tool.as_deref(), Some(MARKER));

    let states = mill.flow(judged).await.unwrap().unwrap();
    let done: Vec<_> = states.steps.iter().map(|step| step.state.word()).collect();
    assert_eq!(done, ["done", "done", "skipped"], "edges judge what was returned");
    let undone = mill.flow(saga).await.unwrap().unwrap();
    assert_eq!(undone.head.state.word(), "undone");
    assert_eq!(
        undone.steps[0].undo.as_ref().unwrap().payload.as_str(),
        format!("\"{MARKER} undo\"")
    );

    assert!(
        mill.dead().replay_one(dead, "me", Some(&format!("\"{MARKER} mended\""))).await.unwrap()
    );
    kit.advance(HOUR);
    tend(mill).await.unwrap();
    drain(worker(mill)).await.unwrap();
    assert_eq!(output(mill, dead).await, format!("\"{MARKER} mended\""));
    assert_eq!(
        mill.job(waits).await.unwrap().unwrap().job.payload.as_str(),
        format!("[\"{MARKER} edited\"]")
    );
    let scheduled = mill.schedules().get("often").await.unwrap();
    assert_eq!(scheduled.definition.job.payload.as_str(), format!("\"{MARKER} scheduled\""));
    assert!(scheduled.last_job.is_some(), "it has fired");
    assert_eq!(output(mill, scheduled.last_job.unwrap()).await, format!("\"{MARKER} scheduled\""));
}

/// Enqueues in a transaction of the caller's.
async fn transaction(mill: &Tidemill, kit: &Kit) {
    if let Some(file) = kit.url.strip_prefix("sqlite:") {
        let mut connection = rusqlite::Connection::open(file).unwrap();
        let behaviour = rusqlite::TransactionBehavior::Immediate;
        let transaction = connection.transaction_with_behavior(behaviour).unwrap();
        mill.enqueue_in_rusqlite(&transaction, word("in")).unwrap();
        mill.start_in_rusqlite(&transaction, Flow::new("in").step("a", word("in"))).unwrap();
        transaction.commit().unwrap();
    } else {
        let mut client = kit.client().await;
        let transaction = client.transaction().await.unwrap();
        mill.enqueue_in(&transaction, word("in")).await.unwrap();
        mill.start_in(&transaction, Flow::new("in").step("a", word("in"))).await.unwrap();
        transaction.commit().await.unwrap();
    }
}

async fn nothing_that_was_given_stands_in_the_database_and_all_comes_back(kit: Kit) {
    let mill = open(&kit, &[OLD, SECRET]).await;
    everything(&mill, &kit).await;
    mill.close().await;
    let all = dump(&kit).await;
    assert!(all.contains("tdm1:old:"), "there is something encrypted");
    if let Some(at) = all.find(MARKER) {
        let from = all[..at].char_indices().rev().nth(300).map_or(0, |(at, _)| at);
        panic!("it can be read: {}", &all[from..at + MARKER.len()]);
    }
}

async fn a_job_whose_key_is_missing_waits_and_runs_when_it_is_brought(kit: Kit) {
    let mill = open(&kit, &[OLD]).await;
    let id = mill.enqueue(word("hidden")).await.unwrap().id();
    for lines in [&[][..], &[NEW]] {
        let without = open(&kit, lines).await;
        let bare = without.enqueue(Enqueue::raw("word", "\"bare\"")).await.unwrap().id();
        drain(worker(&without)).await.unwrap();
        assert!(without.job(bare).await.unwrap().unwrap().state == State::Done, "others run");
        let error = without.job(id).await.unwrap_err();
        assert_eq!(error.code(), "encryption_key_missing");
        assert!(error.to_string().contains("\"old\""), "{error}");
        let listed = without.jobs(&tidemill::JobFilter::default()).await.unwrap();
        let listed = listed.iter().find(|view| view.job.id == id).unwrap();
        assert!(listed.job.payload.as_str().contains("unreadable"), "a list shows the others");
        assert_eq!((listed.state, listed.attempt), (State::Scheduled, 0), "put off, unspent");
        without.close().await;
        kit.advance(Duration::from_mins(2));
    }
    drain(worker(&mill)).await.unwrap();
    let view = mill.job(id).await.unwrap().unwrap();
    assert_eq!((view.state, view.attempt), (State::Done, 1));
    let attempts = mill.attempts(id).await.unwrap();
    assert!(attempts[0].error.as_ref().unwrap().contains("\"old\""), "{attempts:?}");
    mill.close().await;
}

/// Remembers a word, and waits for another.
async fn remembers(_: Payload, cx: Context) -> Result<Payload, Fail> {
    let first: String = cx.step("first").run(|_| async { Ok("one".to_owned()) }).await?;
    let large: String = cx.step("large").run(|_| async { Ok("x".repeat(100_000)) }).await?;
    let second: String = cx.signal("second").await?;
    Ok(Payload::trusted(format!("\"{first} {} {second}\"", large.len())))
}

async fn a_run_whose_key_is_missing_is_parked_and_goes_on_when_it_is_resumed_with_it(kit: Kit) {
    let worker =
        |mill: &Tidemill| mill.worker().handle_raw("remembers", Settings::default(), remembers);
    // Its payload is plain: only what comes after is found to be encrypted, in its journal or in its mail.
    let (plain, mill) = (open(&kit, &[]).await, open(&kit, &[OLD]).await);
    for (begins, tells) in [(&mill, &plain), (&plain, &mill)] {
        let id = plain.enqueue(Enqueue::raw("remembers", "null")).await.unwrap().id();
        drain(worker(begins)).await.unwrap();
        tells.signal(id, Signal::new("second", "two")).await.unwrap();
        for _ in 0..2 {
            drain(worker(&plain)).await.unwrap();
            let runs = plain.runs(&RunFilter::default()).await.unwrap();
            let parked = runs[0].parked.as_ref().unwrap();
            assert_eq!(runs[0].job, id);
            assert_eq!(parked.code.code(), "parked_key_missing", "{parked}");
            assert!(parked.why.contains("the key \"old\""), "{parked}");
            // Resumed without the key, it comes to the same.
            plain.resume_run(id, "ann", "").await.unwrap();
        }
        drain(worker(&mill)).await.unwrap();
        let view = mill.job(id).await.unwrap().unwrap();
        assert_eq!((view.state, view.attempt), (State::Done, 1), "no attempt was spent");
        assert_eq!(output(&mill, id).await, "\"one 100000 two\"");
        assert_eq!(mill.run(id).await.unwrap().unwrap().parked, None);
    }
    plain.close().await;
    mill.close().await;
}

async fn a_run_whose_key_is_missing_goes_on_when_a_worker_comes_that_has_it(kit: Kit) {
    let worker =
        |mill: &Tidemill| mill.worker().handle_raw("remembers", Settings::default(), remembers);
    let (plain, mill) = (open(&kit, &[]).await, open(&kit, &[OLD]).await);
    let id = plain.enqueue(Enqueue::raw("remembers", "null")).await.unwrap().id();
    drain(worker(&mill)).await.unwrap();
    mill.signal(id, Signal::new("second", "two")).await.unwrap();
    drain(worker(&plain)).await.unwrap();
    // Neither one without the key lets it go on, nor one with another, nor one that has no handler for it.
    let other = open(&kit, &[NEW]).await;
    for mill in [&plain, &other] {
        worker(mill).start().await.unwrap().stop().await;
    }
    let unmeant = mill.worker().handle_raw("other", Settings::default(), remembers);
    unmeant.start().await.unwrap().stop().await;
    let parked = mill.run(id).await.unwrap().unwrap().parked.unwrap();
    assert_eq!(parked.code.code(), "parked_key_missing", "{parked}");
    assert!(mill.run_acts(id).await.unwrap().is_empty());
    let running = worker(&mill).start().await.unwrap();
    eventually("the run to end", SOON, async || {
        let view = mill.job(id).await.unwrap().unwrap();
        (view.state == State::Done).then_some(())
    })
    .await;
    running.stop().await;
    assert_eq!(output(&mill, id).await, "\"one 100000 two\"");
    let acts = mill.run_acts(id).await.unwrap();
    assert_eq!((acts.len(), acts[0].by.as_str()), (1, "tidemill"));
    for mill in [plain, other, mill] {
        mill.close().await;
    }
}

async fn what_was_written_before_stays_readable(kit: Kit) {
    let plain = open(&kit, &[]).await;
    let before = plain.enqueue(word("before")).await.unwrap().id();
    let died = plain.enqueue(word("fails")).await.unwrap().id();
    let story = plain.enqueue(Story(format!("{MARKER} run"))).await.unwrap().id();
    drain(worker(&plain)).await.unwrap();
    plain.close().await;
    assert!(dump(&kit).await.contains(MARKER), "a scan finds what is not encrypted");

    let mill = open(&kit, &[NEW, OLD]).await;
    assert_eq!(output(&mill, before).await, format!("\"{MARKER} before\""));
    assert!(mill.job(died).await.unwrap().unwrap().job.payload.as_str().contains(MARKER));
    mill.signal(story, Signal::new("tell", &word("told"))).await.unwrap();
    drain(worker(&mill)).await.unwrap();
    assert_eq!(mill.run_state::<Word>(story).await.unwrap().unwrap().0, word("state").0);
    mill.close().await;
}

async fn keys_are_changed_through_a_crash_and_the_old_one_is_not_needed_any_more(kit: Kit) {
    let old = open(&kit, &[OLD, SECRET]).await;
    everything(&old, &kit).await;
    let counts = old.key_counts().await.unwrap();
    assert_eq!((counts.len(), counts[0].key.as_str(), counts[0].first), (1, "old", true));
    let before = counts[0].rows;
    let ids: Vec<JobId> = old
        .jobs(&tidemill::JobFilter { limit: 1000, ..Default::default() })
        .await
        .unwrap()
        .iter()
        .map(|view| view.job.id)
        .collect();
    let mut seen = Vec::new();
    for id in &ids {
        seen.push(old.job(*id).await.unwrap().unwrap());
    }
    old.close().await;

    let both = open(&kit, &[NEW, OLD, SECRET]).await;
    // It ends in the middle, as a process that is killed would.
    let killed = tokio::spawn({
        let both = both.clone();
        async move { both.rotate_keys(|so_far| assert_eq!(so_far.rotated, 0, "killed")).await }
    });
    assert!(killed.await.is_err(), "it was begun and did not end");
    let counts = both.key_counts().await.unwrap();
    let rows = |id: &str| counts.iter().find(|count| count.key == id).map_or(0, |count| count.rows);
    assert!(rows("old") > 0 && rows("new") > 0, "{counts:?}");
    for view in &seen {
        let now = both.job(view.job.id).await.unwrap().unwrap();
        assert_eq!((&now.job.payload, &now.output), (&view.job.payload, &view.output));
    }
    let rotated = both.rotate_keys(|_| {}).await.unwrap();
    assert_eq!((rotated.unreadable, rotated.changed), (0, 0));
    assert!(rotated.rotated > 0 && rotated.seen >= before, "{rotated:?} of {before}");
    let again = both.rotate_keys(|_| {}).await.unwrap();
    assert_eq!(again.rotated, 0, "nothing is left to do");
    both.close().await;

    let new = open(&kit, &[NEW, SECRET]).await;
    let counts = new.key_counts().await.unwrap();
    assert_eq!(counts.iter().map(|count| count.key.as_str()).collect::<Vec<_>>(), ["new"]);
    for view in &seen {
        let now = new.job(view.job.id).await.unwrap().unwrap();
        assert_eq!((&now.job.payload, &now.output), (&view.job.payload, &view.output));
    }
    let scheduled = new.schedules().get("often").await.unwrap();
    assert_eq!(scheduled.definition.job.payload.as_str(), format!("\"{MARKER} scheduled\""));
    for place in Place::ALL {
        for row in new.store().values(place, None, 1000).await.unwrap() {
            let texts = row.texts.iter().flatten();
            assert!(texts.into_iter().all(|text| !text.contains("tdm1:old:")), "{place:?}");
        }
    }
    new.close().await;
    assert!(!dump(&kit).await.contains(MARKER));
}

async fn a_walk_in_small_parts_comes_to_the_same_as_one_at_once(kit: Kit) {
    let plain = open(&kit, &[]).await;
    for n in 0..10 {
        plain.enqueue(Enqueue::raw("plain", n.to_string())).await.unwrap();
    }
    let error = plain.rotate_keys(|_| {}).await.unwrap_err();
    assert_eq!(error.code(), "encryption_off");
    plain.close().await;
    let old = open(&kit, &[OLD, SECRET]).await;
    everything(&old, &kit).await;
    old.close().await;

    let both = open(&kit, &[NEW, OLD, SECRET]).await;
    // Where it goes on is carried as text, as by whoever asks a server.
    let carried = |spot: Spot| spot.to_string().parse::<Spot>().unwrap();
    let reach = Reach { rows_max: 2, ..Reach::default() };
    let (mut counts, mut from, mut places) = (Vec::new(), Some(Spot::default()), Vec::new());
    while let Some(spot) = from {
        places.push(spot.place);
        let (part, next) = both.key_counts_from(carried(spot), reach).await.unwrap();
        assert!(part.iter().map(|count| count.rows).sum::<u64>() <= 2, "{part:?}");
        KeyCount::add(&mut counts, part);
        from = next;
    }
    assert_eq!(counts, both.key_counts().await.unwrap());
    assert!(counts[1].key == "old" && counts[1].rows > 10, "{counts:?}");
    assert!(places.is_sorted() && places.len() as u64 > counts[1].rows / 2, "{places:?}");

    let (mut rotated, mut from) = (Rotated::default(), Some(Spot::default()));
    while let Some(spot) = from {
        let (part, next) = both.rotate_keys_from(carried(spot), reach).await.unwrap();
        rotated += part;
        from = next;
    }
    let rows = counts[1].rows;
    assert_eq!(rotated, Rotated { seen: rows, rotated: rows, changed: 0, unreadable: 0 });
    both.close().await;
}

async fn values_that_were_swapped_or_forged_are_refused(kit: Kit) {
    let mill = open(&kit, &[OLD]).await;
    let mine = mill.enqueue(word("mine")).await.unwrap().id();
    let done = mill.enqueue(word("done")).await.unwrap().id();
    let other = mill.enqueue(word("other")).await.unwrap().id();
    let is_sqlite = kit.url.starts_with("sqlite:");
    let hex =
        |id: JobId| if is_sqlite { format!("x'{}'", id.0.simple()) } else { format!("'{id}'") };
    let swap = format!(
        "update tidemill_job set payload = (select payload from tidemill_job where id = {}) where id = {}",
        hex(other),
        hex(mine)
    );
    kit.execute(&swap).await;
    assert_eq!(mill.job(mine).await.unwrap_err().code(), "ciphertext_invalid");
    drain(worker(&mill)).await.unwrap();
    let listed = mill.jobs(&tidemill::JobFilter::default()).await.unwrap();
    let mine = listed.iter().find(|view| view.job.id == mine).unwrap();
    assert_eq!((mine.state, mine.attempt), (State::Scheduled, 0), "it has not run");
    assert!(output(&mill, done).await.contains("done"));
    let forged = format!(
        "update tidemill_outcome set output = (select payload from tidemill_job where id = {0}) where id = {0}",
        hex(done)
    );
    kit.execute(&forged).await;
    assert_eq!(
        mill.job(done).await.unwrap_err().code(),
        "ciphertext_invalid",
        "a payload is no output"
    );
    mill.close().await;
}

async fn what_is_encrypted_is_not_searched(kit: Kit) {
    let mill = open(&kit, &[OLD]).await;
    let field = Some(("$".to_owned(), MARKER.to_owned()));
    let filter = DeadFilter { payload_field: field, ..DeadFilter::default() };
    let error = mill.dead().list(&filter, None, 10).await.unwrap_err();
    assert_eq!(error.code(), "search_encrypted");
    mill.close().await;
    let plain = open(&kit, &[]).await;
    let looks_so = format!("\"tdm1:old:{}\"", "A".repeat(100));
    let error = plain.enqueue(Enqueue::raw("word", &*looks_so)).await.unwrap_err();
    assert_eq!(error.code(), "payload_reserved");
    plain.close().await;
}

async fn an_edit_knows_the_job_that_it_was_made_of(kit: Kit) {
    let mill = open(&kit, &[OLD]).await;
    let id = mill.enqueue(word("first")).await.unwrap().id();
    let print = mill.job(id).await.unwrap().unwrap().job.print();
    let change =
        |text: &str| serde_json::from_value(serde_json::json!({ "payload": text })).unwrap();
    mill.edit(id, change("second"), Some(print.clone())).await.unwrap();
    let error = mill.edit(id, change("third"), Some(print)).await.unwrap_err();
    assert_eq!(error.code(), "job_changed");
    assert_eq!(mill.job(id).await.unwrap().unwrap().job.payload.as_str(), "\"second\"");
    mill.close().await;
}

/// Returns, lets follow or writes something that looks encrypted.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Odd(String);

impl Job for Odd {
    const KIND: &'static str = "odd";
    type Output = String;
}

async fn be_odd(Odd(place): Odd, cx: Context) -> Result<String, Fail> {
    let looks_so = format!("tdm1:old:{}", "A".repeat(100));
    let step = || cx.step("s").run(|_| std::future::ready(Ok(looks_so.clone())));
    match place.as_str() {
        "output" => return Ok(looks_so),
        "follow-up" => drop(cx.follow_up(Word(looks_so))?),
        "last step" => drop(step().await?),
        "step" => {
            step().await?;
            cx.step("after").run(|_| async { Ok(()) }).await?;
        }
        _ => {}
    }
    Ok(place)
}

/// Without keys such a value is refused wherever it stands.
async fn an_outcome_that_looks_encrypted_is_dead_and_holds_up_nobody(kit: Kit) {
    let mill = kit.open().await;
    let running = mill.worker().handle(be_odd).start().await.unwrap();
    for place in ["output", "follow-up", "last step", "step"] {
        let id = mill.enqueue(Odd(place.to_owned())).await.unwrap().id();
        let view = mill.wait(id, SOON).await.unwrap();
        assert_eq!(view.state, State::Dead, "{place}");
        assert!(view.error.as_ref().unwrap().contains("cannot be kept"), "{place}: {view:?}");
    }
    let good = mill.enqueue(Odd("good".to_owned())).await.unwrap().id();
    assert_eq!(mill.result::<Odd>(good, SOON).await.unwrap(), "good");
    running.stop().await;
    mill.close().await;
}
