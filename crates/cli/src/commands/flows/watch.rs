//! `tidemill flows show ID --watch`: a drawing that keeps up on a terminal, a line for each change elsewhere,
//! with `--json` a document for each change.

use std::collections::HashMap;
use std::time::Duration;

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget};
use tidemill::{FlowId, FlowView, Timestamp};
use tidemill_core::flow::{FlowState, StepState};

use super::document::Document;
use super::{draw, layout, show};
use crate::app::App;
use crate::duration::short;
use crate::exit::{Exit, Outcome};
use crate::mill::Mill;
use crate::output::{self, grouped, line};
use crate::progress::style;

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Lines that are kept free for what is around the steps.
const LINES_AROUND: usize = 3;
/// Lines that are shown above the first step that has not ended.
const LINES_BEFORE: usize = 2;

/// Follows a flow until it has ended.
pub async fn run(app: &App, mill: &Mill, id: FlowId) -> Outcome {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    let mut picture = Picture::new(app);
    loop {
        looks.tick().await;
        let view = show::find(mill, id).await?;
        picture.show(&view, mill.now().await?);
        if output::is_broken() {
            return Ok(Exit::Ok);
        }
        if view.head.state.is_resting() {
            if let Picture::Drawing(bar) = picture {
                bar.finish_and_clear();
                show::show(app, mill, &view).await?;
            }
            return Ok(exit_of(view.head.state));
        }
    }
}

/// Whether it went well.
pub fn exit_of(state: FlowState) -> Exit {
    if state == FlowState::Done { Exit::Ok } else { Exit::Failed }
}

enum Picture {
    Drawing(ProgressBar),
    Lines(HashMap<u32, Seen>),
    Documents(Option<Box<FlowView>>),
}

/// What was said of a step last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    state: StepState,
    done: u64,
    failed: u64,
}

impl Picture {
    fn new(app: &App) -> Self {
        if app.json {
            return Self::Documents(None);
        }
        if !Term::stdout().is_term() {
            return Self::Lines(HashMap::new());
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout());
        bar.set_style(style("{msg}"));
        Self::Drawing(bar)
    }

    fn show(&mut self, view: &FlowView, now: Timestamp) {
        match self {
            Self::Drawing(bar) => bar.set_message(drawing(view, now)),
            Self::Lines(seen) => changes(seen, view, now),
            Self::Documents(last) => {
                if last.as_deref() != Some(view) {
                    output::json(&Document::from(view));
                    *last = Some(Box::new(view.clone()));
                }
            }
        }
    }
}

/// The drawing, as much of it as a terminal has lines for.
fn drawing(view: &FlowView, now: Timestamp) -> String {
    let (head, steps) = draw::flow(view, &draw::Errors::new(), now, show::style());
    let lines = usize::from(Term::stdout().size().0);
    let room = lines.saturating_sub(head.len() + LINES_AROUND).max(1);
    let folded = steps.len().saturating_sub(room);
    let mut all = head;
    all.push(String::new());
    // Where there is no room for all, one wants to see what is going on.
    let first = going_on(view).saturating_sub(LINES_BEFORE).min(folded);
    all.extend(steps.into_iter().skip(first).take(room));
    if folded > 0 {
        all.push(format!("… and {} more steps", grouped(folded as u64)));
    }
    all.join("\n")
}

/// The line of the first step that has not ended.
fn going_on(view: &FlowView) -> usize {
    let rows = layout::rows(&view.steps);
    rows.iter().position(|row| !row.step.state.is_final()).unwrap_or_default()
}

/// Says what has changed, a line each.
fn changes(seen: &mut HashMap<u32, Seen>, view: &FlowView, now: Timestamp) {
    let since = Duration::try_from(now.duration_since(view.head.created_at)).unwrap_or_default();
    let since = short(since).to_string();
    for row in layout::rows(&view.steps) {
        let step = row.step;
        let is = Seen { state: step.state, done: step.done, failed: step.failed };
        let was = seen.insert(step.number, is);
        if was == Some(is) || was.is_none() && is.state == StepState::Waiting {
            continue;
        }
        let reason = step.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let jobs = match (step.jobs, step.failed) {
            (1, _) => String::new(),
            (all, 0) => format!(" {}/{}", grouped(step.done), grouped(all)),
            (all, n) => format!(" {}/{}, {} failed", grouped(step.done), grouped(all), grouped(n)),
        };
        line(format!("{since:>8}  {} {}{jobs}{reason}", step.name, step.state.word()));
    }
    if view.head.state.is_resting() {
        line(format!("{since:>8}  {}", draw::said(view)));
    }
}
