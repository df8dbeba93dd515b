//! Tokens from the shell: told once, listed without their secrets, ended by name or id.

use std::process::Stdio;

use crate::mill::{Ended, Mill};

fn create(mill: &Mill, args: &[&str]) -> Ended {
    mill.run(&[&["token", "create"], args].concat())
}

fn life(mill: &Mill) {
    let made =
        create(mill, &["shop", "--role", "producer", "--queue", "mail:*", "--expires", "30d"]);
    let made = made.ok();
    let secret = made.stdout.trim_end();
    assert_eq!(made.stdout, format!("{secret}\n"), "stdout has the secret and nothing else");
    assert!(tidemill_core::Secret::parse(secret).is_some() && !made.stderr.contains(secret));
    made.says("this is the token shop, producer of mail:*").says("good until 20");
    let made = mill.json(&[
        "token", "create", "bot", "--role", "operator", "--tenant", "acme", "--queue", "a",
        "--queue", "b", "--json",
    ]);
    assert_eq!((&made["name"], &made["role"]), (&"bot".into(), &"operator".into()));
    assert_eq!(made["queues"], serde_json::json!(["a", "b"]));
    let (bot, id) = (made["secret"].as_str().unwrap(), made["id"].as_str().unwrap());

    let listed = mill.run(&["token", "list"]).ok();
    assert!(!listed.stdout.contains("tdm_") && listed.stdout.contains(id), "{listed:?}");
    listed
        .says("mail:*")
        .says("producer")
        .says("acme")
        .says("in 29d 23h")
        .says("never")
        .says("live");
    let rows = mill.rows(&["token", "--json"]);
    assert_eq!(rows.len(), 2);
    assert_eq!((&rows[0]["name"], &rows[0]["tenant"]), (&"bot".into(), &"acme".into()));
    assert_eq!((&rows[1]["standing"], &rows[1]["used_at"]), (&"live".into(), &().into()));
    assert!(rows.iter().all(|row| row.get("secret").is_none() && row.get("hash").is_none()));

    mill.run(&["token", "revoke", "shop"]).ok().says("within a second");
    mill.run(&["token", "revoke", "shop"]).code(3).says("credential_unknown");
    mill.run(&["token", "revoke", id]).ok().says("bot is not accepted any more");
    mill.run(&["token", "revoke", id]).ok();
    let by_secret = mill.run(&["token", "revoke", bot]).ok().says("bot");
    let typo = mill.run(&["token", "revoke", &bot[..50]]).code(3).says("credential_unknown");
    assert!(![by_secret.stderr, typo.stderr].concat().contains(&bot[4..50]));
    let rows = mill.rows(&["token", "list", "--json"]);
    assert!(rows.iter().all(|row| row["standing"] == "revoked" && row["revoked_at"].is_string()));
    create(mill, &["shop", "--role", "viewer"]).ok().says("good until it is revoked");
}

#[test]
fn a_token_lives_on_sqlite() {
    life(&Mill::sqlite());
}

#[test]
fn a_token_lives_on_postgres() {
    life(&Mill::postgres());
}

fn refusals(mill: &Mill) {
    create(mill, &["taken", "--role", "viewer"]).ok();
    let many: Vec<&str> = std::iter::repeat_n(["--queue", "q"], 101).flatten().collect();
    for (args, exit, says) in [
        (vec!["x", "--role", "root"], 2, "word_unknown"),
        (vec!["", "--role", "viewer"], 2, "name_empty"),
        (vec!["taken", "--role", "admin"], 5, "credential_taken"),
        (vec!["x", "--role", "viewer", "--expires", "-5d"], 2, "is not a duration"),
        (vec!["x", "--role", "viewer", "--expires", "0s"], 2, "credential_invalid"),
        (vec!["x", "--role", "viewer", "--expires", "9999w"], 2, "credential_invalid"),
        (vec!["x", "--role", "admin", "--queue", "mail"], 2, "credential_invalid"),
        (vec!["x", "--role", "worker", "--tenant", "acme"], 2, "jobs of all tenants"),
        (vec!["x", "--role", "viewer", "--queue", "a*b"], 2, "a star stands at the end alone"),
        (vec!["x", "--role", "viewer", "--queue", ""], 2, "name_empty"),
        (vec!["x", "--role", "viewer", "--tenant", ""], 2, "name_empty"),
        ([&["x", "--role", "viewer"], &many[..]].concat(), 2, "credential_invalid"),
        (vec!["x"], 2, "--role"),
    ] {
        let ended = create(mill, &args).code(exit).says(says);
        assert_eq!(ended.stdout, "", "{args:?}");
    }
    assert_eq!(mill.rows(&["token", "--json"]).len(), 1);
}

#[test]
fn wishes_that_make_no_sense_are_refused_on_sqlite() {
    refusals(&Mill::sqlite());
}

#[test]
fn wishes_that_make_no_sense_are_refused_on_postgres() {
    refusals(&Mill::postgres());
}

#[test]
fn a_token_that_could_not_be_shown_is_said_to_be_there() {
    let mill = Mill::sqlite();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = mill.command(&["token", "create", "shop", "--role", "viewer"]);
    let child = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("could not be shown") && stderr.contains("token revoke shop"),
        "{stderr}"
    );
}

#[test]
fn looking_at_tokens_makes_no_database() {
    let mill = Mill::sqlite();
    mill.run(&["token", "list"]).code(6).says("store_missing");
    mill.run(&["token", "revoke", "x"]).code(6).says("store_missing");
    create(&mill, &["x", "--role", "root"]).code(2);
    mill.run(&["token"]).code(6);
}
