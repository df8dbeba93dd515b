//! Enqueue: one, many, many at once; kinds that are declared, and kinds that nobody knows.

use futures::future::join_all;
use tidemill::{Enqueue, Flow, FlowFilter, JobFilter, JobId, Priority, Receipt, State, Tidemill};
use tidemill_testkit::eventually::eventually;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    job_is_there_for_others_when_enqueue_answers,
    ten_thousand_jobs_are_answered_in_order,
    concurrent_enqueues_all_stand,
    same_id_is_enqueued_once,
    an_id_that_another_job_has_is_refused,
    wishes_survive,
    jobs_that_are_far_between_are_found_by_several_looks,
    large_integers_stay_exact,
    undeclared_kind_is_refused_where_kinds_are_declared,
    kind_that_no_worker_knows_waits_in_sight,
);

async fn job_is_there_for_others_when_enqueue_answers(kit: Kit) {
    let (one, other) = (kit.open().await, kit.open().await);
    let receipt = one.enqueue(Echo::new("hello")).await.unwrap();
    assert!(matches!(receipt, Receipt::Enqueued { .. }));
    let view = other.job(receipt.id()).await.unwrap().unwrap();
    assert_eq!((view.state, view.attempt), (State::Ready, 0));
    assert_eq!(view.job.payload.read::<Echo>().unwrap(), Echo::new("hello"));
    assert_eq!(one.counts().enqueued, 1);
}

async fn ten_thousand_jobs_are_answered_in_order(kit: Kit) {
    let mill = kit.open().await;
    let ids: Vec<_> = (0..10_000).map(|_| JobId::new()).collect();
    let jobs = ids.iter().map(|id| Enqueue::from(Echo::new("x")).id(*id));
    let receipts = mill.enqueue_many(jobs).await.unwrap();
    assert!(receipts.iter().map(Receipt::id).eq(ids.iter().copied()));
    assert!(receipts.iter().all(Receipt::is_new));
    assert_eq!(mill.unfinished().await.unwrap().waiting, 10_000);
}

async fn concurrent_enqueues_all_stand(kit: Kit) {
    let mill = kit.open().await;
    let ids: Vec<_> = (0..300).map(|_| JobId::new()).collect();
    let calls = ids.iter().map(|id| mill.enqueue(Enqueue::from(Echo::new("x")).id(*id)));
    for (id, receipt) in ids.iter().zip(join_all(calls).await) {
        assert_eq!(receipt.unwrap(), Receipt::Enqueued { id: *id });
    }
    assert_eq!(mill.unfinished().await.unwrap().waiting, 300);
}

async fn same_id_is_enqueued_once(kit: Kit) {
    let mill = kit.open().await;
    let id = JobId::new();
    let job = || Enqueue::from(Echo::new("x")).id(id);
    assert_eq!(mill.enqueue(job()).await.unwrap(), Receipt::Enqueued { id });
    assert_eq!(mill.enqueue(job()).await.unwrap(), Receipt::Enqueued { id });
    assert_eq!(mill.enqueue_many([job(), job()]).await.unwrap().len(), 2);
    assert_eq!(mill.unfinished().await.unwrap().waiting, 1);
}

async fn an_id_that_another_job_has_is_refused(kit: Kit) {
    let mill = kit.open().await;
    let id = JobId::new();
    let job = |text: &str| Enqueue::from(Echo::new(text)).id(id);
    mill.enqueue(job("one")).await.unwrap();
    let others = [job("two"), job("one").queue("other"), job("one").tenant("acme")];
    for other in others {
        let fresh = JobId::new();
        let error = mill.enqueue(other.clone()).await.unwrap_err();
        assert_eq!(error.code(), "id_taken");
        assert!(error.to_string().contains(&id.to_string()), "{error}");
        let many = [Enqueue::from(Echo::new("new")).id(fresh), other];
        assert_eq!(mill.enqueue_many(many).await.unwrap_err().code(), "id_taken");
        assert!(mill.job(fresh).await.unwrap().is_none(), "nothing of the batch is written");
    }
    let twice = JobId::new();
    let both = ["one", "two"].map(|text| Enqueue::from(Echo::new(text)).id(twice));
    assert_eq!(mill.enqueue_many(both).await.unwrap_err().code(), "id_taken");
    assert!(mill.job(twice).await.unwrap().is_none());
    mill.enqueue(job("one")).await.unwrap();
    assert_eq!(mill.job(id).await.unwrap().unwrap().job.queue, "default");
}

async fn wishes_survive(kit: Kit) {
    let mill = kit.open().await;
    let job = Enqueue::from(Echo::new("x"))
        .queue("mail")
        .priority(Priority::High)
        .tenant("acme")
        .key("customer:42")
        .delay(SOON)
        .tag("onboarding")
        .tag("emea")
        .trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let id = mill.enqueue(job).await.unwrap().id();
    let view = mill.job(id).await.unwrap().unwrap();
    assert_eq!((view.job.queue.as_str(), view.job.priority), ("mail", Priority::High));
    assert_eq!(view.job.tenant.as_deref(), Some("acme"));
    assert_eq!(view.job.key.as_deref(), Some("customer:42"));
    assert_eq!(view.state, State::Scheduled);
    assert_eq!(view.due_at.unwrap().duration_since(view.job.created_at).unsigned_abs(), SOON);
    assert_eq!(view.job.options.tags, ["onboarding", "emea"]);
    assert!(view.job.options.trace.unwrap().starts_with("00-0af"));
    let filter = JobFilter { tag: Some("emea".into()), ..JobFilter::default() };
    assert_eq!(mill.jobs(&filter).await.unwrap().len(), 1);
}

async fn jobs_that_are_far_between_are_found_by_several_looks(kit: Kit) {
    let mill = kit.open().await;
    let tagged = |n: u32| {
        let job = Enqueue::from(Echo::new("x"));
        if n % 20 == 3 { job.tag("rare") } else { job }
    };
    mill.enqueue_many((0..100).map(tagged)).await.unwrap();
    let filter = JobFilter { tag: Some("rare".into()), look_max: 7, ..JobFilter::default() };
    let all = mill.jobs(&filter).await.unwrap();
    assert_eq!(all.len(), 5);
    let few = mill.jobs(&JobFilter { limit: 3, ..filter.clone() }).await.unwrap();
    assert_eq!(few, all[..3]);
    let page = mill.jobs_page(&filter).await.unwrap();
    assert!(page.jobs.is_empty() && page.next.is_some(), "one look ends after seven jobs");
}

async fn large_integers_stay_exact(kit: Kit) {
    let mill = kit.open().await;
    let text = r#"{"n":9007199254740993,"z":-0.10,"a":123456789012345678901234567890}"#;
    let id = mill.enqueue(Enqueue::raw("k", text)).await.unwrap().id();
    assert_eq!(mill.job(id).await.unwrap().unwrap().job.payload.as_str(), text);
}

async fn undeclared_kind_is_refused_where_kinds_are_declared(kit: Kit) {
    let mill = Tidemill::builder().kind::<Echo>().open(&kit.url).await.unwrap();
    let error = mill.enqueue(Enqueue::raw("ecko", "{}")).await.unwrap_err();
    assert_eq!(error.code(), "kind_unknown");
    assert!(error.to_string().contains("ecko") && error.to_string().contains("echo"));
    let batch = [Enqueue::from(Echo::new("x")), Enqueue::raw("ecko", "{}")];
    assert_eq!(mill.enqueue_many(batch).await.unwrap_err().code(), "kind_unknown");
    let saga = Flow::saga("s").step("a", Echo::new("x")).undo(Enqueue::raw("ecko", "{}"));
    let error = mill.start(saga).await.unwrap_err();
    assert_eq!(error.code(), "kind_unknown", "an undo is a job, too");
    let says = error.to_string();
    assert!(says.contains(r#"the undo of the step "a""#) && says.contains("ecko"), "{says}");
    // As a server reads it, within another flow, and in a part.
    let text = r#"{"name": "s", "saga": true, "steps": [{"name": "eu", "steps": [
        {"name": "hotel", "kind": "echo", "undo": {"kind": "ecko"}}]}]}"#;
    let error = mill.start(Flow::from_json(text).unwrap()).await.unwrap_err();
    assert_eq!(error.code(), "kind_unknown");
    assert!(error.to_string().contains(r#"the undo of the step "eu/hotel""#), "{error}");
    let part = Flow::new("f").fan_out("mails", [Enqueue::raw("ecko", "{}")]).building();
    let error = mill.start(part).await.unwrap_err();
    assert!(error.to_string().contains(r#"the step "mails""#), "{error}");
    assert!(mill.flows(&FlowFilter::default()).await.unwrap().is_empty());
    assert_eq!(mill.unfinished().await.unwrap().waiting, 0);
    assert!(mill.enqueue(Echo::new("x")).await.unwrap().is_new());
}

async fn kind_that_no_worker_knows_waits_in_sight(kit: Kit) {
    let mill = kit.open().await;
    let lonely = mill.enqueue(Enqueue::raw("nobody_knows", "1")).await.unwrap().id();
    let worker = mill.worker().handle(|echo: Echo, _cx| async move { Ok(echo.text) });
    let running = worker.start().await.unwrap();
    let known = mill.enqueue(Echo::new("x")).await.unwrap().id();
    assert_eq!(mill.wait(known, SOON).await.unwrap().state, State::Done);
    let view = mill.job(lonely).await.unwrap().unwrap();
    assert_eq!((view.state, view.attempt, view.lost), (State::Ready, 0, 0));
    eventually("the queue to show the orphan", SOON, async || {
        let queues = mill.queues().await.unwrap();
        queues.iter().any(|q| q.orphan_kinds == ["nobody_knows"]).then_some(())
    })
    .await;
    running.stop().await;
}
