//! Schedules from a user's side: set and declared, fired as time passes, caught up, paused, filled.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use tidemill::store::schedule::{How, What};
use tidemill::testing::{drain, tend};
use tidemill::{
    Backfill, Enqueue, Fail, JobFilter, Missed, Overlap, Schedule, State, Tidemill, Unique, slot_of,
};
use tidemill_testkit::eventually::eventually;

use super::kit::{Echo, Kit, SOON};
use super::schedule_past::refusing;

over_both_stores!(
    slots_fire_as_time_passes,
    every_policy_for_missed_slots_holds_after_a_silence,
    a_clock_that_jumps_fires_no_slot_twice,
    a_one_off_fires_once_and_is_over,
    a_deploy_at_the_moment_of_a_slot_loses_nothing,
    another_rule_of_time_forgets_no_slot_that_has_come,
    a_declaration_leaves_other_owners_alone,
    a_bad_declaration_changes_nothing,
    another_owners_schedule_is_refused,
    bad_schedules_are_refused_and_not_set,
    a_pause_is_not_caught_up,
    a_run_now_makes_a_job_and_keeps_the_policy,
    a_dead_job_is_not_let_go_beside_another_of_its_schedule,
    each_key_is_told_its_own_time,
    one_whose_slots_are_all_excepted_never_fires,
    a_backfill_fires_what_its_preview_shows,
    a_backfill_has_bounds,
    a_preview_shows_slots_of_the_wall_clock,
    a_crowd_is_spread_over_its_window,
    workers_fire_slots_without_being_asked,
    several_processes_fire_each_slot_once,
    one_that_cannot_be_fired_holds_up_no_other,
    a_slot_that_comes_while_its_rule_is_changed_is_not_lost,
);

const HOUR: Duration = Duration::from_hours(1);

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A store whose clock stands at noon of 1 January 2026, UTC.
async fn at_noon(kit: &Kit) -> Tidemill {
    kit.clock.set(at("2026-01-01T12:00:00Z"));
    kit.open_still().await
}

fn hourly(name: &str) -> Schedule {
    Schedule::cron(name, "0 * * * *", Echo::new(name))
}

/// The slots that the waiting jobs were made for, oldest first.
async fn slots(mill: &Tidemill) -> Vec<String> {
    let filter = JobFilter { limit: 1000, ..JobFilter::default() };
    let jobs = mill.jobs(&filter).await.unwrap();
    let mut slots: Vec<_> = jobs.iter().filter_map(|view| slot_of(&view.job.options)).collect();
    slots.sort();
    slots.iter().map(|slot| slot.strftime("%d %H:%M").to_string()).collect()
}

async fn whats(mill: &Tidemill, name: &str) -> Vec<What> {
    let history = mill.schedules().history(name, 100).await.unwrap();
    history.iter().rev().map(|entry| entry.what).collect()
}

async fn slots_fire_as_time_passes(kit: Kit) {
    let mill = at_noon(&kit).await;
    let view = mill.schedules().set(hourly("s").jitter(Duration::from_mins(1))).await.unwrap();
    assert_eq!(view.next_at, Some(at("2026-01-01T13:00:00Z")), "not the slot of now");
    tend(&mill).await.unwrap();
    assert!(slots(&mill).await.is_empty());
    for _ in 0..3 {
        kit.advance(HOUR);
        tend(&mill).await.unwrap();
        tend(&mill).await.unwrap();
    }
    assert_eq!(slots(&mill).await, ["01 13:00", "01 14:00", "01 15:00"]);
    kit.advance(Duration::from_mins(1));
    let worker = mill.worker().handle(|echo: Echo, _cx| async move { Ok(echo.text) });
    assert_eq!(drain(worker).await.unwrap().done, 3);
}

async fn every_policy_for_missed_slots_holds_after_a_silence(kit: Kit) {
    let mill = at_noon(&kit).await;
    for (name, missed) in [("skip", Missed::Skip), ("last", Missed::Last), ("all", Missed::All(3))]
    {
        mill.schedules().set(hourly(name).missed(missed)).await.unwrap();
    }
    kit.advance(HOUR * 5 + HOUR / 2);
    tend(&mill).await.unwrap();
    let (fired, missed) = (What::Fired, What::Missed);
    assert_eq!(whats(&mill, "skip").await, [missed]);
    assert_eq!(whats(&mill, "last").await, [missed, fired]);
    assert_eq!(whats(&mill, "all").await, [missed, fired, fired, fired]);
    let skipped = mill.schedules().history("skip", 1).await.unwrap()[0];
    assert_eq!((skipped.slots, skipped.until), (5, Some(at("2026-01-01T17:00:00Z"))));
    assert_eq!(slots(&mill).await, ["01 15:00", "01 16:00", "01 17:00", "01 17:00"]);
    for view in mill.schedules().list(None).await.unwrap() {
        assert_eq!(view.next_at, Some(at("2026-01-01T18:00:00Z")));
    }
}

async fn a_clock_that_jumps_fires_no_slot_twice(kit: Kit) {
    let mill = at_noon(&kit).await;
    mill.schedules().set(hourly("s").missed(Missed::All(100))).await.unwrap();
    let start = at("2026-01-01T12:00:00Z");
    for hours in [1, 3, 2, 0, 3, 1, 5, 4, 5, 2, 6] {
        kit.clock.set(start + HOUR * hours);
        tend(&mill).await.unwrap();
        tend(&mill).await.unwrap();
    }
    let expected: Vec<_> = (13..=18).map(|hour| format!("01 {hour}:00")).collect();
    assert_eq!(slots(&mill).await, expected, "each once, none lost");
    // A clock that was put right by a day leaves it waiting; a pause and a resume start it over.
    kit.clock.set(start + HOUR * 3);
    mill.schedules().pause("s").await.unwrap();
    mill.schedules().resume("s").await.unwrap();
    for hours in 3..=7 {
        kit.clock.set(start + HOUR * hours);
        tend(&mill).await.unwrap();
    }
    assert_eq!(slots(&mill).await.len(), 7, "what had fired did not fire again");
}

async fn a_one_off_fires_once_and_is_over(kit: Kit) {
    let mill = at_noon(&kit).await;
    let once = || Schedule::once("s", at("2026-01-01T12:30:00Z"), Echo::new("once"));
    mill.schedules().declare("me", [once()]).await.unwrap();
    kit.advance(HOUR);
    tend(&mill).await.unwrap();
    tend(&mill).await.unwrap();
    assert_eq!(slots(&mill).await, ["01 12:30"]);
    assert_eq!(mill.schedules().get("s").await.unwrap().next_at, None);
    let declared = mill.schedules().declare("me", [once()]).await.unwrap();
    assert_eq!(declared.unchanged, ["s"], "a service that still declares it may start");
    tend(&mill).await.unwrap();
    assert_eq!(slots(&mill).await.len(), 1);
    let late = Schedule::once("late", at("2026-01-01T12:30:00Z"), Echo::new("late"));
    assert_eq!(mill.schedules().set(late).await.unwrap_err().code(), "schedule_over");
}

async fn a_deploy_at_the_moment_of_a_slot_loses_nothing(kit: Kit) {
    let mill = at_noon(&kit).await;
    mill.schedules().declare("me", [hourly("s")]).await.unwrap();
    kit.advance(HOUR);
    // The slot has come and nobody has fired it; the new version has another payload.
    let newer = Schedule::cron("s", "0 * * * *", Echo::new("newer"));
    let declared = mill.schedules().declare("me", [newer]).await.unwrap();
    assert_eq!(declared.changed, ["s"]);
    tend(&mill).await.unwrap();
    assert_eq!(slots(&mill).await, ["01 13:00"]);
    // Another rule of time starts behind what has fired.
    let other = Schedule::cron("s", "*/30 * * * *", Echo::new("newer"));
    mill.schedules().declare("me", [other]).await.unwrap();
    tend(&mill).await.unwrap();
    kit.advance(HOUR / 2);
    tend(&mill).await.unwrap();
    assert_eq!(slots(&mill).await, ["01 13:00", "01 13:30"]);
}

async fn another_rule_of_time_forgets_no_slot_that_has_come(kit: Kit) {
    let mill = at_noon(&kit).await;
    let schedules = mill.schedules();
    let holiday: jiff::civil::Date = "2030-01-01".parse().unwrap();
    let policies = [
        ("all", Missed::All(100)),
        ("last", Missed::Last),
        ("skip", Missed::Skip),
        ("set", Missed::Last),
    ];
    let all = |make: &dyn Fn(&str) -> Schedule| -> Vec<Schedule> {
        policies.iter().map(|(name, missed)| make(name).missed(*missed)).collect()
    };
    schedules.declare("me", all(&hourly)).await.unwrap();
    schedules.declare("else", [hourly("paused")]).await.unwrap();
    schedules.pause("paused").await.unwrap();
    kit.advance(HOUR * 3 + HOUR / 2);
    // Nobody has fired anything when the deploy comes.
    let version = schedules.get("set").await.unwrap().version;
    let other = || Schedule::every("set", HOUR * 2, Echo::new("set")).owner("me");
    schedules.set_of(other(), Some(version)).await.unwrap();
    let mut newer = all(&|name| hourly(name).except([holiday]));
    newer.truncate(3);
    let declared = schedules.declare("me", newer.into_iter().chain([other()])).await.unwrap();
    assert_eq!((declared.changed.len(), declared.unchanged.len()), (3, 1));
    let rested = Schedule::cron("paused", "30 * * * *", Echo::new("x")).owner("else");
    schedules.set(rested).await.unwrap();
    let (fired, missed) = (What::Fired, What::Missed);
    for (name, expected) in [
        ("all", vec![fired, fired, fired]),
        ("last", vec![missed, fired]),
        ("skip", vec![missed]),
        ("set", vec![missed, fired]),
        ("paused", vec![]),
    ] {
        assert_eq!(whats(&mill, name).await, expected, "{name}");
    }
    assert_eq!(schedules.history("skip", 1).await.unwrap()[0].slots, 3);
    tend(&mill).await.unwrap();
    assert_eq!(slots(&mill).await, ["01 13:00", "01 14:00", "01 15:00", "01 15:00", "01 15:00"]);
    let next = async |name| schedules.get(name).await.unwrap().next_at;
    assert_eq!(next("all").await, Some(at("2026-01-01T16:00:00Z")));
    assert_eq!(next("set").await, Some(at("2026-01-01T16:00:00Z")));
    assert_eq!(next("paused").await, Some(at("2026-01-01T16:30:00Z")));
    // What is refused fires nothing.
    kit.advance(HOUR);
    let over = hourly("all").owner("me").ends(at("2026-01-01T16:00:00Z"));
    assert_eq!(schedules.set(over).await.unwrap_err().code(), "schedule_over");
    let owned = schedules.declare("me", [hourly("all").zone("Asia/Tokyo"), hourly("paused")]).await;
    assert_eq!(owned.unwrap_err().code(), "schedule_owned");
    assert_eq!(whats(&mill, "all").await.len(), 3);
}

async fn a_declaration_leaves_other_owners_alone(kit: Kit) {
    let mill = at_noon(&kit).await;
    let schedules = mill.schedules();
    schedules.declare("billing", [hourly("invoices"), hourly("reminders")]).await.unwrap();
    let declared = schedules.declare("mail", [hourly("digest")]).await.unwrap();
    assert_eq!((declared.made, declared.deleted.len()), (vec!["digest".to_owned()], 0));
    schedules.pause("invoices").await.unwrap();
    let declared = schedules
        .declare("billing", [hourly("invoices").overlap(Overlap::Skip), hourly("taxes")])
        .await
        .unwrap();
    assert_eq!(declared.changed, ["invoices"]);
    assert_eq!((declared.made, declared.deleted), (vec!["taxes".into()], vec!["reminders".into()]));
    let names = async |owner: Option<&str>| {
        let list = schedules.list(owner).await.unwrap();
        let names: Vec<_> = list.into_iter().map(|view| view.definition.name).collect();
        names.join(" ")
    };
    assert_eq!(names(Some("mail")).await, "digest");
    assert!(schedules.get("invoices").await.unwrap().paused, "a deploy does not end a pause");
    assert_eq!(names(None).await, "digest invoices taxes");
}

async fn a_bad_declaration_changes_nothing(kit: Kit) {
    let mill = at_noon(&kit).await;
    let schedules = mill.schedules();
    schedules.declare("me", [hourly("a")]).await.unwrap();
    let bad = Schedule::cron("c", "0 0 30 2 *", Echo::new("never"));
    let refused = schedules.declare("me", [hourly("b"), bad]).await.unwrap_err();
    assert_eq!(refused.code(), "schedule_never_fires");
    let twice = schedules.declare("me", [hourly("b"), hourly("b")]).await.unwrap_err();
    assert_eq!(twice.code(), "schedule_twice");
    schedules.set(hourly("theirs").owner("them")).await.unwrap();
    let owned = schedules.declare("me", [hourly("b"), hourly("theirs")]).await.unwrap_err();
    assert_eq!(owned.code(), "schedule_owned");
    let names: Vec<_> =
        schedules.list(Some("me")).await.unwrap().into_iter().map(|v| v.definition.name).collect();
    assert_eq!(names, ["a"]);
}

async fn another_owners_schedule_is_refused(kit: Kit) {
    let mill = at_noon(&kit).await;
    let schedules = mill.schedules();
    schedules.set(hourly("s").owner("billing")).await.unwrap();
    let refused = schedules.set(hourly("s").owner("mail")).await.unwrap_err();
    assert_eq!(refused.code(), "schedule_owned");
    assert!(refused.to_string().contains("billing"));
    assert_eq!(schedules.delete("s", "mail").await.unwrap_err().code(), "schedule_owned");
    schedules.delete("s", "billing").await.unwrap();
    assert_eq!(schedules.delete("s", "billing").await.unwrap_err().code(), "schedule_unknown");
    assert_eq!(schedules.get("s").await.unwrap_err().code(), "schedule_unknown");
}

async fn bad_schedules_are_refused_and_not_set(kit: Kit) {
    let mill = at_noon(&kit).await;
    let echo = || Echo::new("x");
    let unique = Enqueue::from(echo()).unique(Unique::by_payload());
    for (schedule, code) in vec![
        (Schedule::cron("s", "* * *", echo()), "schedule_cron_invalid"),
        (Schedule::cron("s", "0 0 31 2 *", echo()), "schedule_never_fires"),
        (Schedule::every("s", Duration::ZERO, echo()), "schedule_every_invalid"),
        (hourly("s").zone("Mars/Olympus"), "schedule_zone_unknown"),
        (
            hourly("s").starts(at("2026-02-01T00:00:00Z")).ends(at("2026-01-01T00:00:00Z")),
            "schedule_end_before_start",
        ),
        (hourly("s").ends(at("2025-01-01T00:00:00Z")), "schedule_over"),
        (hourly(""), "name_empty"),
        (hourly("s").owner("a\nb"), "name_invalid"),
        (hourly("s").spread(Duration::ZERO), "schedule_contradiction"),
        (hourly("s").missed(Missed::All(0)), "schedule_contradiction"),
        (
            Schedule::cron("s", "@daily", unique).overlap(Overlap::QueueOne),
            "schedule_contradiction",
        ),
        (
            Schedule::cron("s", "@daily", Enqueue::from(echo()).delay(HOUR)),
            "schedule_contradiction",
        ),
        (Schedule::cron("s", "@daily", Enqueue::raw("k", "{")), "payload_not_json"),
        (Schedule::cron("s", "@daily", Enqueue::raw("", "{}")), "name_empty"),
    ] {
        let refused = mill.schedules().set(schedule.clone()).await.unwrap_err();
        assert_eq!(refused.code(), code, "{schedule:?}");
    }
    assert!(mill.schedules().list(None).await.unwrap().is_empty());
}

async fn a_pause_is_not_caught_up(kit: Kit) {
    let mill = at_noon(&kit).await;
    mill.schedules().set(hourly("s").missed(Missed::All(100))).await.unwrap();
    mill.schedules().pause("s").await.unwrap();
    mill.schedules().pause("s").await.unwrap();
    kit.advance(HOUR * 3);
    tend(&mill).await.unwrap();
    mill.schedules().resume("s").await.unwrap();
    mill.schedules().resume("s").await.unwrap();
    tend(&mill).await.unwrap();
    assert!(slots(&mill).await.is_empty());
    kit.advance(HOUR);
    tend(&mill).await.unwrap();
    assert_eq!(slots(&mill).await, ["01 16:00"]);
}

async fn a_run_now_makes_a_job_and_keeps_the_policy(kit: Kit) {
    let mill = at_noon(&kit).await;
    mill.schedules().set(hourly("s").overlap(Overlap::Skip)).await.unwrap();
    mill.schedules().pause("s").await.unwrap();
    let fired = mill.schedules().run_now("s").await.unwrap();
    assert_eq!((fired.what, fired.jobs), (What::Fired, 1));
    let job = mill.job(fired.job.unwrap()).await.unwrap().unwrap();
    assert_eq!(job.state, State::Ready);
    let again = mill.schedules().run_now("s").await.unwrap();
    assert_eq!((again.what, again.job), (What::Skipped, fired.job), "it has not finished");
    let history = mill.schedules().history("s", 10).await.unwrap();
    assert!(history.iter().all(|entry| entry.how == How::RunNow));
    assert_eq!(mill.schedules().run_now("t").await.unwrap_err().code(), "schedule_unknown");
}

async fn each_key_is_told_its_own_time(kit: Kit) {
    let mill = at_noon(&kit).await;
    let keys = ["a", "b", "c"];
    mill.schedules().set(hourly("s").spread_keys(HOUR, keys)).await.unwrap();
    let coming = mill.schedules().preview("s", 2).await.unwrap();
    for slot in &coming {
        let mut told: Vec<_> = slot.keys.iter().map(|own| own.key.as_str()).collect();
        assert!(slot.keys.is_sorted_by_key(|own| own.due_at), "{slot:?}");
        assert_eq!(slot.due_at, slot.keys[0].due_at);
        told.sort_unstable();
        assert_eq!(told, keys);
    }
    kit.advance(HOUR);
    tend(&mill).await.unwrap();
    let mut made: Vec<_> = mill.jobs(&JobFilter::default()).await.unwrap();
    made.sort_by_key(|view| view.due_at);
    let made: Vec<_> =
        made.into_iter().map(|view| (view.job.key.unwrap(), view.due_at.unwrap())).collect();
    let told: Vec<_> = coming[0].keys.iter().map(|own| (own.key.clone(), own.due_at)).collect();
    assert_eq!(made, told, "as it was told");
    let ran = mill.schedules().run_now("s").await.unwrap();
    assert_eq!(ran.keys.iter().map(|own| own.key.as_str()).collect::<Vec<_>>(), keys);
    for own in &ran.keys {
        let view = mill.job(own.job.unwrap()).await.unwrap().unwrap();
        assert_eq!((view.job.key.as_ref(), view.state), (Some(&own.key), State::Ready));
    }
    let many = (0..6000).map(|key| key.to_string());
    let many = Schedule::cron("m", "@hourly", Echo::new("x")).spread_keys(HOUR, many);
    let coming = mill.schedules().preview_of(many, 10).await.unwrap();
    assert_eq!((coming.len(), coming[0].keys.len()), (1, 6000), "bounded by its jobs");
}

async fn one_whose_slots_are_all_excepted_never_fires(kit: Kit) {
    let mill = at_noon(&kit).await;
    let daily = |except: &[&str]| {
        let except: Vec<jiff::civil::Date> =
            except.iter().map(|date| date.parse().unwrap()).collect();
        let daily = Schedule::cron("s", "@daily", Echo::new("x"));
        daily.ends(at("2026-01-03T12:00:00Z")).except(except)
    };
    let code = async |schedule| mill.schedules().set(schedule).await.map_err(|e| e.code());
    let excepted = code(daily(&["2026-01-02", "2026-01-03"])).await.unwrap_err();
    assert_eq!(excepted, "schedule_never_fires");
    assert!(code(daily(&["2026-01-02"])).await.is_ok());
    let over = daily(&[]).ends(at("2026-01-01T00:00:00Z"));
    assert_eq!(code(over).await.unwrap_err(), "schedule_over");
}

async fn a_dead_job_is_not_let_go_beside_another_of_its_schedule(kit: Kit) {
    let mill = at_noon(&kit).await;
    mill.schedules().set(hourly("s").overlap(Overlap::QueueOne)).await.unwrap();
    let run = async || mill.schedules().run_now("s").await.unwrap().job.unwrap();
    let first = run().await;
    let failing = |_: Echo, _| async { Err::<String, _>(Fail::permanent("no")) };
    drain(mill.worker().handle(failing)).await.unwrap();
    let second = run().await;
    for error in [
        mill.retry(first, "ada", None).await.map(drop).unwrap_err(),
        mill.dead().replay_one(first, "ada", None).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.code(), "schedule_overlap");
        assert!(error.to_string().contains(&second.to_string()), "{error}");
    }
    assert_eq!(mill.job(first).await.unwrap().unwrap().state, State::Dead);
    mill.cancel(second, "enough").await.unwrap();
    assert!(mill.dead().replay_one(first, "ada", None).await.unwrap());
    assert_eq!(mill.schedules().run_now("s").await.unwrap().what, What::Joined);
}

async fn a_backfill_fires_what_its_preview_shows(kit: Kit) {
    let mill = at_noon(&kit).await;
    mill.schedules().set(hourly("s").overlap(Overlap::QueueOne)).await.unwrap();
    kit.advance(HOUR);
    tend(&mill).await.unwrap();
    let (from, to) = (at("2026-01-01T10:00:00Z"), at("2026-01-01T13:00:00Z"));
    let range = Backfill { from, to, again: false };
    let preview = mill.schedules().backfill_preview("s", range).await.unwrap();
    let shown: Vec<_> = preview.iter().map(|slot| (slot.slot, slot.fired)).collect();
    let hours = [10, 11, 12].map(|hour| at(&format!("2026-01-01T{hour}:00:00Z")));
    assert_eq!(shown, hours.map(|slot| (slot, false)), "the end is outside");
    assert_eq!(preview[0].local, "Thu 2026-01-01 10:00:00 +00:00");
    kit.advance(Duration::from_secs(1));
    let range = Backfill { to: kit.clock.now(), ..range };
    let preview = mill.schedules().backfill_preview("s", range).await.unwrap();
    assert_eq!(
        preview.iter().map(|slot| slot.fired).collect::<Vec<_>>(),
        [false, false, false, true]
    );
    let fired = mill.schedules().backfill("s", range).await.unwrap();
    let (f, k) = (What::Fired, What::Known);
    assert_eq!(fired.iter().map(|fired| fired.what).collect::<Vec<_>>(), [f, f, f, k]);
    assert_eq!(slots(&mill).await, ["01 10:00", "01 11:00", "01 12:00", "01 13:00"]);
    let again = Backfill { again: true, ..range };
    let fired = mill.schedules().backfill("s", again).await.unwrap();
    assert!(fired.iter().all(|fired| fired.what == What::Fired));
    assert_eq!(slots(&mill).await.len(), 8);
}

async fn a_backfill_has_bounds(kit: Kit) {
    let mill = at_noon(&kit).await;
    mill.schedules().set(hourly("s")).await.unwrap();
    let now = kit.clock.now();
    let code = async |from, to| {
        let range = Backfill { from, to, again: false };
        mill.schedules().backfill("s", range).await.unwrap_err().code()
    };
    assert_eq!(code(now - HOUR * 1002, now).await, "backfill_too_large");
    assert_eq!(code(Timestamp::MIN, now).await, "time_invalid");
    assert_eq!(code(Timestamp::MIN, Timestamp::MIN).await, "time_invalid");
    assert_eq!(code(Timestamp::UNIX_EPOCH, now).await, "backfill_too_large");
    assert_eq!(code(now, Timestamp::MAX).await, "backfill_range_invalid");
    assert_eq!(code(now - HOUR, now - HOUR).await, "backfill_range_invalid");
    assert_eq!(code(now - HOUR, now + HOUR).await, "backfill_range_invalid");
    assert!(slots(&mill).await.is_empty());
}

async fn a_preview_shows_slots_of_the_wall_clock(kit: Kit) {
    kit.clock.set(at("2026-03-28T12:00:00Z"));
    let mill = kit.open_still().await;
    let nightly = || {
        Schedule::cron("s", "30 2 * * *", Echo::new("x"))
            .zone("europe/berlin")
            .jitter(Duration::from_mins(10))
    };
    let shown = mill.schedules().preview_of(nightly(), 3).await.unwrap();
    let locals: Vec<_> = shown.iter().map(|slot| slot.local.as_str()).collect();
    assert_eq!(
        locals,
        [
            "Sun 2026-03-29 03:00:00 +02:00",
            "Mon 2026-03-30 02:30:00 +02:00",
            "Tue 2026-03-31 02:30:00 +02:00",
        ]
    );
    assert!(mill.schedules().list(None).await.unwrap().is_empty(), "nothing is set");
    let set = mill.schedules().set(nightly()).await.unwrap();
    assert_eq!(set.definition.zone, "Europe/Berlin");
    assert_eq!(mill.schedules().preview("s", 3).await.unwrap(), shown);
    kit.clock.set(shown[0].slot);
    tend(&mill).await.unwrap();
    let job = mill.schedules().get("s").await.unwrap().last_job.unwrap();
    let due = mill.job(job).await.unwrap().unwrap().due_at.unwrap();
    assert_eq!(due, shown[0].due_at, "the jitter was known before");
}

async fn a_crowd_is_spread_over_its_window(kit: Kit) {
    let mill = at_noon(&kit).await;
    let jobs = |_| {
        (0..200).map(|n| Enqueue::from(Echo::new("x")).tenant(format!("tenant:{n}")).spread(HOUR))
    };
    let due = async |receipts: Vec<tidemill::Receipt>| {
        let mut due = Vec::new();
        for receipt in receipts {
            due.push(mill.job(receipt.id()).await.unwrap().unwrap().due_at.unwrap());
        }
        due
    };
    let one = due(mill.enqueue_many(jobs(1)).await.unwrap()).await;
    let two = due(mill.enqueue_many(jobs(2)).await.unwrap()).await;
    assert_eq!(one, two, "a tenant has its place");
    let now = kit.clock.now();
    assert!(one.iter().all(|at| *at >= now && *at < now + HOUR));
    assert!(one.iter().collect::<BTreeSet<_>>().len() > 190);
    let early = one.iter().filter(|at| **at < now + HOUR / 2).count();
    assert!((60..140).contains(&early), "half of them in the first half, about: {early}");
    let beyond = Enqueue::from(Echo::new("x")).spread(Duration::MAX);
    assert_eq!(mill.enqueue(beyond).await.unwrap_err().code(), "duration_invalid");
}

async fn workers_fire_slots_without_being_asked(kit: Kit) {
    let mill = kit.open().await;
    let worker = mill.worker().handle(|echo: Echo, _cx| async move { Ok(echo.text) });
    let running = worker.start().await.unwrap();
    // The worker sleeps: there is no schedule. Setting one wakes it.
    let soon = mill.now().await.unwrap() + Duration::from_millis(300);
    mill.schedules().set(Schedule::once("s", soon, Echo::new("hello"))).await.unwrap();
    let job =
        eventually("the slot", SOON, async || mill.schedules().get("s").await.unwrap().last_job)
            .await;
    let done = mill.wait(job, SOON).await.unwrap();
    assert_eq!(done.state, State::Done);
    let late = done.finished_at.unwrap().duration_since(soon);
    assert!(late.as_secs() < 10, "it came {late:?} after its time");
    running.stop().await;
}

async fn several_processes_fire_each_slot_once(kit: Kit) {
    let mut nodes = Vec::new();
    for _ in 0..3 {
        let mill = kit.open().await;
        let worker = mill.worker().handle(|echo: Echo, _cx| async move { Ok(echo.text) });
        nodes.push((worker.start().await.unwrap(), mill));
    }
    let mill = kit.open().await;
    let every = Schedule::every("s", Duration::from_secs(1), Echo::new("tick"));
    mill.schedules().set(every.missed(Missed::All(1000))).await.unwrap();
    let history = eventually("four slots", SOON, async || {
        let history = mill.schedules().history("s", 100).await.unwrap();
        (history.len() >= 4).then_some(history)
    })
    .await;
    for (running, _) in nodes {
        running.stop().await;
    }
    let fired = history.iter().rev().map(|entry| entry.slot);
    let fired: Vec<Timestamp> = fired.collect();
    let gaps = fired.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs());
    assert!(gaps.eq(std::iter::repeat_n(1, fired.len() - 1)), "{fired:?}");
    assert!(history.iter().all(|entry| entry.what == What::Fired && entry.jobs == 1));
}

async fn one_that_cannot_be_fired_holds_up_no_other(kit: Kit) {
    let mill = at_noon(&kit).await;
    for name in ["a bad one", "good"] {
        mill.schedules().set(hourly(name)).await.unwrap();
    }
    let (refuse, mended) = refusing(&kit);
    kit.execute(refuse).await;
    for slot in ["2026-01-01T13:00:00Z", "2026-01-01T14:00:00Z"] {
        kit.advance(HOUR);
        tend(&mill).await.unwrap();
        let last = async |name: &str| mill.schedules().get(name).await.unwrap().last_slot;
        assert_eq!((last("good").await, last("a bad one").await), (Some(at(slot)), None));
    }
    kit.execute(mended).await;
    tend(&mill).await.unwrap();
    let bad = mill.schedules().get("a bad one").await.unwrap();
    assert_eq!(bad.last_slot, Some(at("2026-01-01T14:00:00Z")));
}

async fn a_slot_that_comes_while_its_rule_is_changed_is_not_lost(kit: Kit) {
    let mill = at_noon(&kit).await;
    mill.schedules().set(hourly("s")).await.unwrap();
    kit.advance(Duration::from_secs(3599));
    let daily = Schedule::cron("s", "30 4 * * *", Echo::new("s"));
    let looks = Cell::new(0);
    // The slot comes after the look, and before the change is written.
    let may = |_: &tidemill::store::ScheduleView| {
        looks.set(looks.get() + 1);
        if looks.get() == 1 {
            kit.advance(Duration::from_secs(1));
        }
        Ok::<_, tidemill::Error>(())
    };
    let view = mill.schedules().set_if(daily, None, may).await.unwrap();
    assert_eq!(view.next_at, Some(at("2026-01-02T04:30:00Z")));
    assert_eq!(view.last_slot, Some(at("2026-01-01T13:00:00Z")), "it fired by the old rule");
    assert_eq!(slots(&mill).await, ["01 13:00"]);
}
