//! The three timeouts: of one run, to start, and in all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidemill::testing::drain;
use tidemill::work::{Demand, Hand};
use tidemill::{
    Backoff, Enqueue, Fail, Flow, JobId, JobView, QueueRules, Retry, Schedule, State, Tidemill,
    Worker,
};
use tokio::time::timeout;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    run_timeout_ends_the_attempt_and_tells_the_handler,
    run_timeout_of_the_worker_holds_where_nobody_says_otherwise,
    job_that_started_too_late_is_dead_without_a_run,
    job_that_was_put_off_has_started,
    job_that_nobody_takes_in_time_is_dead_and_told_of,
    job_that_cannot_finish_in_time_is_dead,
    a_job_that_is_late_when_those_before_it_have_ended_does_not_start,
    an_attempt_that_runs_into_the_deadline_of_its_job_is_stopped,
    a_handler_that_listens_ends_before_its_job_goes_on,
    deadlines_of_the_queue_hold_where_the_job_says_nothing,
    a_wait_that_leaves_no_time_to_finish_is_refused_on_every_way_in,
);

const SECOND: Duration = Duration::from_secs(1);

async fn view(mill: &Tidemill, id: JobId) -> JobView {
    mill.job(id).await.unwrap().unwrap()
}

fn done(mill: &Tidemill) -> Worker {
    mill.worker().handle(|echo: Echo, _cx| async move { Ok(echo.text) })
}

fn failing(mill: &Tidemill) -> Worker {
    mill.worker().handle(|_: Echo, _cx| async move { Err(Fail::transient("no")) })
}

async fn run_timeout_ends_the_attempt_and_tells_the_handler(kit: Kit) {
    let mill = kit.open_still().await;
    let told = Arc::new(AtomicBool::new(false));
    let inner = Arc::clone(&told);
    let worker = mill.worker().handle_blocking(move |echo: Echo, cx| {
        while !cx.is_cancelled() {
            std::thread::yield_now();
        }
        inner.store(true, Ordering::Release);
        Ok(echo.text)
    });
    let job = Enqueue::from(Echo::new("x")).run_timeout(Duration::from_millis(20));
    let id = mill.enqueue(job).await.unwrap().id();
    assert_eq!(drain(worker).await.unwrap().again, 1);
    let view = view(&mill, id).await;
    assert_eq!((view.state, view.attempt), (State::Scheduled, 1));
    assert_eq!(view.error.as_deref(), Some("it ran longer than its limit of 20ms"));
    tidemill_testkit::eventually::until(30 * SECOND, || told.load(Ordering::Acquire).then_some(()))
        .expect("the thread is told");
}

async fn run_timeout_of_the_worker_holds_where_nobody_says_otherwise(kit: Kit) {
    let mill = kit.open_still().await;
    let id = mill.enqueue(Echo::new("x")).await.unwrap().id();
    let worker = mill
        .worker()
        .run_timeout(Duration::from_millis(5))
        .handle(|_: Echo, _cx| std::future::pending::<Result<String, Fail>>());
    assert_eq!(drain(worker).await.unwrap().again, 1);
    assert_eq!(view(&mill, id).await.attempt, 1);
}

async fn job_that_started_too_late_is_dead_without_a_run(kit: Kit) {
    let mill = kit.open_still().await;
    let job = || Enqueue::from(Echo::new("x")).start_within(10 * SECOND).delay(5 * SECOND);
    let early = mill.enqueue(job()).await.unwrap().id();
    kit.advance(14 * SECOND);
    assert_eq!(drain(done(&mill)).await.unwrap().done, 1, "the deadline counts from its due time");
    assert_eq!(view(&mill, early).await.state, State::Done);
    let late = mill.enqueue(job()).await.unwrap().id();
    kit.advance(15 * SECOND);
    assert_eq!(drain(done(&mill)).await.unwrap().dead, 1);
    let view = view(&mill, late).await;
    assert_eq!((view.state, view.attempt), (State::Dead, 0), "nothing was tried");
    assert_eq!(view.error.as_deref(), Some("it did not start within its deadline"));
}

/// The first time it is asked, the store cannot say whether a job has begun.
const FAIL_ONCE: &str = "
    create sequence asked;
    alter function tidemill.has_begun(uuid, json) rename to begun;
    create function tidemill.has_begun(of_id uuid, options json) returns boolean language plpgsql as $$
    begin
        if nextval('asked') = 1 then
            raise exception 'not now';
        end if;
        return tidemill.begun(of_id, options);
    end $$";

#[tokio::test]
async fn job_that_started_too_late_is_dead_though_the_store_does_not_say_at_once_that_it_never_began()
 {
    let kit = Kit::postgres();
    let mill = kit.open_still().await;
    let client = kit.client().await;
    client.batch_execute(FAIL_ONCE).await.unwrap();
    let hand = Hand { name: "hand".into(), queues: vec!["default".into()], ..Hand::default() };
    let hand = mill.work().register(hand).await.unwrap();
    for is_elsewhere in [false, true] {
        client.batch_execute("alter sequence asked restart").await.unwrap();
        let late = Enqueue::from(Echo::new("x")).start_within(10 * SECOND);
        let late = mill.enqueue(late).await.unwrap().id();
        kit.advance(3600 * SECOND);
        if is_elsewhere {
            let demand =
                Demand { queues: vec!["default".into()], jobs_max: 1, ..Demand::default() };
            assert!(mill.work().claim(hand, demand).await.unwrap().hand_over().is_empty());
        } else {
            assert_eq!(drain(done(&mill)).await.unwrap().dead, 1);
        }
        let asked = client.query_one("select last_value from asked", &[]).await.unwrap();
        assert_eq!(asked.get::<_, i64>(0), 2, "it was asked again");
        assert_eq!(view(&mill, late).await.state, State::Dead, "elsewhere: {is_elsewhere}");
    }
}

/// Whenever it is asked, the store answers with this code in place of whether a job has begun.
fn fail_always(code: &str) -> String {
    format!(
        "create sequence asked;
        alter function tidemill.has_begun(uuid, json) rename to begun;
        create function tidemill.has_begun(of_id uuid, options json) returns boolean language plpgsql as $$
        begin
            perform nextval('asked');
            raise exception 'not now' using errcode = '{code}';
        end $$"
    )
}

#[tokio::test]
async fn job_of_which_the_store_refuses_to_say_whether_it_began_is_put_off_at_last() {
    let kit = Kit::postgres();
    let mill = kit.open_still().await;
    let client = kit.client().await;
    client.batch_execute(&fail_always("P0001")).await.unwrap();
    let job = Enqueue::from(Echo::new("x")).start_within(10 * SECOND);
    let id = mill.enqueue(job).await.unwrap().id();
    kit.advance(3600 * SECOND);
    let drained = timeout(SOON, drain(done(&mill))).await.expect("it is given up").unwrap();
    assert_eq!(drained.again, 1);
    let asked = client.query_one("select last_value from asked", &[]).await.unwrap();
    assert_eq!(asked.get::<_, i64>(0), 5);
    let view = view(&mill, id).await;
    assert_eq!((view.state, view.attempt), (State::Scheduled, 0), "nothing was tried");
}

#[tokio::test]
async fn claim_from_elsewhere_waits_only_so_long_for_a_store_that_cannot_say_whether_jobs_began() {
    let kit = Kit::postgres();
    let mill = kit.open_still().await;
    let client = kit.client().await;
    // A lock is held for too long: that passes.
    client.batch_execute(&fail_always("55P03")).await.unwrap();
    let hand = Hand { name: "hand".into(), queues: vec!["default".into()], ..Hand::default() };
    let hand = mill.work().register(hand).await.unwrap();
    let job = Enqueue::from(Echo::new("x")).start_within(10 * SECOND);
    let id = mill.enqueue(job).await.unwrap().id();
    kit.advance(3600 * SECOND);
    mill.work().beat(hand, Duration::ZERO, None).await.unwrap();
    let began = Instant::now();
    let demand = Demand { queues: vec!["default".into()], jobs_max: 1, ..Demand::default() };
    let taken = timeout(SOON, mill.work().claim(hand, demand)).await.expect("it is given up");
    assert!(taken.unwrap().hand_over().is_empty());
    assert!(began.elapsed() >= 2 * SECOND, "what passes is waited for");
    let view = view(&mill, id).await;
    assert_eq!((view.state, view.attempt), (State::Scheduled, 0), "nothing was tried");
}

async fn job_that_was_put_off_has_started(kit: Kit) {
    let mill = kit.open_still().await;
    let id = mill.enqueue(Enqueue::from(Echo::new("x")).start_within(10 * SECOND)).await.unwrap();
    let puts_off = mill
        .worker()
        .handle(|_: Echo, _cx| async move { Err::<String, _>(Fail::snooze(60 * SECOND)) });
    assert_eq!(drain(puts_off).await.unwrap().again, 1);
    kit.advance(3600 * SECOND);
    let why = mill.why(id.id()).await.unwrap();
    assert!(!why.to_string().contains("deadline"), "{why}");
    assert_eq!(drain(done(&mill)).await.unwrap().done, 1);
}

async fn job_that_nobody_takes_in_time_is_dead_and_told_of(kit: Kit) {
    let mill = kit.open().await;
    let services = mill.start_services();
    let of_queue = |rules: &mut QueueRules| rules.finish_within_ms = Some(50);
    mill.change_queue("slow", of_queue).await.unwrap();
    let own = Enqueue::from(Echo::new("x")).start_within(Duration::from_millis(50));
    for job in [own, Enqueue::from(Echo::new("x")).queue("slow")] {
        let id = mill.enqueue(job).await.unwrap().id();
        let ended = mill.wait(id, 30 * SECOND).await.unwrap();
        assert_eq!((ended.state, ended.attempt), (State::Dead, 0));
    }
    services.stop().await;
    mill.close().await;
}

async fn deadlines_of_the_queue_hold_where_the_job_says_nothing(kit: Kit) {
    let mill = kit.open_still().await;
    mill.change_queue("default", |rules| {
        rules.start_within_ms = Some(10_000);
        rules.finish_within_ms = Some(100_000);
    })
    .await
    .unwrap();
    let patient = Enqueue::from(Echo::new("x")).start_within(60 * SECOND);
    let patient = mill.enqueue(patient).await.unwrap().id();
    let late = mill.enqueue(Echo::new("x")).await.unwrap().id();
    kit.advance(10 * SECOND);
    let drained = drain(failing(&mill)).await.unwrap();
    assert_eq!((drained.again, drained.dead), (1, 1));
    let error = |view: JobView| (view.state, view.error.unwrap_or_default());
    let expected = (State::Dead, "it did not start within its deadline".to_owned());
    assert_eq!(error(view(&mill, late).await), expected);
    assert_eq!(view(&mill, patient).await.attempt, 1, "its own word counts");
    kit.advance(90 * SECOND);
    assert_eq!(drain(failing(&mill)).await.unwrap().dead, 1);
    let expected = (State::Dead, "it did not finish within its deadline".to_owned());
    assert_eq!(error(view(&mill, patient).await), expected);
}

async fn job_that_cannot_finish_in_time_is_dead(kit: Kit) {
    let mill = kit.open_still().await;
    let retry = Retry::default().backoff(Backoff::Fixed { delay_ms: 60_000 });
    let job = || Enqueue::from(Echo::new("x")).retry(retry.clone()).finish_within(100 * SECOND);
    let retried = mill.enqueue(job()).await.unwrap().id();
    assert_eq!(drain(failing(&mill)).await.unwrap().again, 1);
    kit.advance(60 * SECOND);
    assert_eq!(drain(failing(&mill)).await.unwrap().dead, 1, "the next retry comes too late");
    let said = "no; there was no time for another attempt before its deadline to finish, 1m40s after its enqueue";
    assert_eq!(view(&mill, retried).await.error.as_deref(), Some(said));
    let waited = mill.enqueue(job()).await.unwrap().id();
    kit.advance(100 * SECOND);
    assert_eq!(drain(done(&mill)).await.unwrap().dead, 1);
    let error = view(&mill, waited).await.error;
    assert_eq!(error.as_deref(), Some("it did not finish within its deadline"));
}

/// They are claimed together.
async fn a_job_that_is_late_when_those_before_it_have_ended_does_not_start(kit: Kit) {
    let mill = kit.open().await;
    let span = Duration::from_millis(300);
    // Else it may be due again before the drain ends.
    let later = Retry::default().backoff(Backoff::Fixed { delay_ms: 60_000 });
    let long = Enqueue::from(Echo::new("long")).run_timeout(span).retry(later);
    let long = mill.enqueue(long).await.unwrap().id();
    let late = mill.enqueue(Enqueue::from(Echo::new("x")).finish_within(span)).await.unwrap().id();
    let never = mill.worker().handle(|_: Echo, _cx| std::future::pending());
    drain(never).await.unwrap();
    let [long, late] = [view(&mill, long).await, view(&mill, late).await];
    assert_eq!((long.attempt, late.state, late.attempt), (1, State::Dead, 0));
    assert_eq!(late.error.as_deref(), Some("it did not finish within its deadline"));
}

async fn an_attempt_that_runs_into_the_deadline_of_its_job_is_stopped(kit: Kit) {
    let mill = kit.open().await;
    let own = async |within| {
        let job = Enqueue::from(Echo::new("x")).finish_within(within);
        mill.enqueue(job).await.unwrap().id()
    };
    let of_queue = async |within: Duration| {
        let within_ms = u64::try_from(within.as_millis()).unwrap();
        mill.change_queue("default", |rules| rules.finish_within_ms = Some(within_ms))
            .await
            .unwrap();
        mill.enqueue(Echo::new("x")).await.unwrap().id()
    };
    for ended in [run_into(&mill, own).await, run_into(&mill, of_queue).await] {
        let stopped = "it did not finish within its deadline, and was stopped";
        assert_eq!((ended.state, ended.attempt), (State::Dead, 1));
        assert_eq!(ended.error.as_deref(), Some(stopped));
    }
}

/// Lets an attempt run into the deadline of its job. One that could not begin before gets more time, as another job.
async fn run_into(mill: &Tidemill, enqueue: impl AsyncFn(Duration) -> JobId) -> JobView {
    let mut within = Duration::from_millis(200);
    loop {
        let id = enqueue(within).await;
        let never = mill.worker().handle(|_: Echo, _cx| std::future::pending());
        assert_eq!(drain(never).await.unwrap().dead, 1);
        let ended = view(mill, id).await;
        if ended.attempt == 1 || within > SOON {
            return ended;
        }
        within *= 4;
    }
}

async fn a_handler_that_listens_ends_before_its_job_goes_on(kit: Kit) {
    let mill = kit.open_still().await;
    let ended = Arc::new(AtomicBool::new(false));
    let inner = Arc::clone(&ended);
    let worker = mill.worker().handle(move |_: Echo, cx| {
        let ended = Arc::clone(&inner);
        async move {
            cx.cancelled().await;
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            ended.store(true, Ordering::Release);
            Ok(String::new())
        }
    });
    let job = Enqueue::from(Echo::new("x")).run_timeout(Duration::from_millis(5));
    let id = mill.enqueue(job).await.unwrap().id();
    assert_eq!(drain(worker).await.unwrap().again, 1, "what it returns then does not count");
    assert!(ended.load(Ordering::Acquire));
    assert_eq!(view(&mill, id).await.error.as_deref(), Some("it ran longer than its limit of 5ms"));
}

async fn a_wait_that_leaves_no_time_to_finish_is_refused_on_every_way_in(kit: Kit) {
    let mill = kit.open_still().await;
    let hasty = || Enqueue::from(Echo::new("x")).finish_within(60 * SECOND);
    let at = mill.store().now().await.unwrap() + 90 * SECOND;
    for late in [
        hasty().delay(60 * SECOND),
        hasty().run_at(at),
        hasty().spread(61 * SECOND),
        hasty().delay(30 * SECOND).spread(31 * SECOND),
    ] {
        let refused = mill.enqueue(late.clone()).await.unwrap_err();
        assert_eq!(refused.code(), "wish_contradiction");
        let batch = mill.enqueue_many([hasty(), late.clone()]).await.unwrap_err();
        assert_eq!(batch.code(), "wish_contradiction");
        let flow = Flow::new("f").then("a", hasty()).then("b", late);
        assert_eq!(mill.start(flow).await.unwrap_err().code(), "wish_contradiction");
    }
    let said = mill.enqueue(hasty().delay(90 * SECOND)).await.unwrap_err().to_string();
    assert!(said.contains("1m30s") && said.contains("is 1m:"), "{said}");
    let schedule = |jitter| Schedule::every("s", 3600 * SECOND, hasty()).jitter(jitter);
    let refused = mill.schedules().set(schedule(61 * SECOND)).await.unwrap_err();
    assert_eq!(refused.code(), "schedule_contradiction");
    let said = refused.to_string();
    assert!(said.contains("up to 1m1s") && said.contains("within 1m of"), "{said}");
    mill.schedules().set(schedule(60 * SECOND)).await.expect("each has some time left");
    // What leaves some time, or counts from the due time, is let in.
    mill.enqueue(hasty().delay(59 * SECOND)).await.unwrap();
    mill.enqueue(hasty().spread(60 * SECOND)).await.unwrap();
    let start = Enqueue::from(Echo::new("x")).start_within(SECOND).delay(3600 * SECOND);
    mill.enqueue(start).await.unwrap();
    // A queue's deadline counts where the job has none of its own.
    mill.change_queue("q", |rules| rules.finish_within_ms = Some(60_000)).await.unwrap();
    let plain = || Enqueue::from(Echo::new("x")).queue("q").delay(60 * SECOND);
    let refused = mill.enqueue(plain()).await.unwrap_err();
    assert_eq!(refused.code(), "wish_contradiction");
    assert!(refused.to_string().contains("of the queue \"q\""), "{refused}");
    mill.enqueue(plain().finish_within(61 * SECOND)).await.unwrap();
}
