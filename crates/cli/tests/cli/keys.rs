//! `tidemill keys`: keys from the environment, what they hold, and their change, over processes.

use tidemill_testkit::Process;

use super::mill::{Ended, Mill, PATIENCE, feed, stop};

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

/// A server with these keys that wants to know who asks, and its URL.
fn serve(mill: &Mill, keys: &str) -> (Process, String) {
    let file = mill.file("keys of the server");
    std::fs::write(&file, keys).unwrap();
    let args = ["--json", "serve", "--listen", "127.0.0.1:0", "--require-token"];
    let mut command = mill.command(&args);
    command.env("TIDEMILL_KEYS_FILE", file);
    let server = Process::spawn(&mut command).unwrap();
    let line = server.next_line(PATIENCE).unwrap();
    let told: serde_json::Value = serde_json::from_str(&line).unwrap();
    (server, told["url"].as_str().unwrap().to_owned())
}

/// Whoever asks the server has neither a key nor the store.
fn a_server_changes_its_keys_as_a_store_does(mill: &Mill) {
    let line = |id: &str| mill.run(&["keys", "new", id]).ok().stdout;
    let (old, new) = (line("2025"), line("2026"));
    for _ in 0..3 {
        with(mill, &old, &["enqueue", "pay", "{\"card\":4711}"]).ok();
    }
    let token = |role: &str| mill.run(&["token", "create", role, "--role", role]).ok().stdout;
    let (admin, operator) = (token("admin"), token("operator"));
    let ask = |url: &str, token: &str, args: &[&str]| {
        let mut command = mill.command(args);
        command.env_remove("TIDEMILL_STORE").env("TIDEMILL_SERVER", url);
        command.env("TIDEMILL_TOKEN", token.trim());
        feed(command, "")
    };
    let same = |url: &str, keys: &str, args: &[&str]| {
        let (here, there) = (with(mill, keys, args), ask(url, &admin, args));
        let told = |ended: &Ended| (ended.code, ended.stdout.clone(), ended.stderr.clone());
        assert_eq!(told(&here), told(&there), "{args:?}");
        there
    };
    let lists = |url: &str, keys: &str| {
        same(url, keys, &["keys", "list", "--json"]).ok();
        same(url, keys, &["keys", "list"]).ok()
    };
    let both = format!("{new}{old}");
    let (server, url) = serve(mill, &new);
    lists(&url, &new).says("missing");
    same(&url, &new, &["keys", "rotate"]).code(1).says("3 rows cannot be decrypted");
    same(&url, &new, &["keys", "rotate", "--json"]).code(1).says("encryption_key_missing");
    stop(server);
    let (server, url) = serve(mill, &both);
    lists(&url, &both).says("decrypts");
    ask(&url, &operator, &["keys", "list"]).code(4).says("role_refused");
    ask(&url, &operator, &["keys", "rotate"]).code(4).says("role_refused");
    ask(&url, &admin, &["keys", "rotate"]).ok().says("3 of 3 encrypted rows");
    same(&url, &both, &["keys", "rotate"]).ok().says("0 of 3 encrypted rows");
    same(&url, &both, &["keys", "rotate", "--json"]).ok();
    lists(&url, &both).says("encrypts");
    stop(server);
}

#[test]
fn a_server_changes_its_keys_as_a_store_does_over_sqlite() {
    a_server_changes_its_keys_as_a_store_does(&Mill::sqlite());
}

#[test]
fn a_server_changes_its_keys_as_a_store_does_over_postgres() {
    a_server_changes_its_keys_as_a_store_does(&Mill::postgres());
}

#[test]
fn a_new_key_is_one_document_for_programs() {
    let mill = Mill::sqlite();
    let made = mill.json(&["--json", "keys", "new", "2026-11"]);
    let line = made["line"].as_str().unwrap();
    assert_eq!((&made["id"], line.split(' ').next()), (&"2026-11".into(), Some("2026-11")));
    with(&mill, line, &["enqueue", "k"]).ok();
}

#[test]
fn keys_that_cannot_be_used_are_named_and_never_shown() {
    let mill = Mill::sqlite();
    mill.enqueue(&["pay"]);
    with(&mill, "2025 c2VjcmV0", &["queues"]).code(2).says("keys_invalid").says("line 1");
    assert!(!with(&mill, "2025 c2VjcmV0", &["queues"]).stderr.contains("c2VjcmV0"));
    with(&mill, "", &["queues"]).code(2).says("no key in it");
    mill.run(&["keys", "new", "a b"]).code(2).says("is no id");
    mill.run(&["keys", "rotate"]).code(2).says("encryption_off").says("TIDEMILL_KEYS_FILE");
    mill.run(&["keys", "list"]).ok().says("nothing is encrypted");
    let mut both = mill.command(&["queues"]);
    both.env("TIDEMILL_KEYS_FILE", "a").env("TIDEMILL_KEYS", "b");
    feed(both, "").code(2).says("both");
}
