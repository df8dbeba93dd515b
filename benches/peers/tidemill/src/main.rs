//! Tidemill as a peer of the queue benchmark: one JSON object per line in, one per line out.
//!
//! The protocol is that of the benchmark's README: `setup`, `reset`, `bulk`, `single`, `produce`,
//! `probe`, `remaining`, `work`, `workflow`, `latencies`, `quit`. A worker also tells its count as it grows.

mod reset;

use std::error::Error;
use std::io::BufRead;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidemill::{Context, Fail, Job, Running, Tidemill};

type Res<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Serialize, Deserialize)]
struct Probe {
    id: u64,
    t: f64,
    to: String,
}

impl Job for Probe {
    const KIND: &'static str = "probe";
    type Output = ();
}

/// A workflow of five steps.
#[derive(Serialize, Deserialize)]
struct Five {
    sum: u64,
}

impl Job for Five {
    const KIND: &'static str = "five";
    type Output = u64;
}

async fn five(job: Five, cx: Context) -> Result<u64, Fail> {
    let mut sum = job.sum;
    for step in ["step0", "step1", "step2", "step3", "step4"] {
        sum = cx.step(step).run(|_| async move { Ok(sum + 1) }).await?;
    }
    Ok(sum)
}

/// `conc` callers, each starting a workflow and awaiting its result, `n` in all.
async fn workflows(mill: &Tidemill, n: u64, conc: u64) -> Res<Value> {
    let (start, next) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let mut callers = Vec::new();
    for _ in 0..conc {
        let (mill, next) = (mill.clone(), Arc::clone(&next));
        callers.push(tokio::spawn(async move {
            let mut took = Vec::new();
            while let sum = next.fetch_add(1, Relaxed)
                && sum < n
            {
                let began = Instant::now();
                let id = mill.enqueue(Five { sum }).await?.id();
                let result = mill.result::<Five>(id, Duration::from_secs(60)).await?;
                assert_eq!(result, sum + 5);
                took.push(began.elapsed().as_secs_f64() * 1e3);
            }
            tidemill::Result::Ok(took)
        }));
    }
    let mut took = Vec::new();
    for caller in callers {
        took.extend(caller.await??);
    }
    Ok(json!({"n": n, "secs": start.elapsed().as_secs_f64(), "ms": took}))
}

fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64() * 1e3)
}

fn probe(id: u64) -> Probe {
    Probe { id, t: now_ms(), to: "user@example.com".into() }
}

/// What this process's worker has seen.
#[derive(Default)]
struct Seen {
    started: AtomicU64,
    waited_ms: Mutex<Vec<f64>>,
}

struct Peer {
    mill: Tidemill,
    url: String,
    slots: usize,
    seen: Arc<Seen>,
    worker: Option<Running>,
}

impl Peer {
    async fn answer(&mut self, ask: &Value) -> Res<Value> {
        let number = |name: &str| ask[name].as_u64().unwrap_or(0);
        match ask["cmd"].as_str().unwrap_or_default() {
            "setup" => {}
            "reset" => {
                // It empties the table of workers too: one that runs would have to register anew.
                if let Some(worker) = self.worker.take() {
                    worker.stop().await;
                }
                reset::reset(&self.url).await?;
            }
            "bulk" => return self.bulk(number("n"), number("batch").max(1)).await,
            "single" => return self.singles(number("n"), number("conc"), None).await,
            "probe" => return self.singles(1, 1, None).await,
            "produce" => {
                let limit = Duration::from_secs_f64(ask["secs"].as_f64().unwrap_or(1.0));
                return self.singles(u64::MAX, number("conc"), Some(limit)).await;
            }
            "remaining" => {
                let left = self.mill.unfinished().await?;
                return Ok(json!({"n": left.waiting + left.running}));
            }
            "work" => self.work().await?,
            "workflow" => {
                if self.worker.is_none() {
                    let worker = self.mill.worker().slots(self.slots).handle(five);
                    self.worker = Some(worker.start().await?);
                }
                return workflows(&self.mill, number("n"), number("conc")).await;
            }
            "latencies" => {
                let waited = self.seen.waited_ms.lock().map(|mut v| std::mem::take(&mut *v));
                return Ok(json!({"ms": waited.unwrap_or_default()}));
            }
            "quit" => std::process::exit(0),
            other => return Err(format!("unknown command {other}").into()),
        }
        Ok(json!({}))
    }

    async fn bulk(&self, n: u64, batch: u64) -> Res<Value> {
        let start = Instant::now();
        for first in (0..n).step_by(batch as usize) {
            self.mill.enqueue_many((first..n.min(first + batch)).map(probe)).await?;
        }
        Ok(json!({"n": n, "secs": start.elapsed().as_secs_f64()}))
    }

    /// `conc` callers, each awaiting its own enqueue, until `n` or the time is over.
    async fn singles(&self, n: u64, conc: u64, limit: Option<Duration>) -> Res<Value> {
        let (start, next) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let mut callers = Vec::new();
        for _ in 0..conc {
            let (mill, next) = (self.mill.clone(), Arc::clone(&next));
            callers.push(tokio::spawn(async move {
                let mut made = 0;
                while limit.is_none_or(|limit| start.elapsed() < limit) {
                    let id = next.fetch_add(1, Relaxed);
                    if id >= n {
                        break;
                    }
                    mill.enqueue(probe(id)).await?;
                    made += 1;
                }
                tidemill::Result::Ok(made)
            }));
        }
        let mut made: u64 = 0;
        for caller in callers {
            made += caller.await??;
        }
        Ok(json!({"n": made, "secs": start.elapsed().as_secs_f64()}))
    }

    async fn work(&mut self) -> Res<()> {
        let seen = Arc::clone(&self.seen);
        let handler = move |probe: Probe, _cx| {
            let waited = now_ms() - probe.t;
            if let Ok(mut all) = seen.waited_ms.lock() {
                all.push(waited);
            }
            seen.started.fetch_add(1, Relaxed);
            async { Ok(()) }
        };
        self.worker = Some(self.mill.worker().slots(self.slots).handle(handler).start().await?);
        tokio::spawn(tell_count(Arc::clone(&self.seen)));
        Ok(())
    }
}

async fn tell_count(seen: Arc<Seen>) {
    let (mut told, mut ticks) = (0, tokio::time::interval(Duration::from_millis(10)));
    loop {
        ticks.tick().await;
        let started = seen.started.load(Relaxed);
        if started != told {
            told = started;
            println!("{}", json!({"count": started}));
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Res<()> {
    let options: Value =
        serde_json::from_str(&std::env::var("BENCH_OPTIONS").unwrap_or("{}".into()))?;
    let url = match options["store"].as_str() {
        Some("postgres") => std::env::var("DATABASE_URL")?,
        _ => format!("sqlite:{}/tidemill.db", std::env::var("BENCH_DIR")?),
    };
    let slots = options["slots"].as_u64().unwrap_or(1000) as usize;
    let mill = Tidemill::open(&url).await?;
    let mut peer = Peer { mill, url, slots, seen: Arc::default(), worker: None };

    let (lines, mut asked) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = lines.send(line);
        }
        std::process::exit(0);
    });
    while let Some(line) = asked.recv().await {
        let ask = serde_json::from_str(&line)?;
        let answer = peer.answer(&ask).await.unwrap_or_else(|e| json!({"error": e.to_string()}));
        println!("{answer}");
    }
    Ok(())
}
