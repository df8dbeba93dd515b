//! `tidemill limits`: what may run at once, how often something may start, and what is spared while it is unwell.

use comfy_table::{Cell, CellAlignment};
use serde_json::json;
use tidemill::{Breaker, Lacking, Limit, LimitState, NamedLimit, Per, Rate, Timestamp};

use crate::app::App;
use crate::duration::{Span, relative, short};
use crate::exit::{Exit, Outcome};
use crate::output;

/// What to do with limits. Without a verb they are listed.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the limits that have a name, and how they stand (the default)
    List,
    /// Set a limit by its name, in every process from then on
    Set(Set),
    /// Take a limit away
    Delete {
        /// The limit
        name: String,
        /// The queue or pattern whose jobs it means
        #[arg(long, default_value = "*", value_name = "QUEUE")]
        queue: String,
    },
}

#[derive(Debug, clap::Args)]
struct Set {
    /// The limit
    name: String,
    /// The queue or pattern whose jobs it means, all of them together
    #[arg(long, default_value = "*", value_name = "QUEUE")]
    queue: String,
    /// Only jobs of this kind
    #[arg(long)]
    kind: Option<String>,
    /// What it counts by: all, tenant or key
    #[arg(long, default_value = "all", value_parser = per)]
    per: Per,
    /// What becomes of jobs that lack that tenant or key: refuse or pass
    #[arg(long, default_value = "refuse", value_parser = lacking)]
    lacking: Lacking,
    /// How many may run at once
    #[arg(long, value_name = "JOBS")]
    concurrency: Option<u32>,
    /// How often one may start, such as 100/s, 30/m or 5/2s
    #[arg(long, value_name = "JOBS/TIME", value_parser = rate)]
    rate: Option<Rate>,
    /// How many may start at once after a pause [default: 1]
    #[arg(long, value_name = "JOBS", requires = "rate")]
    burst: Option<u32>,
    /// A job that ends rate-limited shuts the gate for everyone until its retry
    #[arg(long)]
    hold: bool,
    /// Spare the other side for this long when too much fails, then probe it with one job
    #[arg(long, value_name = "DURATION")]
    breaker: Option<Span>,
    /// Too much, for the breaker [default: 50]
    #[arg(long, value_name = "PERCENT", requires = "breaker")]
    failures: Option<u32>,
    /// The window in which the breaker counts [default: 10s]
    #[arg(long, value_name = "DURATION", requires = "breaker")]
    window: Option<Span>,
    /// Fewer attempts in the window say nothing to the breaker [default: 10]
    #[arg(long, value_name = "ATTEMPTS", requires = "breaker")]
    least: Option<u32>,
}

/// Runs the verb.
pub async fn run(app: &App, args: Args) -> Outcome {
    match args.verb.unwrap_or(Verb::List) {
        Verb::List => list(app).await,
        Verb::Set(set) => {
            let mill = app.open().await?;
            let (limits, limit) = (mill.limit_states().await?, set.limit());
            mill.set_limit(&set.queue, &set.name, Some(limit.clone())).await?;
            mill.close().await;
            let document = json!({
                "name": set.name, "queue": set.queue, "answer": "set", "limit": limit,
            });
            let sentence = format!("{} on {}: {}", set.name, set.queue, said(&limit));
            output::did(app, &document, &sentence);
            let is_same = |state: &&LimitState| {
                state.limit.name == set.name && state.limit.queue == set.queue
            };
            let was = limits.iter().find(is_same).and_then(|state| state.limit.limit.rate);
            let (was, is) = (was.map_or(1, |rate| rate.burst), limit.rate.map(|rate| rate.burst));
            if let Some(is) = is.filter(|is| set.burst.is_none() && was > *is) {
                eprintln!("its burst was {was} and is {is} now; --burst {was} keeps it");
            }
            Ok(Exit::Ok)
        }
        Verb::Delete { name, queue } => {
            let mill = app.open_existing().await?;
            mill.delete_limit(&queue, &name).await?;
            mill.close().await;
            let sentence = format!("{name} on {queue} limits nothing any more");
            let document = json!({ "name": name, "queue": queue, "answer": "deleted" });
            output::did(app, &document, &sentence);
            Ok(Exit::Ok)
        }
    }
}

async fn list(app: &App) -> Outcome {
    let mill = app.open_existing().await?;
    let (now, limits) = (mill.now().await?, mill.limit_states().await?);
    mill.close().await;
    if app.json {
        limits.iter().for_each(output::json);
        return Ok(Exit::Ok);
    }
    if limits.is_empty() {
        eprintln!("there are no limits; `tidemill limits set NAME --concurrency 5` makes one");
        return Ok(Exit::Ok);
    }
    let headers = ["LIMIT", "QUEUES", "KIND", "LETS PASS", "INSIDE", "HELD", "STATE"];
    let mut table = output::table(&headers);
    for state in &limits {
        let NamedLimit { name, queue, limit } = &state.limit;
        let kind = limit.kind.as_deref().unwrap_or("any");
        // One that counts by tenant or key has many insides: `jobs why` names that of a job.
        let inside = state.inside.map_or_else(|| each(limit.per), |jobs| jobs.to_string());
        table.add_row([
            Cell::new(name),
            Cell::new(queue),
            Cell::new(kind),
            Cell::new(said(limit)),
            Cell::new(inside).set_alignment(CellAlignment::Right),
            output::number(state.held),
            Cell::new(stands(state, now)),
        ]);
    }
    output::show(&table);
    Ok(Exit::Ok)
}

impl Set {
    fn limit(&self) -> Limit {
        let ms = |span: Span| span.0.as_millis() as u64;
        let usual = Breaker::default();
        Limit {
            kind: self.kind.clone(),
            per: self.per,
            lacking: self.lacking,
            concurrency: self.concurrency,
            rate: self.rate.map(|rate| Rate { burst: self.burst.unwrap_or(rate.burst), ..rate }),
            hold: self.hold,
            breaker: self.breaker.map(|open| Breaker {
                failures_percent: self.failures.unwrap_or(usual.failures_percent),
                window_ms: self.window.map_or(usual.window_ms, ms),
                attempts_min: self.least.unwrap_or(usual.attempts_min),
                open_ms: ms(open),
            }),
        }
    }
}

/// Whether anybody may pass, in a few words.
fn stands(state: &LimitState, now: Timestamp) -> String {
    let opens = state.shut_until.filter(|until| *until > now).map(|until| relative(until, now));
    if state.limit.limit.per != Per::All && state.broken > 0 {
        return format!("{} broken", state.broken);
    }
    if state.limit.limit.per != Per::All && state.held > 0 {
        return "full for some".to_owned();
    }
    let next = state.opens_at.filter(|at| *at > now).map(|at| relative(at, now));
    match (opens, state.is_broken) {
        (Some(opens), true) => format!("broken; a job probes it {opens}"),
        (Some(opens), false) => format!("rests; opens {opens}"),
        (None, true) => "broken; a job probes it".to_owned(),
        (None, false) if state.is_full => "full".to_owned(),
        (None, false) => next.map_or("lets pass".to_owned(), |next| format!("next {next}")),
    }
}

/// What stands in place of a number where there is one for each.
fn each(per: Per) -> String {
    match per {
        Per::All => "–",
        Per::Tenant => "by tenant",
        Per::Key => "by key",
    }
    .to_owned()
}

/// A limit in a line.
fn said(limit: &Limit) -> String {
    let mut parts = Vec::new();
    parts.extend(limit.concurrency.map(|jobs| format!("{jobs} at once")));
    parts.extend(limit.rate.map(|rate| rate.to_string()));
    if limit.hold {
        parts.push("rests when asked to".to_owned());
    }
    parts.extend(limit.breaker.map(|breaker| {
        let open = short(std::time::Duration::from_millis(breaker.open_ms));
        format!("spared for {open} when {} % fail", breaker.failures_percent)
    }));
    let each = match limit.per {
        Per::All => "",
        Per::Tenant => " for each tenant",
        Per::Key => " for each key",
    };
    let others = match limit.lacking {
        Lacking::Pass if !each.is_empty() => "; others pass",
        _ => "",
    };
    format!("{}{each}{others}", parts.join(", "))
}

pub(super) fn per(text: &str) -> Result<Per, String> {
    match text {
        "all" => Ok(Per::All),
        "tenant" => Ok(Per::Tenant),
        "key" => Ok(Per::Key),
        _ => Err("all, tenant or key".to_owned()),
    }
}

fn lacking(text: &str) -> Result<Lacking, String> {
    match text {
        "refuse" => Ok(Lacking::Refuse),
        "pass" => Ok(Lacking::Pass),
        _ => Err("refuse or pass".to_owned()),
    }
}

/// Reads `100/s`, `30/m` or `5/2s`.
pub(super) fn rate(text: &str) -> Result<Rate, String> {
    let wrong = || format!("{text:?} is not a rate; write it like 100/s, 30/m or 5/2s");
    let (jobs, time) = text.split_once('/').ok_or_else(wrong)?;
    let time = if time.starts_with(|c: char| c.is_ascii_digit()) {
        time.to_owned()
    } else {
        format!("1{time}")
    };
    let per: Span = time.parse().map_err(|_| wrong())?;
    let jobs = jobs.trim().parse().map_err(|_| wrong())?;
    Ok(Rate { jobs, per_ms: per.0.as_millis() as u64, burst: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        for (text, jobs, per_ms) in [("100/s", 100, 1000), ("30/m", 30, 60_000), ("5/2s", 5, 2000)]
        {
            assert_eq!(rate(text), Ok(Rate { jobs, per_ms, burst: 1 }));
        }
        for text in ["100", "x/s", "1/", "1/parsec"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
