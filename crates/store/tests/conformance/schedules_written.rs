//! What is written of schedules, when that takes its time or is a lot.

use tidemill_core::{NewJob, OnDuplicate, Payload, Scope};
use tidemill_store::schedule::{FireAnswer, FireRequest, ScheduleChange, SlotJobs};

use super::kit::{HOUR, Kit, SECOND, job, unique};
use super::schedules::{anew, change, every_hour, fire, put, step, view};

over_both_stores!(
    a_change_overlooks_no_slot_that_comes_before_it_is_written,
    jobs_of_a_slot_are_judged_in_their_order_however_much_they_carry,
);

async fn a_change_overlooks_no_slot_that_comes_before_it_is_written(kit: &Kit) {
    let slot = kit.clock.now() + HOUR;
    let seen = put(kit, every_hour("s"), slot).await;
    let looked = anew(kit, Some(slot + HOUR));
    let late = || vec![change(every_hour("s"), seen.version, looked)];
    kit.clock.advance(HOUR);
    assert!(!kit.store.change_schedules(late()).await.unwrap(), "the slot is owed");
    assert_eq!(view(kit, "s").await.next_at, Some(slot));
    fire(kit, "s").await;
    assert!(kit.store.change_schedules(late()).await.unwrap());
    // Who has looked since then knows what is owed; and what rests owes nothing.
    let seen = put(kit, every_hour("t"), slot + HOUR).await;
    kit.clock.advance(HOUR);
    let knows = change(every_hour("t"), seen.version, anew(kit, None));
    assert!(kit.store.change_schedules(vec![knows]).await.unwrap());
}

async fn jobs_of_a_slot_are_judged_in_their_order_however_much_they_carry(kit: &Kit) {
    let text = format!("\"{}\"", "x".repeat(13 * 1024 * 1024));
    let payload = Payload::trusted(text);
    let lone = |key: &str| NewJob {
        payload: payload.clone(),
        ..unique(key, Scope::Unfinished, OnDuplicate::Join)
    };
    for jobs in [
        vec![lone("a"), lone("b"), lone("a"), lone("c")],
        (0..3).map(|_| NewJob { payload: payload.clone(), ..job("plain") }).collect(),
    ] {
        let now = kit.clock.now();
        let first = jobs[0].id;
        put(kit, every_hour("s"), now).await;
        let seen = view(kit, "s").await;
        let ask = FireRequest { slots: vec![SlotJobs { slot: now, jobs }], ..step(&seen) };
        let FireAnswer::Done(fired) = kit.store.fire(ask).await.unwrap() else {
            panic!("it fires")
        };
        assert_eq!((fired[0].job, fired[0].jobs), (Some(first), 3));
        let delete = ScheduleChange::Delete { name: "s".into(), version: seen.version };
        assert!(kit.store.change_schedules(vec![delete]).await.unwrap());
        kit.clock.advance(SECOND);
    }
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 6);
}
