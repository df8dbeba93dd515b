//! What is not to be seen: hidden in every answer, in errors and in streams, and whole for those who run jobs.

use reqwest::Method;
use serde_json::{Value, json};
use tidemill::{Grant, Role};

use super::kit::{Kit, Told};

over_both_stores!(
    hidden_fields_are_seen_by_workers_alone,
    what_was_not_shown_is_not_kept_instead,
    the_tag_of_a_job_says_nothing_of_what_is_hidden,
    numbers_that_are_too_large_let_nothing_be_seen,
    why_a_run_waits_and_what_was_made_of_it_show_no_secrets,
);

const RULES: [&str; 2] = ["password", "card.number"];
/// What must not be seen.
const SECRETS: [&str; 2] = ["tulips-and-roses", "4111111111111111"];

fn payload() -> Value {
    json!({ "user": "ada", "password": SECRETS[0], "card": { "number": SECRETS[1], "brand": "v" } })
}

#[track_caller]
fn is_hidden(told: &Told) {
    let text = told.body.to_string();
    assert!(SECRETS.iter().all(|secret| !text.contains(secret)), "{text}");
}

async fn hidden_fields_are_seen_by_workers_alone(kit: Kit) {
    let kit = kit.hiding(&RULES).await.closed().await;
    let admin = kit.credential("root", Grant::new(Role::Admin)).await;
    let viewer = kit.credential("eve", Grant::new(Role::Viewer)).await;
    let hand = kit.credential("hand", Grant::new(Role::Worker)).await;
    let get = async |who: &str, path: &str| kit.ask(who, Method::GET, path, json!({})).await;
    let post = async |who: &str, path: &str, body| kit.ask(who, Method::POST, path, body).await;
    let wish = json!({ "kind": "pay", "payload": payload(), "attempts": 1 });
    let told = post(&admin, "/v1/jobs", wish).await.is(201);
    let id = told.body["id"].as_str().unwrap().to_owned();

    let card = json!({ "name": "w", "queues": ["default"], "lease": "10m" });
    let worker = post(&hand, "/v1/workers", card).await.is(201).body["id"].clone();
    let worker = format!("/v1/workers/{}", worker.as_str().unwrap());
    let ask = json!({ "queues": ["default"], "wait": "30s" });
    let claimed = post(&hand, &format!("{worker}/claim"), ask).await.is(200).body;
    assert_eq!(claimed["jobs"][0]["payload"], payload(), "who runs it has it whole");
    let token = &claimed["token"];

    let said = json!({ "event": "log", "message": format!("paying with {}", SECRETS[1]) });
    let said = json!({ "items": [{ "id": id, "token": token, "said": [said] }] });
    post(&hand, &format!("{worker}/stream"), said).await.is(200);
    let ok = json!({ "receipt": 1, "card": { "number": SECRETS[1] } });
    let entry = json!({ "ended": { "key": "p", "hash": "", "tries": 1, "took_ms": 1, "ending": { "ok": ok } } });
    let writes = json!({ "begins": "v1", "entries": [{ "number": 1, "entry": entry }] });
    let journal = json!({ "id": id, "token": token, "writes": writes });
    post(&hand, &format!("{worker}/journal"), journal).await.is(204);
    let message = format!("{} was not taken from {}", SECRETS[1], SECRETS[0]);
    let outcome = json!({ "failed": { "class": "permanent", "message": message } });
    let report = json!({ "reports": [{ "id": id, "token": token, "outcome": outcome }] });
    // Also by a node that never gave it.
    let twin = kit.twin_hiding(&RULES).await;
    let told = twin.ask(&hand, Method::POST, &format!("{worker}/settle"), report).await;
    told.is(200);
    twin.close().await;

    let journal = format!("/v1/jobs/{id}/journal");
    let whole = get(&hand, &journal).await.is(200).body.to_string();
    assert!(whole.contains(SECRETS[1]), "who runs it has what it wrote: {whole}");
    is_hidden(&get(&viewer, &journal).await.is(200));
    let history = format!("/v1/workflows/{id}/history?whole=true");
    let whole = get(&hand, &history).await.is(200).body;
    assert_eq!(whole["job"]["payload"], payload(), "who would run it can replay it");
    get(&viewer, &history).await.refused(403, "role_refused", "worker");
    for field in ["password=tulips-and-roses", "card={\"number\":\"4111111111111111\"}"] {
        let path = format!("/v1/dead?payload_field={field}");
        get(&admin, &path).await.refused(400, "search_hidden", "");
        get(&viewer, &path.replace("dead?", "dead/groups?")).await.refused(
            400,
            "search_hidden",
            "",
        );
    }
    let plan =
        json!({ "act": "archive", "filter": { "payload_field": ["card.number", SECRETS[1]] } });
    post(&admin, "/v1/dead/plans", plan).await.refused(400, "search_hidden", "card.number");
    get(&viewer, "/v1/dead?payload_field=user=ada").await.is(200);
    for who in [&viewer, &admin] {
        for path in [
            format!("/v1/jobs/{id}"),
            format!("/v1/jobs/{id}/wait"),
            format!("/v1/jobs/{id}/attempts"),
            format!("/v1/workflows/{id}/history"),
            "/v1/jobs".to_owned(),
            "/v1/dead".to_owned(),
            "/v1/dead/groups".to_owned(),
        ] {
            is_hidden(&get(who, &path).await.is(200));
        }
        let stream = get(who, &format!("/v1/jobs/{id}/stream")).await.is(200);
        is_hidden(&stream);
        assert!(stream.body.as_str().unwrap().contains("paying with [hidden]"), "{stream:?}");
    }
    let view = get(&viewer, &format!("/v1/jobs/{id}")).await.is(200).body;
    assert_eq!(view["error"], "[hidden] was not taken from [hidden]");
    let shown = json!({ "user": "ada", "password": "[hidden]", "card": { "number": "[hidden]", "brand": "v" } });
    assert_eq!(view["payload"], shown);
    kit.close().await;
}

async fn what_was_not_shown_is_not_kept_instead(kit: Kit) {
    let kit = kit.hiding(&RULES).await;
    let id = kit.enqueue(json!({ "kind": "pay", "payload": payload(), "delay": "1h" })).await;
    let path = format!("/v1/jobs/{id}");
    let shown = kit.get(&path).await.is(200);
    let changed = json!({ "payload": shown.body["payload"] });
    let tag = [("if-match", shown.header("etag"))];
    let told = kit.send(Method::PATCH, &path, &tag, changed).await;
    told.refused(400, "payload_hidden", "[hidden]");
    let whole = json!({ "payload": payload() });
    kit.send(Method::PATCH, &path, &tag, whole).await.is(200);
    kit.close().await;
}

async fn the_tag_of_a_job_says_nothing_of_what_is_hidden(kit: Kit) {
    let kit = kit.hiding(&RULES).await;
    let enqueue = async |payload: Value| {
        kit.enqueue(json!({ "kind": "pay", "payload": payload, "delay": "1h" })).await
    };
    let print = async |id: &str| {
        let view = kit.mill.job(id.parse().unwrap()).await.unwrap().unwrap();
        format!("\"{}\"", view.job.print())
    };
    let id = enqueue(payload()).await;
    let path = format!("/v1/jobs/{id}");
    let tag = kit.get(&path).await.is(200).header("etag").to_owned();
    let guess = print(&id).await;
    assert_ne!(tag, guess, "whoever tries values would know when one is right");
    let edit =
        async |tag: &str, body| kit.send(Method::PATCH, &path, &[("if-match", tag)], body).await;
    edit(&guess, json!({ "tags": ["a"] })).await.refused(412, "job_changed", &id);
    let told = edit(&tag, json!({ "tags": ["a"] })).await.is(200);
    edit(&tag, json!({ "tags": ["b"] })).await.refused(412, "job_changed", &id);
    edit(&format!("{tag}, {}", told.header("etag")), json!({ "tags": ["b"] })).await.is(200);
    edit("*", json!({ "tags": [] })).await.is(200);
    assert_eq!(kit.get(&path).await.is(200).header("etag"), tag, "it is as it was");

    let plain = enqueue(json!({ "user": "ada" })).await;
    let shown = kit.get(&format!("/v1/jobs/{plain}")).await.is(200);
    assert_eq!(shown.header("etag"), print(&plain).await, "who sees all of it can tell the tag");
    kit.close().await;
}

/// A payload is whatever JSON can say, and not all of that fits into types of ours.
async fn numbers_that_are_too_large_let_nothing_be_seen(kit: Kit) {
    let kit = kit.hiding(&RULES).await;
    let text = format!(
        r#"{{"kind":"pay","attempts":1,"payload":{{"password":"{}","n":1e999}}}}"#,
        SECRETS[0]
    );
    let request = kit.request(Method::POST, "/v1/jobs").header("content-type", "application/json");
    let told = Told::of(request.body(text).send().await.unwrap()).await.is(201);
    let id = told.body["id"].as_str().unwrap();
    let card = json!({ "name": "w", "queues": ["default"], "lease": "10m" });
    let worker = kit.post("/v1/workers", card).await.is(201).body["id"].clone();
    let worker = format!("/v1/workers/{}", worker.as_str().unwrap());
    // The answer has a number in it that this test cannot read as a value, either.
    let ask = json!({ "queues": ["default"], "wait": "30s" });
    let claimed = kit.post(&format!("{worker}/claim"), ask).await.is(200).body.to_string();
    let claimed = claimed.replace('\\', "");
    let (_, rest) = claimed.split_once(r#""token":"#).unwrap();
    let token: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let token: i64 = token.parse().unwrap();
    let said = json!({ "event": "log", "message": format!("paying with {}", SECRETS[0]) });
    let said = json!({ "items": [{ "id": id, "token": token, "said": [said] }] });
    kit.post(&format!("{worker}/stream"), said).await.is(200);
    let outcome =
        json!({ "failed": { "class": "permanent", "message": format!("not {}", SECRETS[0]) } });
    let report = json!({ "reports": [{ "id": id, "token": token, "outcome": outcome }] });
    kit.post(&format!("{worker}/settle"), report).await.is(200);
    for path in ["", "/attempts", "/stream"] {
        is_hidden(&kit.get(&format!("/v1/jobs/{id}{path}")).await.is(200));
    }
    is_hidden(&kit.get("/v1/dead").await.is(200));
    let attempts = kit.get(&format!("/v1/jobs/{id}/attempts")).await.is(200).body.to_string();
    assert!(attempts.contains("not [hidden]"), "what is no secret is seen: {attempts}");
    kit.close().await;
}

async fn why_a_run_waits_and_what_was_made_of_it_show_no_secrets(kit: Kit) {
    let kit = kit.hiding(&RULES).await;
    let id = kit.enqueue(json!({ "kind": "pay", "payload": payload() })).await;
    let card = json!({ "name": "w", "queues": ["default"], "lease": "10m" });
    let worker = kit.post("/v1/workers", card).await.is(201).body["id"].clone();
    let worker = format!("/v1/workers/{}", worker.as_str().unwrap());
    let ask = json!({ "queues": ["default"], "wait": "30s" });
    let claimed = kit.post(&format!("{worker}/claim"), ask).await.is(200).body;
    let ok = json!({ "card": { "number": SECRETS[1] } });
    let entry = json!({ "ended": { "key": "p", "hash": "", "tries": 1, "took_ms": 1, "ending": { "ok": ok } } });
    let run = json!({ "begins": "v1", "entries": [{ "number": 1, "entry": entry }] });
    let wait = json!({ "mail_min": 1, "read": 0, "parked": format!("no {}", SECRETS[0]),
        "what": [format!("signal {}", SECRETS[1])] });
    let report =
        json!({ "id": id, "token": claimed["token"], "outcome": { "wait": wait }, "run": run });
    kit.post(&format!("{worker}/settle"), json!({ "reports": [report] })).await.is(200);
    let act = json!({ "act": "edit", "step": "p", "output": { "card": { "number": SECRETS[1] } }, "why": "no" });
    kit.post(&format!("/v1/workflows/{id}/acts"), act).await.is(200);
    for path in
        ["workflows/{id}", "workflows/{id}/acts", "jobs/{id}", "jobs/{id}/why", "jobs/{id}/journal"]
    {
        let told = kit.get(&format!("/v1/{}", path.replace("{id}", &id))).await.is(200);
        // Who runs jobs reads journals whole; of what the run says of itself nothing is kept.
        if path.ends_with("journal") {
            assert!(!told.body["run"].to_string().contains(SECRETS[0]), "{told:?}");
        } else {
            is_hidden(&told);
        }
    }
    kit.close().await;
}
