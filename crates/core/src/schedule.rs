//! A schedule: a rule of time, the job it makes, and what happens when things go otherwise.
//!
//! `cron` reads expressions, `slot` finds moments, `due` decides what is to be fired after a silence,
//! `occasion` makes the jobs, `spread` shifts work so that midnight is not a stampede. All of it is
//! pure: every process that looks at the same definition and the same moment decides the same.
//!
//! It refuses, when a schedule is set, what could never work: an expression that never fires, a zone
//! that nobody knows, wishes that contradict each other.

mod cron;
pub mod due;
mod occasion;
pub mod slot;
pub mod spread;

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::job::unique::UniqueKey;
use crate::job::{DEFAULT_QUEUE, Due, NewJob, Options, Priority};
use crate::limit::{Limits, NAME_BYTES_MAX};
use crate::payload::Payload;
use crate::{JobId, clock, name};
pub use occasion::{Occasion, schedule_of_key, slot_of};
use slot::Slots;

/// The longest name of a schedule: its jobs bear it in a tag.
pub const SCHEDULE_NAME_BYTES_MAX: usize = 150;
/// The shortest interval.
pub const EVERY_MS_MIN: u64 = 1000;
/// The longest interval, jitter or window.
const YEARS_MAX: u32 = 10;
const YEAR_MS: u64 = 366 * 24 * 60 * 60 * 1000;
/// The longest a slot may be late and still count as on time.
const GRACE_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// The most dates that can be excepted.
const EXCEPT_MAX: usize = 1000;
/// The most slots that are caught up at once.
pub const CAUGHT_UP_MAX: u32 = 1000;
/// The owner of schedules that name none.
pub const DEFAULT_OWNER: &str = "app";

/// When a schedule fires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Rule {
    /// At the times a cron expression names: five fields, six with seconds first, or `@daily` and its
    /// like. `L`, `W` and `#` speak of last days, nearest weekdays and nth weekdays.
    Cron(String),
    /// Every so many milliseconds, counted from the start, or from 1970.
    EveryMs(u64),
    /// Once, at this moment.
    Once(Timestamp),
}

/// What becomes of slots that nobody was there to fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Missed {
    /// They are passed over.
    Skip,
    /// The last one fires, the others are passed over. The default.
    #[default]
    Last,
    /// All fire, at most this many, the latest.
    All(u32),
}

impl std::fmt::Display for Missed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Skip => f.write_str("skip"),
            Self::Last => f.write_str("last"),
            Self::All(max) => write!(f, "all:{max}"),
        }
    }
}

impl std::str::FromStr for Missed {
    type Err = Error;
    fn from_str(word: &str) -> Result<Self> {
        let unknown = || Error::WordUnknown {
            what: "policy for missed slots",
            value: word.to_owned(),
            known: "skip, last, all:N",
        };
        match word {
            "skip" => Ok(Self::Skip),
            "last" => Ok(Self::Last),
            "all" => Ok(Self::All(CAUGHT_UP_MAX)),
            _ => {
                let max = word.strip_prefix("all:").and_then(|max| max.parse().ok());
                max.map(Self::All).ok_or_else(unknown)
            }
        }
    }
}

/// What happens when a slot comes while the job of the slot before has not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Overlap {
    /// Both run. The default.
    #[default]
    Allow,
    /// The new slot is passed over.
    Skip,
    /// One waits until the other has finished; further slots are covered by the one that waits.
    QueueOne,
    /// The earlier one is called off; the new one starts when it has ended.
    CancelPrevious,
}

impl Overlap {
    /// All policies.
    pub const ALL: [Self; 4] = [Self::Allow, Self::Skip, Self::QueueOne, Self::CancelPrevious];

    /// Its word.
    pub fn word(self) -> &'static str {
        ["allow", "skip", "queue_one", "cancel_previous"][self as usize]
    }

    /// Whether jobs of one schedule must never run beside each other.
    pub fn is_exclusive(self) -> bool {
        matches!(self, Self::QueueOne | Self::CancelPrevious)
    }
}

impl std::str::FromStr for Overlap {
    type Err = Error;
    fn from_str(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|o| o.word() == word).ok_or_else(|| Error::WordUnknown {
            what: "policy for overlaps",
            value: word.to_owned(),
            known: "allow, skip, queue_one, cancel_previous",
        })
    }
}

/// Work shifted into a window by a stable hash, so that not all of it is due at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Spread {
    /// Jobs are due within this many milliseconds after their slot.
    pub window_ms: u64,
    /// One job for each of these keys, each at its own place in the window. Without keys there is one
    /// job, placed by its key, else its tenant, else the schedule's name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
}

/// The job that a schedule makes at each slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Template {
    /// Which handler runs it.
    pub kind: String,
    /// Where it waits.
    pub queue: String,
    /// In which band.
    pub priority: Priority,
    /// Whose job it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// What per-key limits and ordering count by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What makes it the same as another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<UniqueKey>,
    /// What the handler gets.
    pub payload: Payload,
    /// The rarer wishes.
    #[serde(default, skip_serializing_if = "Options::is_default")]
    pub options: Options,
}

impl Template {
    /// A job with every wish at its default.
    pub fn new(kind: impl Into<String>, payload: Payload) -> Self {
        Self {
            kind: kind.into(),
            queue: DEFAULT_QUEUE.to_owned(),
            priority: Priority::default(),
            tenant: None,
            key: None,
            unique: None,
            payload,
            options: Options::default(),
        }
    }

    /// The wishes of a job. Refuses a due time: that is the schedule's.
    pub fn of(job: NewJob) -> Result<Self> {
        if job.due != Due::Now {
            return Err(contradiction(
                "its job has a delay or a due time",
                "leave it to the rule, or use jitter or spread",
            ));
        }
        let NewJob { kind, queue, priority, tenant, key, unique, payload, options, .. } = job;
        Ok(Self { kind, queue, priority, tenant, key, unique, payload, options })
    }

    /// Refuses an id for its jobs: each slot makes one with an id of its own.
    pub fn refuse_id(id: Option<JobId>) -> Result<()> {
        let instead = "leave it out: each slot makes a job with an id of its own";
        id.map_or(Ok(()), |_| Err(contradiction("its job has an id", instead)))
    }

    fn job(&self, id: JobId, due: Due) -> NewJob {
        NewJob {
            id,
            kind: self.kind.clone(),
            queue: self.queue.clone(),
            priority: self.priority,
            due,
            tenant: self.tenant.clone(),
            key: self.key.clone(),
            unique: self.unique.clone(),
            payload: self.payload.clone(),
            options: self.options.clone(),
        }
    }
}

/// A schedule as it is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Definition {
    /// Names it for ever.
    pub name: String,
    /// Who declares it: another owner cannot change or delete it.
    #[serde(default = "default_owner")]
    pub owner: String,
    /// When it fires.
    pub rule: Rule,
    /// The IANA zone of its wall clock. Defaults to `UTC`.
    #[serde(default = "default_zone")]
    pub zone: String,
    /// No slot before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_at: Option<Timestamp>,
    /// No slot from this moment on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_at: Option<Timestamp>,
    /// No slot on these dates of its zone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<Date>,
    /// Its job is due up to this many milliseconds after the slot; how many is fixed for each slot.
    #[serde(default)]
    pub jitter_ms: u64,
    /// Its work is shifted into a window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// What becomes of slots that nobody was there to fire.
    #[serde(default)]
    pub missed: Missed,
    /// A slot that is at most this many milliseconds late is not missed. Defaults to a minute.
    #[serde(default = "default_grace_ms")]
    pub grace_ms: u64,
    /// What happens when a slot comes while the job of the slot before has not finished.
    #[serde(default)]
    pub overlap: Overlap,
    /// The job it makes.
    pub job: Template,
}

fn default_owner() -> String {
    DEFAULT_OWNER.to_owned()
}

fn default_zone() -> String {
    "UTC".to_owned()
}

fn default_grace_ms() -> u64 {
    60_000
}

impl Definition {
    /// A schedule with every wish at its default; its job is of the kind that bears its name.
    pub fn new(name: impl Into<String>, rule: Rule) -> Self {
        let name = name.into();
        Self {
            owner: default_owner(),
            rule,
            zone: default_zone(),
            start_at: None,
            end_at: None,
            except: Vec::new(),
            jitter_ms: 0,
            spread: None,
            missed: Missed::default(),
            grace_ms: default_grace_ms(),
            overlap: Overlap::default(),
            job: Template::new(name.clone(), Payload::null()),
            name,
        }
    }

    /// The same in the words that are kept: the zone as the database spells it, times in microseconds.
    pub fn normalised(mut self) -> Result<Self> {
        if let Some(known) = slot::zone(&self.zone)?.iana_name() {
            known.clone_into(&mut self.zone);
        }
        let cut = |at: Timestamp| Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at);
        self.start_at = self.start_at.map(cut);
        self.end_at = self.end_at.map(cut);
        if let Rule::Once(at) = &mut self.rule {
            *at = cut(*at);
        }
        Ok(self)
    }

    /// Refuses what could never work. Says nothing of what is over by now: see
    /// [`is_over`](Self::is_over).
    pub fn check(&self, limits: &Limits, now: Timestamp) -> Result<Slots> {
        name::check("name of the schedule", &self.name, SCHEDULE_NAME_BYTES_MAX)?;
        name::check("owner", &self.owner, NAME_BYTES_MAX)?;
        self.check_time()?;
        self.check_wishes(limits)?;
        for job in self.jobs_of(Occasion::Slot { made_at: now, slot: now }).iter().take(1) {
            NewJob { due: Due::Now, ..job.clone() }.check(limits, now)?;
        }
        let slots = Slots::of(self)?;
        let first = self.start_at.unwrap_or(Timestamp::UNIX_EPOCH);
        let before = first - jiff::SignedDuration::from_micros(1);
        if slots.next(before).is_none() {
            let (name, excepted) = (self.name.clone(), slots.is_all_excepted(before));
            return Err(Error::ScheduleNeverFires { name, excepted });
        }
        Ok(slots)
    }

    fn check_time(&self) -> Result<()> {
        let once = if let Rule::Once(at) = self.rule { Some(at) } else { None };
        for (what, at) in [("time", once), ("start", self.start_at), ("end", self.end_at)] {
            at.map_or(Ok(()), |at| clock::check(what, at))?;
        }
        if let Rule::EveryMs(every_ms) = self.rule
            && !(EVERY_MS_MIN..=u64::from(YEARS_MAX) * YEAR_MS).contains(&every_ms)
        {
            return Err(Error::ScheduleEveryInvalid { every_ms, years_max: YEARS_MAX });
        }
        if let (Some(start), Some(end)) = (self.start_at, self.end_at)
            && end <= start
        {
            return Err(Error::ScheduleEndBeforeStart { start, end });
        }
        if self.except.len() > EXCEPT_MAX {
            let (what, instead) = ("more than 1,000 dates are excepted", "use an end, or two");
            return Err(contradiction(what, instead));
        }
        spread::check("jitter", self.jitter_ms)?;
        self.spread
            .as_ref()
            .map_or(Ok(()), |spread| spread::check(spread::WINDOW, spread.window_ms))
    }

    fn check_wishes(&self, limits: &Limits) -> Result<()> {
        let keys: &[String] = self.spread.as_ref().map_or(&[], |spread| &spread.keys);
        for key in keys {
            name::check("key", key, NAME_BYTES_MAX)?;
        }
        let mut sorted: Vec<_> = keys.iter().collect();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(contradiction("a key is given twice", "give each key once"));
        }
        if keys.len() > limits.batch_jobs_max {
            let (jobs, jobs_max) = (keys.len(), limits.batch_jobs_max);
            return Err(Error::BatchTooLarge { jobs, jobs_max });
        }
        self.check_bytes()?;
        self.check_deadline()?;
        let unique = self.job.unique.is_some();
        for (is_wrong, what, instead) in [
            (
                matches!(self.missed, Missed::All(0)),
                "missed slots are to be caught up, at most 0 of them",
                "use `skip`",
            ),
            (
                matches!(self.missed, Missed::All(max) if max > CAUGHT_UP_MAX),
                "more than 1,000 missed slots are to be caught up at once",
                "use a lower bound, and backfill for the rest",
            ),
            (
                self.grace_ms > GRACE_MS_MAX,
                "a slot would be on time when it is more than a day late",
                "use a shorter grace and the policy for missed slots",
            ),
            (
                self.spread.as_ref().is_some_and(|spread| spread.window_ms == 0),
                "work is to be spread over a window of 0",
                "leave the spread out, or give the window a length",
            ),
            (
                !keys.is_empty() && self.overlap != Overlap::Allow,
                "a schedule that makes a job for each key cannot watch for overlaps",
                "use `allow`, and a unique key in what those jobs do",
            ),
            (
                !keys.is_empty() && (unique || self.job.key.is_some()),
                "a schedule that makes a job for each key has a key or unique key of its own",
                "leave it out: each job bears its own key",
            ),
            (
                unique && self.overlap.is_exclusive(),
                "its job has a unique key, and the policy for overlaps needs one itself",
                "leave the unique key out, or use `allow` or `skip`",
            ),
        ] {
            if is_wrong {
                return Err(contradiction(what, instead));
            }
        }
        Ok(())
    }

    /// Whether its time has passed: nothing will come of it any more.
    pub fn is_over(&self, now: Timestamp) -> bool {
        matches!(self.rule, Rule::Once(at) if at <= now)
            || self.end_at.is_some_and(|end| end <= now)
    }

    /// Whether both fire at the same slots.
    pub fn keeps_time_of(&self, other: &Self) -> bool {
        let time =
            |d: &Self| (d.rule.clone(), d.zone.clone(), d.start_at, d.end_at, d.except.clone());
        time(self) == time(other)
    }

    /// When the job of a slot is due: the slot, its jitter, and its place in the window.
    pub fn due_at(&self, slot: Timestamp, key: Option<&str>) -> Timestamp {
        let jitter = spread::jitter(&self.name, slot, self.jitter_ms);
        let place = self.spread.as_ref().map_or(Duration::ZERO, |spread| {
            let own = self.job.key.as_deref().or(self.job.tenant.as_deref());
            spread::place(key.or(own).unwrap_or(&self.name), spread.window_ms)
        });
        slot.checked_add(jitter.saturating_add(place)).unwrap_or(slot)
    }
}

fn contradiction(what: impl Into<String>, instead: &'static str) -> Error {
    Error::ScheduleContradiction { what: what.into(), instead }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daily() -> Definition {
        Definition::new("s", Rule::Cron("0 3 * * *".into()))
    }

    fn hasty(ms: u64) -> Template {
        let options = Options { finish_within_ms: Some(ms), ..Options::default() };
        Template { options, ..daily().job }
    }

    fn code(definition: &Definition) -> Option<&'static str> {
        definition.check(&Limits::default(), Timestamp::UNIX_EPOCH).err().map(|e| e.code())
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn what_could_never_work_is_refused() {
        let rule = |rule| Definition { rule, ..daily() };
        let cron = |cron: &str| rule(Rule::Cron(cron.into()));
        let keyed = |keys: &[&str]| {
            let keys = keys.iter().map(|key| (*key).to_owned()).collect();
            Definition { spread: Some(Spread { window_ms: 1, keys }), ..daily() }
        };
        let heavy = |keys: usize| {
            let keys: Vec<String> = (0..keys).map(|n| n.to_string()).collect();
            let payload = Payload::trusted(format!("\"{}\"", "x".repeat(1024 * 1024 - 2)));
            let job = Template { payload, ..daily().job };
            Definition { spread: Some(Spread { window_ms: 1, keys }), job, ..daily() }
        };
        let (noon, later) = (Some(at("2026-01-01T12:00:00Z")), Some(at("2026-01-01T13:00:00Z")));
        let unique = Template { unique: Some(daily().exclusive_key()), ..daily().job };
        for (definition, expected) in vec![
            (daily(), None),
            (cron("@daily"), None),
            (cron("nonsense"), Some("schedule_cron_invalid")),
            (cron("0 0 30 2 *"), Some("schedule_never_fires")),
            (Definition { start_at: noon, end_at: later, ..daily() }, Some("schedule_never_fires")),
            (
                Definition { start_at: later, end_at: noon, ..daily() },
                Some("schedule_end_before_start"),
            ),
            (
                Definition { start_at: noon, end_at: noon, ..daily() },
                Some("schedule_end_before_start"),
            ),
            (rule(Rule::Once(Timestamp::MIN)), Some("time_invalid")),
            (Definition { start_at: Some(Timestamp::MIN), ..daily() }, Some("time_invalid")),
            (
                Definition {
                    start_at: Some(at("1969-12-31T23:59:59.999999Z")),
                    ..rule(Rule::EveryMs(1000))
                },
                Some("time_invalid"),
            ),
            (Definition { start_at: Some(Timestamp::UNIX_EPOCH), ..daily() }, None),
            (
                Definition { start_at: Some(Timestamp::MAX), ..daily() },
                Some("schedule_never_fires"),
            ),
            (Definition { end_at: Some(Timestamp::MIN), ..daily() }, Some("time_invalid")),
            (Definition { end_at: Some(Timestamp::MAX), ..daily() }, None),
            (rule(Rule::EveryMs(0)), Some("schedule_every_invalid")),
            (rule(Rule::EveryMs(999)), Some("schedule_every_invalid")),
            (rule(Rule::EveryMs(u64::MAX)), Some("schedule_every_invalid")),
            (rule(Rule::EveryMs(1000)), None),
            (Definition { zone: "Mars/Olympus".into(), ..daily() }, Some("schedule_zone_unknown")),
            (Definition { name: String::new(), ..daily() }, Some("name_empty")),
            (Definition { name: "n".repeat(151), ..daily() }, Some("name_too_long")),
            (Definition { owner: "a\0b".into(), ..daily() }, Some("name_invalid")),
            (Definition { jitter_ms: u64::MAX, ..daily() }, Some("duration_invalid")),
            (Definition { grace_ms: u64::MAX, ..daily() }, Some("schedule_contradiction")),
            (Definition { missed: Missed::All(0), ..daily() }, Some("schedule_contradiction")),
            (Definition { missed: Missed::All(1001), ..daily() }, Some("schedule_contradiction")),
            (Definition { jitter_ms: 60_000, job: hasty(60_000), ..daily() }, None),
            (
                Definition { jitter_ms: 60_000, job: hasty(59_999), ..daily() },
                Some("schedule_contradiction"),
            ),
            (
                Definition {
                    spread: Some(Spread { window_ms: 60_000, keys: Vec::new() }),
                    job: hasty(59_999),
                    ..daily()
                },
                Some("schedule_contradiction"),
            ),
            (keyed(&["a", "b"]), None),
            (keyed(&["a", "a"]), Some("schedule_contradiction")),
            (keyed(&["a", ""]), Some("name_empty")),
            (heavy(64), None),
            (heavy(65), Some("schedule_contradiction")),
            (
                Definition { overlap: Overlap::Skip, ..keyed(&["a"]) },
                Some("schedule_contradiction"),
            ),
            (Definition { job: unique.clone(), ..daily() }, None),
            (
                Definition { job: unique, overlap: Overlap::QueueOne, ..daily() },
                Some("schedule_contradiction"),
            ),
        ] {
            assert_eq!(code(&definition), expected, "{definition:?}");
        }
    }

    #[test]
    fn a_definition_survives_its_json_and_has_defaults() {
        let full = Definition {
            start_at: Some(at("2026-01-01T12:00:00Z")),
            except: vec!["2026-12-25".parse().unwrap()],
            missed: Missed::All(7),
            overlap: Overlap::QueueOne,
            spread: Some(Spread { window_ms: 5, keys: vec!["a".into()] }),
            ..daily()
        };
        let text = serde_json::to_string(&full).unwrap();
        assert_eq!(serde_json::from_str::<Definition>(&text).unwrap(), full);
        let short = r#"{"name":"s","rule":{"cron":"0 3 * * *"},
            "job":{"kind":"s","queue":"default","priority":"normal","payload":null}}"#;
        assert_eq!(serde_json::from_str::<Definition>(short).unwrap(), daily());
    }

    #[test]
    fn words_are_read_as_they_are_shown() {
        for missed in [Missed::Skip, Missed::Last, Missed::All(5)] {
            assert_eq!(missed.to_string().parse(), Ok(missed));
        }
        for overlap in Overlap::ALL {
            assert_eq!(overlap.word().parse(), Ok(overlap));
        }
        assert!("all:x".parse::<Missed>().is_err());
    }
}
