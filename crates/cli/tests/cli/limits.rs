//! Limits from the shell: set, seen, followed, explained, and refused when they make no sense.

use tidemill_testkit::eventually::until;

use crate::mill::{Mill, PATIENCE, stop};

fn life(mill: &Mill) {
    let set =
        ["limits", "set", "stripe", "--kind", "charge", "--per", "tenant", "--concurrency", "1"];
    mill.run(&set).ok().says("1 at once for each tenant");
    mill.run(&["limits"]).ok().says("stripe").says("charge").says("by tenant");
    let paced = |more: &[&str]| {
        mill.run(&[&["limits", "set", "paced", "--rate", "9/s"][..], more].concat()).ok()
    };
    paced(&["--burst", "5"]).says("9/s burst 5");
    paced(&[]).says("its burst was 5 and is 1 now; --burst 5 keeps it");
    mill.run(&["limits", "delete", "paced"]).ok();
    let rows = mill.rows(&["limits", "list", "--json"]);
    assert_eq!((&rows[0]["name"], &rows[0]["concurrency"]), (&"stripe".into(), &1.into()));
    mill.run(&["queues", "set", "mail", "--rate", "100/s", "--burst", "5", "--concurrency", "9"])
        .ok()
        .says("9 at once, 100/s burst 5");
    mill.run(&["queues", "set", "mail", "--rate", "50/s"]).ok().says("9 at once, 50/s burst 5");
    mill.run(&[
        "queues",
        "set",
        "mail",
        "--rate",
        "none",
        "--hold",
        "key",
        "--retry-percent",
        "20",
    ])
    .ok()
    .says("9 at once, its keys rest when asked to, 20 % retries");

    // One runs and waits for a file; the other of the same tenant is held by the limit.
    let go = mill.file("go");
    let pipe = std::process::Command::new("mkfifo").arg(&go).status().unwrap();
    assert!(pipe.success());
    let exec = format!("cat {go}");
    let worker = mill.work(&["--exec", &exec, "--kind", "charge", "--concurrency", "4"]);
    let first = mill.enqueue(&["charge", "--tenant", "acme"]);
    let is_running = || (mill.state(&first)["state"] == "running").then_some(());
    until(PATIENCE, is_running).expect("the first runs");
    let second = mill.enqueue(&["charge", "--tenant", "acme"]);
    let why = mill.json(&["jobs", "why", &second, "--json"]);
    assert_eq!(why["gates"][0]["gate"], "limit");
    mill.run(&["jobs", "why", &second]).ok().says("limit stripe of * for acme is full: 1 of 1 run");
    mill.run(&["limits"]).ok().says("HELD").says("full for some");
    assert_eq!(mill.rows(&["limits", "--json"])[0]["held"], 1);
    // The same at a limit of the whole queue: what it holds back stands at no gate.
    mill.run(&["limits", "set", "narrow", "--queue", "default", "--concurrency", "1"]).ok();
    mill.enqueue(&["charge", "--tenant", "other"]);
    let narrow = |mill: &Mill| {
        let rows = mill.rows(&["limits", "--json"]);
        rows.into_iter().find(|row| row["name"] == "narrow").unwrap()
    };
    let row = narrow(mill);
    assert_eq!((&row["inside"], &row["held"]), (&1.into(), &2.into()), "{row}");
    assert_eq!(row["is_full"], true);
    let list = mill.run(&["limits"]).ok();
    let line = list.stdout.lines().find(|line| line.contains("narrow")).unwrap().to_owned();
    assert!(line.contains("full") && !line.contains("lets pass"), "{line}");
    mill.run(&["limits", "delete", "narrow", "--queue", "default"]).ok();
    // Each reader ends when a writer has come and gone.
    for id in [&first, &second] {
        std::fs::write(&go, "1").unwrap();
        mill.run(&["jobs", "wait", id, "--timeout", "30s"]).ok();
    }
    stop(worker);

    mill.run(&["limits", "delete", "stripe"]).ok();
    mill.run(&["limits", "delete", "stripe"]).code(3).says("limit_unknown");
}

#[test]
fn a_limit_lives_on_sqlite() {
    life(&Mill::sqlite());
}

#[test]
fn a_limit_lives_on_postgres() {
    life(&Mill::postgres());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mill = Mill::sqlite();
    for (wishes, code) in [
        (vec!["limits", "set", "x"], "rule_invalid"),
        (vec!["limits", "set", "x", "--concurrency", "0"], "rule_invalid"),
        (vec!["limits", "set", "x", "--concurrency", "5000000"], "give at most 1000000"),
        (vec!["limits", "set", "x", "--concurrency", "1", "--lacking", "pass"], "counts by none"),
        (vec!["limits", "set", "x", "--rate", "5000000/h"], "such as 1388/s"),
        (vec!["limits", "set", "x", "--rate", "0/s"], "rule_invalid"),
        (vec!["limits", "set", "hold", "--concurrency", "1"], "rule_invalid"),
        (vec!["limits", "set", "x", "--breaker", "10s", "--failures", "0"], "rule_invalid"),
        (vec!["limits", "set", "x", "--rate", "often"], "is not a rate"),
        (vec!["queues", "set", "q", "--retry-percent", "101"], "rule_invalid"),
    ] {
        mill.run(&wishes).code(2).says(code);
    }
    assert!(mill.rows(&["limits", "--json"]).is_empty());
}
