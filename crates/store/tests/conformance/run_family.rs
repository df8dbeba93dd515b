//! What runs owe, and their children: a dead run that owes something stays dead, nothing is built on what is undone,
//! and nobody waits for a child that there is not.

use tidemill_core::dead::RedriveRule;
use tidemill_core::job::outcome::Waiting;
use tidemill_core::retention::Retention;
use tidemill_core::workflow::{Amend, ChildEnd, Content, Entry, Waits};
use tidemill_core::{
    Due, JobId, Limits, NewJob, OnDuplicate, Options, Scope, Settlement, State, WorkerId,
};
use tidemill_store::Claim;
use tidemill_store::flow::Start;
use tidemill_store::run::{Append, Debt, RunAct, RunAnswer, RunOrder, RunWrites};

use super::flows::{flow_of, run, step, tend};
use super::kit::*;

over_both_stores!(
    a_dead_run_that_owes_something_is_not_replayed_before_that_is_seen_to,
    a_debt_is_paid_once_and_who_is_late_touches_nobody,
    a_run_is_undone_once_though_a_node_is_so_late_that_all_of_it_is_forgotten,
    a_fork_does_not_build_on_what_is_undone,
    children_that_a_reset_or_an_edit_forgets_are_called_off,
    a_child_whose_key_is_held_has_ended_before_it_began,
    a_child_that_was_turned_away_is_not_started_by_the_same_write_sent_again,
    a_child_is_kept_for_after_the_one_that_its_run_has_called_off,
);

async fn running(kit: &Kit, writes: RunWrites) -> (WorkerId, JobId, Claim) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    let claim = kit.take_one(worker).await;
    let begins = Some("v1".to_owned());
    append(kit, worker, &claim, RunWrites { begins, ..writes }).await;
    (worker, id, claim)
}

async fn append(kit: &Kit, worker: WorkerId, claim: &Claim, writes: RunWrites) {
    let append = vec![Append { job: ids(claim)[0], token: claim.token.unwrap(), writes }];
    assert_eq!(kit.store.append(worker, append).await.unwrap(), [true]);
}

/// The step `pay`, which can be undone, and then `a` have ended.
fn paid() -> RunWrites {
    let undo = r#"{"kind":"back","payload":null,"queue":"default"}"#;
    let entries = vec![
        (0, format!(r#"{{"began":{{"key":"pay","undo":{undo}}}}}"#)),
        (1, r#"{"ended":{"key":"pay","ending":{"ok":1}}}"#.to_owned()),
        (2, r#"{"ended":{"key":"a","ending":{"ok":1}}}"#.to_owned()),
    ];
    RunWrites { entries, owes: true, ..RunWrites::default() }
}

/// The one debt that there is.
async fn debt(kit: &Kit) -> Debt {
    let debts = kit.store.debts(None, 9).await.unwrap();
    let [debt] = debts[..] else { panic!("{debts:?}") };
    debt
}

fn any() -> RedriveRule {
    let name = "any".to_owned();
    let (kind, queue, class, error_contains) = (None, None, None, None);
    RedriveRule { name, kind, queue, class, error_contains, delay_ms: 0, redrives_max: 9 }
}

fn order(act: RunAct) -> RunOrder {
    RunOrder { act, by: "ann".to_owned(), why: "because".to_owned() }
}

async fn a_dead_run_that_owes_something_is_not_replayed_before_that_is_seen_to(kit: &Kit) {
    for is_undone in [false, true] {
        let (worker, id, claim) = running(kit, paid()).await;
        kit.settle(worker, &claim, dead("no")).await;
        let replay = async || kit.store.dead_replay(&[id], "op".into(), None).await.unwrap();
        assert!(replay().await.is_empty(), "what it did is about to be undone");
        assert_eq!(kit.state(id).await, State::Dead);
        // Nor does it stand before what a rule may send on.
        kit.clock.advance(SECOND);
        let other = kit.finish(job("k"), dead("no")).await;
        assert_eq!(kit.store.redrive(&any(), 1, "rule".into()).await.unwrap(), [other]);
        kit.store.cancel(vec![other], "enough").await.unwrap();
        let debt = debt(kit).await;
        if is_undone {
            assert!(kit.store.undo_run(debt).await.unwrap());
            assert!(replay().await.is_empty(), "it is being undone");
        }
        assert!(kit.store.pay(debt, &[], "").await.unwrap());
        if is_undone {
            assert!(replay().await.is_empty());
        } else {
            assert_eq!(kit.store.redrive(&any(), 9, "rule".into()).await.unwrap(), [id]);
        }
        let state = if is_undone { State::Dead } else { State::Ready };
        assert_eq!(kit.state(id).await, state);
        if !is_undone {
            let claim = kit.take_one(worker).await;
            kit.settle(worker, &claim, done()).await;
        }
    }
}

async fn a_debt_is_paid_once_and_who_is_late_touches_nobody(kit: &Kit) {
    let bare = || RunWrites { owes: true, ..RunWrites::default() };
    let (worker, id, claim) = running(kit, bare()).await;
    let orphan = || {
        let options = Options { parent: Some(id), ..Options::default() };
        NewJob { options, due: Due::In(SECOND), ..job("child") }
    };
    let first = kit.put(orphan()).await;
    kit.settle(worker, &claim, dead("no")).await;
    // Two nodes have seen it; one is slow.
    let seen = debt(kit).await;
    assert!(kit.neighbour().await.pay(seen, &[first], "its parent ended").await.unwrap());
    assert_eq!(kit.state(first).await, State::Cancelled);
    assert_eq!(kit.store.dead_replay(&[id], "op".into(), None).await.unwrap(), [id]);
    let claim = kit.take_one(worker).await;
    append(kit, worker, &claim, paid()).await;
    let second = kit.put(orphan()).await;
    let late = async || {
        let undoes = kit.store.undo_run(seen).await.unwrap();
        undoes || kit.store.pay(seen, &[first, second], "its parent ended").await.unwrap()
    };
    assert!(!late().await, "the run is at work again");
    kit.settle(worker, &claim, dead("no")).await;
    let owed = debt(kit).await;
    assert!(!late().await, "this is another debt");
    assert_eq!(debt(kit).await, owed);
    assert_eq!(kit.state(second).await, State::Scheduled);
    assert!(!kit.store.journal(id).await.unwrap().1.unwrap().undone);
    assert!(kit.store.undo_run(owed).await.unwrap());
    assert!(kit.store.pay(owed, &[second], "its parent ended").await.unwrap());
    assert_eq!(kit.state(second).await, State::Cancelled);
}

async fn a_run_is_undone_once_though_a_node_is_so_late_that_all_of_it_is_forgotten(kit: &Kit) {
    let (worker, _, claim) = running(kit, paid()).await;
    kit.settle(worker, &claim, dead("no")).await;
    let debt = debt(kit).await;
    let mut undoing = flow_of(vec![step("back", &[])]);
    undoing.options.retain_ms = Some(1000);
    let plan = undoing.plan(&Limits::default(), Retention::default()).unwrap();
    // Two nodes are told to undo it, and one of them is slow.
    assert!(kit.store.undo_run(debt).await.unwrap());
    assert!(kit.neighbour().await.undo_run(debt).await.unwrap());
    assert!(kit.store.start_flow(plan.clone(), Start::Pays(debt)).await.unwrap());
    assert!(kit.store.debts(None, 9).await.unwrap().is_empty(), "it is paid");
    assert_eq!(run(kit, worker, &[]).await, ["back"]);
    kit.clock.advance(SECOND * 2);
    tend(kit).await;
    assert!(kit.store.flow(plan.id).await.unwrap().is_none());
    let late = kit.neighbour().await.start_flow(plan, Start::Pays(debt)).await;
    assert!(!late.unwrap(), "it had been paid");
    assert!(kit.take(worker, 9).await.jobs.is_empty());
}

async fn a_fork_does_not_build_on_what_is_undone(kit: &Kit) {
    let (worker, id, claim) = running(kit, paid()).await;
    kit.settle(worker, &claim, dead("no")).await;
    let fork = async |to: &str| {
        let (to, into) = (to.to_owned(), JobId::new());
        let act = RunAct::Fork { to, into, instead: false };
        let answer = kit.store.change_run(id, order(act)).await.unwrap();
        assert_eq!(kit.store.job(into).await.unwrap().is_some(), answer == RunAnswer::Acted);
        answer
    };
    for is_seen_to in [false, true] {
        if is_seen_to {
            let debt = debt(kit).await;
            assert!(kit.store.undo_run(debt).await.unwrap());
            assert!(kit.store.pay(debt, &[], "").await.unwrap());
        }
        let answer = fork("a").await;
        assert!(matches!(&answer, RunAnswer::Refused(why) if why.contains("pay")), "{answer:?}");
        assert_eq!(fork("pay").await, RunAnswer::Acted, "it builds on nothing");
    }
}

fn child(of: JobId, id: JobId) -> NewJob {
    let options = Options { parent: Some(of), ..Options::default() };
    NewJob { id, options, queue: "children".to_owned(), ..job("child") }
}

async fn children_that_a_reset_or_an_edit_forgets_are_called_off(kit: &Kit) {
    let reset = Amend::Reset { to: "a".to_owned() };
    for amend in [reset, Amend::Edit { step: "a".to_owned(), output: json("2") }] {
        let (worker, id, claim) = running(kit, RunWrites::default()).await;
        let family = [JobId::new(), JobId::new(), JobId::new()];
        let started = |number: u32, outlives: bool| {
            let child = family[number as usize / 2];
            let (key, kind, ids) = (format!("c{number}"), "child".to_owned(), vec![child]);
            let entry = Entry::Started { key, kind, ids, outlives, later: true };
            (number, serde_json::to_string(&entry).unwrap())
        };
        let ended = (1, r#"{"ended":{"key":"a","ending":{"ok":1}}}"#.to_owned());
        let entries = vec![started(0, false), ended, started(2, false), started(4, true)];
        let children = family.map(|child_id| child(id, child_id)).to_vec();
        let writes = RunWrites { entries, children, owes: true, ..RunWrites::default() };
        append(kit, worker, &claim, writes).await;
        kit.settle(worker, &claim, waits(3)).await;
        let act = order(RunAct::Amend(amend.clone()));
        assert_eq!(kit.store.change_run(id, act).await.unwrap(), RunAnswer::Acted);
        let mut states = Vec::new();
        for child in family {
            states.push(kit.state(child).await);
        }
        assert_eq!(states, [State::Ready, State::Cancelled, State::Ready], "{amend:?}");
        kit.store.change_run(id, order(RunAct::Cancel)).await.unwrap();
    }
}

fn waits(mail_min: usize) -> Settlement {
    let waits = Waits { until: None, mail_min, what: Vec::new() };
    Settlement::Wait(Box::new(Waiting { waits, read: 0, spent: 0, parked: None }))
}

async fn a_child_whose_key_is_held_has_ended_before_it_began(kit: &Kit) {
    let policies = [OnDuplicate::Reject, OnDuplicate::Join, OnDuplicate::Replace];
    for (at, policy) in policies.into_iter().enumerate() {
        let key = format!("u{at}");
        let holds = unique(&key, Scope::Unfinished, policy);
        let holder = kit.put(NewJob { queue: "children".to_owned(), ..holds.clone() }).await;
        for with_settle in [false, true] {
            let (worker, id, claim) = running(kit, RunWrites::default()).await;
            let mine = JobId::new();
            let keyed = NewJob { unique: holds.unique.clone(), ..child(id, mine) };
            let writes = RunWrites { children: vec![keyed], owes: true, ..RunWrites::default() };
            let mut item = item(&claim, 0, waits(1));
            if with_settle {
                item.run = Some(Box::new(writes));
            } else {
                append(kit, worker, &claim, writes).await;
            }
            kit.store.settle(worker, vec![item]).await.unwrap();
            let mail = kit.store.mail(id, 0).await.unwrap();
            let [Content::Child(ChildEnd { id: of, state, error, .. })] =
                &[mail[0].content.clone()]
            else {
                panic!("{mail:?}")
            };
            assert_eq!((*of, *state), (mine, State::Cancelled));
            let error = error.as_deref().unwrap_or_default();
            assert!(error.contains(&format!("duplicate of {holder}")), "{error}");
            let claim = kit.take_one(worker).await;
            assert_eq!(ids(&claim), [id], "{policy:?}: it waits no more");
            kit.settle(worker, &claim, done()).await;
        }
    }
}

async fn a_child_that_was_turned_away_is_not_started_by_the_same_write_sent_again(kit: &Kit) {
    let holds = unique("again", Scope::Unfinished, OnDuplicate::Reject);
    let holder = kit.put(NewJob { queue: "children".to_owned(), ..holds.clone() }).await;
    let (worker, id, claim) = running(kit, RunWrites::default()).await;
    let mine = JobId::new();
    let keyed = NewJob { unique: holds.unique.clone(), ..child(id, mine) };
    let writes = RunWrites { children: vec![keyed], owes: true, ..RunWrites::default() };
    append(kit, worker, &claim, writes.clone()).await;
    // Its answer was lost, and the key is free by now.
    kit.store.cancel(vec![holder], "enough").await.unwrap();
    append(kit, worker, &claim, writes).await;
    assert!(
        kit.store.job(mine).await.unwrap().is_none(),
        "the run was told that it is a duplicate"
    );
    assert_eq!(kit.store.mail(id, 0).await.unwrap().len(), 1);
}

async fn a_child_is_kept_for_after_the_one_that_its_run_has_called_off(kit: &Kit) {
    let holds = unique("after", Scope::Unfinished, OnDuplicate::Reject).unique;
    let (worker, id, claim) = running(kit, RunWrites::default()).await;
    let (first, second, third) = (JobId::new(), JobId::new(), JobId::new());
    let keyed = |mine| NewJob { unique: holds.clone(), ..child(id, mine) };
    let start = |mine| RunWrites { children: vec![keyed(mine)], ..RunWrites::default() };
    append(kit, worker, &claim, start(first)).await;
    let taken = kit.store.claim(ask(worker, "children", 1)).await.unwrap();
    assert_eq!(ids(&taken), [first]);
    append(kit, worker, &claim, start(third)).await;
    let told = kit.store.mail(id, 0).await.unwrap();
    assert_eq!(told.len(), 1, "one that is not called off is held up by nobody: {told:?}");
    kit.store.cancel(vec![first], "forgotten").await.unwrap();
    append(kit, worker, &claim, start(second)).await;
    assert_eq!(kit.state(second).await, State::Blocked, "the other still runs");
    assert_eq!(kit.store.mail(id, 0).await.unwrap().len(), 1, "nobody was turned away");
    kit.settle(worker, &taken, done()).await;
    assert_eq!(kit.state(second).await, State::Ready);
}
