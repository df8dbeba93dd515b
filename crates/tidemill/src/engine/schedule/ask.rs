//! What people ask of a schedule beside its slots: a look ahead, a run now, slots of the past.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use tidemill_core::schedule::slot::Slots;
use tidemill_core::schedule::{Definition, Occasion, Overlap};
use tidemill_core::{Error as Invalid, JobId, NewJob, clock};
use tidemill_store::ScheduleView;
use tidemill_store::schedule::{FireAnswer, FireRequest, Fired, HISTORY_MAX, How, SlotJobs, What};

use crate::engine::schedule::new::Schedule;
use crate::engine::schedule::{LOOKS_MAX, Schedules, busy};
use crate::engine::telemetry::verb;
use crate::error::{Error, Result};

/// The most slots of one backfill.
pub const BACKFILL_SLOTS_MAX: usize = 1000;
/// The most slots of one look ahead.
const PREVIEW_MAX: usize = 1000;
/// The most jobs of one look ahead at a schedule that makes a job for each key; its first slot is shown whatever.
const PREVIEW_JOBS_MAX: usize = 10_000;

/// A slot that is to come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ComingSlot {
    /// The moment.
    pub slot: Timestamp,
    /// What the wall clock of its zone shows.
    pub local: String,
    /// When its job, or the first of its jobs, is due.
    pub due_at: Timestamp,
    /// Where it makes a job for each key: when each is due, the first one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyDue>,
}

/// A job that a schedule makes for one of its keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyDue {
    /// The key.
    pub key: String,
    /// When it is due.
    pub due_at: Timestamp,
    /// The job, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

/// What became of a run beside the slots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ran {
    /// When it was asked for.
    pub slot: Timestamp,
    /// What became of it.
    pub what: What,
    /// The job that stands for it: the first, if it made several.
    pub job: Option<JobId>,
    /// How many jobs it made.
    pub jobs: u32,
    /// Where it makes a job for each key: each of them. All are due at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyDue>,
}

/// Slots of the past that are to be fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backfill {
    /// From this moment on.
    pub from: Timestamp,
    /// Until before this moment; not in the future.
    pub to: Timestamp,
    /// Also those that the history knows to have fired.
    pub again: bool,
}

/// A slot of the past, and whether a backfill would fire it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PastSlot {
    /// The moment.
    pub slot: Timestamp,
    /// What the wall clock of its zone shows.
    pub local: String,
    /// Whether the history knows that it fired.
    pub fired: bool,
}

impl Schedules<'_> {
    /// The next `n` slots, at most 1,000; of a schedule that makes a job for each key, as many as have 10,000 jobs.
    pub async fn preview(&self, name: &str, n: usize) -> Result<Vec<ComingSlot>> {
        let view = self.get(name).await?;
        let slots = Slots::of(&view.definition)?;
        let now = self.0.now().await?;
        // What it waits for comes first, also when it is late.
        let first = view.next_at.filter(|next| *next <= now && !view.paused);
        let after = first.unwrap_or(now);
        let n = slots_max(&view.definition, n);
        let upcoming = slots.upcoming(after, n);
        let all = first.into_iter().chain(upcoming).take(n);
        Ok(all.map(|slot| coming(&view.definition, &slots, slot)).collect())
    }

    /// The next `n` slots of a schedule that is not set yet. Checks it; writes nothing.
    pub async fn preview_of(&self, schedule: Schedule, n: usize) -> Result<Vec<ComingSlot>> {
        let (definition, slots) = self.checked(schedule).await?;
        let upcoming = slots.upcoming(self.0.now().await?, slots_max(&definition, n));
        Ok(upcoming.into_iter().map(|slot| coming(&definition, &slots, slot)).collect())
    }

    /// Makes its job now, beside its slots, also while it rests. The policy for overlaps holds.
    pub async fn run_now(&self, name: &str) -> Result<Ran> {
        self.run_now_if(name, |_| Ok::<_, Error>(())).await
    }

    /// The same, if `may` lets it be: it is asked of the schedule that is there, and no other makes a job, also if its
    /// name passes to another meanwhile.
    pub async fn run_now_if<E: From<Error>>(
        &self,
        name: &str,
        may: impl Fn(&ScheduleView) -> std::result::Result<(), E>,
    ) -> std::result::Result<Ran, E> {
        for _ in 0..LOOKS_MAX {
            let view = self.get(name).await?;
            may(&view)?;
            let now = self.0.now().await?;
            let jobs = view.definition.jobs_of(Occasion::RunNow);
            let keys = if is_keyed(&view.definition) { due(&jobs, now) } else { Vec::new() };
            let slots = vec![SlotJobs { slot: now, jobs }];
            let ask = asked(&view, How::RunNow, slots);
            if let FireAnswer::Done(fired) = self.fire("run_schedule_now", ask).await? {
                let nothing = Fired { slot: now, what: What::Known, job: None, jobs: 0 };
                let Fired { slot, what, job, jobs } = fired.first().copied().unwrap_or(nothing);
                return Ok(Ran { slot, what, job, jobs, keys });
            }
        }
        Err(busy(name).into())
    }

    /// What a backfill would do: every slot of the range, and whether it has fired.
    pub async fn backfill_preview(&self, name: &str, range: Backfill) -> Result<Vec<PastSlot>> {
        let view = self.get(name).await?;
        let (slots, past) = self.past(&view, range).await?;
        let history = self.0.0.store.fires(name, HISTORY_MAX).await?;
        let fired: std::collections::HashSet<_> = history
            .iter()
            .filter(|entry| entry.what == What::Fired && entry.how.is_once())
            .map(|entry| entry.slot)
            .collect();
        let slot = |slot: Timestamp| PastSlot {
            slot,
            local: local(slots.zone(), slot),
            fired: fired.contains(&slot),
        };
        Ok(past.into_iter().map(slot).collect())
    }

    /// Fires the slots of a range of the past, one job each (or one per key), all of them now and
    /// whatever the policy for overlaps says. Slots that the history knows to have fired are left
    /// alone, unless asked again; those of which it has forgotten that are refused
    /// ([`BackfillForgotten`](Invalid::BackfillForgotten)). All or none; at most 1,000 slots.
    pub async fn backfill(&self, name: &str, range: Backfill) -> Result<Vec<Fired>> {
        self.backfill_if(name, range, |_| Ok::<_, Error>(())).await
    }

    /// The same, if `may` lets it be, as for [`run_now_if`](Self::run_now_if).
    pub async fn backfill_if<E: From<Error>>(
        &self,
        name: &str,
        range: Backfill,
        may: impl Fn(&ScheduleView) -> std::result::Result<(), E>,
    ) -> std::result::Result<Vec<Fired>, E> {
        for _ in 0..LOOKS_MAX {
            let view = self.get(name).await?;
            may(&view)?;
            let (_, past) = self.past(&view, range).await?;
            let how = if range.again { How::Again } else { How::Backfill };
            // Each slot has its own job, which waits for no other.
            let each = Definition { overlap: Overlap::Allow, ..view.definition.clone() };
            let (made_at, asked_at) = (view.made_at, self.0.now().await?);
            let occasion = |slot| {
                if range.again {
                    Occasion::Again { asked_at, slot }
                } else {
                    Occasion::Slot { made_at, slot }
                }
            };
            let jobs_of = |slot| SlotJobs { slot, jobs: each.jobs_of(occasion(slot)) };
            let slots: Vec<_> = past.into_iter().map(jobs_of).collect();
            let jobs: usize = slots.iter().map(|slot| slot.jobs.len()).sum();
            let jobs_max = self.0.0.limits.batch_jobs_max;
            if jobs > jobs_max {
                return Err(Error::from(Invalid::BatchTooLarge { jobs, jobs_max }).into());
            }
            let ask = asked(&view, how, slots);
            if let FireAnswer::Done(fired) = self.fire("backfill_schedule", ask).await? {
                return Ok(fired);
            }
        }
        Err(busy(name).into())
    }

    /// The slots of a range of the past.
    async fn past(&self, view: &ScheduleView, range: Backfill) -> Result<(Slots, Vec<Timestamp>)> {
        let (Backfill { from, to, .. }, now) = (range, self.0.now().await?);
        clock::check("start of the range", from)?;
        clock::check("end of the range", to)?;
        if from >= to || to > now {
            return Err(Invalid::BackfillRangeInvalid { from, to, now }.into());
        }
        let slots = Slots::of(&view.definition)?;
        let moment = jiff::SignedDuration::from_micros(1);
        let slots_max = BACKFILL_SLOTS_MAX.min(view.definition.slots_max_of_bytes());
        let past = slots.between(from - moment, to - moment, slots_max + 1);
        if past.len() > slots_max {
            return Err(Invalid::BackfillTooLarge { slots_max }.into());
        }
        if !range.again
            && let Some((from, until)) = past.iter().find_map(|slot| view.forgot.about(*slot))
        {
            let name = view.definition.name.clone();
            return Err(Invalid::BackfillForgotten { name, from, until }.into());
        }
        Ok((slots, past))
    }

    async fn fire(&self, what: &'static str, ask: FireRequest) -> Result<FireAnswer> {
        let n = ask.slots.iter().map(|slot| slot.jobs.len()).sum();
        Ok(verb(what, n, self.0.0.store.fire(ask)).await?)
    }
}

fn asked(view: &ScheduleView, how: How, slots: Vec<SlotJobs>) -> FireRequest {
    FireRequest {
        name: view.definition.name.clone(),
        version: view.version,
        how,
        advance: None,
        overlap: view.definition.overlap,
        slots,
        missed: None,
    }
}

fn coming(definition: &Definition, slots: &Slots, slot: Timestamp) -> ComingSlot {
    let keys = definition.spread.iter().flat_map(|spread| &spread.keys);
    let due = |key: &String| KeyDue {
        key: key.clone(),
        due_at: definition.due_at(slot, Some(key)),
        job: None,
    };
    let mut keys: Vec<_> = keys.map(due).collect();
    keys.sort_by(|a, b| (a.due_at, &a.key).cmp(&(b.due_at, &b.key)));
    let due_at = keys.first().map_or_else(|| definition.due_at(slot, None), |first| first.due_at);
    ComingSlot { slot, local: local(slots.zone(), slot), due_at, keys }
}

fn is_keyed(definition: &Definition) -> bool {
    definition.spread.as_ref().is_some_and(|spread| !spread.keys.is_empty())
}

/// The jobs of a run beside the slots, by their keys.
fn due(jobs: &[NewJob], now: Timestamp) -> Vec<KeyDue> {
    let due = |job: &NewJob| Some(KeyDue { key: job.key.clone()?, due_at: now, job: Some(job.id) });
    jobs.iter().filter_map(due).collect()
}

/// How many slots are shown at most.
fn slots_max(definition: &Definition, n: usize) -> usize {
    let keys = definition.spread.as_ref().map_or(1, |spread| spread.keys.len().max(1));
    n.min(PREVIEW_MAX).min((PREVIEW_JOBS_MAX / keys).max(1))
}

/// What the wall clock of a zone shows at a moment.
fn local(zone: &TimeZone, at: Timestamp) -> String {
    at.to_zoned(zone.clone()).strftime("%a %Y-%m-%d %H:%M:%S %:z").to_string()
}
