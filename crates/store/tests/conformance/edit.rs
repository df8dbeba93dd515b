//! Changes of jobs that wait: in order in their new band, wherever they waited; nothing of what runs or has finished.

use std::sync::Arc;

use tidemill_core::flow::Work;
use tidemill_core::gate::Per;
use tidemill_core::job::edit::{Changes, Edit};
use tidemill_core::{
    Due, JobId, Limits, NewJob, OnDead, OnDuplicate, OwnRetry, Priority, Scope, State,
};
use tidemill_store::{ClaimRequest, EditAnswer, Receipt, Settled};

use super::flows::{many, start, step, tend};
use super::kit::{
    HOUR, Kit, SECOND, ask, done, hears, ids, job, ordered, ready, retry, unique, with_payload,
};

use super::limits::{at_once, of_key};

over_both_stores!(
    a_job_moves_to_its_new_band_in_order,
    one_of_many_in_a_batch_moves,
    one_that_waits_for_the_clock_moves,
    one_that_waits_in_a_line_moves,
    one_that_is_kept_for_after_another_moves,
    one_whose_step_of_a_flow_is_not_opened_moves_alone,
    one_that_is_held_at_a_gate_moves_and_is_held_again,
    one_that_runs_or_has_finished_stays_as_it_is,
    a_move_is_told,
    payload_and_wishes_are_changed,
    a_change_of_what_is_no_more_changes_nothing,
    a_change_and_a_claim_at_the_same_time_agree,
);

async fn to(kit: &Kit, id: JobId, priority: Priority) -> EditAnswer {
    kit.store.edit(id, &Edit::to(priority)).await.unwrap()
}

fn change(text: &str) -> Edit {
    let changes: Changes = serde_json::from_str(text).unwrap();
    Edit::new(changes, &Limits::default()).unwrap()
}

fn of(priority: Priority) -> NewJob {
    NewJob { priority, ..job("k") }
}

async fn a_job_moves_to_its_new_band_in_order(kit: &Kit) {
    let mut sent = Vec::new();
    for priority in [Priority::High, Priority::Low, Priority::High, Priority::Low] {
        sent.push(kit.put(of(priority)).await);
        kit.clock.advance(SECOND);
    }
    // Claims have looked at the band, and may remember where they were.
    let worker = kit.worker().await;
    let first = kit.take_one(worker).await;
    assert_eq!(ids(&first), [sent[0]]);
    for _ in 0..2 {
        assert_eq!(to(kit, sent[1], Priority::High).await, EditAnswer::Edited, "twice is once");
    }
    let view = kit.view(sent[1]).await;
    assert_eq!((view.state, view.job.priority), (State::Ready, Priority::High));
    let rest = kit.take(worker, 9).await;
    assert_eq!(ids(&rest), [sent[1], sent[2], sent[3]], "by its due time");
    assert_eq!(rest.jobs[0].job.priority, Priority::High);
    assert_eq!(to(kit, sent[3], Priority::Urgent).await, EditAnswer::Running);
}

async fn one_of_many_in_a_batch_moves(kit: &Kit) {
    let jobs: Vec<_> = (0..120).map(|_| job("k")).collect();
    let sent: Vec<_> = jobs.iter().map(|job| job.id).collect();
    kit.store.enqueue(jobs).await.unwrap();
    let worker = kit.worker().await;
    kit.take(worker, 30).await;
    for at in [30, 50, 119] {
        assert_eq!(to(kit, sent[at], Priority::Urgent).await, EditAnswer::Edited);
    }
    assert_eq!(to(kit, sent[29], Priority::Urgent).await, EditAnswer::Running);
    let mut expected = vec![sent[30], sent[50], sent[119]];
    expected.extend((31..119).filter(|at| *at != 50).map(|at| sent[at]));
    assert_eq!(ids(&kit.take(worker, 999).await), expected);
}

async fn one_that_waits_for_the_clock_moves(kit: &Kit) {
    let later = kit.put(NewJob { due: Due::In(HOUR), ..job("k") }).await;
    let retrying = kit.put(job("k")).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    kit.settle(worker, &claim, retry(HOUR, 1)).await;
    for id in [later, retrying] {
        let before = kit.view(id).await;
        assert_eq!(to(kit, id, Priority::Urgent).await, EditAnswer::Edited);
        let after = kit.view(id).await;
        assert_eq!((after.state, after.due_at), (State::Scheduled, before.due_at));
        assert_eq!((after.attempt, after.error), (before.attempt, before.error));
    }
    assert!(kit.take(worker, 9).await.jobs.is_empty());
    kit.clock.advance(HOUR);
    let other = kit.put(of(Priority::High)).await;
    let claim = kit.take(worker, 9).await;
    assert_eq!(ids(&claim)[2], other, "after both that are urgent");
    let spent = claim.jobs.iter().find(|taken| taken.job.id == retrying).unwrap().attempt;
    assert_eq!(spent, 2, "a retry stays one");
}

async fn one_that_waits_in_a_line_moves(kit: &Kit) {
    let head = kit.put(ordered("c", OnDead::Block)).await;
    let behind = kit.put(ordered("c", OnDead::Block)).await;
    assert_eq!(to(kit, behind, Priority::Urgent).await, EditAnswer::Edited);
    assert_eq!(kit.state(behind).await, State::Blocked, "it keeps its place in the line");
    let other = kit.put(of(Priority::High)).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 9).await;
    assert_eq!(ids(&claim), [other, head]);
    let item = super::kit::item(&claim, 1, done());
    kit.store.settle(worker, vec![item]).await.unwrap();
    let last = kit.put(of(Priority::High)).await;
    assert_eq!(ids(&kit.take(worker, 9).await), [behind, last]);
}

async fn one_that_is_kept_for_after_another_moves(kit: &Kit) {
    let wish = || unique("u", Scope::Unfinished, OnDuplicate::RunOnceMore);
    kit.put(wish()).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    let Receipt::Kept { id } = kit.enqueue(wish()).await else { panic!("it is kept") };
    assert_eq!(to(kit, id, Priority::Urgent).await, EditAnswer::Edited);
    let other = kit.put(of(Priority::High)).await;
    kit.settle(worker, &claim, done()).await;
    assert_eq!(ids(&kit.take(worker, 9).await), [id, other]);
}

async fn one_whose_step_of_a_flow_is_not_opened_moves_alone(kit: &Kit) {
    let last = many("b", 3, &["a"]);
    let Work::Jobs(jobs) = &last.work else { panic!("it has jobs") };
    let blocked: Vec<_> = jobs.iter().map(|job| job.id).collect();
    start(kit, vec![step("a", &[]), last]).await;
    assert_eq!(kit.state(blocked[1]).await, State::Blocked);
    assert_eq!(to(kit, blocked[1], Priority::Urgent).await, EditAnswer::Edited);
    assert_eq!(kit.state(blocked[1]).await, State::Blocked);
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    kit.settle(worker, &claim, done()).await;
    tend(kit).await;
    let other = kit.put(of(Priority::High)).await;
    let claim = kit.take(worker, 9).await;
    assert_eq!(ids(&claim)[..2], [blocked[1], other], "the others of its step stay normal");
    assert_eq!(claim.jobs.len(), 4);
    let items = (0..4).map(|at| super::kit::item(&claim, at, done())).collect();
    for answer in kit.store.settle(worker, items).await.unwrap() {
        assert_eq!(answer, Settled::Accepted);
    }
}

async fn one_that_is_held_at_a_gate_moves_and_is_held_again(kit: &Kit) {
    let limits = Arc::new(vec![at_once(Per::Key, 1)]);
    let take = async |worker| {
        let limits = Arc::clone(&limits);
        kit.store.claim(ClaimRequest { limits, ..ask(worker, "default", 9) }).await.unwrap()
    };
    let mut sent = Vec::new();
    for _ in 0..3 {
        sent.push(kit.put(of_key("c")).await);
    }
    let worker = kit.worker().await;
    let first = take(worker).await;
    assert_eq!(ids(&first), [sent[0]]);
    assert!(kit.view(sent[2]).await.gate.is_some(), "it is held");
    assert_eq!(to(kit, sent[2], Priority::Urgent).await, EditAnswer::Edited);
    assert_eq!(kit.view(sent[2]).await.state, State::Ready);
    assert!(take(worker).await.jobs.is_empty(), "nobody passes whom the limit holds");
    kit.settle(worker, &first, done()).await;
    let mut heard = kit.store.wake().listen();
    let next = loop {
        let claim = take(worker).await;
        if !claim.jobs.is_empty() {
            break claim;
        }
        hears(&mut heard, |_| true).await;
    };
    assert_eq!(next.jobs.len(), 1);
}

async fn one_that_runs_or_has_finished_stays_as_it_is(kit: &Kit) {
    for end in [done(), super::kit::dead("x"), super::kit::cancelled("y")] {
        let id = kit.finish(job("k"), end).await;
        let before = kit.view(id).await;
        assert_eq!(to(kit, id, Priority::Low).await, EditAnswer::Finished);
        assert_eq!(kit.view(id).await, before);
    }
    let id = kit.put(job("k")).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    assert_eq!(to(kit, id, Priority::Low).await, EditAnswer::Running);
    assert_eq!(kit.view(id).await.job.priority, Priority::Normal);
    kit.settle(worker, &claim, retry(SECOND, 1)).await;
    assert_eq!(to(kit, id, Priority::Low).await, EditAnswer::Edited, "it waits again");
    assert_eq!(to(kit, JobId::new(), Priority::Low).await, EditAnswer::Unknown);
}

async fn a_move_is_told(kit: &Kit) {
    let id = kit.put(NewJob { queue: "q".into(), ..job("k") }).await;
    let mut heard = kit.store.wake().listen();
    to(kit, id, Priority::High).await;
    hears(&mut heard, |hint| *hint == ready("q")).await;
}

async fn payload_and_wishes_are_changed(kit: &Kit) {
    let id = kit.put(with_payload(job("k"), r#"{"n":1}"#)).await;
    let second = kit.put(job("k")).await;
    let text = r#"{"payload":{"n":9007199254740993},"attempts":3,"tags":["a"],"run_timeout":"1m"}"#;
    assert_eq!(kit.store.edit(id, &change(text)).await.unwrap(), EditAnswer::Edited);
    let worker = kit.worker().await;
    let claim = kit.take(worker, 9).await;
    assert_eq!(ids(&claim), [id, second], "it keeps its place");
    let taken = &claim.jobs[0].job;
    assert_eq!(taken.payload.as_str(), r#"{"n":9007199254740993}"#);
    assert_eq!(taken.options.retry.as_ref().unwrap(), &OwnRetry::attempts(3));
    assert_eq!((&taken.options.tags[0][..], taken.options.run_timeout_ms), ("a", Some(60_000)));
}

async fn a_change_of_what_is_no_more_changes_nothing(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let print = kit.view(id).await.job.print();
    let edit = |text: &str| change(text).only_of(Some(print.clone()));
    let first = kit.store.edit(id, &edit(r#"{"payload":1}"#)).await.unwrap();
    assert_eq!(first, EditAnswer::Edited);
    let second = kit.store.edit(id, &edit(r#"{"payload":2}"#)).await.unwrap();
    assert_eq!(second, EditAnswer::Changed);
    assert_eq!(kit.view(id).await.job.payload.as_str(), "1");
}

async fn a_change_and_a_claim_at_the_same_time_agree(kit: &Kit) {
    let worker = kit.worker().await;
    for _ in 0..20 {
        let id = kit.put(job("k")).await;
        let edit = change(r#"{"payload":"new","priority":"high"}"#);
        let (edited, claim) = tokio::join!(kit.store.edit(id, &edit), kit.take(worker, 1));
        let edited = edited.unwrap();
        let claim = if claim.jobs.is_empty() { kit.take_one(worker).await } else { claim };
        let payload = claim.jobs[0].job.payload.as_str();
        match edited {
            EditAnswer::Edited => assert_eq!(payload, "\"new\""),
            EditAnswer::Running => assert_eq!(payload, "null"),
            other => panic!("{other:?}"),
        }
        kit.settle(worker, &claim, done()).await;
    }
}
