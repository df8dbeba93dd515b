//! Schedules as the store keeps them: what is asked of it, and what people see.

mod wire;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidemill_core::schedule::due::MissedSlots;
use tidemill_core::schedule::{Definition, Overlap, schedule_of_key};
use tidemill_core::{JobId, NewJob};

use crate::error::{Error, Result};
use crate::request::Receipt;

/// Entries of the history that are kept of each schedule.
pub const HISTORY_MAX: usize = 1000;

/// A schedule and where it stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleView {
    /// What was set.
    #[serde(flatten)]
    pub definition: Definition,
    /// Grows with every change; a firing is no change. It begins with the time (in microseconds), so that no other
    /// schedule that ever had the name had it.
    pub version: i64,
    /// Whether it rests.
    pub paused: bool,
    /// The next slot; `None` when there is none any more.
    pub next_at: Option<Timestamp>,
    /// The last slot that came.
    pub last_slot: Option<Timestamp>,
    /// The job that was made last.
    pub last_job: Option<JobId>,
    /// When it was first set.
    pub made_at: Timestamp,
    /// When it was changed last.
    pub changed_at: Timestamp,
    /// What its history has forgotten.
    #[serde(skip)]
    pub forgot: Forgot,
}

/// The first and the latest slot that have fired of which the history of a schedule knows nothing any more: of its own
/// slots, and of those that were backfilled, which may be of long before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Forgot {
    /// Slots whose time came.
    pub own: Option<(Timestamp, Timestamp)>,
    /// Slots of the past that somebody asked for.
    pub backfilled: Option<(Timestamp, Timestamp)>,
}

impl Forgot {
    /// Between which slots it is not known whether this one has fired, if it is not.
    pub fn about(&self, slot: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let mut both = [self.own, self.backfilled].into_iter().flatten();
        both.find(|(first, last)| (*first..=*last).contains(&slot))
    }
}

/// Which schedules are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// All, by name.
    All,
    /// The one of this name.
    Named(String),
    /// Those of this owner, by name.
    OwnedBy(String),
    /// A page of them, by name, after this one.
    Page {
        /// Those of this owner only.
        owner: Option<String>,
        /// The last name of the page before.
        after: Option<String>,
        /// At most this many.
        limit: usize,
    },
    /// Those that fire next and do not rest, soonest first, at most this many.
    Next(usize),
}

/// What a change does to the next slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextAt {
    /// It stays, also if it moves meanwhile.
    Keep,
    /// It is another. A slot that has come since somebody looked is owed first: then nothing is changed.
    At {
        /// The next slot from now on.
        next: Option<Timestamp>,
        /// When it was looked whether a slot is owed.
        looked_at: Timestamp,
    },
}

impl NextAt {
    /// Whether a slot for which a schedule waits has come since it was looked.
    pub(crate) fn overlooks(self, waits_for: Option<Timestamp>, now: Timestamp) -> bool {
        let Self::At { looked_at, .. } = self else { return false };
        waits_for.is_some_and(|slot| looked_at < slot && slot <= now)
    }
}

/// A change of one schedule, good only for the version it was made of.
#[derive(Debug, Clone, PartialEq)]
pub enum ScheduleChange {
    /// Sets it. The version is the one it has now, 0 if there must be none of its name.
    Put {
        /// What it becomes.
        definition: Box<Definition>,
        /// The version it has now.
        version: i64,
        /// Whether it rests from now on.
        paused: bool,
        /// Its next slot.
        next_at: NextAt,
    },
    /// Deletes it, and its history.
    Delete {
        /// Which one.
        name: String,
        /// The version it has now.
        version: i64,
    },
}

/// Why slots are fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum How {
    /// Their time has come.
    Slot,
    /// Somebody asked for a run.
    RunNow,
    /// Somebody asked for those of the past that have not fired.
    Backfill,
    /// Somebody asked for those of the past, fired or not.
    Again,
}

impl How {
    /// All reasons, by the number the store keeps.
    pub const ALL: [Self; 4] = [Self::Slot, Self::RunNow, Self::Backfill, Self::Again];

    /// The number the store keeps.
    pub fn number(self) -> i16 {
        self as i16
    }

    /// Whether a slot that has fired must not fire for this reason.
    pub fn is_once(self) -> bool {
        matches!(self, Self::Slot | Self::Backfill)
    }

    /// Whether the policy for overlaps holds. A backfill is many slots at once, on purpose.
    pub fn minds_overlap(self) -> bool {
        matches!(self, Self::Slot | Self::RunNow)
    }
}

/// What became of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum What {
    /// Its job was enqueued.
    Fired,
    /// A job that had not finished covers it: nothing was enqueued.
    Joined,
    /// The job before had not finished, and the policy says skip.
    Skipped,
    /// Nobody was there to fire it, and it was passed over.
    Missed,
    /// It had fired before: nothing was done. Not part of the history.
    Known,
}

impl What {
    /// All ends, by the number the store keeps.
    pub const ALL: [Self; 5] =
        [Self::Fired, Self::Joined, Self::Skipped, Self::Missed, Self::Known];

    /// The number the store keeps.
    pub fn number(self) -> i16 {
        self as i16
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        ["fired", "joined", "skipped", "missed", "known"][self as usize]
    }

    /// What became of a slot whose jobs were answered so.
    pub(crate) fn of(receipts: &[Receipt], slot: &SlotJobs, overlap: Overlap) -> Self {
        let key = slot.jobs.first().and_then(|job| job.unique.as_ref());
        let is_of_schedule = key.is_some_and(|unique| schedule_of_key(&unique.key).is_some());
        match overlap {
            _ if receipts.iter().any(Receipt::is_new) => Self::Fired,
            _ if receipts.contains(&Receipt::UNREACHED) => Self::Skipped,
            // Not the job before, but one that was replayed has not finished.
            Overlap::Skip if is_of_schedule => Self::Skipped,
            _ => Self::Joined,
        }
    }
}

/// Reads a number that the store kept.
pub(crate) fn of_number<T: Copy>(all: &[T], number: i16) -> Result<T> {
    let found = usize::try_from(number).ok().and_then(|number| all.get(number));
    found.copied().ok_or_else(|| Error::Database {
        reason: format!("the history of a schedule has the unknown number {number}"),
    })
}

/// A slot and the jobs it makes.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotJobs {
    /// The slot.
    pub slot: Timestamp,
    /// Its jobs; their ids are always the same for the same slot.
    pub jobs: Vec<NewJob>,
}

/// The step of a schedule to its next slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advance {
    /// The slot it waits for now, which must have come.
    pub from: Timestamp,
    /// The slot it waits for then.
    pub to: Option<Timestamp>,
}

/// Slots to be fired.
#[derive(Debug, Clone, PartialEq)]
pub struct FireRequest {
    /// Which schedule.
    pub name: String,
    /// The version they were computed of.
    pub version: i64,
    /// Why.
    pub how: How,
    /// The step that goes with it; `None` when somebody asked for it beside the slots.
    pub advance: Option<Advance>,
    /// What happens when the job before has not finished.
    pub overlap: Overlap,
    /// What fires, in order.
    pub slots: Vec<SlotJobs>,
    /// What is passed over.
    pub missed: Option<MissedSlots>,
}

impl FireRequest {
    /// The last slot that its time has come for, fired or passed over.
    pub(crate) fn last_slot(&self) -> Option<Timestamp> {
        self.advance?;
        let fired = self.slots.last().map(|slot| slot.slot);
        fired.max(self.missed.map(|missed| missed.last))
    }
}

/// What became of a firing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FireAnswer {
    /// It was done: what became of each slot, in order.
    Done(Vec<Fired>),
    /// Nothing was done: the schedule was changed, rests, is gone, or another node has fired it.
    Changed,
}

/// What became of one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Fired {
    /// The slot.
    pub slot: Timestamp,
    /// What became of it.
    pub what: What,
    /// The job that stands for it: the first, if it made several.
    pub job: Option<JobId>,
    /// How many jobs it made.
    pub jobs: u32,
}

/// One entry of a schedule's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FireView {
    /// The slot; of several that were missed, the first.
    pub slot: Timestamp,
    /// The last of several that were missed.
    pub until: Option<Timestamp>,
    /// How many slots the entry stands for, at least.
    pub slots: u64,
    /// What became of it.
    pub what: What,
    /// Why.
    pub how: How,
    /// The job that stands for it: the first, if it made several.
    pub job: Option<JobId>,
    /// How many jobs it made.
    pub jobs: u32,
    /// When.
    pub at: Timestamp,
}

/// The job that a schedule made last, if it made one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastJob(pub Option<JobId>);

/// Reads a definition that the store kept.
pub(crate) fn read_definition(text: &str) -> Result<Definition> {
    serde_json::from_str(text)
        .map_err(|error| Error::Database { reason: format!("a schedule cannot be read: {error}") })
}

/// A definition as the store keeps it.
pub(crate) fn write_definition(definition: &Definition) -> Result<String> {
    serde_json::to_string(definition).map_err(|error| Error::Database {
        reason: format!("a schedule cannot be written: {error}"),
    })
}

/// Why a job is called off by the slot after it.
pub(crate) const CALLED_OFF: &str = "a later slot of its schedule has come";
