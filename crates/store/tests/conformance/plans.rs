//! Plans for dead letters: what is previewed is what is done, once, and taken back where that can be.

use std::time::Duration;

use tidemill_core::dead::plan::{APPLY_WITHIN, Act, Stage};
use tidemill_core::dead::{DeadFilter, Triage};
use tidemill_core::{JobId, OnDead, OnDuplicate, PlanId, Scope, Settlement, State, WorkerId};
use tidemill_store::Claim;
use tidemill_store::plan::{NewPlan, PlanStep, PlanView, Planned};

use super::kit::{HOUR, Kit, SECOND, ask, dead, done, item, job, ordered, retry, unique};

over_both_stores!(
    a_plan_shows_its_letters_by_group,
    a_plan_is_applied_to_what_it_named_and_nothing_else,
    a_plan_goes_on_where_it_stopped,
    two_who_apply_at_once_do_nothing_twice,
    an_old_plan_is_not_applied,
    archive_and_triage_are_undone,
    no_plan_is_for_what_was_replayed,
    what_others_changed_is_not_undone,
    a_replay_is_undone_for_those_that_have_not_started,
    a_replay_that_is_undone_blocks_its_line_again,
    what_is_deleted_is_forgotten_and_stays_so,
    a_plan_that_is_too_large_leaves_nothing,
    plans_are_listed_newest_first_and_forgotten,
);

fn new(act: Act, filter: DeadFilter) -> NewPlan {
    NewPlan {
        id: PlanId::new(),
        by: "ada".into(),
        act,
        why: "the bank is back".into(),
        filter,
        apply_within: APPLY_WITHIN,
        kept: HOUR,
        letters_max: 100,
    }
}

async fn made(kit: &Kit, new: NewPlan) -> PlanView {
    match kit.store.add_plan(new).await.unwrap() {
        Planned::Made(view) => *view,
        Planned::TooLarge => panic!("too large"),
    }
}

async fn plan(kit: &Kit, act: Act) -> PlanView {
    made(kit, new(act, DeadFilter::default())).await
}

fn went(step: PlanStep) -> PlanView {
    match step {
        PlanStep::Went(view) => *view,
        other => panic!("{other:?}"),
    }
}

async fn apply(kit: &Kit, id: PlanId) -> PlanView {
    went(kit.store.apply_plan(id, "bob", 100).await.unwrap())
}

async fn undo(kit: &Kit, id: PlanId) -> PlanView {
    went(kit.store.undo_plan(id, "bob", 100).await.unwrap())
}

async fn bury(kit: &Kit, errors: &[&str]) -> Vec<JobId> {
    let mut ids = Vec::new();
    for error in errors {
        ids.push(kit.finish(job("k"), dead(error)).await);
        kit.clock.advance(SECOND);
    }
    ids
}

async fn settle_all(kit: &Kit, worker: WorkerId, claim: &Claim, how: &Settlement) {
    let items = (0..claim.jobs.len()).map(|at| item(claim, at, how.clone()));
    kit.store.settle(worker, items.collect()).await.unwrap();
}

async fn letter(kit: &Kit, id: JobId) -> tidemill_store::DeadLetter {
    let filter = DeadFilter { ids: vec![id], ..DeadFilter::default() };
    kit.store.dead(&filter, None, 1).await.unwrap().remove(0)
}

async fn a_plan_shows_its_letters_by_group(kit: &Kit) {
    let ids = bury(kit, &["no 1", "no 2", "no 3", "no 4", "fire"]).await;
    let other = kit.finish(job("other"), dead("no 5")).await;
    let filter = DeadFilter { kind: Some("k".into()), ..DeadFilter::default() };
    let view = made(kit, new(Act::Archive, filter.clone())).await;
    assert_eq!((view.stage, view.letters, view.undoable), (Stage::Made, 5, true));
    assert_eq!((view.by.as_str(), view.filter.clone()), ("ada", filter));
    assert_eq!(view.expires_at.duration_since(view.made_at).unsigned_abs(), APPLY_WITHIN);
    let counts: Vec<_> = view.groups.iter().map(|group| group.count).collect();
    assert_eq!(counts, [4, 1]);
    assert_eq!(view.groups[0].examples, [ids[3], ids[2], ids[1]], "the latest three");
    assert_eq!(view.groups[1].examples, [ids[4]]);
    assert_eq!(kit.store.plan(view.id).await.unwrap(), Some(view.clone()));
    assert!(!letter(kit, ids[0]).await.archived, "nothing is done yet");
    assert_eq!(apply(kit, view.id).await.done, 5);
    assert!(!letter(kit, other).await.archived);
}

async fn a_plan_is_applied_to_what_it_named_and_nothing_else(kit: &Kit) {
    let ids = bury(kit, &["a", "b", "c", "d", "e"]).await;
    let view = plan(kit, Act::Replay).await;
    let later = bury(kit, &["a"]).await[0];
    // One was triaged since, one died anew, one is gone.
    kit.store.dead_note(&[ids[0]], "me", "", Some(Triage::Investigated), None).await.unwrap();
    kit.store.dead_replay(&[ids[1]], "me".into(), None).await.unwrap();
    kit.run_to(ids[1], dead("again")).await;
    kit.store.purge(&[ids[2]]).await.unwrap();
    let applied = apply(kit, view.id).await;
    assert_eq!((applied.stage, applied.done, applied.passed), (Stage::Applied, 2, 3));
    assert_eq!(kit.state(ids[3]).await, State::Ready);
    assert_eq!(kit.state(ids[4]).await, State::Ready);
    for id in [ids[0], ids[1], later] {
        assert_eq!(kit.state(id).await, State::Dead);
    }
    kit.clock.advance(2 * APPLY_WITHIN);
    let again = apply(kit, view.id).await;
    assert_eq!(again, applied, "applied twice is the same, also after its time");
    assert_eq!(letter(kit, ids[3]).await.redrives, 1);
    // Those on their way are no part of another replay.
    assert_eq!(plan(kit, Act::Replay).await.letters, 3);
}

async fn a_plan_goes_on_where_it_stopped(kit: &Kit) {
    bury(kit, &["a", "b", "c", "d", "e"]).await;
    let view = plan(kit, Act::Archive).await;
    let mut counts = Vec::new();
    loop {
        let step = went(kit.store.apply_plan(view.id, "bob", 2).await.unwrap());
        counts.push(step.done);
        if step.stage == Stage::Applied {
            break;
        }
        assert_eq!(step.stage, Stage::Applying);
        // Its time is over for those who have not begun; this one has.
        kit.clock.advance(APPLY_WITHIN);
    }
    assert_eq!(counts, [2, 4, 5]);
    let mut counts = Vec::new();
    loop {
        let step = went(kit.store.undo_plan(view.id, "bob", 2).await.unwrap());
        counts.push(step.undone);
        if step.stage == Stage::Undone {
            break;
        }
        let now = kit.store.apply_plan(view.id, "bob", 2).await.unwrap();
        assert_eq!(now, PlanStep::NotNow(Stage::Undoing));
    }
    assert_eq!(counts, [2, 4, 5]);
}

async fn two_who_apply_at_once_do_nothing_twice(kit: &Kit) {
    let errors: Vec<String> = (0..20).map(|n| format!("no {n}")).collect();
    let ids = bury(kit, &errors.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let view = plan(kit, Act::Replay).await;
    let one = async {
        loop {
            let step = went(kit.store.apply_plan(view.id, "bob", 3).await.unwrap());
            if step.stage == Stage::Applied {
                break step;
            }
        }
    };
    let (one, other) = tokio::join!(one, async {
        loop {
            let step = went(kit.store.apply_plan(view.id, "eve", 3).await.unwrap());
            if step.stage == Stage::Applied {
                break step;
            }
        }
    });
    assert_eq!((one.done, other.done), (20, 20));
    for id in ids {
        let letter = letter(kit, id).await;
        assert_eq!((letter.redrives, letter.notes.len()), (1, 1));
    }
}

async fn an_old_plan_is_not_applied(kit: &Kit) {
    bury(kit, &["a"]).await;
    let view = plan(kit, Act::Archive).await;
    let early = kit.store.undo_plan(view.id, "bob", 9).await.unwrap();
    assert_eq!(early, PlanStep::NotNow(Stage::Made));
    kit.clock.advance(APPLY_WITHIN);
    let late = kit.store.apply_plan(view.id, "bob", 9).await.unwrap();
    assert_eq!(late, PlanStep::Expired(view.expires_at));
    let nobody = kit.store.apply_plan(PlanId::new(), "bob", 9).await.unwrap();
    assert_eq!(nobody, PlanStep::Unknown);
}

async fn archive_and_triage_are_undone(kit: &Kit) {
    let ids = bury(kit, &["a", "b"]).await;
    kit.store.dead_note(&[ids[0]], "me", "", Some(Triage::Investigated), None).await.unwrap();
    for act in [Act::Archive, Act::Triage(Triage::Abandoned)] {
        let view = plan(kit, act).await;
        apply(kit, view.id).await;
        let changed = letter(kit, ids[0]).await;
        let note = changed.notes.last().unwrap();
        assert!(note.by == "bob" && note.text.contains("the bank is back"), "{note:?}");
        assert_eq!(changed.archived, act == Act::Archive);
        let undone = undo(kit, view.id).await;
        assert_eq!((undone.stage, undone.undone, undone.stayed), (Stage::Undone, 2, 0));
        assert_eq!(undo(kit, view.id).await, undone, "undone twice is the same");
        let (one, two) = (letter(kit, ids[0]).await, letter(kit, ids[1]).await);
        assert_eq!((one.triage, two.triage), (Triage::Investigated, Triage::New));
        assert!(!one.archived && !two.archived);
        assert!(one.notes.last().unwrap().text.contains("undone"));
    }
}

async fn what_others_changed_is_not_undone(kit: &Kit) {
    let ids = bury(kit, &["a", "b", "c"]).await;
    let view = plan(kit, Act::Triage(Triage::Abandoned)).await;
    apply(kit, view.id).await;
    kit.store.dead_note(&[ids[0]], "me", "", Some(Triage::Investigated), None).await.unwrap();
    kit.store.dead_note(&[ids[1]], "me", "", None, Some(true)).await.unwrap();
    let undone = undo(kit, view.id).await;
    assert_eq!((undone.undone, undone.stayed), (2, 1));
    assert_eq!(letter(kit, ids[0]).await.triage, Triage::Investigated);
    let aside = letter(kit, ids[1]).await;
    assert!(aside.archived && aside.triage == Triage::New, "only what the plan changed");
}

async fn a_replay_is_undone_for_those_that_have_not_started(kit: &Kit) {
    let held = unique("k=1", Scope::Unfinished, OnDuplicate::Reject);
    let held = kit.finish(held, dead("a")).await;
    kit.clock.advance(SECOND);
    let ids = bury(kit, &["b", "c", "d"]).await;
    kit.store.dead_note(&[ids[0]], "me", "", Some(Triage::Investigated), None).await.unwrap();
    let before = letter(kit, ids[0]).await;
    let view = plan(kit, Act::Replay).await;
    assert!(view.undoable);
    apply(kit, view.id).await;
    // One is done, one runs, the others wait.
    let worker = kit.worker().await;
    let claim = kit.store.claim(ask(worker, "default", 2)).await.unwrap();
    let (first, second) = (claim.jobs[0].job.id, claim.jobs[1].job.id);
    kit.clock.advance(SECOND);
    let undone = undo(kit, view.id).await;
    assert_eq!((undone.stage, undone.undone, undone.stayed), (Stage::Undone, 2, 2));
    let all = [held, ids[0], ids[1], ids[2]];
    for id in all {
        let is_started = [first, second].contains(&id);
        let expected = if is_started { State::Running } else { State::Dead };
        assert_eq!(kit.state(id).await, expected);
        assert_eq!(letter(kit, id).await.redrives, u16::from(is_started));
    }
    settle_all(kit, worker, &claim, &done()).await;
    assert!(kit.store.claim(ask(worker, "default", 9)).await.unwrap().jobs.is_empty());
    if ![first, second].contains(&ids[0]) {
        let after = letter(kit, ids[0]).await;
        assert_eq!((after.died_at, after.triage), (before.died_at, before.triage));
    }
    // What is dead again can be replayed again.
    let again = plan(kit, Act::Replay).await;
    assert_eq!((again.letters, apply(kit, again.id).await.done), (2, 2));
    let claim = kit.store.claim(ask(worker, "default", 9)).await.unwrap();
    assert_eq!(claim.jobs.len(), 2);
    // One that has started and waits again is not taken back.
    kit.clock.advance(SECOND);
    settle_all(kit, worker, &claim, &retry(HOUR, 1)).await;
    let undone = undo(kit, again.id).await;
    assert_eq!((undone.undone, undone.stayed), (0, 2));
}

async fn a_replay_that_is_undone_blocks_its_line_again(kit: &Kit) {
    let first = kit.finish(ordered("order:1", OnDead::Block), dead("a")).await;
    kit.clock.advance(SECOND);
    let second = kit.put(ordered("order:1", OnDead::Block)).await;
    let view = plan(kit, Act::Replay).await;
    apply(kit, view.id).await;
    assert_eq!(undo(kit, view.id).await.undone, 1);
    let worker = kit.worker().await;
    assert!(kit.store.claim(ask(worker, "default", 9)).await.unwrap().jobs.is_empty());
    let view = plan(kit, Act::Archive).await;
    apply(kit, view.id).await;
    let claim = kit.store.claim(ask(worker, "default", 9)).await.unwrap();
    assert_eq!(claim.jobs[0].job.id, second, "{first} lets it pass");
}

async fn what_is_deleted_is_forgotten_and_stays_so(kit: &Kit) {
    let ids = bury(kit, &["a", "b"]).await;
    let view = plan(kit, Act::Delete).await;
    assert!(!view.undoable);
    kit.store.dead_replay(&[ids[1]], "me".into(), None).await.unwrap();
    let applied = apply(kit, view.id).await;
    assert_eq!((applied.done, applied.passed), (1, 1));
    assert!(kit.store.job(ids[0]).await.unwrap().is_none());
    assert_eq!(kit.state(ids[1]).await, State::Ready, "it is on its way again");
    let undone = kit.store.undo_plan(view.id, "bob", 9).await.unwrap();
    assert_eq!(undone, PlanStep::NotNow(Stage::Applied));
}

async fn no_plan_is_for_what_was_replayed(kit: &Kit) {
    let ids = bury(kit, &["a", "b"]).await;
    kit.store.dead_replay(&ids[..1], "ada".into(), None).await.unwrap();
    for act in [Act::Replay, Act::Triage(Triage::Abandoned), Act::Archive, Act::Delete] {
        assert_eq!(plan(kit, act).await.letters, 1, "{act:?}");
        let named = DeadFilter { ids: ids.clone(), ..DeadFilter::default() };
        let view = made(kit, new(act, named)).await;
        assert_eq!((view.letters, &view.groups[0].examples), (1, &vec![ids[1]]), "{act:?}");
    }
}

async fn a_plan_that_is_too_large_leaves_nothing(kit: &Kit) {
    bury(kit, &["a", "b", "c"]).await;
    let new = NewPlan { letters_max: 2, ..new(Act::Archive, DeadFilter::default()) };
    let id = new.id;
    assert_eq!(kit.store.add_plan(new.clone()).await.unwrap(), Planned::TooLarge);
    assert_eq!(kit.store.plan(id).await.unwrap(), None);
    let fits = made(kit, NewPlan { letters_max: 3, ..new }).await;
    assert_eq!(fits.letters, 3);
}

async fn plans_are_listed_newest_first_and_forgotten(kit: &Kit) {
    bury(kit, &["a", "b"]).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(plan(kit, Act::Archive).await.id);
    }
    let list = async |before| {
        let plans = kit.store.plans(before, 2).await.unwrap();
        plans.into_iter().map(|plan| plan.id).collect::<Vec<_>>()
    };
    assert_eq!(list(None).await, [ids[3], ids[2]]);
    assert_eq!(list(Some(ids[2])).await, [ids[1], ids[0]]);
    assert!(!kit.store.forget_plans(3).await.unwrap());
    assert_eq!(kit.store.plan(ids[0]).await.unwrap(), None, "the oldest of too many");
    apply(kit, ids[1]).await;
    kit.clock.advance(APPLY_WITHIN + HOUR + Duration::from_secs(1));
    kit.store.forget_plans(3).await.unwrap();
    assert_eq!(list(None).await, [ids[1]], "what was applied is kept for longer");
    kit.clock.advance(31 * 24 * HOUR);
    kit.store.forget_plans(3).await.unwrap();
    assert!(list(None).await.is_empty());
}
