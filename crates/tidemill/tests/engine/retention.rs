//! Retention: by age, by number in a queue, and as a job wishes.

use std::time::Duration;

use tidemill::audit::{AuditFilter, NewAudit};
use tidemill::store::view::QueueRules;
use tidemill::testing::{drain, tend};
use tidemill::{
    AuditId, Clock, DeadFilter, Enqueue, Fail, JobFilter, JobId, PlanAct, Retention, Tidemill,
    Worker,
};
use tidemill_testkit::eventually::eventually;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    finished_jobs_go_after_three_days_and_dead_letters_after_ninety,
    queue_keeps_its_latest_jobs,
    queue_keeps_its_latest_dead_letters_within_bytes,
    job_can_wish_for_its_own_retention,
    retention_of_the_instance_holds_where_a_queue_has_no_rule,
    plans_and_acts_go_when_their_time_is_over,
    running_worker_tends_by_itself,
    worker_that_stops_lets_the_next_one_tend,
);

const DAY: Duration = Duration::from_hours(24);

fn worker(mill: &Tidemill) -> Worker {
    mill.worker().queues(["default", "busy"]).handle(|echo: Echo, _cx| async move {
        if echo.text == "bad" { Err(Fail::permanent("bad words")) } else { Ok(echo.text) }
    })
}

async fn is_kept(mill: &Tidemill, id: JobId) -> bool {
    mill.job(id).await.unwrap().is_some()
}

async fn finished_jobs_go_after_three_days_and_dead_letters_after_ninety(kit: Kit) {
    let mill = kit.open_still().await;
    let done = mill.enqueue(Echo::new("x")).await.unwrap().id();
    let dead = mill.enqueue(Echo::new("bad")).await.unwrap().id();
    let waits = Enqueue::from(Echo::new("x")).delay(365 * DAY);
    let waiting = mill.enqueue(waits).await.unwrap().id();
    drain(worker(&mill)).await.unwrap();
    kit.advance(Duration::from_secs(3 * 86_400 - 1));
    tend(&mill).await.unwrap();
    assert!(is_kept(&mill, done).await);
    kit.advance(Duration::from_secs(1));
    tend(&mill).await.unwrap();
    assert!(!is_kept(&mill, done).await && is_kept(&mill, dead).await);
    kit.advance(87 * DAY);
    tend(&mill).await.unwrap();
    assert!(!is_kept(&mill, dead).await && is_kept(&mill, waiting).await);
    assert_eq!(mill.counts().purged, 2);
}

async fn queue_keeps_its_latest_jobs(kit: Kit) {
    let mill = kit.open_still().await;
    let retention = Retention { finished_max: Some(2), ..Retention::default() };
    mill.set_queue("busy", Some(QueueRules { retention, ..QueueRules::default() })).await.unwrap();
    let mut ids = Vec::new();
    for n in 0..5 {
        let job = Enqueue::from(Echo::new(&n.to_string())).queue("busy");
        ids.push(mill.enqueue(job).await.unwrap().id());
    }
    let elsewhere = mill.enqueue(Echo::new("x")).await.unwrap().id();
    drain(worker(&mill)).await.unwrap();
    tend(&mill).await.unwrap();
    let filter = JobFilter { queue: Some("busy".into()), ..JobFilter::default() };
    let kept: Vec<_> = mill.jobs(&filter).await.unwrap().iter().map(|view| view.job.id).collect();
    assert_eq!(kept, [ids[4], ids[3]]);
    assert!(is_kept(&mill, elsewhere).await);
}

async fn queue_keeps_its_latest_dead_letters_within_bytes(kit: Kit) {
    let mill = kit.open_still().await;
    let retention = Retention { dead_bytes_max: Some(100), ..Retention::default() };
    mill.set_queue("busy", Some(QueueRules { retention, ..QueueRules::default() })).await.unwrap();
    let bad = || Enqueue::from(Echo::new("bad"));
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(mill.enqueue(bad().queue("busy")).await.unwrap().id());
    }
    let elsewhere = mill.enqueue(bad()).await.unwrap().id();
    drain(worker(&mill)).await.unwrap();
    tend(&mill).await.unwrap();
    // Each takes some thirty bytes.
    assert!(!is_kept(&mill, ids[0]).await && is_kept(&mill, ids[4]).await);
    assert!(is_kept(&mill, elsewhere).await);
}

async fn job_can_wish_for_its_own_retention(kit: Kit) {
    let mill = kit.open_still().await;
    let short = Enqueue::from(Echo::new("x")).retain(Duration::from_mins(1));
    let long = Enqueue::from(Echo::new("x")).retain(10 * DAY);
    let (short, long) =
        (mill.enqueue(short).await.unwrap().id(), mill.enqueue(long).await.unwrap().id());
    drain(worker(&mill)).await.unwrap();
    kit.advance(Duration::from_mins(1));
    tend(&mill).await.unwrap();
    assert!(!is_kept(&mill, short).await);
    kit.advance(5 * DAY);
    tend(&mill).await.unwrap();
    assert!(is_kept(&mill, long).await);
}

async fn retention_of_the_instance_holds_where_a_queue_has_no_rule(kit: Kit) {
    let retention = Retention { finished_ms: 1000, ..Retention::default() };
    let clock = Clock::Manual(kit.clock.clone());
    let builder = Tidemill::builder().clock(clock).retention(retention);
    let mill = builder.open(&kit.url).await.unwrap();
    let id = mill.enqueue(Echo::new("x")).await.unwrap().id();
    drain(worker(&mill)).await.unwrap();
    kit.advance(Duration::from_secs(1));
    tend(&mill).await.unwrap();
    assert!(!is_kept(&mill, id).await);
}

async fn plans_and_acts_go_when_their_time_is_over(kit: Kit) {
    let mill = kit.open_still().await;
    mill.enqueue(Echo::new("bad")).await.unwrap();
    drain(worker(&mill)).await.unwrap();
    let plan = mill.dead().plan(DeadFilter::default(), PlanAct::Archive, "ada", "seen").await;
    let plan = plan.unwrap();
    assert_eq!((plan.letters, mill.dead().apply(plan.id, "ada").await.unwrap().done), (1, 1));
    let act = NewAudit {
        id: AuditId::new(),
        who: "ada".into(),
        credential: None,
        act: "apply_plan".into(),
        target_kind: "plan".into(),
        target: plan.id.to_string(),
        detail: "x".repeat(10_000),
    };
    mill.audit().begin(act).await.unwrap();
    let acts = async || {
        let filter = AuditFilter { limit: 9, ..AuditFilter::default() };
        mill.audit().list(&filter).await.unwrap()
    };
    assert!(acts().await[0].detail.len() <= 300, "it is short");
    kit.advance(29 * DAY);
    tend(&mill).await.unwrap();
    assert_eq!(mill.dead().plans(None, 9).await.unwrap().len(), 1);
    kit.advance(2 * DAY);
    tend(&mill).await.unwrap();
    let gone = mill.dead().undo(plan.id, "ada").await.unwrap_err();
    assert_eq!((gone.code(), acts().await.len()), ("plan_unknown", 1));
    kit.advance(365 * DAY);
    tend(&mill).await.unwrap();
    assert!(acts().await.is_empty());
}

async fn running_worker_tends_by_itself(kit: Kit) {
    let retention = Retention { finished_ms: 1, ..Retention::default() };
    let mill = Tidemill::builder().retention(retention).open(&kit.url).await.unwrap();
    let running = worker(&mill).start().await.unwrap();
    let id = mill.enqueue(Echo::new("x")).await.unwrap().id();
    eventually("the job to be forgotten", SOON, async || (!is_kept(&mill, id).await).then_some(()))
        .await;
    running.stop().await;
}

async fn worker_that_stops_lets_the_next_one_tend(kit: Kit) {
    // The clock stands still, so what a worker that stopped has kept it keeps for ever.
    let mill = kit.open_still().await;
    for turn in ["the first", "the second", "the third"] {
        let running = worker(&mill).start().await.unwrap();
        let short = Enqueue::from(Echo::new("x")).retain(Duration::ZERO);
        let id = mill.enqueue(short).await.unwrap().id();
        let is_gone = async || (!is_kept(&mill, id).await).then_some(());
        eventually(&format!("{turn} worker to forget its job"), SOON, is_gone).await;
        running.stop().await;
    }
}
