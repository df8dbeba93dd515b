//! `tidemill jobs follow ID`: what a job says while it runs, until it ends.
//!
//! On a terminal the progress is a bar that stays at the bottom. Text goes to stdout as it comes, and so does the log;
//! with `--json` every event is a line, as the server's streams have it.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget};
use tidemill::{Event, JobId, Progress, Said, State};

use crate::app::App;
use crate::commands::jobs::show;
use crate::exit::{Exit, Outcome};
use crate::output::{self, Paint};
use crate::progress::style;

/// What to follow.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job
    id: JobId,
    /// Begin after the chunk of this number
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    after: u64,
}

/// Follows the job. The exit code says how it ended.
pub async fn run(app: &App, args: Args) -> Outcome {
    let mill = app.open_existing().await?;
    let mut stream = mill.stream(args.id, args.after).await?;
    let mut shown = Shown::new();
    let mut exit = Exit::Failed;
    while let Some(event) = stream.next().await? {
        if matches!(&event, Event::End(end) if end.state == State::Done) {
            exit = Exit::Ok;
        }
        if app.json {
            output::json(&event);
        } else {
            shown.show(&event);
        }
        if output::is_broken() {
            exit = Exit::Ok;
            break;
        }
    }
    drop(stream);
    mill.close().await;
    Ok(exit)
}

/// What people see.
struct Shown {
    bar: ProgressBar,
    is_terminal: bool,
    /// Text was written, and its line has not ended.
    within_line: bool,
}

impl Shown {
    fn new() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let target =
            if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(style("{spinner:.cyan} {elapsed} {msg}"));
        Self { bar, is_terminal, within_line: false }
    }

    fn show(&mut self, event: &Event) {
        match event {
            Event::Chunk(chunk) => match &chunk.said {
                Said::Progress(progress) => self.progress(progress),
                Said::Log { message } => {
                    self.end_line();
                    self.bar.suspend(|| output::line(message));
                }
                Said::Text { text } => self.text(text),
                Said::Parked { code, why } => {
                    self.end_line();
                    let yellow = Paint::stderr().yellow("parked");
                    let line = format!("{yellow}[{}]: {why}", code.code());
                    self.bar.suspend(|| eprintln!("{}", output::harmless(&line)));
                }
                Said::Paused | Said::Resumed => {
                    self.end_line();
                    let yellow = Paint::stderr().yellow(chunk.said.word());
                    self.bar.suspend(|| eprintln!("{yellow}"));
                }
            },
            Event::End(end) => {
                self.end_line();
                self.bar.finish_and_clear();
                if end.state != State::Done {
                    let red = Paint::stderr().red("error");
                    let reason = end.error.as_deref().unwrap_or("no reason is kept");
                    let reason = output::harmless(reason);
                    eprintln!("{red}[job_not_done]: the job is {}: {reason}", end.state.word());
                }
            }
        }
    }

    fn progress(&mut self, progress: &Progress) {
        if !self.is_terminal {
            self.end_line();
            return eprintln!("{}", output::harmless(&show::progress(progress)));
        }
        if let Some(total) = progress.total {
            self.bar.set_style(style("{bar:32.cyan/dim} {human_pos}/{human_len} {elapsed} {msg}"));
            self.bar.set_length(total);
        }
        if let Some(step) = progress.step {
            self.bar.set_position(step);
        }
        let words = Progress { step: None, total: None, ..progress.clone() };
        self.bar.set_message(output::harmless(&show::progress(&words)).into_owned());
    }

    fn text(&mut self, text: &str) {
        self.within_line = !text.ends_with('\n');
        // What is piped on is piped as it was said.
        let is_seen = std::io::stdout().is_terminal();
        let text = if is_seen { output::harmless(text) } else { text.into() };
        self.bar.suspend(|| output::write(format_args!("{text}")));
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.within_line) {
            self.bar.suspend(|| output::line(""));
        }
    }
}
