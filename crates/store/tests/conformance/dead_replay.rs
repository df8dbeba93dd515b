//! Dead letters on their way again: ready, unspent, once, and with a memory of it.

use tidemill_core::dead::{DeadFilter, Triage};
use tidemill_core::{JobId, NewJob, OnDuplicate, Priority, Scope, State};
use tidemill_store::{CancelAnswer, DeadLetter, Receipt, Settled};

use super::kit::{HOUR, Kit, SECOND, ask, dead, done, hears, ids, job, json, ready, retry, unique};

over_both_stores!(
    a_replayed_job_is_ready_with_all_attempts,
    a_replayed_job_keeps_its_wishes,
    a_payload_can_be_mended,
    replaying_twice_is_once,
    only_the_dead_are_replayed,
    many_are_replayed_at_once,
    one_that_dies_again_remembers,
    one_that_recovers_says_so,
    one_that_retries_and_is_called_off_is_cancelled,
    a_poisoned_job_starts_with_a_clean_slate,
    a_replayed_job_may_be_given_back,
    the_old_token_does_not_hold_a_replayed_job,
    a_replayed_job_has_its_key_or_leaves_it_to_another,
);

async fn letter(kit: &Kit, id: JobId) -> DeadLetter {
    let filter = DeadFilter { ids: vec![id], ..DeadFilter::default() };
    kit.store.dead(&filter, None, 10).await.unwrap().remove(0)
}

async fn replay(kit: &Kit, id: JobId) -> Vec<JobId> {
    kit.store.dead_replay(&[id], "ada".into(), None).await.unwrap()
}

async fn a_replayed_job_is_ready_with_all_attempts(kit: &Kit) {
    let id = kit.put(job("k")).await;
    kit.run_to(id, retry(SECOND, 1)).await;
    kit.clock.advance(SECOND);
    kit.run_to(id, dead("x")).await;
    assert_eq!(kit.view(id).await.attempt, 2);
    kit.clock.advance(HOUR);
    let mut heard = kit.store.wake().listen();
    assert_eq!(replay(kit, id).await, [id]);
    hears(&mut heard, |hint| *hint == ready("default")).await;
    let view = kit.view(id).await;
    assert_eq!((view.state, view.attempt), (State::Ready, 0));
    assert_eq!((view.due_at, view.finished_at), (Some(kit.clock.now()), None));
    let dead = letter(kit, id).await;
    assert_eq!((dead.triage, dead.redrives, dead.recovered), (Triage::Retrying, 1, false));
    assert_eq!((dead.notes.len(), dead.notes[0].by.as_str()), (1, "ada"));
    let worker = kit.worker().await;
    assert_eq!(kit.take_one(worker).await.jobs[0].attempt, 1);
}

async fn a_replayed_job_keeps_its_wishes(kit: &Kit) {
    let mut sent = NewJob {
        queue: "q".into(),
        priority: Priority::High,
        tenant: Some("t".into()),
        key: Some("c".into()),
        payload: json(r#"{"n":1}"#),
        ..job("special")
    };
    sent.options.tags = vec!["blue".into()];
    let id = kit.put(sent).await;
    let worker = kit.worker().await;
    let first = kit.store.claim(ask(worker, "q", 1)).await.unwrap();
    kit.settle(worker, &first, dead("x")).await;
    replay(kit, id).await;
    let second = kit.store.claim(ask(worker, "q", 1)).await.unwrap();
    let mut expected = (*first.jobs[0].job).clone();
    expected.options.replayed_at = Some(kit.clock.now());
    assert_eq!(*second.jobs[0].job, expected);
}

async fn a_payload_can_be_mended(kit: &Kit) {
    let id = kit.finish(NewJob { payload: json("\"broken\""), ..job("k") }, dead("x")).await;
    let mended = json(r#"{"n":9007199254740993}"#);
    let replayed = kit.store.dead_replay(&[id], "ada".into(), Some(mended.clone())).await.unwrap();
    assert_eq!(replayed, [id]);
    assert_eq!(kit.view(id).await.job.payload, mended);
    let worker = kit.worker().await;
    assert_eq!(kit.take_one(worker).await.jobs[0].job.payload, mended);
}

async fn replaying_twice_is_once(kit: &Kit) {
    let id = kit.finish(job("k"), dead("x")).await;
    assert_eq!(replay(kit, id).await, [id]);
    assert!(replay(kit, id).await.is_empty());
    let worker = kit.worker().await;
    assert_eq!(ids(&kit.take(worker, 9).await), [id]);
    assert!(replay(kit, id).await.is_empty(), "nor while it runs");
    assert_eq!(letter(kit, id).await.redrives, 1);

    let id = kit.finish(job("k"), dead("x")).await;
    let other = kit.neighbour().await;
    let both = [id];
    let (one, two) = tokio::join!(
        kit.store.dead_replay(&both, "a".into(), None),
        other.dead_replay(&both, "b".into(), None)
    );
    assert_eq!(one.unwrap().len() + two.unwrap().len(), 1);
    assert_eq!(ids(&kit.take(worker, 9).await), [id]);
    other.close().await;
}

async fn only_the_dead_are_replayed(kit: &Kit) {
    let waiting = kit.put(NewJob { queue: "q".into(), ..job("k") }).await;
    let finished = kit.finish(job("k"), done()).await;
    let off = kit.finish(job("k"), super::kit::cancelled("y")).await;
    let all = [waiting, finished, off, JobId::new()];
    assert!(kit.store.dead_replay(&all, "ada".into(), None).await.unwrap().is_empty());
    assert!(kit.store.dead_replay(&[], "ada".into(), None).await.unwrap().is_empty());
    assert_eq!(kit.state(finished).await, State::Done);
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 1);
}

async fn many_are_replayed_at_once(kit: &Kit) {
    kit.store.enqueue((0..250).map(|_| job("k")).collect()).await.unwrap();
    let worker = kit.worker().await;
    let claim = kit.take(worker, 250).await;
    let items = (0..250).map(|at| super::kit::item(&claim, at, dead("x")));
    kit.store.settle(worker, items.collect()).await.unwrap();
    let mut replayed = kit.store.dead_replay(&ids(&claim), "ada".into(), None).await.unwrap();
    replayed.sort();
    assert_eq!(replayed, ids(&claim));
    assert_eq!(kit.take(worker, 999).await.jobs.len(), 250);
}

async fn one_that_dies_again_remembers(kit: &Kit) {
    let id = kit.finish(job("k"), dead("user 1 is gone")).await;
    let before = letter(kit, id).await;
    kit.store.dead_note(&[id], "ada", "look", Some(Triage::Investigated), None).await.unwrap();
    replay(kit, id).await;
    kit.clock.advance(HOUR);
    kit.run_to(id, dead("user 2 is gone")).await;
    let after = letter(kit, id).await;
    assert_eq!((after.triage, after.redrives), (Triage::New, 1));
    assert_eq!(after.fingerprint, before.fingerprint, "the same trouble has the same mark");
    assert_eq!((after.error.as_str(), after.died_at), ("user 2 is gone", kit.clock.now()));
    assert_eq!(after.notes.len(), 2, "its notes stay");
    assert_eq!(kit.state(id).await, State::Dead);
    assert_eq!(kit.store.dead(&DeadFilter::default(), None, 9).await.unwrap().len(), 1);
    assert_eq!(replay(kit, id).await, [id], "and it may be sent again");
}

async fn one_that_recovers_says_so(kit: &Kit) {
    let id = kit.finish(job("k"), dead("x")).await;
    replay(kit, id).await;
    kit.run_to(id, done()).await;
    let after = letter(kit, id).await;
    assert!(after.recovered);
    assert_eq!(kit.state(id).await, State::Done);
    assert!(replay(kit, id).await.is_empty());
}

async fn one_that_retries_and_is_called_off_is_cancelled(kit: &Kit) {
    let id = kit.finish(job("k"), dead("x")).await;
    replay(kit, id).await;
    kit.run_to(id, retry(HOUR, 1)).await;
    let view = kit.view(id).await;
    assert_eq!((view.state, view.attempt), (State::Scheduled, 1));
    let answers = kit.store.cancel(vec![id], "enough").await.unwrap();
    assert_eq!(answers, [CancelAnswer::Cancelled]);
    let worker = kit.worker().await;
    kit.clock.advance(HOUR);
    assert!(kit.take(worker, 9).await.jobs.is_empty());
    assert!(!letter(kit, id).await.recovered);

    let id = kit.finish(job("k"), dead("x")).await;
    replay(kit, id).await;
    let answers = kit.store.cancel(vec![id], "enough").await.unwrap();
    assert_eq!(answers, [CancelAnswer::Cancelled], "also before it ran");
    assert_eq!(kit.state(id).await, State::Cancelled);
    assert!(kit.take(worker, 9).await.jobs.is_empty());
}

async fn a_poisoned_job_starts_with_a_clean_slate(kit: &Kit) {
    let id = kit.put(job("k")).await;
    for _ in 0..3 {
        let worker = kit.worker().await;
        kit.take_one(worker).await;
        kit.lose_workers().await;
    }
    assert_eq!(kit.state(id).await, State::Dead);
    assert_eq!(replay(kit, id).await, [id]);
    let worker = kit.worker().await;
    kit.take_one(worker).await;
    assert_eq!(kit.lose_workers().await.ready, 1, "one loss does not kill it at once");
}

async fn a_replayed_job_may_be_given_back(kit: &Kit) {
    let id = kit.finish(job("k"), dead("x")).await;
    replay(kit, id).await;
    let worker = kit.worker().await;
    kit.take_one(worker).await;
    assert_eq!(kit.store.deregister(worker).await.unwrap().ready, 1);
    kit.run_to(id, done()).await;
}

async fn the_old_token_does_not_hold_a_replayed_job(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let worker = kit.worker().await;
    let old = kit.take_one(worker).await;
    kit.settle(worker, &old, dead("x")).await;
    replay(kit, id).await;
    let new = kit.take_one(worker).await;
    assert!(new.token > old.token);
    // Whatever it is answered, it must change nothing: the new attempt holds the job.
    kit.settle(worker, &old, done()).await;
    assert_eq!(kit.state(id).await, State::Running);
    assert_eq!(kit.settle(worker, &new, done()).await, Settled::Accepted);
    assert_eq!(kit.view(id).await.token, new.token);
}

async fn a_replayed_job_has_its_key_or_leaves_it_to_another(kit: &Kit) {
    let keyed = || unique("u", Scope::Unfinished, OnDuplicate::Reject);
    let id = kit.finish(keyed(), dead("x")).await;
    let rival = kit.put(keyed()).await;
    replay(kit, id).await;
    assert_eq!(kit.enqueue(keyed()).await, Receipt::Rejected { id: rival });
    let worker = kit.worker().await;
    let claim = kit.take(worker, 9).await;
    assert_eq!(claim.jobs.len(), 2);
    let mine = ids(&claim).iter().position(|one| *one == id).unwrap();
    let end = super::kit::item(&claim, mine, done());
    assert_eq!(kit.store.settle(worker, vec![end]).await.unwrap(), [Settled::Accepted]);
    assert_eq!(
        kit.enqueue(keyed()).await,
        Receipt::Rejected { id: rival },
        "it was not its to free"
    );
}
