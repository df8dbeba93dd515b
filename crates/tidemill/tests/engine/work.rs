//! Work for hands elsewhere: given, reported, looked up by another process, given back when nobody heard.

use std::time::Duration;

use tidemill::work::{Demand, Given, Hand, Outcome, Report};
use tidemill::{
    Enqueue, Error, Limit, Payload, Per, Rate, Receipt, State, Tidemill, Token, testing,
};
use tidemill_core::workflow::Waits;
use tidemill_core::{ErrorClass, JobId, NewJob, WorkerId};
use tidemill_store::Settled;
use tidemill_store::run::{Renewal, RunWrites};

use super::kit::{Kit, SOON};

over_both_stores!(
    what_is_reported_is_settled,
    a_claim_waits_until_there_is_something,
    another_process_takes_the_report_and_frees_the_gate,
    a_worker_that_was_given_up_is_told_so,
    a_lease_of_its_own_is_kept_to,
    what_is_not_handed_over_is_given_back,
    what_is_given_back_unstarted_has_not_begun,
    a_rate_that_nobody_was_charged_is_not_given_back,
    what_a_worker_never_heard_of_is_given_back,
    what_was_claimed_while_a_beat_waits_is_kept,
    what_was_called_off_before_a_beat_is_told_at_once_and_once,
    a_job_that_is_too_late_is_not_given,
    failures_follow_the_policy_of_the_kind_unless_the_job_has_one,
    a_job_that_is_out_of_reach_is_stale,
    an_attempt_that_is_reported_twice_at_once_is_refused,
    patterns_are_served_beside_a_worker_of_this_process,
    what_a_webhook_is_told_cannot_be_renewed,
);

async fn hand(mill: &Tidemill) -> WorkerId {
    let hand = Hand { name: "hand".into(), queues: vec!["default".into()], ..Hand::default() };
    mill.work().register(hand).await.unwrap()
}

fn demand(jobs_max: usize) -> Demand {
    Demand { queues: vec!["default".into()], jobs_max, ..Demand::default() }
}

/// Takes what there is, at once.
async fn claim(mill: &Tidemill, worker: WorkerId) -> (Option<Token>, Vec<Given>) {
    let taken = mill.work().claim(worker, demand(100)).await.unwrap();
    (taken.token, taken.hand_over())
}

async fn claim_one(mill: &Tidemill, worker: WorkerId) -> (Token, Given) {
    let (token, mut jobs) = claim(mill, worker).await;
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    (token.unwrap(), jobs.remove(0))
}

async fn settle(mill: &Tidemill, worker: WorkerId, report: Report) -> Settled {
    mill.work().settle(worker, vec![report], |_| true).await.unwrap()[0]
}

fn done(text: &str) -> Outcome {
    let output = Payload::of(text, &tidemill::Limits::default()).unwrap();
    Outcome::Done { output, follow_ups: Vec::new(), steps: Vec::new() }
}

fn failed(class: ErrorClass) -> Outcome {
    Outcome::Failed { class, message: "no".into(), retry_after: None }
}

async fn enqueue(mill: &Tidemill, job: Enqueue) -> JobId {
    mill.enqueue(job).await.as_ref().map(Receipt::id).unwrap()
}

fn job() -> Enqueue {
    Enqueue::raw("k", r#"{"n":1}"#)
}

async fn state(mill: &Tidemill, id: JobId) -> State {
    mill.job(id).await.unwrap().unwrap().state
}

async fn what_is_reported_is_settled(kit: Kit) {
    let mill = kit.open_still().await;
    let (worker, id) = (hand(&mill).await, enqueue(&mill, job()).await);
    let (token, given) = claim_one(&mill, worker).await;
    assert_eq!((given.claimed.job.id, given.claimed.attempt), (id, 1));
    assert_eq!(given.claimed.job.payload.as_str(), r#"{"n":1}"#);
    let follow_ups = vec![Enqueue::raw("next", "2")];
    let output = Payload::of("well", &tidemill::Limits::default()).unwrap();
    let outcome = Outcome::Done { output, follow_ups, steps: Vec::new() };
    let report = Report::new(id, token, outcome);
    assert_eq!(settle(&mill, worker, report.clone()).await, Settled::Accepted);
    assert_eq!(settle(&mill, worker, report).await, Settled::Accepted, "sent again");
    let view = mill.job(id).await.unwrap().unwrap();
    assert_eq!((view.state, view.worker), (State::Done, Some(worker)));
    assert_eq!(view.output.unwrap().as_str(), r#""well""#);
    let (_, next) = claim_one(&mill, worker).await;
    assert_eq!(next.claimed.job.kind, "next", "it came with the settle, and once");
    let forged = Report::new(id, Token(token.0 + 1_000_000), done("x"));
    assert_eq!(settle(&mill, worker, forged).await, Settled::Stale);
    let unknown = Report::new(JobId::new(), token, done("x"));
    assert_eq!(settle(&mill, worker, unknown).await, Settled::Stale);
    mill.close().await;
}

async fn a_claim_waits_until_there_is_something(kit: Kit) {
    let mill = kit.open().await;
    let worker = hand(&mill).await;
    let waiting = Demand { wait: SOON, ..demand(1) };
    let work = mill.work();
    let (taken, id) = tokio::join!(work.claim(worker, waiting), enqueue(&mill, job()));
    assert_eq!(taken.unwrap().hand_over()[0].claimed.job.id, id);
    let short = Demand { wait: Duration::from_millis(20), ..demand(1) };
    let taken = mill.work().claim(worker, short).await.unwrap();
    assert!(taken.hand_over().is_empty());
    mill.close().await;
}

async fn another_process_takes_the_report_and_frees_the_gate(kit: Kit) {
    let (one, other) = (kit.open().await, kit.open().await);
    let limit = Limit { per: Per::Key, concurrency: Some(1), ..Limit::default() };
    one.set_limit("default", "each", Some(limit)).await.unwrap();
    let worker = hand(&one).await;
    let first = enqueue(&one, job().key("a")).await;
    let second = enqueue(&one, job().key("a")).await;
    let (token, given) = claim_one(&one, worker).await;
    assert_eq!(given.claimed.job.id, first, "one of a key at a time");
    let report = Report::new(first, token, done("elsewhere"));
    assert_eq!(settle(&other, worker, report.clone()).await, Settled::Accepted);
    assert_eq!(settle(&one, worker, report).await, Settled::Accepted, "sent again, to the first");
    let waiting = Demand { wait: SOON, ..demand(1) };
    let next = other.work().claim(worker, waiting).await.unwrap();
    assert_eq!(next.hand_over()[0].claimed.job.id, second, "its place is free");
    one.close().await;
    other.close().await;
}

async fn a_worker_that_was_given_up_is_told_so(kit: Kit) {
    let mill = kit.open_still().await;
    let (worker, id) = (hand(&mill).await, enqueue(&mill, job()).await);
    let (token, _) = claim_one(&mill, worker).await;
    kit.advance(Duration::from_secs(7));
    testing::tend(&mill).await.unwrap();
    let report = Report::new(id, token, done("late"));
    assert_eq!(settle(&mill, worker, report).await, Settled::Stale);
    assert_eq!(state(&mill, id).await, State::Ready);
    let lost = |error: Error| assert_eq!(error.code(), "worker_lost");
    lost(mill.work().beat(worker, Duration::ZERO, None).await.unwrap_err());
    lost(mill.work().claim(worker, demand(1)).await.map(drop).unwrap_err());
    let (_, given) = claim_one(&mill, hand(&mill).await).await;
    assert_eq!((given.claimed.attempt, given.claimed.lost), (1, 1));
    mill.close().await;
}

async fn a_lease_of_its_own_is_kept_to(kit: Kit) {
    let mill = kit.open_still().await;
    let lease_ttl = Some(Duration::from_mins(10));
    let queues = vec!["default".to_owned()];
    let patient = Hand { name: "curl".into(), queues, lease_ttl, ..Hand::default() };
    let worker = mill.work().register(patient.clone()).await.unwrap();
    let id = enqueue(&mill, job()).await;
    claim_one(&mill, worker).await;
    kit.advance(Duration::from_mins(9));
    testing::tend(&mill).await.unwrap();
    assert_eq!(state(&mill, id).await, State::Running);
    assert!(mill.work().beat(worker, Duration::ZERO, None).await.unwrap().cancelled.is_empty());
    kit.advance(Duration::from_mins(11));
    testing::tend(&mill).await.unwrap();
    assert_eq!(state(&mill, id).await, State::Ready);
    for ttl in [Duration::from_millis(10), Duration::from_hours(2)] {
        let wrong = Hand { lease_ttl: Some(ttl), ..patient.clone() };
        assert_eq!(mill.work().register(wrong).await.unwrap_err().code(), "work_invalid");
    }
    mill.close().await;
}

async fn what_is_not_handed_over_is_given_back(kit: Kit) {
    let mill = kit.open().await;
    let (worker, id) = (hand(&mill).await, enqueue(&mill, job()).await);
    drop(mill.work().claim(worker, demand(1)).await.unwrap());
    let waiting = Demand { wait: SOON, ..demand(1) };
    let taken = mill.work().claim(worker, waiting).await.unwrap().hand_over();
    assert_eq!((taken[0].claimed.job.id, taken[0].claimed.attempt), (id, 1));
    mill.close().await;
}

async fn what_is_given_back_unstarted_has_not_begun(kit: Kit) {
    let mill = kit.open_still().await;
    let worker = hand(&mill).await;
    for (has_begun, expected) in [(false, State::Dead), (true, State::Running)] {
        let id = enqueue(&mill, job().start_within(Duration::from_secs(10))).await;
        kit.advance(Duration::from_secs(1));
        let (token, _) = claim_one(&mill, worker).await;
        let started_at = has_begun.then_some(mill.store().now().await.unwrap());
        let report = Report { started_at, ..Report::new(id, token, Outcome::GiveBack) };
        assert_eq!(settle(&mill, worker, report).await, Settled::Accepted);
        kit.advance(Duration::from_secs(10));
        mill.work().beat(worker, Duration::ZERO, None).await.unwrap();
        claim(&mill, worker).await;
        assert_eq!(state(&mill, id).await, expected, "begun: {has_begun}");
    }
    mill.close().await;
}

async fn a_rate_that_nobody_was_charged_is_not_given_back(kit: Kit) {
    let (one, other) = (kit.open().await, kit.open().await);
    let worker = hand(&one).await;
    let first = enqueue(&one, job()).await;
    let (token, _) = claim_one(&one, worker).await;
    enqueue(&one, job()).await;
    let rate = Rate { jobs: 1, per_ms: 3_600_000, burst: 1 };
    let limit = Limit { rate: Some(rate), ..Limit::default() };
    one.set_limit("default", "hourly", Some(limit)).await.unwrap();
    claim_one(&one, worker).await;
    let (_, none) = claim(&other, hand(&other).await).await;
    assert_eq!(none.len(), 0, "it knows the limit by now");
    // It remembers neither claim, nor which of them the limit let pass.
    let report = Report::new(first, token, Outcome::GiveBack);
    assert_eq!(settle(&other, worker, report).await, Settled::Accepted);
    assert_eq!(claim(&one, worker).await.1.len(), 0, "the hour is not over");
    one.close().await;
    other.close().await;
}

async fn what_a_worker_never_heard_of_is_given_back(kit: Kit) {
    let mill = kit.open_still().await;
    let (worker, id) = (hand(&mill).await, enqueue(&mill, job()).await);
    let (token, _) = claim_one(&mill, worker).await;
    let beat = async |tokens: &[Token]| {
        mill.work().beat(worker, Duration::ZERO, Some(tokens)).await.unwrap();
        state(&mill, id).await
    };
    assert_eq!(beat(&[]).await, State::Running, "the answer may be on its way");
    kit.advance(Duration::from_mins(2));
    assert_eq!(beat(&[token]).await, State::Running, "it has it");
    mill.work().beat(worker, Duration::ZERO, None).await.unwrap();
    assert_eq!(state(&mill, id).await, State::Running, "who says nothing is asked nothing");
    assert_eq!(beat(&[Token(token.0 - 1)]).await, State::Ready);
    let (_, given) = claim_one(&mill, worker).await;
    assert_eq!((given.claimed.attempt, given.claimed.lost), (1, 0), "unspent");
    mill.close().await;
}

/// Its answer may have been on its way when the worker said what it has.
async fn what_was_claimed_while_a_beat_waits_is_kept(kit: Kit) {
    let mill = kit.open_still().await;
    let worker = hand(&mill).await;
    let (called_off, kept) = (enqueue(&mill, job()).await, enqueue(&mill, job()).await);
    let (token, _) = claim(&mill, worker).await;
    let work = mill.work();
    let (beaten, cancelled) = tokio::join!(work.beat(worker, SOON, Some(&[])), async {
        kit.advance(Duration::from_mins(2));
        mill.cancel(called_off, "enough").await
    });
    cancelled.unwrap();
    assert_eq!(beaten.unwrap().cancelled, [called_off]);
    assert_eq!(state(&mill, kept).await, State::Running);
    let report = Report::new(kept, token.unwrap(), done("it had it"));
    assert_eq!(settle(&mill, worker, report).await, Settled::Accepted);
    mill.close().await;
}

/// A beat that waits is woken by a hint, and what was called off before it gives none any more.
async fn what_was_called_off_before_a_beat_is_told_at_once_and_once(kit: Kit) {
    let mill = kit.open_still().await;
    let worker = hand(&mill).await;
    let (first, second) = (enqueue(&mill, job()).await, enqueue(&mill, job()).await);
    claim(&mill, worker).await;
    let work = mill.work();
    mill.cancel(first, "enough").await.unwrap();
    let long = Duration::from_hours(1);
    let beaten = tokio::time::timeout(SOON, work.beat(worker, long, None)).await;
    let beaten = beaten.expect("it does not wait").unwrap();
    assert_eq!((beaten.cancelled, beaten.waited), (vec![first], Duration::ZERO));
    let beaten = work.beat(worker, Duration::from_millis(1), None).await.unwrap();
    assert_eq!(beaten.cancelled, [first], "it is called off as before");
    assert!(!beaten.waited.is_zero(), "of what it was told it is not told at once");
    mill.cancel(second, "enough").await.unwrap();
    let beaten = tokio::time::timeout(SOON, work.beat(worker, long, None)).await;
    let mut cancelled = beaten.expect("there is more").unwrap().cancelled;
    cancelled.sort();
    assert_eq!(cancelled, [first, second]);
    let twin = kit.open_still().await;
    let elsewhere = tokio::time::timeout(SOON, twin.work().beat(worker, long, None)).await;
    assert_eq!(elsewhere.expect("that one has told it nothing").unwrap().cancelled.len(), 2);
    twin.close().await;
    mill.close().await;
}

async fn a_job_that_is_too_late_is_not_given(kit: Kit) {
    let mill = kit.open_still().await;
    let worker = hand(&mill).await;
    let late = enqueue(&mill, job().start_within(Duration::from_secs(1))).await;
    let fine = enqueue(&mill, job()).await;
    kit.advance(Duration::from_secs(2));
    let (_, given) = claim_one(&mill, worker).await;
    assert_eq!(given.claimed.job.id, fine);
    assert_eq!(state(&mill, late).await, State::Dead);
    mill.close().await;
}

async fn failures_follow_the_policy_of_the_kind_unless_the_job_has_one(kit: Kit) {
    let mill = kit.open_still().await;
    let worker = hand(&mill).await;
    let once = tidemill::Retry::attempts(1);
    let (of_kind, own) = (
        enqueue(&mill, job()).await,
        enqueue(&mill, job().retry(tidemill::Retry::attempts(3))).await,
    );
    let (token, given) = claim(&mill, worker).await;
    let reports = given.iter().map(|given| Report {
        retry: once.clone(),
        ..Report::new(given.claimed.job.id, token.unwrap(), failed(ErrorClass::Transient))
    });
    let answers = mill.work().settle(worker, reports.collect(), |_| true).await.unwrap();
    assert_eq!(answers, [Settled::Accepted; 2]);
    assert_eq!(state(&mill, of_kind).await, State::Dead);
    assert_eq!(state(&mill, own).await, State::Scheduled);
    mill.close().await;
}

async fn a_job_that_is_out_of_reach_is_stale(kit: Kit) {
    let mill = kit.open_still().await;
    let (worker, id) = (hand(&mill).await, enqueue(&mill, job()).await);
    let (token, _) = claim_one(&mill, worker).await;
    let report = Report::new(id, token, done("mine"));
    let answers = mill.work().settle(worker, vec![report], |job| job.queue != "default").await;
    assert_eq!(answers.unwrap(), [Settled::Stale]);
    assert_eq!(state(&mill, id).await, State::Running);
    mill.close().await;
}

async fn an_attempt_that_is_reported_twice_at_once_is_refused(kit: Kit) {
    let mill = kit.open_still().await;
    let worker = hand(&mill).await;
    let (id, other) = (enqueue(&mill, job()).await, enqueue(&mill, job()).await);
    let (token, _) = claim(&mill, worker).await;
    let token = token.unwrap();
    let reports = vec![
        Report::new(other, token, done("fine")),
        Report::new(id, token, done("well")),
        Report::new(id, token, failed(ErrorClass::Permanent)),
    ];
    let refused = mill.work().settle(worker, reports.clone(), |_| true).await.unwrap_err();
    assert_eq!(refused.code(), "work_invalid");
    assert!(refused.to_string().contains(&id.to_string()), "{refused}");
    assert_eq!(
        (state(&mill, id).await, state(&mill, other).await),
        (State::Running, State::Running)
    );
    let old = Report::new(id, Token(token.0 - 1), done("of another claim"));
    let reports = vec![old, Report::new(id, token, done("well"))];
    let settled = mill.work().settle(worker, reports, |_| true).await.unwrap();
    assert_eq!(settled, [Settled::Stale, Settled::Accepted], "each claim is another attempt");
    mill.close().await;
}

async fn patterns_are_served_beside_a_worker_of_this_process(kit: Kit) {
    let mill = kit.open().await;
    let echo = |payload: Payload, _| async { Ok(payload) };
    let own = mill.worker().queues(["own"]).handle_raw("k", tidemill::Settings::default(), echo);
    let own = own.start().await.unwrap();
    let queues = vec!["far:*".to_owned()];
    let far = Hand { name: "far".into(), queues: queues.clone(), ..Hand::default() };
    let worker = mill.work().register(far).await.unwrap();
    for number in 0..3 {
        let id = enqueue(&mill, job().queue(format!("far:{number}"))).await;
        let demand =
            Demand { queues: queues.clone(), jobs_max: 1, wait: SOON, ..Demand::default() };
        let claim = mill.work().claim(worker, demand).await.unwrap();
        let token = claim.token.unwrap();
        assert_eq!(claim.hand_over()[0].claimed.job.id, id);
        assert_eq!(
            settle(&mill, worker, Report::new(id, token, done(""))).await,
            Settled::Accepted
        );
        let beside = enqueue(&mill, job().queue("own")).await;
        mill.wait(beside, SOON).await.unwrap();
    }
    own.stop().await;
    mill.close().await;
}

async fn what_a_webhook_is_told_cannot_be_renewed(kit: Kit) {
    let mill = kit.open_still().await;
    let told = Payload::of(&"true", &tidemill::Limits::default()).unwrap();
    let queue = "tidemill:webhooks".to_owned();
    let job = NewJob { queue: queue.clone(), ..NewJob::new("tidemill:webhook", told.clone()) };
    let id = job.id;
    mill.store().enqueue(vec![job]).await.unwrap();
    let hand = Hand { name: "hand".into(), queues: vec![queue.clone()], ..Hand::default() };
    let worker = mill.work().register(hand).await.unwrap();
    let demand = Demand { queues: vec![queue], jobs_max: 1, ..Demand::default() };
    let claimed = mill.work().claim(worker, demand).await.unwrap();
    let token = claimed.token.unwrap();
    assert_eq!(claimed.hand_over().len(), 1);
    let forged = Payload::of(&"forged", &tidemill::Limits::default()).unwrap();
    let renewal = Renewal { payload: forged, version: "1".into(), taken: Vec::new() };
    let run = RunWrites { renewal: Some(renewal), ..RunWrites::default() };
    let wait = Outcome::Wait { waits: Waits::default(), read: 0, parked: None, anew: true };
    let report = Report { run: Some(Box::new(run)), ..Report::new(id, token, wait) };
    let refused = mill.work().settle(worker, vec![report], |_| true).await.unwrap_err();
    assert_eq!(refused.code(), "name_reserved", "{refused}");
    assert_eq!(mill.job(id).await.unwrap().unwrap().job.payload, told);
    mill.close().await;
}

/// Counts what is written of workers.
const COUNT_BEATS: &str = "
    create table beats (at timestamptz not null);
    create function count_beat() returns trigger language plpgsql as $$
    begin
        insert into beats values (clock_timestamp());
        return null;
    end $$;
    create trigger count_beat after update on tidemill.worker for each row execute function count_beat()";

/// Many wait, and all of them are woken by whatever comes for one; also at a server that they did not register at.
#[tokio::test]
async fn a_claim_that_waits_does_not_beat_whenever_it_is_woken() {
    let kit = Kit::postgres();
    let (mill, other) = (kit.open().await, kit.open().await);
    let client = kit.client().await;
    client.batch_execute(COUNT_BEATS).await.unwrap();
    for at in [&mill, &other] {
        client.batch_execute("truncate beats").await.unwrap();
        let worker = hand(&mill).await;
        let (kinds, wait) = (vec!["of nobody".to_owned()], Duration::from_secs(3));
        let (asking, demand) = (at.clone(), Demand { kinds, wait, ..demand(1) });
        let began = std::time::Instant::now();
        let claim = tokio::spawn(async move { asking.work().claim(worker, demand).await });
        while !claim.is_finished() {
            enqueue(&mill, job()).await;
        }
        assert!(claim.await.unwrap().unwrap().hand_over().is_empty());
        let beats = client.query_one("select count(*) from beats", &[]).await.unwrap();
        let (beats, seconds): (i64, _) = (beats.get(0), began.elapsed().as_secs());
        let most = 1 + i64::try_from(seconds / 2).unwrap();
        assert!((1..=most).contains(&beats), "three within a lease of 6 s: {beats} in {seconds} s");
        mill.work().sign_off(worker).await.unwrap();
    }
    mill.close().await;
    other.close().await;
}
