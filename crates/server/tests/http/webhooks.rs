//! Webhooks over HTTP: made, shown without their secrets, changed, and out of reach of whoever they are not of.

use reqwest::Method;
use serde_json::{Value, json};
use tidemill::{Grant, Role};

use super::kit::Kit;

over_both_stores!(
    a_secret_is_in_the_answer_that_makes_it_and_in_no_other,
    nobody_asks_a_webhook_that_is_not_there,
    a_settle_brings_no_job_that_asks_a_webhook_which_is_not_there,
    a_url_that_cannot_be_is_refused,
    webhooks_of_others_are_out_of_reach,
    what_a_webhook_has_told_of_others_stays_out_of_reach,
    no_tenant_has_all_webhooks,
    of_two_tenants_that_make_a_webhook_at_once_one_does,
);

async fn a_secret_is_in_the_answer_that_makes_it_and_in_no_other(kit: Kit) {
    let url = "https://example.com/in";
    let put = async |body| kit.send(Method::PUT, "/v1/webhooks/orders", &[], body).await;
    let made = put(json!({ "url": url, "queues": ["*"], "events": ["done"] })).await.is(201).body;
    let secret = made["secret"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("whsec_"));
    let changed = put(json!({ "url": url, "queues": ["*"], "output": true })).await.is(200).body;
    assert_eq!((&changed["secret"], &changed["version"]), (&json!(null), &json!(2)));
    let turned = kit.post("/v1/webhooks/orders/rotate", json!({ "overlap_s": 60 })).await.is(200);
    let new = turned.body["secret"].as_str().unwrap().to_owned();
    assert!(new != secret && turned.body["secrets"] == 2);
    let worker = kit.work().await;
    let id = kit.enqueue(json!({ "kind": "echo", "payload": 1 })).await;
    kit.finished(&id).await;
    let page = kit.get("/v1/webhooks/orders/deliveries").await.is(200).body;
    let delivery = &page["deliveries"][0];
    assert_eq!((&delivery["event"], &delivery["job"]), (&json!("job.done"), &json!(id)));
    assert_eq!((&delivery["state"], &delivery["attempt"]), (&json!("ready"), &json!(0)));
    let again = json!({ "delivery": delivery["id"] });
    let told = kit.post("/v1/webhooks/orders/redeliver", again.clone()).await.is(202).body;
    assert_eq!(told, again, "it waits anyway");
    let listed = kit.get("/v1/webhooks").await.is(200);
    let shown = kit.get("/v1/webhooks/orders").await.is(200);
    assert_eq!(listed.body[0], shown.body);
    assert!(!format!("{listed:?}{shown:?}{page}").contains("whsec_"));
    let other = json!({ "delivery": id });
    kit.post("/v1/webhooks/orders/redeliver", other).await.refused(404, "job_unknown", &id);
    kit.post("/v1/webhooks/orders/rotate", json!({ "overlap_s": 99_000_000 })).await.is(400);
    kit.send(Method::DELETE, "/v1/webhooks/orders", &[], json!({})).await.is(204);
    kit.get("/v1/webhooks/orders").await.refused(404, "webhook_unknown", "orders");
    let asking = json!({ "kind": "echo", "webhook": { "to": "orders" } });
    kit.post("/v1/jobs", asking).await.refused(404, "webhook_unknown", "orders");
    worker.stop().await;
    kit.close().await;
}

/// Wherever a job is named that is made later: as for one that is made at once.
async fn nobody_asks_a_webhook_that_is_not_there(kit: Kit) {
    let asking = json!({ "kind": "k", "webhook": "orders" });
    let put = async |path: &str, body| kit.send(Method::PUT, path, &[], body).await;
    let schedule = json!({ "every": "1h", "job": asking });
    put("/v1/schedules/s", schedule.clone()).await.refused(404, "webhook_unknown", "orders");
    let preview = kit.post("/v1/schedule-preview", schedule.clone()).await;
    preview.refused(404, "webhook_unknown", "orders");
    for dry_run in [true, false] {
        let wanted = json!({ "schedules": { "s": schedule }, "dry_run": dry_run });
        let told = put("/v1/owners/me/schedules", wanted).await;
        told.refused(404, "webhook_unknown", "the schedule \"s\": there is no webhook \"orders\"");
    }
    assert_eq!(kit.get("/v1/schedules").await.is(200).body["schedules"], json!([]));

    let flow = |step| json!({ "name": "f", "saga": true, "steps": [step] });
    for (step, says) in [
        (json!({ "name": "a", "jobs": [asking], "nothing_to_undo": true }), "the step \"a\""),
        (json!({ "name": "a", "kind": "k", "undo_job": asking }), "the undo of the step \"a\""),
    ] {
        kit.post("/v1/flows", flow(step)).await.refused(404, "webhook_unknown", says);
    }
    let built = json!({ "name": "f", "building": true, "steps": [{ "name": "a", "jobs": [] }] });
    let built = kit.post("/v1/flows", built).await.is(201).body;
    let part = json!({ "step": "a", "jobs": [{ "kind": "k" }, asking] });
    let path = format!("/v1/flows/{}/jobs", built["id"].as_str().unwrap());
    let told = kit.send(Method::POST, &path, &[("idempotency-key", "1")], part).await;
    assert_eq!(told.refused(404, "webhook_unknown", "job 1: the step \"a\"").body["index"], 1);
    assert_eq!(kit.get("/v1/jobs").await.is(200).body["jobs"], json!([]));
    kit.close().await;
}

async fn a_settle_brings_no_job_that_asks_a_webhook_which_is_not_there(kit: Kit) {
    let asking = json!({ "kind": "next", "webhook": "orders" });
    let card = json!({ "name": "curl", "queues": ["default"], "lease": "10m" });
    let worker = kit.post("/v1/workers", card).await.is(201).body["id"].clone();
    let path = |verb| format!("/v1/workers/{}/{verb}", worker.as_str().unwrap());
    for kind in ["a", "b"] {
        kit.enqueue(json!({ "kind": kind })).await;
    }
    let claim = json!({ "queues": ["default"], "jobs_max": 2, "wait": "30s" });
    let work = kit.post(&path("claim"), claim).await.is(200).body;
    let report = |at: usize, outcome, run| {
        let id = &work["jobs"][at]["id"];
        json!({ "id": id, "token": work["token"], "outcome": outcome, "run": run })
    };
    let done = json!({ "done": {} });
    let bringing = json!({ "done": { "follow_ups": [asking] } });
    let waiting = json!({ "wait": { "mail_min": 1 } });
    let run = json!({ "begins": "1", "children": [asking] });
    for second in [report(1, bringing, Value::Null), report(1, waiting, run.clone())] {
        let reports = json!({ "reports": [report(0, done.clone(), Value::Null), second] });
        let told = kit.post(&path("settle"), reports).await;
        assert_eq!(told.refused(404, "webhook_unknown", "job 1: ").body["index"], 1);
    }
    let write = json!({ "id": work["jobs"][1]["id"], "token": work["token"], "writes": run });
    kit.post(&path("journal"), write).await.refused(404, "webhook_unknown", "orders");
    let jobs = kit.get("/v1/jobs?state=running").await.is(200).body;
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 2, "nothing was settled");
    let reports =
        json!({ "reports": [report(0, done.clone(), Value::Null), report(1, done, Value::Null)] });
    kit.post(&path("settle"), reports).await.is(200);
    kit.close().await;
}

async fn a_url_that_cannot_be_is_refused(kit: Kit) {
    for (url, code) in [
        ("http://example.com/", "webhook_refused"),
        ("https://127.0.0.1/", "webhook_refused"),
        ("https://example.com:22/", "webhook_refused"),
        ("https://[::ffff:169.254.169.254]/", "webhook_refused"),
        ("https://2130706433/", "webhook_refused"),
        ("https://a:b@example.com/", "webhook_invalid"),
        ("file:///etc/passwd", "webhook_invalid"),
    ] {
        let told = kit.send(Method::PUT, "/v1/webhooks/w", &[], json!({ "url": url })).await;
        told.refused(400, code, "");
    }
    let misspelt = json!({ "url": "https://example.com/", "queus": ["*"] });
    let told = kit.send(Method::PUT, "/v1/webhooks/w", &[], misspelt).await;
    told.refused(400, "request_invalid", "queus");
    assert_eq!(kit.get("/v1/webhooks").await.is(200).body, json!([]));
    kit.close().await;
}

async fn webhooks_of_others_are_out_of_reach(kit: Kit) {
    let kit = kit.closed().await;
    let of = |tenant: &str| Grant { tenant: Some(tenant.into()), ..Grant::new(Role::Operator) };
    let acme = kit.credential("acme", of("acme")).await;
    let other = kit.credential("other", of("other")).await;
    let mail = Grant { queues: vec!["mail:*".into()], ..Grant::new(Role::Operator) };
    let mail = kit.credential("mail", mail).await;
    let root = kit.credential("root", Grant::new(Role::Admin)).await;
    let put = async |secret: &str, name: &str, body| {
        kit.ask(secret, Method::PUT, &format!("/v1/webhooks/{name}"), body).await
    };
    let all = json!({ "url": "https://example.com/", "queues": ["*"] });
    let made = put(&acme, "theirs", all.clone()).await.is(201).body;
    assert_eq!(made["tenant"], "acme", "it comes from the credential");
    put(&root, "ours", all.clone()).await.is(201);
    let foreign = json!({ "url": "https://example.com/", "queues": ["*"], "tenant": "acme" });
    put(&other, "x", foreign).await.refused(403, "tenant_refused", "acme");
    put(&mail, "x", all.clone()).await.refused(403, "queue_refused", "*");
    put(&mail, "x", json!({ "url": "https://example.com/" })).await.refused(
        403,
        "queue_refused",
        "*",
    );
    put(&other, "theirs", all).await.refused(404, "webhook_unknown", "theirs");
    let own = json!({ "url": "https://example.com/", "queues": ["mail:eu"] });
    put(&mail, "mail", own).await.is(201);
    for (secret, names) in [(&acme, vec!["theirs"]), (&other, vec![]), (&mail, vec!["mail"])] {
        let listed = kit.ask(secret, Method::GET, "/v1/webhooks", json!({})).await.is(200).body;
        let listed: Vec<_> =
            listed.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(listed, names);
    }
    for (method, path) in [
        (Method::GET, ""),
        (Method::DELETE, ""),
        (Method::GET, "/deliveries"),
        (Method::POST, "/rotate"),
    ] {
        let path = format!("/v1/webhooks/theirs{path}");
        let told = kit.ask(&other, method, &path, json!({})).await;
        told.refused(404, "webhook_unknown", "theirs");
    }
    kit.close().await;
}

async fn of_two_tenants_that_make_a_webhook_at_once_one_does(kit: Kit) {
    let kit = kit.closed().await;
    let of = |tenant: &str| Grant { tenant: Some(tenant.into()), ..Grant::new(Role::Operator) };
    let acme = kit.credential("acme", of("acme")).await;
    let other = kit.credential("other", of("other")).await;
    let body = json!({ "url": "https://example.com/", "queues": ["*"] });
    for round in 0..40 {
        let path = format!("/v1/webhooks/w{round}");
        let put = |secret| kit.ask(secret, Method::PUT, &path, body.clone());
        let (mine, theirs) = tokio::join!(put(&acme), put(&other));
        let (won, lost, secret) =
            if mine.status == 201 { (mine, theirs, &acme) } else { (theirs, mine, &other) };
        lost.refused(404, "webhook_unknown", "w");
        let shown = kit.ask(secret, Method::GET, &path, json!({})).await.is(200).body;
        assert_eq!(shown["tenant"], won.is(201).body["tenant"]);
    }
    kit.close().await;
}

async fn what_a_webhook_has_told_of_others_stays_out_of_reach(kit: Kit) {
    let kit = kit.closed().await;
    let of = |tenant: &str| Grant { tenant: Some(tenant.into()), ..Grant::new(Role::Operator) };
    let acme = kit.credential("acme", of("acme")).await;
    let beta = kit.credential("beta", of("beta")).await;
    let root = kit.credential("root", Grant::new(Role::Admin)).await;
    let ask = async |secret: &str, method: Method, path: &str, body: Value| {
        kit.ask(secret, method, path, body).await
    };
    let hook = json!({ "url": "https://example.com/", "queues": ["*"] });
    ask(&root, Method::PUT, "/v1/webhooks/all", hook.clone()).await.is(201);
    let job = json!({ "kind": "k", "queue": "q" });
    let job = ask(&beta, Method::POST, "/v1/jobs", job).await.is(201).body["id"].clone();
    let cancel = format!("/v1/jobs/{}/cancel", job.as_str().unwrap());
    ask(&beta, Method::POST, &cancel, json!({})).await.is(200);
    let log = "/v1/webhooks/all/deliveries";
    let told = ask(&root, Method::GET, log, json!({})).await.is(200).body;
    let told = &told["deliveries"][0];
    assert_eq!(
        (&told["job"], &told["queue"], &told["tenant"]),
        (&job, &json!("q"), &json!("beta"))
    );
    // What the platform is told is the platform's: the tenant it is about can neither see nor stop it.
    let path = format!("/v1/jobs/{}", told["id"].as_str().unwrap());
    ask(&beta, Method::GET, &path, json!({})).await.refused(404, "job_unknown", "");
    ask(&beta, Method::POST, &format!("{path}/cancel"), json!({})).await.refused(
        404,
        "job_unknown",
        "",
    );
    let queue = "/v1/jobs?queue=tidemill:webhooks";
    assert_eq!(ask(&beta, Method::GET, queue, json!({})).await.is(200).body["jobs"], json!([]));
    // Whoever gets the webhook does not get what it has told.
    let mut given = hook;
    given["tenant"] = "acme".into();
    ask(&root, Method::PUT, "/v1/webhooks/all", given).await.is(200);
    let log = ask(&acme, Method::GET, log, json!({})).await.is(200).body;
    assert_eq!(log["deliveries"], json!([]));
    let again =
        ask(&acme, Method::POST, "/v1/webhooks/all/redeliver", json!({ "delivery": told["id"] }));
    again.await.refused(404, "job_unknown", "");
    kit.close().await;
}

async fn no_tenant_has_all_webhooks(kit: Kit) {
    let kit = kit.closed().await;
    let of = |tenant: &str| Grant { tenant: Some(tenant.into()), ..Grant::new(Role::Operator) };
    let acme = kit.credential("acme", of("acme")).await;
    let beta = kit.credential("beta", of("beta")).await;
    let hook = json!({ "url": "https://example.com/", "queues": ["*"] });
    for number in 0..100 {
        let path = format!("/v1/webhooks/a{number}");
        kit.ask(&acme, Method::PUT, &path, hook.clone()).await.is(201);
    }
    let more = kit.ask(&acme, Method::PUT, "/v1/webhooks/more", hook.clone()).await;
    more.refused(400, "webhook_invalid", "100 webhooks at most");
    kit.ask(&acme, Method::PUT, "/v1/webhooks/a7", hook.clone()).await.is(200);
    kit.ask(&beta, Method::PUT, "/v1/webhooks/theirs", hook).await.is(201);
    kit.close().await;
}
