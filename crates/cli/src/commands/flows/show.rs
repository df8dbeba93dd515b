//! `tidemill flows show ID`: the flow, drawn once, or again and again until it ends.

use console::Term;
use tidemill::{FlowId, FlowView};
use tidemill_core::flow::StepState;

use super::document::Document;
use super::draw::{self, Errors, Style};
use super::watch;
use crate::app::App;
use crate::exit::{Exit, Outcome};
use crate::mill::Mill;
use crate::output::{self, Paint, line};

/// Errors that are looked up, at most.
const ERRORS_MAX: usize = 20;
const ERROR_CHARS_MAX: usize = 80;

/// Which flow, and how.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The flow
    id: FlowId,
    /// Follow it until it has ended
    #[arg(long, short)]
    watch: bool,
}

/// Shows it.
pub async fn run(app: &App, args: Args) -> Outcome {
    let mill = app.open_existing().await?;
    let exit = if args.watch {
        watch::run(app, &mill, args.id).await?
    } else {
        let view = find(&mill, args.id).await?;
        show(app, &mill, &view).await?;
        Exit::Ok
    };
    mill.close().await;
    Ok(exit)
}

/// The flow, which must be there.
pub async fn find(mill: &Mill, id: FlowId) -> Outcome<FlowView> {
    Ok(mill.flow(id).await?.ok_or(tidemill::Error::FlowUnknown { id })?)
}

/// Prints it.
pub async fn show(app: &App, mill: &Mill, view: &FlowView) -> Outcome<()> {
    if app.json {
        output::json(&Document::from(view));
        return Ok(());
    }
    let errors = errors(mill, view).await?;
    let (head, steps) = draw::flow(view, &errors, mill.now().await?, style());
    head.into_iter().chain([String::new()]).chain(steps).for_each(line);
    Ok(())
}

/// What the jobs of failed steps said, where a step has only one.
async fn errors(mill: &Mill, view: &FlowView) -> Outcome<Errors> {
    let failed = view.steps.iter().filter(|step| step.state == StepState::Failed && step.jobs == 1);
    let mut errors = Errors::new();
    for step in failed.take(ERRORS_MAX) {
        let Some(job) = step.first else { continue };
        let error = mill.job(job).await?.and_then(|job| job.error);
        errors
            .extend(error.map(|error| (step.number, output::first_line(&error, ERROR_CHARS_MAX))));
    }
    Ok(errors)
}

/// How stdout is drawn on.
pub fn style() -> Style {
    let columns = Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
    Style { paint: Paint::stdout(), columns: columns.filter(|_| Term::stdout().is_term()) }
}
