//! Runs of workflows from the shell: listed, shown, signalled, paused, reset, called off.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill::{Context, Enqueue, Fail, History, Job, JobId, Tidemill, testing};

use crate::mill::{Ended, Mill, feed};
use crate::program;

#[derive(Serialize, Deserialize)]
pub struct Order {
    pub number: u64,
}

impl Job for Order {
    const KIND: &'static str = "order";
    type Output = String;
}

pub async fn order(order: Order, cx: Context) -> Result<String, Fail> {
    let undo = Enqueue::raw("release", order.number.to_string());
    let hold = cx.step("reserve").undo(undo).run(|_| async { Ok(order.number * 2) }).await?;
    cx.set_state("waits for an approval")?;
    let approved: bool = cx.signal("approve").await?;
    cx.sleep(Duration::from_millis(1)).await?;
    Ok(format!("{hold} {approved}"))
}

/// Runs what is due in this process, as a worker would.
fn work(mill: &Mill, act: impl AsyncFnOnce(&Tidemill) -> Option<JobId>) -> Option<JobId> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tide = Tidemill::open(mill.url()).await.unwrap();
        let id = act(&tide).await;
        testing::drain(tide.worker().handle(order)).await.unwrap();
        tide.close().await;
        id
    })
}

pub fn begin(mill: &Mill) -> String {
    let enqueue =
        async |tide: &Tidemill| Some(tide.enqueue(Order { number: 21 }).await.unwrap().id());
    work(mill, enqueue).unwrap().to_string()
}

/// Answers one update with its double and keeps it in an object; what is not positive it refuses.
async fn double(_: Double, cx: Context) -> Result<i64, Fail> {
    let positive = |n: &i64| if *n > 0 { Ok(()) } else { Err("it must be positive".to_owned()) };
    let asked = cx.update_if("double", positive).await?;
    let doubled = asked.value * 2;
    asked.answer(&doubled).await?;
    cx.object()?.set(&doubled)?;
    Ok(doubled)
}

#[derive(Serialize, Deserialize)]
struct Double;

impl Job for Double {
    const KIND: &'static str = "double";
    type Output = i64;
}

fn answers(mill: &Mill) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (tide, id, running) = runtime.block_on(async {
        let tide = Tidemill::open(mill.url()).await.unwrap();
        let job = Enqueue::from(Double).object("doubles", "a");
        let id = tide.enqueue(job).await.unwrap().id();
        let running = tide.worker().queues(["doubles"]).handle(double).start().await.unwrap();
        (tide, id, running)
    });
    let id = id.to_string();
    mill.run(&["workflows", "object", "doubles", "a"]).code(3).says("object_unknown");
    let update = |n: &str| mill.run(&["workflows", "update", &id, "double", n, "--timeout", "30s"]);
    update("-1").code(5).says("update_refused").says("it must be positive");
    update("21").ok().says("42");
    mill.run(&["jobs", "wait", &id]).ok().says("42");
    mill.run(&["workflows", "object", "doubles", "a"]).ok().says("42");
    let of_tenant = ["workflows", "object", "doubles", "a", "--tenant", "acme"];
    mill.run(&of_tenant).code(3).says("object_unknown").says("acme");
    let other = runtime.block_on(async {
        let job = Enqueue::from(Double).object("doubles", "a").tenant("acme");
        tide.enqueue(job).await.unwrap().id().to_string()
    });
    mill.run(&["workflows", "update", &other, "double", "4", "--timeout", "30s"]).ok().says("8");
    mill.run(&["jobs", "wait", &other]).ok();
    mill.run(&of_tenant).ok().says("8");
    mill.run(&["workflows", "object", "doubles", "a"]).ok().says("42");
    update("3").code(5).says("run_finished");
    runtime.block_on(async {
        running.stop().await;
        tide.close().await;
    });
}

#[test]
fn updates_are_answered_and_objects_shown_on_sqlite() {
    answers(&Mill::sqlite());
}

#[test]
fn updates_are_answered_and_objects_shown_on_postgres() {
    answers(&Mill::postgres());
}

fn life(mill: &Mill) {
    let id = begin(mill);
    mill.run(&["workflows"]).ok().says(&id).says("signal approve").says("blocked");
    let row =
        mill.rows(&["workflows", "list", "--kind", "order", "--unfinished", "--json"]).remove(0);
    assert_eq!((row["kind"].as_str(), row["job_state"].as_str()), (Some("order"), Some("blocked")));
    assert!(mill.rows(&["workflows", "list", "--parked", "--json"]).is_empty());
    mill.run(&["workflows", "show", &id])
        .ok()
        .says("waits for an approval")
        .says("undone by release")
        .says("ended");
    let shown = mill.json(&["workflows", "show", &id, "--json"]);
    assert_eq!(shown["journal"][1]["entry"]["ended"]["ending"]["ok"], 42, "{shown}");

    let history: History =
        serde_json::from_str(&mill.run(&["workflows", "export", &id]).ok().stdout).unwrap();
    assert_eq!((history.job.kind.as_str(), history.journal.len()), ("order", 2));
    assert_eq!(mill.json(&["workflows", "export", &id, "--json"])["job"]["id"], id.as_str());

    mill.run(&["workflows", "pause", &id]).ok().says("paused");
    mill.run(&["workflows", "signal", &id, "approve", "true", "--once", "click"]).ok().says("kept");
    mill.run(&["workflows", "signal", &id, "approve", "{"]).code(2).says("payload_not_json");
    assert!(work(mill, async |_| None).is_none());
    mill.run(&["workflows", "list"]).ok().says("paused");
    mill.run(&["workflows", "reset", &id, "--to", "nothing"]).code(5).says("run_not_now");
    mill.run(&["workflows", "fork", &id, "--to", "nothing"]).code(5).says("run_not_now");
    let forked = mill.json(&["workflows", "fork", &id, "--to", "reserve", "--by", "ann", "--json"]);
    let fork = forked["into"].as_str().unwrap().to_owned();
    mill.run(&["workflows", "show", &fork]).ok().says("copied by ann").says(&id);
    mill.run(&["workflows", "cancel", &fork]).ok();
    mill.run(&["workflows", "reset", &id, "--to", "reserve"]).ok().says("paused");
    work(mill, async |_| None);
    assert_eq!(
        mill.json(&["workflows", "show", &id, "--json"])["job"]["output"],
        serde_json::Value::Null
    );
    mill.run(&["workflows", "resume", &id]).ok().says("goes on");
    work(mill, async |_| None);
    let shown = mill.json(&["workflows", "show", &id, "--json"]);
    assert_eq!(shown["job"]["output"], "42 true", "{shown}");
    mill.run(&["workflows", "signal", &id, "approve"]).code(5).says("run_finished");
    let acts: Vec<_> =
        shown["acts"].as_array().unwrap().iter().map(|act| act["act"].as_str().unwrap()).collect();
    assert_eq!(acts, ["paused", "forked", "reset", "resumed"], "{shown}");

    let other = begin(mill);
    mill.run(&["workflows", "cancel", &other, "--reason", "no stock"]).ok().says("undone");
    work(mill, async |_| None);
    mill.run(&["workflows", "show", &other])
        .ok()
        .says("cancelled")
        .says("no stock")
        .says("undone by");
    mill.run(&["flows", "show", &other]).ok().says("undo reserve");
}

/// A new program is held against the runs under way; then it is deployed all the same, and an operator helps.
fn deploy(mill: &Mill) {
    let id = begin(mill);
    let (same, renamed) = (program::command("same"), program::command("renamed"));
    let replay = |code: &str| mill.run(&["workflows", "replay", "--with", code]);
    replay(&same).ok().says("1 run follows");
    replay(&renamed)
        .code(1)
        .says(&id)
        .says("but the code asks for \"hold\"")
        .says("0 runs follow; 1 run does not: deploy this program and they are parked");
    replay(&program::command("none"))
        .ok()
        .says("1 run is of kinds that it has no handler for (order)");
    replay(&program::command("silent")).code(1).says("replay_silent");
    replay("exit 3").code(1).says("replay_silent");
    mill.run(&["workflows", "replay", "--with", "sleep 60", "--timeout", "1s"])
        .code(7)
        .says("replay_timeout");
    let rows = mill.run(&["workflows", "replay", &id, "--with", &renamed, "--json"]).code(1).stdout;
    let row: serde_json::Value = serde_json::from_str(rows.trim()).unwrap();
    assert_eq!((row["run"].as_str(), row["answer"].as_str()), (Some(id.as_str()), Some("differs")));
    let before = mill.json(&["workflows", "show", &id, "--json"]);
    assert_eq!(before["run"]["parked"], serde_json::Value::Null, "it was only looked at");

    mill.run(&["workflows", "diff", &id]).code(5).says("it is not parked");
    mill.run(&["workflows", "diff", &id, "--with", &same]).ok().says("follows, and waits for");
    mill.run(&["workflows", "diff", &id, "--with", &program::command("none")])
        .code(3)
        .says("handler_missing");
    mill.run(&["workflows", "signal", &id, "approve", "true"]).ok();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tide = Tidemill::open(mill.url()).await.unwrap();
        testing::drain(tide.worker().handle(program::renamed)).await.unwrap();
        tide.close().await;
    });
    mill.run(&["workflows", "show", &id]).ok().says("parked_differs").says("workflows resume");
    mill.run(&["workflows", "list", "--parked"]).ok().says("parked_differs");
    let diff = mill.run(&["workflows", "diff", &id, "--json"]).code(1).stdout;
    assert!(diff.contains(r#""code":"parked_differs""#), "{diff}");
    mill.run(&["workflows", "diff", &id])
        .code(1)
        .says("THE JOURNAL HAS")
        .says("asks for \"hold\"")
        .says("workflows skip");
    mill.run(&["jobs", "why", &id]).says("mend the code").says("parked_differs");
    mill.run(&["workflows", "resume", &id, "--by", "ann", "--why", "it was rolled back"]).ok();
    mill.run(&["workflows", "show", &id]).ok().says("resumed by ann").says("it was rolled back");
    work(mill, async |_| None);
    let shown = mill.json(&["workflows", "show", &id, "--json"]);
    assert_eq!(shown["job"]["output"], "42 true", "{shown}");
}

fn unreadable(mill: &Mill) {
    let id = begin(mill);
    mill.run(&["workflows", "signal", &id, "approve", "7"]).ok();
    work(mill, async |_| None);
    mill.run(&["workflows", "show", &id])
        .ok()
        .says("parked_signal_unreadable")
        .says(&format!("workflows skip {id} SIGNAL"));
    mill.run(&["workflows", "diff", &id]).code(1).says("parked_signal_unreadable: the signal");
    mill.run(&["workflows", "resume", &id, "--journal-entries-max", "5"])
        .code(2)
        .says("journal_limit_invalid");
    mill.run(&["workflows", "resume", &id, "--journal-entries-max", "200000"]).ok();
    work(mill, async |_| None);
    mill.run(&["workflows", "skip", &id, "approve", "--by", "ann", "--why", "a typo"])
        .ok()
        .says("\"approve\" is over, and it goes on");
    mill.run(&["workflows", "signal", &id, "approve", "true"]).ok();
    work(mill, async |_| None);
    let shown = mill.json(&["workflows", "show", &id, "--json"]);
    assert_eq!(shown["job"]["output"], "42 true", "{shown}");
    mill.run(&["workflows", "show", &id]).ok().says("skipped by ann").says("→ 200000");
}

#[test]
fn a_signal_that_cannot_be_read_is_passed_over_on_sqlite() {
    unreadable(&Mill::sqlite());
}

#[test]
fn a_signal_that_cannot_be_read_is_passed_over_on_postgres() {
    unreadable(&Mill::postgres());
}

#[test]
fn a_program_is_held_against_runs_under_way_on_sqlite() {
    deploy(&Mill::sqlite());
}

#[test]
fn a_program_is_held_against_runs_under_way_on_postgres() {
    deploy(&Mill::postgres());
}

/// A program that looks elsewhere than where it was told to is not believed: it has its own store, without a run and
/// with one.
#[track_caller]
pub fn looks_elsewhere(other: &Mill, id: &str, ask: impl Fn(&[&str], &str) -> Ended) {
    let own = program::command("own");
    let elsewhere = |ended: Ended, what: &str| {
        ended.code(1).says("replay_elsewhere").says("did not look at the runs of").says(what);
    };
    other.run(&["migrate"]).ok();
    elsewhere(ask(&["workflows", "replay", "--with", &own], other.url()), "says nothing of it");
    let theirs = begin(other);
    let speaks = format!("it speaks of {theirs}, which is not there");
    elsewhere(ask(&["workflows", "replay", "--with", &own], other.url()), &speaks);
    elsewhere(ask(&["workflows", "replay", id, "--with", &own], other.url()), "says nothing of it");
    elsewhere(ask(&["workflows", "diff", id, "--with", &own], other.url()), "says nothing of it");
}

fn own_mind(make: fn() -> Mill) {
    let (mill, other) = (make(), make());
    let id = begin(&mill);
    looks_elsewhere(&other, &id, |args, own| {
        let mut command = mill.command(args);
        command.env(program::OWN_STORE, own);
        feed(command, "")
    });
}

#[test]
fn a_program_that_looks_at_another_store_is_not_believed_on_sqlite() {
    own_mind(Mill::sqlite);
}

#[test]
fn a_program_that_looks_at_another_store_is_not_believed_on_postgres() {
    own_mind(Mill::postgres);
}

/// A step that is stuck, and one that returned something wrong.
fn help(mill: &Mill) {
    let id = begin(mill);
    mill.run(&["workflows", "skip", &id, "reserve"]).code(5).says("edit it to correct");
    mill.run(&["workflows", "skip", &id, "nothing", "--output", "{"]).code(2);
    mill.run(&["workflows", "edit", &id, "reserve", "50", "--by", "ann", "--why", "a typo"])
        .ok()
        .says("what came after it is forgotten");
    mill.run(&["workflows", "signal", &id, "approve", "true"]).ok();
    mill.run(&["workflows", "show", &id]).ok().says("edited by ann").says("a typo; 42 → 50");
    work(mill, async |_| None);
    let shown = mill.json(&["workflows", "show", &id, "--json"]);
    assert_eq!(shown["job"]["output"], "50 true", "{shown}");
    assert_eq!(shown["acts"][0]["was"]["ok"], 42, "{shown}");
    mill.run(&["workflows", "edit", &id, "reserve", "1"])
        .code(5)
        .says("it has finished: it is done");
}

#[test]
fn an_operator_corrects_a_step_on_sqlite() {
    help(&Mill::sqlite());
}

#[test]
fn an_operator_corrects_a_step_on_postgres() {
    help(&Mill::postgres());
}

#[test]
fn a_run_is_led_through_its_life_on_sqlite() {
    life(&Mill::sqlite());
}

#[test]
fn a_run_is_led_through_its_life_on_postgres() {
    life(&Mill::postgres());
}

#[test]
fn an_unknown_run_is_not_found() {
    let mill = Mill::sqlite();
    mill.run(&["migrate"]).ok();
    let id = "019a3c1e-7c11-7bbb-8000-5fd1e2a0c0de";
    mill.run(&["workflows", "show", id]).code(3).says("job_unknown");
    mill.run(&["workflows", "signal", id, "x"]).code(3).says("job_unknown");
    mill.run(&["workflows", "resume", id]).code(3).says("run_unknown");
    mill.run(&["workflows"]).ok().says("no run matches");
}
