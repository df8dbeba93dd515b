//! Following what a job says, from another process.

use serde_json::{Value, json};
use tidemill::testing::drain;
use tidemill::{Context, Fail, Payload, Progress, Settings, Tidemill};
use tidemill_testkit::Process;

use crate::mill::{Mill, PATIENCE, stop};

async fn talk(payload: Payload, cx: Context) -> Result<Payload, Fail> {
    cx.progress(Progress::of(1, 2).tool("search").message("page 1")).await?;
    cx.text("Hel").await?;
    cx.text("lo").await?;
    cx.log("read it").await?;
    if payload.as_str() == "null" { Ok(payload) } else { Err(Fail::permanent("no such page")) }
}

fn work(mill: &Mill) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mill = Tidemill::open(mill.url()).await.unwrap();
        drain(mill.worker().handle_raw("talk", Settings::default(), talk)).await.unwrap();
        mill.close().await;
    });
}

fn followed(mill: &Mill) {
    let id = mill.enqueue(&["talk"]);
    let mut follower = mill.command(&["jobs", "follow", &id, "--json"]);
    let mut follower = Process::spawn(&mut follower).unwrap();
    work(mill);
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line: &Value| line["event"] != "end") {
        let line = follower.next_line(PATIENCE).expect("it goes on");
        lines.push(serde_json::from_str(&line).unwrap());
    }
    assert!(follower.wait(PATIENCE).unwrap().success());
    let told: Vec<_> = lines
        .iter()
        .map(|line| (line["number"].as_u64(), line["event"].as_str().unwrap()))
        .collect();
    let expected = [
        (Some(1), "progress"),
        (Some(2), "text"),
        (Some(3), "text"),
        (Some(4), "log"),
        (None, "end"),
    ];
    assert_eq!(told, expected);
    assert_eq!(lines[4], json!({ "event": "end", "state": "done" }));
    let ended = mill.run(&["jobs", "follow", &id]).ok();
    assert_eq!(
        ended.stdout, "Hello\nread it\n",
        "text as it came, and the log in lines of its own"
    );
    ended.says("1/2 search page 1");
    let ended = mill.run(&["jobs", "follow", &id, "--after", "3"]).ok();
    assert_eq!(ended.stdout, "read it\n");
    mill.run(&["jobs", "show", &id]).ok().says("1/2 search page 1");
    assert_eq!(mill.state(&id)["progress"]["tool"], "search");
    let bad = mill.enqueue(&["talk", "1"]);
    work(mill);
    mill.run(&["jobs", "follow", &bad]).code(1).says("read it").says("no such page");
    let unknown = tidemill::JobId::new().to_string();
    mill.run(&["jobs", "follow", &unknown]).code(3).says("job_unknown");
}

/// A program says how far it is, and whoever follows its job hears it while it runs.
fn a_program_is_followed(mill: &Mill, place: &[&str]) {
    let at = |args: &[&str]| mill.command(&[place, args].concat());
    let id = mill.enqueue(&["steps"]);
    let go = mill.file(&format!("go-{id}"));
    let exec = format!(
        "echo progress 40 reading rows >&2; until test -e {go}; do sleep 0.05; done; \
         echo progress 99.9% >&2; echo done"
    );
    let work = ["work", "--json", "--exec", &exec, "--kind", "steps"];
    let worker = Process::spawn(&mut at(&work)).unwrap();
    let follower = Process::spawn(&mut at(&["jobs", "follow", &id, "--json"])).unwrap();
    let next = || -> Value {
        serde_json::from_str(&follower.next_line(PATIENCE).expect("it goes on")).unwrap()
    };
    let first = next();
    assert_eq!(
        (&first["event"], &first["number"], &first["step"], &first["total"], &first["message"]),
        (&json!("progress"), &json!(1), &json!(40), &json!(100), &json!("reading rows"))
    );
    let shown = mill.state(&id);
    assert_eq!((&shown["state"], &shown["progress"]["step"]), (&json!("running"), &json!(40)));
    std::fs::write(&go, "").unwrap();
    let second = next();
    assert_eq!((&second["step"], &second["message"]), (&json!(99), &Value::Null));
    assert_eq!(next(), json!({ "event": "end", "state": "done" }));
    stop(worker);
    mill.run(&["jobs", "show", &id]).ok().says("99/100");
}

/// A program that says more than a stream keeps is not stopped for it.
fn a_program_that_says_too_much_is_done(mill: &Mill) {
    let id = mill.enqueue(&["talks"]);
    let exec =
        "x=$(head -c 3900 /dev/zero | tr '\\0' x); yes progress 1 $x | head -n 5000 >&2; echo 7";
    let worker = mill.work(&["--exec", exec, "--kind", "talks"]);
    let ended = mill.run(&["jobs", "wait", &id, "--timeout", "60s"]).ok();
    assert_eq!(ended.stdout.trim(), "7");
    stop(worker);
    let kept = mill.rows(&["jobs", "follow", &id, "--json"]).len();
    assert!((3000..5000).contains(&kept), "{kept}");
}

/// The same beside the store and for a server.
fn programs(mill: &Mill) {
    a_program_is_followed(mill, &[]);
    a_program_that_says_too_much_is_done(mill);
    let (server, url) = mill.serve(&[]);
    a_program_is_followed(mill, &["--server", &url]);
    stop(server);
}

#[test]
fn a_program_is_followed_on_sqlite() {
    programs(&Mill::sqlite());
}

#[test]
fn a_program_is_followed_on_postgres() {
    programs(&Mill::postgres());
}

#[test]
fn a_job_is_followed_on_sqlite() {
    followed(&Mill::sqlite());
}

#[test]
fn a_job_is_followed_on_postgres() {
    followed(&Mill::postgres());
}
