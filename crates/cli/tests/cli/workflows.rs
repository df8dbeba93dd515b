//! Runs of workflows from the shell: listed, shown, signalled, paused, reset, called off.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill::{Context, Enqueue, Fail, Job, JobId, Tidemill, testing};

use crate::mill::Mill;

#[derive(Serialize, Deserialize)]
struct Order {
    number: u64,
}

impl Job for Order {
    const KIND: &'static str = "order";
    type Output = String;
}

async fn order(order: Order, cx: Context) -> Result<String, Fail> {
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

fn begin(mill: &Mill) -> String {
    let enqueue =
        async |tide: &Tidemill| Some(tide.enqueue(Order { number: 21 }).await.unwrap().id());
    work(mill, enqueue).unwrap().to_string()
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

    mill.run(&["workflows", "pause", &id]).ok().says("paused");
    mill.run(&["workflows", "signal", &id, "approve", "true", "--once", "click"]).ok().says("kept");
    mill.run(&["workflows", "signal", &id, "approve", "{"]).code(2).says("payload_not_json");
    assert!(work(mill, async |_| None).is_none());
    mill.run(&["workflows", "list"]).ok().says("paused");
    mill.run(&["workflows", "reset", &id, "--to", "nothing"]).code(5).says("run_not_now");
    mill.run(&["workflows", "reset", &id, "--to", "reserve"]).ok().says("goes on from");
    work(mill, async |_| None);
    let shown = mill.json(&["workflows", "show", &id, "--json"]);
    assert_eq!(shown["job"]["output"], "42 true", "{shown}");
    mill.run(&["workflows", "signal", &id, "approve"]).code(5).says("run_finished");

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
