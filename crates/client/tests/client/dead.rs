//! Dead letters over the wire: the canary stops a replay here as it does beside the store.

use std::time::Duration;

use tidemill::audit::AuditFilter;
use tidemill::store::DeadLetter;
use tidemill::{
    DeadFilter, Enqueue, ErrorClass, JobId, PlanAct, PlanStage, RedriveRule, ReplayPace, Triage,
};

use super::kit::Kit;

over_both_stores!(
    what_the_engine_says_of_the_dead_the_client_says,
    letters_of_more_ids_than_a_request_has_room_for_are_found,
    a_replay_is_stopped_by_its_canary,
    what_was_done_is_in_the_record,
);

/// This many jobs that are dead, in the order of their deaths.
async fn die(kit: &Kit, number: usize) -> Vec<JobId> {
    let mut ids = Vec::new();
    for n in 0..number {
        let job = Enqueue::raw("fail", format!(r#"{{"n":{n}}}"#));
        let id = kit.client.enqueue(job).await.unwrap().id();
        kit.client.wait(id, Duration::from_secs(30)).await.unwrap();
        ids.push(id);
    }
    ids
}

async fn what_the_engine_says_of_the_dead_the_client_says(kit: Kit) {
    let worker = kit.work().await;
    let ids = die(&kit, 3).await;
    worker.stop().await;
    let (client, mill) = (kit.client.dead(), kit.mill.dead());
    let filters = [
        DeadFilter::default(),
        DeadFilter { ids: ids[..2].to_vec(), archived: true, ..DeadFilter::default() },
        DeadFilter { payload_field: Some(("n".into(), "1".into())), ..DeadFilter::default() },
        DeadFilter { triage: Some(Triage::Abandoned), ..DeadFilter::default() },
    ];
    for filter in &filters {
        let known = mill.list(filter, None, 10).await.unwrap();
        assert_eq!(client.list(filter, None, 10).await.unwrap(), known, "{filter:?}");
        assert_eq!(client.groups(filter).await.unwrap(), mill.groups(filter).await.unwrap());
        let drawn = client.sample(filter, 1).await.unwrap();
        assert_eq!(drawn.len(), known.len().min(1));
    }
    let all = &filters[0];
    let first = client.list(all, None, 2).await.unwrap();
    let rest = client.list(all, first.last().map(DeadLetter::place), 2).await.unwrap();
    assert_eq!((first.len(), rest.len(), rest[0].id), (2, 1, ids[0]));
    assert_eq!(client.note(&ids, "me", "known").await.unwrap(), 3);

    let plan = client.plan(filters[1].clone(), PlanAct::Archive, "me", "enough").await.unwrap();
    assert_eq!(plan, mill.find_plan(plan.id).await.unwrap());
    assert_eq!(client.apply(plan.id, "me").await.unwrap().done, 2);
    assert_eq!(client.undo(plan.id, "me").await.unwrap().stage, PlanStage::Undone);
    assert_eq!(client.plans(None, 5).await.unwrap(), mill.plans(None, 5).await.unwrap());
    assert_eq!(client.plans(Some(plan.id), 5).await.unwrap(), []);
    assert_eq!(client.apply(plan.id, "me").await.unwrap_err().code(), "plan_not_now");

    let rule = RedriveRule {
        name: "a/b".into(),
        kind: Some("nobody".into()),
        queue: None,
        class: Some(ErrorClass::Transient),
        error_contains: Some("reset".into()),
        delay_ms: 1500,
        redrives_max: 2,
    };
    client.set_rule(rule.clone()).await.unwrap();
    assert_eq!(client.rules().await.unwrap(), [rule]);
    client.delete_rule("a/b").await.unwrap();
    assert_eq!(mill.rules().await.unwrap(), []);

    assert!(client.replay_one(ids[0], "me", Some("[2.50]")).await.unwrap());
    assert!(!client.replay_one(ids[0], "me", None).await.unwrap(), "it is on its way");
    let job = kit.client.job(ids[0]).await.unwrap().unwrap();
    assert_eq!(job.job.payload.as_str(), "[2.50]");
    kit.close().await;
}

async fn letters_of_more_ids_than_a_request_has_room_for_are_found(kit: Kit) {
    let worker = kit.work().await;
    let dead = die(&kit, 3).await;
    worker.stop().await;
    let mut ids: Vec<JobId> = (0..2500).map(|_| JobId::new()).collect();
    for (at, id) in [(2400, 0), (10, 1), (1200, 2), (2499, 2)] {
        ids[at] = dead[id];
    }
    let filter = DeadFilter { ids, ..DeadFilter::default() };
    let (client, mill) = (kit.client.dead(), kit.mill.dead());
    let all = mill.list(&filter, None, 10).await.unwrap();
    assert_eq!(all.iter().map(|letter| letter.id).collect::<Vec<_>>(), [dead[2], dead[1], dead[0]]);
    assert_eq!(client.list(&filter, None, 10).await.unwrap(), all);
    assert_eq!(client.list(&filter, None, 2).await.unwrap(), all[..2]);
    assert_eq!(client.list(&filter, Some(all[0].place()), 10).await.unwrap(), all[1..]);
    let error = client.groups(&filter).await.unwrap_err();
    assert_eq!(error.code(), "request_unsendable", "{error}");
    assert!(!error.is_unknown() && !error.is_temporary());
    let pace = ReplayPace { canary: false, jobs_per_second: 1000, ..ReplayPace::default() };
    let report = client.replay(&filter, "me", &pace, |_, _| {}).await.unwrap();
    assert_eq!(report.replayed, 3, "{report:?}");
    kit.close().await;
}

async fn a_replay_is_stopped_by_its_canary(kit: Kit) {
    let worker = kit.work().await;
    die(&kit, 3).await;
    let (all, pace) = (DeadFilter::default(), ReplayPace::default());
    let dead = kit.client.dead();
    let report = dead.replay(&all, "me", &pace, |_, _| {}).await.unwrap();
    assert_eq!((report.replayed, report.left), (1, 2), "the first dies of the same again");
    assert!(report.stopped_by.is_some());
    let pace = ReplayPace { canary: false, ..pace };
    let mut told = Vec::new();
    let report = dead.replay(&all, "me", &pace, |sent, all| told.push((sent, all))).await.unwrap();
    assert_eq!((report.replayed, report.left, told.last()), (3, 0, Some(&(3, 3))));
    worker.stop().await;
    kit.close().await;
}

async fn what_was_done_is_in_the_record(kit: Kit) {
    for name in ["a", "b", "c"] {
        kit.client.pause(name).await.unwrap();
    }
    let filter = AuditFilter { limit: 2, ..AuditFilter::default() };
    let (client, mill) = (kit.client.audit(), kit.mill.audit());
    let acts = client.list(&filter).await.unwrap();
    assert_eq!(acts, mill.list(&filter).await.unwrap());
    assert_eq!((acts[0].act.as_str(), acts[0].target.as_str()), ("pause_queue", "c"));
    let rest = AuditFilter { before: acts.last().map(|act| act.id), ..filter.clone() };
    assert_eq!(client.list(&rest).await.unwrap().len(), 1);
    let of = AuditFilter { target: Some("b".into()), ..filter };
    assert_eq!(client.list(&of).await.unwrap().len(), 1);
    kit.close().await;
}
