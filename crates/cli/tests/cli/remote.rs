//! Every command says on a server what it says on a store.
//!
//! Two stores go the same way: one by itself, the other behind a real server. Each command is run on both, and what it
//! prints and its exit code are compared; ids and times differ, and are told apart by where they stand. The list of
//! commands is the binary's own, so a new one that nobody has put here fails the walk.

mod normal;
mod pair;
mod replay;

use tidemill_testkit::certificate::Authority;

use self::pair::Pair;
use crate::mill::{Mill, feed, stop};

/// Nobody's id.
const UNKNOWN: &str = "018f3a2e-7c11-7bbb-8000-5fd1e2a0c0de";

/// Jobs: enqueue, look, change, wait.
fn jobs(pair: &mut Pair) {
    pair.run(&["jobs", "list"]);
    pair.name("later", &["enqueue", "greet", r#"{"n": 1.50}"#, "--delay", "1h", "--queue", "mail"]);
    pair.name("dead", &["enqueue", "fail", "--attempts", "1"]);
    pair.work("fail", "echo no such thing >&2; exit 100", &["{dead}"]);
    pair.run(&["enqueue", "greet", "null", "--unique-key", "u", "--delay", "2h"]);
    pair.run(&["enqueue", "greet", "null", "--unique-key", "u"]).code(5);
    let keyed = ["enqueue", "greet", "null", "--unique-key", "greet=9", "--delay", "2h"];
    pair.name("keyed", &keyed);
    pair.run(&["jobs", "show", "{keyed}"]).says("greet=9");
    pair.run(&["enqueue", "", "null"]).code(2);
    pair.run(&["enqueue", "greet", "{"]).code(2);
    let lines = "{\"kind\":\"a\",\"delay\":\"1h\"}\n{\"kind\":\"b\",\"delay\":\"1h\"}\n";
    pair.run_with(&["enqueue", "--lines"], lines);
    pair.run_with(&["enqueue", "--lines"], "{\"kind\":\"a\"}\n{\"kind\":\"\"}\n").code(2);
    pair.run(&["jobs", "list"]);
    pair.run(&["jobs", "list", "--limit", "2"]);
    pair.run(&["jobs", "list", "--state", "dead", "--kind", "nobody"]);
    pair.run(&["jobs", "show", "{later}"]);
    pair.run(&["jobs", "show", "{dead}"]).says("no such thing");
    pair.run(&["jobs", "show", UNKNOWN]).code(3);
    pair.run(&["jobs", "why", "{later}"]);
    pair.run(&["jobs", "why", "{dead}"]);
    pair.run(&["jobs", "follow", "{dead}"]).code(1);
    pair.run(&["jobs", "wait", "{dead}"]).code(1);
    pair.run(&["jobs", "wait", "{later}", "--timeout", "10ms"]).code(7);
    pair.run(&["jobs", "priority", "{later}", "high"]);
    pair.run(&["jobs", "priority", "{dead}", "high"]).code(5);
    pair.run(&["jobs", "retry", "{later}", "{dead}"]);
    pair.run(&["jobs", "retry", "{later}"]).code(5);
    pair.run(&["jobs", "cancel", "{later}", "{dead}", UNKNOWN]).code(3);
    pair.run(&["jobs", "cancel", "{later}"]).code(5);
}

fn queues(pair: &mut Pair) {
    pair.run(&["queues", "list"]);
    pair.run(&[
        "queues",
        "set",
        "mail",
        "--weights",
        "4:3:2:1",
        "--depth-max",
        "2",
        "--attempts",
        "2",
    ]);
    pair.run(&["queues", "set", "mail", "--weights", "0:0:0:0"]).code(2);
    pair.run(&["enqueue", "greet", "1", "--queue", "mail"]);
    pair.run(&["enqueue", "greet", "1", "--queue", "mail"]);
    pair.run(&["enqueue", "greet", "1", "--queue", "mail"]).code(6);
    pair.run(&["queues", "set", "mail", "--overflow", "divert:spill"]);
    pair.run(&["enqueue", "greet", "1", "--queue", "mail", "--delay", "1h"]).says("divert");
    pair.run(&["queues", "set", "mail", "--overflow", "reject"]);
    pair.run(&["queues", "pause", "mail"]);
    pair.agree(&["queues", "why", "mail"]);
    pair.run(&["queues", "wait", "mail", "--timeout", "10ms"]).code(7);
    pair.run(&["queues", "wait", "other", "--timeout", "1s"]);
    pair.run(&["queues", "wait", "ma*"]).code(2);
    pair.run(&["queues", "list"]);
    pair.run(&["queues", "resume", "mail"]);
    pair.run(&["queues", "unset", "mail"]);
    pair.run(&["limits", "list"]);
    pair.run(&["limits", "set", "smtp", "--concurrency", "5", "--queue", "mail:*"]);
    pair.run(&["limits", "list"]);
    pair.run(&["limits", "delete", "smtp", "--queue", "mail:*"]);
    pair.run(&["limits", "delete", "smtp", "--queue", "mail:*"]).code(3);
    pair.agree(&["workers"]);
}

fn schedules(pair: &mut Pair) {
    pair.run(&["schedules", "list"]);
    pair.run(&["schedules", "set", "nightly", "--cron", "30 2 * * *", "report", r#"{"of": 1.50}"#]);
    pair.run(&["schedules", "set", "nightly", "--cron", "x", "report"]).code(2);
    pair.run(&["schedules", "show", "nightly"]);
    pair.run(&["schedules", "show", "nobody"]).code(3);
    pair.run(&["schedules", "pause", "nightly"]);
    pair.run(&["schedules", "run", "nightly"]);
    pair.run(&["schedules", "resume", "nightly"]);
    pair.run(&["schedules", "preview", "nightly", "-n", "2"]);
    let range = ["--from", "2026-01-01T00:00:00Z", "--to", "2026-01-04T00:00:00Z"];
    pair.run(&[&["schedules", "backfill", "nightly", "--dry-run"], &range[..]].concat());
    pair.run(&[&["schedules", "backfill", "nightly"], &range[..]].concat());
    pair.run(&["schedules", "history", "nightly"]);
    pair.run(&["schedules", "list"]);
    pair.run(&["schedules", "delete", "nightly", "--owner", "somebody"]).code(5);
    pair.run(&["schedules", "delete", "nightly"]);
    let wanted = r#"{"schedules": {"hourly": {"every": "1h", "job": {"kind": "ping"}}}}"#;
    let declare = ["schedules", "declare", "ops", "-"];
    pair.run_with(&[&declare[..], &["--dry-run"]].concat(), wanted).says("hourly");
    pair.run_with(&declare, wanted).says("made");
    pair.run_with(&declare, wanted).says("unchanged");
    pair.run_with(&declare, r#"{"schedules": {"x": {"cron": "x", "job": {"kind": "k"}}}}"#).code(2);
    pair.run_with(&declare, "{}").code(2);
    pair.run_with(&["schedules", "declare", "others", "-"], wanted).code(5);
    pair.run_with(&declare, r#"{"schedules": {}}"#).says("deleted");
    let set = ["schedules", "set", "keyed", "report", "--cron", "@yearly", "--spread", "1h"];
    pair.run(&[&set[..], &["--spread-keys", "a,b"]].concat());
    pair.run(&["schedules", "preview", "keyed", "-n", "2"]);
    pair.run(&["schedules", "delete", "keyed"]);
    let gone = ["--ends", "2030-01-02T00:00:00Z", "--starts", "2030-01-01T00:00:00Z"];
    let set = ["schedules", "set", "x", "report", "--cron", "@daily", "--except", "2030-01-01"];
    pair.run(&[&set[..], &gone].concat()).code(2).says("schedule_never_fires");
    pair.run(&["schedules", "set", "x", "report", "--cron", "@daily", "--id", UNKNOWN]).code(2);
}

/// Dead letters: looked at, noted, planned for, replayed.
fn dead(pair: &mut Pair) {
    pair.name("one", &["enqueue", "fail", r#"{"n": 1.50}"#, "--attempts", "1", "--queue", "bad"]);
    pair.name("two", &["enqueue", "fail", "2", "--attempts", "1", "--queue", "bad"]);
    pair.name("three", &["enqueue", "fail", "3", "--attempts", "1", "--queue", "bad"]);
    pair.work("fail", "echo no such thing >&2; exit 100", &["{one}", "{two}", "{three}"]);
    let bad = ["--queue", "bad"];
    pair.run(&["dead", "list"]);
    pair.run(&[&["dead", "list", "--limit", "2"], &bad[..]].concat());
    pair.run(&["dead", "list", "--kind", "nobody"]);
    pair.run(&["dead", "list", "--field", "n=1.50", "--error", "such", "--since", "1h"]);
    pair.run(&[&["dead", "groups"], &bad[..]].concat());
    pair.run(&[&["dead", "sample", "--field", "n=1.50"], &bad[..]].concat());
    pair.run(&["dead", "show", "{one}"]).says("no such thing");
    pair.run(&["dead", "show", "{later}"]).code(3);
    pair.run(&["dead", "note", "{one}", "-m", "it is known"]);
    pair.run(&["dead", "note", "-m", "it is known"]).code(2);
    pair.run(&[&["dead", "note", "-m", "all of them", "--yes"], &bad[..]].concat());
    pair.run(&["dead", "investigate", "{one}", "{two}", "-m", "looked at"]);
    pair.run(&["dead", "investigate", "{later}"]).code(3);
    pair.run(&["dead", "abandon", "{two}"]);
    pair.run(&["dead", "archive", "{two}", "--plan"]);
    pair.plan("plan", &["dead", "archive", "{two}"]);
    pair.run(&["dead", "apply", "{plan}"]);
    pair.run(&["dead", "undo", "{plan}"]);
    pair.run(&["dead", "apply", "{plan}"]).code(5);
    pair.run(&["dead", "plans", "{plan}"]);
    pair.run(&["dead", "plans", UNKNOWN]).code(3);
    pair.run(&["dead", "plans"]);
    pair.run(&["dead", "plans", "--limit", "1"]);
    pair.run(&["dead", "show", "{two}"]);
    pair.run(&["dead", "delete", "{three}", "-m", "enough"]);
    pair.run(&["dead", "replay", "{one}", "--payload", "{"]).code(2);
    pair.run(&["dead", "replay", "{one}", "--payload", "[2.50]"]);
    pair.run(&["dead", "replay", "{one}"]).code(5);
    pair.run(&[&["dead", "replay"], &bad[..]].concat()).code(2);
    pair.run(&[&["dead", "replay", "--yes", "--no-canary"], &bad[..]].concat());
    pair.run(&["jobs", "show", "{one}"]);
    pair.run(&["dead", "rules", "list"]);
    let rule = ["dead", "rules", "set", "flaky", "--queue", "nobody", "--class", "transient"];
    pair.run(&[&rule[..], &["--error", "reset", "--delay", "90s", "--max", "2"]].concat());
    pair.run(&["dead", "rules", "set", ""]).code(2);
    pair.run(&["dead", "rules", "list"]);
    pair.run(&["dead", "rules", "delete", "flaky"]);
    pair.run(&["dead", "rules", "delete", "flaky"]).code(3);
}

fn flows(pair: &mut Pair) {
    let flow = r#"{"name":"signup","steps":[
        {"name":"account","kind":"create","payload":{"n":1.50},"queue":"far"},
        {"name":"mails","kind":"mail","payloads":[1,2],"after":["account"],"queue":"far"}]}"#;
    pair.run(&["flows", "list"]);
    pair.name_with("flow", &["flows", "start", "-"], flow);
    pair.run_with(&["flows", "start", "-"], r#"{"name":"x","steps":[]}"#).code(2);
    let again = r#"{"id":"0199f000-0000-7000-8000-000000000001","name":"again","steps":[
        {"name":"a","kind":"create","queue":"far"}]}"#;
    for word in ["started", "existing"] {
        pair.run_with(&["flows", "start", "-"], again).ok().says(word);
    }
    pair.run_with(&["flows", "start", "-"], &again.replace("create", "other")).code(2);
    pair.run(&["flows", "list"]);
    pair.run(&["flows", "show", "{flow}"]);
    pair.run(&["flows", "show", UNKNOWN]).code(3);
    pair.run(&["flows", "wait", "{flow}", "--timeout", "10ms"]).code(7);
    pair.run(&["flows", "retry", "{flow}", "--step", "nobody"]).code(3);
    pair.run(&["flows", "rerun", "{flow}", "nobody"]).code(3);
    pair.run(&["flows", "resolve", "{flow}", "--step", "account", "--why", "seen to"]);
    pair.run(&["flows", "undo", "{flow}"]);
    pair.run(&["flows", "cancel", "{flow}", "--reason", "changed our mind"]);
    pair.run(&["flows", "wait", "{flow}", "--timeout", "30s"]);
    pair.run(&["flows", "cancel", "{flow}"]).code(5);
    pair.run(&["flows", "show", "{flow}"]);
    let campaign = r#"{"name":"campaign","building":true,"steps":[{"name":"mail","jobs":[]}]}"#;
    pair.name_with("built", &["flows", "start", "-"], campaign);
    let mails = "{\"step\":\"mail\",\"kind\":\"mail\"}\n".repeat(3);
    pair.run_with(&["flows", "add", "{built}", "-", "--part", "a"], &mails);
    pair.run_with(&["flows", "add", "{built}", "-", "--part", "a"], &mails);
    let more = mails.repeat(2);
    pair.run_with(&["flows", "add", "{built}", "-", "--part", "a"], &more).code(5);
    let astray = "{\"step\":\"mial\",\"kind\":\"mail\"}\n";
    pair.run_with(&["flows", "add", "{built}", "-", "--part", "b"], astray).code(3);
    pair.run(&["flows", "show", "{built}"]);
    pair.run(&["flows", "begin", "{built}"]);
    pair.run(&["flows", "begin", "{built}"]);
    pair.run(&["flows", "discard", "{built}"]).code(5);
    pair.run(&["flows", "begin", UNKNOWN]).code(3);
    pair.name_with("waste", &["flows", "start", "-"], campaign);
    pair.run(&["flows", "discard", "{waste}", "--reason", "not needed"]);
    pair.run(&["flows", "begin", "{waste}"]).code(5);
}

fn workflows(pair: &mut Pair) {
    for side in &mut pair.sides {
        let id = crate::workflows::begin(&side.mill);
        side.names.insert("run", id);
    }
    pair.run(&["workflows", "list"]);
    pair.run(&["workflows", "show", "{run}"]);
    pair.run(&["workflows", "show", "{later}"]).code(3);
    pair.run(&["workflows", "export", "{run}"]);
    pair.run(&["workflows", "diff", "{run}"]).code(5);
    replay::both(pair);
    pair.run(&["workflows", "update", "{run}", "double", "1", "--timeout", "10ms"]).code(7);
    pair.run(&["workflows", "object", "doubles", "a"]).code(3);
    pair.run(&["workflows", "pause", "{run}", "--why", "to look"]);
    pair.run(&["workflows", "resume", "{run}"]);
    pair.run(&["workflows", "skip", "{run}", "reserve"]).code(5);
    pair.run(&["workflows", "edit", "{run}", "reserve", "50", "--why", "a typo"]);
    pair.run(&["workflows", "reset", "{run}", "--to", "nothing"]).code(5);
    pair.run(&["workflows", "fork", "{run}", "--to", "nothing"]).code(5);
    pair.run(&["workflows", "signal", "{run}", "approve", "true"]);
    pair.run(&["workflows", "show", "{run}"]);
    pair.run(&["workflows", "mail", "{run}"]).says("approve");
    pair.run(&["workflows", "mail", "{run}", "--limit", "1"]).says("double");
    pair.run(&["workflows", "mail", UNKNOWN]).code(3);
    pair.run(&["workflows", "cancel", "{run}", "--why", "enough"]);
    pair.run(&["workflows", "signal", "{later}", "approve", "true"]);
    pair.run(&["workflows", "mail", "{later}"]);
}

fn others(pair: &mut Pair) {
    pair.run(&["webhooks", "list"]);
    let set = ["webhooks", "set", "orders", "https://example.com/in", "--queue", "orders"];
    pair.run(&set);
    pair.run(&set);
    pair.run(&["webhooks", "set", "orders", "ftp://example.com"]).code(2);
    pair.run(&["webhooks", "rotate", "orders", "--overlap", "1h"]);
    pair.run(&["webhooks", "deliveries", "orders"]);
    pair.run(&["webhooks", "redeliver", "orders", UNKNOWN]).code(3);
    pair.run(&["webhooks", "list"]);
    pair.run(&["webhooks", "delete", "orders"]);
    pair.run(&["webhooks", "delete", "orders"]).code(3);
    pair.run(&["token", "list"]);
    pair.run(&[
        "token",
        "create",
        "shop",
        "--role",
        "producer",
        "--queue",
        "mail:*",
        "--expires",
        "1d",
    ]);
    pair.run(&["token", "create", "shop", "--role", "producer"]).code(5);
    pair.run(&["token", "list"]);
    pair.run(&["token", "revoke", "shop"]);
    pair.run(&["token", "revoke", "shop"]).code(3);
    // Neither side has a key; those that have are in `keys.rs`.
    pair.run(&["keys", "list"]);
    pair.run(&["keys", "rotate"]).code(2);
    // Commands are written down by their own names, and requests by those of operations.
    pair.run(&["audit", "--who", "nobody"]);
    for side in &pair.sides {
        let acts = side.run(&["audit", "--target", "{later}"], "").ok();
        assert!(acts.stdout.contains("cancel"), "{acts:?}");
    }
    pair.agree(&["alerts"]);
    pair.agree(&["top", "--once"]);
    pair.run(&["migrate"]);
    pair.agree(&["doctor"]);
    // What they do on a server, with nothing else in the store, is seen in `demo.rs`.
    pair.run(&["bench", "--jobs", "100"]).code(5);
    pair.run(&["demo", "--scale", "0"]).code(2);
}

fn walk(make: fn() -> Mill) {
    for json in [false, true] {
        let mut pair = Pair::new(make, json);
        jobs(&mut pair);
        queues(&mut pair);
        schedules(&mut pair);
        dead(&mut pair);
        flows(&mut pair);
        workflows(&mut pair);
        others(&mut pair);
        pair.end();
    }
}

#[test]
fn every_command_says_the_same_on_a_server_over_sqlite() {
    walk(Mill::sqlite);
}

#[test]
fn every_command_says_the_same_on_a_server_over_postgres() {
    walk(Mill::postgres);
}

#[test]
fn a_token_comes_from_the_environment_or_a_file() {
    let mill = Mill::sqlite();
    let secret = mill.run(&["token", "create", "looks", "--role", "viewer"]).ok().stdout;
    let file = mill.file("token");
    std::fs::write(&file, &secret).unwrap();
    let (server, url) = mill.serve(&["--require-token"]);
    let url = url.as_str();
    let ask = |args: &[&str], token: Option<&str>| {
        let mut command = mill.command(args);
        command.env_remove("TIDEMILL_STORE").env("TIDEMILL_SERVER", url);
        feed(
            token.into_iter().fold(command, |mut command, token| {
                command.env("TIDEMILL_TOKEN", token);
                command
            }),
            "",
        )
    };
    ask(&["jobs", "list"], None).code(4).says("credential_missing").says("--token-file");
    // The number that proves a lease, in a command that `work` runs.
    ask(&["jobs", "list"], Some("17")).code(4).says("credential_missing");
    ask(&["jobs", "list"], Some("tdm_nonsense")).code(4).says("credential_refused");
    ask(&["jobs", "list"], Some(secret.trim())).ok();
    ask(&["jobs", "list", "--token-file", &file], Some("tdm_nonsense")).ok();
    ask(&["queues", "pause", "q"], Some(secret.trim())).code(4).says("role_refused");
    let work = ["work", "--kind", "k", "--exec", "true"];
    ask(&work, Some(secret.trim())).code(4).says("role_refused").says("does not take this worker");
    let limited = ["token", "create", "mails", "--role", "worker", "--queue", "mail:*"];
    let limited = mill.run(&limited).ok().stdout;
    ask(&work, Some(limited.trim())).code(4).says("queue_refused").says("default");
    ask(&["--store", url, "jobs", "list", "--token-file", &file], None).ok();
    ask(&["--store", "sqlite:a.db", "--server", url, "jobs", "list"], None).code(2).says("usage");
    stop(server);
    ask(&["jobs", "list"], Some(secret.trim())).code(6).says("server_unreachable");
}

#[test]
fn a_server_with_tls_is_trusted_by_its_authority() {
    let mill = Mill::sqlite();
    let authority = Authority::new().unwrap();
    let signed = authority.sign("127.0.0.1").unwrap();
    let [certificate, key, ca] = ["server.crt", "server.key", "ca.crt"].map(|name| mill.file(name));
    std::fs::write(&certificate, signed.certificate).unwrap();
    std::fs::write(&key, signed.key).unwrap();
    std::fs::write(&ca, &authority.certificate).unwrap();
    let (server, url) = mill.serve(&["--tls-cert", &certificate, "--tls-key", &key]);
    assert!(url.starts_with("https://"), "{url}");
    let ask = |args: &[&str]| mill.ask(&url, args);
    ask(&["--ca-file", &ca, "queues", "pause", "mail"]).ok();
    ask(&["--ca-file", &ca, "queues", "list"]).ok().says("mail");
    ask(&["queues", "list"]).code(6).says("server_unreachable").says("certificate");
    ask(&["--ca-file", &key, "queues", "list"]).code(2).says("client_invalid");
    ask(&["--ca-file", "nowhere.crt", "queues", "list"]).says("nowhere.crt");
    stop(server);
}
