//! The binary `tidemill`: jobs from the shell, and a look at what they do.
//!
//! Only the command line is read here; each command has its file in `commands/`. Data goes to
//! stdout and talk to stderr; exit codes are in `exit`. It refuses to prompt without a terminal.

mod app;
mod commands;
mod config;
mod duration;
mod exit;
mod file;
mod lines;
mod mill;
mod otlp;
mod output;
mod pretty;
mod progress;
mod trail;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use app::App;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use commands::{
    alerts, audit, bench, completions, config as config_command, dead, demo, doctor, enqueue,
    flows, jobs, keys, limits, migrate, queues, schedules, serve, token, top, webhooks, work,
    workers, workflows,
};
use config::Config;
use exit::{Exit, Failure, Outcome};
use otlp::Otlp;
use tidemill::Redaction;
use trail::Trail;

const AFTER_HELP: &str = "\
Exit codes: 0 ok · 1 the work failed · 2 usage or refused input · 3 not found ·
4 not allowed · 5 conflict or duplicate rejected · 6 store or server unavailable, or queue full ·
7 timeout.

Start with `tidemill demo`. Durations are written 500ms, 90s, 5m, 2h, 3d.";

/// Durable background work on the database you already have.
#[derive(Debug, Parser)]
#[command(name = "tidemill", version, after_help = AFTER_HELP, max_term_width = 100)]
struct Cli {
    /// The store: sqlite:FILE or postgres://USER@HOST/DATABASE [default: sqlite:tidemill.db]
    #[arg(long, global = true, env = "TIDEMILL_STORE", hide_env_values = true, value_name = "URL")]
    store: Option<String>,
    /// A server instead of a store: http(s)://HOST; TIDEMILL_TOKEN has the secret of a credential
    #[arg(
        long,
        global = true,
        env = "TIDEMILL_SERVER",
        hide_env_values = true,
        value_name = "URL"
    )]
    server: Option<String>,
    /// A file that has the secret of a credential for the server
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A file with certificates (PEM) of servers to trust, besides those that this machine trusts
    #[arg(long, global = true, env = "TIDEMILL_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Answer in JSON: lists as JSON lines, all else as one document
    #[arg(long, global = true)]
    json: bool,
    /// Hide this field of payloads (password, card.number) in all that is shown; may be given several times
    #[arg(
        long = "hide",
        global = true,
        env = "TIDEMILL_HIDE",
        value_name = "FIELD",
        value_delimiter = ','
    )]
    hide: Vec<String>,
    /// Take options from this file [default: tidemill.toml, if it is there]
    #[arg(long, global = true, env = "TIDEMILL_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a lifelike workload on a SQLite file, and watch it
    Demo(demo::Args),
    /// Enqueue one job, or many from JSON lines
    Enqueue(Box<enqueue::Args>),
    /// Run jobs with any program as their handler
    Work(work::Args),
    /// Webhooks: who is told of ended jobs, and what became of it
    Webhooks(webhooks::Args),
    /// Serve HTTP, for every language
    Serve(serve::Args),
    /// Look at jobs, cancel them, retry them, wait for them
    Jobs(jobs::Args),
    /// Flows: draw them, start them, call them off, try them again
    Flows(flows::Args),
    /// Workflows: list runs, show what they did, signal, pause, resume, reset, cancel
    Workflows(workflows::Args),
    /// Dead letters: look, group, note, replay, archive
    Dead(dead::Args),
    /// What is in the queues, and their rules
    Queues(queues::Args),
    /// Limits: what may run at once, how often, and what is spared while it is unwell
    Limits(limits::Args),
    /// Schedules: when they fire, and what became of their slots
    Schedules(schedules::Args),
    /// Tokens: who may talk to a server, and what they may do there
    Token(token::Args),
    /// Keys: what payloads are encrypted with, and how that is changed
    Keys(keys::Args),
    /// Queues, rates, latencies, workers and what died, live in the terminal
    Top(top::Args),
    /// What somebody should look at
    Alerts,
    /// Who did what to what, and what became of it
    Audit(audit::Args),
    /// The workers that are alive
    Workers,
    /// Bring the store's schema up to date
    Migrate,
    /// Every setting of a command, and where it comes from
    Config(config_command::Args),
    /// Examine the health of the store
    Doctor,
    /// Measure this machine and this store
    Bench(bench::Args),
    /// Print completions for a shell
    Completions(completions::Args),
}

fn main() -> ExitCode {
    let (_, program) = match Config::read(Cli::command()) {
        Ok(read) => read,
        Err(failure) => {
            return failure.report(is_json_wanted()).into();
        }
    };
    let matches = match program.clone().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return not_understood(&error).into(),
    };
    let trail = Trail::of(&program, &matches);
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => return not_understood(&error).into(),
    };
    let (json, command) = (cli.json, cli.command);
    let hidden = match Redaction::parse(cli.hide.iter().map(String::as_str)) {
        Ok(hidden) => hidden,
        Err(error) => return Failure::from(tidemill::Error::from(error)).report(json).into(),
    };
    output::hide(hidden.clone());
    let app = match where_to(&matches, cli.store, cli.server) {
        Ok((store, url)) => {
            let (token_file, ca_file) = (cli.token_file, cli.ca_file);
            let server = url.map(|url| app::Server { url, token_file, ca_file });
            App { store, server, json, hidden, trail }
        }
        Err(failure) => return failure.report(json).into(),
    };
    let otlp = match command.otlp().map(Otlp::start).transpose() {
        Ok(otlp) => otlp,
        Err(failure) => return failure.report(app.json).into(),
    };
    log_to_stderr(matches!(command, Command::Work(_) | Command::Serve(_)), otlp.as_ref());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = runtime.map_err(Failure::from).and_then(|runtime| {
        let outcome = runtime.block_on(async {
            let outcome = output::end(Box::pin(run(&app, command)).await);
            app.trail.end(&app, &outcome).await;
            outcome
        });
        // A read of stdin cannot be cancelled; an end that waits for it would hang.
        runtime.shutdown_background();
        outcome
    });
    if let Some(otlp) = otlp {
        otlp.stop();
    }
    outcome.unwrap_or_else(|failure| failure.report(app.json)).into()
}

/// Whether errors are to be documents, where the command line itself is the error.
fn is_json_wanted() -> bool {
    std::env::args_os().any(|word| word == "--json")
}

/// Says what of the command line was not understood, with its code as all errors have; or shows the help that was
/// asked for.
fn not_understood(error: &clap::Error) -> Exit {
    if !error.use_stderr() {
        error.exit();
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    if is_json_wanted() {
        let (message, rest) = text.split_once("\n\n").unwrap_or((text, ""));
        let failure = Failure::usage(message.trim());
        let rest = rest.trim();
        return if rest.is_empty() { failure } else { failure.hint(rest) }.report(true);
    }
    eprint!("{}[usage]: {text}", output::Paint::stderr().red("error"));
    Exit::Usage
}

/// The store or the server that is meant: the command line goes before the environment, and that before the file. A
/// store whose URL is a server's is one.
fn where_to(
    matches: &ArgMatches,
    store: Option<String>,
    server: Option<String>,
) -> Outcome<(Option<String>, Option<String>)> {
    let rank = |name| match matches.value_source(name) {
        Some(ValueSource::CommandLine) => 2,
        Some(ValueSource::EnvVariable) => 1,
        _ => 0,
    };
    let (store, server) = match (store, server) {
        (Some(_), Some(_)) if rank("store") == rank("server") => {
            return Err(Failure::usage("a store and a server are named; one of them is meant")
                .hint("the command line goes before the environment, and that before the file"));
        }
        (Some(store), Some(_)) if rank("store") > rank("server") => (Some(store), None),
        (_, Some(server)) => (None, Some(server)),
        (store, None) => (store, None),
    };
    Ok(match store {
        Some(url) if app::is_server(&url) => (None, Some(url)),
        store => (store, server),
    })
}

impl Command {
    /// Where traces go.
    fn otlp(&self) -> Option<&str> {
        match self {
            Self::Work(args) => args.otlp(),
            Self::Serve(args) => args.otlp(),
            _ => None,
        }
    }
}

async fn run(app: &App, command: Command) -> Outcome {
    match command {
        Command::Demo(args) => demo::run(app, args).await,
        Command::Enqueue(args) => enqueue::run(app, *args).await,
        Command::Work(args) => work::run(app, args).await,
        Command::Serve(args) => serve::run(app, args).await,
        Command::Webhooks(args) => webhooks::run(app, args).await,
        Command::Jobs(args) => jobs::run(app, args).await,
        Command::Flows(args) => flows::run(app, args).await,
        Command::Workflows(args) => workflows::run(app, args).await,
        Command::Dead(args) => dead::run(app, args).await,
        Command::Queues(args) => queues::run(app, args).await,
        Command::Limits(args) => limits::run(app, args).await,
        Command::Schedules(args) => schedules::run(app, args).await,
        Command::Token(args) => token::run(app, args).await,
        Command::Keys(args) => keys::run(app, args).await,
        Command::Top(args) => top::run(app, args).await,
        Command::Alerts => alerts::run(app).await,
        Command::Audit(args) => audit::run(app, args).await,
        Command::Workers => workers::run(app).await,
        Command::Migrate => migrate::run(app).await,
        Command::Config(args) => config_command::run(app, args),
        Command::Doctor => doctor::run(app).await,
        Command::Bench(args) => bench::run(app, args).await,
        Command::Completions(args) => {
            completions::run(&args);
            Ok(Exit::Ok)
        }
    }
}

/// A worker tells what it does, to people in its own lines; other commands say their errors
/// themselves. `TIDEMILL_LOG` decides.
fn log_to_stderr(is_worker: bool, otlp: Option<&Otlp>) {
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::prelude::*;
    use tracing_subscriber::{EnvFilter, fmt, registry};
    let default = match (is_worker, std::io::stderr().is_terminal()) {
        (true, false) => "warn,tidemill=info",
        (true, true) => "warn",
        (false, _) => "error",
    };
    let filter = EnvFilter::try_from_env("TIDEMILL_LOG");
    let colourful = output::Paint::stderr().is_on();
    let log = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(colourful)
        .with_target(false)
        .with_filter(filter.unwrap_or_else(|_| EnvFilter::new(default)));
    // The sender's own spans are nobody's business, least of all its own.
    let traces = otlp.map(|otlp| {
        tracing_opentelemetry::layer()
            .with_tracer(otlp.tracer())
            .with_filter(Targets::new().with_target("tidemill", LevelFilter::INFO))
    });
    registry().with(log).with(traces).init();
}
