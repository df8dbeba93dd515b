//! What people ask of a schedule beside its slots: a look ahead, a run now, slots of the past.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use tidemill_core::Error as Invalid;
use tidemill_core::schedule::slot::Slots;
use tidemill_core::schedule::{Definition, Occasion, Overlap};
use tidemill_store::ScheduleView;
use tidemill_store::schedule::{FireAnswer, FireRequest, Fired, HISTORY_MAX, How, SlotJobs, What};

use crate::engine::schedule::new::Schedule;
use crate::engine::schedule::{LOOKS_MAX, Schedules, busy};
use crate::engine::telemetry::verb;
use crate::error::Result;

/// The most slots of one backfill.
pub const BACKFILL_SLOTS_MAX: usize = 1000;
/// The most slots of one look ahead.
const PREVIEW_MAX: usize = 1000;

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
    /// The next `n` slots, at most 1,000.
    pub async fn preview(&self, name: &str, n: usize) -> Result<Vec<ComingSlot>> {
        let view = self.get(name).await?;
        let slots = Slots::of(&view.definition)?;
        let now = self.0.now().await?;
        // What it waits for comes first, also when it is late.
        let first = view.next_at.filter(|next| *next <= now && !view.paused);
        let after = first.unwrap_or(now);
        let upcoming = slots.upcoming(after, n.min(PREVIEW_MAX));
        let all = first.into_iter().chain(upcoming).take(n);
        Ok(all.map(|slot| coming(&view.definition, &slots, slot)).collect())
    }

    /// The next `n` slots of a schedule that is not set yet. Checks it; writes nothing.
    pub async fn preview_of(&self, schedule: Schedule, n: usize) -> Result<Vec<ComingSlot>> {
        let (definition, slots) = self.checked(schedule)?;
        let upcoming = slots.upcoming(self.0.now().await?, n.min(PREVIEW_MAX));
        Ok(upcoming.into_iter().map(|slot| coming(&definition, &slots, slot)).collect())
    }

    /// Makes its job now, beside its slots, also while it rests. The policy for overlaps holds.
    pub async fn run_now(&self, name: &str) -> Result<Fired> {
        for _ in 0..LOOKS_MAX {
            let view = self.get(name).await?;
            let now = self.0.now().await?;
            let jobs = view.definition.jobs_of(Occasion::RunNow);
            let slots = vec![SlotJobs { slot: now, jobs }];
            let ask = asked(&view, How::RunNow, slots);
            if let FireAnswer::Done(fired) = self.fire("run_schedule_now", ask).await? {
                let nothing = Fired { slot: now, what: What::Known, job: None, jobs: 0 };
                return Ok(fired.first().copied().unwrap_or(nothing));
            }
        }
        Err(busy(name))
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
    /// alone, unless asked again. All or none; at most 1,000 slots.
    pub async fn backfill(&self, name: &str, range: Backfill) -> Result<Vec<Fired>> {
        for _ in 0..LOOKS_MAX {
            let view = self.get(name).await?;
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
                return Err(Invalid::BatchTooLarge { jobs, jobs_max }.into());
            }
            let ask = asked(&view, how, slots);
            if let FireAnswer::Done(fired) = self.fire("backfill_schedule", ask).await? {
                return Ok(fired);
            }
        }
        Err(busy(name))
    }

    /// The slots of a range of the past.
    async fn past(&self, view: &ScheduleView, range: Backfill) -> Result<(Slots, Vec<Timestamp>)> {
        let (Backfill { from, to, .. }, now) = (range, self.0.now().await?);
        if from >= to || to > now {
            return Err(Invalid::BackfillRangeInvalid { from, to, now }.into());
        }
        let slots = Slots::of(&view.definition)?;
        let moment = jiff::SignedDuration::from_micros(1);
        let slots_max = BACKFILL_SLOTS_MAX;
        let past = slots.between(from - moment, to - moment, slots_max + 1);
        if past.len() > slots_max {
            return Err(Invalid::BackfillTooLarge { slots_max }.into());
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
    let first = keys.map(|key| definition.due_at(slot, Some(key))).min();
    let due_at = first.unwrap_or_else(|| definition.due_at(slot, None));
    ComingSlot { slot, local: local(slots.zone(), slot), due_at }
}

/// What the wall clock of a zone shows at a moment.
fn local(zone: &TimeZone, at: Timestamp) -> String {
    at.to_zoned(zone.clone()).strftime("%a %Y-%m-%d %H:%M:%S %:z").to_string()
}
