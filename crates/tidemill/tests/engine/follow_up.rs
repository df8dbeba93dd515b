//! A job's last act is to enqueue the next: both commit, or neither.

use tidemill::testing::drain;
use tidemill::{Enqueue, Fail, JobId, State, Unique, Worker};

use super::kit::{Echo, Kit};

over_both_stores!(
    follow_up_commits_with_success,
    follow_up_of_a_failure_is_never_seen,
    bad_follow_up_fails_the_attempt_where_it_was_made,
    follow_up_that_is_a_duplicate_does_not_stop_the_settle,
);

/// The first says a second one.
fn chain(worker: Worker, second: JobId, fail: Option<Fail>) -> Worker {
    worker.handle(move |echo: Echo, cx| {
        let fail = fail.clone();
        async move {
            if echo.text == "first" {
                cx.follow_up(Enqueue::from(Echo::new("second")).id(second))?;
                fail.map_or(Ok(()), Err)?;
            }
            Ok(echo.text)
        }
    })
}

async fn follow_up_commits_with_success(kit: Kit) {
    let mill = kit.open_still().await;
    let second = JobId::new();
    mill.enqueue(Echo::new("first")).await.unwrap();
    assert_eq!(drain(chain(mill.worker(), second, None)).await.unwrap().done, 2);
    let view = mill.job(second).await.unwrap().unwrap();
    assert_eq!((view.state, view.output.unwrap().as_str()), (State::Done, "\"second\""));
}

async fn follow_up_of_a_failure_is_never_seen(kit: Kit) {
    let mill = kit.open_still().await;
    for fail in [
        Fail::transient("no"),
        Fail::permanent("no"),
        Fail::cancel("no"),
        Fail::snooze(std::time::Duration::from_secs(9)),
    ] {
        let second = JobId::new();
        mill.enqueue(Echo::new("first")).await.unwrap();
        let drained = drain(chain(mill.worker(), second, Some(fail))).await.unwrap();
        assert_eq!((drained.attempts, drained.done), (1, 0));
        assert!(mill.job(second).await.unwrap().is_none());
    }
}

async fn bad_follow_up_fails_the_attempt_where_it_was_made(kit: Kit) {
    let mill = kit.open_still().await;
    let id = mill.enqueue(Echo::new("first")).await.unwrap().id();
    let worker = mill.worker().handle(|echo: Echo, cx| async move {
        cx.follow_up(Enqueue::raw("next", "{"))?;
        Ok(echo.text)
    });
    assert_eq!(drain(worker).await.unwrap().again, 1);
    let error = mill.job(id).await.unwrap().unwrap().error.unwrap();
    assert!(error.starts_with("the payload is not JSON"), "{error}");
}

async fn follow_up_that_is_a_duplicate_does_not_stop_the_settle(kit: Kit) {
    let mill = kit.open_still().await;
    let unique = |text| Enqueue::from(Echo::new(text)).unique(Unique::by_key("one"));
    let holder = unique("holder").delay(std::time::Duration::from_mins(1));
    mill.enqueue(holder).await.unwrap();
    let id = mill.enqueue(Echo::new("first")).await.unwrap().id();
    let worker = mill.worker().handle(move |echo: Echo, cx| async move {
        cx.follow_up(unique("second"))?;
        Ok(echo.text)
    });
    assert_eq!(drain(worker).await.unwrap().done, 1);
    assert_eq!(mill.job(id).await.unwrap().unwrap().state, State::Done);
    assert_eq!(mill.unfinished().await.unwrap().waiting, 1);
}
