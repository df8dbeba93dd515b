//! `tidemill queues`: what is in them now, and the rules they keep.

mod depth;
mod set;
mod wait;
mod why;

use std::time::Duration;

use comfy_table::{Cell, Color};
use serde_json::json;
use tidemill::{Per, Priority, QueueRules, Retry, Timestamp};
use tidemill_core::queue::{is_pattern, matches};
use tidemill_core::retry::text::BackoffText;
use tidemill_core::{BandWeights, Retention};
use tidemill_store::QueueView;

use crate::app::App;
use crate::commands::jobs::wait::Patience;
use crate::duration::short;
use crate::exit::{Exit, Failure, Outcome};
use crate::mill::Mill;
use crate::output;
use set::Set;

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
    /// Let no job of a queue start any more; those that run go on
    Pause {
        /// The queue, or a pattern such as 'mail:*'
        queue: String,
    },
    /// Let the jobs of a queue start again
    Resume {
        /// The queue, or a pattern such as 'mail:*'
        queue: String,
    },
    /// Say why a queue is as deep as it is, and when it will be empty
    Why {
        /// The queue
        queue: String,
    },
    /// Wait until a queue is down at its low watermark, so that producers may go on
    Wait {
        /// The queue
        queue: String,
        #[command(flatten)]
        patience: Patience,
    },
    /// Set the rules of a queue, in every process
    Set(Box<Set>),
    /// Take the rules of a queue away
    Unset {
        /// The queue
        queue: String,
    },
}

/// Runs the verb.
pub async fn run(app: &App, args: Args) -> Outcome {
    match args.verb.unwrap_or(Verb::List) {
        Verb::List => list(app).await,
        Verb::Pause { queue } => {
            let mill = app.open().await?;
            mill.pause(&queue).await?;
            mill.close().await;
            let sentence = format!(
                "no job of {queue} starts any more; `tidemill queues resume {queue}` lets them"
            );
            output::did(app, &json!({ "name": queue, "answer": "paused" }), &sentence);
            Ok(Exit::Ok)
        }
        Verb::Resume { queue } => {
            let mill = app.open().await?;
            mill.resume(&queue).await?;
            let still = paused_by(&mill, &queue).await?;
            mill.close().await;
            let document = json!({ "name": queue, "answer": "resumed", "paused_by": still });
            let sentence = match still {
                Some(rule) => format!(
                    "{queue} itself is paused no more, but none of its jobs starts while the rules of {rule} pause it; \
                     `tidemill queues resume '{rule}'` lets them"
                ),
                None => format!("the jobs of {queue} start again"),
            };
            output::did(app, &document, &sentence);
            Ok(Exit::Ok)
        }
        Verb::Why { queue } => why::run(app, &queue).await,
        Verb::Wait { queue, patience } => wait::run(app, &queue, patience).await,
        Verb::Set(set) => change(app, *set).await,
        Verb::Unset { queue } => {
            let mill = app.open_existing().await?;
            let had_rules = mill.queue_rules(&queue).await?.version > 0;
            mill.set_queue(&queue, None).await?;
            mill.close().await;
            let (answer, sentence) = if had_rules {
                ("unset", format!("the queue {queue} follows the defaults again"))
            } else {
                ("nothing", format!("there are no rules of {queue}"))
            };
            output::did(app, &json!({ "name": queue, "answer": answer }), &sentence);
            Ok(Exit::Ok)
        }
    }
}

/// The pattern that pauses a queue, or all queues of a pattern.
async fn paused_by(mill: &Mill, queue: &str) -> Outcome<Option<String>> {
    let pauses = |other: &QueueView| {
        other.rules.as_ref().is_some_and(|rules| rules.paused) && matches(&other.name, queue)
    };
    Ok(mill.queues().await?.into_iter().find(pauses).map(|other| other.name))
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
        "DEPTH",
        "URGENT",
        "HIGH",
        "NORMAL",
        "LOW",
        "SCHEDULED",
        "RUNNING",
        "DEAD",
        "OLDEST WAITS",
        "NO WORKER KNOWS",
        "RULES",
    ]);
    // A pattern whose rules were all taken back says nothing.
    let says = |queue: &&QueueView| {
        !is_pattern(&queue.name)
            || queue.rules.as_ref().is_some_and(|rules| said(rules) != "default")
    };
    let pauses = |queue: &QueueView| queue.rules.as_ref().is_some_and(|rules| rules.paused);
    for queue in queues.iter().filter(says) {
        let means =
            |other: &&QueueView| is_pattern(&other.name) && matches(&other.name, &queue.name);
        let paused_by = queues.iter().filter(means).find(|other| pauses(other) && !pauses(queue));
        table.add_row(row(queue, paused_by.map(|other| other.name.as_str()), now));
    }
    output::show(&table);
    Ok(Exit::Ok)
}

fn row(queue: &QueueView, paused_by: Option<&str>, now: Timestamp) -> Vec<Cell> {
    let mut row = vec![Cell::new(&queue.name), depth(queue)];
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
    row.push(match (&queue.rules, paused_by) {
        (_, Some(rule)) => Cell::new(format!("paused by {rule}")).fg(Color::Yellow),
        (Some(rules), _) if rules.paused => Cell::new(said(rules)).fg(Color::Yellow),
        (Some(rules), _) => Cell::new(said(rules)),
        (None, _) => output::quiet("default"),
    });
    row
}

/// How many wait, and of how many; yellow above the high watermark.
fn depth(queue: &QueueView) -> Cell {
    let bound = queue.rules.as_ref().and_then(|rules| rules.depth_max);
    let of = bound.map(|bound| format!(" of {}", output::grouped(bound))).unwrap_or_default();
    let cell = output::right(format!("{}{of}", output::grouped(queue.depth)));
    if queue.above_since.is_some() { cell.fg(Color::Yellow) } else { cell }
}

fn kept(retention: &Retention) -> String {
    let ms = |ms| short(Duration::from_millis(ms));
    let most = retention.finished_max.map(|max| format!(" max {}", output::grouped(max)));
    let bytes = retention.dead_bytes_max.map(|max| format!(" max {} bytes", output::grouped(max)));
    let (done, dead) = (ms(retention.finished_ms), ms(retention.dead_ms));
    format!("{done}{}, dead {dead}{}", most.unwrap_or_default(), bytes.unwrap_or_default())
}

/// The rules in a line: what differs from the defaults.
fn said(rules: &QueueRules) -> String {
    let BandWeights { urgent, high, normal, low } = rules.weights;
    let usual = QueueRules::default();
    let mut parts = Vec::new();
    if rules.paused {
        parts.push("paused".to_owned());
    }
    if rules.weights != usual.weights {
        parts.push(format!("weights {urgent}:{high}:{normal}:{low}"));
    }
    parts.extend(rules.tenant_weights.iter().map(|(tenant, weight)| format!("{tenant}={weight}")));
    parts.extend(rules.concurrency.map(|jobs| format!("{jobs} at once")));
    parts.extend(rules.rate.map(|rate| rate.to_string()));
    parts.extend(rules.hold.map(|per| match per {
        Per::All => "rests when asked to".to_owned(),
        Per::Tenant => "its tenants rest when asked to".to_owned(),
        Per::Key => "its keys rest when asked to".to_owned(),
    }));
    parts.extend(rules.retry_percent.map(|percent| format!("{percent} % retries")));
    parts.extend(rules.limits.keys().map(|name| format!("limit {name}")));
    parts.extend(rules.retry.as_ref().map(retries));
    parts.extend(rules.run_timeout().map(|timeout| format!("at most {}", short(timeout))));
    let within =
        |what: &str, ms: u64| format!("{what} within {}", short(Duration::from_millis(ms)));
    parts.extend(rules.start_within_ms.map(|ms| within("starts", ms)));
    parts.extend(rules.finish_within_ms.map(|ms| within("finishes", ms)));
    parts.extend(depth::said(rules));
    if rules.retention != usual.retention {
        parts.push(format!("keeps {}", kept(&rules.retention)));
    }
    if parts.is_empty() { "default".to_owned() } else { parts.join(", ") }
}

/// How often, and after how long if that is not the usual.
fn retries(retry: &Retry) -> String {
    let attempts = output::count(u64::from(retry.attempts_max), "attempt", "attempts");
    if retry.backoff == Retry::default().backoff {
        return attempts;
    }
    format!("{attempts} after {}", BackoffText(retry.backoff.clone()))
}

async fn change(app: &App, set: Set) -> Outcome {
    if set.is_empty() {
        return Err(Failure::usage("there is no rule to set").hint(
            "give --weights, --tenant-weight, --concurrency, --rate, --hold, --retry-percent, --attempts, --backoff, \
             --run-timeout, --start-within, --finish-within, --depth-max, --overflow, --high, --low or one of \
             --retain…",
        ));
    }
    let mill = app.open().await?;
    let lost = set.lost(&mill.queue_rules(&set.queue).await?);
    mill.change_queue(&set.queue, |rules| set.apply(rules)).await?;
    let rules = mill.queue_rules(&set.queue).await?;
    mill.close().await;
    if app.json {
        output::json(&json!({ "name": set.queue, "rules": rules }));
    } else {
        output::line(format!("{}: {}", set.queue, said(&rules)));
    }
    for what in lost {
        eprintln!("with the bound went {what}");
    }
    Ok(Exit::Ok)
}
