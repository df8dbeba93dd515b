//! The demo runs to its end and leaves something to look at; the bench cleans up. Both do so on a server, too.

use tidemill_testkit::Process;
use tidemill_testkit::eventually::until;

use crate::mill::{Ended, Mill, PATIENCE, stop};

/// What it shows wherever it runs: jobs, what holds some of them, flows, and a saga that goes back.
fn says_all(ended: Ended) -> Ended {
    let ended = ended.says("welcome_mail").says("Nothing was lost");
    let ended = ended.says("newsletter: its queue newsletter is paused");
    let ended = ended.says("export: limit exports of * for acme is full: 1 of 1 run");
    let ended = ended.says("18 sign-ups were flows: 16 done, 2 failed").says("flows show ");
    ended.says("card failed").says("undo hotel done").says("is undone")
}

#[test]
fn the_demo_ends_with_its_summary_and_can_be_run_again() {
    let mill = Mill::sqlite();
    for _ in 0..2 {
        let ended = mill.run(&["demo", "--scale", "0.05"]).ok().says("dead groups --store");
        let ended = says_all(ended);
        assert!(ended.stderr.contains("jobs finished"), "{ended:?}");
    }
    let groups = mill.rows(&["dead", "groups", "--json"]);
    assert!(groups.iter().all(|g| g["kind"] == "sync_legacy_crm" || g["kind"] == "charge_card"));
    let summary = mill.json(&["demo", "--scale", "0.05", "--json"]);
    assert_eq!(summary["waiting"], 0);
    let failed = summary["flows"]["example"].as_str().unwrap();
    mill.run(&["flows", "show", failed]).ok().says("✘ failed").says("✘ crm");
    assert_eq!(mill.rows(&["flows", "list", "--state", "failed", "--json"]).len(), 6);
    assert_eq!(mill.rows(&["flows", "list", "--state", "undone", "--json"]).len(), 3);
}

#[test]
fn the_demo_runs_on_postgres_too() {
    let mill = Mill::postgres();
    let ended = mill.run(&["demo", "--scale", "0.05"]).ok().says("dead groups --store");
    says_all(ended);
}

fn demo_on_a_server(mill: &Mill) {
    let (server, url) = mill.serve(&[]);
    let ended = mill.ask(&url, &["demo", "--scale", "0.05"]).ok();
    says_all(ended).says("dead groups --server http://");
    mill.ask(&url, &["dead", "groups"]).ok().says("sync_legacy_crm").says("charge_card");
    stop(server);
}

#[test]
fn the_demo_runs_on_a_server_over_sqlite() {
    demo_on_a_server(&Mill::sqlite());
}

#[test]
fn the_demo_runs_on_a_server_over_postgres() {
    demo_on_a_server(&Mill::postgres());
}

fn bench(mill: &Mill) {
    let (server, url) = mill.serve(&[]);
    let places: [&[&str]; 2] = [&["--store", mill.url()], &["--server", &url]];
    for place in places {
        let figures = mill.json(&[place, &["bench", "--jobs", "200", "--json"]].concat());
        assert!(figures["drain_per_second"].as_u64().unwrap() > 0);
        assert!(mill.rows(&["jobs", "--json"]).is_empty());
        let has_rules = |queue: &serde_json::Value| queue["name"] == "tidemill_bench";
        assert!(!mill.rows(&["queues", "--json"]).iter().any(has_rules));
    }
    mill.enqueue(&["k"]);
    for place in places {
        mill.run(&[place, &["bench", "--jobs", "200"]].concat()).code(5).says("store_in_use");
    }
    stop(server);
}

#[test]
fn the_bench_leaves_nothing_in_sqlite() {
    bench(&Mill::sqlite());
}

#[test]
fn the_bench_leaves_nothing_in_postgres() {
    bench(&Mill::postgres());
}

#[test]
fn the_bench_leaves_nothing_when_it_is_interrupted() {
    let mill = Mill::sqlite();
    let args = ["bench", "--jobs", "5000000"];
    let mut bench = Process::spawn(&mut mill.command(&args)).unwrap();
    let has_begun = || !mill.run(&["jobs", "--json"]).stdout.is_empty();
    until(PATIENCE, || has_begun().then_some(())).unwrap();
    bench.term().unwrap();
    assert_eq!(bench.wait(PATIENCE).unwrap().code(), Some(1));
    assert!(mill.rows(&["jobs", "--json"]).is_empty());
}
