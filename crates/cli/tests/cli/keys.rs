//! `tidemill keys`: keys from the environment, what they hold, and their change, over processes.

use super::mill::{Ended, Mill, feed};

const MARKER: &str = "pssst-4711";

fn with(mill: &Mill, keys: &str, args: &[&str]) -> Ended {
    let file = mill.file("keys");
    std::fs::write(&file, keys).unwrap();
    let mut command = mill.command(args);
    command.env("TIDEMILL_KEYS_FILE", file);
    feed(command, "")
}

fn keys_are_changed(mill: &Mill) {
    let line = |id: &str| mill.run(&["keys", "new", id]).ok().stdout;
    let (old, new) = (line("2025"), line("2026"));
    let payload = format!("{{\"card\":\"{MARKER}\"}}");
    let id = with(mill, &old, &["enqueue", "pay", &payload]).ok().stdout.trim().to_owned();
    with(mill, &old, &["jobs", "show", &id]).ok().says(MARKER);
    mill.run(&["jobs", "show", &id]).code(6).says("encryption_key_missing").says("2025");
    with(mill, &new, &["jobs", "show", &id]).code(6).says("2025").says("TIDEMILL_KEYS_FILE");

    let both = format!("{new}{old}");
    with(mill, &both, &["keys", "list"]).ok().says("2025").says("encrypts").says("decrypts");
    with(mill, &new, &["keys", "rotate"]).code(1).says("1 rows cannot be decrypted");
    with(mill, &both, &["keys", "rotate"]).ok().says("1 of 1 encrypted rows");
    with(mill, &both, &["keys", "rotate"]).ok().says("0 of 1 encrypted rows");
    let listed = with(mill, &new, &["keys", "list", "--json"]).ok().stdout;
    let counts: serde_json::Value = serde_json::from_str(listed.trim()).unwrap();
    assert_eq!((&counts["key"], &counts["rows"]), (&"2026".into(), &1.into()));
    with(mill, &new, &["jobs", "show", &id]).ok().says(MARKER);
}

#[test]
fn keys_are_changed_on_sqlite() {
    keys_are_changed(&Mill::sqlite());
}

#[test]
fn keys_are_changed_on_postgres() {
    keys_are_changed(&Mill::postgres());
}

#[test]
fn keys_that_cannot_be_used_are_named_and_never_shown() {
    let mill = Mill::sqlite();
    mill.enqueue(&["pay"]);
    with(&mill, "2025 c2VjcmV0", &["queues"]).code(2).says("keys_invalid").says("line 1");
    assert!(!with(&mill, "2025 c2VjcmV0", &["queues"]).stderr.contains("c2VjcmV0"));
    with(&mill, "", &["queues"]).code(2).says("no key in it");
    mill.run(&["keys", "new", "a b"]).code(2).says("is no id");
    mill.run(&["keys", "rotate"]).code(2).says("TIDEMILL_KEYS_FILE");
    mill.run(&["keys", "list"]).ok().says("nothing is encrypted");
    let mut both = mill.command(&["queues"]);
    both.env("TIDEMILL_KEYS_FILE", "a").env("TIDEMILL_KEYS", "b");
    feed(both, "").code(2).says("both");
}
