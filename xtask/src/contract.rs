//! Holds the API of a running server against its own description, by requests that nobody would think of.
//!
//! Schemathesis reads the description and makes up requests, good ones and bad ones. No answer may be a fault of the
//! server, of a status or type or shape that is not described, or a welcome to what the description forbids.
//! `xtask/schemathesis.toml` says what is left out, and why.
//!
//! The ordinary run makes the same requests each time, so that a failure is the fault of a change. The soak begins
//! elsewhere each time, and says where.

mod seed;

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tidemill_testkit::{Binaries, Cluster, Process, Venv};

use crate::report::Report;
use crate::runner::{Runner, built};
use seed::Seed;

/// The program whose API it is. Beside the tests it is not needed: they have built it, of other features of
/// dependencies, so that this would build half of them again.
pub const BUILD: &str = "build --workspace --all-features --bins";
const START_MAX: Duration = Duration::from_secs(30);
const PINNED: &str = include_str!("../schemathesis.txt");
/// What a server that lets in everybody cannot be asked: to turn somebody away. A lack of credentials is bad data too.
const OF_CREDENTIALS: &str = "ignored_auth,missing_required_header,negative_data_rejection";

/// How long to look.
#[derive(Debug, Clone, Copy)]
pub enum Depth {
    /// The same few thousand requests, each time.
    Test,
    /// Others each time, for so long per store.
    Soak {
        /// The minutes.
        minutes: u32,
    },
}

/// One run against one server.
struct Trial {
    name: &'static str,
    store: String,
    /// Callers must show who they are.
    is_closed: bool,
    /// An admin asks; else nobody in particular.
    is_admin: bool,
    phases: &'static str,
    examples: u32,
}

/// Starts a database server and runs all trials.
pub async fn contract(root: &Path) -> Result<ExitCode> {
    let mut runner = Runner::new(root)?;
    let mut report = Report::default();
    let outcome = steps(root, &mut runner, &mut report).await;
    Ok(report.close(&outcome))
}

async fn steps(root: &Path, runner: &mut Runner, report: &mut Report) -> Result<()> {
    let start = async {
        Binaries::find_or_install()?;
        Cluster::start()
    };
    let cluster = report.step("database server", start).await?;
    report.step("build", runner.cargo(BUILD)).await?;
    let store = cluster.url("postgres");
    report.step("API as described", check(root, runner, &store, Depth::Test)).await
}

/// Runs all trials of the program as it is built, on SQLite and on the Postgres at `postgres`.
pub async fn check(root: &Path, runner: &mut Runner, postgres: &str, depth: Depth) -> Result<()> {
    let venv = Venv::find_or_make(&root.join("target/schemathesis"), PINNED)?;
    let folder = tempfile::tempdir()?;
    let sqlite = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
    // Chains of requests lead to waits that nobody ends; there is time for them in the soak alone.
    let all = match depth {
        Depth::Test => "examples,coverage,fuzzing",
        Depth::Soak { .. } => "examples,coverage,fuzzing,stateful",
    };
    let trial = |name, store, is_admin, phases, examples| Trial {
        name,
        store,
        is_closed: true,
        is_admin,
        phases,
        examples,
    };
    let trials = [
        trial("SQLite, an admin asks", sqlite("admin.db"), true, all, 10),
        trial("SQLite, a stranger asks", sqlite("stranger.db"), false, "fuzzing", 2),
        Trial {
            is_closed: false,
            ..trial("SQLite, anybody may", sqlite("open.db"), false, "examples,fuzzing", 3)
        },
        trial("PostgreSQL, an admin asks", postgres.to_owned(), true, all, 3),
    ];
    let program = venv.program("schemathesis");
    // Two at a time: each makes up its requests one after the other, and has a server and a database of its own.
    let (first, others) = trials.split_at(1);
    let mut beside = runner.twin()?;
    let (one, other) = tokio::join!(
        run_all(root, runner, &program, first, depth),
        run_all(root, &mut beside, &program, others, depth)
    );
    one.and(other)
}

/// Runs trials one after the other, and shows what each one printed when it has ended.
async fn run_all(
    root: &Path,
    runner: &mut Runner,
    program: &Path,
    trials: &[Trial],
    depth: Depth,
) -> Result<()> {
    for trial in trials {
        let began = Instant::now();
        let mut log = tempfile::tempfile()?;
        let outcome = run(root, runner, program, trial, depth, &log).await;
        let mut printed = String::new();
        log.rewind()?;
        log.read_to_string(&mut printed)?;
        println!("\n-- {} ({:.0} s)\n{printed}", trial.name, began.elapsed().as_secs_f64());
        outcome.with_context(|| trial.name)?;
    }
    Ok(())
}

async fn run(
    root: &Path,
    runner: &mut Runner,
    program: &Path,
    trial: &Trial,
    depth: Depth,
    log: &File,
) -> Result<()> {
    let tidemill = built("tidemill")?;
    let secret = trial.is_closed.then(|| token(&tidemill, &trial.store)).transpose()?;
    let (_server, address) = serve(&tidemill, trial)?;
    let seed = Seed::sow(&address, secret.as_deref())?;
    let path = |name: &str| root.join(name).display().to_string();
    let (config, description) =
        (path("xtask/schemathesis.toml"), path("crates/server/openapi.json"));
    let (url, examples) = (format!("http://{address}"), trial.examples.to_string());
    let mut arguments = vec!["--config-file", &config, "run", &description, "--url", &url];
    arguments.extend(["--phases", trial.phases, "--max-examples", &examples, "--workers", "1"]);
    let bearer =
        secret.filter(|_| trial.is_admin).map(|secret| format!("Authorization: Bearer {secret}"));
    if let Some(bearer) = &bearer {
        arguments.extend(["--header", bearer]);
    }
    if !trial.is_closed {
        arguments.extend(["--exclude-checks", OF_CREDENTIALS]);
    }
    let seconds = match depth {
        Depth::Test => None,
        Depth::Soak { minutes } => Some((minutes * 60).to_string()),
    };
    match &seconds {
        Some(seconds) => arguments.extend(["--max-time", seconds]),
        None => arguments.extend(["--seed", "1"]),
    }
    // It leaves notes where it runs, for its next run; ours are all alike.
    let folder = tempfile::tempdir()?;
    runner.watch(program, folder.path(), &arguments, &seed.variables(), Some(log)).await
}

/// The secret of an admin.
fn token(tidemill: &Path, store: &str) -> Result<String> {
    let mut command = Command::new(tidemill);
    command.args(["--store", store, "--json", "token", "create", "contract", "--role", "admin"]);
    let output = command.output().context("cannot run tidemill")?;
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    Ok(told["secret"].as_str().context("no secret was told")?.to_owned())
}

/// A server, and its address.
fn serve(tidemill: &Path, trial: &Trial) -> Result<(Process, String)> {
    let mut command = Command::new(tidemill);
    command.args(["--store", &trial.store, "--json", "serve", "--listen", "127.0.0.1:0"]);
    // Addresses that are made up may be somebody's.
    command.arg("--no-webhooks");
    if trial.is_closed {
        command.arg("--require-token");
    }
    let server = Process::spawn(command.env("TIDEMILL_LOG", "error"))?;
    let line = server.next_line(START_MAX).context("the server did not start")?;
    let told: serde_json::Value = serde_json::from_str(&line)?;
    let address = told["url"].as_str().and_then(|url| url.strip_prefix("http://"));
    Ok((server, address.context("no address was told")?.to_owned()))
}
