//! Mailboxes have room for so many signals that nobody has taken: whoever takes one makes room, whoever forgets that it
//! was taken takes the room back.

use futures::future::join_all;
use tidemill_core::job::outcome::Waiting;
use tidemill_core::workflow::{Amend, Ending, Waits};
use tidemill_core::{JobId, NewJob, OnDuplicate, Options, Scope, Settlement, WorkerId};
use tidemill_store::run::{
    Append, PAGE_MAIL_MAX, Room, RunAct, RunAnswer, RunOrder, RunWrites, Signal, SignalAnswer,
};
use tidemill_store::{Claim, SettleItem, Settled};

use super::kit::*;

over_both_stores!(
    a_full_mailbox_refuses_signals_and_one_that_is_taken_makes_room,
    a_signal_that_is_there_is_not_refused_when_it_is_sent_again,
    many_who_signal_at_once_do_not_pass_the_bound,
    bytes_are_bounded_too,
    a_write_that_is_sent_again_makes_room_once,
    what_is_taken_with_the_end_is_not_unread,
    what_a_reset_forgets_is_unread_again_and_what_is_passed_over_is_not,
    a_fork_has_a_mailbox_of_its_own,
    ends_of_children_take_no_room,
    mail_is_read_in_pages,
    a_signal_that_finds_no_room_starts_nothing_more_and_leaves_the_job_that_stands_there,
);

const ROOM: Room = Room { signals_max: 3, bytes_max: 1000 };

fn signal(to: JobId, payload: &str, id: Option<&str>) -> Signal {
    let (name, payload) = ("x".to_owned(), json(payload));
    Signal { to, name, payload, id: id.map(str::to_owned) }
}

async fn send(kit: &Kit, id: JobId, room: Room) -> SignalAnswer {
    let (_, answers) = kit.store.signal(None, vec![signal(id, "1", None)], room).await.unwrap();
    answers[0]
}

async fn unread(kit: &Kit, id: JobId) -> u64 {
    kit.store.journal(id).await.unwrap().1.unwrap().signals_unread
}

/// The entry of this number takes a piece of mail.
fn takes(number: u32, mail: i64) -> (u32, String) {
    let text = format!(
        r#"{{"signalled":{{"key":"x#{mail}","name":"x","number":{mail},"payload":"a \"signalled\": b"}}}}"#
    );
    (number, text)
}

async fn hear(kit: &Kit, worker: WorkerId, claim: &Claim, entries: Vec<(u32, String)>) {
    let (job, token) = (claim.jobs[0].job.id, claim.token.unwrap());
    let begins = Some("v1".to_owned());
    let writes = RunWrites { begins, entries, ..RunWrites::default() };
    let held = kit.store.append(worker, vec![Append { job, token, writes }]).await.unwrap();
    assert_eq!(held, [true]);
}

fn waits() -> Settlement {
    let until = Some("2100-01-01T00:00:00Z".parse().unwrap());
    let waits = Waits { until, mail_min: 0, what: vec!["sleep".to_owned()] };
    Settlement::Wait(Box::new(Waiting { waits, read: 0, spent: 0, parked: None }))
}

async fn act(kit: &Kit, id: JobId, act: RunAct) {
    let order = RunOrder { act, by: "ann".to_owned(), why: String::new() };
    assert_eq!(kit.store.change_run(id, order).await.unwrap(), RunAnswer::Acted);
}

async fn mail_is_read_in_pages(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let signals = (0..PAGE_MAIL_MAX + 5).map(|n| signal(id, &n.to_string(), None)).collect();
    kit.store.signal(None, signals, Room::default()).await.unwrap();
    let page = async |after, limit| {
        let page = kit.store.mail_page(id, after, limit).await.unwrap();
        page.into_iter().map(|mail| mail.number).collect::<Vec<_>>()
    };
    assert_eq!(page(0, 3).await, [1, 2, 3]);
    assert_eq!(page(3, 2).await, [4, 5]);
    let last = (PAGE_MAIL_MAX + 5) as i64;
    assert_eq!(page(last - 1, 9).await, [last]);
    assert!(page(last, 9).await.is_empty());
    assert_eq!(page(0, usize::MAX).await.len(), PAGE_MAIL_MAX + 1);
    let all = kit.store.mail(id, 0).await.unwrap();
    let numbers: Vec<_> = all.iter().map(|mail| mail.number).collect();
    assert_eq!(numbers, (1..=last).collect::<Vec<_>>(), "each once, in order");
}

async fn a_full_mailbox_refuses_signals_and_one_that_is_taken_makes_room(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    for _ in 0..3 {
        assert_eq!(send(kit, id, ROOM).await, SignalAnswer::Kept);
    }
    assert_eq!(send(kit, id, ROOM).await, SignalAnswer::Full);
    assert_eq!(kit.store.mail(id, 0).await.unwrap().len(), 3, "nothing was kept of it");
    let claim = kit.take_one(worker).await;
    hear(kit, worker, &claim, vec![takes(0, 1), takes(1, 3)]).await;
    assert_eq!(unread(kit, id).await, 1);
    let many = vec![signal(id, "1", None); 3];
    let (_, answers) = kit.store.signal(None, many, ROOM).await.unwrap();
    assert_eq!(answers, [SignalAnswer::Kept, SignalAnswer::Kept, SignalAnswer::Full]);
    // With the settle, as with a write of its own.
    let mut item = item(&claim, 0, waits());
    item.run = Some(Box::new(RunWrites { entries: vec![takes(2, 2)], ..RunWrites::default() }));
    kit.store.settle(worker, vec![item]).await.unwrap();
    assert_eq!((unread(kit, id).await, send(kit, id, ROOM).await), (2, SignalAnswer::Kept));
}

async fn a_signal_that_is_there_is_not_refused_when_it_is_sent_again(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let room = Room { signals_max: 1, ..ROOM };
    let ask = async |sent: &[&str]| {
        let signals = sent.iter().map(|sent| signal(id, "1", Some(sent))).collect();
        kit.store.signal(None, signals, room).await.unwrap().1
    };
    let (kept, full) = (SignalAnswer::Kept, SignalAnswer::Full);
    assert_eq!(ask(&["a", "b", "a", "b"]).await, [kept, full, kept, full]);
    assert_eq!(ask(&["a"]).await, [kept]);
    assert_eq!((unread(kit, id).await, ask(&["b"]).await), (1, vec![full]));
}

async fn many_who_signal_at_once_do_not_pass_the_bound(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let other = kit.neighbour().await;
    let ask = async |at: usize| {
        let store = if at.is_multiple_of(2) { &kit.store } else { &other };
        store.signal(None, vec![signal(id, "1", None)], ROOM).await.unwrap().1[0]
    };
    let answers = join_all((0..16).map(ask)).await;
    let kept = answers.iter().filter(|answer| **answer == SignalAnswer::Kept).count();
    assert_eq!((kept, answers.len() - kept), (3, 13));
    assert_eq!((unread(kit, id).await, kit.store.mail(id, 0).await.unwrap().len()), (3, 3));
}

async fn bytes_are_bounded_too(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    let room = Room { signals_max: 100, bytes_max: 900 };
    let large = format!("\"{}\"", "x".repeat(400));
    let ask = async || {
        let signals = vec![signal(id, &large, None)];
        kit.store.signal(None, signals, room).await.unwrap().1[0]
    };
    assert_eq!((ask().await, ask().await), (SignalAnswer::Kept, SignalAnswer::Kept));
    assert_eq!(ask().await, SignalAnswer::Full);
    let claim = kit.take_one(worker).await;
    hear(kit, worker, &claim, vec![takes(0, 2)]).await;
    assert_eq!((ask().await, ask().await), (SignalAnswer::Kept, SignalAnswer::Full));
}

async fn a_write_that_is_sent_again_makes_room_once(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    for _ in 0..3 {
        send(kit, id, ROOM).await;
    }
    let claim = kit.take_one(worker).await;
    for _ in 0..2 {
        hear(kit, worker, &claim, vec![takes(0, 1), (1, r#"{"woke":{"key":"nap"}}"#.to_owned())])
            .await;
        assert_eq!(unread(kit, id).await, 2);
    }
    kit.store.deregister(worker).await.unwrap();
    let (job, token) = (id, claim.token.unwrap());
    let writes = RunWrites { entries: vec![takes(2, 2)], ..RunWrites::default() };
    let held = kit.store.append(worker, vec![Append { job, token, writes }]).await.unwrap();
    assert_eq!((held, unread(kit, id).await), (vec![false], 2), "a zombie takes nothing");
}

async fn what_is_taken_with_the_end_is_not_unread(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    for _ in 0..2 {
        send(kit, id, ROOM).await;
    }
    let claim = kit.take_one(worker).await;
    let (begins, entries) = (Some("v1".to_owned()), vec![takes(0, 1)]);
    let writes = RunWrites { begins, entries, ..RunWrites::default() };
    let last = SettleItem { run: Some(writes.into()), ..item(&claim, 0, done()) };
    assert_eq!(kit.store.settle(worker, vec![last]).await.unwrap(), [Settled::Accepted]);
    assert_eq!(unread(kit, id).await, 1);
}

async fn what_a_reset_forgets_is_unread_again_and_what_is_passed_over_is_not(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    for _ in 0..3 {
        send(kit, id, ROOM).await;
    }
    let claim = kit.take_one(worker).await;
    hear(kit, worker, &claim, vec![takes(0, 1), takes(1, 2), takes(2, 3)]).await;
    kit.settle(worker, &claim, waits()).await;
    assert_eq!(unread(kit, id).await, 0);
    act(kit, id, RunAct::Amend(Amend::Reset { to: "x#3".to_owned() })).await;
    assert_eq!(unread(kit, id).await, 1);
    let ending = Ending::Ok(json("null"));
    act(kit, id, RunAct::Amend(Amend::Skip { step: "x#2".to_owned(), ending })).await;
    assert_eq!(unread(kit, id).await, 1, "one that is passed over was taken");
    let output = json("2");
    act(kit, id, RunAct::Amend(Amend::Edit { step: "x#1".to_owned(), output })).await;
    assert_eq!(
        unread(kit, id).await,
        2,
        "the second is forgotten, the first carries something else"
    );
    act(kit, id, RunAct::Amend(Amend::Reset { to: "x#1".to_owned() })).await;
    assert_eq!((unread(kit, id).await, send(kit, id, ROOM).await), (3, SignalAnswer::Full));
}

async fn a_fork_has_a_mailbox_of_its_own(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    for _ in 0..3 {
        send(kit, id, ROOM).await;
    }
    let claim = kit.take_one(worker).await;
    hear(kit, worker, &claim, vec![takes(0, 1), takes(1, 2)]).await;
    kit.settle(worker, &claim, waits()).await;
    let into = JobId::new();
    act(kit, id, RunAct::Fork { to: "x#2".to_owned(), into, instead: false }).await;
    assert_eq!((unread(kit, id).await, unread(kit, into).await), (1, 0));
    for _ in 0..3 {
        assert_eq!(send(kit, into, ROOM).await, SignalAnswer::Kept);
    }
    // What the other took counts for nothing here, also when it is forgotten.
    let claim = kit.take_one(worker).await;
    assert_eq!(claim.jobs[0].job.id, into);
    kit.settle(worker, &claim, waits()).await;
    act(kit, into, RunAct::Amend(Amend::Reset { to: "x#1".to_owned() })).await;
    assert_eq!((unread(kit, into).await, send(kit, into, ROOM).await), (3, SignalAnswer::Full));
}

async fn ends_of_children_take_no_room(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("parent")).await;
    let claim = kit.take_one(worker).await;
    hear(kit, worker, &claim, Vec::new()).await;
    for _ in 0..4 {
        let options = Options { parent: Some(id), ..Options::default() };
        kit.put(NewJob { options, ..job("child") }).await;
        let child = kit.take_one(worker).await;
        kit.settle(worker, &child, done()).await;
    }
    assert_eq!((kit.store.mail(id, 0).await.unwrap().len(), unread(kit, id).await), (4, 0));
    assert_eq!(send(kit, id, ROOM).await, SignalAnswer::Kept);
}

async fn a_signal_that_finds_no_room_starts_nothing_more_and_leaves_the_job_that_stands_there(
    kit: &Kit,
) {
    let room = Room { signals_max: 1, ..ROOM };
    let ask = async || {
        let job = unique("one", Scope::Unfinished, OnDuplicate::Join);
        let sent = vec![signal(job.id, "1", None)];
        let (receipt, answers) = kit.store.signal(Some(job), sent, room).await.unwrap();
        (receipt.unwrap().id(), answers[0])
    };
    let (first, answer) = ask().await;
    assert_eq!(answer, SignalAnswer::Kept);
    assert_eq!(ask().await, (first, SignalAnswer::Full));
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 1);
}
