//! `tidemill flows list`: a page of flows, newest first.

use comfy_table::{Cell, Color};
use tidemill::{FlowFilter, FlowHead, FlowId, Timestamp};
use tidemill_core::flow::FlowState;

use crate::app::App;
use crate::duration::relative;
use crate::exit::{Exit, Outcome};
use crate::output;

/// Which flows.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// In this state: building, running, done, failed, cancelling, cancelled, undoing, undone or stuck
    #[arg(long)]
    state: Option<FlowState>,
    /// Of this name
    #[arg(long)]
    name: Option<String>,
    /// At most this many, up to 1,000 [default: 50]
    #[arg(long, value_name = "FLOWS")]
    limit: Option<usize>,
    /// Made before this flow: the last one of the page before
    #[arg(long, value_name = "ID")]
    before: Option<FlowId>,
}

/// Lists them.
pub async fn run(app: &App, args: Args) -> Outcome {
    let Args { state, name, limit, before } = args;
    let filter = FlowFilter { state, name, before, limit: limit.unwrap_or(0) };
    let mill = app.open_existing().await?;
    let (flows, now) = (mill.flows(&filter).await?, mill.now().await?);
    mill.close().await;
    if app.json {
        flows.iter().for_each(output::json);
        return Ok(Exit::Ok);
    }
    if flows.is_empty() {
        eprintln!("no flow matches");
        return Ok(Exit::Ok);
    }
    let header = ["ID", "NAME", "STATE", "DONE", "FAILED", "JOBS", "STEPS LEFT", "STARTED"];
    let mut table = output::table(&header);
    for flow in &flows {
        table.add_row(row(flow, now));
    }
    output::show(&table);
    if let Some(last) = flows.last().filter(|_| flows.len() == filter.page_rows()) {
        let hint = format!("the next page: --before {}", last.id);
        eprintln!("{}", output::Paint::stderr().dim(&hint));
    }
    Ok(Exit::Ok)
}

fn row(flow: &FlowHead, now: Timestamp) -> [Cell; 8] {
    let steps = match flow.steps_left {
        0 => output::quiet(format!("0/{}", flow.steps_all)),
        left => Cell::new(format!("{left}/{}", flow.steps_all)),
    };
    [
        Cell::new(flow.id),
        Cell::new(&flow.name),
        state(flow.state),
        output::number(flow.done),
        output::bad_number(flow.failed),
        output::number(flow.jobs),
        steps.set_alignment(comfy_table::CellAlignment::Right),
        Cell::new(relative(flow.created_at, now)),
    ]
}

fn state(state: FlowState) -> Cell {
    let colour = match state {
        FlowState::Done => Color::Green,
        FlowState::Running => Color::Cyan,
        FlowState::Failed | FlowState::Stuck => Color::Red,
        FlowState::Building => Color::Blue,
        FlowState::Cancelling | FlowState::Undoing => Color::Yellow,
        FlowState::Cancelled | FlowState::Undone => Color::DarkGrey,
    };
    Cell::new(state.word()).fg(colour)
}
