//! Nodes that are killed while producers and workers use them over HTTP: nothing that was acknowledged is lost, nothing
//! is there twice, and of each job one settle counts, whichever nodes its claim and its settle went through.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tidemill::{JobFilter, State, Tidemill};
use tidemill_server::{Server, Settings};
use tidemill_testkit::Process;
use tidemill_testkit::databases::{fresh_postgres_url, fresh_sqlite_url};
use tidemill_testkit::eventually::eventually;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::kit::Told;

const STORE: &str = "TIDEMILL_NODE_STORE";
const SOON: Duration = Duration::from_mins(1);
const JOBS: usize = 400;
const PRODUCERS: usize = 4;
const WORKERS: usize = 4;
/// A node is killed whenever so many more are done.
const KILL_EVERY: usize = 40;
/// Of so many claims one is the last thing that its worker does.
const DEATH_EVERY: usize = 7;

/// Not a test of its own: a node, until it is killed.
#[test]
fn node() {
    let Ok(store) = std::env::var(STORE) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mill = Tidemill::open(&store).await.unwrap();
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::start(mill, Settings { listen, ..Settings::default() }).await.unwrap();
        println!("node at http://{}", server.address());
        std::future::pending::<()>().await;
    });
}

fn start(store: &str) -> (Process, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["http::crash::node", "--exact", "--nocapture"]).env(STORE, store);
    let process = Process::spawn(&mut command).unwrap();
    let line = process.wait_for_line("node at ", SOON).unwrap();
    let url = line.split("node at ").nth(1).unwrap().to_owned();
    (process, url)
}

/// Two nodes on one store, and a client that asks the other one when one does not answer.
struct Nodes {
    store: String,
    client: reqwest::Client,
    urls: [Mutex<String>; 2],
    processes: [Mutex<Process>; 2],
}

impl Nodes {
    fn new(store: &str) -> Self {
        let [(one, first), (other, second)] = [start(store), start(store)];
        Self {
            store: store.to_owned(),
            client: reqwest::Client::new(),
            urls: [Mutex::new(first), Mutex::new(second)],
            processes: [Mutex::new(one), Mutex::new(other)],
        }
    }

    /// Kills one, and starts another in its place.
    fn kill(&self, number: usize) {
        let mut process = self.processes[number].lock().unwrap();
        process.kill_9().unwrap();
        let (another, url) = start(&self.store);
        *self.urls[number].lock().unwrap() = url;
        *process = another;
    }

    async fn once(
        &self,
        node: usize,
        method: &Method,
        path: &str,
        key: Option<&str>,
        body: &Value,
    ) -> Option<Told> {
        let url = format!("{}{path}", self.urls[node % 2].lock().unwrap());
        let mut request = self.client.request(method.clone(), url).json(body);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let response = request.send().await.ok()?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        // What a killed node had begun to say is no answer.
        let body = serde_json::from_slice(&response.bytes().await.ok()?).unwrap_or(Value::Null);
        Some(Told { status, headers, body })
    }

    /// Asks until a node answers, this one first.
    async fn ask(&self, first: usize, path: &str, key: Option<&str>, body: &Value) -> Told {
        for node in first.. {
            if let Some(told) = self.once(node, &Method::POST, path, key, body).await {
                assert!(told.status < 500, "{told:?}");
                return told;
            }
        }
        unreachable!("there is always another node to ask")
    }
}

/// What the workers saw.
#[derive(Default)]
struct Seen {
    /// The tokens whose settle was accepted, of each job.
    accepted: Mutex<BTreeMap<String, BTreeSet<i64>>>,
    /// Those that were sent: a worker that is given up meanwhile does not hear what became of its own.
    sent: Mutex<BTreeSet<(String, i64)>>,
    claims: AtomicUsize,
    deaths: AtomicUsize,
}

struct Game {
    nodes: Nodes,
    seen: Seen,
    done: watch::Sender<usize>,
}

impl Game {
    /// Enqueues its share, one by one, each until it is acknowledged.
    async fn produce(self: Arc<Self>, number: usize) -> Vec<String> {
        let mut ids = Vec::new();
        for at in (number..JOBS).step_by(PRODUCERS) {
            let (key, wish) = (format!("order-{at}"), json!({ "kind": "pay", "payload": at }));
            let told = self.nodes.ask(at, "/v1/jobs", Some(&key), &wish).await;
            assert!(matches!(told.status, 200 | 201), "{told:?}");
            ids.push(told.body["id"].as_str().unwrap().to_owned());
        }
        ids
    }

    async fn register(&self, number: usize) -> String {
        let card = json!({ "name": "w", "queues": ["default"], "slots": 5, "lease": "4s" });
        let told = self.nodes.ask(number, "/v1/workers", None, &card).await.is(201);
        told.body["id"].as_str().unwrap().to_owned()
    }

    /// Works until everything is done: claims from one node, settles with the other.
    async fn work(self: Arc<Self>, number: usize) {
        let (mut node, mut all) = (number, self.done.subscribe());
        while *all.borrow_and_update() < JOBS {
            let (id, first) = (self.register(node).await, node);
            // It beats for as long as it lives; the node is what waits in between.
            let beats = async {
                let (path, pulse) = (format!("/v1/workers/{id}/beat"), json!({ "wait": "500ms" }));
                for node in first.. {
                    let told = self.nodes.ask(node, &path, None, &pulse).await;
                    if told.status == 409 {
                        return;
                    }
                }
            };
            tokio::select! {
                () = self.live(&id, &mut node) => {}
                () = beats => {}
            }
            node += 1;
        }
    }

    /// One life of a worker: it ends when a claim was not answered, when it dies, and when there is nothing to do.
    async fn live(&self, id: &str, node: &mut usize) {
        let ask = json!({ "queues": ["default"], "jobs_max": 5, "wait": "1s" });
        while *self.done.borrow() < JOBS {
            *node += 1;
            let path = format!("/v1/workers/{id}/claim");
            let Some(told) = self.nodes.once(*node, &Method::POST, &path, None, &ask).await else {
                // What it may have claimed is given back when it signs off.
                let path = format!("/v1/workers/{id}");
                while self
                    .nodes
                    .once(*node, &Method::DELETE, &path, None, &json!({}))
                    .await
                    .is_none()
                {
                    *node += 1;
                }
                return;
            };
            if told.status == 409 {
                return;
            }
            let told = told.is(200);
            let jobs = told.body["jobs"].as_array().unwrap();
            // A job that loses its worker again and again is given up, which is not what is played here.
            let may_die = !jobs.is_empty() && jobs.iter().all(|job| job["lost"] == 0);
            if may_die && self.seen.claims.fetch_add(1, SeqCst) % DEATH_EVERY == 3 {
                self.seen.deaths.fetch_add(1, SeqCst);
                return;
            }
            if !self.settle(id, *node + 1, &told.body["token"], jobs).await {
                return;
            }
        }
    }

    /// Settles all of them; the output says which attempt it was. `false`: the worker was given up.
    async fn settle(&self, id: &str, node: usize, token: &Value, jobs: &[Value]) -> bool {
        if jobs.is_empty() {
            return true;
        }
        let outcome = json!({ "done": { "output": token } });
        let report = |job: &Value| json!({ "id": job["id"], "token": token, "outcome": outcome });
        let reports = json!({ "reports": jobs.iter().map(report).collect::<Vec<_>>() });
        let key = |job: &Value| (job["id"].as_str().unwrap().to_owned(), token.as_i64().unwrap());
        self.seen.sent.lock().unwrap().extend(jobs.iter().map(key));
        let told = self.nodes.ask(node, &format!("/v1/workers/{id}/settle"), None, &reports).await;
        if told.status == 409 {
            return false;
        }
        let told = told.is(200);
        let mut accepted = self.seen.accepted.lock().unwrap();
        for (job, answer) in jobs.iter().zip(told.body["answers"].as_array().unwrap()) {
            if answer == "accepted" {
                let (id, token) = key(job);
                accepted.entry(id).or_default().insert(token);
            }
        }
        self.done.send_modify(|done| *done = accepted.len().max(*done));
        true
    }
}

async fn nothing_is_lost_and_nothing_is_twice(store: &str) {
    let reader = Tidemill::open(store).await.unwrap();
    let nodes = Nodes::new(store);
    let game = Arc::new(Game { nodes, seen: Seen::default(), done: watch::Sender::new(0) });
    let (mut producers, mut workers) = (JoinSet::new(), JoinSet::new());
    for number in 0..PRODUCERS {
        producers.spawn(Arc::clone(&game).produce(number));
    }
    for number in 0..WORKERS {
        workers.spawn(Arc::clone(&game).work(number));
    }
    let mut done = game.done.subscribe();
    for number in 0..JOBS / KILL_EVERY - 1 {
        let enough = done.wait_for(|done| *done >= (number + 1) * KILL_EVERY);
        tokio::time::timeout(2 * SOON, enough).await.expect("it goes on").unwrap();
        let game = Arc::clone(&game);
        tokio::task::spawn_blocking(move || game.nodes.kill(number % 2)).await.unwrap();
    }
    let ids: BTreeSet<String> = producers.join_all().await.into_iter().flatten().collect();
    assert_eq!(ids.len(), JOBS, "each has an id of its own");
    let filter = JobFilter { limit: 1000, ..JobFilter::default() };
    let jobs = eventually("all to be done", 2 * SOON, async || {
        let jobs = reader.jobs(&filter).await.unwrap();
        jobs.iter().all(|view| view.state == State::Done).then_some(jobs)
    })
    .await;
    game.done.send_replace(JOBS);
    tokio::time::timeout(SOON, workers.join_all()).await.expect("nothing is left to do");
    assert!(game.seen.deaths.load(SeqCst) > 0, "nobody died");

    reader.close().await;
    let (accepted, sent) = (game.seen.accepted.lock().unwrap(), game.seen.sent.lock().unwrap());
    assert_eq!(jobs.len(), JOBS, "one job of each wish");
    for view in jobs {
        let id = view.job.id.to_string();
        assert!(ids.contains(&id), "{id} was never acknowledged");
        let token: i64 = view.output.as_ref().unwrap().as_str().parse().unwrap();
        assert!(sent.contains(&(id.clone(), token)), "nobody settled {id} so");
        if let Some(tokens) = accepted.get(&id) {
            assert_eq!(*tokens, [token].into(), "of {id} one settle counts");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_on_postgres_are_killed_in_turns() {
    nothing_is_lost_and_nothing_is_twice(&fresh_postgres_url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_on_sqlite_are_killed_in_turns() {
    let (_folder, url) = fresh_sqlite_url();
    nothing_is_lost_and_nothing_is_twice(&url).await;
}
