//! Schedules from the shell: set, looked at, run, filled, and refused when they make no sense.

use crate::mill::{Mill, PATIENCE, stop};

fn life(mill: &Mill) {
    let set = ["schedules", "set", "nightly", "report", r#"{"n":9007199254740993}"#];
    let wishes = ["--cron", "30 2 * * *", "--zone", "Europe/Berlin", "--queue", "reports"];
    mill.run(&[&set[..], &wishes].concat()).ok().says("fires next in");
    mill.run(&["schedules"]).ok().says("nightly").says("Europe/Berlin");
    let shown = mill.json(&["schedules", "show", "nightly", "--json"]);
    assert_eq!(shown["schedule"]["job"]["queue"], "reports");
    assert_eq!(shown["schedule"]["owner"], "cli");
    assert_eq!(shown["coming"].as_array().unwrap().len(), 5);
    mill.run(&["schedules", "show", "nightly"]).ok().says("9007199254740993").says("+0");
    assert_eq!(mill.rows(&["schedules", "preview", "nightly", "-n", "3", "--json"]).len(), 3);

    mill.run(&["schedules", "pause", "nightly"]).ok();
    assert_eq!(mill.rows(&["schedules", "list", "--json"])[0]["paused"], true);
    mill.run(&["schedules", "resume", "nightly"]).ok();
    let id = mill.run(&["schedules", "run", "nightly"]).ok().stdout.trim().to_owned();
    assert_eq!(mill.state(&id)["kind"], "report");
    let tag = ["jobs", "list", "--tag", "schedule:nightly", "--json"];
    assert_eq!(mill.rows(&tag).len(), 1);

    let fill = ["schedules", "backfill", "nightly", "--from", "3d", "--json"];
    let dry = mill.rows(&[&fill[..], &["--dry-run"]].concat());
    assert_eq!((dry.len(), dry[0]["fired"].as_bool()), (3, Some(false)));
    assert!(mill.rows(&fill).iter().all(|slot| slot["what"] == "fired"));
    assert!(mill.rows(&fill).iter().all(|slot| slot["what"] == "known"));
    let history = mill.rows(&["schedules", "history", "nightly", "--json"]);
    assert_eq!(history.len(), 4);
    mill.run(&["schedules", "history", "nightly"]).ok().says("backfill").says("run now");

    mill.run(&["schedules", "delete", "nightly", "--owner", "other"])
        .code(5)
        .says("schedule_owned");
    mill.run(&["schedules", "delete", "nightly"]).ok();
    mill.run(&["schedules", "show", "nightly"]).code(3).says("schedule_unknown");

    let wanted = mill.file("schedules.json");
    let one = r#"{"schedules":{"hourly":{"every":"1h","job":{"kind":"ping"}}}}"#;
    std::fs::write(&wanted, one).unwrap();
    let declare = ["schedules", "declare", "billing", &wanted];
    let dry = [&declare[..], &["--dry-run"]].concat();
    mill.run(&dry).ok().says("hourly").says("make").says("nothing was written");
    assert!(mill.rows(&["schedules", "list", "--json"]).is_empty());
    assert_eq!(mill.json(&[&declare[..], &["--json"]].concat())["made"][0], "hourly");
    mill.run(&declare).ok().says("unchanged").says("0 changes");
    mill.run(&["schedules", "declare", "other", &wanted]).code(5).says("schedule_owned");
    let twice = r#"{"schedules":{"a":{"every":"1h","job":{"kind":"k"}},"a":{"every":"2h","job":{"kind":"k"}}}}"#;
    std::fs::write(&wanted, twice).unwrap();
    mill.run(&declare).code(2).says("schedule_twice");
    assert_eq!(mill.rows(&["schedules", "list", "--json"])[0]["name"], "hourly");
}

#[test]
fn a_schedule_lives_on_sqlite() {
    life(&Mill::sqlite());
}

#[test]
fn a_schedule_lives_on_postgres() {
    life(&Mill::postgres());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mill = Mill::sqlite();
    let set = ["schedules", "set", "s", "k"];
    for (wishes, code) in [
        (vec![], "usage"),
        (vec!["--cron", "nonsense"], "schedule_cron_invalid"),
        (vec!["--cron", "0 0 30 2 *"], "schedule_never_fires"),
        (vec!["--cron", "@daily", "--zone", "Mars/Olympus"], "schedule_zone_unknown"),
        (vec!["--every", "0s"], "schedule_every_invalid"),
        (vec!["--at", "2020-01-01T00:00:00Z"], "schedule_over"),
        (vec!["--cron", "@daily", "--delay", "1m"], "schedule_contradiction"),
        (
            vec!["--cron", "@daily", "--id", "018f3a2e-7c11-7bbb-8000-5fd1e2a0c0de"],
            "each slot makes a job with an id of its own",
        ),
        (vec!["--cron", "0 25 * * *"], "the hour \"25\" is not one; write 0 to 23"),
        (
            vec!["--at", "2030-01-01T09:00:00Z", "--except", "2030-01-01"],
            "every slot it could still have is on a date that is excepted",
        ),
        (
            vec!["--cron", "@daily", "--spread", "1h", "--spread-keys", "a,b", "--overlap", "skip"],
            "schedule_contradiction",
        ),
    ] {
        mill.run(&[&set[..], &wishes].concat()).code(2).says(code);
    }
    mill.run(&["schedules", "set", "s", "k", "--cron", "@daily", "--every", "5m"]).code(2);
    mill.run(&["schedules", "set", "s", "k", "--cron", "@daily"]).ok();
    assert_eq!(mill.rows(&["schedules", "list", "--json"]).len(), 1);
}

fn keyed(mill: &Mill) {
    let set = ["schedules", "set", "digests", "digest", "--cron", "@daily", "--spread", "1h"];
    mill.run(&[&set[..], &["--spread-keys", "acme,globex"]].concat()).ok();
    let coming = mill.rows(&["schedules", "preview", "digests", "-n", "1", "--json"]);
    let keys = coming[0]["keys"].as_array().unwrap();
    assert_eq!((keys.len(), &keys[0]["due_at"]), (2, &coming[0]["due_at"]));
    assert_ne!(keys[0]["due_at"], keys[1]["due_at"]);
    let shown = mill.run(&["schedules", "preview", "digests", "-n", "1"]).ok().stdout;
    for key in ["acme", "globex"] {
        let line = shown.lines().find(|line| line.contains(key)).unwrap();
        assert!(line.ends_with("later"), "{shown}");
    }
    mill.run(&["schedules", "show", "digests"]).ok().says("later, 2 keys");
    mill.run(&["schedules", "preview", "digests", "--zone", "UTC"]).code(2);
    let ran = mill.json(&["schedules", "run", "digests", "--json"]);
    for own in ran["keys"].as_array().unwrap() {
        assert_eq!(mill.state(own["job"].as_str().unwrap())["key"], own["key"]);
    }
    let ran = mill.run(&["schedules", "run", "digests"]).ok().says("2 jobs enqueued");
    assert!(ran.stdout.contains("acme") && ran.stdout.contains("globex"), "{ran:?}");
}

#[test]
fn each_key_is_shown_with_its_time_on_sqlite() {
    keyed(&Mill::sqlite());
}

#[test]
fn each_key_is_shown_with_its_time_on_postgres() {
    keyed(&Mill::postgres());
}

#[test]
fn a_rule_is_previewed_without_a_store() {
    let mill = Mill::sqlite();
    let look = ["schedules", "preview", "--cron", "0 0 L * *", "--zone", "Asia/Kathmandu"];
    mill.run(&look).ok().says("00:00:00 +05:45");
    assert!(!std::path::Path::new(&mill.file("test.db")).exists(), "looking makes no database");
}

#[test]
fn a_worker_fires_what_is_set_while_it_runs() {
    let mill = Mill::sqlite();
    let worker = mill.work(&["--exec", "echo progress 1 ticked >&2", "--kind", "tick"]);
    mill.run(&["schedules", "set", "s", "tick", "--every", "1s", "--overlap", "queue_one"]).ok();
    worker.wait_for_line("ticked", PATIENCE).unwrap();
    stop(worker);
}

#[test]
fn a_run_that_overlaps_is_a_conflict() {
    let mill = Mill::sqlite();
    mill.run(&["schedules", "set", "s", "k", "--cron", "@daily", "--overlap", "skip"]).ok();
    mill.run(&["schedules", "run", "s"]).ok();
    mill.run(&["schedules", "run", "s"]).code(5).says("schedule_overlap");
}
