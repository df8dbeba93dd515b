//! A worker that speaks the protocol by the client's verbs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::value::RawValue;
use tidemill::{Enqueue, JobId, State, Token};
use tidemill_client::wire::Brought;
use tidemill_client::wire::run::{SaidAnswer, SaidItem};
use tidemill_client::wire::work::{Ask, Card, OutcomeBody, ReportBody, SettledBody};
use tidemill_core::ErrorClass;
use tidemill_core::span::Span;
use tidemill_core::stream::Said;

use super::kit::Kit;

over_both_stores!(
    jobs_are_claimed_and_settled,
    what_is_stale_is_told,
    a_cancel_is_heard_by_the_beat
);

const SOON: Duration = Duration::from_secs(30);

fn card() -> Card {
    let (name, queues) = ("elsewhere".to_owned(), vec!["default".to_owned()]);
    let (kinds, slots_of) = (vec!["k".to_owned()], BTreeMap::new());
    Card { name, queues, kinds, slots: 9, slots_of, lease: None }
}

fn ask(jobs_max: u32) -> Ask {
    let (queues, kinds) = (vec!["default".to_owned()], vec!["k".to_owned()]);
    Ask { queues, kinds, jobs_max, wait: Some(Span(SOON)) }
}

fn report(id: JobId, token: Token, outcome: OutcomeBody) -> ReportBody {
    let (started_at, attempts, ambiguous_attempts) = (None, None, None);
    let (backoff, run) = (None, None);
    ReportBody { id, token, outcome, started_at, attempts, ambiguous_attempts, backoff, run }
}

fn done(output: &str) -> OutcomeBody {
    let output = Some(RawValue::from_string(output.to_owned()).unwrap());
    OutcomeBody::Done { output, follow_ups: Brought::default(), steps: vec![] }
}

async fn jobs_are_claimed_and_settled(kit: Kit) {
    let work = kit.client.work();
    let worker = work.register(&card()).await.unwrap();
    let payload = r#"{ "n": 123456789012345678901234567890 }"#;
    kit.client.enqueue_many([Enqueue::raw("k", payload), Enqueue::raw("k", "2")]).await.unwrap();
    let claimed = work.claim(worker, &ask(9)).await.unwrap();
    let (token, jobs) = (claimed.token.unwrap(), claimed.jobs);
    assert_eq!(jobs[0].job.payload.as_str(), payload, "to the last digit");
    let said = vec![Said::text("half-way")];
    let item = SaidItem { id: jobs[0].job.id, token, sent: None, said, ephemeral: vec![] };
    assert_eq!(work.say(worker, vec![item]).await.unwrap(), [SaidAnswer::Written]);
    let message = "no such thing".to_owned();
    let failed = OutcomeBody::Failed { class: ErrorClass::Permanent, message, retry_after: None };
    let reports =
        vec![report(jobs[0].job.id, token, done("[1]")), report(jobs[1].job.id, token, failed)];
    let settled = work.settle(worker, reports).await.unwrap();
    assert_eq!(settled, [SettledBody::Accepted, SettledBody::Accepted]);
    let views = [jobs[0].job.id, jobs[1].job.id].map(|id| kit.client.wait(id, SOON));
    let views = futures::future::try_join_all(views).await.unwrap();
    assert_eq!((views[0].state, views[1].state), (State::Done, State::Dead));
    assert_eq!(views[0].output.as_ref().unwrap().as_str(), "[1]");
    assert_eq!(work.sign_off(worker).await.unwrap(), 0);
    kit.close().await;
}

async fn what_is_stale_is_told(kit: Kit) {
    let work = kit.client.work();
    let worker = work.register(&card()).await.unwrap();
    kit.client.enqueue(Enqueue::raw("k", "1")).await.unwrap();
    let claimed = work.claim(worker, &ask(1)).await.unwrap();
    let (token, id) = (claimed.token.unwrap(), claimed.jobs[0].job.id);
    assert_eq!(work.sign_off(worker).await.unwrap(), 1, "it had one");
    let settled = work.settle(worker, vec![report(id, token, done("1"))]).await.unwrap();
    assert_eq!(settled, [SettledBody::Stale]);
    let error = work.beat(worker, Duration::ZERO, None).await.unwrap_err();
    assert_eq!((error.code(), error.status()), ("worker_lost", Some(409)));
    kit.close().await;
}

async fn a_cancel_is_heard_by_the_beat(kit: Kit) {
    let work = kit.client.work();
    let worker = work.register(&card()).await.unwrap();
    let id = kit.client.enqueue(Enqueue::raw("k", "1")).await.unwrap().id();
    let claimed = work.claim(worker, &ask(1)).await.unwrap();
    let token = claimed.token.unwrap();
    let beat = work.beat(worker, Duration::from_secs(5), Some(vec![token]));
    let (heard, cancelled) = tokio::join!(beat, kit.mill.cancel(id, "enough"));
    cancelled.unwrap();
    let heard = match heard.unwrap().cancelled {
        heard if heard.is_empty() => work.beat(worker, SOON, None).await.unwrap().cancelled,
        heard => heard,
    };
    assert_eq!(heard, [id]);
    let reason = "told to".to_owned();
    let reports = vec![report(id, token, OutcomeBody::Cancel { reason })];
    assert_eq!(work.settle(worker, reports).await.unwrap(), [SettledBody::Accepted]);
    assert_eq!(kit.client.wait(id, SOON).await.unwrap().state, State::Cancelled);
    kit.close().await;
}
