//! Queues, limits and changes of jobs are over the wire what they are in the engine.

use std::time::Duration;

use tidemill::core::job::edit::Changes;
use tidemill::core::why::QueueWhy;
use tidemill::store::WorkerView;
use tidemill::{
    CancelAnswer, Enqueue, JobFilter, JobId, Limit, Priority, QueueRules, Retried, State,
};

use super::kit::Kit;

over_both_stores!(
    what_the_engine_says_the_client_says,
    rules_are_changed_by_several_at_once,
    jobs_are_changed_and_called_off,
);

async fn what_the_engine_says_the_client_says(kit: Kit) {
    let (client, mill) = (&kit.client, &kit.mill);
    let later = Enqueue::raw("k", "[1.50]").queue("mail:eu").delay(Duration::from_hours(1));
    let id = client.enqueue(later).await.unwrap().id();
    for _ in 0..3 {
        client.enqueue(Enqueue::raw("k", "null").queue("mail:eu")).await.unwrap();
    }
    let limit = Limit { concurrency: Some(2), ..Limit::default() };
    client.set_limit("mail:*", "smtp", Some(limit)).await.unwrap();
    client.pause("mail:eu").await.unwrap();
    assert_eq!(client.queues().await.unwrap(), mill.queues().await.unwrap());
    assert_eq!(client.limits().await.unwrap(), mill.limits().await.unwrap());
    assert_eq!(client.limit_states().await.unwrap(), mill.limit_states().await.unwrap());
    // They beat meanwhile, and rates are of the moment in which they are asked for.
    let still = |mut worker: WorkerView| {
        worker.beat_at = worker.started_at;
        worker
    };
    let workers = |all: Vec<WorkerView>| all.into_iter().map(still).collect::<Vec<_>>();
    let (said, known) = (client.workers().await.unwrap(), mill.workers().await.unwrap());
    assert_eq!(workers(said), workers(known));
    assert_eq!(client.why(id).await.unwrap().gates, mill.why(id).await.unwrap().gates);
    let (said, known) =
        (client.why_queue("mail:eu").await.unwrap(), mill.why_queue("mail:eu").await.unwrap());
    let words =
        |why: QueueWhy| why.to_string().replace(|c: char| c.is_ascii_digit() || c == '.', "");
    assert_eq!(words(said), words(known));
    assert_eq!(client.attempts(id).await.unwrap(), mill.attempts(id).await.unwrap());
    let mut filter = JobFilter { queue: Some("mail:eu".into()), limit: 2, ..JobFilter::default() };
    let page = client.jobs_page(&filter).await.unwrap();
    assert_eq!(page, mill.jobs_page(&filter).await.unwrap());
    filter.before = page.next;
    let rest = client.jobs_page(&filter).await.unwrap();
    assert_eq!((page.jobs.len(), rest.jobs.len()), (2, 2));
    let before = mill.now().await.unwrap();
    assert!(client.now().await.unwrap() >= before);
    client.set_limit("mail:*", "smtp", None).await.unwrap();
    let error = client.delete_limit("mail:*", "smtp").await.unwrap_err();
    assert_eq!(error.code(), "limit_unknown");
    kit.close().await;
}

async fn rules_are_changed_by_several_at_once(kit: Kit) {
    kit.client.resume("q").await.unwrap();
    let add = |n: u32| {
        let client = kit.client.clone();
        async move {
            let change = move |rules: &mut QueueRules| {
                rules.tenant_weights.insert(format!("t{n}"), n + 2);
            };
            client.change_queue("q", change).await.unwrap();
        }
    };
    tokio::join!(add(0), add(1), add(2), add(3));
    let rules = kit.client.queue_rules("q").await.unwrap();
    assert_eq!(rules.tenant_weights.len(), 4, "none has undone what another did");
    let old = QueueRules { version: 1, ..QueueRules::default() };
    let error = kit.client.set_queue("q", Some(old)).await.unwrap_err();
    assert_eq!(error.code(), "rule_changed");
    kit.client.set_queue("q", None).await.unwrap();
    assert_eq!(kit.client.queue_rules("q").await.unwrap(), QueueRules::default());
    kit.close().await;
}

async fn jobs_are_changed_and_called_off(kit: Kit) {
    let client = &kit.client;
    let job = || Enqueue::raw("echo", r#"{"n": 12345678901234567890.0}"#);
    let id = client.enqueue(job().delay(Duration::from_hours(1))).await.unwrap().id();
    client.set_priority(id, Priority::High).await.unwrap();
    let print = client.job(id).await.unwrap().unwrap().job.print();
    let tags = Changes { tags: Some(Some(vec!["a".into()])), ..Changes::default() };
    client.edit(id, tags, Some(print.clone())).await.unwrap();
    let view = client.job(id).await.unwrap().unwrap();
    assert_eq!(
        (view.job.priority, &view.job.options.tags[..]),
        (Priority::High, &["a".into()][..])
    );
    assert_eq!(view.job.payload.as_str(), r#"{"n": 12345678901234567890.0}"#);
    let error = client.edit(id, Changes::default(), Some(print)).await.unwrap_err();
    assert_eq!(error.code(), "job_changed");
    assert_eq!(client.retry(id, "me", None).await.unwrap(), Retried::Due);
    let unknown = JobId::new();
    let answers = client.cancel_many(vec![id, unknown], "enough").await.unwrap();
    assert_eq!(answers, [CancelAnswer::Cancelled, CancelAnswer::Unknown]);
    assert_eq!(client.job(id).await.unwrap().unwrap().state, State::Cancelled);
    let error = client.retry(id, "me", None).await.unwrap_err();
    assert_eq!(error.code(), "job_not_now");
    assert!(error.to_string().starts_with(&format!("the job {id} ")), "{error}");
    let worker = kit.work().await;
    let dead = client.enqueue(Enqueue::raw("fail", "1")).await.unwrap().id();
    client.wait(dead, Duration::from_secs(30)).await.unwrap();
    assert_eq!(client.retry(dead, "me", None).await.unwrap(), Retried::Replayed);
    worker.stop().await;
    kit.close().await;
}
