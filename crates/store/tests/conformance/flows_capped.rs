//! Flows that may have only so many jobs under way: who gets the next place, and that nobody does in one that is
//! called off.

use tidemill_core::flow::{After, FlowState, Need, On, Rest, Step, Work};
use tidemill_core::{By, Due, FlowId, NewJob, OnDead, State, WorkerId};
use tidemill_store::flow::{FlowAct, FlowAnswer};
use tidemill_store::{CancelAnswer, JobFilter};

use super::flows::{flow_of, many, need, run, start_flow, state, step, tend, view};
use super::kit::{Kit, SECOND, dead, done, item, job, ordered};

over_both_stores!(
    a_flow_that_is_called_off_lets_no_more_go,
    what_the_rest_is_called_off_of_lets_no_more_go,
    a_step_that_opens_gets_the_next_place,
    steps_that_open_together_go_in_their_order,
    what_is_tried_again_waits_for_its_place,
    what_is_tried_again_runs_beside_what_is_under_way,
    what_waited_for_the_clock_waits_for_its_place_when_tried_again,
    what_waits_for_its_place_again_can_be_called_off,
    what_was_called_off_and_is_tried_again_waits_for_its_place,
    a_lone_job_that_is_replayed_goes_at_once,
    what_was_called_off_before_its_own_time_is_not_sent_before_it,
    what_is_called_off_in_its_line_beside_what_is_tried_again_leaves_its_place,
);

/// Starts a flow that may have so many jobs under way.
async fn start_capped(kit: &Kit, at_once: u32, steps: Vec<Step>) -> FlowId {
    let mut flow = flow_of(steps);
    flow.options.at_once = Some(at_once);
    start_flow(kit, flow).await
}

async fn retry(kit: &Kit, id: FlowId, step: Option<&str>) -> FlowAnswer {
    let step = step.map(str::to_owned);
    let act = FlowAct::Retry { step, by: "ada".into(), why: None };
    kit.store.change_flow(id, act).await.unwrap()
}

/// Lets all that is due die, until nothing is.
async fn die(kit: &Kit, worker: WorkerId, kind: &str) {
    run(kit, worker, &[(kind, dead("no"))]).await;
}

/// Runs all that is due to its end, each time so many of them at once, until nothing is; answers how many each time.
async fn widths(kit: &Kit, worker: WorkerId) -> Vec<usize> {
    let mut widths = Vec::new();
    loop {
        let claim = kit.take(worker, 100).await;
        if claim.jobs.is_empty() {
            return widths;
        }
        widths.push(claim.jobs.len());
        let items = (0..claim.jobs.len()).map(|at| item(&claim, at, done())).collect();
        kit.store.settle(worker, items).await.unwrap();
        tend(kit).await;
    }
}

/// Counts what has ended, and tends nothing: whoever asks for something of a flow does so first.
async fn count(kit: &Kit, id: FlowId, step: &str) {
    let (step, by, why) = (step.to_owned(), "ada".to_owned(), "none is dead".to_owned());
    let act = FlowAct::Resolve { step, output: None, by, why };
    let answer = kit.store.change_flow(id, act).await.unwrap();
    assert!(matches!(answer, FlowAnswer::NotNow { .. }), "{answer:?}");
}

/// How many jobs wait for others.
async fn blocked(kit: &Kit) -> usize {
    let filter = JobFilter { state: Some(State::Blocked), limit: 100, ..JobFilter::default() };
    kit.store.jobs(&filter).await.unwrap().jobs.len()
}

async fn is_idle(kit: &Kit, worker: WorkerId) -> bool {
    kit.take(worker, 100).await.jobs.is_empty()
}

async fn a_flow_that_is_called_off_lets_no_more_go(kit: &Kit) {
    let id = start_capped(kit, 4, vec![many("a", 20, &[]), many("b", 20, &[])]).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 3).await;
    let cancel = FlowAct::Cancel { reason: "enough".into() };
    let answer = kit.store.change_flow(id, cancel).await.unwrap();
    assert_eq!(answer, FlowAnswer::Acted { jobs: 40 });
    let items = vec![item(&claim, 0, done()), item(&claim, 1, done())];
    kit.store.settle(worker, items).await.unwrap();
    count(kit, id, "a").await;
    let last = kit.take(worker, 100).await;
    assert_eq!(last.jobs.len(), 1, "the one that was let go before");
    kit.store.settle(worker, vec![item(&last, 0, dead("no"))]).await.unwrap();
    tend(kit).await;
    assert!(is_idle(kit, worker).await);
    kit.store.settle(worker, vec![item(&claim, 2, done())]).await.unwrap();
    tend(kit).await;
    assert!(is_idle(kit, worker).await);
    assert_eq!(state(kit, id).await, FlowState::Cancelled);
    let view = view(kit, id).await;
    assert_eq!((view.head.done, view.head.failed), (3, 37));
}

async fn what_the_rest_is_called_off_of_lets_no_more_go(kit: &Kit) {
    let mut first = need(step("first", &["a"]), Need::Quorum { jobs: 1 });
    first.join.rest = Rest::Cancel;
    let id = start_capped(kit, 4, vec![many("a", 20, &[]), first]).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 4).await;
    kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
    count(kit, id, "a").await;
    let join = kit.take(worker, 100).await;
    assert_eq!((join.jobs.len(), join.jobs[0].job.kind.as_str()), (1, "first"));
    let items = vec![item(&claim, 1, done()), item(&claim, 2, done())];
    kit.store.settle(worker, items).await.unwrap();
    count(kit, id, "a").await;
    assert!(is_idle(kit, worker).await, "called off, and not let go");
    tend(kit).await;
    kit.store.settle(worker, vec![item(&join, 0, done())]).await.unwrap();
    kit.store.settle(worker, vec![item(&claim, 3, done())]).await.unwrap();
    tend(kit).await;
    assert!(is_idle(kit, worker).await);
    let view = view(kit, id).await;
    assert_eq!((view.head.state, view.head.done, view.head.failed), (FlowState::Done, 5, 16));
}

async fn a_step_that_opens_gets_the_next_place(kit: &Kit) {
    let after = After { on: On::Failure, ..After::success("p") };
    let alarm = Step { after: vec![after], ..many("alarm", 3, &[]) };
    let alarm = need(alarm, Need::Quorum { jobs: 1 });
    let id = start_capped(kit, 2, vec![many("p", 10, &[]), alarm]).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 2).await;
    kit.clock.advance(SECOND);
    kit.store.settle(worker, vec![item(&claim, 0, dead("no"))]).await.unwrap();
    tend(kit).await;
    let alarm = kit.take(worker, 100).await;
    assert_eq!((alarm.jobs.len(), alarm.jobs[0].job.kind.as_str()), (1, "alarm"));
    let items = vec![item(&claim, 1, done())];
    kit.store.settle(worker, items).await.unwrap();
    kit.store.settle(worker, vec![item(&alarm, 0, done())]).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await.len(), 10, "who was passed goes on");
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn steps_that_open_together_go_in_their_order(kit: &Kit) {
    let id = start_capped(kit, 2, vec![many("a", 3, &[]), many("b", 2, &[])]).await;
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[]).await, ["a", "a", "a", "b", "b"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn what_is_tried_again_waits_for_its_place(kit: &Kit) {
    let id = start_capped(kit, 2, vec![many("a", 10, &[]), step("b", &["a"])]).await;
    let worker = kit.worker().await;
    for _ in 0..2 {
        die(kit, worker, "a").await;
        assert_eq!(state(kit, id).await, FlowState::Failed);
        assert_eq!(retry(kit, id, None).await, FlowAnswer::Acted { jobs: 10 });
        assert_eq!(state(kit, id).await, FlowState::Running);
    }
    assert_eq!(widths(kit, worker).await, [2, 2, 2, 2, 2, 1]);
    let view = view(kit, id).await;
    assert_eq!((view.head.state, view.head.done, view.head.failed), (FlowState::Done, 11, 0));
}

async fn what_is_tried_again_runs_beside_what_is_under_way(kit: &Kit) {
    let id = start_capped(kit, 3, vec![many("a", 9, &[])]).await;
    let worker = kit.worker().await;
    // Two run; of the others some are dead, some are done, and some have not been let go.
    let running = kit.take(worker, 2).await;
    for how in [dead("no"), done(), dead("no"), dead("no")] {
        let claim = kit.take_one(worker).await;
        kit.store.settle(worker, vec![item(&claim, 0, how)]).await.unwrap();
        tend(kit).await;
    }
    assert_eq!(retry(kit, id, Some("a")).await, FlowAnswer::Acted { jobs: 3 });
    tend(kit).await;
    let claim = kit.take(worker, 100).await;
    assert_eq!(claim.jobs.len(), 1, "there is one place beside the two");
    assert_eq!(blocked(kit).await, 5);
    let items = vec![item(&running, 0, done()), item(&running, 1, done()), item(&claim, 0, done())];
    kit.store.settle(worker, items).await.unwrap();
    tend(kit).await;
    assert_eq!(widths(kit, worker).await, [3, 2]);
    let view = view(kit, id).await;
    assert_eq!((view.head.state, view.head.done, view.head.failed), (FlowState::Done, 9, 0));
}

async fn what_waited_for_the_clock_waits_for_its_place_when_tried_again(kit: &Kit) {
    let later = || NewJob { due: Due::In(SECOND), ..job("a") };
    let later = Step::new("a", Work::Jobs((0..5).map(|_| later()).collect()));
    let id = start_capped(kit, 2, vec![later]).await;
    let worker = kit.worker().await;
    while state(kit, id).await == FlowState::Running {
        kit.clock.advance(SECOND);
        die(kit, worker, "a").await;
    }
    assert_eq!(retry(kit, id, None).await, FlowAnswer::Acted { jobs: 5 });
    tend(kit).await;
    assert_eq!(widths(kit, worker).await, [2, 2, 1], "they have waited");
    assert_eq!(state(kit, id).await, FlowState::Done);
    let rerun = kit.store.change_flow(id, FlowAct::Rerun { step: "a".into() }).await.unwrap();
    assert_eq!(rerun, FlowAnswer::Acted { jobs: 5 });
    assert!(is_idle(kit, worker).await, "as fresh ones they wait for the clock");
    kit.clock.advance(SECOND);
    assert_eq!(widths(kit, worker).await, [2]);
}

async fn what_waits_for_its_place_again_can_be_called_off(kit: &Kit) {
    let id = start_capped(kit, 2, vec![many("a", 6, &[])]).await;
    let worker = kit.worker().await;
    die(kit, worker, "a").await;
    assert_eq!(retry(kit, id, None).await, FlowAnswer::Acted { jobs: 6 });
    let claim = kit.take(worker, 1).await;
    let cancel = FlowAct::Cancel { reason: "enough".into() };
    let answer = kit.store.change_flow(id, cancel).await.unwrap();
    assert_eq!(answer, FlowAnswer::Acted { jobs: 6 });
    tend(kit).await;
    assert!(is_idle(kit, worker).await);
    kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
    tend(kit).await;
    let view = view(kit, id).await;
    assert_eq!((view.head.state, view.head.done, view.head.failed), (FlowState::Cancelled, 1, 5));
}

async fn what_was_called_off_and_is_tried_again_waits_for_its_place(kit: &Kit) {
    let id = start_capped(kit, 2, vec![many("a", 6, &[])]).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
    let cancel = FlowAct::Cancel { reason: "enough".into() };
    kit.store.change_flow(id, cancel).await.unwrap();
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Cancelled);
    assert_eq!(retry(kit, id, Some("a")).await, FlowAnswer::Acted { jobs: 5 });
    tend(kit).await;
    assert_eq!(widths(kit, worker).await, [2, 2, 1]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn a_lone_job_that_is_replayed_goes_at_once(kit: &Kit) {
    let id = start_capped(kit, 1, vec![many("a", 3, &[])]).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    kit.store.settle(worker, vec![item(&claim, 0, dead("no"))]).await.unwrap();
    tend(kit).await;
    let by = By { who: "ada", why: None };
    let sent = kit.store.dead_replay(&[claim.jobs[0].job.id], by, None).await.unwrap();
    assert_eq!(sent.len(), 1);
    tend(kit).await;
    assert_eq!(widths(kit, worker).await, [2, 1], "somebody asked for this one");
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn what_was_called_off_before_its_own_time_is_not_sent_before_it(kit: &Kit) {
    let later = || NewJob { due: Due::In(SECOND), ..job("a") };
    let later: Vec<NewJob> = (0..3).map(|_| later()).collect();
    let last = later[2].id;
    let id = start_capped(kit, 1, vec![Step::new("a", Work::Jobs(later))]).await;
    let worker = kit.worker().await;
    assert_eq!(kit.store.cancel(vec![last], "enough").await.unwrap(), [CancelAnswer::Cancelled]);
    tend(kit).await;
    let answer = retry(kit, id, Some("a")).await;
    assert!(matches!(answer, FlowAnswer::NotNow { .. }), "{answer:?}");
    for _ in 0..3 {
        kit.clock.advance(SECOND);
        run(kit, worker, &[]).await;
    }
    assert_eq!(state(kit, id).await, FlowState::Failed);
    assert_eq!(retry(kit, id, Some("a")).await, FlowAnswer::Acted { jobs: 1 });
    assert_eq!(run(kit, worker, &[]).await, ["a"]);
    let head = view(kit, id).await.head;
    assert_eq!((head.state, head.done, head.failed), (FlowState::Done, 3, 0));
}

async fn what_is_called_off_in_its_line_beside_what_is_tried_again_leaves_its_place(kit: &Kit) {
    let worker = kit.worker().await;
    kit.put(ordered("k", OnDead::Block)).await;
    let head = kit.take_one(worker).await;
    let jobs = vec![job("a"), ordered("k", OnDead::Block), job("a"), job("a")];
    let behind = jobs[1].id;
    let id = start_capped(kit, 2, vec![Step::new("a", Work::Jobs(jobs))]).await;
    for _ in 0..2 {
        let claim = kit.take_one(worker).await;
        kit.settle(worker, &claim, dead("no")).await;
        tend(kit).await;
    }
    let last = kit.take_one(worker).await;
    assert_eq!(retry(kit, id, None).await, FlowAnswer::Acted { jobs: 2 });
    tend(kit).await;
    assert!(is_idle(kit, worker).await, "one runs, and one waits in its line");
    assert_eq!(kit.store.cancel(vec![behind], "enough").await.unwrap(), [CancelAnswer::Cancelled]);
    kit.settle(worker, &last, done()).await;
    tend(kit).await;
    assert_eq!(widths(kit, worker).await, [2], "both places are free");
    kit.settle(worker, &head, done()).await;
    let head = view(kit, id).await.head;
    assert_eq!((head.state, head.done, head.failed), (FlowState::Failed, 3, 1));
}
