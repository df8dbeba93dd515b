//! With `--json` a command that changes something says on stdout what became of it.

use serde_json::Value;

use crate::mill::{Mill, stop};

/// Each of these is one document at least, and nothing else.
fn every_change_is_told(mill: &Mill) {
    let dead = mill.enqueue(&["boom", "--attempts", "1"]);
    let worker = mill.work(&["--exec", "exit 65", "--kind", "boom"]);
    mill.run(&["jobs", "wait", &dead, "--timeout", "30s"]).code(1);
    stop(worker);
    let waits = mill.enqueue(&["k", "--delay", "1h"]);
    let flow = mill.file("flow.json");
    std::fs::write(&flow, r#"{"name":"f","steps":[{"name":"a","kind":"k","delay_ms":3600000}]}"#)
        .unwrap();
    let hook = "https://example.com/in";
    for (line, answer) in [
        ("queues set q --attempts 2", None),
        ("queues pause q", Some("paused")),
        ("queues resume q", Some("resumed")),
        ("queues unset q", Some("unset")),
        ("queues unset q", Some("nothing")),
        ("limits set l --concurrency 2", Some("set")),
        ("limits delete l", Some("deleted")),
        ("schedules set s k --every 1h", None),
        ("schedules pause s", Some("paused")),
        ("schedules resume s", Some("resumed")),
        ("schedules run s", None),
        ("schedules delete s", Some("deleted")),
        ("dead rules set r --max 1", None),
        ("dead rules delete r", Some("deleted")),
        ("dead note DEAD --message m", None),
        ("dead investigate DEAD --message m --yes", None),
        ("dead replay DEAD --yes", None),
        ("token create t --role producer", None),
        ("token revoke t", Some("revoked")),
        ("webhooks set w HOOK", None),
        ("webhooks set w HOOK --paused", None),
        ("webhooks rotate w", None),
        ("webhooks delete w", Some("deleted")),
        ("jobs priority WAITS high", None),
        ("jobs retry WAITS", None),
        ("jobs cancel WAITS", Some("cancelled")),
        ("flows start FLOW", None),
        ("enqueue k", None),
    ] {
        let word = |word: &str| match word {
            "DEAD" => dead.clone(),
            "WAITS" => waits.clone(),
            "FLOW" => flow.clone(),
            "HOOK" => hook.to_owned(),
            word => word.to_owned(),
        };
        let words: Vec<_> = line.split(' ').map(word).collect();
        let mut args: Vec<_> = words.iter().map(String::as_str).collect();
        args.push("--json");
        let told = mill.rows(&args);
        assert!(!told.is_empty() && told.iter().all(Value::is_object), "{line}: {told:?}");
        if let Some(answer) = answer {
            assert_eq!(told[0]["answer"], answer, "{line}: {told:?}");
        }
    }
}

#[test]
fn every_change_is_told_on_sqlite() {
    every_change_is_told(&Mill::sqlite());
}

#[test]
fn every_change_is_told_on_a_server() {
    let mill = Mill::sqlite();
    let (server, url) = mill.serve(&[]);
    for (line, answer) in [
        (["queues", "pause", "q", "--json"], "paused"),
        (["queues", "resume", "q", "--json"], "resumed"),
    ] {
        let ended = mill.ask(&url, &line).ok();
        let told: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!((&told["name"], &told["answer"]), (&"q".into(), &answer.into()));
    }
    stop(server);
}
