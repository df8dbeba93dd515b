//! Settings: a flag is stronger than the environment, that than the file, and that than the default; and people can see
//! which it was.

use std::process::Command;

use serde_json::{Value, json};

use super::mill::{Ended, Mill, feed};

/// A store with this file beside it, where commands run.
fn with_file(text: &str) -> Mill {
    let mill = Mill::sqlite();
    std::fs::write(mill.file("tidemill.toml"), text).unwrap();
    mill
}

fn row(ended: Ended, name: &str) -> Value {
    let lines = ended.ok().stdout;
    let mut rows = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name} in {lines}"))
}

const FILE: &str = r#"
store = "sqlite:from-file.db"
[serve]
listen = "127.0.0.1:7001"
require-token = true
webhook-port = [443, 8443]
"#;

fn bare(mill: &Mill, args: &[&str]) -> Command {
    let mut command = mill.command(args);
    command.env_remove("TIDEMILL_STORE").env_remove("TIDEMILL_LOG");
    command
}

#[test]
fn the_strongest_that_says_something_is_followed_and_named() {
    let mill = with_file(FILE);
    let config = |args: &[&str], env: Option<&str>| {
        let mut command = bare(&mill, &[&["--json", "config"], args].concat());
        command.envs(env.map(|listen| ("TIDEMILL_LISTEN", listen)));
        row(feed(command, ""), "serve.listen")
    };
    let of = |value: &str, origin: &str| json!({ "name": "serve.listen", "value": value, "origin": origin });
    let file = json!({ "name": "serve.listen", "value": "127.0.0.1:7001", "origin": "file", "from": "tidemill.toml" });
    assert_eq!(config(&[], None), file);
    let mut environment = of("127.0.0.1:7002", "environment");
    environment["from"] = json!("TIDEMILL_LISTEN");
    assert_eq!(config(&[], Some("127.0.0.1:7002")), environment);
    let flag = ["serve", "--listen", "127.0.0.1:7003"];
    assert_eq!(config(&flag, Some("127.0.0.1:7002")), of("127.0.0.1:7003", "flag"));
    std::fs::remove_file(mill.file("tidemill.toml")).unwrap();
    assert_eq!(config(&[], None), of("127.0.0.1:8384", "default"));
}

#[test]
fn what_a_file_says_is_what_commands_do() {
    let mill = with_file("store = \"sqlite:from-file.db\"\njson = true\n[jobs.list]\nlimit = 1\n");
    for _ in 0..2 {
        feed(bare(&mill, &["enqueue", "greet"]), "").ok();
    }
    assert!(std::path::Path::new(&mill.file("from-file.db")).exists());
    let listed = feed(bare(&mill, &["jobs", "list"]), "").ok().stdout;
    assert_eq!(listed.lines().count(), 1, "{listed}");
    let listed = feed(bare(&mill, &["jobs", "list", "--limit", "5"]), "").ok().stdout;
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let elsewhere = mill.file("other.toml");
    std::fs::write(&elsewhere, "store = \"sqlite:other.db\"\n").unwrap();
    feed(bare(&mill, &["--config", &elsewhere, "jobs", "list"]), "").code(6).says("other.db");
    let mut by_environment = bare(&mill, &["jobs", "list"]);
    by_environment.env("TIDEMILL_CONFIG", &elsewhere);
    feed(by_environment, "").code(6).says("other.db");
}

#[test]
fn all_settings_are_shown_and_no_secret() {
    let mill = with_file(
        "store = \"postgres://app:tulips@db.example/app\"\n[serve]\nrequire-token = true\n",
    );
    let mut command = bare(&mill, &["config"]);
    command.env("TIDEMILL_KEYS", "k1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8");
    let shown = feed(command, "").ok();
    assert!(!shown.stdout.contains("tulips") && !shown.stdout.contains("AAECAw"), "{shown:?}");
    let shown = shown.says("postgres://app@db.example/app").says("file: tidemill.toml");
    let shown = shown.says("serve.require-token").says("serve.tls-cert").says("TIDEMILL_KEYS");
    shown.says("(hidden)");
    feed(bare(&mill, &["config", "work"]), "").ok().says("work.concurrency");
    feed(bare(&mill, &["config", "nothing"]), "").code(2).says("nothing");
}

#[test]
fn a_file_that_says_what_cannot_be_is_refused() {
    for (text, says) in [
        ("listen = 1", "there is no option listen"),
        ("[serve]\nport = 1", "there is no option serve.port"),
        ("[sreve]\nlisten = 1", "there is no command sreve"),
        ("[serve]\nlisten = \"here\"", "serve.listen cannot be \"here\""),
        ("[serve]\nlisten = [\"127.0.0.1:1\", \"127.0.0.1:2\"]", "takes one value"),
        ("[serve]\nrequire-token = 3", "it is true or false"),
        ("[serve]\nlisten = 2026-01-01", "is a date"),
        ("store = ", "it is not TOML"),
    ] {
        let mill = with_file(text);
        feed(bare(&mill, &["config"]), "").code(2).says("config_invalid").says(says);
        feed(bare(&mill, &["jobs", "list"]), "").code(2).says("tidemill.toml");
    }
    let mill = with_file("json = false\nstore = postgres://app:tulips@db.example/app\n");
    let ended = feed(bare(&mill, &["jobs", "list"]), "").code(2).says("not TOML (line 2, column");
    assert!(!ended.stderr.contains("tulips"), "{ended:?}");
    let mill = Mill::sqlite();
    feed(bare(&mill, &["--config", "nowhere.toml", "jobs", "list"]), "")
        .code(2)
        .says("nowhere.toml");
}
