//! Slots of a past that cannot be fired, or of which the history does not know everything any more.

use std::time::Duration;

use jiff::Timestamp;
use tidemill::store::schedule::What;
use tidemill::testing::tend;
use tidemill::{Backfill, Schedule};

use super::kit::{Echo, Kit};

over_both_stores!(
    a_backfill_fires_no_slot_that_may_have_fired,
    a_backfill_in_pieces_reaches_slots_from_before_the_schedule,
    a_backfill_in_ascending_pieces_reaches_up_to_the_schedule,
    one_that_can_never_be_fired_may_get_another_rule,
);

const HOUR: Duration = Duration::from_hours(1);

async fn a_backfill_fires_no_slot_that_may_have_fired(kit: Kit) {
    let first: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    kit.clock.set(first + HOUR * 999);
    let mill = kit.open_still().await;
    let schedules = mill.schedules();
    schedules.set(Schedule::every("s", HOUR, Echo::new("s"))).await.unwrap();
    let past = |from| Backfill { from, to: first + HOUR * 999, again: false };
    assert_eq!(schedules.backfill("s", past(first)).await.unwrap().len(), 999);
    for _ in 0..2 {
        kit.advance(HOUR);
        tend(&mill).await.unwrap();
    }
    // The first has gone from the history, which has a thousand.
    let refused = schedules.backfill("s", past(first)).await.unwrap_err();
    assert_eq!(refused.code(), "backfill_forgotten");
    let preview = schedules.backfill_preview("s", past(first)).await.unwrap_err();
    assert_eq!(preview.code(), "backfill_forgotten");
    let known = schedules.backfill("s", past(first + HOUR)).await.unwrap();
    assert!(known.len() == 998 && known.iter().all(|fired| fired.what == What::Known));
    let again = Backfill { again: true, to: first + HOUR, ..past(first) };
    assert_eq!(schedules.backfill("s", again).await.unwrap().len(), 1);
}

async fn a_backfill_in_pieces_reaches_slots_from_before_the_schedule(kit: Kit) {
    backfill_in_pieces(&kit, &[1, 0]).await;
}

async fn a_backfill_in_ascending_pieces_reaches_up_to_the_schedule(kit: Kit) {
    backfill_in_pieces(&kit, &[0, 1, 2]).await;
}

/// Backfills thousands of hours up to where the schedule was made, in this order. They come in its history after those
/// that it has fired itself, and push them out.
async fn backfill_in_pieces(kit: &Kit, thousands: &[u32]) {
    let first: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let (made, last) = (thousands.len() as u32 * 1000, thousands[thousands.len() - 1]);
    kit.clock.set(first + HOUR * made);
    let mill = kit.open_still().await;
    let schedules = mill.schedules();
    schedules.set(Schedule::every("s", HOUR, Echo::new("s"))).await.unwrap();
    for _ in 0..2 {
        kit.advance(HOUR);
        tend(&mill).await.unwrap();
    }
    let piece = |from: u32, to: u32| {
        let (from, to) = (first + HOUR * from, first + HOUR * to);
        Backfill { from, to, again: false }
    };
    for thousand in thousands {
        let hours = piece(thousand * 1000, (thousand + 1) * 1000);
        let fired = schedules.backfill("s", hours).await.unwrap();
        assert_eq!(fired.len(), 1000);
        assert!(fired.iter().all(|fired| fired.what == What::Fired));
    }
    // Of the last piece all is known.
    let forgotten = thousands.iter().filter(|thousand| **thousand != last);
    let forgotten = forgotten.map(|thousand| piece(thousand * 1000, (thousand + 1) * 1000));
    for hours in forgotten.chain([piece(made, made + 2)]) {
        let refused = schedules.backfill("s", hours).await.unwrap_err();
        assert_eq!(refused.code(), "backfill_forgotten");
    }
}

/// What makes a database refuse to fire the slots of `a bad one`, and what mends that.
pub fn refusing(kit: &Kit) -> (&'static str, &'static str) {
    if kit.url.starts_with("sqlite:") {
        return (
            "create trigger refuse before insert on tidemill_schedule_fire when new.name = 'a bad one'
             begin select raise(abort, 'no'); end",
            "drop trigger refuse",
        );
    }
    (
        "alter table tidemill_schedule_fire add constraint refuse check (name <> 'a bad one')",
        "alter table tidemill_schedule_fire drop constraint refuse",
    )
}

async fn one_that_can_never_be_fired_may_get_another_rule(kit: Kit) {
    let first: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    kit.clock.set(first);
    let mill = kit.open_still().await;
    let every = |hours| Schedule::every("a bad one", HOUR * hours, Echo::new("s"));
    mill.schedules().set(every(1)).await.unwrap();
    let (refuse, mended) = refusing(&kit);
    kit.execute(refuse).await;
    kit.advance(HOUR);
    let set = mill.schedules().set(every(2)).await.expect("what is due cannot be paid");
    assert_eq!((set.next_at, set.last_slot), (Some(first + HOUR * 2), None));
    kit.execute(mended).await;
    kit.advance(HOUR);
    tend(&mill).await.unwrap();
    let fired = mill.schedules().get("a bad one").await.unwrap();
    assert_eq!(fired.last_slot, Some(first + HOUR * 2));
}
