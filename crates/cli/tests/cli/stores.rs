//! Stores that are there, that are not, and what is known of their health.

use crate::mill::{Mill, feed};

#[test]
fn an_unknown_store_is_refused() {
    let mill = Mill::sqlite();
    mill.run(&["--store", "mysql://root:secret@host/db", "queues"])
        .code(2)
        .says("store_url_unknown");
    let ended = mill.run(&["--store", "mysql://root:secret@host/db", "queues", "--json"]);
    assert!(!ended.stderr.contains("secret"), "{ended:?}");
    let error: serde_json::Value = serde_json::from_str(&ended.stderr).unwrap();
    assert_eq!(error["error"]["code"], "store_url_unknown");
}

#[test]
fn a_mistyped_store_is_named_without_its_password() {
    let mill = Mill::sqlite();
    let url = "postgres:/root:secret@host/db";
    let ended = mill.run(&["--store", url, "queues"]).code(2).says("postgres:/…@host/db");
    assert!(!ended.stderr.contains("secret"), "{ended:?}");
}

#[test]
fn help_shows_no_password_of_the_environment() {
    let mill = Mill::sqlite();
    for args in [vec!["--help"], vec!["work", "--help"], vec!["serve", "--help"]] {
        let mut command = mill.command(&args);
        command.env("TIDEMILL_STORE", "postgres://root:pssst-4711@host/db");
        command.env("TIDEMILL_SERVER", "https://root:pssst-4711@host");
        command.env("TIDEMILL_OTLP", "http://root:pssst-4711@host:4318");
        let ended = feed(command, "").ok().says("TIDEMILL_SERVER");
        assert!(!ended.stdout.contains("pssst"), "{args:?} {ended:?}");
    }
}

#[test]
fn a_server_that_is_none_is_refused_without_its_password() {
    let mill = Mill::sqlite();
    for (url, command, code) in [
        ("postgres://root:secret@host/db", "queues", "client_invalid"),
        ("http://root:secret@host", "queues", "client_invalid"),
        ("http://root:secret@host", "serve", "store_needed"),
    ] {
        let mut command = mill.command(&["--server", url, command]);
        command.env_remove("TIDEMILL_STORE");
        let ended = feed(command, "").code(2).says(code).says("host");
        assert!(!ended.stderr.contains("secret"), "{ended:?}");
    }
}

#[test]
fn a_database_that_is_away_is_unavailable() {
    let mill = Mill::sqlite();
    let nowhere = "postgres://nobody@127.0.0.1:1/nowhere";
    let said = mill.run(&["--store", nowhere, "queues"]).code(6).says("store_unavailable");
    said.says("127.0.0.1:1/nowhere: ");
    let secret = "postgres://nobody:secret@127.0.0.1:1/nowhere";
    let ended = mill.run(&["--store", secret, "queues"]).code(6).says("127.0.0.1:1/nowhere: ");
    assert!(!ended.stderr.contains("secret") && !ended.stderr.contains("nobody"), "{ended:?}");
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let mill = Mill::sqlite();
    let file = mill.file("text.db");
    std::fs::write(&file, "this is no database, and long enough to be told from an empty one")
        .unwrap();
    mill.run(&["--store", &format!("sqlite:{file}"), "queues"]).code(6).says(&file);
}

#[test]
fn looking_makes_no_database() {
    let mill = Mill::sqlite();
    for args in [vec!["jobs"], vec!["dead"], vec!["queues"], vec!["workers"], vec!["doctor"]] {
        mill.run(&args).code(6).says("store_missing");
    }
    assert!(!std::path::Path::new(&mill.file("test.db")).exists());
}

fn upkeep(mill: &Mill) {
    mill.run(&["migrate"]).ok().says("migrated from version 0");
    mill.run(&["migrate"]).ok().says("up to date");
    mill.run(&["doctor"]).ok().says("all is well");
    assert!(mill.rows(&["doctor", "--json"]).iter().all(|finding| finding["ok"] == true));
    mill.run(&["queues", "set", "q", "--retain", "7d", "--retain-max", "1000"]).ok();
    mill.run(&["queues", "set", "q", "--retain-dead", "30d"]).ok();
    mill.run(&["queues"]).ok().says("7d max 1,000, dead 30d");
    mill.run(&["queues", "set", "q", "--retain-dead-bytes", "5000"])
        .ok()
        .says("dead 30d max 5,000 bytes");
    mill.run(&["queues", "set", "q", "--weights", "4:3:2:1", "--tenant-weight", "acme=3"])
        .ok()
        .says("weights 4:3:2:1, acme=3, keeps 7d");
    mill.run(&["queues", "set", "q", "--tenant-weight", "acme=1", "--attempts", "2"])
        .ok()
        .says("q: weights 4:3:2:1, 2 attempts, keeps");
    mill.run(&["queues", "pause", "q"]).ok();
    assert_eq!(mill.rows(&["queues", "--json"])[0]["rules"]["paused"], true);
    mill.run(&["queues", "resume", "q"]).ok();
    assert_eq!(mill.rows(&["queues", "--json"])[0]["rules"]["paused"], false);
    mill.run(&["queues", "set", "q", "--weights", "0:0:0:0"]).code(2).says("rule_invalid");
    mill.run(&["queues", "set", "q", "--weights", "1:2:3"]).code(2);
    for rule in ["concurrency", "retry-percent", "attempts", "depth-max", "high", "retain-max"] {
        mill.run(&["queues", "set", "q", &format!("--{rule}"), "0"]).code(2).says("or none");
    }
    let late = ["queues", "set", "q", "--start-within", "2h", "--finish-within", "1h"];
    mill.run(&late).code(2).says("rule_invalid");
    mill.run(&["queues", "set", "q", "--backoff", "exponential:1h..1s"]).code(2);
    mill.run(&["queues", "set", "ma*il", "--attempts", "2"]).code(2).says("rule_invalid");
    // Each can be taken back alone.
    let given = [
        ("--concurrency", "2"),
        ("--rate", "5/s"),
        ("--hold", "all"),
        ("--retry-percent", "20"),
        ("--attempts", "2"),
        ("--backoff", "5s"),
        ("--run-timeout", "1m"),
        ("--start-within", "1m"),
        ("--finish-within", "1h"),
        ("--retain", "7d"),
        ("--retain-max", "9"),
        ("--retain-dead", "1d"),
        ("--retain-dead-bytes", "9"),
        ("--depth-max", "100"),
        ("--high", "50"),
        ("--low", "0"),
    ];
    mill.run(&["queues", "unset", "q"]).ok();
    for (option, value) in given {
        let set = mill.run(&["queues", "set", "q", option, value]).ok();
        assert!(!set.stdout.contains("default") || option == "--low", "{option} {set:?}");
    }
    for (option, _) in given.into_iter().rev() {
        mill.run(&["queues", "set", "q", option, "none"]).ok();
    }
    mill.run(&["queues"]).ok().says("default");
    mill.run(&["queues", "unset", "q"]).ok();
    assert!(mill.rows(&["queues", "--json"]).is_empty());
    mill.run(&["queues", "set", "q"]).code(2);
}

#[test]
fn sqlite_is_migrated_examined_and_given_rules() {
    upkeep(&Mill::sqlite());
}

#[test]
fn postgres_is_migrated_examined_and_given_rules() {
    upkeep(&Mill::empty_postgres());
}

#[test]
fn completions_are_printed_for_every_shell() {
    let mill = Mill::sqlite();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        mill.run(&["completions", shell]).ok().says("tidemill");
    }
}
