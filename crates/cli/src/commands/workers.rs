//! `tidemill workers`: who is alive, in every process.

use comfy_table::Cell;
use jiff::Timestamp;
use tidemill_core::wire::work::QueueSlots;
use tidemill_store::WorkerView;

use crate::app::App;
use crate::duration::relative;
use crate::exit::{Exit, Outcome};
use crate::output;

/// Lists the workers.
pub async fn run(app: &App) -> Outcome {
    let mill = app.open_existing().await?;
    let (workers, now) = (mill.workers().await?, mill.now().await?);
    mill.close().await;
    if app.json {
        workers.iter().for_each(output::json);
        return Ok(Exit::Ok);
    }
    if workers.is_empty() {
        eprintln!("no worker is alive; `tidemill work --exec CMD --kind KIND` starts one");
        return Ok(Exit::Ok);
    }
    let mut table = output::table(&["NAME", "SLOTS", "STARTED", "BEAT", "QUEUES", "KINDS"]);
    for worker in &workers {
        let all = |words: &[String]| match words {
            [] => "all".to_owned(),
            words => words.join(" "),
        };
        table.add_row([
            Cell::new(&worker.name),
            output::number(u64::from(worker.slots)),
            Cell::new(relative(worker.started_at, now)),
            Cell::new(beat(worker, now)),
            Cell::new(queues(worker)),
            Cell::new(all(&worker.kinds)),
        ]);
    }
    output::show(&table);
    Ok(Exit::Ok)
}

/// When it beat last; who should have beaten since may be gone.
fn beat(worker: &WorkerView, now: Timestamp) -> String {
    let silent = if worker.is_silent(now) { ", silent" } else { "" };
    format!("{}{silent}", relative(worker.beat_at, now))
}

/// The queues it takes from; where not all of them may take all of its slots, with how many each may: of their own, and
/// then of those that are shared.
fn queues(worker: &WorkerView) -> String {
    let said = |queue: &String| match worker.slots_of.get(queue) {
        Some(QueueSlots { own, shared: 0 }) => format!("{queue}={own}"),
        Some(QueueSlots { own: 0, shared }) => format!("{queue}={shared}"),
        Some(QueueSlots { own, shared }) => format!("{queue}={own}+{shared}"),
        None => queue.clone(),
    };
    worker.queues.iter().map(said).collect::<Vec<_>>().join(" ")
}
