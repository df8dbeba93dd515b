//! `tidemill queues`: what is in them now, and the rules they keep.

use std::time::Duration;

use comfy_table::{Cell, Color};
use tidemill::{Priority, Tidemill, Timestamp};
use tidemill_core::Retention;
use tidemill_store::QueueView;
use tidemill_store::view::QueueRules;

use crate::app::App;
use crate::duration::{Span, short};
use crate::exit::{Exit, Failure, Outcome};
use crate::output;

/// What to do with queues. Without a verb they are listed.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show what is in the queues (the default)
    List,
    /// Set the rules of a queue, in every process
    Set(Set),
    /// Take the rules of a queue away
    Unset {
        /// The queue
        queue: String,
    },
}

#[derive(Debug, clap::Args)]
struct Set {
    /// The queue
    queue: String,
    /// Keep done and cancelled jobs this long [default: 3d]
    #[arg(long, value_name = "DURATION")]
    retain: Option<Span>,
    /// Keep at most this many done and cancelled jobs [default: no bound]
    #[arg(long, value_name = "JOBS")]
    retain_max: Option<u64>,
    /// Keep dead letters this long [default: 90d]
    #[arg(long, value_name = "DURATION")]
    retain_dead: Option<Span>,
    /// Keep at most this many bytes of dead letters, the newest [default: no bound]
    #[arg(long, value_name = "BYTES")]
    retain_dead_bytes: Option<u64>,
}

/// Runs the verb.
pub async fn run(app: &App, args: Args) -> Outcome {
    match args.verb.unwrap_or(Verb::List) {
        Verb::List => list(app).await,
        Verb::Set(set) => change(app, set).await,
        Verb::Unset { queue } => {
            let mill = app.open_existing().await?;
            mill.set_queue(&queue, None).await?;
            mill.close().await;
            eprintln!("the queue {queue} follows the defaults again");
            Ok(Exit::Ok)
        }
    }
}

async fn list(app: &App) -> Outcome {
    let mill = app.open_existing().await?;
    let (queues, now) = (mill.queues().await?, mill.now().await?);
    mill.close().await;
    if app.json {
        queues.iter().for_each(output::json);
        return Ok(Exit::Ok);
    }
    if queues.is_empty() {
        eprintln!("there are no queues yet; a queue is there as soon as a job is enqueued in it");
        return Ok(Exit::Ok);
    }
    let mut table = output::table(&[
        "QUEUE",
        "URGENT",
        "HIGH",
        "NORMAL",
        "LOW",
        "SCHEDULED",
        "RUNNING",
        "DEAD",
        "OLDEST WAITS",
        "NO WORKER KNOWS",
        "KEEPS",
    ]);
    for queue in &queues {
        table.add_row(row(queue, now));
    }
    output::show(&table);
    Ok(Exit::Ok)
}

fn row(queue: &QueueView, now: Timestamp) -> Vec<Cell> {
    let mut row = vec![Cell::new(&queue.name)];
    let ready = |priority| queue.ready.get(&priority).copied().unwrap_or(0);
    row.extend(Priority::ALL.map(|priority| output::number(ready(priority))));
    row.push(output::number(queue.scheduled));
    row.push(output::number(queue.running));
    row.push(output::bad_number(queue.dead));
    row.push(match queue.oldest_due_at {
        Some(due) => {
            output::right(short(Duration::try_from(now.duration_since(due)).unwrap_or_default()))
        }
        None => output::right("–"),
    });
    row.push(match queue.orphan_kinds.as_slice() {
        [] => Cell::new("–"),
        kinds => Cell::new(kinds.join(" ")).fg(Color::Yellow),
    });
    row.push(match &queue.rules {
        Some(rules) => Cell::new(kept(&rules.retention)),
        None => output::quiet("default"),
    });
    row
}

fn kept(retention: &Retention) -> String {
    let ms = |ms| short(Duration::from_millis(ms));
    let most = retention.finished_max.map(|max| format!(" max {}", output::grouped(max)));
    let bytes = retention.dead_bytes_max.map(|max| format!(" max {} bytes", output::grouped(max)));
    let (done, dead) = (ms(retention.finished_ms), ms(retention.dead_ms));
    format!("{done}{}, dead {dead}{}", most.unwrap_or_default(), bytes.unwrap_or_default())
}

async fn change(app: &App, set: Set) -> Outcome {
    let Set { queue, retain, retain_max, retain_dead, retain_dead_bytes } = set;
    let is_empty = retain.is_none() && retain_dead.is_none();
    if is_empty && retain_max.is_none() && retain_dead_bytes.is_none() {
        return Err(Failure::usage("there is no rule to set")
            .hint("give --retain, --retain-max, --retain-dead or --retain-dead-bytes"));
    }
    let mill = app.open().await?;
    let mut rules = present(&mill, &queue).await?;
    let retention = &mut rules.retention;
    let ms = |span: Span| span.0.as_millis() as u64;
    retention.finished_ms = retain.map_or(retention.finished_ms, ms);
    retention.dead_ms = retain_dead.map_or(retention.dead_ms, ms);
    retention.finished_max = retain_max.or(retention.finished_max);
    retention.dead_bytes_max = retain_dead_bytes.or(retention.dead_bytes_max);
    mill.set_queue(&queue, Some(rules.clone())).await?;
    mill.close().await;
    if app.json {
        output::json(&serde_json::json!({ "name": queue, "rules": rules }));
    } else {
        output::line(format!("{queue} keeps {}", kept(&rules.retention)));
    }
    Ok(Exit::Ok)
}

/// The rules that hold now: what is not set again stays.
async fn present(mill: &Tidemill, queue: &str) -> Outcome<QueueRules> {
    let all = mill.store().queue_rules().await?;
    Ok(all.into_iter().find(|(name, _)| name == queue).map(|(_, rules)| rules).unwrap_or_default())
}
