//! What a handler says, and what becomes of the job: every outcome, on a clock that stands still.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill::core::Settlement;
use tidemill::testing::{Drained, drain, run_inline};
use tidemill::{
    Backoff, Context, DeadFilter, Enqueue, ErrorClass, Fail, Job, JobId, JobView, Retry, State,
    Tidemill, Worker,
};

use super::kit::Kit;

over_both_stores!(
    done_keeps_its_output,
    transient_failure_is_retried_after_its_backoff_until_its_attempts_are_spent,
    permanent_failure_is_dead_at_once,
    panic_and_doubt_have_a_smaller_budget,
    rate_limit_spends_no_attempt,
    snooze_spends_no_attempt_and_is_no_failure,
    handler_can_call_its_job_off,
    handler_can_choose_the_next_time,
    overlong_delay_is_a_century_for_a_step_as_for_a_job,
    unreadable_payload_is_dead_at_once,
);

const MINUTE: Duration = Duration::from_mins(1);

/// A job whose handler says what it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Say {
    Done,
    Transient,
    Permanent,
    Ambiguous,
    Panic,
    RateLimited,
    Snooze,
    Cancel,
    RetryAfter,
}

impl Job for Say {
    const KIND: &'static str = "say";
    type Output = String;
}

fn say(what: Say) -> Result<String, Fail> {
    Err(match what {
        Say::Done => return Ok("done".into()),
        Say::Transient => Fail::transient("the line is busy"),
        Say::Permanent => Fail::permanent("no such user"),
        Say::Ambiguous => Fail::ambiguous("the line broke"),
        Say::Panic => panic!("out of luck"),
        Say::RateLimited => Fail::rate_limited(MINUTE),
        Say::Snooze => Fail::snooze(MINUTE),
        Say::Cancel => Fail::cancel("not needed any more"),
        Say::RetryAfter => Fail::transient("come back later").retry_after(10 * MINUTE),
    })
}

fn worker(mill: &Tidemill) -> Worker {
    mill.worker().handle(|what: Say, _cx| async move { say(what) })
}

async fn enqueue(mill: &Tidemill, what: Say) -> JobId {
    let retry = Retry::attempts(4).backoff(Backoff::Fixed { delay_ms: 60_000 });
    mill.enqueue(Enqueue::from(what).retry(retry)).await.unwrap().id()
}

async fn view(mill: &Tidemill, id: JobId) -> JobView {
    mill.job(id).await.unwrap().unwrap()
}

async fn class_of_death(mill: &Tidemill, id: JobId) -> ErrorClass {
    let filter = DeadFilter { ids: vec![id], ..DeadFilter::default() };
    mill.dead().list(&filter, None, 10).await.unwrap()[0].class
}

async fn done_keeps_its_output(kit: Kit) {
    let mill = kit.open_still().await;
    let id = enqueue(&mill, Say::Done).await;
    let drained = drain(worker(&mill)).await.unwrap();
    assert_eq!(drained, Drained { attempts: 1, done: 1, ..Drained::default() });
    let view = view(&mill, id).await;
    assert_eq!((view.state, view.finished_at), (State::Done, Some(kit.clock.now())));
    assert_eq!(view.output.unwrap().as_str(), "\"done\"");
    assert!(view.token.is_some() && view.worker.is_some());
}

async fn transient_failure_is_retried_after_its_backoff_until_its_attempts_are_spent(kit: Kit) {
    let mill = kit.open_still().await;
    let id = enqueue(&mill, Say::Transient).await;
    for attempt in 1..=3 {
        let drained = drain(worker(&mill)).await.unwrap();
        assert_eq!(drained, Drained { attempts: 1, again: 1, ..Drained::default() });
        let view = view(&mill, id).await;
        assert_eq!((view.state, view.attempt), (State::Scheduled, attempt));
        assert_eq!(view.due_at, Some(kit.clock.now() + MINUTE));
        assert_eq!(view.error.as_deref(), Some("the line is busy"));
        kit.advance(Duration::from_millis(59_999));
        assert_eq!(drain(worker(&mill)).await.unwrap().attempts, 0, "too early");
        kit.advance(Duration::from_millis(1));
    }
    assert_eq!(drain(worker(&mill)).await.unwrap().dead, 1);
    assert_eq!(view(&mill, id).await.state, State::Dead);
    assert_eq!(class_of_death(&mill, id).await, ErrorClass::Transient);
    let attempts = mill.attempts(id).await.unwrap();
    assert!(attempts.iter().map(|a| a.attempt).take(3).eq(1..=3), "{attempts:?}");
    assert!(attempts.is_sorted_by_key(|a| a.token));
}

async fn permanent_failure_is_dead_at_once(kit: Kit) {
    let mill = kit.open_still().await;
    let id = enqueue(&mill, Say::Permanent).await;
    assert_eq!(drain(worker(&mill)).await.unwrap().dead, 1);
    let view = view(&mill, id).await;
    assert_eq!((view.state, view.error.as_deref()), (State::Dead, Some("no such user")));
    assert_eq!(class_of_death(&mill, id).await, ErrorClass::Permanent);
}

async fn panic_and_doubt_have_a_smaller_budget(kit: Kit) {
    let mill = kit.open_still().await;
    for (what, message) in
        [(Say::Panic, "the handler panicked: out of luck"), (Say::Ambiguous, "the line broke")]
    {
        let id = enqueue(&mill, what).await;
        for _ in 0..2 {
            assert_eq!(drain(worker(&mill)).await.unwrap().again, 1);
            kit.advance(MINUTE);
        }
        assert_eq!(drain(worker(&mill)).await.unwrap().dead, 1);
        assert_eq!(view(&mill, id).await.error.as_deref(), Some(message));
        assert_eq!(class_of_death(&mill, id).await, ErrorClass::Ambiguous);
    }
}

async fn rate_limit_spends_no_attempt(kit: Kit) {
    let mill = kit.open_still().await;
    let id = enqueue(&mill, Say::RateLimited).await;
    for _ in 0..10 {
        assert_eq!(drain(worker(&mill)).await.unwrap().again, 1);
        let view = view(&mill, id).await;
        assert_eq!((view.state, view.attempt), (State::Scheduled, 0));
        assert_eq!(view.due_at, Some(kit.clock.now() + MINUTE));
        kit.advance(MINUTE);
    }
}

async fn snooze_spends_no_attempt_and_is_no_failure(kit: Kit) {
    let mill = kit.open_still().await;
    let id = enqueue(&mill, Say::Snooze).await;
    for _ in 0..10 {
        assert_eq!(drain(worker(&mill)).await.unwrap().again, 1);
        let view = view(&mill, id).await;
        assert_eq!((view.state, view.attempt, view.error), (State::Scheduled, 0, None));
        kit.advance(MINUTE);
    }
}

async fn handler_can_call_its_job_off(kit: Kit) {
    let mill = kit.open_still().await;
    let id = enqueue(&mill, Say::Cancel).await;
    assert_eq!(drain(worker(&mill)).await.unwrap().cancelled, 1);
    let view = view(&mill, id).await;
    let reason = Some("not needed any more");
    assert_eq!((view.state, view.error.as_deref()), (State::Cancelled, reason));
}

async fn handler_can_choose_the_next_time(kit: Kit) {
    let mill = kit.open_still().await;
    let id = enqueue(&mill, Say::RetryAfter).await;
    drain(worker(&mill)).await.unwrap();
    let view = view(&mill, id).await;
    assert_eq!((view.attempt, view.due_at), (1, Some(kit.clock.now() + 10 * MINUTE)));
}

/// As long as a job or a step can be put off.
const CENTURY: Duration = Duration::from_hours(100 * 366 * 24);

async fn overlong_delay_is_a_century_for_a_step_as_for_a_job(kit: Kit) {
    let mill = kit.open_still().await;
    let overlong: [fn() -> Fail; 3] = [
        || Fail::snooze(Duration::MAX),
        || Fail::rate_limited(Duration::MAX),
        || Fail::transient("come back later").retry_after(Duration::MAX),
    ];
    for fail in overlong {
        let plain = || mill.worker().handle(move |_: Say, _cx| async move { Err(fail()) });
        let durable = || {
            mill.worker().handle(move |_: Say, cx: Context| async move {
                cx.step("say").run(|_| async move { Err(fail()) }).await
            })
        };
        let put_off = Some(kit.clock.now() + CENTURY);
        match run_inline(durable(), Say::Done).await.unwrap() {
            Settlement::Wait(waiting) => assert_eq!(waiting.waits.until, put_off, "{}", fail()),
            other => panic!("{other:?}"),
        }
        for worker in [plain(), durable()] {
            let id = enqueue(&mill, Say::Done).await;
            assert_eq!(drain(worker).await.unwrap().again, 1);
            let view = view(&mill, id).await;
            assert_eq!((view.state, view.due_at), (State::Scheduled, put_off), "{}", fail());
        }
    }
}

async fn unreadable_payload_is_dead_at_once(kit: Kit) {
    let mill = kit.open_still().await;
    let id = mill.enqueue(Enqueue::raw("say", "\"Nonsense\"")).await.unwrap().id();
    assert_eq!(drain(worker(&mill)).await.unwrap().dead, 1);
    let view = view(&mill, id).await;
    assert!(view.error.unwrap().starts_with("the payload cannot be read as say"));
}
