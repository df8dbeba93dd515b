//! What a server costs: enqueue and drain over loopback HTTP with keep-alive, beside the same without a server.
//!
//! Ways take turns, round after round: the machine drifts. Server, clients and workers share one process and its cores.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidemill::core::span::Span;
use tidemill::{Enqueue, Payload, Tidemill, Worker};
use tidemill_client::Client;
use tidemill_client::wire::work::{Ask, Card, OutcomeBody, ReportBody};
use tidemill_server::{Server, Settings};
use tokio::task::JoinSet;

use crate::Res;

const BATCH: u64 = 100;
const ROUNDS: usize = 5;
const KIND: &str = "k";
/// Claimers of a remote worker, each of which settles one batch while it claims the next.
const CLAIMERS: usize = 2;

/// Enqueues a batch; the embedded way, or over HTTP.
#[derive(Clone)]
enum Way {
    Embedded(Tidemill),
    Http(Client),
}

impl Way {
    async fn enqueue(&self, jobs: u64) -> Res<()> {
        let jobs = (0..jobs).map(|_| Enqueue::raw(KIND, r#"{"to":"someone@example.com"}"#));
        match self {
            Self::Embedded(mill) => drop(mill.enqueue_many(jobs).await?),
            Self::Http(client) => drop(client.enqueue_many(jobs).await?),
        }
        Ok(())
    }

    /// Enqueues so many jobs by so many at once; answers jobs per second.
    async fn rate(&self, jobs: u64, batch: u64, hands: u64) -> Res<f64> {
        let (left, start) = (Arc::new(AtomicU64::new(jobs / batch)), Instant::now());
        let mut set = JoinSet::new();
        for _ in 0..hands {
            let (way, left) = (self.clone(), Arc::clone(&left));
            set.spawn(async move {
                let take = |left: u64| left.checked_sub(1);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                    way.enqueue(batch).await?;
                }
                Res::Ok(())
            });
        }
        while let Some(done) = set.join_next().await {
            done??;
        }
        Ok(jobs as f64 / start.elapsed().as_secs_f64())
    }
}

pub async fn measure(mill: &Tidemill, jobs: u64) -> Res<()> {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::start(mill.clone(), Settings { listen, ..Settings::default() }).await?;
    let client = Client::new(&format!("http://{}", server.address()))?;
    let ways = [Way::Embedded(mill.clone()), Way::Http(client.clone())];
    let mut rates: [[Vec<f64>; 2]; 5] = Default::default();
    for _ in 0..ROUNDS {
        for (number, way) in ways.iter().enumerate() {
            rates[0][number].push(way.rate(jobs, BATCH, 4).await?);
            rates[3][number].push(match way {
                Way::Embedded(mill) => drain(mill.worker(), jobs).await?,
                Way::Http(client) => drain_there(client, jobs).await?,
            });
            way.rate(jobs, BATCH, 4).await?;
            let worker = match way {
                Way::Embedded(mill) => mill.worker(),
                Way::Http(client) => client.worker(),
            };
            rates[4][number].push(drain(worker, jobs).await?);
            rates[1][number].push(way.rate(jobs / 10, 1, 64).await?);
            rates[2][number].push(way.rate(jobs / 100, 1, 1).await?);
            drain(mill.worker(), jobs / 10 + jobs / 100).await?;
        }
    }
    let names = [
        "enqueue, batches of 100 by 4",
        "enqueue, one by one by 64",
        "enqueue, one by one by 1",
        "drain, claims and settles",
        "drain, the same handlers",
    ];
    for (name, [mut here, mut there]) in names.into_iter().zip(rates) {
        here.sort_by(f64::total_cmp);
        there.sort_by(f64::total_cmp);
        let (here, there) = (here[ROUNDS / 2], there[ROUNDS / 2]);
        println!(
            "{name:<30} embedded {here:>8.0}/s, over HTTP {there:>8.0}/s: {:.2}",
            there / here
        );
    }
    server.stop().await;
    Ok(())
}

/// A worker with a handler.
async fn drain(worker: Worker, jobs: u64) -> Res<f64> {
    let (start, done) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let (counter, ended) = (Arc::clone(&done), Arc::new(tokio::sync::Notify::new()));
    let all = Arc::clone(&ended);
    let handler = move |_: Payload, _| {
        if counter.fetch_add(1, Ordering::Relaxed) + 1 == jobs {
            all.notify_one();
        }
        async { Ok(Payload::null()) }
    };
    let worker = worker.slots(500).handle_raw(KIND, tidemill::Settings::default(), handler);
    let running = worker.start().await?;
    ended.notified().await;
    running.stop().await;
    Ok(jobs as f64 / start.elapsed().as_secs_f64())
}

/// A worker that claims and settles in batches over HTTP.
async fn drain_there(client: &Client, jobs: u64) -> Res<f64> {
    let (start, done) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let mut set = JoinSet::new();
    for _ in 0..CLAIMERS {
        set.spawn(claimer(client.clone(), Arc::clone(&done), jobs));
    }
    while let Some(ended) = set.join_next().await {
        ended??;
    }
    Ok(jobs as f64 / start.elapsed().as_secs_f64())
}

async fn claimer(client: Client, done: Arc<AtomicU64>, jobs: u64) -> Res<()> {
    let (queues, kinds) = (vec!["default".to_owned()], vec![KIND.to_owned()]);
    let (name, lease) = ("measure".to_owned(), Some(Span(Duration::from_secs(60))));
    let card = Card {
        name,
        queues: queues.clone(),
        kinds: kinds.clone(),
        slots: 500,
        slots_of: BTreeMap::new(),
        lease,
    };
    let worker = client.work().register(&card).await?;
    let ask = Ask { queues, kinds, jobs_max: 500, wait: None };
    let mut settling = JoinSet::new();
    while done.load(Ordering::Relaxed) < jobs {
        let claim = client.work().claim(worker, &ask).await?;
        let Some(token) = claim.token else { continue };
        done.fetch_add(claim.jobs.len() as u64, Ordering::Relaxed);
        let reports = claim.jobs.into_iter().map(|assigned| {
            let outcome = OutcomeBody::Done {
                output: None,
                follow_ups: Vec::new().into(),
                steps: Vec::new(),
            };
            let (started_at, attempts, backoff, run) = (None, None, None, None);
            ReportBody {
                id: assigned.job.id,
                token,
                outcome,
                started_at,
                attempts,
                ambiguous_attempts: None,
                backoff,
                run,
            }
        });
        let reports: Vec<ReportBody> = reports.collect();
        if let Some(settled) = settling.join_next().await {
            let settled: Result<_, tidemill_client::Error> = settled?;
            settled?;
        }
        let client = client.clone();
        settling.spawn(async move { client.work().settle(worker, reports).await });
    }
    while let Some(settled) = settling.join_next().await {
        settled??;
    }
    client.work().sign_off(worker).await?;
    Ok(())
}
