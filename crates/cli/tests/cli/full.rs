//! A disk without room: what was acknowledged is there, nothing is half-written, and when there is
//! room again it goes on.
//!
//! Two kinds of it: a file system of three megabytes, mounted where the machine lets an ordinary
//! user mount one in a namespace of its own, and a limit on the size of files, which every machine has.

use std::process::Command;

use serde_json::Value;
use tidemill_testkit::Process;
use tidemill_testkit::eventually::until;

use crate::mill::{Ended, Mill, PATIENCE, feed, stop};

const JOBS: usize = 20_000;
/// Ends with the namespace that it holds.
const HOLD: &str =
    r#"mount -t tmpfs -o size=3m none "$1" && echo mounted && exec tail -f /dev/null"#;
/// Takes what is left.
const FILLER: &str = r#"cat /dev/zero >"$1/filler" 2>/dev/null || true"#;
/// Dash counts in blocks of 512 bytes, others in those of 1024.
const LIMIT: &str = r#"trap "" XFSZ; ulimit -f 4096; exec "$@""#;

fn lines(from: usize) -> String {
    let text = "x".repeat(200);
    let line = |n| format!("{{\"kind\":\"k\",\"payload\":{{\"n\":{n},\"text\":\"{text}\"}}}}\n");
    (from..JOBS).map(line).collect()
}

/// The same command, started by another.
fn through(starter: &[&str], command: &Command) -> Command {
    let mut whole = Command::new(starter[0]);
    whole.args(&starter[1..]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        whole.env(name, value.unwrap());
    }
    whole
}

/// How many jobs it says it had enqueued before it failed.
fn acknowledged(ended: &Ended) -> usize {
    let (before, _) = ended.stderr.split_once(" jobs were enqueued before").unwrap();
    let number = before.rsplit_once(' ').unwrap().1;
    number.replace(',', "").parse().unwrap()
}

fn waiting(ended: &Ended) -> u64 {
    let row: Value = serde_json::from_str(ended.stdout.lines().next().unwrap()).unwrap();
    row["ready"]["normal"].as_u64().unwrap()
}

/// Fills the disk; answers how many jobs are there, which are those that were acknowledged.
/// `findings` is what the doctor says of it.
fn fill(code: &str, findings: &str, limited: impl Fn(&[&str], &str) -> Ended) -> usize {
    limited(&["migrate"], "").ok();
    let ended = limited(&["enqueue", "--lines"], &lines(0)).code(6).says(code);
    let before = acknowledged(&ended);
    assert!((1000..JOBS).contains(&before), "{ended:?}");
    assert!(ended.stderr.contains("nothing of this batch"), "{ended:?}");
    // Whoever looks while the disk is full is not turned away.
    assert_eq!(waiting(&limited(&["queues", "--json"], "").ok()), before as u64);
    let is_well = findings == "all is well";
    limited(&["doctor"], "").code(i32::from(!is_well)).says("integrity").says(findings);
    // Nor does a second try do harm.
    limited(&["enqueue", "--lines"], &lines(before)).code(6).says(code);
    before
}

#[test]
fn a_limit_on_file_sizes_is_named_and_loses_nothing() {
    let mill = Mill::sqlite();
    let limited = |args: &[&str], stdin: &str| {
        feed(through(&["sh", "-c", LIMIT, "sh"], &mill.command(args)), stdin)
    };
    fill("store_disk_failed", "all is well", limited);
    let there = waiting(&mill.run(&["queues", "--json"]).ok());
    mill.run_with(&["enqueue", "--lines"], &lines(usize::try_from(there).unwrap())).ok();
    assert_eq!(waiting(&mill.run(&["queues", "--json"]).ok()), JOBS as u64);
    let conn = tidemill_store::rusqlite::Connection::open(mill.file("test.db")).unwrap();
    let said: String = conn.query_one("pragma integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(said, "ok");
}

#[test]
fn a_full_disk_is_named_and_loses_nothing_and_workers_go_on() {
    let mill = Mill::sqlite();
    let folder = mill.file("");
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", HOLD, "sh", &folder]);
    let holder = Process::spawn(&mut unshare);
    let Ok(holder) = holder.and_then(|it| it.wait_for_line("mounted", PATIENCE).map(|_| it)) else {
        println!("nothing is shown: no file system can be mounted here");
        return;
    };
    let pid = holder.id().to_string();
    let enter = ["nsenter", "--target", &pid, "--user", "--mount", "--preserve-credentials"];
    let inside = |args: &[&str], stdin: &str| feed(through(&enter, &mill.command(args)), stdin);
    // The space that is left, and nothing else.
    fill(
        "store_disk_full",
        "make room: nothing can be enqueued or settled on a full disk\n1 finding",
        inside,
    );

    let work = ["work", "--json", "--exec", "cat", "--kind", "last"];
    let worker = Process::spawn(&mut through(&enter, &mill.command(&work))).unwrap();
    let known = || inside(&["workers", "--json"], "").ok().stdout.contains("last").then_some(());
    until(PATIENCE, known).expect("the worker registers: a page or two are left");
    let mut rest = Command::new("sh");
    rest.args(["-c", FILLER, "sh", &folder]);
    feed(through(&enter, &rest), "").ok();
    let there = waiting(&inside(&["queues", "--json"], "").ok());
    let from = usize::try_from(there).unwrap();
    inside(&["enqueue", "--lines"], &lines(from)).code(6).says("store_disk_full");

    let mut more = Command::new("mount");
    more.args(["-o", "remount,size=512m", &folder]);
    feed(through(&enter, &more), "").ok();
    inside(&["enqueue", "--lines"], &lines(from)).ok();
    assert_eq!(waiting(&inside(&["queues", "--json"], "").ok()), JOBS as u64);
    inside(&["enqueue", "last", "7", "--wait", "--timeout", "30s"], "").ok().says("7");
    stop(worker);
    inside(&["doctor"], "").ok().says("all is well");
}
