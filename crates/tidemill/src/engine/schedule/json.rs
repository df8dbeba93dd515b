//! A schedule as JSON asks for it: a rule of time, the job it makes, and wishes.
//!
//! It refuses names it does not know, and more than one rule of time: which of them should count?

use jiff::Timestamp;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use tidemill_core::schedule::{Missed, Overlap, Rule, Template};
use tidemill_core::span::Span;
use tidemill_core::{Error as Invalid, Wish, moment};

use super::new::Schedule;
use crate::error::Result;
use crate::worker::job::Enqueue;

/// A schedule that is asked for. One of `cron`, `every` and `at` says when it fires.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleWish {
    /// At the times that a cron expression names: five fields, six with seconds first, or `@daily`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Every so often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
    /// Once, at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "moment::read_option")]
    pub at: Option<Timestamp>,
    /// The IANA zone of its wall clock; `UTC` when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// No slot before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "moment::read_option")]
    pub starts: Option<Timestamp>,
    /// No slot from this time on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "moment::read_option")]
    pub ends: Option<Timestamp>,
    /// No slot on these dates of its zone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<Date>,
    /// Its job is due up to this long after the slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Span>,
    /// Its job is due within this window after the slot, always at the same place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Span>,
    /// One job for each of these keys, each at its own place in the window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spread_keys: Vec<String>,
    /// What becomes of slots that nobody was there to fire: `skip`, `last` or `all:N`; `last` when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<String>,
    /// A slot that is at most this late is not missed; a minute when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
    /// What happens when the job before has not finished; `allow` when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// Who declares it: another owner cannot change or delete it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The job it makes at each slot.
    pub job: Wish,
}

impl ScheduleWish {
    /// The schedule of this name.
    pub fn named(self, name: impl Into<String>) -> Result<Schedule> {
        let rules = [
            self.cron.clone().map(Rule::Cron),
            self.every.map(|every| Rule::EveryMs(every.0.as_millis() as u64)),
            self.at.map(Rule::Once),
        ];
        let mut rules = rules.into_iter().flatten();
        let (Some(rule), None) = (rules.next(), rules.next()) else {
            return contradiction("a schedule has one rule of time: cron, every or at");
        };
        if !self.spread_keys.is_empty() && self.spread.is_none() {
            return contradiction("keys are spread over a window; give spread");
        }
        Template::refuse_id(self.job.id)?;
        let missed: Option<Missed> = self.missed.map(|word| word.parse()).transpose()?;
        let mut schedule = Schedule::of(name, rule, Enqueue::try_from(self.job)?);
        macro_rules! wish {
            ($($value:expr => $method:ident),* $(,)?) => {
                $(if let Some(value) = $value { schedule = schedule.$method(value); })*
            };
        }
        wish! {
            self.owner => owner,
            self.zone => zone,
            self.starts => starts,
            self.ends => ends,
            self.jitter.map(|span| span.0) => jitter,
            missed => missed,
            self.grace.map(|span| span.0) => grace,
            self.overlap => overlap,
        }
        if let Some(window) = self.spread {
            schedule = schedule.spread_keys(window.0, self.spread_keys);
        }
        Ok(schedule.except(self.except))
    }
}

fn contradiction<T>(reason: &str) -> Result<T> {
    Err(Invalid::WishContradiction { reason: reason.to_owned() }.into())
}
