//! `tidemill jobs wait ID`: until a job has finished, in whichever process.

use std::time::Duration;

use tidemill::{JobId, JobView, State};

use crate::app::App;
use crate::duration::Span;
use crate::exit::{Exit, Outcome};
use crate::mill::Mill;
use crate::output::{self, Paint};
use crate::progress::Late;

/// Long enough to mean for ever, short enough to be a time.
const FOR_EVER: Duration = Duration::from_hours(10 * 366 * 24);

/// How long to wait.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Patience {
    /// Wait at most this long [default: for ever]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
}

impl Patience {
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
    Ok(Late::wait("waiting for the job").during(mill.wait(id, patience.limit())).await?)
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
