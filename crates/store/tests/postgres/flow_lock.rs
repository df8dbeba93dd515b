//! A settle carries flows on only where nobody else has them: it waits for no flow's lock, and loses no arrival. What
//! is decided under a lock goes by what is true under it.

use std::sync::Arc;

use tidemill_core::flow::{After, Flow, FlowOptions, FlowState, Step, StepState, Work};
use tidemill_core::retention::Retention;
use tidemill_core::{
    By, ErrorClass, Failure, FlowId, JobId, Limits, NewJob, Payload, Settlement, State,
};
use tidemill_store::flow::{FlowAct, Start};
use tidemill_store::{Settled, Store};
use tidemill_testkit::databases::fresh_postgres_url;
use tidemill_testkit::eventually::eventually;

use super::deadlock::{WAITING, count, waiting};
use super::kit::{SOON, ask, connect, done, items, store, worker};

fn chain() -> Flow {
    let step = |name: &str, after: Vec<After>| {
        let work = Work::Jobs(vec![NewJob::new(name, Payload::null())]);
        Step { after, ..Step::new(name, work) }
    };
    let steps = vec![step("a", vec![]), step("b", vec![After::success("a")])];
    Flow { id: FlowId::new(), name: "chain".into(), steps, options: FlowOptions::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_waits_for_no_flow_that_is_in_other_hands() {
    let url = fresh_postgres_url();
    let (store, other) = (store(&url).await, connect(&url).await);
    let worker = worker(&store).await;
    let plan = chain().plan(&Limits::default(), Retention::default()).unwrap();
    let FlowId(id) = plan.id;
    assert!(store.start_flow(plan, Start::Now).await.unwrap());
    let claim = store.claim(ask(worker, 1)).await.unwrap();

    other.batch_execute("begin").await.unwrap();
    other.query("select from tidemill.flow where id = $1 for update", &[&id]).await.unwrap();
    let settling = store.settle(worker, items(&claim, &done()));
    let settled = tokio::time::timeout(SOON, settling).await.expect("it waits for nobody");
    assert_eq!(settled.unwrap(), [Settled::Accepted]);
    assert!(store.claim(ask(worker, 1)).await.unwrap().jobs.is_empty(), "nobody has decided yet");
    other.batch_execute("commit").await.unwrap();

    let claim = eventually("the next step", SOON, async || {
        let claim = store.claim(ask(worker, 1)).await.unwrap();
        (!claim.jobs.is_empty()).then_some(claim)
    })
    .await;
    assert_eq!(claim.jobs[0].job.kind, "b");
    let arrivals = "select count(*) from tidemill.flow_arrival";
    let left: i64 = other.query_one(arrivals, &[]).await.unwrap().get(0);
    assert_eq!(left, 0, "what was left for others is counted");
    store.settle(worker, items(&claim, &done())).await.unwrap();
    let flow = store.flow(FlowId(id)).await.unwrap().unwrap();
    assert_eq!(flow.head.state, FlowState::Done, "the settle itself has ended it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_join_is_judged_by_what_holds_once_the_flow_is_locked() {
    let url = fresh_postgres_url();
    let (store, other, looker) = (store(&url).await, connect(&url).await, connect(&url).await);
    let mut chain = chain();
    chain.steps[1].join.within_ms = Some(3_600_000);
    let plan = chain.plan(&Limits::default(), Retention::default()).unwrap();
    let FlowId(id) = plan.id;
    assert!(store.start_flow(plan, Start::Now).await.unwrap());
    let late_at = |when: &str| {
        format!(
            "update tidemill.flow_step set late_at = {when}, late_look_at = {when} \
             where flow = $1 and late_look_at is not null"
        )
    };
    assert_eq!(other.execute(&late_at("now() - interval '1 s'"), &[&id]).await.unwrap(), 1);

    other.batch_execute("begin").await.unwrap();
    other.query("select from tidemill.flow where id = $1 for update", &[&id]).await.unwrap();
    let tending = Arc::clone(&store);
    let tending = tokio::spawn(async move { tending.tend_flows().await.unwrap() });
    eventually("the tender waits for the lock", SOON, async || {
        let waiting = "select count(*) from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock'";
        let waiting: i64 = looker.query_one(waiting, &[]).await.unwrap().get(0);
        (waiting > 0).then_some(())
    })
    .await;
    assert_eq!(other.execute(&late_at("now() + interval '1 hour'"), &[&id]).await.unwrap(), 1);
    other.batch_execute("commit").await.unwrap();
    tokio::time::timeout(SOON, tending).await.unwrap().unwrap();
    let flow = store.flow(FlowId(id)).await.unwrap().unwrap();
    assert_eq!(flow.steps[1].state, StepState::Waiting, "it was given more time meanwhile");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_that_is_given_more_time_while_it_is_waited_for_goes_on() {
    let url = fresh_postgres_url();
    let (store, other, looker) = (store(&url).await, connect(&url).await, connect(&url).await);
    let options = FlowOptions { finish_within_ms: Some(3_600_000), ..FlowOptions::default() };
    let plan = Flow { options, ..chain() };
    let plan = plan.plan(&Limits::default(), Retention::default()).unwrap();
    let FlowId(id) = plan.id;
    assert!(store.start_flow(plan, Start::Now).await.unwrap());
    let expires_at =
        |when: &str| format!("update tidemill.flow set expires_at = {when} where id = $1");
    assert_eq!(other.execute(&expires_at("now() - interval '1 s'"), &[&id]).await.unwrap(), 1);

    other.batch_execute("begin").await.unwrap();
    assert_eq!(other.execute(&expires_at("now() + interval '1 hour'"), &[&id]).await.unwrap(), 1);
    let tending = Arc::clone(&store);
    let tending = tokio::spawn(async move { tending.tend_flows().await.unwrap() });
    waiting(&looker, 1).await;
    other.batch_execute("commit").await.unwrap();
    tokio::time::timeout(SOON, tending).await.unwrap().unwrap();
    let flow = store.flow(FlowId(id)).await.unwrap().unwrap();
    assert_eq!(flow.head.state, FlowState::Running);
}

/// Whoever has a flow's lock counts on the places of its steps' rows: an update beside it would move one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_changes_a_step_of_a_flow_that_is_in_other_hands() {
    let url = fresh_postgres_url();
    let (store, other, looker) = (store(&url).await, connect(&url).await, connect(&url).await);
    let plan = chain().plan(&Limits::default(), Retention::default()).unwrap();
    let FlowId(id) = plan.id;
    assert!(store.start_flow(plan, Start::Now).await.unwrap());
    let called_off = include_str!("../../src/postgres/sql/called_off_step.sql")
        .replace("$1", &format!("'{id}'"))
        .replace("$2", "1");
    let encrypt = include_str!("../../src/postgres/sql/encrypt_undos_again.sql")
        .replace("$1", &format!("'{id}'"))
        .replace("$2", "1")
        .replace("$3", "'{}'")
        .replace("$4", "null")
        .replace("$5", "null")
        .replace("$6", "null");
    for change in [called_off, encrypt] {
        other.batch_execute("begin").await.unwrap();
        other.query("select from tidemill.flow where id = $1 for update", &[&id]).await.unwrap();
        let third = connect(&url).await;
        let changing = tokio::spawn(async move { third.simple_query(&change).await.unwrap() });
        waiting(&looker, 1).await;
        other.batch_execute("commit").await.unwrap();
        let messages = tokio::time::timeout(SOON, changing).await.unwrap().unwrap();
        let is_made = messages.iter().any(|message| {
            matches!(message, tokio_postgres::SimpleQueryMessage::CommandComplete(1))
        });
        assert!(is_made, "it comes to pass behind the lock");
    }
}

/// A tender has read which steps are to be called off, and stands still at the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_call_off_that_lags_behind_lets_alone_what_was_sent_again() {
    let url = fresh_postgres_url();
    let store = store(&url).await;
    for _ in 0..9 {
        let left = sent_again_behind_a_tender(&store, &url).await;
        for id in &left {
            assert_eq!(store.job(*id).await.unwrap().unwrap().state, State::Ready);
        }
        if !left.is_empty() {
            return;
        }
        // The tender got the lock once more before the other, who had waited for it.
    }
    panic!("nobody was faster than the tender");
}

/// Answers what was sent again of the second step while a tender stood at the first.
async fn sent_again_behind_a_tender(store: &Arc<dyn Store>, url: &str) -> Vec<JobId> {
    let looker = connect(url).await;
    let (mut blocking, mut other) = (connect(url).await, connect(url).await);
    let step = |name: &str| {
        // In queues of their own, they wait in sheaves of their own.
        let job = NewJob { queue: name.to_owned(), ..NewJob::new(name, Payload::null()) };
        Step::new(name, Work::Jobs(vec![job]))
    };
    let plan = Flow { steps: vec![step("first"), step("second")], ..chain() };
    let plan = plan.plan(&Limits::default(), Retention::default()).unwrap();
    let id = plan.id;
    assert!(store.start_flow(plan, Start::Now).await.unwrap());
    store.change_flow(id, FlowAct::Cancel { reason: "enough".into() }).await.unwrap();
    let blocked = blocking.transaction().await.unwrap();
    blocked
        .query("select from tidemill.ready where queue = 'first' for update", &[])
        .await
        .unwrap();
    let tending = Arc::clone(store);
    let tending = tokio::spawn(async move { tending.tend_flows().await.unwrap() });
    waiting(&looker, 1).await;

    // Another has called off what there was of the second step, and somebody has sent it again.
    let sent_again = tokio::spawn(async move {
        let sending = other.transaction().await.unwrap();
        sending
            .query("select from tidemill.flow where id = $1 for update", &[&id.0])
            .await
            .unwrap();
        let left = "select j.id from tidemill.job j where j.flow = $1 and j.step = 1
            and not exists (select from tidemill.outcome o where o.id = j.id)";
        let left = sending.query(left, &[&id.0]).await.unwrap();
        let called_off =
            "update tidemill.flow_step set call_off = false where flow = $1 and number = 1";
        sending.execute(called_off, &[&id.0]).await.unwrap();
        sending.commit().await.unwrap();
        left.iter().map(|row| JobId(row.get(0))).collect::<Vec<_>>()
    });
    eventually("it is done, or waits for the flow", SOON, async || {
        (sent_again.is_finished() || count(&looker, WAITING).await == 2).then_some(())
    })
    .await;
    blocked.rollback().await.unwrap();
    tokio::time::timeout(SOON, tending).await.unwrap().unwrap();
    sent_again.await.unwrap()
}

/// Between two pages of a call-off, another finishes it, its jobs are sent again, and it is called off anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_call_off_that_lags_behind_leaves_what_was_noted_since() {
    let url = fresh_postgres_url();
    let store = store(&url).await;
    for _ in 0..9 {
        if noted_anew_between_pages(&store, &url).await {
            return;
        }
        // The tender got the lock once more before the other, who had waited for it.
    }
    panic!("nobody was faster than the tender");
}

/// Whether somebody got in between the tender's pages.
async fn noted_anew_between_pages(store: &Arc<dyn Store>, url: &str) -> bool {
    let looker = connect(url).await;
    let (mut blocking, mut other) = (connect(url).await, connect(url).await);
    let jobs = (0..1500).map(|_| NewJob::new("many", Payload::null())).collect();
    let steps = vec![Step::new("many", Work::Jobs(jobs))];
    let plan = Flow { steps, ..chain() }.plan(&Limits::default(), Retention::default()).unwrap();
    let id = plan.id;
    assert!(store.start_flow(plan, Start::Now).await.unwrap());
    while store.tend_flows().await.unwrap() {}
    store.change_flow(id, FlowAct::Cancel { reason: "enough".into() }).await.unwrap();
    let blocked = blocking.transaction().await.unwrap();
    blocked.query("select from tidemill.ready for update", &[]).await.unwrap();
    let tending = Arc::clone(store);
    let tending = tokio::spawn(async move { tending.tend_flows().await.unwrap() });
    waiting(&looker, 1).await;
    let noting = tokio::spawn(async move {
        let noting = other.transaction().await.unwrap();
        noting.query("select from tidemill.flow where id = $1 for update", &[&id.0]).await.unwrap();
        let left = "select from tidemill.job j where j.flow = $1
            and not exists (select from tidemill.outcome o where o.id = j.id)";
        let left = noting.query(left, &[&id.0]).await.unwrap().len();
        let note = "update tidemill.flow_step set call_off = true, call_offs = call_offs + 1
            where flow = $1 and state < 3";
        noting.execute(note, &[&id.0]).await.unwrap();
        noting.commit().await.unwrap();
        left
    });
    waiting(&looker, 2).await;
    blocked.rollback().await.unwrap();
    tokio::time::timeout(SOON, tending).await.unwrap().unwrap();
    let is_between = noting.await.unwrap() == 500;
    let noted = "select count(*) from tidemill.flow_step where call_off";
    assert_eq!(count(&looker, noted).await, i64::from(is_between), "it is for the next round");
    while store.tend_flows().await.unwrap() {}
    assert_eq!(count(&looker, noted).await, 0);
    assert_eq!(store.flow(id).await.unwrap().unwrap().head.state, FlowState::Cancelled);
    is_between
}

/// A chain of which the first step is done and the second is dead: its second job.
async fn broken(store: &Arc<dyn Store>) -> (FlowId, JobId) {
    let worker = worker(store).await;
    let plan = chain().plan(&Limits::default(), Retention::default()).unwrap();
    let id = plan.id;
    assert!(store.start_flow(plan, Start::Now).await.unwrap());
    let claim = store.claim(ask(worker, 1)).await.unwrap();
    store.settle(worker, items(&claim, &done())).await.unwrap();
    let claim = store.claim(ask(worker, 1)).await.unwrap();
    let failure = Failure::new("b", ErrorClass::Permanent, "no");
    store.settle(worker, items(&claim, &Settlement::Dead { failure })).await.unwrap();
    store.rest_flows().await;
    assert_eq!(store.flow(id).await.unwrap().unwrap().head.state, FlowState::Failed);
    (id, claim.jobs[0].job.id)
}

const OVER: &str = "update tidemill.flow set forget_at = now() - interval '1 s' where id = $1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_of_which_a_job_is_sent_again_in_time_is_not_forgotten() {
    let url = fresh_postgres_url();
    let (store, other, looker) = (store(&url).await, connect(&url).await, connect(&url).await);
    let (id, dead) = broken(&store).await;
    assert_eq!(other.execute(OVER, &[&id.0]).await.unwrap(), 1);
    // It is being sent since before its time was over.
    let send =
        "select from tidemill.replay(array[$1::uuid], 'ada', null, null, now() - interval '1 h')";
    other.batch_execute("begin").await.unwrap();
    assert_eq!(other.query(send, &[&dead.0]).await.unwrap().len(), 1);
    let tending = Arc::clone(&store);
    let tending = tokio::spawn(async move { tending.tend_flows().await.unwrap() });
    waiting(&looker, 1).await;
    other.batch_execute("commit").await.unwrap();
    tokio::time::timeout(SOON, tending).await.unwrap().unwrap();
    let flow = store.flow(id).await.unwrap().unwrap();
    assert_eq!(flow.head.state, FlowState::Running);
    let first = flow.steps[0].first.expect("nothing of it is gone");
    assert_eq!(store.job(first).await.unwrap().unwrap().state, State::Done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_again_of_a_flow_that_was_in_the_hands_of_who_forgets_it() {
    let url = fresh_postgres_url();
    let (store, other, looker) = (store(&url).await, connect(&url).await, connect(&url).await);
    let (id, dead) = broken(&store).await;
    other.batch_execute("begin").await.unwrap();
    other.query("select from tidemill.flow where id = $1 for update", &[&id.0]).await.unwrap();
    let sending = Arc::clone(&store);
    let sending = tokio::spawn(async move {
        let by = By { who: "ada", why: None };
        sending.dead_replay(&[dead], by, None).await.unwrap()
    });
    waiting(&looker, 1).await;
    assert_eq!(other.execute(OVER, &[&id.0]).await.unwrap(), 1);
    other.batch_execute("commit").await.unwrap();
    assert_eq!(tokio::time::timeout(SOON, sending).await.unwrap().unwrap(), []);
    assert_eq!(store.flow(id).await.unwrap().unwrap().head.state, FlowState::Failed);
}
