//! Runs of a server are replayed by a worker that reaches no store, with the answers that one beside the store gives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::future::join_all;
use serde::{Deserialize, Serialize};
use tidemill::testing::drain;
use tidemill::{
    Context, Enqueue, Fail, Grant, Job, JobId, Redaction, Replayed, Role, RunFilter, RunReplay,
    RunsToReplay, Signal, Tidemill, Worker,
};
use tidemill_client::Client;
use tidemill_server::{Access, Server, Settings};

use super::kit::{Boss, Kit};

over_both_stores!(
    a_replay_says_the_same_for_either_boss,
    a_replay_leaves_the_server_as_it_was,
    what_a_credential_does_not_reach_is_passed_over,
    hidden_fields_are_whole_for_those_who_may_work,
);

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    amount: u64,
}

impl Job for Order {
    const KIND: &'static str = "order";
    type Output = String;
}

#[derive(Debug, Serialize, Deserialize)]
struct Echo(String);

impl Job for Echo {
    const KIND: &'static str = "echo";
    type Output = String;
}

/// What the code of a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Code {
    /// What the runs began with.
    Same,
    /// A step has another name.
    Renamed,
    /// It ends before the journal does.
    Failing,
    /// It reads a step as another type.
    Retyped,
    /// It ends with another output.
    Ending,
}

const CODES: [Code; 5] = [Code::Same, Code::Renamed, Code::Failing, Code::Retyped, Code::Ending];

async fn order(code: Code, order: Order, cx: Context) -> Result<String, Fail> {
    let bodies = cx.state::<Arc<AtomicU32>>()?;
    if code == Code::Failing {
        return Err(Fail::transient("no configuration"));
    }
    let name = if code == Code::Renamed { "hold" } else { "reserve" };
    let reserve = cx.step(name).input(&order.amount);
    if code == Code::Retyped {
        reserve.run(|_| async { Ok(true) }).await?;
    } else {
        let body = move |_| {
            bodies.fetch_add(1, Ordering::SeqCst);
            async { Ok("x".repeat(300_000)) } // kept beside the journal
        };
        reserve.run(body).await?;
    }
    let said = cx.child(Echo(order.amount.to_string())).await?;
    let word: String = cx.signal("approve").await?;
    let end = if code == Code::Ending { "!" } else { "." };
    Ok(format!("{said} {word}{end}"))
}

fn coded(worker: Worker, code: Code, bodies: &Arc<AtomicU32>) -> Worker {
    let worker = worker.state(Arc::clone(bodies));
    let worker = worker.handle(move |job: Order, cx| order(code, job, cx));
    worker.handle(|Echo(text), _| async move { Ok(text) })
}

async fn enqueue(mill: &Tidemill, amount: u64) -> JobId {
    mill.enqueue(Order { amount }).await.unwrap().id()
}

/// Two runs that wait, and one that is done.
async fn begun(mill: &Tidemill) -> [JobId; 3] {
    let ids = [enqueue(mill, 1).await, enqueue(mill, u64::MAX).await, enqueue(mill, 3).await];
    mill.signal(ids[2], Signal::new("approve", "yes")).await.unwrap();
    drain(coded(mill.worker(), Code::Same, &Arc::default())).await.unwrap();
    ids
}

fn one(run: JobId) -> RunsToReplay {
    RunsToReplay { run: Some(run), ..RunsToReplay::default() }
}

fn of_kind(kind: &str) -> RunsToReplay {
    RunsToReplay { kind: Some(kind.to_owned()), ..RunsToReplay::default() }
}

fn told(replays: &[RunReplay]) -> Vec<String> {
    replays.iter().map(|replay| replay.replayed.to_string()).collect()
}

async fn a_replay_says_the_same_for_either_boss(kit: Kit) {
    let [first, second, done] = begun(&kit.mill).await;
    let unbegun = enqueue(&kit.mill, 4).await;
    let bodies = Arc::new(AtomicU32::new(0));
    for code in CODES {
        let asked = [
            RunsToReplay::default(),
            of_kind("order"),
            of_kind("nobody"),
            one(first),
            one(second),
            one(done),
            one(unbegun),
            one(JobId::new()),
        ];
        for which in asked {
            let replays = async |boss| {
                coded(kit.worker(boss), code, &bodies).replay_runs(&which).await.unwrap()
            };
            let (here, elsewhere) = (replays(Boss::Here).await, replays(Boss::Elsewhere).await);
            assert_eq!(elsewhere, here, "{code:?} {which:?}");
        }
        let replays = async |which| {
            coded(kit.client.worker(), code, &bodies).replay_runs(&which).await.unwrap()
        };
        let all = replays(RunsToReplay::default()).await;
        assert_eq!(all.iter().map(|of| of.run).collect::<Vec<_>>(), [second, first], "{code:?}");
        let ended = replays(one(done)).await.remove(0).replayed;
        match code {
            Code::Same => {
                assert_eq!(told(&all), ["follows, and waits for signal approve"; 2]);
                assert!(matches!(ended, Replayed::Returns { .. }), "{ended}");
            }
            Code::Renamed => {
                assert!(
                    told(&all).iter().all(|told| told.contains("asks for \"hold\"")),
                    "{all:?}"
                );
                assert!(matches!(ended, Replayed::Differs { .. }), "{ended}");
            }
            Code::Failing => {
                let why = "transient: no configuration".to_owned();
                assert!(
                    all.iter().all(|of| of.replayed == Replayed::Stops { why: why.clone() }),
                    "{all:?}"
                );
            }
            Code::Retyped => {
                assert!(told(&all).iter().all(|told| told.contains("cannot be read")), "{all:?}");
            }
            Code::Ending => {
                assert!(all.iter().all(|of| of.replayed.follows()), "{all:?}");
                assert!(ended.to_string().contains("3 yes!"), "{ended}");
            }
        }
    }
    let nobody = kit.client.worker().replay_runs(&RunsToReplay::default()).await.unwrap();
    assert!(nobody.is_empty(), "runs of kinds that it has no handler for: {nobody:?}");
    assert_eq!(bodies.load(Ordering::SeqCst), 0, "no body ran for a look");
    kit.close().await;
}

async fn a_replay_leaves_the_server_as_it_was(kit: Kit) {
    let ids = begun(&kit.mill).await;
    let look = async || {
        let mut seen = Vec::new();
        for id in ids {
            let view = kit.mill.job(id).await.unwrap().unwrap();
            seen.push((view, kit.mill.journal(id).await.unwrap(), kit.mill.run(id).await.unwrap()));
        }
        seen
    };
    let before = look().await;
    for code in CODES {
        let worker = coded(kit.client.worker(), code, &Arc::default());
        worker.replay_runs(&RunsToReplay::default()).await.unwrap();
    }
    assert_eq!(look().await, before);
    assert!(kit.mill.workers().await.unwrap().is_empty(), "who only looks is no worker");
    kit.close().await;
}

/// A client of another server on the same store, with a credential of this grant.
async fn closed(mill: &Tidemill, name: &str, grant: Grant) -> (Server, Client) {
    let settings = Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        access: Access::Credentials,
        ..Settings::default()
    };
    let server = Server::start(mill.clone(), settings).await.unwrap();
    let (_, secret) = mill.credentials().create(name, grant, None).await.unwrap();
    let url = format!("http://{}", server.address());
    let client = Client::builder(&url).token(secret.reveal()).build().unwrap();
    (server, client)
}

/// A whole page of runs of others does not end the look.
async fn what_a_credential_does_not_reach_is_passed_over(kit: Kit) {
    let [first, second, done] = begun(&kit.mill).await;
    let theirs = (0..1000).map(|_| Enqueue::raw("theirs", "1").queue("theirs"));
    let receipts = kit.mill.enqueue_many(theirs).await.unwrap();
    let signals = receipts.iter().map(|of| kit.mill.signal(of.id(), Signal::new("x", &1)));
    join_all(signals).await.into_iter().collect::<tidemill::Result<()>>().unwrap();
    let grant = Grant { queues: vec!["default".into()], ..Grant::new(Role::Viewer) };
    let (server, client) = closed(&kit.mill, "looks", grant).await;
    let filter = RunFilter { unfinished: true, limit: 1000, ..RunFilter::default() };
    let page = client.runs_page(&filter).await.unwrap();
    assert!(page.runs.is_empty() && page.next.is_some(), "{page:?}");
    let replays = async |which| {
        let worker = coded(client.worker(), Code::Same, &Arc::default());
        worker.replay_runs(&which).await.unwrap()
    };
    let all = replays(RunsToReplay::default()).await;
    assert_eq!(all.iter().map(|of| of.run).collect::<Vec<_>>(), [second, first]);
    assert_eq!(replays(one(done)).await.len(), 1);
    assert!(replays(one(receipts[0].id())).await.is_empty(), "it is not there");
    server.stop().await;
    kit.close().await;
}

async fn hidden_fields_are_whole_for_those_who_may_work(kit: Kit) {
    let ids = begun(&kit.mill).await;
    let replays = async |client: &Client, which: &RunsToReplay| {
        coded(client.worker(), Code::Same, &Arc::default()).replay_runs(which).await
    };
    let (open, viewer) = closed(&kit.mill, "eve", Grant::new(Role::Viewer)).await;
    let all = RunsToReplay::default();
    assert_eq!(replays(&viewer, &all).await.unwrap().len(), 2, "nothing is hidden there");
    open.stop().await;

    let hidden = Redaction::parse(["amount"]).unwrap();
    let mill = Tidemill::builder().hide(hidden).open(&kit.url).await.unwrap();
    let (of_viewers, viewer) = closed(&mill, "vera", Grant::new(Role::Viewer)).await;
    let (of_workers, worker) = closed(&mill, "hand", Grant::new(Role::Worker)).await;
    let seen = viewer.history(ids[0]).await.unwrap().job.payload;
    assert_eq!(seen.as_str(), r#"{"amount":"[hidden]"}"#);
    let refused = replays(&viewer, &all).await.unwrap_err();
    assert_eq!(refused.code(), "role_refused", "a look at marks would say nothing: {refused}");
    for replay in replays(&worker, &all).await.unwrap() {
        assert!(replay.replayed.follows(), "{replay:?}");
    }
    let nobody = Client::new(worker.url()).unwrap();
    assert_eq!(replays(&nobody, &all).await.unwrap_err().code(), "credential_missing");
    of_viewers.stop().await;
    of_workers.stop().await;
    mill.close().await;
    kit.close().await;
}
