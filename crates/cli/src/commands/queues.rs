//! `tidemill queues`: what is in them now, and the rules they keep.

mod depth;
mod why;

use std::time::Duration;

use comfy_table::{Cell, Color};
use tidemill::{Per, Priority, QueueRules, Rate, Retry, Timestamp};
use tidemill_core::queue::is_pattern;
use tidemill_core::{BandWeights, Retention};
use tidemill_store::QueueView;

use crate::app::App;
use crate::commands::limits;
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
    /// Set the rules of a queue, in every process
    Set(Box<Set>),
    /// Take the rules of a queue away
    Unset {
        /// The queue
        queue: String,
    },
}

#[derive(Debug, clap::Args)]
struct Set {
    /// The queue, or a pattern such as 'mail:*'
    queue: String,
    /// How urgent, high, normal and low work share the queue [default: 8:4:2:1]
    #[arg(long, value_name = "U:H:N:L", value_parser = weights)]
    weights: Option<BandWeights>,
    /// Give a tenant another share than 1; may be given more than once
    #[arg(long, value_name = "TENANT=WEIGHT", value_parser = tenant_weight)]
    tenant_weight: Vec<(String, u32)>,
    /// How many of its jobs may run at once, in the whole cluster; 0 takes the limit away, and does not stop the
    /// queue: `queues pause` does
    #[arg(long, value_name = "JOBS")]
    concurrency: Option<u32>,
    /// How often one of its jobs may start, such as 100/s or 30/m; `none` for no limit
    #[arg(long, value_name = "JOBS/TIME", value_parser = rate_or_none)]
    rate: Option<RateOrNone>,
    /// How many may start at once after a pause [default: 1]
    #[arg(long, value_name = "JOBS", requires = "rate")]
    burst: Option<u32>,
    /// Who waits when a handler was told to come back later: all, tenant, key or none
    #[arg(long, value_name = "WHO", value_parser = hold)]
    hold: Option<Hold>,
    /// How many retries a hundred first attempts pay for; 0 for no budget
    #[arg(long, value_name = "PERCENT")]
    retry_percent: Option<u32>,
    /// Attempts of jobs whose kind does not say how often [default: 20]
    #[arg(long, value_name = "ATTEMPTS")]
    attempts: Option<u16>,
    /// How long an attempt may run where neither the job nor its kind says
    #[arg(long, value_name = "DURATION")]
    run_timeout: Option<Span>,
    /// How long its jobs may wait for their first start where the job does not say
    #[arg(long, value_name = "DURATION")]
    start_within: Option<Span>,
    /// How long its jobs may take in all where the job does not say
    #[arg(long, value_name = "DURATION")]
    finish_within: Option<Span>,
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
    #[command(flatten)]
    depth: depth::Depth,
}

/// Runs the verb.
pub async fn run(app: &App, args: Args) -> Outcome {
    match args.verb.unwrap_or(Verb::List) {
        Verb::List => list(app).await,
        Verb::Pause { queue } => {
            let mill = app.open().await?;
            mill.pause(&queue).await?;
            mill.close().await;
            eprintln!(
                "no job of {queue} starts any more; `tidemill queues resume {queue}` lets them"
            );
            Ok(Exit::Ok)
        }
        Verb::Resume { queue } => {
            let mill = app.open().await?;
            mill.resume(&queue).await?;
            mill.close().await;
            eprintln!("the jobs of {queue} start again");
            Ok(Exit::Ok)
        }
        Verb::Why { queue } => why::run(app, &queue).await,
        Verb::Set(set) => change(app, *set).await,
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
    for queue in queues.iter().filter(says) {
        table.add_row(row(queue, now));
    }
    output::show(&table);
    Ok(Exit::Ok)
}

fn row(queue: &QueueView, now: Timestamp) -> Vec<Cell> {
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
    row.push(match &queue.rules {
        Some(rules) if rules.paused => Cell::new(said(rules)).fg(Color::Yellow),
        Some(rules) => Cell::new(said(rules)),
        None => output::quiet("default"),
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
    parts.extend(rules.retry.as_ref().map(|retry| format!("{} attempts", retry.attempts_max)));
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

async fn change(app: &App, set: Set) -> Outcome {
    if set.is_empty() {
        return Err(Failure::usage("there is no rule to set").hint(
            "give --weights, --tenant-weight, --concurrency, --rate, --hold, --retry-percent, --attempts, \
             --run-timeout, --start-within, --finish-within, --depth-max, --overflow, --high, --low or one of \
             --retain…",
        ));
    }
    let mill = app.open().await?;
    mill.change_queue(&set.queue, |rules| set.apply(rules)).await?;
    let rules = mill.queue_rules(&set.queue).await?;
    mill.close().await;
    if app.json {
        output::json(&serde_json::json!({ "name": set.queue, "rules": rules }));
    } else {
        output::line(format!("{}: {}", set.queue, said(&rules)));
    }
    Ok(Exit::Ok)
}

impl Set {
    fn is_empty(&self) -> bool {
        let retains = self.retain.is_some() || self.retain_dead.is_some();
        let bounds = self.retain_max.is_some() || self.retain_dead_bytes.is_some();
        let limits = self.concurrency.is_some() || self.rate.is_some() || self.hold.is_some();
        let limits = limits || self.retry_percent.is_some();
        let shares = self.weights.is_some() || !self.tenant_weight.is_empty();
        let others = retains || bounds || shares || limits || !self.depth.is_empty();
        let times = [&self.run_timeout, &self.start_within, &self.finish_within];
        !(others || self.attempts.is_some() || times.iter().any(|time| time.is_some()))
    }

    /// Changes what was given; all else stays.
    fn apply(&self, rules: &mut QueueRules) {
        let ms = |span: &Span| span.0.as_millis() as u64;
        rules.weights = self.weights.unwrap_or(rules.weights);
        for (tenant, weight) in &self.tenant_weight {
            if *weight == 1 {
                rules.tenant_weights.remove(tenant);
            } else {
                rules.tenant_weights.insert(tenant.clone(), *weight);
            }
        }
        if let Some(jobs) = self.concurrency {
            rules.concurrency = (jobs > 0).then_some(jobs);
        }
        if let Some(RateOrNone(rate)) = self.rate {
            rules.rate = rate.map(|rate| Rate { burst: self.burst.unwrap_or(rate.burst), ..rate });
        }
        if let Some(Hold(per)) = self.hold {
            rules.hold = per;
        }
        if let Some(percent) = self.retry_percent {
            rules.retry_percent = (percent > 0).then_some(percent);
        }
        if let Some(attempts) = self.attempts {
            let retry = rules.retry.take().unwrap_or_default();
            rules.retry = Some(Retry { attempts_max: attempts, ..retry });
        }
        self.depth.apply(rules);
        rules.run_timeout_ms = self.run_timeout.as_ref().map(ms).or(rules.run_timeout_ms);
        rules.start_within_ms = self.start_within.as_ref().map(ms).or(rules.start_within_ms);
        rules.finish_within_ms = self.finish_within.as_ref().map(ms).or(rules.finish_within_ms);
        let retention = &mut rules.retention;
        retention.finished_ms = self.retain.as_ref().map_or(retention.finished_ms, ms);
        retention.dead_ms = self.retain_dead.as_ref().map_or(retention.dead_ms, ms);
        retention.finished_max = self.retain_max.or(retention.finished_max);
        retention.dead_bytes_max = self.retain_dead_bytes.or(retention.dead_bytes_max);
    }
}

/// A rate, or that there is none.
#[derive(Debug, Clone, Copy)]
struct RateOrNone(Option<Rate>);

fn rate_or_none(text: &str) -> Result<RateOrNone, String> {
    if text == "none" {
        Ok(RateOrNone(None))
    } else {
        limits::rate(text).map(|rate| RateOrNone(Some(rate)))
    }
}

/// Who is held, or nobody.
#[derive(Debug, Clone, Copy)]
struct Hold(Option<Per>);

fn hold(text: &str) -> Result<Hold, String> {
    if text == "none" { Ok(Hold(None)) } else { limits::per(text).map(|per| Hold(Some(per))) }
}

fn weights(text: &str) -> Result<BandWeights, String> {
    let numbers: Vec<u32> = text.split(':').filter_map(|number| number.parse().ok()).collect();
    match numbers.as_slice() {
        [urgent, high, normal, low] if text.split(':').count() == 4 => {
            Ok(BandWeights { urgent: *urgent, high: *high, normal: *normal, low: *low })
        }
        _ => Err("four numbers for urgent, high, normal and low, such as 8:4:2:1".to_owned()),
    }
}

fn tenant_weight(text: &str) -> Result<(String, u32), String> {
    let wrong = || "a tenant and its weight, such as acme=3".to_owned();
    let (tenant, weight) = text.rsplit_once('=').ok_or_else(wrong)?;
    Ok((tenant.to_owned(), weight.parse().map_err(|_| wrong())?))
}
