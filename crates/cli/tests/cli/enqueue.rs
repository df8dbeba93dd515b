//! One job from the command line to its output.

use crate::mill::{Mill, feed, stop};

fn round_trip(mill: &Mill) {
    let id = mill.enqueue(&["echo", r#"{"n":9007199254740993}"#, "--queue", "q", "--tag", "t"]);
    let rows = mill.rows(&["jobs", "list", "--json", "--tag", "t"]);
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0]["id"].as_str(), rows[0]["state"].as_str()), (Some(&*id), Some("ready")));
    let worker = mill.work(&["--exec", "cat", "--kind", "echo", "--queue", "q"]);
    mill.run(&["jobs", "wait", &id, "--timeout", "30s"]).ok().says(r#"{"n":9007199254740993}"#);
    stop(worker);
    assert_eq!(mill.state(&id)["state"], "done");
    assert!(mill.rows(&["workers", "--json"]).is_empty());
}

#[test]
fn a_job_goes_round_on_sqlite() {
    round_trip(&Mill::sqlite());
}

#[test]
fn a_job_goes_round_on_postgres() {
    round_trip(&Mill::postgres());
}

#[test]
fn waiting_prints_the_output_or_says_why_there_is_none() {
    let mill = Mill::sqlite();
    let worker = mill.work(&["--exec", "echo oh no >&2; exit 65", "--kind", "bad"]);
    let ok = mill.work(&["--exec", "echo hello", "--kind", "good"]);
    let ended = mill.run(&["enqueue", "good", "--wait", "--timeout", "30s"]).ok();
    assert_eq!(ended.stdout, "\"hello\"\n");
    mill.run(&["enqueue", "bad", "--wait"]).code(1).says("is dead: oh no");
    mill.run(&["enqueue", "unknown", "--wait", "--timeout", "10ms"]).code(7).says("wait_timeout");
    stop(worker);
    stop(ok);
}

#[test]
fn duplicates_are_rejected_joined_or_forced() {
    let mill = Mill::sqlite();
    let first = mill.enqueue(&["k", "--unique-key", "u"]);
    mill.run(&["enqueue", "k", "--unique-key", "u"])
        .code(5)
        .says(&first)
        .says("duplicate_rejected");
    let joined =
        mill.run(&["enqueue", "k", "--unique-key", "u", "--on-duplicate", "join", "--json"]);
    let joined = joined.ok().says(r#""answer":"joined""#).says(&first);
    assert!(joined.stderr.is_empty());
    let forced = mill.enqueue(&["k", "--unique-key", "u", "--force"]);
    assert_ne!(forced, first);
}

#[test]
fn a_window_to_spread_over_has_a_bound() {
    let mill = Mill::sqlite();
    let (server, url) = mill.serve(&[]);
    for window in ["3661d", "106751991167d", "99999999999d"] {
        let wish = format!(r#"{{"kind":"k","key":"a","spread":"{window}"}}"#);
        let args = ["enqueue", "k", "--key", "a", "--spread", window];
        mill.run(&args).code(2).says("[duration_invalid]").says("10 years");
        mill.ask(&url, &args).code(2).says("[duration_invalid]");
        mill.run_with(&["enqueue", "--lines"], &wish).code(2).says("[duration_invalid]");
        let mut curl = std::process::Command::new("curl");
        curl.args(["-s", "--json", &wish, &format!("{url}/v1/jobs")]);
        feed(curl, "").ok().says(r#""status":400"#).says("duration_invalid");
    }
    mill.enqueue(&["k", "--key", "a", "--spread", "3660d"]);
    assert_eq!(mill.rows(&["jobs", "list", "--json"]).len(), 1);
    stop(server);
}

fn takes_its_turn(mill: &Mill) {
    let first = mill.enqueue(&["k", "--key", "order:42", "--ordered"]);
    let second = mill.enqueue(&["k", "--key", "order:42", "--ordered=skip", "--queue", "default"]);
    assert_eq!(mill.state(&first)["state"], "ready");
    assert_eq!(mill.state(&second)["state"], "blocked");
    mill.run(&["jobs", "why", &second])
        .ok()
        .says(&format!("number 2 of the line of key order:42; first is {first}"));
    mill.run(&["jobs", "retry", &second]).code(5);
    mill.run(&["jobs", "cancel", &first]).ok();
    assert_eq!(mill.state(&second)["state"], "ready");
    mill.run(&["enqueue", "k", "--ordered"]).code(2).says("key_missing");
    mill.run(&["enqueue", "k", "--key", "a", "--ordered=shrug"]).code(2);
}

#[test]
fn a_job_takes_its_turn_on_sqlite() {
    takes_its_turn(&Mill::sqlite());
}

#[test]
fn a_job_takes_its_turn_on_postgres() {
    takes_its_turn(&Mill::postgres());
}

#[test]
fn bad_input_is_refused_with_its_code_and_writes_nothing() {
    let mill = Mill::sqlite();
    mill.run(&["migrate"]).ok();
    let long = "x".repeat(201);
    for (args, code) in [
        (vec!["k", "{"], "payload_not_json"),
        (vec!["k", "\"\\u0000\""], "payload_nul"),
        (vec!["", "1"], "name_empty"),
        (vec![&*long], "name_too_long"),
        (vec!["k", "\"xxxxxxxxxx\"", "--max-payload-bytes", "5"], "payload_too_large"),
        (vec!["k", "--run-at", "2999-01-01T00:00:00Z"], "due_too_far"),
        (vec!["k", "--delay", "5"], "is not a duration"),
        (vec!["k", "--delay", "-5s"], "is not a duration"),
        (vec!["k", "--delay=soon"], "error[usage]: "),
        (vec!["k", "--colour"], "error[usage]: "),
        (vec!["k", "--priority", "fast"], "is not a priority"),
        (vec!["k", "--force"], "wish_contradiction"),
        (vec!["k", "--attempts", "0"], "--attempts"),
    ] {
        mill.run(&[vec!["enqueue"], args].concat()).code(2).says(code);
    }
    assert!(mill.rows(&["jobs", "list", "--json"]).is_empty());
    for bad in [vec!["k", "--id", "nope"], vec!["k", "--colour"], vec![]] {
        let ended = mill.run(&[vec!["--json", "enqueue"], bad].concat()).code(2);
        let error: serde_json::Value = serde_json::from_str(&ended.stderr).unwrap();
        assert_eq!(error["error"]["code"], "usage", "{error}");
        assert!(!error["error"]["message"].as_str().unwrap().is_empty());
    }
}

#[test]
fn a_payload_is_read_from_stdin() {
    let mill = Mill::sqlite();
    let id = mill.run_with(&["enqueue", "k", "-"], "{\"a\":\n1}").ok().stdout;
    assert_eq!(mill.state(id.trim())["payload"], serde_json::json!({ "a": 1 }));
}

/// What a job does not name of its retries is as its worker says.
fn names_a_part_of_its_retries(mill: &Mill) {
    let soon = mill.enqueue(&["k", "--backoff", "1ms"]);
    let rarely = mill.enqueue(&["k", "--attempts", "3"]);
    let own = mill.enqueue(&["k", "--attempts", "1"]);
    let options = |id: &str| mill.state(id)["options"]["retry"].clone();
    assert_eq!(options(&rarely), serde_json::json!({ "attempts_max": 3 }));
    assert_eq!(options(&soon)["attempts_max"], serde_json::Value::Null);
    let work = ["--exec", "exit 1", "--kind", "k", "--attempts", "2", "--backoff", "1h"];
    let worker = mill.work(&work);
    mill.run(&["jobs", "wait", &soon, "--timeout", "30s"]).code(1);
    mill.run(&["jobs", "wait", &own, "--timeout", "30s"]).code(1);
    stop(worker);
    assert_eq!(
        (&mill.state(&soon)["attempt"], &mill.state(&own)["attempt"]),
        (&2.into(), &1.into())
    );
    let waits = mill.state(&rarely);
    assert_eq!((waits["state"].as_str(), &waits["attempt"]), (Some("scheduled"), &1.into()));
    mill.run(&["jobs"]).ok().says("again in 59m");
}

#[test]
fn a_job_names_a_part_of_its_retries_on_sqlite() {
    names_a_part_of_its_retries(&Mill::sqlite());
}

#[test]
fn a_job_names_a_part_of_its_retries_on_postgres() {
    names_a_part_of_its_retries(&Mill::postgres());
}

fn is_due_now_if_its_time_has_passed(mill: &Mill) {
    for time in ["1969-07-20T20:17:40Z", "0001-01-01T00:00:00Z", "-009999-01-02T01:59:59Z"] {
        let (run_at, key) = (format!("--run-at={time}"), format!("--unique-key={time}"));
        for more in [&[][..], &[key.as_str()]] {
            let id = mill.enqueue(&[&["k", run_at.as_str()], more].concat());
            assert_eq!(mill.state(&id)["state"], "ready", "{time}");
        }
    }
}

#[test]
fn a_time_that_has_long_passed_means_now_on_sqlite() {
    is_due_now_if_its_time_has_passed(&Mill::sqlite());
}

#[test]
fn a_time_that_has_long_passed_means_now_on_postgres() {
    is_due_now_if_its_time_has_passed(&Mill::postgres());
}

#[test]
fn what_cannot_be_meant_is_refused_in_plain_words() {
    let mill = Mill::sqlite();
    for (args, said) in [
        (vec!["k", "--run-at", "9999-12-31T23:59:59Z"], "is not a time; write one like"),
        (vec!["k", "--run-at", "tomorrow"], "\"tomorrow\" is not a time; write one like"),
        (vec!["k", "--id", "42"], "\"42\" is not an id; one is a UUID like"),
        (vec!["k", "--timeout", "5s"], "--timeout has no meaning without --wait"),
        (vec!["k", "--unique-key", "u", "--unique-scope", "0s"], "rule_invalid"),
        (vec!["k", "--start-within", "0s"], "rule_invalid"),
        (vec!["k", "--finish-within", "0s"], "rule_invalid"),
        (vec![" "], "name_invalid"),
        (vec!["k", "--queue", "q "], "begins or ends with white space"),
        (vec!["k", "--trace", "bogus"], "trace_invalid"),
    ] {
        mill.run(&[&["enqueue"], &args[..]].concat()).code(2).says(said);
    }
    mill.run(&["jobs", "show", "42"]).code(2).says("is not an id; one is a UUID like");
    let line = r#"{"kind":"k","run_at":"someday"}"#;
    mill.run_with(&["enqueue", "--lines"], line).code(2).says("\"someday\" is not a time");
}
