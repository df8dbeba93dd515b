//! Order: what the end of a job does to those behind it, and who gives up on a dead one.

use tidemill_core::dead::Triage;
use tidemill_core::flow::{Step, Work};
use tidemill_core::{OnDead, State};
use tidemill_store::flow::{FlowAct, FlowAnswer};
use tidemill_store::{CancelAnswer, Settled};

use super::flows::{start, tend};
use super::kit::{HOUR, Kit, cancelled, dead, done, ids, item, ordered, retry};
use super::ordered::{states, three};

over_both_stores!(
    a_dead_one_blocks_its_line,
    a_dead_one_that_skips_lets_the_next_pass,
    the_policy_is_that_of_the_dead_one,
    a_blocking_one_that_is_replayed_is_still_first,
    a_blocking_one_may_die_again,
    a_skipped_one_that_is_replayed_goes_to_the_end,
    giving_up_on_a_dead_one_lets_the_others_pass,
    giving_up_on_one_that_blocks_nobody_changes_nothing,
    given_up_and_replayed_it_goes_to_the_end,
    a_dead_one_that_is_forgotten_lets_the_others_pass,
    calling_off_the_first_lets_the_next_pass,
    calling_off_one_in_the_middle_closes_the_gap,
    calling_off_a_whole_line_empties_it,
    calling_off_the_running_one_waits_for_its_end,
    a_poisoned_one_blocks_or_skips,
    a_rescued_one_that_was_called_off_lets_the_next_pass,
    several_lines_go_on_in_one_settle,
    one_that_is_marked_done_lets_the_next_pass,
);

async fn a_dead_one_blocks_its_line(kit: &Kit) {
    let all = three(kit, OnDead::Block).await;
    kit.run_to(all[0], dead("no")).await;
    assert_eq!(states(kit, all).await, [State::Dead, State::Blocked, State::Blocked]);
    let worker = kit.worker().await;
    assert!(kit.take(worker, 9).await.jobs.is_empty());
    let late = kit.put(ordered("order:42", OnDead::Skip)).await;
    assert_eq!(kit.state(late).await, State::Blocked, "whoever comes waits as well");
}

async fn a_dead_one_that_skips_lets_the_next_pass(kit: &Kit) {
    let all = three(kit, OnDead::Skip).await;
    kit.run_to(all[0], dead("no")).await;
    assert_eq!(states(kit, all).await, [State::Dead, State::Ready, State::Blocked]);
    kit.run_to(all[1], dead("no")).await;
    kit.run_to(all[2], dead("no")).await;
    kit.finish(ordered("order:42", OnDead::Skip), done()).await;
}

async fn the_policy_is_that_of_the_dead_one(kit: &Kit) {
    let first = kit.put(ordered("a", OnDead::Skip)).await;
    let second = kit.put(ordered("a", OnDead::Block)).await;
    let third = kit.put(ordered("a", OnDead::Skip)).await;
    kit.run_to(first, dead("no")).await;
    kit.run_to(second, dead("no")).await;
    assert_eq!(kit.state(third).await, State::Blocked);
}

async fn a_blocking_one_that_is_replayed_is_still_first(kit: &Kit) {
    let all = three(kit, OnDead::Block).await;
    kit.run_to(all[0], dead("no")).await;
    assert_eq!(kit.store.dead_replay(&[all[0]], "ada".into(), None).await.unwrap(), [all[0]]);
    assert_eq!(states(kit, all).await, [State::Ready, State::Blocked, State::Blocked]);
    for id in all {
        kit.run_to(id, done()).await;
    }
}

async fn a_blocking_one_may_die_again(kit: &Kit) {
    let all = three(kit, OnDead::Block).await;
    for _ in 0..2 {
        kit.run_to(all[0], dead("no")).await;
        assert_eq!(states(kit, all).await, [State::Dead, State::Blocked, State::Blocked]);
        kit.store.dead_replay(&[all[0]], "ada".into(), None).await.unwrap();
    }
    let answers = kit.store.cancel(vec![all[0]], "enough").await.unwrap();
    assert_eq!(answers, [CancelAnswer::Cancelled]);
    kit.run_to(all[1], done()).await;
}

async fn a_skipped_one_that_is_replayed_goes_to_the_end(kit: &Kit) {
    let all = three(kit, OnDead::Skip).await;
    kit.run_to(all[0], dead("no")).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    kit.store.dead_replay(&[all[0]], "ada".into(), None).await.unwrap();
    assert_eq!(states(kit, all).await, [State::Blocked, State::Running, State::Blocked]);
    assert_eq!(kit.store.line(all[0]).await.unwrap().unwrap().ahead, 2);
    kit.settle(worker, &claim, done()).await;
    kit.run_to(all[2], done()).await;
    kit.run_to(all[0], retry(HOUR, 1)).await;
    let last = kit.put(ordered("order:42", OnDead::Skip)).await;
    assert_eq!(kit.state(last).await, State::Blocked, "behind its retry");
    kit.clock.advance(HOUR);
    kit.run_to(all[0], dead("again")).await;
    kit.run_to(last, done()).await;
    // Nobody is in the line any more: it goes on at once.
    kit.store.dead_replay(&[all[0]], "ada".into(), None).await.unwrap();
    kit.run_to(all[0], done()).await;
}

async fn giving_up_on_a_dead_one_lets_the_others_pass(kit: &Kit) {
    for (triage, archived) in [(Some(Triage::Abandoned), None), (None, Some(true))] {
        let all = three(kit, OnDead::Block).await;
        kit.run_to(all[0], dead("no")).await;
        let looked = Some(Triage::Investigated);
        kit.store.dead_note(&[all[0]], "ada", "hm", looked, None).await.unwrap();
        assert_eq!(kit.state(all[1]).await, State::Blocked, "to look is not to give up");
        let noted = kit.store.dead_note(&[all[0]], "ada", "never mind", triage, archived).await;
        assert_eq!(noted.unwrap(), 1);
        assert_eq!(states(kit, all).await, [State::Dead, State::Ready, State::Blocked]);
        kit.run_to(all[1], done()).await;
        kit.run_to(all[2], done()).await;
    }
}

async fn giving_up_on_one_that_blocks_nobody_changes_nothing(kit: &Kit) {
    let all = three(kit, OnDead::Skip).await;
    kit.run_to(all[0], dead("no")).await;
    let given_up = Some(Triage::Abandoned);
    kit.store.dead_note(&[all[0]], "ada", "", given_up, Some(true)).await.unwrap();
    assert_eq!(states(kit, all).await, [State::Dead, State::Ready, State::Blocked]);
    // Replayed it is in line again, and not dead: a note on its letter does not take it out.
    kit.store.dead_replay(&[all[0]], "ada".into(), None).await.unwrap();
    kit.store.dead_note(&[all[0]], "ada", "", given_up, Some(true)).await.unwrap();
    assert_eq!(states(kit, all).await, [State::Blocked, State::Ready, State::Blocked]);
    for id in [all[1], all[2], all[0]] {
        kit.run_to(id, done()).await;
    }
}

async fn given_up_and_replayed_it_goes_to_the_end(kit: &Kit) {
    let all = three(kit, OnDead::Block).await;
    kit.run_to(all[0], dead("no")).await;
    kit.store.dead_note(&[all[0]], "ada", "", Some(Triage::Abandoned), None).await.unwrap();
    kit.store.dead_replay(&[all[0]], "ada".into(), None).await.unwrap();
    for id in [all[1], all[2], all[0]] {
        kit.run_to(id, done()).await;
    }
}

async fn a_dead_one_that_is_forgotten_lets_the_others_pass(kit: &Kit) {
    let all = three(kit, OnDead::Block).await;
    kit.run_to(all[0], dead("no")).await;
    assert_eq!(kit.store.purge(&[all[0], all[1]]).await.unwrap(), 1, "what waits is not forgotten");
    assert_eq!(kit.store.job(all[0]).await.unwrap(), None);
    kit.run_to(all[1], done()).await;
    assert_eq!(kit.store.purge(&[all[1]]).await.unwrap(), 1);
    kit.run_to(all[2], done()).await;
}

async fn calling_off_the_first_lets_the_next_pass(kit: &Kit) {
    let all = three(kit, OnDead::Block).await;
    let answers = kit.store.cancel(vec![all[0]], "enough").await.unwrap();
    assert_eq!(answers, [CancelAnswer::Cancelled]);
    assert_eq!(states(kit, all).await, [State::Cancelled, State::Ready, State::Blocked]);
}

async fn calling_off_one_in_the_middle_closes_the_gap(kit: &Kit) {
    let all = three(kit, OnDead::Block).await;
    let answers = kit.store.cancel(vec![all[1]], "enough").await.unwrap();
    assert_eq!(answers, [CancelAnswer::Cancelled]);
    assert_eq!(states(kit, all).await, [State::Ready, State::Cancelled, State::Blocked]);
    assert_eq!(kit.view(all[1]).await.error.as_deref(), Some("enough"));
    assert_eq!(kit.store.cancel(vec![all[1]], "twice").await.unwrap(), [CancelAnswer::Finished]);
    assert_eq!(kit.store.line(all[2]).await.unwrap().unwrap().ahead, 1);
    kit.run_to(all[0], done()).await;
    kit.run_to(all[2], done()).await;
}

async fn calling_off_a_whole_line_empties_it(kit: &Kit) {
    let all = three(kit, OnDead::Block).await;
    let answers = kit.store.cancel(all.to_vec(), "enough").await.unwrap();
    assert_eq!(answers, [CancelAnswer::Cancelled; 3]);
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 0);
    kit.finish(ordered("order:42", OnDead::Block), done()).await;
}

async fn calling_off_the_running_one_waits_for_its_end(kit: &Kit) {
    for (end, settled) in [
        (retry(HOUR, 1), Settled::Cancelled),
        (cancelled("told"), Settled::Accepted),
        (done(), Settled::Accepted),
    ] {
        let all = three(kit, OnDead::Block).await;
        let worker = kit.worker().await;
        let claim = kit.take_one(worker).await;
        let answers = kit.store.cancel(vec![all[0]], "enough").await.unwrap();
        assert_eq!(answers, [CancelAnswer::Requested]);
        assert_eq!(kit.state(all[1]).await, State::Blocked, "it still runs");
        assert_eq!(kit.settle(worker, &claim, end).await, settled);
        kit.run_to(all[1], done()).await;
        kit.run_to(all[2], done()).await;
    }
}

async fn a_poisoned_one_blocks_or_skips(kit: &Kit) {
    for (on_dead, next) in [(OnDead::Skip, State::Ready), (OnDead::Block, State::Blocked)] {
        let all = three(kit, on_dead).await;
        for loss in 1..=3 {
            let worker = kit.worker().await;
            assert_eq!(ids(&kit.take(worker, 9).await), [all[0]]);
            assert_eq!(kit.lose_workers().await.poisoned, u64::from(loss == 3));
        }
        assert_eq!(states(kit, all).await, [State::Dead, next, State::Blocked]);
        kit.store.cancel(all[1..].to_vec(), "enough").await.unwrap();
    }
}

async fn a_rescued_one_that_was_called_off_lets_the_next_pass(kit: &Kit) {
    let all = three(kit, OnDead::Block).await;
    let worker = kit.worker().await;
    kit.take_one(worker).await;
    kit.store.cancel(vec![all[0]], "enough").await.unwrap();
    assert_eq!(kit.lose_workers().await.cancelled, 1);
    assert_eq!(states(kit, all).await, [State::Cancelled, State::Ready, State::Blocked]);
}

async fn several_lines_go_on_in_one_settle(kit: &Kit) {
    let mut lines = Vec::new();
    for key in ["a", "b", "c", "d"] {
        let on_dead = if key == "d" { OnDead::Block } else { OnDead::Skip };
        lines.push([kit.put(ordered(key, on_dead)).await, kit.put(ordered(key, on_dead)).await]);
    }
    let worker = kit.worker().await;
    let claim = kit.take(worker, 9).await;
    assert_eq!(claim.jobs.len(), 4);
    let ends = [done(), cancelled("x"), dead("y"), dead("z")];
    let items = ends.into_iter().enumerate().map(|(at, end)| item(&claim, at, end)).collect();
    assert_eq!(kit.store.settle(worker, items).await.unwrap(), [Settled::Accepted; 4]);
    let mut behind = Vec::new();
    for [_, next] in lines {
        behind.push(kit.state(next).await);
    }
    assert_eq!(behind, [State::Ready, State::Ready, State::Ready, State::Blocked]);
}

async fn one_that_is_marked_done_lets_the_next_pass(kit: &Kit) {
    let flow =
        start(kit, vec![Step::new("a", Work::Jobs(vec![ordered("line", OnDead::Block)]))]).await;
    let worker = kit.worker().await;
    let first = kit.take_one(worker).await;
    let next = kit.put(ordered("line", OnDead::Block)).await;
    kit.settle(worker, &first, dead("no")).await;
    tend(kit).await;
    assert_eq!(kit.state(next).await, State::Blocked);
    let act = FlowAct::Resolve {
        step: "a".into(),
        output: None,
        by: "ada".into(),
        why: "it is seen to".into(),
    };
    let answer = kit.store.change_flow(flow, act).await.unwrap();
    assert_eq!(answer, FlowAnswer::Acted { jobs: 1 });
    assert_eq!(kit.state(ids(&first)[0]).await, State::Done);
    assert_eq!(ids(&kit.take_one(worker).await), [next]);
}
