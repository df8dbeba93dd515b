//! Plans for dead letters: previewed, applied once, taken back, and nobody else's business.

use reqwest::Method;
use serde_json::{Value, json};
use tidemill::{Grant, Role};

use super::kit::Kit;

over_both_stores!(
    what_was_previewed_is_applied_once_and_undone_from_any_node,
    a_plan_is_there_for_those_who_reach_as_far,
);

/// Lets so many jobs of this tenant die; answers their ids.
async fn bury(kit: &Kit, tenant: &str, count: usize) -> Vec<String> {
    let worker = kit.work().await;
    let mut ids = Vec::new();
    for _ in 0..count {
        let id = kit.enqueue(json!({ "kind": "fail", "tenant": tenant })).await;
        assert_eq!(kit.finished(&id).await["state"], "dead");
        ids.push(id);
    }
    worker.stop().await;
    ids
}

async fn what_was_previewed_is_applied_once_and_undone_from_any_node(kit: Kit) {
    let ids = bury(&kit, "acme", 3).await;
    let wanted = json!({ "act": "archive", "filter": { "kind": "fail" }, "why": "known" });
    let told = kit.post("/v1/dead/plans", wanted).await.is(201);
    let (plan, place) = (told.body.clone(), told.header("location").to_owned());
    assert_eq!(place, format!("/v1/dead/plans/{}", plan["id"].as_str().unwrap()));
    assert_eq!((&plan["letters"], &plan["undoable"]), (&json!(3), &json!(true)));
    assert_eq!((&plan["groups"][0]["count"], &plan["stage"]), (&json!(3), &json!("made")));
    assert_eq!(plan["groups"][0]["examples"][0], json!(ids[2]));
    let later = bury(&kit, "acme", 1).await;
    kit.post(&format!("{place}/undo"), json!({})).await.refused(409, "plan_not_now", "");

    let twin = kit.twin().await;
    let applied = twin.post(&format!("{place}/apply"), json!({})).await.is(200).body;
    assert_eq!((&applied["stage"], &applied["done"]), (&json!("applied"), &json!(3)));
    let again = kit.post(&format!("{place}/apply"), json!({})).await.is(200).body;
    assert_eq!(again, applied, "applied twice is the same");
    let left = kit.get("/v1/dead").await.is(200).body;
    let left: Vec<_> = left["letters"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(left, [&json!(later[0])], "what died later is not touched");
    let undone = kit.post(&format!("{place}/undo"), json!({})).await.is(200).body;
    assert_eq!((&undone["stage"], &undone["undone"]), (&json!("undone"), &json!(3)));
    let told = twin.post(&format!("{place}/apply"), json!({})).await;
    told.refused(409, "plan_not_now", "undone");
    assert_eq!(kit.get(&place).await.is(200).body, undone);
    assert_eq!(kit.get("/v1/dead/plans?limit=1").await.is(200).body["plans"][0], undone);

    let delete = json!({ "act": "delete", "filter": { "ids": [later[0]] } });
    let plan = kit.post("/v1/dead/plans", delete).await.is(201).body;
    assert_eq!(plan["undoable"], false, "{plan}");
    let place = format!("/v1/dead/plans/{}", plan["id"].as_str().unwrap());
    kit.post(&format!("{place}/apply"), json!({})).await.is(200);
    kit.get(&format!("/v1/jobs/{}", later[0])).await.refused(404, "job_unknown", "");
    kit.post(&format!("{place}/undo"), json!({})).await.refused(409, "plan_not_now", "deleted");

    for (wrong, says) in [
        (json!({ "act": "burn" }), "burn"),
        (json!({ "act": { "triage": "retrying" } }), "retrying"),
        (json!({ "act": "delete", "filter": { "knid": "fail" } }), "knid"),
    ] {
        let told = kit.post("/v1/dead/plans", wrong).await;
        assert_eq!(told.status, 400, "{told:?}");
        assert!(told.body["detail"].as_str().unwrap().contains(says), "{told:?}");
    }
    let unknown = format!("/v1/dead/plans/{}/apply", later[0]);
    kit.post(&unknown, json!({})).await.refused(404, "plan_unknown", &later[0]);
    twin.close().await;
    kit.close().await;
}

async fn a_plan_is_there_for_those_who_reach_as_far(kit: Kit) {
    bury(&kit, "acme", 2).await;
    bury(&kit, "other", 1).await;
    let kit = kit.closed().await;
    let of = |tenant: &str| Grant { tenant: Some(tenant.into()), ..Grant::new(Role::Operator) };
    let (acme, other) =
        (kit.credential("acme", of("acme")).await, kit.credential("other", of("other")).await);
    let queues = Grant { queues: vec!["mail:*".into()], ..Grant::new(Role::Operator) };
    let mailer = kit.credential("mailer", queues).await;
    let root = kit.credential("root", Grant::new(Role::Admin)).await;
    let post = async |secret: &str, path: &str, body: Value| {
        kit.ask(secret, Method::POST, path, body).await
    };
    let archive = json!({ "act": "archive" });
    let plan = post(&acme, "/v1/dead/plans", archive.clone()).await.is(201).body;
    assert_eq!((&plan["letters"], &plan["filter"]["tenant"]), (&json!(2), &json!("acme")));
    let foreign = json!({ "act": "archive", "filter": { "tenant": "acme" } });
    post(&other, "/v1/dead/plans", foreign).await.refused(403, "tenant_refused", "acme");
    post(&mailer, "/v1/dead/plans", archive).await.refused(403, "queue_refused", "*");
    let place = format!("/v1/dead/plans/{}", plan["id"].as_str().unwrap());
    for secret in [&other, &mailer] {
        for act in ["apply", "undo"] {
            let told = post(secret, &format!("{place}/{act}"), json!({})).await;
            told.refused(404, "plan_unknown", "");
        }
        kit.ask(secret, Method::GET, &place, json!({})).await.refused(404, "plan_unknown", "");
        let list = kit.ask(secret, Method::GET, "/v1/dead/plans", json!({})).await.is(200).body;
        assert_eq!(list["plans"], json!([]));
    }
    let applied = post(&acme, &format!("{place}/apply"), json!({})).await.is(200).body;
    assert_eq!(applied["done"], 2);
    post(&root, &format!("{place}/undo"), json!({})).await.is(200);
    // Whoever is of a tenant does not apply what is for all.
    let all = post(&root, "/v1/dead/plans", json!({ "act": "delete" })).await.is(201).body;
    let place = format!("/v1/dead/plans/{}/apply", all["id"].as_str().unwrap());
    post(&acme, &place, json!({})).await.refused(404, "plan_unknown", "");
    kit.close().await;
}
