//! Runs: journals that only a lease may write, mail that nobody loses, waits that end.

use tidemill_core::job::outcome::Waiting;
use tidemill_core::workflow::{Content, Waits};
use tidemill_core::{JobId, NewJob, OnDead, OnDuplicate, Payload, Scope, Settlement, State};
use tidemill_store::run::{Append, Room, RunAct, RunOrder, RunWrites, Signal, SignalAnswer};
use tidemill_store::{Claim, Receipt, Settled};

use super::kit::*;

over_both_stores!(
    a_journal_is_written_in_order_and_sent_again_is_kept_once,
    a_lost_lease_writes_nothing,
    a_run_that_comes_further_is_not_poison_however_many_workers_it_loses,
    a_run_that_waits_is_woken_by_mail_alone,
    mail_that_came_before_the_wait_ends_it_at_once,
    mail_does_not_cut_short_what_came_after_the_wait,
    signals_are_numbered_in_their_order_and_sent_once,
    the_end_of_a_child_reaches_its_parent,
    the_end_of_a_child_reaches_its_parent_that_is_settled_with_it,
    a_child_whose_parent_is_forgotten_ends_in_peace,
    a_run_that_ends_badly_is_noted_if_it_owes_something,
    a_claim_says_whether_something_is_kept_of_a_run,
    a_run_that_has_begun_is_not_replaced,
    nor_is_one_that_waits_in_its_line,
    what_is_kept_of_a_run_is_forgotten_with_its_job,
);

fn entries(numbers: impl IntoIterator<Item = u32>) -> RunWrites {
    let entries = numbers.into_iter().map(|n| (n, format!(r#"{{"woke":{{"key":"{n}"}}}}"#)));
    RunWrites { begins: Some("v1".to_owned()), entries: entries.collect(), ..RunWrites::default() }
}

fn append(claim: &Claim, writes: RunWrites) -> Vec<Append> {
    let token = claim.token.expect("a claim with jobs has a token");
    vec![Append { job: claim.jobs[0].job.id, token, writes }]
}

fn waits(mail_min: usize, read: i64) -> Settlement {
    let waits = Waits { until: None, mail_min, what: vec!["signal x".to_owned()] };
    Settlement::Wait(Box::new(Waiting { waits, read, spent: 0, parked: None }))
}

fn signal(to: JobId, name: &str, id: Option<&str>) -> Signal {
    Signal { to, name: name.to_owned(), payload: Payload::null(), id: id.map(str::to_owned) }
}

async fn numbers(kit: &Kit, job: JobId) -> Vec<u32> {
    kit.store.journal(job).await.unwrap().0.iter().map(|row| row.number).collect()
}

async fn a_journal_is_written_in_order_and_sent_again_is_kept_once(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    let claim = kit.take(worker, 1).await;
    for writes in [entries([0, 1]), entries([1, 2]), entries([5])] {
        assert_eq!(kit.store.append(worker, append(&claim, writes)).await.unwrap(), [true]);
    }
    let forget = RunWrites { forget: vec![1], ..RunWrites::default() };
    assert_eq!(kit.store.append(worker, append(&claim, forget)).await.unwrap(), [true]);
    assert_eq!(numbers(kit, id).await, [0, 2, 5]);
    let run = kit.store.journal(id).await.unwrap().1.unwrap();
    assert_eq!((run.job, run.version.as_str()), (id, "v1"));
}

async fn a_lost_lease_writes_nothing(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    let claim = kit.take(worker, 1).await;
    kit.store.deregister(worker).await.unwrap();
    let child = NewJob { options: adopted(id), ..job("child") };
    let writes = RunWrites { children: vec![child], owes: true, ..entries([0]) };
    assert_eq!(kit.store.append(worker, append(&claim, writes)).await.unwrap(), [false]);
    assert_eq!(kit.store.append(worker, append(&claim, entries([0]))).await.unwrap(), [false]);
    let (journal, run) = kit.store.journal(id).await.unwrap();
    assert!(journal.is_empty() && run.is_none(), "{run:?}");
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 1, "there is no child");
}

fn adopted(parent: JobId) -> tidemill_core::Options {
    tidemill_core::Options { parent: Some(parent), ..tidemill_core::Options::default() }
}

async fn a_run_that_comes_further_is_not_poison_however_many_workers_it_loses(kit: &Kit) {
    let id = kit.put(job("k")).await;
    for number in 0..5 {
        let worker = kit.worker().await;
        let claim = kit.take_one(worker).await;
        let writes = append(&claim, entries([number]));
        assert_eq!(kit.store.append(worker, writes).await.unwrap(), [true]);
        assert_eq!(kit.lose_workers().await.ready, 1);
        assert_eq!(kit.view(id).await.lost, 1);
    }
    // From here on it comes no further.
    let worker = kit.worker().await;
    kit.take_one(worker).await;
    assert_eq!(kit.lose_workers().await.ready, 1);
    assert_eq!(kit.view(id).await.lost, 2);
    let worker = kit.worker().await;
    kit.take_one(worker).await;
    assert_eq!(kit.lose_workers().await.poisoned, 1);
    let view = kit.view(id).await;
    assert_eq!((view.state, view.lost), (State::Dead, 3));
}

async fn a_run_that_waits_is_woken_by_mail_alone(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    let claim = kit.take(worker, 1).await;
    kit.store.settle(worker, vec![item(&claim, 0, waits(2, 0))]).await.unwrap();
    assert_eq!(kit.state(id).await, State::Blocked);
    assert!(kit.take(worker, 1).await.jobs.is_empty());
    kit.store.signal(None, vec![signal(id, "x", None)], Room::default()).await.unwrap();
    assert!(kit.take(worker, 1).await.jobs.is_empty(), "two pieces are of use");
    kit.store.signal(None, vec![signal(id, "x", None)], Room::default()).await.unwrap();
    let claim = kit.take(worker, 1).await;
    assert_eq!((claim.jobs.len(), claim.jobs[0].attempt), (1, 1), "no attempt is spent");
}

async fn mail_that_came_before_the_wait_ends_it_at_once(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    let claim = kit.take(worker, 1).await;
    kit.store.signal(None, vec![signal(id, "x", None)], Room::default()).await.unwrap();
    kit.store.settle(worker, vec![item(&claim, 0, waits(1, 0))]).await.unwrap();
    let claim = kit.take(worker, 1).await;
    assert_eq!(claim.jobs.len(), 1, "it had not read that piece");
    kit.store.settle(worker, vec![item(&claim, 0, waits(1, 1))]).await.unwrap();
    assert!(kit.take(worker, 1).await.jobs.is_empty(), "now it has");
}

async fn mail_does_not_cut_short_what_came_after_the_wait(kit: &Kit) {
    for after in [retry(HOUR, 1), Settlement::Again { delay: HOUR, spent: 0, failure: None }] {
        let id = kit.put(job("k")).await;
        let until = kit.store.now().await.unwrap() + SECOND;
        let waits = Waits { until: Some(until), mail_min: 1, what: vec!["signal x".to_owned()] };
        let waiting = Waiting { waits, read: 0, spent: 0, parked: None };
        kit.run_to(id, Settlement::Wait(Box::new(waiting))).await;
        kit.clock.advance(SECOND);
        kit.run_to(id, after).await;
        let sent = vec![signal(id, "x", None)];
        kit.store.signal(None, sent, Room::default()).await.unwrap();
        assert_eq!(kit.state(id).await, State::Scheduled, "it waits for the clock alone");
        kit.store.cancel(vec![id], "seen").await.unwrap();
    }
}

async fn signals_are_numbered_in_their_order_and_sent_once(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let unknown = JobId::new();
    let sent = vec![
        signal(id, "a", Some("1")),
        signal(unknown, "a", None),
        signal(id, "b", None),
        signal(id, "a", Some("1")),
    ];
    let (_, answers) = kit.store.signal(None, sent, Room::default()).await.unwrap();
    let kept = SignalAnswer::Kept;
    assert_eq!(answers, [kept, SignalAnswer::Unknown, kept, kept]);
    kit.store
        .signal(None, vec![signal(id, "a", Some("1")), signal(id, "c", None)], Room::default())
        .await
        .unwrap();
    let mail = kit.store.mail(id, 0).await.unwrap();
    let names = mail.iter().map(|mail| match &mail.content {
        Content::Signal { name, .. } => (mail.number, name.as_str()),
        Content::Child(_) | Content::Taken => (mail.number, "no signal"),
    });
    assert_eq!(names.collect::<Vec<_>>(), [(1, "a"), (2, "b"), (3, "c")]);
    assert_eq!(kit.store.mail(id, 2).await.unwrap().len(), 1);
}

async fn the_end_of_a_child_reaches_its_parent(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("parent")).await;
    let claim = kit.take(worker, 1).await;
    let children: Vec<NewJob> =
        (0..3).map(|_| NewJob { options: adopted(id), ..job("child") }).collect();
    let ids: Vec<JobId> = children.iter().map(|child| child.id).collect();
    let mut parent = item(&claim, 0, waits(3, 0));
    parent.run = Some(Box::new(RunWrites { children, owes: true, ..entries([0]) }));
    assert_eq!(kit.store.settle(worker, vec![parent]).await.unwrap(), [Settled::Accepted]);
    let claim = kit.take(worker, 10).await;
    assert_eq!(claim.jobs.len(), 3);
    let died = dead("bad");
    let output = Settlement::Done { output: json("7"), follow_ups: Vec::new() };
    let at = |id: JobId| claim.jobs.iter().position(|taken| taken.job.id == id).unwrap();
    kit.store
        .settle(worker, vec![item(&claim, at(ids[0]), output), item(&claim, at(ids[1]), died)])
        .await
        .unwrap();
    assert!(kit.take(worker, 1).await.jobs.is_empty(), "one is left");
    kit.store.cancel(vec![ids[2]], "no").await.unwrap();
    let off = cancelled("no");
    kit.store.settle(worker, vec![item(&claim, at(ids[2]), off)]).await.unwrap();
    assert_eq!(kit.take(worker, 1).await.jobs[0].job.id, id);
    let mut ends: Vec<_> =
        kit.store.mail(id, 0).await.unwrap().into_iter().map(|mail| mail.content).collect();
    ends.sort_by_key(|end| match end {
        Content::Child(end) => ids.iter().position(|id| *id == end.id),
        Content::Signal { .. } | Content::Taken => None,
    });
    let states = ends.iter().map(|end| match end {
        Content::Child(end) => {
            (end.state, end.output.as_ref().map(|output| output.as_str().to_owned()))
        }
        Content::Signal { .. } | Content::Taken => panic!("nobody sent a signal"),
    });
    let seven = Some("7".to_owned());
    assert_eq!(
        states.collect::<Vec<_>>(),
        [(State::Done, seven), (State::Dead, None), (State::Cancelled, None)]
    );
}

async fn the_end_of_a_child_reaches_its_parent_that_is_settled_with_it(kit: &Kit) {
    let worker = kit.worker().await;
    for is_child_first in [true, false] {
        let id = kit.put(job("parent")).await;
        let claim = kit.take(worker, 1).await;
        let child = NewJob { options: adopted(id), ..job("child") };
        let mut parent = item(&claim, 0, waits(1, 0));
        parent.run =
            Some(Box::new(RunWrites { children: vec![child], owes: true, ..entries([0]) }));
        kit.store.settle(worker, vec![parent]).await.unwrap();
        let of_child = kit.take(worker, 1).await;
        kit.store.signal(None, vec![signal(id, "x", None)], Room::default()).await.unwrap();
        let of_parent = kit.take(worker, 1).await;
        assert_eq!(of_parent.jobs[0].job.id, id);
        let mut items = vec![item(&of_child, 0, done()), item(&of_parent, 0, waits(1, 1))];
        if !is_child_first {
            items.reverse();
        }
        let settled = kit.store.settle(worker, items).await.unwrap();
        assert_eq!(settled, [Settled::Accepted, Settled::Accepted]);
        let again = kit.take(worker, 1).await;
        let woken = again.jobs.iter().map(|taken| taken.job.id);
        assert_eq!(woken.collect::<Vec<_>>(), [id], "child first: {is_child_first}");
        kit.store.settle(worker, vec![item(&again, 0, done())]).await.unwrap();
    }
}

async fn a_child_whose_parent_is_forgotten_ends_in_peace(kit: &Kit) {
    let worker = kit.worker().await;
    let parent = kit.finish(job("parent"), done()).await;
    kit.put(NewJob { options: adopted(parent), ..job("child") }).await;
    assert_eq!(kit.store.purge(&[parent]).await.unwrap(), 1);
    let claim = kit.take(worker, 1).await;
    assert_eq!(kit.settle(worker, &claim, done()).await, Settled::Accepted);
    assert!(kit.store.journal(parent).await.unwrap().1.is_none());
    assert!(kit.store.mail(parent, 0).await.unwrap().is_empty());
}

async fn a_run_that_ends_badly_is_noted_if_it_owes_something(kit: &Kit) {
    let worker = kit.worker().await;
    let mut owing = Vec::new();
    for (owes, settlement) in
        [(true, done()), (false, dead("bad")), (true, dead("bad")), (true, cancelled("no"))]
    {
        let id = kit.put(job("k")).await;
        let claim = kit.take(worker, 1).await;
        if owes && !matches!(settlement, Settlement::Done { .. }) {
            owing.push(id);
        }
        let mut item = item(&claim, 0, settlement);
        item.run = Some(Box::new(RunWrites { owes, ..entries([0]) }));
        kit.store.settle(worker, vec![item]).await.unwrap();
    }
    let debts = kit.store.debts(None, 10).await.unwrap();
    assert_eq!(debts.iter().map(|debt| debt.job).collect::<Vec<_>>(), owing);
    assert_eq!(kit.store.debts(None, 1).await.unwrap(), debts[..1]);
    assert_eq!(kit.store.debts(Some(debts[0]), 10).await.unwrap(), debts[1..]);
    assert_eq!(kit.store.purge(&owing).await.unwrap(), 0, "their journals are needed");
    assert!(kit.store.undo_run(debts[0]).await.unwrap());
    for debt in &debts {
        assert!(kit.store.pay(*debt, &[], "").await.unwrap());
    }
    assert!(kit.store.debts(None, 10).await.unwrap().is_empty());
    assert!(kit.store.journal(owing[0]).await.unwrap().1.unwrap().undone);
    assert!(!kit.store.journal(owing[1]).await.unwrap().1.unwrap().undone);
}

async fn a_claim_says_whether_something_is_kept_of_a_run(kit: &Kit) {
    let worker = kit.worker().await;
    kit.put(job("k")).await;
    let claim = kit.take(worker, 1).await;
    assert!(!claim.jobs[0].has_run);
    kit.store.append(worker, append(&claim, entries([0]))).await.unwrap();
    let again = Settlement::Again { delay: std::time::Duration::ZERO, spent: 0, failure: None };
    kit.store.settle(worker, vec![item(&claim, 0, again)]).await.unwrap();
    let claim = kit.take(worker, 1).await;
    assert!(claim.jobs[0].has_run && claim.jobs[0].attempt == 1);
}

async fn what_is_kept_of_a_run_is_forgotten_with_its_job(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    kit.store.signal(None, vec![signal(id, "x", None)], Room::default()).await.unwrap();
    let claim = kit.take(worker, 1).await;
    let mut item = item(&claim, 0, done());
    item.run = Some(Box::new(entries([0])));
    kit.store.settle(worker, vec![item]).await.unwrap();
    assert_eq!(kit.store.purge(&[id]).await.unwrap(), 1);
    let (journal, run) = kit.store.journal(id).await.unwrap();
    assert!(journal.is_empty() && run.is_none() && kit.store.mail(id, 0).await.unwrap().is_empty());
}

/// Whether it waits by itself, or because somebody has paused it before it began.
async fn a_run_that_has_begun_is_not_replaced(kit: &Kit) {
    let worker = kit.worker().await;
    for policy in [OnDuplicate::Replace, OnDuplicate::Debounce, OnDuplicate::RunOnceMore] {
        for has_begun in [true, false] {
            let of = |text| with_payload(unique(policy.word(), Scope::Unfinished, policy), text);
            let id = kit.put(of("1")).await;
            let claim = kit.take_one(worker).await;
            if has_begun {
                let written = kit.store.append(worker, append(&claim, entries([0]))).await;
                assert_eq!(written.unwrap(), [true]);
            }
            kit.settle(worker, &claim, waits(1, 0)).await;
            if !has_begun {
                let (act, by, why) = (RunAct::Pause, "ann".to_owned(), "look".to_owned());
                kit.store.change_run(id, RunOrder { act, by, why }).await.unwrap();
            }
            let (former, second) = (kit.view(id).await, of("2"));
            let kept = second.id;
            let expected = match policy {
                OnDuplicate::Replace => Receipt::Joined { id },
                _ => Receipt::Kept { id: kept },
            };
            assert_eq!(kit.enqueue(second).await, expected, "{policy:?} {has_begun}");
            assert_eq!(kit.view(id).await, former, "it stays as it is: {policy:?} {has_begun}");
            assert!(kit.take(worker, 1).await.jobs.is_empty());
            kit.store.cancel(vec![id], "next").await.unwrap();
            if policy != OnDuplicate::Replace {
                assert_eq!(kit.state(kept).await, State::Ready, "its turn has come");
                kit.store.cancel(vec![kept], "next").await.unwrap();
            }
        }
    }
}

async fn nor_is_one_that_waits_in_its_line(kit: &Kit) {
    let worker = kit.worker().await;
    for policy in [OnDuplicate::Replace, OnDuplicate::Debounce, OnDuplicate::RunOnceMore] {
        let in_line = || ordered(policy.word(), OnDead::Skip);
        let of = |text| {
            let unique = unique(policy.word(), Scope::Unfinished, policy).unique;
            with_payload(NewJob { unique, ..in_line() }, text)
        };
        let id = kit.put(of("1")).await;
        let next = kit.put(in_line()).await;
        let claim = kit.take_one(worker).await;
        let written = kit.store.append(worker, append(&claim, entries([0]))).await;
        assert_eq!(written.unwrap(), [true]);
        kit.settle(worker, &claim, dead("x")).await;
        assert_eq!(kit.store.dead_replay(&[id], "ada".into(), None).await.unwrap(), [id]);
        let (former, second) = (kit.view(id).await, of("2"));
        assert_eq!(former.state, State::Blocked, "behind the one that has come to the head");
        let kept = second.id;
        let expected = match policy {
            OnDuplicate::Replace => Receipt::Joined { id },
            _ => Receipt::Kept { id: kept },
        };
        assert_eq!(kit.enqueue(second).await, expected, "{policy:?}");
        assert_eq!(kit.view(id).await, former, "it stays as it is: {policy:?}");
        kit.store.cancel(vec![id, next], "next").await.unwrap();
        if policy != OnDuplicate::Replace {
            assert_eq!(kit.state(kept).await, State::Ready, "its turn has come");
            kit.store.cancel(vec![kept], "next").await.unwrap();
        }
    }
}
