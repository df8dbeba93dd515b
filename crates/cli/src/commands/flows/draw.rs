//! A flow as lines of text: how far the whole is, and a line for each step.
//!
//! Signs say what colours say, so nothing is lost where there are none. It refuses to cut what is
//! piped: only a terminal's width, if one is given, bends a line.

use std::collections::HashMap;
use std::time::Duration;

use console::{Alignment, measure_text_width, pad_str, truncate_str};
use tidemill::{FlowProgress, FlowView, StepView, Timestamp};
use tidemill_core::flow::{FlowState, StepState};

use super::layout::Row;
use super::{layout, note};
use crate::duration::{relative, short};
use crate::output::{Paint, count, grouped};

const FLOW_BAR: usize = 40;
const STEP_BAR: usize = 12;

/// How a flow is drawn.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// In which colours.
    pub paint: Paint,
    /// As wide as this, at most.
    pub columns: Option<usize>,
}

/// What jobs of failed steps said, by the numbers of the steps.
pub type Errors = HashMap<u32, String>;

/// The whole drawing: first the whole flow, then its steps.
pub fn flow(
    view: &FlowView,
    errors: &Errors,
    now: Timestamp,
    style: Style,
) -> (Vec<String>, Vec<String>) {
    let steps = steps(view, errors, now, style.paint);
    (cut(head(view, now, style.paint), style), cut(steps, style))
}

fn cut(lines: Vec<String>, style: Style) -> Vec<String> {
    let Some(columns) = style.columns else { return lines };
    lines.iter().map(|line| truncate_str(line, columns, "…").into_owned()).collect()
}

/// How many jobs of a flow have come to what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub done: u64,
    pub failed: u64,
    pub skipped: u64,
    pub all: u64,
}

impl Share {
    /// Of a whole flow.
    pub fn of(view: &FlowView) -> Self {
        let FlowProgress { jobs, done, failed, skipped, .. } = view.progress;
        Self { done, failed, skipped, all: jobs }
    }

    /// How many are still to end.
    pub fn left(self) -> u64 {
        self.all.saturating_sub(self.done + self.failed + self.skipped)
    }
}

fn head(view: &FlowView, now: Timestamp, paint: Paint) -> Vec<String> {
    let head = &view.head;
    let share = Share::of(view);
    let until = head.finished_at.unwrap_or(now);
    let lasted = Duration::try_from(until.duration_since(head.created_at)).unwrap_or_default();
    let when = match head.finished_at {
        Some(at) => {
            format!("in {}, {}", short(lasted), relative(at, now).replace("now", "just now"))
        }
        None => match head.since {
            // How long it is what it is says more than how long it is there.
            Some(since) => {
                format!("since {since:.0}, {}", relative(since, now).replace("now", "just now"))
            }
            None => format!("for {}", short(lasted)),
        },
    };
    let mut counts = vec![format!("{} of {} jobs done", grouped(share.done), grouped(share.all))];
    counts.extend(words(share));
    if !head.state.is_final() && share.left() > 0 {
        counts.push(format!("{} left", grouped(share.left())));
    }
    if let Some(rest) = view.progress.expected_end_at.map(|end| rest(end, now)) {
        counts.push(format!("about {} to go", short(rest)));
    }
    let mut lines = vec![
        format!("{}  {} {when}", paint.bold(&head.name), state(head.state, paint)),
        paint.dim(&head.id.to_string()),
        format!("{}  {}", bar(share, FLOW_BAR, paint), counts.join(", ")),
    ];
    lines.extend(head.reason.as_ref().map(|reason| format!("called off: {reason}")));
    lines
}

/// What is not as it should be.
fn words(share: Share) -> impl Iterator<Item = String> {
    let words = [(share.failed, "failed"), (share.skipped, "skipped")];
    words.into_iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{} {word}", grouped(n)))
}

/// How long the rest takes until the end that is expected.
fn rest(end: Timestamp, now: Timestamp) -> Duration {
    let rest = Duration::try_from(end.duration_since(now)).unwrap_or_default();
    // More than two units of time would pretend to know it exactly.
    if rest.as_secs() > 0 { Duration::from_secs(rest.as_secs()) } else { rest }
}

/// A flow's state in its colour.
pub fn state(state: FlowState, paint: Paint) -> String {
    let word = state.word();
    match state {
        FlowState::Done => paint.green(&format!("✔ {word}")),
        FlowState::Failed => paint.red(&format!("✘ {word}")),
        FlowState::Running => paint.cyan(&format!("● {word}")),
        FlowState::Cancelling | FlowState::Undoing => paint.yellow(&format!("● {word}")),
        FlowState::Cancelled => paint.yellow(&format!("⊘ {word}")),
        FlowState::Undone => paint.yellow(&format!("↺ {word}")),
        FlowState::Stuck => paint.red(&format!("! {word}")),
        FlowState::Building => paint.dim(&format!("○ {word}")),
    }
}

/// How far it is: done, failed, the rest.
fn bar(share: Share, columns: usize, paint: Paint) -> String {
    let part = |n: u64| match share.all {
        0 => 0,
        all => (n as usize * columns).div_euclid(all as usize).max(usize::from(n > 0)),
    };
    let failed = part(share.failed).min(columns);
    let done = part(share.done).min(columns - failed);
    let done = if share.left() + share.skipped == 0 { columns - failed } else { done };
    format!(
        "{}{}{}",
        paint.green(&"━".repeat(done)),
        paint.red(&"╍".repeat(failed)),
        paint.dim(&"─".repeat(columns - done - failed))
    )
}

/// A line for each step, in columns.
fn steps(view: &FlowView, errors: &Errors, now: Timestamp, paint: Paint) -> Vec<String> {
    let rows = layout::rows(&view.steps);
    let digits = rows.iter().map(|row| grouped(row.step.jobs).len()).max().unwrap_or_default();
    let cells: Vec<[String; 5]> = rows
        .iter()
        .map(|row| {
            let kind = paint.dim(row.step.kind.as_deref().unwrap_or("–"));
            let jobs = jobs(row.step, digits, paint);
            [name(row, paint), kind, jobs, lasted(row.step, now), noted(row, errors, paint)]
        })
        .collect();
    let width = |column: usize| {
        cells.iter().map(|row| measure_text_width(&row[column])).max().unwrap_or_default()
    };
    let widths = [width(0), width(1), width(2), width(3), 0];
    let line = |row: &[String; 5]| {
        let columns = (0..row.len()).filter(|column| widths[*column] > 0 || *column == 4);
        let padded = columns.map(|column| {
            let side = if column == 3 { Alignment::Right } else { Alignment::Left };
            pad_str(&row[column], widths[column], side, None)
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    cells.iter().map(line).collect()
}

/// Its place in the tree, its sign, its name.
fn name(row: &Row<'_>, paint: Paint) -> String {
    let step = row.step;
    let name = match step.state {
        StepState::Waiting | StepState::Skipped => paint.dim(&step.name),
        _ => step.name.clone(),
    };
    format!("{}{} {name}", paint.dim(&row.rails), sign(step.state, paint))
}

fn noted(row: &Row<'_>, errors: &Errors, paint: Paint) -> String {
    let note = note::of(row.step, row.under);
    let note =
        if row.step.state == StepState::Skipped { paint.yellow(&note) } else { paint.dim(&note) };
    match errors.get(&row.step.number) {
        Some(error) if note.is_empty() => paint.red(error),
        Some(error) => format!("{} {} {note}", paint.red(error), paint.dim("·")),
        None => note,
    }
}

/// How far a step with several jobs is; nothing for the others.
fn jobs(step: &StepView, digits: usize, paint: Paint) -> String {
    if step.jobs == 1 {
        return String::new();
    }
    let left = step.jobs - (step.done + step.failed).min(step.jobs);
    let skipped = if step.state == StepState::Skipped { left } else { 0 };
    let share = Share { done: step.done, failed: step.failed, skipped, all: step.jobs };
    let failed = match step.failed {
        0 => String::new(),
        n => paint.red(&format!(" {} failed", grouped(n))),
    };
    let bar = bar(share, STEP_BAR, paint);
    format!("{bar} {:>digits$}/{}{failed}", grouped(step.done), grouped(step.jobs))
}

fn lasted(step: &StepView, now: Timestamp) -> String {
    let Some(started) = step.started_at.filter(|_| step.state != StepState::Skipped) else {
        return String::new();
    };
    let lasted = step.ended_at.unwrap_or(now).duration_since(started);
    short(Duration::try_from(lasted).unwrap_or_default()).to_string()
}

/// A step's state as a sign, in its colour.
pub fn sign(state: StepState, paint: Paint) -> String {
    match state {
        StepState::Done => paint.green("✔"),
        StepState::Failed => paint.red("✘"),
        StepState::Open | StepState::Opening => paint.cyan("●"),
        StepState::Waiting => paint.dim("○"),
        StepState::Skipped => paint.yellow("⊘"),
    }
}

/// What a flow came to, in a sentence.
pub fn said(view: &FlowView) -> String {
    let (head, share) = (&view.head, Share::of(view));
    let mut counts = vec![count(share.all, "job", "jobs"), format!("{} done", grouped(share.done))];
    counts.extend(words(share));
    format!("the flow {} is {}: {}", head.id, head.state.word(), counts.join(", "))
}
