//! Schedules.

use reqwest::Method;
use serde_json::{Value, json};
use tidemill::{Grant, Role};

use super::kit::Kit;

over_both_stores!(
    a_schedule_is_set_looked_at_paused_run_and_deleted,
    pages_of_schedules_follow_each_other,
    what_is_wrong_with_a_schedule_is_named,
    a_schedule_of_another_tenant_is_not_there,
    the_schedules_of_an_owner_are_declared_whole,
    nobody_declares_what_is_not_theirs,
    of_two_tenants_that_make_a_schedule_at_once_one_does,
);

fn nightly(kind: &str) -> Value {
    json!({ "cron": "30 2 * * *", "zone": "Europe/Berlin", "job": { "kind": kind, "queue": "reports" } })
}

async fn a_schedule_is_set_looked_at_paused_run_and_deleted(kit: Kit) {
    let path = "/v1/schedules/nightly%20report";
    kit.get(path).await.refused(404, "schedule_unknown", "nightly report");
    let put = async |tag: &str, body| {
        let headers = [("if-match", tag)];
        kit.send(Method::PUT, path, &headers[..usize::from(!tag.is_empty())], body).await
    };
    for none in ["\"7\"", "*", "\"7\", \"8\""] {
        put(none, nightly("a")).await.refused(412, "schedule_changed", "nightly report");
    }
    let set = put("", nightly("a")).await.is(200);
    let tag = set.header("etag").to_owned();
    assert_eq!(
        (&set.body["owner"], &set.body["job"]["queue"]),
        (&json!("http"), &json!("reports"))
    );
    assert_eq!(put("", nightly("a")).await.is(200).header("etag"), tag, "nothing has changed");
    put(&tag, nightly("b")).await.is(200);
    put(&tag, nightly("c")).await.refused(412, "schedule_changed", "look at it again");
    put("*", nightly("c")).await.is(200);
    let now = put("", nightly("b")).await.is(200).header("etag").to_owned();
    put(&format!("W/{now}"), nightly("c")).await.refused(412, "schedule_changed", "");
    put(&format!("{tag}, {now}"), nightly("b")).await.is(200);
    assert_eq!(kit.get(path).await.is(200).body["job"]["kind"], "b");

    let coming = kit.get(&format!("{path}/preview?slots=3")).await.is(200).body;
    assert_eq!(coming.as_array().unwrap().len(), 3);
    assert!(coming[0]["local"].as_str().unwrap().contains("02:30:00"), "{coming}");
    let before = kit.get("/v1/schedules").await.is(200).body;
    let described = kit.post("/v1/schedule-preview?slots=2", nightly("x")).await.is(200).body;
    assert_eq!(described[0]["slot"], coming[0]["slot"], "one that is only described");
    assert_eq!(kit.get("/v1/schedules").await.is(200).body, before, "nothing was written");

    assert_eq!(kit.post(&format!("{path}/pause"), json!({})).await.is(200).body["paused"], true);
    let fired = kit.post(&format!("{path}/run"), json!({})).await.is(200).body;
    let job = kit.get(&format!("/v1/jobs/{}", fired["job"].as_str().unwrap())).await.is(200).body;
    assert_eq!((&job["kind"], &fired["what"]), (&json!("b"), &json!("fired")));
    let history = kit.get(&format!("{path}/history")).await.is(200).body;
    assert_eq!((&history[0]["how"], &history[0]["job"]), (&json!("run_now"), &fired["job"]));
    assert_eq!(kit.post(&format!("{path}/resume"), json!({})).await.is(200).body["paused"], false);

    let range = json!({ "from": "2026-01-01T00:00:00Z", "to": "2026-01-03T00:00:00Z" });
    let dry = json!({ "from": range["from"], "to": range["to"], "dry_run": true });
    let told = kit.post(&format!("{path}/backfill"), dry).await.is(200).body;
    assert_eq!((told["slots"].as_array().unwrap().len(), &told["fired"]), (2, &json!([])));
    let told = kit.post(&format!("{path}/backfill"), range).await.is(200).body;
    assert_eq!(told["fired"].as_array().unwrap().len(), 2);

    let delete = async |query: &str| {
        kit.send(Method::DELETE, &format!("{path}{query}"), &[], json!({})).await
    };
    delete("?owner=app").await.refused(409, "schedule_owned", "http");
    delete("").await.is(204);
    delete("").await.refused(404, "schedule_unknown", "nightly report");
    kit.close().await;
}

async fn pages_of_schedules_follow_each_other(kit: Kit) {
    for name in ["a", "b", "c", "d", "e"] {
        let path = format!("/v1/schedules/{name}");
        kit.send(Method::PUT, &path, &[], nightly("k")).await.is(200);
    }
    let (mut names, mut path) = (String::new(), "/v1/schedules?limit=2".to_owned());
    loop {
        let page = kit.get(&path).await.is(200).body;
        for one in page["schedules"].as_array().unwrap() {
            names += one["name"].as_str().unwrap();
        }
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/schedules?limit=2&cursor={next}");
    }
    assert_eq!(names, "abcde");
    kit.get("/v1/schedules?cursor=abc").await.refused(400, "request_invalid", "cursor");
    kit.get("/v1/schedules?limit=0").await.refused(400, "request_invalid", "1000");
    kit.get("/v1/schedules?page=2").await.refused(400, "request_invalid", "page");
    kit.close().await;
}

async fn what_is_wrong_with_a_schedule_is_named(kit: Kit) {
    let job = json!({ "kind": "k" });
    for (body, code, says) in [
        (
            json!({ "cron": "* * * * *", "every": "5m", "job": job }),
            "wish_contradiction",
            "one rule",
        ),
        (json!({ "job": job }), "wish_contradiction", "one rule"),
        (json!({ "cron": "61 * * * *", "job": job }), "schedule_cron_invalid", "61"),
        (json!({ "every": "5m", "zone": "Mars", "job": job }), "schedule_zone_unknown", "Mars"),
        (json!({ "every": "5m", "jop": job }), "request_invalid", "jop"),
        (json!({ "every": "5m", "job": { "knd": "k" } }), "request_invalid", "knd"),
        (json!({ "every": "5m", "missed": "some", "job": job }), "word_unknown", "some"),
    ] {
        let told = kit.send(Method::PUT, "/v1/schedules/s", &[], body.clone()).await;
        told.refused(400, code, says);
        kit.post("/v1/schedule-preview", body).await.refused(400, code, says);
    }
    kit.get("/v1/schedules/s").await.is(404);
    kit.close().await;
}

async fn a_schedule_of_another_tenant_is_not_there(kit: Kit) {
    let kit = kit.closed().await;
    let of = |tenant: &str| Grant { tenant: Some(tenant.into()), ..Grant::new(Role::Operator) };
    let acme = kit.credential("acme", of("acme")).await;
    let other = kit.credential("other", of("other")).await;
    let path = "/v1/schedules/s";
    let set = kit.ask(&acme, Method::PUT, path, nightly("k")).await.is(200);
    assert_eq!(set.body["job"]["tenant"], "acme", "it comes from the credential");
    for (method, path) in [
        (Method::GET, path.to_owned()),
        (Method::DELETE, path.to_owned()),
        (Method::POST, format!("{path}/pause")),
        (Method::POST, format!("{path}/run")),
        (Method::GET, format!("{path}/history")),
    ] {
        kit.ask(&other, method, &path, json!({})).await.refused(404, "schedule_unknown", "s");
    }
    kit.ask(&other, Method::PUT, path, nightly("k")).await.refused(403, "queue_refused", "s");
    kit.ask(&acme, Method::PUT, "/v1/schedules/t", nightly("k")).await.is(200);
    // No cursor either, which would name those it stands at.
    let seen = kit.ask(&other, Method::GET, "/v1/schedules?limit=1", json!({})).await.is(200).body;
    assert_eq!(seen, json!({ "schedules": [] }));
    kit.ask(&other, Method::PUT, "/v1/schedules/z", nightly("k")).await.is(200);
    let seen = kit.ask(&other, Method::GET, "/v1/schedules?limit=1", json!({})).await.is(200).body;
    assert_eq!(seen["schedules"][0]["name"], "z", "{seen}");
    kit.close().await;
}

async fn the_schedules_of_an_owner_are_declared_whole(kit: Kit) {
    let path = "/v1/owners/billing%20team/schedules";
    let declare = async |body: Value| kit.send(Method::PUT, path, &[], body).await;
    kit.send(Method::PUT, "/v1/schedules/alone", &[], nightly("a")).await.is(200);
    let two = |b: &str| json!({ "a": nightly("a"), "b": nightly(b) });
    let dry = json!({ "schedules": two("b"), "dry_run": true });
    assert_eq!(declare(dry).await.is(200).body["made"], json!(["a", "b"]));
    kit.get("/v1/schedules/a").await.is(404);
    let declared = declare(json!({ "schedules": two("b") })).await.is(200).body;
    assert_eq!((&declared["made"], &declared["deleted"]), (&json!(["a", "b"]), &json!([])));
    assert_eq!(kit.get("/v1/schedules/b").await.is(200).body["owner"], "billing team");
    let tag = kit.get("/v1/schedules/a").await.is(200).header("etag").to_owned();
    let declared = declare(json!({ "schedules": two("c") })).await.is(200).body;
    assert_eq!((&declared["unchanged"], &declared["changed"]), (&json!(["a"]), &json!(["b"])));
    assert_eq!(kit.get("/v1/schedules/a").await.is(200).header("etag"), tag);

    // One that is wrong spoils all, and is named.
    let wrong = json!({ "z": nightly("z"), "bad": { "cron": "x", "job": { "kind": "k" } } });
    let told = declare(json!({ "schedules": wrong })).await;
    told.refused(400, "schedule_cron_invalid", "\"bad\"");
    let taken = declare(json!({ "schedules": { "z": nightly("z"), "alone": nightly("a") } })).await;
    taken.refused(409, "schedule_owned", "alone");
    let mut other = nightly("z");
    other["owner"] = "ops".into();
    let told = declare(json!({ "schedules": { "z": other } })).await;
    told.refused(400, "wish_contradiction", "ops");
    declare(json!({})).await.refused(400, "request_invalid", "schedules");
    declare(json!({ "schedules": [] })).await.refused(
        400,
        "request_invalid",
        "schedules: it is a list",
    );
    declare(json!({ "schedules": {}, "dry": true })).await.refused(400, "request_invalid", "dry");
    kit.get("/v1/schedules/z").await.is(404);

    let declared = declare(json!({ "schedules": { "b": nightly("c") } })).await.is(200).body;
    assert_eq!((&declared["unchanged"], &declared["deleted"]), (&json!(["b"]), &json!(["a"])));
    kit.get("/v1/schedules/a").await.is(404);
    kit.get("/v1/schedules/alone").await.is(200);
    assert_eq!(declare(json!({ "schedules": {} })).await.is(200).body["deleted"], json!(["b"]));
    kit.close().await;
}

async fn nobody_declares_what_is_not_theirs(kit: Kit) {
    let kit = kit.closed().await;
    let of = |tenant: &str| Grant { tenant: Some(tenant.into()), ..Grant::new(Role::Operator) };
    let acme = kit.credential("acme", of("acme")).await;
    let other = kit.credential("other", of("other")).await;
    let path = "/v1/owners/billing/schedules";
    let body = json!({ "schedules": { "s": nightly("k") } });
    kit.ask(&acme, Method::PUT, path, body.clone()).await.is(200);
    let told = kit.ask(&other, Method::PUT, path, json!({ "schedules": {} })).await;
    let told = told.refused(403, "queue_refused", "\"billing\" has schedules");
    assert!(!told.body["detail"].as_str().unwrap().contains("\"s\""), "{told:?}");
    let told = kit.ask(&other, Method::PUT, "/v1/owners/mine/schedules", body).await;
    told.refused(403, "queue_refused", "s");
    let mut foreign = nightly("k");
    foreign["job"]["tenant"] = "other".into();
    let body = json!({ "schedules": { "t": foreign } });
    assert_eq!(kit.ask(&acme, Method::PUT, path, body).await.status, 403);
    let kept = kit.ask(&acme, Method::GET, "/v1/schedules/s", json!({})).await.is(200).body;
    assert_eq!(kept["job"]["tenant"], "acme");
    kit.close().await;
}

async fn of_two_tenants_that_make_a_schedule_at_once_one_does(kit: Kit) {
    let kit = kit.closed().await;
    let of = |tenant: &str| Grant { tenant: Some(tenant.into()), ..Grant::new(Role::Operator) };
    let acme = kit.credential("acme", of("acme")).await;
    let other = kit.credential("other", of("other")).await;
    for round in 0..40 {
        let name = format!("s{round}");
        let path = format!("/v1/schedules/{name}");
        // Set by itself, and declared with all of an owner, who is the same for both.
        let owners = format!("/v1/owners/o{round}/schedules");
        let (to, body) = match round % 2 {
            0 => (&path, nightly("k")),
            _ => (&owners, json!({ "schedules": { name: nightly("k") } })),
        };
        let put = |secret| kit.ask(secret, Method::PUT, to, body.clone());
        let (mine, theirs) = tokio::join!(put(&acme), put(&other));
        let (won, lost, secret, tenant) = if mine.status == 200 {
            (mine, theirs, &acme, "acme")
        } else {
            (theirs, mine, &other, "other")
        };
        won.is(200);
        lost.refused(403, "queue_refused", "s");
        let shown = kit.ask(secret, Method::GET, &path, json!({})).await.is(200).body;
        assert_eq!(shown["job"]["tenant"], tenant);
    }
    kit.close().await;
}
