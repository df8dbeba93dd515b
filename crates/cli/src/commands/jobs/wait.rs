//! `tidemill jobs wait ID`: until a job has finished, in whichever process.

use std::time::Duration;

use tidemill::{JobId, JobView, State};
use tidemill_client::{Error, Result};
use tokio::time::Instant;

use crate::app::App;
use crate::duration::Span;
use crate::exit::{Exit, Failure, Outcome};
use crate::mill::Mill;
use crate::output::{self, Paint};
use crate::progress::Late;

/// Long enough to mean for ever, short enough to be a time.
const FOR_EVER: Duration = Duration::from_hours(10 * 366 * 24);
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How long to wait.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Patience {
    /// Wait at most this long [default: for ever]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
}

impl Patience {
    /// Whether somebody said how long.
    pub fn is_given(self) -> bool {
        self.timeout.is_some()
    }

    /// The longest wait.
    pub fn limit(self) -> Duration {
        self.timeout.map_or(FOR_EVER, |span| span.0)
    }
}

/// Waits for the job and prints its output.
pub async fn run(app: &App, id: JobId, patience: Patience) -> Outcome {
    let mill = app.open_existing().await?;
    let view = until_finished(&mill, id, patience).await?;
    mill.close().await;
    show(app, &view);
    Ok(if view.state == State::Done { Exit::Ok } else { Exit::Failed })
}

/// Waits until the job has finished.
pub async fn until_finished(mill: &Mill, id: JobId, patience: Patience) -> Outcome<JobView> {
    let mut late = Late::wait("waiting for the job");
    late.during(through_outages(patience, |time| mill.wait(id, time))).await
}

/// Waits by `ask` for as long as there is patience. A store or server that goes away meanwhile is told of once, and
/// waited for, too: what is waited for may well come to its end.
pub async fn through_outages<T, W: Future<Output = Result<T>>>(
    patience: Patience,
    ask: impl Fn(Duration) -> W,
) -> Outcome<T> {
    let deadline = Instant::now() + patience.limit();
    let (mut pause, mut is_said) = (PAUSE_FIRST, false);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let error = match ask(left).await {
            Err(error) if is_away(&error) => error,
            answer => return Ok(answer?),
        };
        if Instant::now() + pause >= deadline {
            let message = format!("it did not end in the time given, and is out of sight: {error}");
            return Err(Failure::new(Exit::Timeout, "wait_timeout", message));
        }
        if !is_said {
            eprintln!("{error}; waiting until it is back");
            is_said = true;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Whether who was asked is not there just now.
fn is_away(error: &Error) -> bool {
    match error {
        Error::Engine(tidemill::Error::Store(error)) => error.is_temporary(),
        Error::Refused { problem, .. } => matches!(problem.status, 502 | 503),
        Error::Unreachable { .. } => true,
        _ => false,
    }
}

/// Prints what came of it: the output on stdout, or why there is none on stderr.
pub fn show(app: &App, view: &JobView) {
    if app.json {
        return output::json(view);
    }
    if view.state == State::Done {
        let output = view.output.as_ref().map_or("null", |output| output.as_str());
        return output::line(output::shown(output));
    }
    let red = Paint::stderr().red("error");
    let reason = view.error.as_deref().unwrap_or("no reason is kept");
    eprintln!("{red}[job_not_done]: the job {} is {}: {reason}", view.job.id, view.state.word());
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use tidemill_store::Error as StoreError;

    fn away() -> Error {
        let error = StoreError::Unavailable { reason: "host:1/db".into(), unknown: false };
        tidemill::Error::from(error).into()
    }

    fn patience(s: u64) -> Patience {
        Patience { timeout: Some(Span(Duration::from_secs(s))) }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_away_is_waited_for_until_the_time_is_over() {
        let asked = Cell::new(0);
        let ask = |_| async {
            asked.set(asked.get() + 1);
            if asked.get() < 5 { Err(away()) } else { Ok(asked.get()) }
        };
        assert_eq!(through_outages(patience(60), ask).await.unwrap(), 5);
        let since = Instant::now();
        let late = through_outages(patience(10), |_| async { Err::<(), _>(away()) }).await;
        assert_eq!(late.unwrap_err().code(), "wait_timeout");
        assert!(since.elapsed() <= Duration::from_secs(10));
        let refused = |_| async { Err::<(), _>(tidemill::Error::ReplayedOnly.into()) };
        let refused = through_outages(patience(10), refused).await.unwrap_err();
        assert_eq!(refused.code(), "replayed_only");
    }
}
