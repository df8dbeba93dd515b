//! Who may call what.

use reqwest::Method;
use serde_json::{Value, json};
use tidemill::audit::AuditFilter;
use tidemill::{Grant, Role, WorkerId};
use tidemill_server::Server;

use super::kit::{Kit, Told};

over_both_stores!(
    who_says_nothing_or_wrong_things_is_not_let_in,
    a_tenant_sees_and_brings_its_own_alone,
    a_queue_that_is_not_granted_is_out_of_reach,
    a_token_counts_where_none_is_asked_for,
);

const LOOK: &[&str] = &[
    "list_jobs",
    "show_job",
    "wait_for_job",
    "why_job",
    "list_attempts",
    "stream_job",
    "live_job",
    "list_dead",
    "group_dead",
    "sample_dead",
    "list_rules",
    "list_plans",
    "show_plan",
    "list_queues",
    "queue_rules",
    "why_queue",
    "queue_depth",
    "wait_for_queue",
    "list_webhooks",
    "show_webhook",
    "list_deliveries",
    "list_workers",
    "list_schedules",
    "show_schedule",
    "schedule_history",
    "preview_schedule",
    "preview_schedule_of",
    "list_flows",
    "show_flow",
    "flow_outputs",
    "list_runs",
    "show_run",
    "run_history",
    "list_run_acts",
    "show_object",
    "list_limits",
    "metrics",
    "show_now",
    "show_overview",
    "list_alerts",
    "read_journal",
    "read_value",
    "read_mail",
    "read_inputs",
    "read_outputs",
];
const ENQUEUE: &[&str] = &[
    "enqueue_job",
    "enqueue_jobs",
    "signal_job",
    "start_flow",
    "add_to_flow",
    "begin_flow",
    "discard_flow",
    "update_run",
];
const OPERATE: &[&str] = &[
    "examine_store",
    "edit_job",
    "cancel_job",
    "retry_job",
    "note_dead",
    "replay_dead",
    "set_rule",
    "delete_rule",
    "plan_dead",
    "apply_plan",
    "undo_plan",
    "set_queue_rules",
    "delete_queue_rules",
    "pause_queue",
    "resume_queue",
    "set_schedule",
    "declare_schedules",
    "delete_schedule",
    "pause_schedule",
    "resume_schedule",
    "run_schedule",
    "backfill_schedule",
    "cancel_flow",
    "retry_flow",
    "rerun_flow",
    "resolve_step",
    "act_on_run",
    "set_limit",
    "delete_limit",
    "set_webhook",
    "delete_webhook",
    "rotate_webhook",
    "redeliver_webhook",
];
const WORK: &[&str] = &[
    "register_worker",
    "sign_off_worker",
    "beat_worker",
    "claim_jobs",
    "settle_jobs",
    "append_journal",
    "append_stream",
];
const ADMINISTER: &[&str] = &[
    "list_audit",
    "list_tokens",
    "create_token",
    "find_token",
    "revoke_token",
    "list_keys",
    "rotate_keys",
];
const EVERYBODY: &[&str] = &["livez", "startupz", "readyz"];

/// Who may do an operation, written down a second time.
fn may(role: Role, operation: &str) -> bool {
    match role {
        Role::Viewer => LOOK.contains(&operation),
        Role::Producer => LOOK.contains(&operation) || ENQUEUE.contains(&operation),
        Role::Worker => ![OPERATE, ADMINISTER].concat().contains(&operation),
        Role::Operator => ![WORK, ADMINISTER].concat().contains(&operation),
        Role::Admin => true,
    }
}

#[tokio::test]
async fn every_operation_is_for_those_it_is_for_and_nobody_else() {
    let kit = Kit::sqlite().await.closed().await;
    let mut secrets = Vec::new();
    for role in Role::ALL {
        secrets.push((role, kit.credential(role.word(), Grant::new(role)).await));
    }
    let described: Value = serde_json::from_str(&Server::description()).unwrap();
    let (mut seen, mut looks) = (0, std::collections::BTreeSet::new());
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            let method: Method = method.to_uppercase().parse().unwrap();
            if method == Method::GET {
                looks.insert(name);
            }
            let id = tidemill::JobId::new().to_string();
            let path = path.replace("{id}", &id).replace("{name}", "walk");
            let path = path.replace("{number}", "1").replace("{step}", "walk");
            let path = if path.ends_with("/wait") { format!("{path}?timeout=1ms") } else { path };
            let told = kit.send(method.clone(), &path, &[], json!({})).await;
            if EVERYBODY.contains(&name) {
                told.is(200);
                continue;
            }
            assert!([LOOK, ENQUEUE, WORK, OPERATE, ADMINISTER].concat().contains(&name), "{name}");
            let told = told.refused(401, "credential_missing", "token create");
            assert!(told.header("www-authenticate").starts_with("Bearer"));
            assert!(operation["security"].is_array(), "{name}");
            for (role, secret) in &secrets {
                // A worker acts for those that it has registered.
                let owner = kit.mill.credentials().find(role.word()).await.unwrap().id;
                let own = format!("/v1/workers/{}", WorkerId::of(owner));
                let path = path.replace(&format!("/v1/workers/{id}"), &own);
                let told = kit.ask(secret, method.clone(), &path, json!({})).await;
                let is_let_in = ![401, 403].contains(&told.status);
                assert_eq!(is_let_in, may(*role, name), "{role:?} {name} {told:?}");
                assert!(told.status < 500, "{told:?}");
                seen += 1;
            }
        }
    }
    let all = [LOOK, ENQUEUE, WORK, OPERATE, ADMINISTER].concat();
    assert_eq!(seen, Role::ALL.len() * all.len());
    // Whatever operators and admins do is in the record, by everybody who tried, and nothing else is.
    let filter = AuditFilter { limit: 10_000, ..AuditFilter::default() };
    let acts = kit.mill.audit().list(&filter).await.unwrap();
    let done = [OPERATE, ADMINISTER].concat().into_iter().filter(|name| !looks.contains(*name));
    let mut expected: Vec<_> = done.map(|name| (name.to_owned(), 5)).collect();
    expected.sort();
    let mut found = std::collections::BTreeMap::<String, usize>::new();
    for act in &acts {
        *found.entry(act.act.clone()).or_default() += 1;
        let is_refused = act.result.as_deref() == Some("role_refused");
        let role = Role::ALL.into_iter().find(|role| role.word() == act.who).unwrap();
        assert_eq!(is_refused, !may(role, &act.act), "{act:?}");
        assert!(act.credential.is_some() && act.ended_at.is_some(), "{act:?}");
    }
    assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    kit.close().await;
}

async fn who_says_nothing_or_wrong_things_is_not_let_in(kit: Kit) {
    let kit = kit.closed().await;
    let secret = kit.credential("ada", Grant::new(Role::Viewer)).await;
    let get = async |value: &str| {
        let request = kit.request(Method::GET, "/v1/jobs").header("authorization", value);
        Told::of(request.send().await.unwrap()).await
    };
    get(&format!("Bearer {secret}")).await.is(200);
    get(&format!("bearer  {secret}")).await.is(200);
    for wrong in ["", "Basic YTpi", &secret] {
        get(wrong).await.refused(401, "credential_missing", "Bearer");
    }
    let other = "tdm_".to_owned() + &"x".repeat(secret.len() - 4);
    for wrong in
        ["Bearer x", "Bearer tdm_", &format!("Bearer {other}"), &format!("Bearer {secret}x")]
    {
        get(wrong).await.refused(401, "credential_refused", "not accepted");
    }
    let view = kit.mill.credentials().find("ada").await.unwrap();
    kit.mill.credentials().revoke(view.id).await.unwrap();
    get(&format!("Bearer {secret}")).await.refused(401, "credential_refused", "not accepted");
    kit.get("/v1/nowhere").await.refused(404, "route_unknown", "");
    kit.close().await;
}

async fn a_tenant_sees_and_brings_its_own_alone(kit: Kit) {
    let kit = kit.closed().await;
    let of = |tenant: &str| Grant { tenant: Some(tenant.into()), ..Grant::new(Role::Operator) };
    let (acme, other) =
        (kit.credential("acme", of("acme")).await, kit.credential("other", of("other")).await);
    let post = async |secret: &str, path: &str, body: Value| {
        kit.ask(secret, Method::POST, path, body).await
    };
    let get = async |secret: &str, path: &str| {
        let request =
            kit.request(Method::GET, path).header("authorization", format!("Bearer {secret}"));
        Told::of(request.send().await.unwrap()).await
    };
    let told = post(&acme, "/v1/jobs", json!({ "kind": "echo" })).await.is(201);
    let id = told.body["id"].as_str().unwrap().to_owned();
    let view = get(&acme, &format!("/v1/jobs/{id}")).await.is(200).body;
    assert_eq!(view["tenant"], "acme", "it comes from the credential");
    let named = json!({ "kind": "echo", "tenant": "acme" });
    post(&other, "/v1/jobs", named.clone()).await.refused(403, "tenant_refused", "acme");
    let batch = json!({ "jobs": [{ "kind": "echo" }, named] });
    let told = post(&other, "/v1/jobs/batch", batch).await.refused(403, "tenant_refused", "acme");
    assert_eq!(told.body["index"], 1);
    for path in ["", "/why", "/attempts", "/wait?timeout=1ms"] {
        get(&other, &format!("/v1/jobs/{id}{path}")).await.refused(404, "job_unknown", &id);
    }
    for act in ["cancel", "retry"] {
        post(&other, &format!("/v1/jobs/{id}/{act}"), json!({})).await.refused(
            404,
            "job_unknown",
            &id,
        );
    }
    let signal = json!({ "name": "go" });
    post(&other, &format!("/v1/jobs/{id}/signal"), signal).await.refused(404, "job_unknown", &id);
    assert_eq!(get(&other, "/v1/jobs").await.is(200).body["jobs"], json!([]));
    assert_eq!(get(&acme, "/v1/jobs").await.is(200).body["jobs"].as_array().unwrap().len(), 1);
    get(&other, "/v1/jobs?tenant=acme").await.refused(403, "tenant_refused", "acme");
    get(&other, "/v1/dead?tenant=acme").await.refused(403, "tenant_refused", "acme");
    let remark = json!({ "ids": [id], "text": "mine?" });
    post(&other, "/v1/dead/notes", remark).await.refused(404, "job_unknown", &id);
    get(&other, "/v1/queues").await.refused(403, "tenant_refused", "other");
    get(&other, "/v1/workers").await.refused(403, "tenant_refused", "other");
    get(&other, "/v1/alerts").await.refused(403, "tenant_refused", "other");
    get(&other, "/metrics").await.refused(403, "tenant_refused", "other");
    post(&other, "/v1/queues/default/pause", json!({})).await.refused(
        403,
        "tenant_refused",
        "other",
    );
    // The same key of two tenants is two keys.
    let once = async |secret: &str| {
        let bearer = format!("Bearer {secret}");
        let headers = [("authorization", bearer.as_str()), ("idempotency-key", "k")];
        kit.send(Method::POST, "/v1/jobs", &headers, json!({ "kind": "echo" })).await.is(201)
    };
    assert_ne!(once(&acme).await.body["id"], once(&other).await.body["id"]);
    kit.close().await;
}

async fn a_queue_that_is_not_granted_is_out_of_reach(kit: Kit) {
    let kit = kit.closed().await;
    let grant = Grant { queues: vec!["mail:*".into()], ..Grant::new(Role::Operator) };
    let secret = kit.credential("mailer", grant).await;
    let admin = kit.credential("root", Grant::new(Role::Admin)).await;
    let ask = async |secret: &str, method: Method, path: &str, body: Value| {
        kit.ask(secret, method, path, body).await
    };
    let own = json!({ "kind": "echo", "queue": "mail:eu" });
    ask(&secret, Method::POST, "/v1/jobs", own).await.is(201);
    let told = ask(&secret, Method::POST, "/v1/jobs", json!({ "kind": "echo" })).await;
    told.refused(403, "queue_refused", "default");
    let told = ask(&admin, Method::POST, "/v1/jobs", json!({ "kind": "echo" })).await.is(201);
    let id = told.body["id"].as_str().unwrap();
    let empty = json!({});
    ask(&secret, Method::GET, &format!("/v1/jobs/{id}"), empty.clone()).await.refused(
        404,
        "job_unknown",
        id,
    );
    let jobs = ask(&secret, Method::GET, "/v1/jobs", empty.clone()).await.is(200).body;
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 1);
    let queues = ask(&secret, Method::GET, "/v1/queues", empty.clone()).await.is(200).body;
    assert_eq!(queues.as_array().unwrap().len(), 1);
    ask(&secret, Method::GET, "/v1/dead", empty.clone()).await.refused(403, "queue_refused", "*");
    ask(&secret, Method::GET, "/metrics", empty.clone()).await.refused(403, "queue_refused", "*");
    ask(&secret, Method::GET, "/v1/dead?queue=mail:eu", empty.clone()).await.is(200);
    ask(&secret, Method::POST, "/v1/queues/mail:us/pause", empty.clone()).await.is(200);
    ask(&secret, Method::POST, "/v1/queues/default/pause", empty.clone()).await.refused(
        403,
        "queue_refused",
        "default",
    );
    ask(&secret, Method::PUT, "/v1/queues/*/rules", empty).await.refused(403, "queue_refused", "*");
    kit.close().await;
}

async fn a_token_counts_where_none_is_asked_for(kit: Kit) {
    let grant = Grant { tenant: Some("acme".into()), ..Grant::new(Role::Producer) };
    let secret = kit.credential("shop", grant).await;
    let job = json!({ "kind": "k" });
    let told = kit.ask(&secret, Method::POST, "/v1/jobs", job.clone()).await.is(201);
    let id = told.body["id"].as_str().unwrap();
    assert_eq!(kit.get(&format!("/v1/jobs/{id}")).await.is(200).body["tenant"], "acme");
    let told = kit.ask(&secret, Method::GET, "/v1/doctor", json!({})).await;
    told.refused(403, "role_refused", "shop");
    let told = kit.ask("tdm_wrong", Method::POST, "/v1/jobs", job.clone()).await;
    told.refused(401, "credential_refused", "");
    // What is not ours is not meant for us.
    kit.ask("of-a-proxy", Method::POST, "/v1/jobs", job).await.is(201);
    kit.close().await;
}
