//! `tidemill schedules set`: make a schedule, or change it.

use jiff::civil::Date;
use tidemill::{Missed, Overlap, Rule, Schedule, Timestamp};
use tidemill_core::moment;
use tidemill_core::schedule::Template;

use crate::app::App;
use crate::commands::enqueue::Wishes;
use crate::commands::schedules::OWNER;
use crate::commands::schedules::list::rule;
use crate::duration::{Span, relative};
use crate::exit::{Exit, Failure, Outcome};
use crate::output;

const AFTER_HELP: &str = "\
Examples:
  tidemill schedules set nightly report '{\"of\":\"yesterday\"}' --cron '30 2 * * *' --zone Europe/Berlin
  tidemill schedules set heartbeat ping --every 5m --overlap skip
  tidemill schedules set payday pay --cron '0 9 LW * *' --except 2026-12-31
  tidemill schedules set launch announce --at 2027-01-01T09:00:00Z

Fields of cron: [second] minute hour day month weekday. L is the last day, 15W the weekday nearest
to the 15th, MON#2 the second Monday, 5L the last Friday.";

/// When a schedule fires.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(id = "rule", multiple = false)]
pub struct When {
    /// At the times that a cron expression names: five fields, six with seconds first, or @daily
    #[arg(long, value_name = "EXPRESSION")]
    cron: Option<String>,
    /// Every so often
    #[arg(long, value_name = "DURATION")]
    every: Option<Span>,
    /// Once, at this time (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    at: Option<Timestamp>,
}

impl When {
    /// The rule, if one was given.
    pub fn rule(self) -> Option<Rule> {
        let every = |every: Span| Rule::EveryMs(every.0.as_millis() as u64);
        self.cron.map(Rule::Cron).or(self.every.map(every)).or(self.at.map(Rule::Once))
    }
}

/// What bounds a rule of time.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(id = "bounds")]
pub struct Bounds {
    /// The IANA zone of its wall clock [default: UTC]
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// No slot before this time
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    starts: Option<Timestamp>,
    /// No slot from this time on
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    ends: Option<Timestamp>,
    /// No slot on these dates of its zone
    #[arg(long, value_name = "DATE,…", value_delimiter = ',')]
    except: Vec<Date>,
}

impl Bounds {
    /// Bounds a schedule so.
    pub fn of(self, mut schedule: Schedule) -> Schedule {
        if let Some(zone) = self.zone {
            schedule = schedule.zone(zone);
        }
        if let Some(at) = self.starts {
            schedule = schedule.starts(at);
        }
        if let Some(at) = self.ends {
            schedule = schedule.ends(at);
        }
        schedule.except(self.except)
    }
}

/// What to set.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The name of the schedule
    name: String,
    /// The kind of the job it makes
    kind: String,
    /// The payload as JSON [default: null]
    payload: Option<String>,
    #[command(flatten)]
    when: When,
    #[command(flatten)]
    bounds: Bounds,
    /// Its job is due up to this long after the slot
    #[arg(long, value_name = "DURATION")]
    jitter: Option<Span>,
    /// One job for each of these keys, spread over the window of --spread
    #[arg(long, value_name = "KEY,…", value_delimiter = ',', requires = "spread")]
    spread_keys: Vec<String>,
    /// What becomes of missed slots: skip, last or all:N [default: last]
    #[arg(long, value_name = "POLICY")]
    missed: Option<Missed>,
    /// A slot that is at most this late is not missed [default: 1m]
    #[arg(long, value_name = "DURATION")]
    grace: Option<Span>,
    /// When the job before has not finished: allow, skip, queue_one or cancel_previous
    /// [default: allow]
    #[arg(long, value_name = "POLICY")]
    overlap: Option<Overlap>,
    /// Who declares it; another owner cannot change it
    #[arg(long, default_value = OWNER)]
    owner: String,
    #[command(flatten)]
    wishes: Wishes,
}

/// Sets it.
pub async fn run(app: &App, args: Args) -> Outcome {
    let mill = app.open().await?;
    let view = mill.schedules().set(schedule(args)?).await?;
    let now = mill.now().await?;
    mill.close().await;
    if app.json {
        output::json(&view);
        return Ok(Exit::Ok);
    }
    let next = view.next_at.map_or_else(|| "never".to_owned(), |next| relative(next, now));
    let (name, when) = (&view.definition.name, rule(&view.definition.rule));
    let rests = if view.paused { " once it is resumed" } else { "" };
    output::line(format!("{name} ({when}) fires next {next}{rests}"));
    Ok(Exit::Ok)
}

fn schedule(mut args: Args) -> Outcome<Schedule> {
    let rule = args.when.rule().ok_or_else(|| {
        Failure::usage("a schedule needs a rule of time").hint("give --cron, --every or --at")
    })?;
    Template::refuse_id(args.wishes.id())?;
    let window = args.wishes.take_spread();
    let job = args.wishes.job(args.kind, args.payload.unwrap_or_else(|| "null".to_owned()))?;
    let mut schedule = args.bounds.of(Schedule::of(args.name, rule, job).owner(args.owner));
    if let Some(window) = window {
        schedule = schedule.spread_keys(window, args.spread_keys);
    }
    if let Some(jitter) = args.jitter {
        schedule = schedule.jitter(jitter.0);
    }
    if let Some(missed) = args.missed {
        schedule = schedule.missed(missed);
    }
    if let Some(grace) = args.grace {
        schedule = schedule.grace(grace.0);
    }
    if let Some(overlap) = args.overlap {
        schedule = schedule.overlap(overlap);
    }
    Ok(schedule)
}
