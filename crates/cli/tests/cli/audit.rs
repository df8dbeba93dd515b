//! Who did what from a terminal.

use crate::mill::Mill;

fn recorded(mill: &Mill) {
    let id = mill.enqueue(&["pay", r#"{"card":"visa-old"}"#]);
    mill.run(&["jobs", "priority", &id, "high"]).ok();
    mill.run(&["jobs", "cancel", &id, "--reason", "private"]).ok();
    mill.run(&["jobs", "list"]).ok();
    mill.run(&["queues", "pause", "mail"]).ok();
    mill.run(&["dead", "archive", "--all", "--yes"]).ok().says("no dead letter matches");
    mill.run(&["dead", "apply", &id]).code(3).says("plan_unknown");
    let made = mill.run(&["token", "create", "shop", "--role", "viewer"]).ok();
    mill.run(&["token", "revoke", made.stdout.trim()]).ok();
    let acts = mill.rows(&["audit", "--json"]);
    let told: Vec<_> = acts
        .iter()
        .rev()
        .map(|act| ["act", "target", "result"].map(|field| act[field].as_str().unwrap()))
        .collect();
    let expected = [
        ["jobs priority", &id, "ok"],
        ["jobs cancel", &id, "ok"],
        ["queues pause", "mail", "ok"],
        ["dead archive", "", "nothing"],
        ["dead apply", &id, "plan_unknown"],
        ["token create", "shop", "ok"],
        ["token revoke", "tdm_…", "ok"],
    ];
    assert_eq!(told, expected);
    for act in &acts {
        assert!(act["who"].as_str().unwrap().starts_with("cli:"), "{act}");
        assert!(act["credential"].is_null() && act["ended_at"].is_string(), "{act}");
        for secret in ["visa-old", "private", made.stdout.trim()] {
            assert!(!act.to_string().contains(secret), "{act}");
        }
    }
    mill.run(&["audit", "--act", "queues pause"]).ok().says("queue mail").says("cli:");
    let page = mill.run(&["audit", "--limit", "2"]).ok();
    let last = page.stderr.rsplit(' ').next().unwrap().trim();
    assert_eq!(mill.rows(&["audit", "--before", last, "--json"]).len(), acts.len() - 2);
    assert!(mill.rows(&["audit", "--until", "1h", "--json"]).is_empty());
}

#[test]
fn what_changes_something_is_recorded_on_sqlite() {
    recorded(&Mill::sqlite());
}

#[test]
fn what_changes_something_is_recorded_on_postgres() {
    recorded(&Mill::postgres());
}
