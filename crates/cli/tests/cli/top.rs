//! `tidemill top` without a terminal: one look as text, one as JSON.

use crate::mill::{Mill, stop};

fn looks(mill: &Mill) {
    mill.enqueue(&["resize", "{}", "--queue", "images"]);
    let done = mill.enqueue(&["greet", "{}", "--queue", "mail"]);
    let worker = mill.work(&["--exec", "cat", "--kind", "greet", "--queue", "mail"]);
    mill.run(&["jobs", "wait", &done, "--timeout", "30s"]).ok();
    let top = mill.run(&["top", "--once"]).ok().stdout;
    for part in ["tidemill on ", "2 queues", "images", "mail", "1 worker", "no live worker knows"] {
        assert!(top.contains(part), "no {part:?} in\n{top}");
    }
    let picture = mill.json(&["top", "--json"]);
    let queue = |name: &str| {
        let queues = picture["queues"].as_array().unwrap();
        queues.iter().find(|queue| queue["name"] == name).unwrap().clone()
    };
    assert_eq!(queue("images")["ready"], 1);
    assert_eq!(queue("mail")["ready"], 0);
    assert!(queue("mail")["p95_ms"].is_u64(), "a job has finished there: {picture}");
    assert_eq!(picture["workers"].as_array().unwrap().len(), 1);
    assert_eq!(picture["alerts"][0]["alert"], "no_worker");
    stop(worker);
    mill.run(&["top"]).code(2).says("--once");
}

#[test]
fn top_looks_once_on_sqlite() {
    looks(&Mill::sqlite());
}

#[test]
fn top_looks_once_on_postgres() {
    looks(&Mill::postgres());
}
