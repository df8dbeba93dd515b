//! Looking at jobs and changing what becomes of them.

use std::process::Command;

use tidemill_testkit::{Cluster, Process};

use crate::mill::{Mill, PATIENCE, stop};

#[test]
fn jobs_are_found_by_what_they_are() {
    let mill = Mill::sqlite();
    let late = mill.enqueue(&["a", "--delay", "1h", "--tenant", "t", "--key", "c:1"]);
    let ready = mill.enqueue(&["b", "--queue", "q"]);
    for (filter, expected) in [
        (vec!["--state", "scheduled"], vec![&late]),
        (vec!["--kind", "b"], vec![&ready]),
        (vec!["--queue", "q"], vec![&ready]),
        (vec!["--tenant", "t"], vec![&late]),
        (vec!["--key", "c:1"], vec![&late]),
        (vec!["--before", &*ready], vec![&late]),
        (vec!["--limit", "1"], vec![&ready]),
        (vec![], vec![&ready, &late]),
    ] {
        let rows = mill.rows(&[vec!["jobs", "list", "--json"], filter.clone()].concat());
        let ids: Vec<_> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
        assert_eq!(ids, expected, "{filter:?}");
    }
    mill.run(&["jobs"]).ok().says(&late).says("due in");
}

#[test]
fn a_scheduled_job_is_made_due_and_others_say_why_not() {
    let mill = Mill::sqlite();
    let late = mill.enqueue(&["k", "--delay", "1h"]);
    mill.run(&["jobs", "retry", &late]).ok().says("is due now");
    mill.run(&["jobs", "retry", &late]).code(5).says("is ready already");
    mill.run(&["jobs", "cancel", &late]).ok().says("cancelled");
    mill.run(&["jobs", "cancel", &late]).code(5).says("had finished already");
    mill.run(&["jobs", "retry", &late]).code(5).says("was cancelled");
}

#[test]
fn a_job_that_waits_changes_its_band_and_others_say_why_not() {
    let mill = Mill::sqlite();
    let late = mill.enqueue(&["k", "--delay", "1h"]);
    mill.run(&["jobs", "priority", &late, "urgent"]).ok().says("waits as urgent");
    assert_eq!(mill.json(&["jobs", "show", &late, "--json"])["job"]["priority"], "urgent");
    mill.run(&["jobs", "priority", &late, "fast"]).code(2).says("urgent, high, normal, low");
    mill.run(&["jobs", "cancel", &late]).ok();
    mill.run(&["jobs", "priority", &late, "low"]).code(5).says("has finished");
}

fn turns_are_explained(mill: &Mill) {
    let of = |tenant, priority| {
        mill.enqueue(&["k", "--queue", "q", "--tenant", tenant, "--priority", priority])
    };
    of("acme", "urgent");
    of("acme", "normal");
    let last = of("zoo", "normal");
    let why = mill.json(&["jobs", "why", &last, "--json"]);
    let names: Vec<_> = why["gates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|gate| gate["gate"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["no_worker", "band", "tenant"]);
    let (band, tenant) = (&why["gates"][1], &why["gates"][2]);
    assert_eq!((&band["weight"], &band["weights"]), (&2.into(), &10.into()));
    assert_eq!((&band["higher"], &band["equal"]), (&1.into(), &1.into()));
    assert_eq!((&tenant["tenant"], &tenant["ahead"]), (&"zoo".into(), &0.into()));
    assert_eq!((&tenant["place"], &tenant["tenants"]), (&2.into(), &2.into()));
    mill.run(&["jobs", "why", &last])
        .ok()
        .says("its band normal gets 2 of 10 starts; before it: 1 job of other bands, 1 job of its own")
        .says("its tenant zoo is number 2 of 2 in turn, with 1 of 2 starts of its band");
}

#[test]
fn a_turn_is_explained_by_band_and_tenant_on_sqlite() {
    turns_are_explained(&Mill::sqlite());
}

#[test]
fn a_turn_is_explained_by_band_and_tenant_on_postgres() {
    turns_are_explained(&Mill::postgres());
}

#[test]
fn an_unknown_job_is_not_found() {
    let mill = Mill::sqlite();
    mill.run(&["migrate"]).ok();
    let id = "019a3c1e-7c11-7bbb-8000-5fd1e2a0c0de";
    mill.run(&["jobs", "show", id]).code(3).says("job_unknown");
    mill.run(&["jobs", "wait", id]).code(3);
    mill.run(&["jobs", "cancel", id]).code(3);
    mill.run(&["jobs", "retry", id]).code(3);
    mill.run(&["jobs", "priority", id, "low"]).code(3);
    mill.run(&["dead", "show", id]).code(3).says("dead_letter_unknown");
    mill.run(&["jobs", "show", "nonsense"]).code(2);
}

#[test]
fn cancelling_reaches_a_running_command() {
    let mill = Mill::sqlite();
    let id = mill.enqueue(&["slow"]);
    let worker =
        mill.work(&["--exec", "echo progress 1 started >&2; sleep 1000", "--kind", "slow"]);
    worker.wait_for_line("started", PATIENCE).unwrap();
    mill.run(&["jobs", "cancel", &id]).ok().says("its handler is told");
    mill.run(&["jobs", "wait", &id, "--timeout", "30s"]).code(1).says("is cancelled");
    stop(worker);
}

fn says_why(mill: &Mill) {
    let once = ["k", "--unique-key", "u", "--on-duplicate", "run_once_more"];
    let first = mill.enqueue(&once);
    let exec = "echo progress 1 started >&2; sleep 1000";
    let worker = mill.work(&["--exec", exec, "--kind", "k", "--drain", "0s"]);
    worker.wait_for_line("started", PATIENCE).unwrap();
    let next = mill.enqueue(&once);
    mill.run(&["jobs", "why", &next])
        .ok()
        .says(&format!("until {first}, which holds its unique key and is running, has finished"));
    let why = mill.json(&["jobs", "why", &next, "--json"]);
    let holder = serde_json::json!({ "id": first, "state": "running" });
    assert_eq!(why["gates"][0]["holder"], holder);
    stop(worker);
    let dead = mill.enqueue(&["bad"]);
    let worker = mill.work(&["--exec", "exit 65", "--kind", "bad"]);
    mill.run(&["jobs", "wait", &dead, "--timeout", "30s"]).code(1);
    stop(worker);
    mill.run(&["jobs", "why", &dead]).ok().says("`tidemill dead replay` lets it run again");
    mill.run(&["dead", "replay", &dead]).ok();
    assert_eq!(mill.state(&dead)["state"], "ready");
}

#[test]
fn a_job_that_waits_says_for_whom_and_a_dead_one_what_is_next_on_sqlite() {
    says_why(&Mill::sqlite());
}

#[test]
fn a_job_that_waits_says_for_whom_and_a_dead_one_what_is_next_on_postgres() {
    says_why(&Mill::postgres());
}

#[test]
fn a_wait_outlasts_a_crash_of_postgres() {
    let mut cluster = Cluster::start().unwrap();
    let mill = Mill::at(cluster.url("postgres"));
    let waiting = mill.command(&["enqueue", "k", "--wait", "--timeout", "60s"]);
    let mut both = Command::new("sh");
    both.args(["-c", r#"exec "$0" "$@" 2>&1"#]).arg(waiting.get_program()).args(waiting.get_args());
    both.env("TIDEMILL_STORE", mill.url()).env("NO_COLOR", "1").env("TIDEMILL_LOG", "error");
    let mut waiting = Process::spawn(&mut both).unwrap();
    waiting.wait_for_line("enqueued", PATIENCE).unwrap();
    cluster.kill_9().unwrap();
    let said = waiting.wait_for_line("waiting until it is back", PATIENCE).unwrap();
    assert!(said.contains("/postgres: "), "{said}");
    cluster.restart().unwrap();
    let worker = mill.work(&["--exec", "echo hello", "--kind", "k"]);
    assert_eq!(waiting.next_line(PATIENCE).as_deref(), Some("\"hello\""), "it is said once");
    assert!(waiting.wait(PATIENCE).unwrap().success());
    stop(worker);
}
