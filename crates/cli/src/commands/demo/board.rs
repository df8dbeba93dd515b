//! The demo's live picture: a bar for each kind on a terminal, a line each second elsewhere.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar};

use super::handlers::Plan;
use super::kinds::KINDS;
use super::tally::{Counts, Tally};
use crate::app::App;
use crate::output::{Paint, grouped};
use crate::progress::style;

const LINE_EVERY: Duration = Duration::from_secs(1);
const KIND_TEMPLATE: &str = "  {prefix:18} {bar:36.cyan/dim} {pos:>5}/{len:<5} {msg}";
const ALL_TEMPLATE: &str = "  {prefix:18} {bar:36.green/dim} {pos:>5}/{len:<5} {msg}";

/// What is shown while the demo runs.
pub struct Board {
    bars: Option<Bars>,
    since: Instant,
    lines: Mutex<u32>,
    jobs: u64,
}

struct Bars {
    all: MultiProgress,
    total: ProgressBar,
    kinds: Vec<(&'static str, ProgressBar)>,
}

impl Board {
    /// An empty board.
    pub fn new(app: &App, plan: &Plan) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let paint = Paint::stderr();
        eprintln!(
            "{} {} people sign up, in waves, on {}; Ctrl-C stops gracefully\n",
            paint.bold("tidemill demo:"),
            grouped(plan.sign_ups),
            app.place(),
        );
        let bars = terminal.then(|| Bars::new(plan));
        Self { bars, since: Instant::now(), lines: Mutex::new(0), jobs: plan.jobs() }
    }

    /// Shows how far it is.
    pub fn show(&self, tally: &Tally, arrived: u64) {
        let finished = tally.finished();
        match &self.bars {
            Some(bars) => bars.show(tally, finished, arrived),
            None => self.line(tally, finished),
        }
    }

    /// Takes the bars away: the summary says it better. Bars that are left would be drawn once more at their end.
    pub fn end(self) {
        let Some(bars) = self.bars else { return };
        let of_kinds = bars.kinds.iter().map(|(_, bar)| bar);
        of_kinds.chain([&bars.total]).for_each(ProgressBar::finish_and_clear);
        let _ = bars.all.clear();
    }

    fn line(&self, tally: &Tally, finished: u64) {
        let Ok(mut lines) = self.lines.lock() else { return };
        let elapsed = self.since.elapsed();
        if elapsed < LINE_EVERY * *lines {
            return;
        }
        *lines += 1;
        let all: Vec<_> = KINDS.iter().map(|(kind, _)| tally.of(kind)).collect();
        let sum = |count: fn(&Counts) -> u64| all.iter().map(count).sum::<u64>();
        let (retried, dead) = (sum(|counts| counts.retried), sum(|counts| counts.dead));
        eprintln!(
            "{:>3}s  {finished}/{} jobs finished, {retried} retried, {dead} dead",
            elapsed.as_secs(),
            self.jobs
        );
    }
}

impl Bars {
    fn new(plan: &Plan) -> Self {
        let all = MultiProgress::new();
        let bar = |name: &str, jobs, template| {
            let bar = all.add(ProgressBar::new(jobs));
            bar.set_style(style(template));
            bar.set_prefix(name.to_owned());
            bar
        };
        let kinds =
            KINDS.iter().map(|(kind, _)| (*kind, bar(kind, plan.jobs_of(kind), KIND_TEMPLATE)));
        let kinds = kinds.collect();
        let total = bar("all", plan.jobs(), ALL_TEMPLATE);
        Self { all: all.clone(), total, kinds }
    }

    fn show(&self, tally: &Tally, finished: u64, arrived: u64) {
        for (kind, bar) in &self.kinds {
            let counts = tally.of(kind);
            bar.set_position(counts.finished);
            bar.set_message(said(&counts));
        }
        self.total.set_position(finished);
        self.total.set_message(format!("{} people so far", grouped(arrived)));
    }
}

fn said(counts: &Counts) -> String {
    let words =
        [(counts.retried, "retried"), (counts.limited, "told to wait"), (counts.dead, "dead")];
    let words = words.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}"));
    words.collect::<Vec<_>>().join(", ")
}
