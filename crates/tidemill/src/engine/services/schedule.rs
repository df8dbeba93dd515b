//! Fires slots when their time has come.
//!
//! It sleeps until the next slot by the store's clock, and wakes when schedules change. Every process
//! that works runs it, and all of them try: the store lets one of them fire each slot, so no leader
//! is needed and none can be lost.
//!
//! It refuses to look all the time: without news it looks every half minute, in case a hint was lost.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::schedule::Occasion;
use tidemill_core::schedule::due::due;
use tidemill_core::schedule::slot::Slots;
use tidemill_store::schedule::{Advance, FireAnswer, FireRequest, How, SlotJobs, What, Which};
use tidemill_store::{Hint, ScheduleView};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::engine::telemetry::verb;
use crate::engine::{Tidemill, settle};
use crate::error::Result;

/// Schedules looked at in one go.
const PAGE: usize = 100;
/// A hint may be lost, and a clock may be put right: then it is noticed after this long.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// After a failure, and for a schedule that this machine cannot fire.
const FAILED_PAUSE: Duration = Duration::from_secs(5);
/// News of a SQLite file do not say of what: they are looked at once a second.
const ANY_PAUSE: Duration = Duration::from_secs(1);
/// How long hints of other things gather.
const GATHER: Duration = Duration::from_millis(10);
/// The store's clock and ours do not tick together.
const TICK: Duration = Duration::from_millis(2);

/// Fires slots until `stop`.
pub(crate) async fn run(mill: Tidemill, stop: CancellationToken) {
    let mut heard = mill.0.store.wake().listen();
    let (mut failing, mut held_up) = (false, HeldUp::new());
    loop {
        let looked = Instant::now();
        let pause = match fire_due(&mill, &mut held_up).await {
            Ok(next) => {
                failing = false;
                next.map_or(IDLE_MAX, |next| next.clamp(TICK, IDLE_MAX))
            }
            Err(error) => {
                if !failing {
                    tracing::warn!(service = "schedule", %error, "a service failed; it goes on trying");
                }
                failing = true;
                FAILED_PAUSE
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            () = news(&mut heard, looked) => {}
        }
    }
}

/// Waits for news of schedules. Most hints are of jobs, ten thousand a second at times: they are
/// passed over together, so that they do not wake this task one by one.
async fn news(heard: &mut Receiver<Hint>, looked: Instant) {
    loop {
        let mut hint = match heard.recv().await {
            Ok(hint) => Some(hint),
            Err(RecvError::Lagged(_)) => Some(Hint::Any),
            Err(RecvError::Closed) => std::future::pending().await,
        };
        while let Some(told) = hint {
            match told {
                Hint::Schedules => return,
                Hint::Any => return tokio::time::sleep_until(looked + ANY_PAUSE).await,
                _ => {}
            }
            hint = match heard.try_recv() {
                Ok(hint) => Some(hint),
                Err(TryRecvError::Lagged(_)) => Some(Hint::Any),
                Err(TryRecvError::Empty | TryRecvError::Closed) => None,
            };
        }
        tokio::time::sleep(GATHER).await;
    }
}

/// Schedules that could not be fired here, and why: each is told of once.
pub(crate) type HeldUp = BTreeMap<String, String>;

/// Fires all that is due; answers how long it is to the next slot, if there is one. A schedule that cannot be fired
/// holds up no other.
pub(crate) async fn fire_due(mill: &Tidemill, held_up: &mut HeldUp) -> Result<Option<Duration>> {
    let before = std::mem::take(held_up);
    loop {
        // Those stay where they are, in front of the others.
        let next = mill.0.store.schedules(&Which::Next(PAGE + held_up.len())).await?;
        let now = mill.0.store.now().await?;
        let next = next.iter().filter(|view| !held_up.contains_key(&view.definition.name));
        let (mut failed, mut is_all, mut wait) = (Vec::new(), true, None);
        for view in next {
            let Some(next_at) = view.next_at else { continue };
            if next_at > now {
                wait = Some(Duration::try_from(next_at.duration_since(now)).unwrap_or_default());
                break;
            }
            is_all = false;
            match fire(mill, view, next_at, now).await {
                Ok(()) => {}
                Err(error)
                    if is_of_store(mill.0.store.backend(), &error)
                        && !is_there(mill, &error).await =>
                {
                    return Err(error);
                }
                Err(error) => failed.push((view.definition.name.clone(), error.to_string())),
            }
        }
        for (schedule, error) in failed {
            if before.get(&schedule) != Some(&error) {
                tracing::warn!(schedule, %error, "a schedule cannot be fired; it is tried again");
            }
            held_up.insert(schedule, error);
        }
        if is_all {
            let again = (!held_up.is_empty()).then_some(FAILED_PAUSE);
            return Ok(wait.into_iter().chain(again).min());
        }
    }
}

/// Whether the store that could not be had answers all the same: it may lack what this one schedule needs.
async fn is_there(mill: &Tidemill, error: &crate::Error) -> bool {
    matches!(error, crate::Error::Store(error) if settle::is_there(mill, error).await)
}

/// Whether no other schedule would fare better, at a store of this name.
fn is_of_store(backend: &str, error: &crate::Error) -> bool {
    use tidemill_store::Error as Store;
    match error {
        crate::Error::Store(error) => match error {
            // All of a file is locked. Of a server it may be what one schedule needs, or one that takes too long.
            Store::Busy { .. } => backend == "sqlite",
            Store::Unavailable { .. }
            | Store::TlsRefused { .. }
            | Store::SchemaNewer { .. }
            | Store::SchemaOlder { .. }
            | Store::ReadOnly { .. }
            | Store::DiskFull { .. }
            | Store::DiskFailed { .. } => true,
            _ => false,
        },
        _ => false,
    }
}

/// Whether it is the schedule's own fault that its slots cannot be fired here, so that they cannot be later either.
pub(crate) fn is_its_own(backend: &str, error: &crate::Error) -> bool {
    let is_temporary = matches!(error, crate::Error::Store(error) if error.is_temporary());
    !is_temporary && !is_of_store(backend, error)
}

/// Fires all slots of one schedule that have come, and steps to the next; nothing if it is not as it was.
pub(crate) async fn fire(
    mill: &Tidemill,
    view: &ScheduleView,
    next_at: Timestamp,
    now: Timestamp,
) -> Result<()> {
    let definition = &view.definition;
    let due = due(definition, &Slots::of(definition)?, next_at, now);
    let made_at = view.made_at;
    let jobs_of =
        |slot| SlotJobs { slot, jobs: definition.jobs_of(Occasion::Slot { made_at, slot }) };
    let ask = FireRequest {
        name: definition.name.clone(),
        version: view.version,
        how: How::Slot,
        advance: Some(Advance { from: next_at, to: due.next }),
        overlap: definition.overlap,
        slots: due.fire.into_iter().map(jobs_of).collect(),
        missed: due.missed,
    };
    let jobs = ask.slots.iter().map(|slot| slot.jobs.len()).sum();
    let sorts = mill.0.measures.sorts(ask.slots.iter().flat_map(|slot| &slot.jobs));
    let answer = verb("fire", jobs, mill.0.store.fire(ask)).await?;
    if let FireAnswer::Done(fired) = answer {
        for slot in fired.iter().filter(|fired| fired.what != What::Fired) {
            let what = slot.what.word();
            tracing::info!(schedule = definition.name, slot = %slot.slot, what, "no job was made");
        }
        if let Some(missed) = due.missed {
            let slots = missed.slots;
            tracing::warn!(schedule = definition.name, slots, "slots were missed");
        }
        mill.0.measures.fired(&sorts, &fired, now);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidemill_store::Error as Store;

    use super::*;

    #[test]
    fn who_finds_the_store_locked_does_not_try_the_next_schedule() {
        let reason = || String::from("it was");
        let busy = crate::Error::Store(Store::Busy { reason: reason() });
        assert!(is_of_store("sqlite", &busy), "each would wait as long, for the same lock");
        assert!(!is_of_store("postgres", &busy), "another schedule is in other rows");
        let refused = crate::Error::Store(Store::Database { reason: reason() });
        for backend in ["sqlite", "postgres"] {
            assert!(!is_its_own(backend, &busy), "it may fire later");
            assert!(is_its_own(backend, &refused) && !is_of_store(backend, &refused));
            for passing in [
                Store::Unavailable { reason: reason(), unknown: false },
                Store::Unavailable { reason: reason(), unknown: true },
                Store::DiskFull { reason: reason() },
                Store::DiskFailed { reason: reason(), unknown: false },
                Store::ReadOnly { reason: reason() },
            ] {
                let passing = crate::Error::Store(passing);
                assert!(!is_its_own(backend, &passing), "no slot is given up for it: {passing}");
            }
        }
    }
}
