//! Why a queue is as deep as it is: what comes, what goes, what holds it, and when it will be empty.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::depth::Rates;
use crate::gate::Rate;
use crate::id::JobId;
use crate::why::{COUNTED_MAX, DEAD_NEXT};

/// Lines are looked at up to this number.
pub const LINES_MAX: i64 = 1000;

/// Rates that differ by less than this part of the larger one are the same.
const STEADY_PART: f64 = 0.02;

/// What a queue has, how that changes, and what holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueWhy {
    /// Which queue.
    pub queue: String,
    /// Jobs that wait in it, for a slot or the clock.
    pub depth: u64,
    /// How many may.
    pub depth_max: Option<u64>,
    /// Since when it is above its high watermark and has not been down at the low one.
    pub above_since: Option<Timestamp>,
    /// The tenants with the most jobs waiting, most first.
    pub tenants: Vec<TenantDepth>,
    /// How fast it fills and drains, over about the last minute; unknown while it is too new.
    pub rates: Option<Rates>,
    /// What that comes to.
    pub trend: Option<Trend>,
    /// When it is empty at this rate; never, or unknown, when it is `None`.
    pub drains_in_ms: Option<u64>,
    /// Everything that keeps its jobs from leaving faster.
    pub holders: Vec<Holder>,
}

/// How many jobs of a tenant wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TenantDepth {
    /// Whose.
    pub tenant: String,
    /// How many.
    pub depth: u64,
}

/// Whether more comes than goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Trend {
    /// More comes than goes.
    Growing,
    /// More goes than comes.
    Shrinking,
    /// As much comes as goes.
    Steady,
}

/// Something that keeps the jobs of a queue from leaving.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "holder", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Holder {
    /// It is paused.
    Paused {
        /// The name or pattern whose rules say so.
        rule: String,
    },
    /// No live worker takes from it.
    NoWorker,
    /// A limit lets no more pass now.
    Limit {
        /// The limit, for people.
        limit: String,
        /// How many jobs of the queue are held at it, counted up to 100,000; those of a limit on whole queues
        /// stay in line.
        held: u64,
    },
    /// Jobs of these kinds wait in it, and no live worker that takes from it knows them.
    KindUnknown {
        /// The kinds.
        kinds: Vec<String>,
    },
    /// The workers that know what is due are busy, with jobs of this queue or of others.
    Busy {
        /// How many workers.
        workers: usize,
        /// How many jobs of this queue they run at once.
        slots: u64,
    },
    /// Jobs wait for the clock.
    Clock {
        /// How many, counted up to [`COUNTED_MAX`] or a little further.
        jobs: u64,
        /// Whether nothing else waits in it.
        all: bool,
        /// When the next of them is due.
        next_at: Timestamp,
        /// When the last of them is due.
        last_at: Timestamp,
    },
    /// Runs of workflows wait for a signal, a child or an answer, however long that takes.
    Asleep {
        /// How many, counted up to [`COUNTED_MAX`] or a little further.
        runs: u64,
    },
    /// Jobs wait behind another one of their key, which has not finished.
    Lines {
        /// How many, counted up to [`COUNTED_MAX`].
        jobs: u64,
    },
    /// Jobs wait behind a dead one of their key, until that is replayed or given up.
    DeadLines {
        /// How many lines are blocked so, among the first [`LINES_MAX`] and those of the latest deaths.
        lines: u64,
        /// The key of one of them.
        key: String,
        /// The job that is dead.
        head: JobId,
    },
}

impl Trend {
    /// What two rates come to.
    pub fn of(rates: Rates) -> Self {
        let Rates { in_per_s, out_per_s } = rates;
        if (in_per_s - out_per_s).abs() <= STEADY_PART * in_per_s.max(out_per_s) {
            Self::Steady
        } else if in_per_s > out_per_s {
            Self::Growing
        } else {
            Self::Shrinking
        }
    }

    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Growing => "growing",
            Self::Shrinking => "shrinking",
            Self::Steady => "steady",
        }
    }
}

impl Holder {
    /// Whether it keeps all jobs of the queue where they are.
    fn is_stop(&self) -> bool {
        matches!(self, Self::Paused { .. } | Self::NoWorker)
    }
}

/// When a queue of this depth is empty at these rates; `None` is never.
pub fn drains_in_ms(depth: u64, rates: Rates) -> Option<u64> {
    let net = rates.out_per_s - rates.in_per_s;
    match depth {
        0 => Some(0),
        _ if net <= 0.0 => None,
        depth => Some((depth as f64 / net * 1000.0) as u64),
    }
}

/// The same where limits let no more start than these.
pub fn drains_at_most(drains_in_ms: u64, depth: u64, rates: impl Iterator<Item = Rate>) -> u64 {
    let slowest = rates
        .map(|rate| u128::from(depth) * u128::from(rate.per_ms) / u128::from(rate.jobs.max(1)))
        .max();
    slowest.map_or(drains_in_ms, |ms| drains_in_ms.max(u64::try_from(ms).unwrap_or(u64::MAX)))
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused { rule } => write!(f, "paused by the rules of {rule}"),
            Self::NoWorker => write!(f, "no live worker takes from it"),
            Self::Limit { limit, held: 0 } => write!(f, "bound by {limit}"),
            Self::Limit { limit, held } => {
                write!(f, "bound by {limit}, which holds {}", grouped(*held))
            }
            Self::KindUnknown { kinds } => {
                write!(f, "no live worker of it knows {}", kinds.join(", "))
            }
            Self::Busy { workers: 1, slots: 1 } => write!(f, "the slot of its one worker is taken"),
            Self::Busy { workers: 1, slots } => {
                write!(f, "all {} slots of its one worker are taken", grouped(*slots))
            }
            Self::Busy { workers, slots } => {
                write!(f, "all {} slots of its {workers} workers are taken", grouped(*slots))
            }
            Self::Clock { jobs: 1, all: true, next_at, .. } => {
                write!(f, "its job is not due before {next_at:.0}")
            }
            Self::Clock { jobs, all: true, next_at, .. } => {
                write!(f, "all {} wait for the clock, the next until {next_at:.0}", counted(*jobs))
            }
            Self::Clock { jobs, next_at, .. } => {
                write!(f, "{} for the clock, the next until {next_at:.0}", waiting(*jobs, "job"))
            }
            Self::Asleep { runs } => {
                write!(f, "{} to be woken", waiting(*runs, "run"))
            }
            Self::Lines { jobs } => {
                write!(f, "{} behind another of the same key", waiting(*jobs, "job"))
            }
            Self::DeadLines { lines: 1, key, head } => {
                write!(f, "the line of key {key} is blocked by {head}, which is dead: {DEAD_NEXT}")
            }
            Self::DeadLines { lines, key, head } => write!(
                f,
                "{} lines are blocked by dead jobs, that of key {key} by {head}: {DEAD_NEXT}",
                grouped(*lines)
            ),
        }
    }
}

impl fmt::Display for QueueWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "depth {}", grouped(self.depth))?;
        if let Some(depth_max) = self.depth_max {
            write!(f, " of {}", grouped(depth_max))?;
        }
        if let Some(since) = self.above_since {
            write!(f, ", above its high watermark since {since:.0}")?;
        }
        if let (Some(rates), Some(trend)) = (self.rates, self.trend) {
            let (coming, going) = (per_s(rates.in_per_s), per_s(rates.out_per_s));
            write!(f, "; in {coming}/s, out {going}/s; {}", trend.word())?;
        }
        for holder in &self.holders {
            write!(f, "; {holder}")?;
        }
        if self.depth == 0 {
            return write!(f, "; empty");
        }
        let clock = self.holders.iter().find_map(|holder| match holder {
            Holder::Clock { all, last_at, .. } => Some((*all, *last_at)),
            _ => None,
        });
        let has = |wanted: fn(&Holder) -> bool| self.holders.iter().any(wanted);
        match (clock, self.drains_in_ms) {
            (_, Some(ms)) => write!(f, "; drains in {} at this rate", span(ms)),
            _ if has(|holder| matches!(holder, Holder::DeadLines { .. })) => {
                write!(f, "; drains never while a dead job blocks its line")
            }
            (Some((all, last_at)), None) if all || !has(Holder::is_stop) => {
                write!(f, "; not empty before {last_at:.0}")
            }
            _ if self.rates.is_none() => write!(f, "; too new to tell its rates"),
            _ if has(|holder| matches!(holder, Holder::Asleep { .. })) && !has(Holder::is_stop) => {
                write!(f, "; not empty before all of them are woken")
            }
            _ => write!(f, "; drains never at this rate"),
        }
    }
}

/// A number of jobs that was counted up to a bound.
fn counted(number: u64) -> String {
    match number {
        COUNTED_MAX.. => format!("{} or more", grouped(COUNTED_MAX)),
        _ => grouped(number),
    }
}

fn waiting(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun} waits"),
        _ => format!("{} {noun}s wait", counted(number)),
    }
}

/// A number that people can read: 12,000.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn per_s(rate: f64) -> String {
    if rate == 0.0 || rate >= 10.0 { grouped(rate.round() as u64) } else { format!("{rate:.1}") }
}

fn span(ms: u64) -> String {
    let seconds = Duration::from_millis(ms).as_secs();
    match seconds {
        0 => "less than a second".to_owned(),
        1..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", grouped(seconds / 86_400)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(depth: u64, rates: Option<(f64, f64)>) -> QueueWhy {
        let rates = rates.map(|(in_per_s, out_per_s)| Rates { in_per_s, out_per_s });
        QueueWhy {
            queue: "mail".to_owned(),
            depth,
            depth_max: None,
            above_since: None,
            tenants: Vec::new(),
            rates,
            trend: rates.map(Trend::of),
            drains_in_ms: rates.and_then(|rates| drains_in_ms(depth, rates)),
            holders: Vec::new(),
        }
    }

    #[test]
    fn a_queue_is_told_in_one_sentence() {
        let growing = why(12_000, Some((300.0, 280.0)));
        assert_eq!(
            growing.to_string(),
            "depth 12,000; in 300/s, out 280/s; growing; drains never at this rate"
        );
        let held = QueueWhy {
            depth_max: Some(20_000),
            holders: vec![Holder::Paused { rule: "mail:*".to_owned() }, Holder::NoWorker],
            ..why(12_000, Some((0.0, 0.0)))
        };
        assert_eq!(
            held.to_string(),
            "depth 12,000 of 20,000; in 0/s, out 0/s; steady; paused by the rules of mail:*; \
             no live worker takes from it; drains never at this rate"
        );
        for (why, ends) in [
            (why(0, None), "depth 0; empty"),
            (why(7, None), "depth 7; too new to tell its rates"),
            (why(1200, Some((2.0, 4.0))), "shrinking; drains in 10 min at this rate"),
            (why(100, Some((0.0, 2.5))), "out 2.5/s; shrinking; drains in 40 s at this rate"),
        ] {
            assert!(why.to_string().ends_with(ends), "{why}");
        }
    }

    #[test]
    fn whatever_holds_jobs_is_named_and_no_end_told_that_cannot_be() {
        let at = |s| Timestamp::from_second(s).unwrap();
        let clock = |jobs, all| Holder::Clock { jobs, all, next_at: at(60), last_at: at(3600) };
        let head = JobId::new();
        let dead = |lines| Holder::DeadLines { lines, key: "a".to_owned(), head };
        let never = "drains never while a dead job blocks its line";
        for (holders, ends) in [
            (
                vec![clock(7, true)],
                "all 7 wait for the clock, the next until 1970-01-01T00:01:00Z; \
                 not empty before 1970-01-01T01:00:00Z"
                    .to_owned(),
            ),
            (vec![clock(1, false)], "not empty before 1970-01-01T01:00:00Z".to_owned()),
            (vec![Holder::NoWorker, clock(3, true)], "before 1970-01-01T01:00:00Z".to_owned()),
            (vec![Holder::NoWorker, clock(3, false)], "drains never at this rate".to_owned()),
            (
                vec![Holder::Asleep { runs: 1 }],
                "; 1 run waits to be woken; not empty before all of them are woken".to_owned(),
            ),
            (
                vec![Holder::Busy { workers: 2, slots: 8 }, Holder::Lines { jobs: 12_000 }],
                "; all 8 slots of its 2 workers are taken; \
                 10,000 or more jobs wait behind another of the same key; drains never at this rate"
                    .to_owned(),
            ),
            (
                vec![dead(1), clock(3, false)],
                format!(
                    "; the line of key a is blocked by {head}, which is dead: {DEAD_NEXT}; 3 jobs wait for the clock, \
                     the next until 1970-01-01T00:01:00Z; {never}"
                ),
            ),
            (
                vec![dead(3)],
                format!(
                    "; 3 lines are blocked by dead jobs, that of key a by {head}: {DEAD_NEXT}; {never}"
                ),
            ),
        ] {
            let why = QueueWhy { holders, ..why(7, Some((1.0, 0.0))) };
            assert!(why.to_string().ends_with(&ends), "{why}");
        }
    }

    #[test]
    fn a_queue_drains_no_faster_than_its_rates_let_it() {
        let rate = |jobs, per_ms| Rate { jobs, per_ms, burst: 1 };
        assert_eq!(drains_at_most(500, 2, [].into_iter()), 500);
        assert_eq!(drains_at_most(500, 2, [rate(1, 60_000), rate(10, 1000)].into_iter()), 120_000);
        assert_eq!(drains_at_most(500, 2, [rate(10, 1000)].into_iter()), 500);
    }

    #[test]
    fn rates_that_hardly_differ_are_steady() {
        let trend = |in_per_s, out_per_s| Trend::of(Rates { in_per_s, out_per_s });
        assert_eq!(trend(100.0, 99.0), Trend::Steady);
        assert_eq!(trend(100.0, 90.0), Trend::Growing);
        assert_eq!(trend(90.0, 100.0), Trend::Shrinking);
    }
}
