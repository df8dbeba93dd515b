//! A schedule on its way in: a rule of time, a job, and wishes.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use tidemill_core::schedule::slot::Slots;
use tidemill_core::schedule::{Definition, Missed, Overlap, Rule, Spread, Template};
use tidemill_core::span::Span;
use tidemill_core::{Limits, NewJob, Wish};

use super::json::ScheduleWish;
use crate::engine::Tidemill;
use crate::error::Result;
use crate::worker::job::Enqueue;

/// A schedule on its way in, with its wishes.
///
/// ```
/// use std::time::Duration;
/// use tidemill::{Enqueue, Missed, Overlap, Schedule};
/// let report = Enqueue::raw("report", r#"{"of":"yesterday"}"#).queue("reports");
/// let nightly = Schedule::cron("nightly report", "30 2 * * *", report)
///     .zone("Europe/Berlin")
///     .missed(Missed::Last)
///     .overlap(Overlap::Skip)
///     .jitter(Duration::from_secs(120));
/// ```
#[derive(Debug, Clone)]
pub struct Schedule {
    definition: Definition,
    job: Enqueue,
}

impl Schedule {
    /// Fires at the times that a cron expression names: five fields (minute, hour, day, month,
    /// weekday), six with seconds first, or `@hourly @daily @weekly @monthly @yearly`.
    pub fn cron(name: impl Into<String>, cron: impl Into<String>, job: impl Into<Enqueue>) -> Self {
        Self::of(name, Rule::Cron(cron.into()), job)
    }

    /// Fires every so often, counted from its start, or from 1970: it does not drift.
    pub fn every(name: impl Into<String>, every: Duration, job: impl Into<Enqueue>) -> Self {
        Self::of(name, Rule::EveryMs(millis(every)), job)
    }

    /// Fires once, at this moment.
    pub fn once(name: impl Into<String>, at: Timestamp, job: impl Into<Enqueue>) -> Self {
        Self::of(name, Rule::Once(at), job)
    }

    /// Fires by this rule.
    pub fn of(name: impl Into<String>, rule: Rule, job: impl Into<Enqueue>) -> Self {
        Self { definition: Definition::new(name, rule), job: job.into() }
    }

    /// Only jobs of these queues may hold the unique key of its jobs, if they have one of their own: see
    /// [`Unique::within`](crate::Unique::within). A slot whose job would be a duplicate of another is skipped.
    #[must_use]
    pub fn within<S: Into<String>>(self, queues: impl IntoIterator<Item = S>) -> Self {
        Self { job: self.job.within(queues), ..self }
    }

    /// Who declares it; another owner cannot change or delete it. Defaults to `app`.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.definition.owner = owner.into();
        self
    }

    /// The IANA zone of its wall clock. Defaults to `UTC`.
    #[must_use]
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.definition.zone = zone.into();
        self
    }

    /// No slot before this moment. Defaults to none.
    #[must_use]
    pub fn starts(mut self, at: Timestamp) -> Self {
        self.definition.start_at = Some(at);
        self
    }

    /// No slot from this moment on. Defaults to none.
    #[must_use]
    pub fn ends(mut self, at: Timestamp) -> Self {
        self.definition.end_at = Some(at);
        self
    }

    /// No slot on these dates of its zone: holidays. Defaults to none.
    #[must_use]
    pub fn except(mut self, dates: impl IntoIterator<Item = Date>) -> Self {
        self.definition.except.extend(dates);
        self
    }

    /// Its job is due up to this long after the slot; how long is fixed for each slot. Defaults to 0.
    #[must_use]
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.definition.jitter_ms = millis(jitter);
        self
    }

    /// Its job is due within this window after the slot, at a place that its key, else its tenant,
    /// else the schedule's name decides: always the same. Defaults to no window.
    #[must_use]
    pub fn spread(mut self, window: Duration) -> Self {
        self.definition.spread = Some(Spread { window_ms: millis(window), keys: Vec::new() });
        self
    }

    /// Makes one job for each of these keys, which bears it as its key, each at its own place in the
    /// window.
    #[must_use]
    pub fn spread_keys<S: Into<String>>(
        mut self,
        window: Duration,
        keys: impl IntoIterator<Item = S>,
    ) -> Self {
        let keys = keys.into_iter().map(Into::into).collect();
        self.definition.spread = Some(Spread { window_ms: millis(window), keys });
        self
    }

    /// What becomes of slots that nobody was there to fire. Defaults to `Last`.
    #[must_use]
    pub fn missed(mut self, missed: Missed) -> Self {
        self.definition.missed = missed;
        self
    }

    /// A slot that is at most this late is not missed. Defaults to a minute.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.definition.grace_ms = millis(grace);
        self
    }

    /// What happens when a slot comes while the job before has not finished. Defaults to `Allow`.
    #[must_use]
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.definition.overlap = overlap;
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// The wish that makes this very schedule, for those who send it to an engine elsewhere. Its job is checked.
    pub fn wish(self, limits: &Limits, now: Timestamp) -> Result<ScheduleWish> {
        let span = |ms: u64| Span(Duration::from_millis(ms));
        let (definition, job) = self.checked_by(|job| job.check(limits, now))?;
        let (cron, every, at) = match definition.rule {
            Rule::Cron(cron) => (Some(cron), None, None),
            Rule::EveryMs(ms) => (None, Some(span(ms)), None),
            Rule::Once(at) => (None, None, Some(at)),
        };
        let (spread, spread_keys) =
            definition.spread.map(|spread| (span(spread.window_ms), spread.keys)).unzip();
        Ok(ScheduleWish {
            cron,
            every,
            at,
            zone: Some(definition.zone),
            starts: definition.start_at,
            ends: definition.end_at,
            except: definition.except,
            jitter: Some(span(definition.jitter_ms)),
            spread,
            spread_keys: spread_keys.unwrap_or_default(),
            missed: Some(definition.missed.to_string()),
            grace: Some(span(definition.grace_ms)),
            overlap: Some(definition.overlap),
            owner: Some(definition.owner),
            job: Wish { id: None, ..Wish::from(&job) },
        })
    }

    /// Checks its job as this does. Each job bears one of the keys: one that asks for order need not name it.
    fn checked_by(
        self,
        check: impl FnOnce(Enqueue) -> Result<NewJob>,
    ) -> Result<(Definition, NewJob)> {
        let keys = self.definition.spread.as_ref().map_or(&[][..], |spread| &spread.keys);
        let lent = keys.first().filter(|_| !self.job.has_key()).cloned();
        let mut job = check(match &lent {
            Some(key) => self.job.key(key),
            None => self.job,
        })?;
        if lent.is_some() {
            job.key = None;
        }
        Ok((self.definition, job))
    }

    /// Checks everything and makes the definition the store gets.
    pub(crate) fn check(self, mill: &Tidemill, now: Timestamp) -> Result<(Definition, Slots)> {
        // Its jobs are asked for by nobody who has a trace by then, unless it says one itself.
        let trace = self.job.trace_context().map(str::to_owned);
        let (definition, mut job) = self.checked_by(|job| mill.checked(job))?;
        job.options.trace = trace;
        let definition = Definition { job: Template::of(job)?, ..definition }.normalised()?;
        let slots = definition.check(&mill.0.limits, now)?;
        Ok((definition, slots))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
