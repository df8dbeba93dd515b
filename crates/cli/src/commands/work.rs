//! `tidemill work --exec CMD`: any program as a handler, one process for each job.
//!
//! The payload is on stdin, the output on stdout, progress on stderr; the exit code says what came
//! of it (`verdict`). Nothing of a job outlives its attempt: the whole process group ends with it.

mod child;
mod dedicated;
pub mod group;
mod inputs;
mod stderr;
mod stdout;
mod ticker;
mod verdict;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use tidemill::core::limit::NAME_BYTES_MAX;
use tidemill::core::name;
use tidemill::core::retry::text::BackoffText;
use tidemill::{Retry, Settings, Stop};
use tokio_util::task::TaskTracker;

use crate::app::{App, interrupted};
use crate::duration::Span;
use crate::exit::{Exit, Failure, Outcome};
use dedicated::Dedicated;
use ticker::Ticker;

/// How long a group that was killed may take to be gone.
const KILLED: Duration = Duration::from_secs(2);

const AFTER_HELP: &str = "\
The command runs with `sh -c`, in an empty folder of its own, with the payload on stdin. Its
environment is PATH, LANG, HOME (the folder), what --env names, and TIDEMILL_JOB_ID,
TIDEMILL_KIND, TIDEMILL_QUEUE, TIDEMILL_TENANT, TIDEMILL_ATTEMPT, TIDEMILL_TOKEN and
TIDEMILL_IDEMPOTENCY_KEY. A job of a flow that comes after others has TIDEMILL_INPUTS: the path of a
JSON file with what they returned, by the names of their steps.

stdout is the job's output: JSON as it is, other text as a JSON string, nothing as null. One that is
too large, or not UTF-8, or has a NUL cannot be kept; that is as exit code 102.
stderr lines `progress PERCENT [TEXT]` are progress, kept with the job (`tidemill jobs follow`), a line
`retry-after SECONDS` sets the delay of the next attempt, and the last other lines are the error
message when the command fails.

Exit code    what it means
  0          done
  64 65 78   permanent: wrong usage, data or configuration; the job is dead at once
  100        permanent
  76         rate limited: again after `retry-after` (10 s), no attempt spent
  79         snoozed: again after `retry-after` (60 s), nothing failed
  80         cancelled
  101        ambiguous: nobody knows whether it took effect; retried on a smaller budget
  102        in doubt: it may have taken effect, and another attempt would not help; the job is
             dead at once, and its saga undoes it
  129-159    ambiguous, as is death by a signal
  any other  transient: retried with backoff (75 says so explicitly)

Examples:
  tidemill work --kind resize --exec 'convert - -resize 50% png:-' --concurrency 4
  tidemill work --kind report,invoice --exec 'python3 handler.py' --cwd . --env DATABASE_URL
  tidemill work --kind charge,mail --exec ./handle --queue mail --dedicated pay=5 --dedicated sign-up=2+";

/// What runs which jobs.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The command that runs a job
    #[arg(long, value_name = "CMD")]
    exec: String,
    /// The kinds it knows
    #[arg(long = "kind", value_name = "KIND,…", required = true, value_delimiter = ',')]
    kinds: Vec<String>,
    /// The queues to take from; they share the slots of --concurrency [default: default]
    #[arg(
        long = "queue",
        value_name = "QUEUE,…",
        value_delimiter = ',',
        value_parser = NonEmptyStringValueParser::new()
    )]
    queues: Vec<String>,
    /// A queue with so many slots of its own and no others, besides those that are shared; with a plus, as in
    /// sign-up=2+, its jobs may take shared ones too
    #[arg(long, value_name = "QUEUE=SLOTS,…", value_delimiter = ',')]
    dedicated: Vec<Dedicated>,
    /// How many jobs run at once in shared slots [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: Option<u16>,
    /// How long one attempt may run, where the job does not say
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    timeout: Span,
    /// How long a command has between SIGTERM and SIGKILL
    #[arg(long, value_name = "DURATION", default_value = "3s")]
    grace: Span,
    /// At a stop, how long running jobs may go on
    #[arg(long, value_name = "DURATION", default_value = "20s")]
    drain: Span,
    /// The largest output that is kept
    #[arg(long, value_name = "BYTES", default_value_t = 1024 * 1024)]
    max_output_bytes: usize,
    /// Environment variables to pass through
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    env: Vec<String>,
    /// Run in this folder instead of an empty one
    #[arg(long, value_name = "FOLDER")]
    cwd: Option<PathBuf>,
    /// Attempts in all, where the job does not say [default: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    attempts: Option<u16>,
    /// The delay between attempts, where the job does not say [default: exponential:1s..1h]
    #[arg(long)]
    backoff: Option<BackoffText>,
    /// Send traces to the OpenTelemetry collector at this URL, such as http://localhost:4318
    #[arg(long, env = "TIDEMILL_OTLP", hide_env_values = true, value_name = "URL")]
    otlp: Option<String>,
}

/// How to run a command for a job.
#[derive(Debug)]
pub struct Recipe {
    /// The command, for `sh -c`.
    pub exec: String,
    /// The folder to run in; an empty one of its own where none is named.
    pub cwd: Option<PathBuf>,
    /// Environment variables that are passed through.
    pub env: Vec<String>,
    /// The largest output.
    pub output_bytes_max: usize,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Groups that are on their way out.
    pub ending: TaskTracker,
}

impl Args {
    /// Refuses what would end jobs unseen, or wait for ever: a variable that is not set is an empty word.
    fn check(&self) -> Outcome<()> {
        if self.exec.trim().is_empty() {
            let empty = "the command of --exec is empty; it would call every job done";
            return Err(Failure::usage(empty));
        }
        if self.timeout.0.is_zero() {
            let never = "--timeout 0s would end every attempt before it begins; give them longer";
            return Err(Failure::usage(never));
        }
        if let Some(cwd) = self.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
            let message = format!("--cwd {} is no folder; make it, or name another", cwd.display());
            return Err(Failure::usage(message));
        }
        for kind in &self.kinds {
            name::check("kind", kind, NAME_BYTES_MAX).map_err(tidemill::Error::from)?;
        }
        Ok(())
    }
}

/// Works until SIGTERM or Ctrl-C.
pub async fn run(app: &App, args: Args) -> Outcome {
    args.check()?;
    let settings = Settings { retry: args.retry(), ..Settings::default() };
    let queues = match args.queues.as_slice() {
        [] => vec![settings.queue.clone()],
        queues => queues.to_vec(),
    };
    dedicated::check(&queues, &args.dedicated)?;
    let mill = app.join_patiently().await?;
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let slots = args.concurrency.map_or(cores, usize::from);
    let ticker = Arc::new(Ticker::new(app.json));
    ticker.start(&args.kinds, &queues, slots, &args.dedicated);
    let recipe = Arc::new(Recipe {
        exec: args.exec,
        cwd: args.cwd,
        env: args.env,
        output_bytes_max: args.max_output_bytes,
        grace: args.grace.0,
        ending: TaskTracker::new(),
    });
    let mut worker = mill
        .worker()
        .queues(queues)
        .slots(slots)
        .run_timeout(args.timeout.0)
        // The group is gone before its job is settled.
        .cancel_grace(args.grace.0 + KILLED)
        .stop_as(Stop { drain: args.drain.0, ..Stop::default() });
    for own in &args.dedicated {
        worker = own.of(worker);
    }
    for kind in &args.kinds {
        let (recipe, ticker) = (Arc::clone(&recipe), Arc::clone(&ticker));
        worker = worker.handle_raw(kind, settings.clone(), move |payload, cx| {
            child::run(Arc::clone(&recipe), Arc::clone(&ticker), payload, cx)
        });
    }
    let stop = interrupted();
    let running = worker.start().await?;
    stop.await;
    ticker.stop(running.busy());
    running.stop().await;
    recipe.ending.close();
    recipe.ending.wait().await;
    mill.close().await;
    Ok(Exit::Ok)
}

impl Args {
    /// Where traces go.
    pub fn otlp(&self) -> Option<&str> {
        self.otlp.as_deref()
    }

    fn retry(&self) -> Retry {
        let retry = self.attempts.map_or_else(Retry::default, Retry::attempts);
        match &self.backoff {
            Some(backoff) => retry.backoff(backoff.0.clone()),
            None => retry,
        }
    }
}
