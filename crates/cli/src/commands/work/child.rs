//! One attempt as one process: start, feed, listen, judge.
//!
//! The command gets an empty folder and a bare environment. It refuses to wait for pipes that a
//! process which left the group holds open: when the command has ended, so has its output.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use tidemill::{Attempted, Context, Fail, Payload};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio_util::sync::CancellationToken;

use super::Recipe;
use super::group::Group;
use super::inputs;
use super::stderr::{Progress, Said};
use super::stdout::Written;
use super::ticker::Ticker;
use super::verdict;

/// How long pipes may stay open after the command has ended and its group was killed.
const PIPES_AFTER_END: Duration = Duration::from_secs(1);

/// Runs the command for one job.
pub async fn run(
    recipe: Arc<Recipe>,
    ticker: Arc<Ticker>,
    payload: Payload,
    cx: Context,
) -> Attempted {
    let mut watch = Watch { ticker: &ticker, cx: &cx, since: Instant::now(), is_told: false };
    let attempted = attempt(&recipe, &ticker, payload, &cx).await;
    watch.tell(&attempted);
    attempted
}

/// Sees to it that the end of an attempt is told, also of one that is dropped: its time was over, or its worker stops.
struct Watch<'a> {
    ticker: &'a Ticker,
    cx: &'a Context,
    since: Instant,
    is_told: bool,
}

impl Watch<'_> {
    fn tell(&mut self, attempted: &Attempted) {
        self.is_told = true;
        self.ticker.ended(self.cx, self.since.elapsed(), attempted);
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !self.is_told {
            self.tell(&Err(Fail::ambiguous("cut off before it ended")));
        }
    }
}

async fn attempt(
    recipe: &Recipe,
    ticker: &Arc<Ticker>,
    payload: Payload,
    cx: &Context,
) -> Attempted {
    let (mut child, mut group) = start(recipe, cx).await?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(Fail::transient("the command has no pipes"));
    };
    let fed = tokio::spawn(feed(stdin, payload));
    let (teller, told) = (Arc::clone(ticker), cx.clone());
    let on_progress = move |progress| tell(Arc::clone(&teller), told.clone(), progress);
    let hurry = CancellationToken::new();
    let mut said = tokio::spawn(Said::read(stderr, on_progress, hurry.clone()));
    let mut written = tokio::spawn(Written::read(stdout, recipe.output_bytes_max));
    let ended = tokio::select! {
        ended = until_end(&mut child, &mut written) => ended,
        () = cx.cancelled() => {
            end(&mut child, group).await;
            return Err(Fail::cancel("told to end while it ran"));
        }
    };
    let (status, early) = match ended {
        Ok(ended) => ended,
        Err(refused) => {
            end(&mut child, group).await;
            return Err(refused);
        }
    };
    group.leader_ended();
    fed.abort();
    let said = last_words(&mut said, &hurry).await;
    if let Some(fail) = verdict::failure(status, &said) {
        return Err(fail);
    }
    let written = match early {
        Some(written) => Some(written),
        None => within(&mut written).await,
    };
    let output = written.map_or_else(|| Err("the output did not end".to_owned()), |w| w.output());
    output.map_err(Fail::in_doubt)
}

/// Tells how far the command is: here, and in the stream of its job.
async fn tell(ticker: Arc<Ticker>, cx: Context, progress: Progress) {
    ticker.progress(&cx, &progress);
    if let Err(error) = cx.progress(progress.into()).await {
        // A stream that is full is no reason to stop the command.
        tracing::debug!(id = %cx.id(), %error, "progress is not kept");
    }
}

/// Makes the command end. It is collected meanwhile: a dead leader would pass for a living group.
async fn end(child: &mut Child, group: Group) {
    let _ = tokio::join!(child.wait(), group.end());
}

/// Waits for the end of the command; an output over the limit does not wait for it.
async fn until_end(
    child: &mut Child,
    written: &mut tokio::task::JoinHandle<Written>,
) -> Result<(ExitStatus, Option<Written>), Fail> {
    let mut early = None;
    loop {
        tokio::select! {
            status = child.wait() => return Ok((status?, early)),
            output = &mut *written, if early.is_none() => {
                let output = output?;
                if output.is_too_much() {
                    let reason = output.output().err().unwrap_or_default();
                    return Err(Fail::in_doubt(reason));
                }
                early = Some(output);
            }
        }
    }
}

/// What was said, once the command has ended. Progress may wait for the store, but not so long that all else is lost.
async fn last_words(reader: &mut tokio::task::JoinHandle<Said>, hurry: &CancellationToken) -> Said {
    if let Ok(read) = tokio::time::timeout(PIPES_AFTER_END, &mut *reader).await {
        return read.unwrap_or_default();
    }
    hurry.cancel();
    within(reader).await.unwrap_or_default()
}

/// What a reader has, once the command has ended.
async fn within<T>(reader: &mut tokio::task::JoinHandle<T>) -> Option<T> {
    let read = tokio::time::timeout(PIPES_AFTER_END, &mut *reader).await;
    reader.abort();
    read.ok()?.ok()
}

/// A command that reads nothing, or not all, is no error.
async fn feed(mut stdin: ChildStdin, payload: Payload) {
    let _ = stdin.write_all(payload.as_str().as_bytes()).await;
}

async fn start(recipe: &Recipe, cx: &Context) -> Result<(Child, Group), Fail> {
    let folder = tempfile::Builder::new().prefix("tidemill-job-").tempdir()?;
    let (home, told) = (folder.path().join("home"), folder.path().join("inputs.json"));
    std::fs::create_dir(&home)?;
    let inputs = inputs::write(cx, &told).await?.then_some(told);
    let child = command(recipe, cx, &home, inputs.as_deref())
        .spawn()
        .map_err(|error| Fail::transient(format!("the command cannot be started: {error}")))?;
    let leader = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let leader = leader.ok_or_else(|| Fail::transient("the command ended before it began"))?;
    let group = Group::new(leader, recipe.grace, recipe.ending.clone(), Some(folder));
    Ok((child, group))
}

fn command(recipe: &Recipe, cx: &Context, home: &Path, inputs: Option<&Path>) -> Command {
    let job = cx.job();
    let mut command = Command::new("sh");
    command.arg("-c").arg(&recipe.exec).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.current_dir(recipe.cwd.as_deref().unwrap_or(home));
    command.env_clear();
    for name in ["PATH", "LANG"].into_iter().chain(recipe.env.iter().map(String::as_str)) {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    if !recipe.env.iter().any(|name| name == "HOME") {
        command.env("HOME", home);
    }
    if let Some(inputs) = inputs {
        command.env("TIDEMILL_INPUTS", inputs);
    }
    command
        .env("TIDEMILL_JOB_ID", cx.id().to_string())
        .env("TIDEMILL_KIND", &job.kind)
        .env("TIDEMILL_QUEUE", &job.queue)
        .env("TIDEMILL_TENANT", job.tenant.as_deref().unwrap_or_default())
        .env("TIDEMILL_ATTEMPT", cx.attempt().to_string())
        .env("TIDEMILL_TOKEN", cx.token().to_string())
        .env("TIDEMILL_IDEMPOTENCY_KEY", cx.idempotency_key());
    command
}
