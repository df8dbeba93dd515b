//! Dead letters from death to recovery.

use crate::mill::{Mill, PATIENCE, stop};

/// Lets these jobs die of the same error; answers their ids.
fn dead(mill: &Mill, payloads: &[&str]) -> Vec<String> {
    let ids: Vec<_> = payloads.iter().map(|payload| mill.enqueue(&["pay", payload])).collect();
    let worker = mill.work(&["--exec", "echo card 42 refused >&2; exit 65", "--kind", "pay"]);
    for id in &ids {
        mill.run(&["jobs", "wait", id, "--timeout", "30s"]).code(1);
    }
    stop(worker);
    ids
}

fn flow(mill: &Mill) {
    let ids = dead(mill, &[r#"{"user":{"id":1}}"#, r#"{"user":{"id":2}}"#]);
    let groups = mill.rows(&["dead", "groups", "--json"]);
    assert_eq!((groups.len(), &groups[0]["count"]), (1, &2.into()));
    let found = mill.rows(&["dead", "list", "--json", "--field", "user.id=2", "--since", "1h"]);
    assert_eq!((found.len(), found[0]["id"].as_str()), (1, Some(&*ids[1])));
    mill.run(&["dead", "note", &ids[0], "-m", "asked the bank", "--by", "ada"]).ok();
    mill.run(&["dead", "note", &ids[0], "-m", " "]).code(2).says("name_empty");
    mill.run(&["dead", "investigate", &ids[0]]).ok();
    mill.run(&["dead", "show", &ids[0]]).ok().says("ada: asked the bank").says("investigated");
    mill.run(&["dead", "replay", "--kind", "pay"]).code(2).says("confirmation_needed");
    let fingerprint = groups[0]["fingerprint"].as_str().unwrap();
    let worker = mill.work(&["--exec", "true", "--kind", "pay"]);
    mill.run(&["dead", "replay", "--fingerprint", fingerprint, "--yes"]).ok().says("replayed 2");
    for id in &ids {
        mill.run(&["jobs", "wait", id, "--timeout", "30s"]).ok();
    }
    stop(worker);
    assert_eq!(mill.state(&ids[0])["state"], "done");
}

#[test]
fn dead_letters_are_grouped_noted_and_replayed_on_sqlite() {
    flow(&Mill::sqlite());
}

#[test]
fn dead_letters_are_grouped_noted_and_replayed_on_postgres() {
    flow(&Mill::postgres());
}

fn planned(mill: &Mill) {
    let ids = dead(mill, &["1", "2", "3"]);
    let all = mill.rows(&["dead", "list", "--json"]);
    let shown = mill.run(&["dead", "list", "--limit", "2"]).ok();
    let place = shown.stderr.rsplit(' ').next().unwrap().trim();
    let rest = mill.rows(&["dead", "list", "--limit", "2", "--before", place, "--json"]);
    assert_eq!((rest.len(), &rest[0]["id"]), (1, &all[2]["id"]));

    mill.run(&["dead", "archive", "--kind", "pay"]).code(2).says("confirmation_needed");
    let plan = mill.json(&["dead", "archive", "--kind", "pay", "--plan", "--json"]);
    assert_eq!((&plan["letters"], &plan["stage"]), (&3.into(), &"made".into()));
    let plan = plan["id"].as_str().unwrap();
    mill.run(&["dead", "undo", plan]).code(5).says("plan_not_now");
    mill.run(&["dead", "apply", plan]).ok().says("archived 3 dead letters").says("dead undo");
    assert!(mill.rows(&["dead", "list", "--json"]).is_empty());
    mill.run(&["dead", "undo", plan]).ok().says("undone: 3 of 3");
    assert_eq!(mill.rows(&["dead", "list", "--json"]).len(), 3);
    mill.run(&["dead", "plans"]).ok().says(plan).says("undone");

    let plan = mill.json(&["dead", "replay", "--all", "--plan", "--json"]);
    let plan = plan["id"].as_str().unwrap();
    mill.run(&["dead", "apply", plan]).ok().says("replayed 3");
    mill.run(&["dead", "undo", plan]).ok().says("undone: 3 of 3");
    assert_eq!(mill.state(&ids[0])["state"], "dead");

    mill.run(&["dead", "delete", &ids[0]]).ok().says("deleted 1 dead letter");
    mill.run(&["dead", "show", &ids[0]]).code(3).says("dead_letter_unknown");
    let unknown = &ids[1];
    mill.run(&["dead", "apply", unknown]).code(3).says("plan_unknown");
}

#[test]
fn what_is_planned_is_applied_and_undone_on_sqlite() {
    planned(&Mill::sqlite());
}

#[test]
fn what_is_planned_is_applied_and_undone_on_postgres() {
    planned(&Mill::postgres());
}

#[test]
fn a_canary_that_dies_again_stops_the_replay() {
    let mill = Mill::sqlite();
    dead(&mill, &["1", "2", "3"]);
    let worker = mill.work(&["--exec", "echo card 43 refused >&2; exit 65", "--kind", "pay"]);
    let ended = mill.run(&["dead", "replay", "--all", "--yes"]).code(1);
    ended.says("canary_died").says("replayed 1 dead letter, left 2");
    stop(worker);
}

#[test]
fn a_payload_is_edited_before_a_replay() {
    let mill = Mill::sqlite();
    let ids = dead(&mill, &[r#"{"card":"wrong"}"#]);
    mill.run(&["dead", "replay", &ids[0], "--payload", "{"]).code(2).says("payload_not_json");
    let mut command = mill.command(&["dead", "replay", &ids[0], "--edit"]);
    command.env("EDITOR", "sed -i s/wrong/right/").env_remove("VISUAL");
    assert!(command.status().unwrap().success());
    assert_eq!(mill.state(&ids[0])["payload"]["card"], "right");
    mill.run(&["dead", "replay", &ids[0]]).code(5).says("not_dead");
}

#[test]
fn what_is_put_aside_is_out_of_the_way() {
    let mill = Mill::sqlite();
    let ids = dead(&mill, &["1", "2"]);
    mill.run(&["dead", "archive", &ids[0], "-m", "known"]).ok().says("archived 1 dead letter");
    mill.run(&["dead", "abandon", "--all", "--yes"]).ok().says("abandoned 1 dead letter");
    assert_eq!(mill.rows(&["dead", "list", "--json"]).len(), 1);
    let aside = mill.rows(&["dead", "list", "--json", "--archived"]);
    assert_eq!((aside.len(), &aside[0]["id"]), (1, &serde_json::json!(ids[0])));
    assert_eq!(mill.rows(&["dead", "list", "--json", "--triage", "new"]).len(), 0);
    mill.run(&["dead", "archive"]).code(2).says("nothing that says what to archive");
}

#[test]
fn what_was_replayed_is_not_given_up() {
    let mill = Mill::sqlite();
    let ids = dead(&mill, &["1", "2"]);
    mill.run(&["dead", "replay", &ids[0]]).ok();
    for verb in ["abandon", "archive", "investigate", "delete"] {
        mill.run(&["dead", verb, &ids[0], &ids[1]]).code(5).says("not_dead").says(&ids[0]);
    }
    mill.run(&["dead", "note", &ids[0], "-m", "it was the disk"]).ok().says("noted 1 dead letter");
    let left = mill.rows(&["dead", "list", "--json"]);
    assert_eq!((left.len(), &left[0]["id"]), (1, &serde_json::json!(ids[1])));
    assert_eq!(left[0]["triage"], "new", "nothing was done to the other, either");
    assert_eq!(mill.rows(&["dead", "groups", "--json"])[0]["count"], 1);
    let sent = mill.rows(&["dead", "list", "--json", "--triage", "retrying"]);
    assert_eq!((sent.len(), &sent[0]["id"]), (1, &serde_json::json!(ids[0])));
}

#[test]
fn a_dead_job_is_retried_like_any_other() {
    let mill = Mill::sqlite();
    let ids = dead(&mill, &["1"]);
    mill.run(&["jobs", "retry", &ids[0]]).ok().says("is ready again");
}

#[test]
fn rules_are_set_listed_and_deleted() {
    let mill = Mill::sqlite();
    mill.run(&["dead", "rules", "set", "busy", "--kind", "pay", "--error", "busy", "--max", "3"])
        .ok();
    let rules = mill.rows(&["dead", "rules", "--json"]);
    assert_eq!((rules.len(), &rules[0]["redrives_max"]), (1, &3.into()));
    mill.run(&["dead", "rules", "delete", "busy"]).ok();
    mill.run(&["dead", "rules", "delete", "busy"]).code(3).says("rule_unknown");
}

#[test]
fn a_rule_replays_by_itself() {
    let mill = Mill::sqlite();
    let flag = mill.file("mended");
    let exec = format!("test -e {flag} || {{ touch {flag}; echo busy >&2; exit 65; }}");
    mill.run(&["dead", "rules", "set", "busy", "--error", "busy", "--delay", "0s"]).ok();
    let id = mill.enqueue(&["pay"]);
    let worker = mill.work(&["--exec", &exec, "--kind", "pay"]);
    worker.wait_for_line("not_done", PATIENCE).unwrap();
    worker.wait_for_line("\"done\"", PATIENCE).unwrap();
    stop(worker);
    assert_eq!(mill.state(&id)["state"], "done");
}
