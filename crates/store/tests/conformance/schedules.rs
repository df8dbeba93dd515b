//! Schedules: changed by version, fired once, whoever tries and whatever the clock does.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use tidemill_core::schedule::due::MissedSlots;
use tidemill_core::schedule::{Definition, Occasion, Overlap, Rule};
use tidemill_core::{JobId, Payload, Settlement, State, WorkerId};
use tidemill_store::schedule::{
    Advance, FireAnswer, FireRequest, Fired, Forgot, HISTORY_MAX, How, NextAt, ScheduleChange,
    SlotJobs, What, Which,
};
use tidemill_store::{Hint, ScheduleView, Settled, Store};

use super::kit::{HOUR, Kit, SECOND, dead, done, hears, ids};

over_both_stores!(
    a_schedule_is_shown_as_it_was_set,
    changes_count_only_for_their_version,
    a_batch_of_changes_is_all_or_none,
    a_change_may_leave_the_next_slot_alone,
    schedules_are_found_by_name_owner_and_time,
    changes_are_told,
    a_slot_fires_with_its_job_and_its_history,
    a_slot_does_not_fire_before_its_time,
    what_rests_or_was_changed_does_not_fire,
    a_slot_fires_once_however_many_try,
    a_slot_that_has_fired_does_not_fire_when_the_clock_goes_back,
    skip_passes_over_while_the_job_before_is_unfinished,
    queue_one_keeps_one_for_afterwards,
    cancel_previous_calls_off_and_waits_for_the_end,
    a_job_that_is_replayed_excludes_others_of_its_schedule,
    a_run_that_was_asked_for_leaves_the_slots_alone,
    a_backfill_leaves_alone_what_has_fired_unless_asked_again,
    missed_slots_are_one_entry,
    the_history_is_bounded,
    deleting_forgets_the_history_and_keeps_the_jobs,
    a_schedule_may_make_many_jobs,
);

pub(super) fn every_hour(name: &str) -> Definition {
    Definition::new(name, Rule::EveryMs(3_600_000))
}

pub(super) async fn put(kit: &Kit, definition: Definition, next_at: Timestamp) -> ScheduleView {
    let name = definition.name.clone();
    let change = ScheduleChange::Put {
        definition: Box::new(definition),
        version: 0,
        paused: false,
        next_at: anew(kit, Some(next_at)),
    };
    assert!(kit.store.change_schedules(vec![change]).await.unwrap());
    view(kit, &name).await
}

pub(super) async fn view(kit: &Kit, name: &str) -> ScheduleView {
    let found = kit.store.schedules(&Which::Named(name.into())).await.unwrap();
    found.into_iter().next().expect("the schedule is there")
}

fn slot_jobs(view: &ScheduleView, slot: Timestamp) -> SlotJobs {
    let made_at = view.made_at;
    SlotJobs { slot, jobs: view.definition.jobs_of(Occasion::Slot { made_at, slot }) }
}

/// The firing of the slot it waits for; the next one comes an hour later.
pub(super) fn step(view: &ScheduleView) -> FireRequest {
    let from = view.next_at.unwrap();
    FireRequest {
        name: view.definition.name.clone(),
        version: view.version,
        how: How::Slot,
        advance: Some(Advance { from, to: Some(from + HOUR) }),
        overlap: view.definition.overlap,
        slots: vec![slot_jobs(view, from)],
        missed: None,
    }
}

/// Fires the slot it waits for, which has come.
pub(super) async fn fire(kit: &Kit, name: &str) -> Fired {
    match kit.store.fire(step(&view(kit, name).await)).await.unwrap() {
        FireAnswer::Done(fired) => fired[0],
        FireAnswer::Changed => panic!("the slot has come"),
    }
}

async fn a_schedule_is_shown_as_it_was_set(kit: &Kit) {
    let mut definition = every_hour("näme");
    definition.zone = "Europe/Berlin".into();
    definition.job.payload = Payload::trusted(r#"{"n":9007199254740993,"a":[1, 2]}"#.into());
    definition.except = vec!["2026-12-25".parse().unwrap()];
    let (now, next) = (kit.clock.now(), kit.clock.now() + HOUR);
    let shown = put(kit, definition.clone(), next).await;
    assert_eq!(shown.definition, definition);
    assert_eq!((shown.version, shown.paused, shown.next_at), (first(kit), false, Some(next)));
    assert_eq!((shown.made_at, shown.changed_at), (now, now));
    assert_eq!((shown.last_slot, shown.last_job), (None, None));
    assert!(kit.store.schedules(&Which::Named("other".into())).await.unwrap().is_empty());
}

/// The version of a schedule that is made now.
fn first(kit: &Kit) -> i64 {
    kit.clock.now().as_microsecond()
}

/// Another next slot, by what is so now.
pub(super) fn anew(kit: &Kit, next: Option<Timestamp>) -> NextAt {
    NextAt::At { next, looked_at: kit.clock.now() }
}

pub(super) fn change(definition: Definition, version: i64, next_at: NextAt) -> ScheduleChange {
    ScheduleChange::Put { definition: Box::new(definition), version, paused: false, next_at }
}

async fn changes_count_only_for_their_version(kit: &Kit) {
    let at = anew(kit, Some(kit.clock.now() + HOUR));
    let store = &kit.store;
    let v = first(kit);
    for (version, holds) in
        [(v, false), (0, true), (0, false), (v, true), (v, false), (v + 1, true)]
    {
        let one = change(every_hour("s"), version, at);
        assert_eq!(store.change_schedules(vec![one]).await.unwrap(), holds, "{version}");
    }
    let delete = |version| vec![ScheduleChange::Delete { name: "s".into(), version }];
    assert!(!store.change_schedules(delete(v + 1)).await.unwrap());
    assert!(store.change_schedules(delete(v + 2)).await.unwrap());
    assert!(!store.change_schedules(delete(v + 2)).await.unwrap());
    assert!(store.schedules(&Which::All).await.unwrap().is_empty());
    kit.clock.advance(SECOND);
    let other = put(kit, every_hour("s"), kit.clock.now()).await;
    assert!(other.version > v + 2, "no change of one that had its name before is one of this");
}

async fn a_batch_of_changes_is_all_or_none(kit: &Kit) {
    let at = anew(kit, Some(kit.clock.now() + HOUR));
    put(kit, every_hour("b"), kit.clock.now() + HOUR).await;
    let batch = |version| {
        vec![
            change(every_hour("a"), 0, at),
            ScheduleChange::Delete { name: "b".into(), version },
            change(every_hour("c"), 0, at),
        ]
    };
    let names = async || -> Vec<String> {
        let all = kit.store.schedules(&Which::All).await.unwrap();
        all.into_iter().map(|view| view.definition.name).collect()
    };
    assert!(!kit.store.change_schedules(batch(7)).await.unwrap());
    assert_eq!(names().await, ["b"]);
    assert!(kit.store.change_schedules(batch(first(kit))).await.unwrap());
    assert_eq!(names().await, ["a", "c"]);
}

async fn a_change_may_leave_the_next_slot_alone(kit: &Kit) {
    let seen = put(kit, every_hour("s"), kit.clock.now()).await;
    fire(kit, "s").await;
    let other = Definition { jitter_ms: 5, ..every_hour("s") };
    let kept = vec![change(other, seen.version, NextAt::Keep)];
    assert!(kit.store.change_schedules(kept).await.unwrap());
    let now = view(kit, "s").await;
    assert_eq!(now.next_at, Some(kit.clock.now() + HOUR), "although it moved meanwhile");
    assert_eq!((now.definition.jitter_ms, now.version), (5, seen.version + 1));
}

async fn schedules_are_found_by_name_owner_and_time(kit: &Kit) {
    let now = kit.clock.now();
    for (name, owner, hours) in [("c", "x", 3), ("a", "y", 1), ("b", "x", 2), ("d", "x", 4)] {
        put(kit, Definition { owner: owner.into(), ..every_hour(name) }, now + HOUR * hours).await;
    }
    let over = ScheduleChange::Put {
        definition: Box::new(every_hour("over")),
        version: 0,
        paused: false,
        next_at: anew(kit, None),
    };
    let rests = ScheduleChange::Put {
        definition: Box::new(every_hour("rests")),
        version: 0,
        paused: true,
        next_at: anew(kit, Some(now)),
    };
    assert!(kit.store.change_schedules(vec![over, rests]).await.unwrap());
    for (which, expected) in [
        (Which::All, "a b c d over rests"),
        (Which::OwnedBy("x".into()), "b c d"),
        (Which::Named("b".into()), "b"),
        (Which::Page { owner: None, after: None, limit: 2 }, "a b"),
        (Which::Page { owner: None, after: Some("b".into()), limit: 3 }, "c d over"),
        (Which::Page { owner: Some("x".into()), after: Some("b".into()), limit: 9 }, "c d"),
        (Which::Next(3), "a b c"),
        (Which::Next(100), "a b c d"),
    ] {
        let found = kit.store.schedules(&which).await.unwrap();
        let names: Vec<_> = found.into_iter().map(|view| view.definition.name).collect();
        assert_eq!(names.join(" "), expected, "{which:?}");
    }
}

async fn changes_are_told(kit: &Kit) {
    let neighbour = kit.neighbour().await;
    let (mut here, mut there) = (kit.store.wake().listen(), neighbour.wake().listen());
    put(kit, every_hour("s"), kit.clock.now()).await;
    hears(&mut here, |hint| *hint == Hint::Schedules).await;
    let heard = |hint: &Hint| matches!(hint, Hint::Schedules | Hint::Any);
    // Until the other process listens, a hint to it is lost; it is told again with each change.
    let telling = async {
        loop {
            let version = view(kit, "s").await.version;
            let again = change(every_hour("s"), version, NextAt::Keep);
            kit.store.change_schedules(vec![again]).await.unwrap();
        }
    };
    tokio::select! {
        () = hears(&mut there, heard) => {}
        () = telling => {}
    }
    neighbour.close().await;
}

async fn a_slot_fires_with_its_job_and_its_history(kit: &Kit) {
    let slot = kit.clock.now();
    let mut definition = every_hour("s");
    definition.job.queue = "reports".into();
    definition.job.payload = Payload::trusted(r#"{"a":1}"#.into());
    let before = put(kit, definition, slot).await;
    kit.clock.advance(SECOND);
    let mut heard = kit.store.wake().listen();
    let fired = fire(kit, "s").await;
    hears(&mut heard, |hint| *hint == Hint::Ready { queue: "reports".into() }).await;
    let id = before.definition.jobs_of(Occasion::Slot { made_at: before.made_at, slot })[0].id;
    assert_eq!(fired, Fired { slot, what: What::Fired, job: Some(id), jobs: 1 });
    let job = kit.view(id).await;
    assert_eq!((job.state, job.job.kind.as_str()), (State::Ready, "s"));
    assert_eq!(job.job.payload.as_str(), r#"{"a":1}"#);
    assert_eq!(tidemill_core::schedule::slot_of(&job.job.options), Some(slot));
    let after = view(kit, "s").await;
    assert_eq!((after.last_slot, after.last_job), (Some(slot), Some(id)));
    assert_eq!((after.next_at, after.version), (Some(slot + HOUR), before.version));
    let history = kit.store.fires("s", 10).await.unwrap();
    assert_eq!(history.len(), 1);
    assert_eq!((history[0].slot, history[0].what, history[0].how), (slot, What::Fired, How::Slot));
    assert_eq!((history[0].job, history[0].jobs, history[0].slots), (Some(id), 1, 1));
    assert_eq!((history[0].until, history[0].at), (None, slot + SECOND));
}

async fn a_slot_does_not_fire_before_its_time(kit: &Kit) {
    let seen = put(kit, every_hour("s"), kit.clock.now() + SECOND).await;
    assert_eq!(kit.store.fire(step(&seen)).await.unwrap(), FireAnswer::Changed);
    kit.clock.advance(SECOND);
    assert!(matches!(kit.store.fire(step(&seen)).await.unwrap(), FireAnswer::Done(_)));
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 1);
}

async fn what_rests_or_was_changed_does_not_fire(kit: &Kit) {
    let seen = put(kit, every_hour("s"), kit.clock.now()).await;
    let rest = |version, paused| {
        let definition = Box::new(every_hour("s"));
        vec![ScheduleChange::Put { definition, version, paused, next_at: NextAt::Keep }]
    };
    assert!(kit.store.change_schedules(rest(seen.version, true)).await.unwrap());
    assert_eq!(kit.store.fire(step(&seen)).await.unwrap(), FireAnswer::Changed);
    let resting = view(kit, "s").await;
    assert_eq!(kit.store.fire(step(&resting)).await.unwrap(), FireAnswer::Changed);
    assert!(kit.store.change_schedules(rest(resting.version, false)).await.unwrap());
    assert_eq!(kit.store.fire(step(&resting)).await.unwrap(), FireAnswer::Changed, "old version");
    assert_eq!(fire(kit, "s").await.what, What::Fired);
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 1);
}

async fn a_slot_fires_once_however_many_try(kit: &Kit) {
    const SLOTS: u32 = 25;
    let first = kit.clock.now();
    put(kit, every_hour("s"), first).await;
    kit.clock.advance(HOUR * SLOTS);
    let mut stores: Vec<Arc<dyn Store>> = vec![Arc::clone(&kit.store)];
    for _ in 0..3 {
        stores.push(kit.neighbour().await);
    }
    let racing: Vec<_> = stores
        .iter()
        .map(|store| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let mut won = 0;
                loop {
                    let view = store.schedules(&Which::Named("s".into())).await.unwrap().remove(0);
                    if view.next_at.unwrap() >= first + HOUR * SLOTS {
                        return won;
                    }
                    if let FireAnswer::Done(fired) = store.fire(step(&view)).await.unwrap() {
                        assert_eq!(fired[0].what, What::Fired);
                        won += 1;
                    }
                }
            })
        })
        .collect();
    let mut won = 0;
    for one in racing {
        won += one.await.unwrap();
    }
    assert_eq!(won, SLOTS);
    let history = kit.store.fires("s", 100).await.unwrap();
    let slots: BTreeSet<_> = history.iter().map(|entry| entry.slot).collect();
    assert_eq!(slots, (0..SLOTS).map(|n| first + HOUR * n).collect());
    assert_eq!(history.len() as u32, SLOTS);
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, u64::from(SLOTS));
    for store in stores.into_iter().skip(1) {
        store.close().await;
    }
}

async fn a_slot_that_has_fired_does_not_fire_when_the_clock_goes_back(kit: &Kit) {
    let first = kit.clock.now();
    put(kit, every_hour("s"), first).await;
    fire(kit, "s").await;
    kit.clock.advance(HOUR);
    fire(kit, "s").await;
    kit.clock.set(first);
    let seen = view(kit, "s").await;
    assert_eq!(kit.store.fire(step(&seen)).await.unwrap(), FireAnswer::Changed, "not come yet");
    // Somebody starts it over: what has fired is known.
    let over = change(every_hour("s"), seen.version, anew(kit, Some(first)));
    assert!(kit.store.change_schedules(vec![over]).await.unwrap());
    assert_eq!(fire(kit, "s").await.what, What::Known);
    kit.clock.advance(HOUR);
    assert_eq!(fire(kit, "s").await.what, What::Known);
    kit.clock.advance(HOUR);
    assert_eq!(fire(kit, "s").await.what, What::Fired);
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 3);
}

async fn overlapping(kit: &Kit, overlap: Overlap) {
    put(kit, Definition { overlap, ..every_hour("s") }, kit.clock.now()).await;
}

async fn next(kit: &Kit) -> Fired {
    kit.clock.advance(HOUR);
    fire(kit, "s").await
}

async fn skip_passes_over_while_the_job_before_is_unfinished(kit: &Kit) {
    overlapping(kit, Overlap::Skip).await;
    let one = fire(kit, "s").await;
    let waiting = next(kit).await;
    assert_eq!((waiting.what, waiting.job, waiting.jobs), (What::Skipped, one.job, 0));
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    assert_eq!(next(kit).await.what, What::Skipped, "it runs");
    assert_eq!(kit.settle(worker, &claim, done()).await, Settled::Accepted);
    let two = next(kit).await;
    assert_eq!(two.what, What::Fired);
    kit.store.cancel(vec![two.job.unwrap()], "enough").await.unwrap();
    assert_eq!(next(kit).await.what, What::Fired, "what was called off has finished");
    let whats: Vec<_> =
        kit.store.fires("s", 10).await.unwrap().iter().map(|entry| entry.what).collect();
    let (f, s) = (What::Fired, What::Skipped);
    assert_eq!(whats, [f, f, s, s, f]);
}

async fn queue_one_keeps_one_for_afterwards(kit: &Kit) {
    overlapping(kit, Overlap::QueueOne).await;
    let one = fire(kit, "s").await;
    let covered = next(kit).await;
    assert_eq!((covered.what, covered.job), (What::Joined, one.job), "one waits already");
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    let kept = next(kit).await;
    assert_eq!(kept.what, What::Fired);
    assert_eq!(kit.state(kept.job.unwrap()).await, State::Blocked);
    let joined = next(kit).await;
    assert_eq!((joined.what, joined.job), (What::Joined, kept.job), "one is enough");
    assert!(ids(&kit.take(worker, 10).await).is_empty(), "never two at once");
    assert_eq!(kit.settle(worker, &claim, done()).await, Settled::Accepted);
    let claim = kit.take_one(worker).await;
    assert_eq!(Some(claim.jobs[0].job.id), kept.job);
}

async fn cancel_previous_calls_off_and_waits_for_the_end(kit: &Kit) {
    overlapping(kit, Overlap::CancelPrevious).await;
    let one = fire(kit, "s").await;
    let two = next(kit).await;
    assert_eq!(kit.state(one.job.unwrap()).await, State::Cancelled, "it waited");
    assert_eq!(kit.state(two.job.unwrap()).await, State::Ready);
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    assert_eq!(Some(claim.jobs[0].job.id), two.job);
    let three = next(kit).await;
    assert!(kit.view(two.job.unwrap()).await.cancel_requested, "it runs, and is told");
    assert_eq!(kit.state(three.job.unwrap()).await, State::Blocked);
    let four = next(kit).await;
    assert_eq!(kit.state(three.job.unwrap()).await, State::Cancelled);
    assert_eq!(kit.state(four.job.unwrap()).await, State::Blocked);
    kit.settle(worker, &claim, super::kit::cancelled("told to")).await;
    let claim = kit.take_one(worker).await;
    assert_eq!(Some(claim.jobs[0].job.id), four.job);
}

/// Fires, claims and settles a slot of `s` with this end; answers its job.
async fn ended(kit: &Kit, worker: WorkerId, how: Settlement) -> JobId {
    let fired = next(kit).await;
    let claim = kit.take_one(worker).await;
    assert_eq!((fired.what, fired.job), (What::Fired, Some(ids(&claim)[0])));
    assert_eq!(kit.settle(worker, &claim, how).await, Settled::Accepted);
    ids(&claim)[0]
}

async fn a_job_that_is_replayed_excludes_others_of_its_schedule(kit: &Kit) {
    for overlap in [Overlap::Skip, Overlap::QueueOne, Overlap::CancelPrevious] {
        overlapping(kit, overlap).await;
        let worker = kit.worker().await;
        fire(kit, "s").await;
        let claim = kit.take_one(worker).await;
        kit.settle(worker, &claim, done()).await;
        let one = ended(kit, worker, dead("x")).await;
        let two = ended(kit, worker, dead("x")).await;
        let replay =
            async |ids: &[JobId]| kit.store.dead_replay(ids, "ada".into(), None).await.unwrap();

        let three = next(kit).await.job.unwrap();
        let claim = kit.take_one(worker).await;
        assert_eq!(replay(&[one, two]).await, [], "{overlap:?}: another runs");
        assert_eq!(kit.state(one).await, State::Dead);
        assert_eq!(kit.store.key_holder(one).await.unwrap(), Some(three));
        kit.settle(worker, &claim, done()).await;
        assert_eq!(kit.store.key_holder(one).await.unwrap(), None);
        assert_eq!(replay(&[one, two]).await.len(), 1, "{overlap:?}: not both");
        let claim = kit.take_one(worker).await;

        // It counts as the job before, although one that was made later has ended.
        let slot = next(kit).await;
        match overlap {
            Overlap::Skip => assert_eq!(slot.what, What::Skipped),
            _ => assert_eq!(kit.state(slot.job.unwrap()).await, State::Blocked, "{overlap:?}"),
        }
        assert!(ids(&kit.take(worker, 9).await).is_empty(), "{overlap:?}: never two at once");
        kit.settle(worker, &claim, done()).await;
        if overlap != Overlap::Skip {
            kit.run_to(slot.job.unwrap(), done()).await;
        }
        assert_eq!(replay(&[one, two]).await.len(), 1, "{overlap:?}: its turn has come");
        let claim = kit.take_one(worker).await;
        kit.settle(worker, &claim, done()).await;
        let seen = view(kit, "s").await;
        let delete = ScheduleChange::Delete { name: "s".into(), version: seen.version };
        assert!(kit.store.change_schedules(vec![delete]).await.unwrap());
    }
}

fn asked(view: &ScheduleView, how: How, slots: &[Timestamp]) -> FireRequest {
    let occasion = |slot| match how {
        How::RunNow => Occasion::RunNow,
        // In the very moment in which the schedule was made, too, it is other work.
        How::Again => Occasion::Again { asked_at: view.made_at, slot },
        _ => Occasion::Slot { made_at: view.made_at, slot },
    };
    let jobs_of =
        |slot: &Timestamp| SlotJobs { slot: *slot, jobs: view.definition.jobs_of(occasion(*slot)) };
    let slots = slots.iter().map(jobs_of).collect();
    FireRequest { how, advance: None, slots, ..step(view) }
}

async fn fires(kit: &Kit, ask: FireRequest) -> Vec<What> {
    match kit.store.fire(ask).await.unwrap() {
        FireAnswer::Done(fired) => fired.iter().map(|fired| fired.what).collect(),
        FireAnswer::Changed => panic!("it is as it was"),
    }
}

async fn a_run_that_was_asked_for_leaves_the_slots_alone(kit: &Kit) {
    let (now, next) = (kit.clock.now(), kit.clock.now() + HOUR);
    let seen = put(kit, every_hour("s"), next).await;
    for _ in 0..2 {
        assert_eq!(fires(kit, asked(&seen, How::RunNow, &[now])).await, [What::Fired]);
    }
    let after = view(kit, "s").await;
    assert_eq!((after.next_at, after.last_slot), (Some(next), None));
    assert!(after.last_job.is_some());
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 2);
    let stale = FireRequest { version: 9, ..asked(&seen, How::RunNow, &[now]) };
    assert_eq!(kit.store.fire(stale).await.unwrap(), FireAnswer::Changed);
    let gone = FireRequest { name: "gone".into(), ..asked(&seen, How::RunNow, &[now]) };
    assert_eq!(kit.store.fire(gone).await.unwrap(), FireAnswer::Changed);
}

async fn a_backfill_leaves_alone_what_has_fired_unless_asked_again(kit: &Kit) {
    let slot = kit.clock.now();
    put(kit, every_hour("s"), slot).await;
    fire(kit, "s").await;
    let seen = view(kit, "s").await;
    let range = [slot - HOUR * 2, slot - HOUR, slot];
    let (fired, known) = (What::Fired, What::Known);
    let fill = |how| asked(&seen, how, &range);
    assert_eq!(fires(kit, fill(How::Backfill)).await, [fired, fired, known]);
    assert_eq!(fires(kit, fill(How::Backfill)).await, [known, known, known]);
    assert_eq!(fires(kit, fill(How::Again)).await, [fired, fired, fired]);
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 6);
    let after = view(kit, "s").await;
    assert_eq!((after.next_at, after.last_job), (seen.next_at, seen.last_job));
}

async fn missed_slots_are_one_entry(kit: &Kit) {
    let first = kit.clock.now();
    let seen = put(kit, every_hour("s"), first).await;
    kit.clock.advance(HOUR * 5);
    let missed = MissedSlots { first, last: first + HOUR * 4, slots: 5 };
    let ask = FireRequest { slots: Vec::new(), missed: Some(missed), ..step(&seen) };
    assert_eq!(kit.store.fire(ask).await.unwrap(), FireAnswer::Done(Vec::new()));
    let history = kit.store.fires("s", 10).await.unwrap();
    assert_eq!((history.len(), history[0].what, history[0].slots), (1, What::Missed, 5));
    assert_eq!((history[0].slot, history[0].until), (first, Some(first + HOUR * 4)));
    assert_eq!(view(kit, "s").await.last_slot, Some(first + HOUR * 4));
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 0);
}

async fn the_history_is_bounded(kit: &Kit) {
    let now = kit.clock.now();
    let seen = put(kit, every_hour("s"), now + HOUR).await;
    put(kit, every_hour("other"), now + HOUR).await;
    fires(kit, asked(&view(kit, "other").await, How::RunNow, &[now])).await;
    let slots: Vec<_> = (0..HISTORY_MAX as u32 + 5).rev().map(|n| now - HOUR * n).collect();
    fires(kit, asked(&seen, How::Backfill, &slots)).await;
    let history = kit.store.fires("s", 5000).await.unwrap();
    assert_eq!(history.len(), HISTORY_MAX);
    assert_eq!((history[0].slot, history[HISTORY_MAX - 1].slot), (now, slots[5]));
    assert_eq!(kit.store.fires("s", 3).await.unwrap().len(), 3);
    let filled = |last| Forgot { own: None, backfilled: Some((slots[0], last)) };
    assert_eq!(view(kit, "s").await.forgot, filled(slots[4]));
    fires(kit, asked(&seen, How::RunNow, &[now])).await;
    assert_eq!(view(kit, "s").await.forgot, filled(slots[5]), "all that is forgotten");
    assert_eq!(view(kit, "other").await.forgot, Forgot::default());
    assert_eq!(kit.store.fires("other", 3).await.unwrap().len(), 1);
}

async fn deleting_forgets_the_history_and_keeps_the_jobs(kit: &Kit) {
    let version = put(kit, every_hour("s"), kit.clock.now()).await.version;
    let job = fire(kit, "s").await.job.unwrap();
    let delete = vec![ScheduleChange::Delete { name: "s".into(), version }];
    assert!(kit.store.change_schedules(delete).await.unwrap());
    assert!(kit.store.fires("s", 10).await.unwrap().is_empty());
    assert_eq!(kit.state(job).await, State::Ready);
}

async fn a_schedule_may_make_many_jobs(kit: &Kit) {
    let keys: Vec<String> = (0..250).map(|n| format!("tenant:{n}")).collect();
    let spread = tidemill_core::schedule::Spread { window_ms: 3_600_000, keys };
    let slot = kit.clock.now();
    let definition = Definition { spread: Some(spread), ..every_hour("s") };
    let seen = put(kit, definition, slot).await;
    assert_eq!(fire(kit, "s").await.jobs, 250);
    let made: Vec<JobId> = slot_jobs(&seen, slot).jobs.iter().map(|job| job.id).collect();
    let due: BTreeSet<_> = {
        let mut due = BTreeSet::new();
        for id in &made {
            due.insert(kit.view(*id).await.due_at.unwrap());
        }
        due
    };
    assert!(due.len() > 200, "they are not due at once");
    assert!(due.iter().all(|at| *at >= slot && *at < slot + HOUR));
}
