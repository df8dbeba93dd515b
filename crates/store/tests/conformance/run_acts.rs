//! What people do with runs: only while they wait, all or nothing, and kept with who did it and why.

use std::time::Duration;

use tidemill_core::job::outcome::Waiting;
use tidemill_core::workflow::{ActWord, Amend, Ending, Entry, Origin, ParkCode, Parked, Waits};
use tidemill_core::{JobId, Settlement, State, WorkerId};
use tidemill_store::Claim;
use tidemill_store::run::{Append, Room, RunAct, RunAnswer, RunOrder, RunWrites, Signal};

use super::kit::*;

over_both_stores!(
    acts_are_kept_in_order_with_who_and_why,
    a_step_is_skipped_only_while_its_run_waits,
    a_pause_outlasts_what_is_done_with_the_run_meanwhile,
    a_key_that_has_come_ends_neither_a_pause_nor_what_else_parks_a_run,
    an_edit_forgets_what_came_after_and_keeps_what_was,
    what_is_refused_changes_nothing_and_is_not_kept,
    of_many_who_skip_a_step_at_once_one_does,
    a_run_is_claimed_before_or_after_a_change_and_never_between,
    a_run_is_called_off_and_it_is_kept_who_did_so,
    a_dead_run_goes_on_with_the_outcome_it_is_given,
    acts_are_forgotten_with_the_job,
    what_stood_beside_an_entry_is_kept_with_the_edit,
    a_fork_begins_with_the_journal_up_to_its_step_and_leaves_the_other_as_it_is,
    a_fork_instead_calls_the_other_off_with_it_or_not_at_all,
);

fn order(act: RunAct) -> RunOrder {
    RunOrder { act, by: "ann".to_owned(), why: "because".to_owned() }
}

fn resume() -> RunAct {
    RunAct::Resume { journal_entries_max: None }
}

fn skip(step: &str) -> RunOrder {
    let ending = Ending::Ok(json("42"));
    order(RunAct::Amend(Amend::Skip { step: step.to_owned(), ending }))
}

fn edit(step: &str) -> RunOrder {
    order(RunAct::Amend(Amend::Edit { step: step.to_owned(), output: json("9") }))
}

/// The step `a` has ended with 1, `b` failed and is tried again later.
fn journal() -> RunWrites {
    let entries = [
        r#"{"ended":{"key":"a","ending":{"ok":1}}}"#,
        r#"{"failed":{"key":"b","tries":3,"message":"no","again_at":"2100-01-01T00:00:00Z"}}"#,
        r#"{"noted":{"key":"now","value":7}}"#,
    ];
    let entries = entries.into_iter().zip(0..).map(|(text, n)| (n, text.to_owned()));
    RunWrites { begins: Some("v1".to_owned()), entries: entries.collect(), ..RunWrites::default() }
}

fn waits() -> Settlement {
    let until = Some("2100-01-01T00:00:00Z".parse().unwrap());
    let waits = Waits { until, mail_min: 0, what: vec!["retry of b".to_owned()] };
    Settlement::Wait(Box::new(Waiting { waits, read: 0, spent: 0, parked: None }))
}

/// A run that is being run.
async fn running(kit: &Kit) -> (WorkerId, JobId, Claim) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    let claim = kit.take_one(worker).await;
    let token = claim.token.unwrap();
    let append = vec![Append { job: id, token, writes: journal() }];
    assert_eq!(kit.store.append(worker, append).await.unwrap(), [true]);
    (worker, id, claim)
}

/// A run that waits.
async fn waiting(kit: &Kit) -> (WorkerId, JobId) {
    let (worker, id, claim) = running(kit).await;
    kit.settle(worker, &claim, waits()).await;
    (worker, id)
}

async fn keys(kit: &Kit, id: JobId) -> Vec<String> {
    let rows = kit.store.journal(id).await.unwrap().0;
    let word = |text: &str| serde_json::from_str::<Entry>(text).unwrap();
    rows.iter().map(|row| format!("{} {}", row.number, word(&row.entry).key())).collect()
}

async fn acts_are_kept_in_order_with_who_and_why(kit: &Kit) {
    let (worker, id) = waiting(kit).await;
    let unknown = kit.store.change_run(JobId::new(), order(RunAct::Pause)).await.unwrap();
    assert_eq!(unknown, RunAnswer::Unknown);
    for act in [RunAct::Pause, resume()] {
        assert_eq!(kit.store.change_run(id, order(act)).await.unwrap(), RunAnswer::Acted);
        kit.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(kit.take(worker, 1).await.jobs.len(), 1, "it was resumed");
    let acts = kit.store.run_acts(id).await.unwrap();
    assert_eq!(
        acts.iter().map(|act| act.act).collect::<Vec<_>>(),
        [ActWord::Paused, ActWord::Resumed]
    );
    assert_eq!((acts[0].by.as_str(), acts[0].why.as_str()), ("ann", "because"));
    assert_eq!(acts[1].at, acts[0].at + Duration::from_secs(1));
}

async fn a_step_is_skipped_only_while_its_run_waits(kit: &Kit) {
    let (worker, id, claim) = running(kit).await;
    assert_eq!(kit.store.change_run(id, skip("b")).await.unwrap(), RunAnswer::NotNow);
    assert_eq!(keys(kit, id).await.len(), 3);
    assert!(kit.store.run_acts(id).await.unwrap().is_empty());
    kit.settle(worker, &claim, waits()).await;
    assert_eq!(kit.store.change_run(id, skip("b")).await.unwrap(), RunAnswer::Acted);
    assert_eq!(keys(kit, id).await, ["0 a", "1 b", "2 now", "3 b"]);
    let acts = kit.store.run_acts(id).await.unwrap();
    assert_eq!((acts[0].act, acts[0].step.as_deref()), (ActWord::Skipped, Some("b")));
    assert_eq!(acts[0].became, Some(Ending::Ok(json("42"))));
    let claim = kit.take_one(worker).await;
    assert_eq!(claim.jobs[0].attempt, 1, "it goes on at once, and no attempt is spent");
    kit.settle(worker, &claim, done()).await;
    for act in [skip("b"), edit("a"), order(RunAct::Pause), order(RunAct::Cancel)] {
        assert_eq!(kit.store.change_run(id, act).await.unwrap(), RunAnswer::NotNow, "it is done");
    }
}

async fn a_key_that_has_come_ends_neither_a_pause_nor_what_else_parks_a_run(kit: &Kit) {
    for code in [ParkCode::KeyMissing, ParkCode::Differs] {
        let (worker, id, claim) = running(kit).await;
        let Settlement::Wait(mut waiting) = waits() else { panic!("it waits") };
        waiting.parked = Some(Parked { code, why: "because".to_owned(), diff: None });
        kit.settle(worker, &claim, Settlement::Wait(waiting)).await;
        let act = async |act| kit.store.change_run(id, order(act)).await.unwrap();
        assert_eq!(act(RunAct::Pause).await, RunAnswer::Acted);
        assert_eq!(act(RunAct::Unlock).await, RunAnswer::NotNow, "it is paused");
        let run = kit.store.journal(id).await.unwrap().1.unwrap();
        assert!(run.paused && run.parked.is_some_and(|parked| parked.code == code));
        assert_eq!(kit.store.run_acts(id).await.unwrap().len(), 1);
        assert_eq!(act(resume()).await, RunAnswer::Acted);
        let claim = kit.take_one(worker).await;
        let Settlement::Wait(mut waiting) = waits() else { panic!("it waits") };
        waiting.parked = Some(Parked { code, why: "because".to_owned(), diff: None });
        kit.settle(worker, &claim, Settlement::Wait(waiting)).await;
        let is_meant = code == ParkCode::KeyMissing;
        let answer = if is_meant { RunAnswer::Acted } else { RunAnswer::NotNow };
        assert_eq!(act(RunAct::Unlock).await, answer, "{code:?}");
        assert_eq!(kit.take(worker, 1).await.jobs.len(), usize::from(is_meant));
        assert_eq!(kit.store.journal(id).await.unwrap().1.unwrap().parked.is_none(), is_meant);
        kit.store.cancel(vec![id], "enough").await.unwrap();
    }
}

async fn a_pause_outlasts_what_is_done_with_the_run_meanwhile(kit: &Kit) {
    let reset = || order(RunAct::Amend(Amend::Reset { to: "b".to_owned() }));
    for act in [skip("b"), edit("a"), reset()] {
        let (worker, id) = waiting(kit).await;
        for act in [order(RunAct::Pause), act] {
            assert_eq!(kit.store.change_run(id, act).await.unwrap(), RunAnswer::Acted);
        }
        let (name, payload) = ("go".to_owned(), json("1"));
        let signal = vec![Signal { to: id, name, payload, id: None }];
        kit.store.signal(None, signal, Room::default()).await.unwrap();
        assert!(kit.store.journal(id).await.unwrap().1.unwrap().paused);
        assert!(kit.take(worker, 1).await.jobs.is_empty(), "it is paused");
        kit.store.change_run(id, order(resume())).await.unwrap();
        assert!(!kit.store.journal(id).await.unwrap().1.unwrap().paused);
        let claim = kit.take_one(worker).await;
        kit.settle(worker, &claim, done()).await;
    }
}

async fn an_edit_forgets_what_came_after_and_keeps_what_was(kit: &Kit) {
    let (_, id) = waiting(kit).await;
    assert_eq!(kit.store.change_run(id, edit("a")).await.unwrap(), RunAnswer::Acted);
    assert_eq!(keys(kit, id).await, ["0 a"]);
    let rows = kit.store.journal(id).await.unwrap().0;
    let Entry::Ended { ending, .. } = serde_json::from_str(&rows[0].entry).unwrap() else {
        panic!()
    };
    assert_eq!(ending, Ending::Ok(json("9")));
    let act = kit.store.run_acts(id).await.unwrap().remove(0);
    assert_eq!((act.was, act.became), (Some(Ending::Ok(json("1"))), Some(ending)));
}

async fn what_is_refused_changes_nothing_and_is_not_kept(kit: &Kit) {
    let (worker, id) = waiting(kit).await;
    let (before, due) = (keys(kit, id).await, kit.view(id).await.due_at);
    for (act, why) in [
        (skip("a"), "has ended"),
        (skip("x"), "nothing under"),
        (edit("b"), "no step that has ended"),
    ] {
        let answer = kit.store.change_run(id, act).await.unwrap();
        assert!(matches!(&answer, RunAnswer::Refused(said) if said.contains(why)), "{answer:?}");
    }
    assert_eq!((keys(kit, id).await, kit.view(id).await.due_at), (before, due));
    assert!(kit.take(worker, 1).await.jobs.is_empty(), "it waits as before");
    assert!(kit.store.run_acts(id).await.unwrap().is_empty());
}

async fn of_many_who_skip_a_step_at_once_one_does(kit: &Kit) {
    let (_, id) = waiting(kit).await;
    let acts = (0..8).map(|_| kit.store.change_run(id, skip("b")));
    let answers = futures::future::try_join_all(acts).await.unwrap();
    let acted = answers.iter().filter(|answer| **answer == RunAnswer::Acted).count();
    assert_eq!(acted, 1, "{answers:?}");
    assert!(answers.iter().all(|answer| *answer != RunAnswer::NotNow), "{answers:?}");
    assert_eq!(keys(kit, id).await.len(), 4);
    assert_eq!(kit.store.run_acts(id).await.unwrap().len(), 1);
}

async fn a_run_is_claimed_before_or_after_a_change_and_never_between(kit: &Kit) {
    let worker = kit.worker().await;
    let (mut before, mut after) = (0, 0);
    for _ in 0..20 {
        let (_, id) = waiting(kit).await;
        kit.store.change_run(id, order(resume())).await.unwrap();
        let (claim, answer) =
            tokio::join!(kit.take(worker, 1), kit.store.change_run(id, skip("b")));
        let claim = if claim.jobs.is_empty() { kit.take_one(worker).await } else { claim };
        let seen = keys(kit, id).await.len();
        match answer.unwrap() {
            RunAnswer::Acted => {
                after += 1;
                assert_eq!(seen, 4, "the change was there before the claim");
            }
            RunAnswer::NotNow => {
                before += 1;
                assert_eq!(seen, 3, "the claim was there before the change");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(kit.store.change_run(id, edit("a")).await.unwrap(), RunAnswer::NotNow);
        kit.settle(worker, &claim, done()).await;
    }
    assert_eq!(before + after, 20);
}

async fn a_run_is_called_off_and_it_is_kept_who_did_so(kit: &Kit) {
    let (_, id) = waiting(kit).await;
    let cancel = || order(RunAct::Cancel);
    assert_eq!(kit.store.change_run(id, cancel()).await.unwrap(), RunAnswer::Acted);
    let view = kit.view(id).await;
    assert_eq!((view.state, view.error.as_deref()), (State::Cancelled, Some("because")));
    assert_eq!(kit.store.change_run(id, cancel()).await.unwrap(), RunAnswer::NotNow);
    assert_eq!(kit.store.run_acts(id).await.unwrap().len(), 1);

    let (_, id, _) = running(kit).await;
    let silent = RunOrder { why: String::new(), ..cancel() };
    assert_eq!(kit.store.change_run(id, silent).await.unwrap(), RunAnswer::Told);
    assert!(kit.view(id).await.cancel_requested);
    assert_eq!(kit.store.run_acts(id).await.unwrap()[0].act, ActWord::Cancelled);
}

async fn a_dead_run_goes_on_with_the_outcome_it_is_given(kit: &Kit) {
    let (worker, id, claim) = running(kit).await;
    kit.settle(worker, &claim, dead("no answer")).await;
    let refused = kit.store.change_run(id, skip("a")).await.unwrap();
    assert!(matches!(refused, RunAnswer::Refused(_)), "{refused:?}");
    assert_eq!(kit.state(id).await, State::Dead);
    assert_eq!(kit.store.change_run(id, order(resume())).await.unwrap(), RunAnswer::NotNow);
    assert_eq!(kit.store.change_run(id, skip("b")).await.unwrap(), RunAnswer::Acted);
    assert_eq!(keys(kit, id).await, ["0 a", "1 b", "2 now", "3 b"]);
    let claim = kit.take_one(worker).await;
    assert_eq!(ids(&claim), [id], "it is on its way again");
    kit.settle(worker, &claim, done()).await;

    // One that owes something is seen to first, and one that is undone stays so.
    let (worker, id, claim) = running(kit).await;
    let owes = RunWrites { owes: true, ..RunWrites::default() };
    let append = vec![Append { job: id, token: claim.token.unwrap(), writes: owes }];
    kit.store.append(worker, append).await.unwrap();
    kit.settle(worker, &claim, dead("no answer")).await;
    for is_undone in [false, true] {
        if is_undone {
            let debt = kit.store.debts(None, 1).await.unwrap()[0];
            assert!(kit.store.undo_run(debt).await.unwrap());
            assert!(kit.store.pay(debt, &[], "").await.unwrap());
        }
        assert_eq!(kit.store.change_run(id, skip("b")).await.unwrap(), RunAnswer::NotNow);
    }
    assert_eq!((kit.state(id).await, keys(kit, id).await.len()), (State::Dead, 3));
}

async fn acts_are_forgotten_with_the_job(kit: &Kit) {
    let (_, id) = waiting(kit).await;
    kit.store.change_run(id, order(RunAct::Cancel)).await.unwrap();
    assert_eq!(kit.store.purge(&[id]).await.unwrap(), 1);
    assert!(kit.store.run_acts(id).await.unwrap().is_empty());
}

async fn what_stood_beside_an_entry_is_kept_with_the_edit(kit: &Kit) {
    let (worker, id, claim) = running(kit).await;
    let aside = r#"{"ended":{"key":"large","ending":{"aside":{"number":3,"bytes":9}}}}"#;
    let entries = vec![(3, aside.to_owned())];
    let values = vec![(3, json("\"a large\""))];
    let writes = RunWrites { entries, values, ..RunWrites::default() };
    let append = vec![Append { job: id, token: claim.token.unwrap(), writes }];
    assert_eq!(kit.store.append(worker, append).await.unwrap(), [true]);
    kit.settle(worker, &claim, waits()).await;
    assert_eq!(kit.store.change_run(id, edit("large")).await.unwrap(), RunAnswer::Acted);
    let act = kit.store.run_acts(id).await.unwrap().remove(0);
    assert_eq!(act.was, Some(Ending::Ok(json("\"a large\""))));
    assert_eq!(act.became, Some(Ending::Ok(json("9"))));
}

fn forking(to: &str, into: JobId, instead: bool) -> RunOrder {
    order(RunAct::Fork { to: to.to_owned(), into, instead })
}

async fn a_fork_begins_with_the_journal_up_to_its_step_and_leaves_the_other_as_it_is(kit: &Kit) {
    let (worker, id, claim) = running(kit).await;
    let into = JobId::new();
    let nothing = kit.store.change_run(id, forking("x", into, false)).await.unwrap();
    assert!(matches!(nothing, RunAnswer::Refused(_)), "{nothing:?}");
    assert_eq!(
        kit.store.change_run(id, forking("now", into, false)).await.unwrap(),
        RunAnswer::Acted
    );
    assert_eq!(keys(kit, id).await.len(), 3, "it runs, and its journal is as it was");
    assert_eq!(keys(kit, into).await, ["0 a"], "a step that is tried again is tried anew");
    let view = kit.store.job(into).await.unwrap().unwrap();
    let origins = [Origin { run: id, until: 1 }];
    assert_eq!((view.state, view.job.kind.as_str()), (State::Ready, "k"));
    assert_eq!(view.job.options.origins, origins);
    let run = kit.store.journal(into).await.unwrap().1.unwrap();
    assert_eq!(run.version, "v1");
    for (run, other, word) in [(id, into, ActWord::Forked), (into, id, ActWord::Copied)] {
        let act = kit.store.run_acts(run).await.unwrap().remove(0);
        assert_eq!((act.act, act.step.as_deref(), act.other), (word, Some("now"), Some(other)));
        assert_eq!((act.by.as_str(), act.why.as_str()), ("ann", "because"));
    }
    kit.settle(worker, &claim, done()).await;
    let again = JobId::new();
    let answer = kit.store.change_run(id, forking("a", again, true)).await.unwrap();
    assert_eq!(answer, RunAnswer::Acted, "one that is done can be forked");
    assert!(keys(kit, again).await.is_empty());
    assert_eq!(kit.store.job(id).await.unwrap().unwrap().state, State::Done);
}

async fn a_fork_instead_calls_the_other_off_with_it_or_not_at_all(kit: &Kit) {
    let (worker, id, claim) = running(kit).await;
    let undo = r#"{"kind":"back","payload":null,"queue":"default"}"#;
    let entries = vec![
        (3, format!(r#"{{"began":{{"key":"pay","undo":{undo}}}}}"#)),
        (4, r#"{"ended":{"key":"pay","ending":{"ok":1}}}"#.to_owned()),
    ];
    let writes = RunWrites { entries, owes: true, ..RunWrites::default() };
    let append = vec![Append { job: id, token: claim.token.unwrap(), writes }];
    assert_eq!(kit.store.append(worker, append).await.unwrap(), [true]);
    kit.settle(worker, &claim, waits()).await;
    let entries = vec![(5, r#"{"slept":{"key":"nap","until":"2100-01-01T00:00:00Z"}}"#.to_owned())];
    kit.store.change_run(id, order(resume())).await.unwrap();
    let claim = kit.take_one(worker).await;
    let writes = RunWrites { entries, ..RunWrites::default() };
    let append = vec![Append { job: id, token: claim.token.unwrap(), writes }];
    assert_eq!(kit.store.append(worker, append).await.unwrap(), [true]);
    kit.settle(worker, &claim, waits()).await;
    let (refused, into) = (JobId::new(), JobId::new());
    let answer = kit.store.change_run(id, forking("nap", refused, true)).await.unwrap();
    assert!(matches!(&answer, RunAnswer::Refused(why) if why.contains("pay")), "{answer:?}");
    assert_eq!(kit.store.job(refused).await.unwrap(), None);
    assert!(!kit.store.job(id).await.unwrap().unwrap().state.is_final());
    assert_eq!(
        kit.store.change_run(id, forking("pay", into, true)).await.unwrap(),
        RunAnswer::Acted
    );
    assert_eq!(kit.store.job(id).await.unwrap().unwrap().state, State::Cancelled);
    let debts = kit.store.debts(None, 9).await.unwrap();
    let owing: Vec<JobId> = debts.iter().map(|debt| debt.job).collect();
    assert_eq!(owing, [id], "what it did from there on is undone");
    assert_eq!(keys(kit, into).await, ["0 a", "2 now"]);
}
