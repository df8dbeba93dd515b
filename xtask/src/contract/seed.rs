//! What is there before the first made-up request: jobs in several states, a worker, a flow, a schedule, a limit.
//!
//! It refuses to be a client: it speaks just enough HTTP for that.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// The ids of what is there.
pub struct Seed {
    ids: Vec<(&'static str, String)>,
}

impl Seed {
    /// Asks a server for it, as the holder of `secret`.
    pub fn sow(address: &str, secret: Option<&str>) -> Result<Self> {
        let ask =
            |method: &str, path: &str, body: Value| send(address, secret, method, path, &body);
        let new = |path: &str, body: Value| id(&ask("POST", path, body)?);
        let card = json!({ "name": "seed", "queues": ["seed"], "lease": "1h" });
        let worker = new("/v1/workers", card)?;
        let of_seed = || new("/v1/jobs", json!({ "kind": "seed", "queue": "seed" }));
        let claim = || {
            let path = format!("/v1/workers/{worker}/claim");
            ask("POST", &path, json!({ "queues": ["seed"] }))
        };
        let settled = |outcome: Value| {
            let job = of_seed()?;
            let token = claim()?["token"].clone();
            let report = json!({ "reports": [{ "id": job, "token": token, "outcome": outcome }] });
            ask("POST", &format!("/v1/workers/{worker}/settle"), report)?;
            anyhow::Ok(job)
        };
        let done = settled(json!({ "done": { "output": 42 } }))?;
        let dead = settled(json!({ "failed": { "class": "permanent", "message": "no" } }))?;
        let running = of_seed()?;
        claim()?;
        let steps = json!([
            { "name": "all", "kind": "seed", "payloads": [1, 2, 3] },
            { "name": "report", "kind": "seed", "after": ["all"] },
        ]);
        let flow = new("/v1/flows", json!({ "name": "seed", "steps": steps }))?;
        let nightly = json!({ "cron": "30 2 * * *", "job": { "kind": "seed" } });
        ask("PUT", "/v1/schedules/nightly", nightly)?;
        ask("PUT", "/v1/limits/stripe", json!({ "concurrency": 5 }))?;
        let ready = new("/v1/jobs", json!({ "kind": "seed" }))?;
        let later = new("/v1/jobs", json!({ "kind": "seed", "delay": "1h" }))?;
        let ids = vec![
            ("JOB_READY", ready),
            ("JOB_LATER", later),
            ("JOB_RUNNING", running),
            ("JOB_DEAD", dead),
            ("JOB_DONE", done),
            ("FLOW", flow),
            ("WORKER", worker),
        ];
        Ok(Self { ids })
    }

    /// The ids, as `schemathesis.toml` names them.
    pub fn variables(self) -> Vec<(&'static str, String)> {
        self.ids
    }
}

fn id(told: &Value) -> Result<String> {
    Ok(told["id"].as_str().context("no id was told")?.to_owned())
}

fn send(
    address: &str,
    secret: Option<&str>,
    method: &str,
    path: &str,
    body: &Value,
) -> Result<Value> {
    let body = body.to_string();
    let bearer = secret.map(|secret| format!("authorization: Bearer {secret}\r\n"));
    let (bearer, length) = (bearer.unwrap_or_default(), body.len());
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\n{bearer}content-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 2"), "{method} {path} was answered:\n{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").context("the answer has no body")?;
    Ok(if body.is_empty() { Value::Null } else { serde_json::from_str(body)? })
}
