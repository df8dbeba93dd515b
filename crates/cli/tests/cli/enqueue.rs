//! One job from the command line to its output.

use crate::mill::{Mill, stop};

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
