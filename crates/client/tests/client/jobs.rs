//! Jobs over the wire are the jobs that the engine has.

use std::time::Duration;

use tidemill::core::retry::Backoff;
use tidemill::{
    Enqueue, JobId, OnDead, OnDuplicate, OwnRetry, Priority, Receipt, Retry, State, Unique,
};

use super::kit::Kit;

over_both_stores!(every_wish_arrives, a_job_is_waited_for, errors_keep_their_codes);

const SOON: Duration = Duration::from_secs(30);

/// What is enqueued over HTTP is what is enqueued without it.
async fn every_wish_arrives(kit: Kit) {
    let hour = Duration::from_hours(1);
    let retry =
        Retry { attempts_max: 3, ambiguous_max: 2, backoff: Backoff::Fixed { delay_ms: 1500 } };
    let plain = || Enqueue::raw("k", r#"{"a": 9007199254740993}"#);
    let jobs = || {
        [
            plain(),
            plain()
                .queue("mail")
                .priority(Priority::High)
                .tenant("t")
                .key("c")
                .ordered(OnDead::Skip),
            plain()
                .delay(hour)
                .retry(retry.clone())
                .run_timeout(hour)
                .start_within(hour)
                .finish_within(2 * hour),
            plain().tag("one").tag("two").retain(hour).spread(hour).retry(OwnRetry::attempts(4)),
            plain().unique(Unique::by_key("order=1").on_duplicate(OnDuplicate::Join).forever()),
            plain().unique(Unique::by_fields(["a"]).for_period(hour)),
        ]
    };
    let sent = kit.client.enqueue_many(jobs()).await.unwrap();
    let again = kit.mill.enqueue_many(jobs()).await.unwrap();
    for (n, (sent, again)) in sent.iter().zip(&again).enumerate() {
        let sent = kit.client.job(sent.id()).await.unwrap().unwrap();
        match again {
            Receipt::Joined { id } | Receipt::Rejected { id, .. } => {
                assert!(n >= 4, "only the last two are unique");
                assert_eq!(*id, sent.job.id, "its key is the same");
            }
            _ => {
                let mut embedded = kit.mill.job(again.id()).await.unwrap().unwrap();
                (embedded.job.id, embedded.job.created_at) = (sent.job.id, sent.job.created_at);
                assert_eq!(embedded.job, sent.job);
            }
        }
    }
    assert!(matches!(again[4], Receipt::Joined { .. }));
    assert!(matches!(again[5], Receipt::Rejected { .. }));
    kit.close().await;
}

async fn a_job_is_waited_for(kit: Kit) {
    let worker = kit.work().await;
    let id = kit.client.enqueue(Enqueue::raw("echo", "[1]")).await.unwrap().id();
    let view = kit.client.wait(id, SOON).await.unwrap();
    assert_eq!((view.state, view.output.unwrap().as_str()), (State::Done, "[1]"));
    let later = Enqueue::raw("echo", "1").delay(Duration::from_hours(1));
    let id = kit.client.enqueue(later.clone()).await.unwrap().id();
    assert_eq!(kit.client.enqueue(later).await.unwrap().id(), id, "sent again, it is one job");
    let error = kit.client.wait(id, Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(error.code(), "wait_timeout");
    worker.stop().await;
    kit.close().await;
}

async fn errors_keep_their_codes(kit: Kit) {
    assert_eq!(kit.client.job(JobId::new()).await.unwrap(), None);
    let error = kit.client.wait(JobId::new(), SOON).await.unwrap_err();
    assert_eq!((error.code(), error.status()), ("job_unknown", Some(404)));
    let error = kit.client.enqueue(Enqueue::raw("", "1")).await.unwrap_err();
    assert_eq!(error.code(), "name_empty");
    let Kit { server, client, .. } = kit;
    server.stop().await;
    let error = client.job(JobId::new()).await.unwrap_err();
    assert_eq!(error.code(), "server_unreachable");
    assert!(error.is_temporary());
}
