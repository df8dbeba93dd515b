//! Following what a job says, from another process.

use serde_json::{Value, json};
use tidemill::testing::drain;
use tidemill::{Context, Fail, Payload, Progress, Settings, Tidemill};
use tidemill_testkit::Process;

use crate::mill::{Mill, PATIENCE};

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

#[test]
fn a_job_is_followed_on_sqlite() {
    followed(&Mill::sqlite());
}

#[test]
fn a_job_is_followed_on_postgres() {
    followed(&Mill::postgres());
}
