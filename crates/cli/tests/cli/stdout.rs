//! Stdout that takes no more: a full disk is a failure, a reader who went away is none, and either way a command comes
//! to its end.

use std::process::Stdio;
use std::time::Duration;

use tidemill::{Context, Fail, Payload, Settings, Stop, Tidemill};

use crate::mill::{Ended, Mill};

/// Runs a command whose stdout is this.
fn run_to(mill: &Mill, args: &[&str], stdout: impl Into<Stdio>) -> Ended {
    let mut command = mill.command(args);
    let child = command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    let (code, stderr) = (output.status.code().unwrap_or(-1), output.stderr);
    Ended { code, stdout: String::new(), stderr: String::from_utf8(stderr).unwrap() }
}

/// What never has room.
fn full() -> Stdio {
    std::fs::File::options().write(true).open("/dev/full").unwrap().into()
}

/// What nobody reads.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn what_cannot_be_written_is_a_failure_unless_nobody_reads_it() {
    let mill = Mill::sqlite();
    let id = mill.enqueue(&["k"]);
    let commands: [&[&str]; 5] = [
        &["jobs", "list"],
        &["jobs", "show", &id, "--json"],
        &["completions", "bash"],
        &["serve", "--describe"],
        &["config"],
    ];
    for args in commands {
        run_to(&mill, args, full()).code(1).says("stdout could not be written");
        let ended = run_to(&mill, args, unread()).ok();
        assert!(!ended.stderr.contains("error"), "{ended:?}");
    }
}

#[test]
fn what_was_done_is_recorded_to_its_end() {
    let mill = Mill::sqlite();
    for (stdout, code, result) in [(full(), 1, "io"), (unread(), 0, "ok")] {
        let id = mill.enqueue(&["k"]);
        run_to(&mill, &["jobs", "cancel", &id], stdout).code(code);
        assert_eq!(mill.state(&id)["state"], "cancelled");
        let acts = mill.rows(&["audit", "--target", &id, "--json"]);
        assert_eq!((acts.len(), &acts[0]["result"]), (1, &result.into()), "{acts:?}");
        assert!(acts[0]["ended_at"].is_string(), "{acts:?}");
    }
}

/// Nobody has to end what stays, once it has nobody to tell: it stops as it does when it is asked to.
#[test]
fn what_stays_stops_when_nobody_reads_it() {
    let mill = Mill::sqlite();
    for (stdout, code) in [(full(), 1), (unread(), 0)] {
        let id = mill.enqueue(&["k"]);
        let work = ["work", "--json", "--kind", "k", "--exec", "true"];
        run_to(&mill, &work, stdout).code(code);
        assert_eq!(mill.state(&id)["state"], "done");
        assert!(mill.rows(&["workers", "--json"]).is_empty(), "it has signed off");
    }
}

/// The job never ends; what follows it does.
#[tokio::test]
async fn who_follows_ends_when_nobody_reads_it() {
    let mill = Mill::sqlite();
    let id = mill.enqueue(&["k"]);
    let store = Tidemill::open(mill.url()).await.unwrap();
    let talk = |_: Payload, cx: Context| async move {
        cx.text("Hello").await?;
        std::future::pending::<Result<Payload, Fail>>().await
    };
    let stop = Stop { drain: Duration::ZERO, grace: Duration::ZERO };
    let worker = store.worker().stop_as(stop).handle_raw("k", Settings::default(), talk);
    let worker = worker.start().await.unwrap();
    let follow = move || {
        run_to(&mill, &["jobs", "follow", &id], full()).code(1).says("error[io]");
        run_to(&mill, &["jobs", "follow", &id, "--json"], unread()).ok();
        mill
    };
    let _mill = tokio::task::spawn_blocking(follow).await.unwrap();
    worker.stop().await;
    store.close().await;
}
