//! Claims that stand: brought by what this process writes, in the same commit, and by nothing else; once
//! withdrawn, dropped or failed, they leave nothing leased.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidemill_core::{Due, JobId, NewJob, Payload, Settlement, State, WorkerId};
use tidemill_store::request::{Seen, Stand};
use tidemill_store::{Claim, ClaimRequest, Error, Hint, SettleItem, Store};
use tokio_util::sync::CancellationToken;

use super::kit::{Place, SOON, ask, job, worker};

type Claiming<'a> = Pin<Box<dyn Future<Output = Result<Claim, Error>> + Send + 'a>>;

/// A store and a worker that has just found nothing.
struct Idle {
    place: Place,
    store: Arc<dyn Store>,
    worker: WorkerId,
    seen: Seen,
}

impl Idle {
    async fn new() -> Self {
        let place = Place::new();
        let store = place.store().await;
        let worker = worker(&store).await;
        let claim = store.claim(ask(worker, 5)).await.unwrap();
        assert!(claim.jobs.is_empty());
        Self { place, store, worker, seen: claim.seen.unwrap() }
    }

    /// Leaves a claim standing, of which the writer knows when this answers.
    async fn stand(&self, jobs_max: usize) -> (Claiming<'_>, CancellationToken) {
        let until = CancellationToken::new();
        let stand = Some(Stand { since: self.seen, until: until.clone() });
        let mut claim = self.store.claim(ClaimRequest { stand, ..ask(self.worker, jobs_max) });
        assert!(stands(&mut claim));
        self.writer_is_done().await;
        (claim, until)
    }

    /// Everything that the writer was told so far is done, and what it told itself by that.
    async fn writer_is_done(&self) {
        for _ in 0..2 {
            self.store.beat(self.worker).await.unwrap();
        }
    }

    async fn put(&self, job: NewJob) -> JobId {
        self.store.enqueue(vec![job]).await.unwrap()[0].id()
    }

    async fn state(&self, id: JobId) -> State {
        self.store.job(id).await.unwrap().unwrap().state
    }

    async fn running(&self) -> u64 {
        self.store.unfinished().await.unwrap().running
    }

    async fn settle(&self, claim: &Claim, settlement: Settlement) {
        let first = &claim.jobs[0];
        let item = SettleItem {
            job: Arc::clone(&first.job),
            token: claim.token.unwrap(),
            attempt: first.attempt,
            lost: first.lost,
            started_at: claim.now,
            gates: Vec::new(),
            settlement,
            decided: false,
            run: None,
        };
        self.store.settle(self.worker, vec![item]).await.unwrap();
    }
}

fn stands(claim: &mut Claiming<'_>) -> bool {
    claim.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

async fn answered(claim: Claiming<'_>) -> Result<Claim, Error> {
    tokio::time::timeout(SOON, claim).await.expect("an answer comes")
}

fn ids(claim: &Claim) -> Vec<JobId> {
    claim.jobs.iter().map(|taken| taken.job.id).collect()
}

fn done(follow_ups: Vec<NewJob>) -> Settlement {
    Settlement::Done { output: Payload::null(), follow_ups }
}

#[tokio::test]
async fn an_enqueue_brings_its_job_in_the_same_commit() {
    let idle = Idle::new().await;
    let (claim, _until) = idle.stand(5).await;
    let id = idle.put(job()).await;
    assert_eq!(idle.state(id).await, State::Running, "once the enqueue is answered");
    let claim = answered(claim).await.unwrap();
    assert_eq!((ids(&claim), claim.jobs[0].attempt), (vec![id], 1));
    idle.settle(&claim, done(Vec::new())).await;
    assert_eq!(idle.state(id).await, State::Done);
}

#[tokio::test]
async fn a_settle_brings_its_follow_up() {
    let idle = Idle::new().await;
    idle.put(job()).await;
    let first = idle.store.claim(ask(idle.worker, 1)).await.unwrap();
    let idle = Idle { seen: first.seen.unwrap(), ..idle };
    let (claim, _until) = idle.stand(5).await;
    let next = job();
    idle.settle(&first, done(vec![next.clone()])).await;
    assert_eq!(ids(&answered(claim).await.unwrap()), [next.id]);
}

#[tokio::test]
async fn many_jobs_are_brought_too_and_no_more_than_asked_for() {
    let idle = Idle::new().await;
    let (claim, _until) = idle.stand(50).await;
    idle.store.enqueue((0..200).map(|_| job()).collect()).await.unwrap();
    assert_eq!(answered(claim).await.unwrap().jobs.len(), 50);
    let left = idle.store.unfinished().await.unwrap();
    assert_eq!((left.waiting, left.running), (150, 50));
}

#[tokio::test]
async fn another_queue_brings_nothing() {
    let idle = Idle::new().await;
    let (mut claim, _until) = idle.stand(5).await;
    let other = idle.put(NewJob { queue: "other".into(), ..job() }).await;
    idle.writer_is_done().await;
    assert!(stands(&mut claim));
    assert_eq!(idle.state(other).await, State::Ready);
    let id = idle.put(job()).await;
    assert_eq!(ids(&answered(claim).await.unwrap()), [id]);
}

#[tokio::test]
async fn kinds_that_are_not_asked_for_leave_it_standing() {
    let idle = Idle::new().await;
    let stand = Some(Stand { since: idle.seen, until: CancellationToken::new() });
    let kinds = Some(Arc::new(vec!["mine".to_owned()]));
    let mut claim = idle.store.claim(ClaimRequest { stand, kinds, ..ask(idle.worker, 5) });
    assert!(stands(&mut claim));
    let other = idle.put(job()).await;
    idle.writer_is_done().await;
    assert!(stands(&mut claim));
    assert_eq!(idle.state(other).await, State::Ready);
    let id = idle.put(NewJob { kind: "mine".into(), ..job() }).await;
    assert_eq!(ids(&answered(claim).await.unwrap()), [id]);
}

#[tokio::test]
async fn what_came_after_the_last_claim_and_before_it_stood_is_not_missed() {
    let idle = Idle::new().await;
    let id = idle.put(job()).await;
    let stand = Some(Stand { since: idle.seen, until: CancellationToken::new() });
    let claim = idle.store.claim(ClaimRequest { stand, ..ask(idle.worker, 5) });
    assert_eq!(ids(&answered(claim).await.unwrap()), [id]);
}

#[tokio::test]
async fn a_job_for_later_is_an_alarm() {
    let idle = Idle::new().await;
    let (claim, _until) = idle.stand(5).await;
    let at = idle.store.now().await.unwrap() + SOON;
    idle.put(NewJob { due: Due::At(at), ..job() }).await;
    let claim = answered(claim).await.unwrap();
    assert!(claim.jobs.is_empty());
    assert_eq!(claim.next_due, Some(at));
}

#[tokio::test]
async fn one_job_goes_to_one_of_two_and_the_next_to_the_other() {
    let idle = Idle::new().await;
    let ((one, _), (mut two, _)) = (idle.stand(5).await, idle.stand(5).await);
    let first = idle.put(job()).await;
    assert_eq!(ids(&answered(one).await.unwrap()), [first]);
    assert!(stands(&mut two));
    let second = idle.put(job()).await;
    assert_eq!(ids(&answered(two).await.unwrap()), [second]);
}

#[tokio::test]
async fn a_hint_brings_what_was_committed_by_another_connection() {
    let idle = Idle::new().await;
    let (claim, _until) = idle.stand(5).await;
    let theirs = job();
    let conn = idle.place.connect();
    tidemill_store::sqlite::adapter::enqueue_in_rusqlite(&conn, std::slice::from_ref(&theirs))
        .unwrap();
    idle.store.hint(Hint::Ready { queue: "default".into() });
    assert_eq!(ids(&answered(claim).await.unwrap()), [theirs.id]);
}

#[tokio::test]
async fn a_worker_that_is_gone_gets_nothing() {
    let idle = Idle::new().await;
    let (mut claim, _until) = idle.stand(5).await;
    idle.store.deregister(idle.worker).await.unwrap();
    let id = idle.put(job()).await;
    idle.writer_is_done().await;
    assert!(stands(&mut claim));
    assert_eq!(idle.state(id).await, State::Ready);
}

#[tokio::test]
async fn one_that_is_withdrawn_is_answered_with_nothing_and_takes_nothing() {
    let idle = Idle::new().await;
    let (claim, until) = idle.stand(5).await;
    until.cancel();
    let claim = answered(claim).await.unwrap();
    assert!(claim.jobs.is_empty() && claim.token.is_none());
    let id = idle.put(job()).await;
    assert_eq!(idle.state(id).await, State::Ready);
}

/// The writer is anywhere between the enqueue and the answer when the claim is withdrawn.
#[tokio::test]
async fn one_that_is_withdrawn_while_it_runs_is_answered_with_what_it_took() {
    let idle = Idle::new().await;
    for round in 0..200 {
        let seen = idle.store.claim(ask(idle.worker, 5)).await.unwrap().seen.unwrap();
        let until = CancellationToken::new();
        let stand = Some(Stand { since: seen, until: until.clone() });
        let mut claim = idle.store.claim(ClaimRequest { stand, ..ask(idle.worker, 5) });
        assert!(stands(&mut claim));
        let enqueue = idle.put(job());
        let withdraw = async {
            spin(round);
            until.cancel();
            answered(claim).await.unwrap()
        };
        let (id, claim) = tokio::join!(enqueue, withdraw);
        let is_taken = ids(&claim) == [id];
        assert_eq!(idle.state(id).await, if is_taken { State::Running } else { State::Ready });
        let claim =
            if is_taken { claim } else { idle.store.claim(ask(idle.worker, 5)).await.unwrap() };
        idle.settle(&claim, done(Vec::new())).await;
    }
    assert_eq!(idle.running().await, 0);
}

/// The writer is anywhere between the enqueue and the answer when the claim is dropped.
#[tokio::test]
async fn one_that_is_dropped_leaves_nothing_leased() {
    let idle = Idle::new().await;
    for round in 0..200 {
        let (claim, _until) = idle.stand(5).await;
        let mut enqueue = Box::pin(idle.put(job()));
        let polled = enqueue.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        spin(round);
        drop(claim);
        if polled == Poll::Pending {
            enqueue.await;
        }
        idle.writer_is_done().await;
        assert_eq!(idle.running().await, 0, "round {round}");
        let claim = idle.store.claim(ask(idle.worker, 5)).await.unwrap();
        assert_eq!((claim.jobs.len(), claim.jobs[0].attempt), (1, 1), "it waits, unspent");
        idle.settle(&claim, done(Vec::new())).await;
    }
}

/// Lets a little time go by, another one each round.
fn spin(round: u32) {
    (0..round % 50 * 400).for_each(|_| std::hint::spin_loop());
}

#[tokio::test]
async fn an_operation_that_fails_beside_it_takes_nothing_with_it() {
    let idle = Idle::new().await;
    let refuse = "create trigger refuse before insert on tidemill_job when new.kind = 'bad'
                  begin select raise(abort, 'no'); end";
    idle.place.connect().execute_batch(refuse).unwrap();
    let (mut claim, _until) = idle.stand(5).await;
    let bad = || NewJob { kind: "bad".into(), ..job() };
    idle.store.enqueue(vec![job(), bad()]).await.unwrap_err();
    idle.writer_is_done().await;
    assert!(stands(&mut claim));
    assert_eq!(idle.store.unfinished().await.unwrap().waiting, 0);
    let (refused, put) = tokio::join!(idle.store.enqueue(vec![bad()]), idle.put(job()));
    assert!(refused.is_err());
    assert_eq!(ids(&answered(claim).await.unwrap()), [put]);
    assert_eq!(idle.running().await, 1);
}

#[tokio::test]
async fn one_that_fails_is_told_so_and_the_enqueue_is_done_all_the_same() {
    let idle = Idle::new().await;
    let refuse = "create trigger refuse before insert on tidemill_lease
                  begin select raise(abort, 'no'); end";
    idle.place.connect().execute_batch(refuse).unwrap();
    let (claim, _until) = idle.stand(5).await;
    let id = idle.put(job()).await;
    assert!(answered(claim).await.is_err());
    assert_eq!((idle.state(id).await, idle.running().await), (State::Ready, 0));
}

#[tokio::test]
async fn a_transaction_that_is_rolled_back_as_a_whole_leaves_nothing() {
    let idle = Idle::new().await;
    let conn = idle.place.connect();
    conn.execute_batch(
        "create trigger refuse before insert on tidemill_lease begin select raise(rollback, 'no'); end",
    )
    .unwrap();
    let (claim, _until) = idle.stand(5).await;
    idle.store.enqueue(vec![job()]).await.unwrap_err();
    assert!(answered(claim).await.is_err());
    let left = idle.store.unfinished().await.unwrap();
    assert_eq!((left.waiting, left.running), (0, 0));
    conn.execute_batch("drop trigger refuse").unwrap();
    idle.put(job()).await;
    assert_eq!(idle.store.claim(ask(idle.worker, 5)).await.unwrap().jobs.len(), 1);
}

#[tokio::test]
async fn a_store_that_is_closed_answers_it() {
    let idle = Idle::new().await;
    let (claim, _until) = idle.stand(5).await;
    idle.store.close().await;
    assert_eq!(answered(claim).await.unwrap_err().code(), "store_unavailable");
}
