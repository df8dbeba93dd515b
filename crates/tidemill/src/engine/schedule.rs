//! Schedules: set, declare, look ahead, pause, run now, fill gaps.
//!
//! Every change is made of a version and counts only for it; who comes second looks again. The slots
//! themselves are fired by `services/schedule`.

pub mod ask;
pub mod declare;
pub mod json;
pub mod new;

use jiff::Timestamp;
use tidemill_core::Error as Invalid;
use tidemill_core::schedule::Definition;
use tidemill_core::schedule::slot::Slots;
use tidemill_store::schedule::{NextAt, ScheduleChange, Which};
use tidemill_store::{FireView, ScheduleView};

use crate::engine::Tidemill;
use crate::engine::services::schedule::{fire, is_its_own};
use crate::engine::telemetry::verb;
use crate::error::{Error, Result};
use new::Schedule;

/// Looks before a schedule that others keep changing is given up.
const LOOKS_MAX: usize = 20;
/// The most schedules of one page.
const PAGE_MAX: usize = 1000;

/// The schedules of a store; see [`Tidemill::schedules`].
#[derive(Debug, Clone)]
pub struct Schedules<'a>(pub(super) &'a Tidemill);

impl Tidemill {
    /// The schedules.
    pub fn schedules(&self) -> Schedules<'_> {
        Schedules(self)
    }
}

impl Schedules<'_> {
    /// Sets a schedule by its name: makes it, or changes it if it is this owner's. One that is set
    /// again unchanged stays as it is. No change loses a slot: one that leaves the time alone keeps it, and
    /// before another rule of time counts, what has come is fired by the old one.
    pub async fn set(&self, schedule: Schedule) -> Result<ScheduleView> {
        self.set_of(schedule, None).await
    }

    /// The same, only if the schedule has this version: what is changed is what was seen
    /// ([`Error::ScheduleChanged`]). `None`: whatever is there.
    pub async fn set_of(&self, schedule: Schedule, version: Option<i64>) -> Result<ScheduleView> {
        self.set_if(schedule, version, |_| Ok::<_, Error>(())).await
    }

    /// The same, if `may` lets it be: it is asked of the schedule that is there, if there is one, and nothing but
    /// what it was asked about is changed. Of two who make one of the same name at once, the second is asked about
    /// the first's.
    pub async fn set_if<E: From<Error>>(
        &self,
        schedule: Schedule,
        version: Option<i64>,
        may: impl Fn(&ScheduleView) -> std::result::Result<(), E>,
    ) -> std::result::Result<ScheduleView, E> {
        self.0.know_rules().await;
        let (definition, slots) = self.checked(schedule).await?;
        for _ in 0..LOOKS_MAX {
            let now = self.0.now().await?;
            let known = self.find(&definition.name).await?;
            known.as_ref().map_or(Ok(()), &may)?;
            is_of(&definition.name, known.as_ref(), version)?;
            if let Some(view) = self.put(&definition, &slots, known, now).await? {
                return Ok(view);
            }
        }
        Err(busy(&definition.name).into())
    }

    /// Makes of what is known of a schedule this; nothing, if that is not as it was any more.
    async fn put(
        &self,
        definition: &Definition,
        slots: &Slots,
        known: Option<ScheduleView>,
        now: Timestamp,
    ) -> Result<Option<ScheduleView>> {
        let Some(change) = change(definition, slots, known.as_ref(), now)? else {
            return Ok(known);
        };
        let name = &definition.name;
        if starts_over(&change) {
            let (name, is_never) = (name.clone(), slots.is_all_excepted(now));
            return Err(if is_never {
                Invalid::ScheduleNeverFires { name, excepted: true }.into()
            } else {
                Invalid::ScheduleOver { name, now }.into()
            });
        }
        let owing = known.into_iter().filter(|view| owes(view, &change, now));
        if self.pay(owing, now).await? || !self.change("set_schedule", vec![change]).await? {
            return Ok(None);
        }
        self.get(name).await.map(Some)
    }

    /// Fires what schedules owe by the rules they have, as their policies for missed slots say. Whether it did, or
    /// somebody else was faster: then they are not as they were. What can never be fired is not paid: another rule of
    /// time may be what mends it.
    async fn pay(
        &self,
        owing: impl IntoIterator<Item = ScheduleView>,
        now: Timestamp,
    ) -> Result<bool> {
        let mut has_changed = false;
        for view in owing {
            let Some(next_at) = view.next_at else { continue };
            match fire(self.0, &view, next_at, now).await {
                Ok(()) => has_changed = true,
                Err(error) if is_its_own(self.0.0.store.backend(), &error) => {
                    let name = &view.definition.name;
                    tracing::warn!(schedule = name, slot = %next_at, %error, "a slot cannot be fired here");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(has_changed)
    }

    /// Deletes a schedule of this owner, and its history. Jobs it has made stay.
    pub async fn delete(&self, name: &str, owner: &str) -> Result<()> {
        self.delete_of(name, owner, None).await
    }

    /// The same, only if the schedule has this version.
    pub async fn delete_of(&self, name: &str, owner: &str, version: Option<i64>) -> Result<()> {
        self.delete_if(name, owner, version, |_| Ok::<_, Error>(())).await
    }

    /// The same, if `may` lets it be: it is asked of the schedule that is there, and nothing but that one is deleted,
    /// also if its name passes to another meanwhile.
    pub async fn delete_if<E: From<Error>>(
        &self,
        name: &str,
        owner: &str,
        version: Option<i64>,
        may: impl Fn(&ScheduleView) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.changing(name, may, |view, _| {
            owned(&view, owner)?;
            is_of(name, Some(&view), version)?;
            Ok(Some(ScheduleChange::Delete { name: name.to_owned(), version: view.version }))
        })
        .await
    }

    /// Lets a schedule rest: no slot fires until it is resumed.
    pub async fn pause(&self, name: &str) -> Result<()> {
        self.pause_if(name, |_| Ok::<_, Error>(())).await
    }

    /// The same, if `may` lets it be, as for [`delete_if`](Self::delete_if).
    pub async fn pause_if<E: From<Error>>(
        &self,
        name: &str,
        may: impl Fn(&ScheduleView) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.changing(name, may, |view, _| {
            let next_at = NextAt::Keep;
            Ok((!view.paused).then(|| ScheduleChange::Put {
                version: view.version,
                paused: true,
                next_at,
                definition: Box::new(view.definition),
            }))
        })
        .await
    }

    /// Ends a pause. What would have fired meanwhile is not caught up: see
    /// [`backfill`](Self::backfill). The next slot is the first from now.
    pub async fn resume(&self, name: &str) -> Result<()> {
        self.resume_if(name, |_| Ok::<_, Error>(())).await
    }

    /// The same, if `may` lets it be, as for [`delete_if`](Self::delete_if).
    pub async fn resume_if<E: From<Error>>(
        &self,
        name: &str,
        may: impl Fn(&ScheduleView) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.changing(name, may, |view, now| {
            let slots = Slots::of(&view.definition)?;
            let next_at = NextAt::At { next: slots.next(now), looked_at: now };
            Ok(view.paused.then(|| ScheduleChange::Put {
                version: view.version,
                paused: false,
                next_at,
                definition: Box::new(view.definition),
            }))
        })
        .await
    }

    /// One schedule.
    pub async fn get(&self, name: &str) -> Result<ScheduleView> {
        let found = self.find(name).await?;
        found.ok_or_else(|| Error::ScheduleUnknown { name: name.to_owned() })
    }

    /// All schedules, or those of an owner, by name.
    pub async fn list(&self, owner: Option<&str>) -> Result<Vec<ScheduleView>> {
        let which = owner.map_or(Which::All, |owner| Which::OwnedBy(owner.to_owned()));
        Ok(self.0.0.store.schedules(&which).await?)
    }

    /// A page of schedules by name, after this one; at most 1,000.
    pub async fn page(
        &self,
        owner: Option<String>,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<ScheduleView>> {
        let limit = limit.min(PAGE_MAX);
        Ok(self.0.0.store.schedules(&Which::Page { owner, after, limit }).await?)
    }

    /// What became of its slots, latest first, at most `limit`. The last 1,000 entries are kept.
    pub async fn history(&self, name: &str, limit: usize) -> Result<Vec<FireView>> {
        self.get(name).await?;
        Ok(self.0.0.store.fires(name, limit).await?)
    }

    pub(super) async fn checked(&self, schedule: Schedule) -> Result<(Definition, Slots)> {
        let (definition, slots) = schedule.check(self.0, self.0.0.clock.now())?;
        let options = &definition.job.options;
        self.0.hearers(std::iter::once(options)).await?.check(options)?;
        Ok((definition, slots))
    }

    async fn find(&self, name: &str) -> Result<Option<ScheduleView>> {
        let found = self.0.0.store.schedules(&Which::Named(name.to_owned())).await?;
        Ok(found.into_iter().next())
    }

    async fn change(&self, what: &'static str, changes: Vec<ScheduleChange>) -> Result<bool> {
        let n = changes.len();
        Ok(verb(what, n, self.0.0.store.change_schedules(changes)).await?)
    }

    /// Changes a schedule that is there, if `may` lets it be; looks and asks again when somebody else was faster.
    async fn changing<E: From<Error>>(
        &self,
        name: &str,
        may: impl Fn(&ScheduleView) -> std::result::Result<(), E>,
        decide: impl Fn(ScheduleView, Timestamp) -> Result<Option<ScheduleChange>>,
    ) -> std::result::Result<(), E> {
        for _ in 0..LOOKS_MAX {
            let view = self.get(name).await?;
            may(&view)?;
            let Some(change) = decide(view, self.0.now().await?)? else { return Ok(()) };
            if self.change("change_schedule", vec![change]).await? {
                return Ok(());
            }
        }
        Err(busy(name).into())
    }
}

/// What makes a schedule this; nothing if it is so already.
fn change(
    definition: &Definition,
    slots: &Slots,
    known: Option<&ScheduleView>,
    now: Timestamp,
) -> Result<Option<ScheduleChange>> {
    let Some(known) = known else {
        let next_at = NextAt::At { next: slots.next(now), looked_at: now };
        let definition = Box::new(definition.clone());
        return Ok(Some(ScheduleChange::Put { definition, version: 0, paused: false, next_at }));
    };
    owned(known, &definition.owner)?;
    if known.definition == *definition {
        return Ok(None);
    }
    let next_at = if definition.keeps_time_of(&known.definition) {
        NextAt::Keep
    } else {
        let next = slots.next(now.max(known.last_slot.unwrap_or(now)));
        NextAt::At { next, looked_at: now }
    };
    Ok(Some(ScheduleChange::Put {
        definition: Box::new(definition.clone()),
        version: known.version,
        paused: known.paused,
        next_at,
    }))
}

/// Whether a slot has come that nobody has fired, and that this change would forget: another rule of time knows
/// nothing of it.
fn owes(view: &ScheduleView, change: &ScheduleChange, now: Timestamp) -> bool {
    let forgets = matches!(change, ScheduleChange::Put { next_at: NextAt::At { .. }, .. });
    forgets && !view.paused && view.next_at.is_some_and(|next_at| next_at <= now)
}

/// Whether nothing would ever come of a change, because its time has passed.
fn starts_over(change: &ScheduleChange) -> bool {
    matches!(change, ScheduleChange::Put { next_at: NextAt::At { next: None, .. }, .. })
}

/// Refuses a change that was made of another version.
fn is_of(name: &str, known: Option<&ScheduleView>, version: Option<i64>) -> Result<()> {
    if version.is_some_and(|version| known.is_none_or(|view| view.version != version)) {
        return Err(Error::ScheduleChanged { name: name.to_owned() });
    }
    Ok(())
}

fn owned(view: &ScheduleView, by: &str) -> Result<()> {
    let (name, owner) = (&view.definition.name, &view.definition.owner);
    if owner != by {
        let (name, owner) = (name.clone(), owner.clone());
        return Err(Error::ScheduleOwned { name, owner, by: by.to_owned() });
    }
    Ok(())
}

pub(super) fn busy(name: &str) -> Error {
    let reason = format!("others kept changing the schedules of {name}");
    Error::Store(tidemill_store::Error::Busy { reason })
}
