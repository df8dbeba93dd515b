//! The character U+0000 in everything that a request can say: told as the caller's fault, alike by both stores.

use reqwest::Method;
use serde_json::{Map, Value, json};

use super::kit::Kit;

over_both_stores!(
    nul_is_refused_in_every_parameter,
    nul_is_refused_in_every_body,
    cursors_with_nul_are_refused,
    what_handlers_say_is_kept_without_nul,
);

/// Deeper bodies say nothing new.
const DEPTH_MAX: usize = 5;

struct Operation {
    method: Method,
    path: String,
    parameters: Vec<Value>,
    body: Value,
}

async fn operations(kit: &Kit) -> (Vec<Operation>, Value) {
    let described = kit.get("/openapi.json").await.is(200).body;
    let mut all = Vec::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let body = operation["requestBody"]["content"]["application/json"]["schema"].clone();
            all.push(Operation { method, path: path.clone(), parameters, body });
        }
    }
    (all, described["components"]["schemas"].clone())
}

/// A path with something in the place of its parameters.
fn filled(path: &str, found: &Found) -> String {
    let (mut words, mut before) = (Vec::new(), "");
    for word in path.split('/') {
        words.push(match (before, word) {
            ("flows", "{id}") => &found.flow,
            ("workers", "{id}") => &found.worker,
            (_, "{id}") => &found.job,
            (_, "{number}") => "1",
            (_, word) if word.starts_with('{') => "x",
            (_, word) => word,
        });
        before = word;
    }
    words.join("/")
}

/// What there is in the store for requests to be about.
#[derive(Default)]
struct Found {
    job: String,
    flow: String,
    worker: String,
    token: Value,
}

impl Found {
    async fn make(kit: &Kit) -> Self {
        let step = json!({ "name": "x", "kind": "x" });
        let flow = json!({ "name": "x", "building": true, "steps": [step] });
        let flow = kit.post("/v1/flows", flow).await.below(300).body["id"].clone();
        let card = json!({ "name": "x", "queues": ["default"], "lease": "10m" });
        let worker = kit.post("/v1/workers", card).await.is(201).body["id"].clone();
        let text = |value: Value| value.as_str().unwrap().to_owned();
        let mut found = Self { flow: text(flow), worker: text(worker), ..Self::default() };
        found.claim(kit).await;
        found
    }

    /// Another job that runs.
    async fn claim(&mut self, kit: &Kit) {
        kit.enqueue(json!({ "kind": "x" })).await;
        let ask = json!({ "queues": ["default"], "jobs_max": 1, "wait": "30s" });
        let claimed = kit.post(&format!("/v1/workers/{}/claim", self.worker), ask).await.is(200);
        self.token = claimed.body["token"].clone();
        claimed.body["jobs"][0]["id"].as_str().unwrap().clone_into(&mut self.job);
    }
}

async fn nul_is_refused_in_every_parameter(kit: Kit) {
    let (operations, _) = operations(&kit).await;
    let found = Found::make(&kit).await;
    let mut refused = 0;
    for Operation { method, path, parameters, .. } in operations {
        for parameter in parameters {
            let name = parameter["name"].as_str().unwrap();
            let asked = match parameter["in"].as_str().unwrap() {
                "path" => filled(&path.replace(&format!("{{{name}}}"), "a%00b"), &found),
                "query" => format!("{}?{name}=a%00b", filled(&path, &found)),
                _ => continue,
            };
            let told = kit.send(method.clone(), &asked, &[], json!({})).await;
            told.refused(400, "request_invalid", "U+0000");
            refused += 1;
        }
    }
    assert!(refused > 100, "{refused}");
    kit.get("/v1/jobs?kind=a%2500b").await.is(200);
    let audit = kit.get("/v1/audit").await.is(200).body;
    assert_eq!(audit["entries"].as_array().map_or(0, Vec::len), 0, "nothing was begun: {audit}");
    kit.close().await;
}

async fn nul_is_refused_in_every_body(kit: Kit) {
    let (operations, schemas) = operations(&kit).await;
    let mut found = Found::make(&kit).await;
    let flow = found.flow.clone();
    let mut refused = 0;
    for Operation { method, path, body, .. } in operations {
        let bodies = Bodies { schemas: &schemas, flow: &flow };
        for with in bodies.with_nul(&body, 0) {
            if path.starts_with("/v1/workers/") {
                found.claim(&kit).await;
            }
            let with = renewed(&with, &found);
            let asked = filled(&path, &found);
            let told = kit.send(method.clone(), &asked, &[("idempotency-key", "x")], with.clone());
            let told = told.await;
            // What is a job's own is looked at when it would be kept, and what a handler says is kept without.
            let is_theirs = path.starts_with("/v1/workers/")
                || ["payload", "output"].iter().any(|name| with[name] == "a\0b");
            let told = told.below(500);
            assert!(told.status == 400 || is_theirs, "{path} {with}: {told:?}");
            refused += usize::from(told.status == 400);
        }
    }
    assert!(refused > 150, "{refused}");
    for with in [json!({ "name": "a\0b" }), json!({ "name": "x", "steps": [{ "name": "a\0b" }] })] {
        kit.post("/v1/flows", with).await.refused(400, "request_invalid", "U+0000");
    }
    kit.close().await;
}

/// The body for the job that runs now.
fn renewed(body: &Value, found: &Found) -> Value {
    let text = body.to_string().replace("\"$job\"", &json!(found.job).to_string());
    serde_json::from_str(&text.replace("\"$token\"", &found.token.to_string())).unwrap()
}

/// Makes bodies from what is described.
struct Bodies<'s> {
    schemas: &'s Value,
    flow: &'s str,
}

impl Bodies<'_> {
    fn resolved<'v>(&'v self, schema: &'v Value) -> (&'v str, &'v Value) {
        let Some(place) = schema["$ref"].as_str() else { return ("", schema) };
        let name = place.rsplit('/').next().unwrap();
        (name, &self.schemas[name])
    }

    fn parts<'v>(schema: &'v Value, of: &str) -> impl Iterator<Item = &'v Value> {
        let parts = schema[of].as_array().map(Vec::as_slice).unwrap_or_default();
        parts.iter().filter(|part| part["type"] != "null")
    }

    fn is(schema: &Value, kind: &str) -> bool {
        let types = &schema["type"];
        types == kind || types.as_array().is_some_and(|all| all.contains(&json!(kind)))
    }

    /// The least that is taken.
    fn plain(&self, schema: &Value) -> Value {
        let (name, schema) = self.resolved(schema);
        if name == "Token" {
            return json!("$token");
        }
        if let Some(one) = schema["enum"].as_array() {
            return one[0].clone();
        }
        if let Some(one) = Self::parts(schema, "oneOf").next() {
            return self.plain(one);
        }
        if Self::is(schema, "object") || schema["allOf"].is_array() {
            return Value::Object(self.required(schema));
        }
        match () {
            () if Self::is(schema, "array") => json!([self.plain(&schema["items"])]),
            () if Self::is(schema, "integer") => {
                schema["minimum"].as_u64().map_or(json!(1), |least| json!(least.max(1)))
            }
            () if Self::is(schema, "number") => json!(1.5),
            () if Self::is(schema, "boolean") => json!(false),
            () if schema["format"] == "uuid" && name == "FlowId" => json!(self.flow),
            () if schema["format"] == "uuid" => json!("$job"),
            () if schema["format"] == "date-time" => json!("2030-01-01T00:00:00Z"),
            () => json!("1h"),
        }
    }

    fn required(&self, schema: &Value) -> Map<String, Value> {
        let mut fields = Map::new();
        for part in Self::parts(schema, "allOf") {
            fields.extend(self.required(self.resolved(part).1));
        }
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().unwrap();
            fields.insert(name.to_owned(), self.plain(&schema["properties"][name]));
        }
        fields
    }

    /// Bodies that have it at one place each.
    fn with_nul(&self, schema: &Value, depth: usize) -> Vec<Value> {
        let (_, schema) = self.resolved(schema);
        if depth > DEPTH_MAX || schema.is_null() {
            return Vec::new();
        }
        let mut all = Vec::new();
        for one in Self::parts(schema, "oneOf") {
            all.extend(self.with_nul(one, depth));
        }
        let whole = self.required(schema);
        let within = Self::parts(schema, "allOf").map(|part| &self.resolved(part).1["properties"]);
        for fields in within.chain([&schema["properties"]]) {
            for (name, field) in fields.as_object().into_iter().flatten() {
                for with in self.with_nul(field, depth + 1) {
                    let mut body = whole.clone();
                    body.insert(name.clone(), with);
                    all.push(Value::Object(body));
                }
            }
        }
        if schema["additionalProperties"].is_object() {
            all.push(json!({ "a\0b": self.plain(&schema["additionalProperties"]) }));
        }
        if Self::is(schema, "array") {
            let items = self.with_nul(&schema["items"], depth + 1);
            all.extend(items.into_iter().map(|with| json!([with])));
        }
        let words = schema.as_object();
        let is_any = words.is_none_or(|words| words.keys().all(|word| word == "description"));
        if is_any || Self::is(schema, "string") {
            all.push(json!("a\0b"));
        }
        all
    }
}

async fn cursors_with_nul_are_refused(kit: Kit) {
    for (list, key) in [("schedules", "a\0b"), ("schedules", "\0"), ("jobs", "a\0b")] {
        let cursor = tidemill_core::cursor::write(list, key);
        let told = kit.get(&format!("/v1/{list}?cursor={cursor}")).await;
        told.refused(400, "request_invalid", "");
    }
    kit.close().await;
}

/// A job has to end, whatever its handler says of it.
async fn what_handlers_say_is_kept_without_nul(kit: Kit) {
    let mut found = Found::make(&kit).await;
    let path = |act: &str| format!("/v1/workers/{}/{act}", found.worker);
    let (say, settle) = (path("stream"), path("settle"));
    let said = json!([{ "event": "log", "message": "a\0b" }, { "event": "text", "text": "c\0d" }]);
    let item = json!({ "id": found.job, "token": found.token, "said": said });
    kit.post(&say, json!({ "items": [item] })).await.is(200);
    for outcome in [
        json!({ "cancel": { "reason": "a\0b" } }),
        json!({ "failed": { "class": "permanent", "message": "a\0b" } }),
    ] {
        let report = json!({ "id": found.job, "token": found.token, "outcome": outcome });
        kit.post(&settle, json!({ "reports": [report] })).await.is(200);
        let view = kit.get(&format!("/v1/jobs/{}", found.job)).await.is(200).body;
        assert_eq!(view["error"], "a\u{FFFD}b", "{view}");
        found.claim(&kit).await;
    }
    for waits in
        [json!({ "parked": "a\0b" }), json!({ "differs": { "journal": "a\0b", "code": "c\0d" } })]
    {
        let outcome = json!({ "wait": waits });
        let report = json!({ "id": found.job, "token": found.token, "outcome": outcome });
        kit.post(&settle, json!({ "reports": [report] })).await.is(200);
        found.claim(&kit).await;
    }
    kit.close().await;
}
