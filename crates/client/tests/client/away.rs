//! A worker and its server that lose each other: nothing is lost with them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tidemill::{
    Context, Enqueue, Fail, Flow, JobId, Limit, Payload, Per, Running, Settings, Signal, State,
    Stop,
};
use tidemill_client::Client;
use tidemill_testkit::eventually::eventually;
use tokio::sync::Semaphore;

use super::doorman::{Verdict, doorman};
use super::kit::{Kit, SOON};

over_both_stores!(
    a_server_that_was_away_gets_what_ended_meanwhile,
    a_run_outlasts_its_server,
    a_run_that_waits_for_an_answer_is_not_taken_for_other_code,
    a_beat_whose_answer_is_lost_costs_no_handler,
    a_server_that_was_away_for_longer_than_a_lease_blames_nobody,
    a_worker_that_was_given_up_begins_anew,
    another_worker_takes_up_the_run_of_one_that_died,
    what_needs_the_store_itself_is_refused,
    an_outcome_that_the_server_refuses_is_dead,
);

/// A handler that says that it runs, and ends when it may.
#[derive(Clone)]
struct Gate(Arc<(Semaphore, Semaphore)>);

impl Gate {
    fn new() -> Self {
        Self(Arc::new((Semaphore::new(0), Semaphore::new(0))))
    }

    async fn pass(self) -> Result<Payload, Fail> {
        self.0.0.add_permits(1);
        self.0.1.acquire().await?.forget();
        Ok(Payload::trusted("\"passed\"".to_owned()))
    }

    async fn runs(&self) {
        tokio::time::timeout(SOON, self.0.0.acquire()).await.unwrap().unwrap().forget();
    }

    /// Whether it runs that nobody waited for.
    fn has_begun(&self) -> bool {
        self.0.0.available_permits() > 0
    }

    fn open(&self) {
        self.0.1.add_permits(1);
    }

    /// A worker whose handler stands at it.
    async fn worker(&self, client: &Client, lease: Duration) -> Running {
        let gate = self.clone();
        let worker = client.worker().lease_ttl(lease);
        let handler = move |_, _| gate.clone().pass();
        worker.handle_raw("k", Settings::default(), handler).start().await.unwrap()
    }
}

async fn a_server_that_was_away_gets_what_ended_meanwhile(kit: Kit) {
    let gate = Gate::new();
    // Long enough for a server to be away on a busy machine.
    let worker = gate.worker(&kit.client, Duration::from_mins(1)).await;
    let first = kit.mill.enqueue(Enqueue::raw("k", "1")).await.unwrap().id();
    gate.runs().await;
    let kit = kit
        .restart(async |mill, away| {
            gate.open();
            away.asked("/settle").await;
            assert_eq!(mill.job(first).await.unwrap().unwrap().state, State::Running);
        })
        .await;
    assert_eq!(kit.output::<String>(first).await, "passed");
    assert_eq!(kit.end(first).await.lost, 0);
    let next = kit.mill.enqueue(Enqueue::raw("k", "2")).await.unwrap().id();
    gate.open();
    assert_eq!(kit.output::<String>(next).await, "passed", "it claims again");
    worker.stop().await;
    kit.close().await;
}

/// The journal is written, and mail is read, when the server is back: no attempt is spent.
async fn a_run_outlasts_its_server(kit: Kit) {
    let gate = Gate::new();
    let pass = gate.clone();
    let worker = kit.client.worker().lease_ttl(Duration::from_mins(1));
    let handler = move |_, cx: Context| {
        let gate = pass.clone();
        async move {
            let step = cx.step("gate").run(move |_| gate.clone().pass());
            let passed = step.await?;
            cx.step("after").run(|_| async { Ok(()) }).await?;
            cx.signal::<()>("go").await?;
            Ok(passed)
        }
    };
    let worker = worker.handle_raw("k", Settings::default(), handler).start().await.unwrap();
    let id = kit.mill.enqueue(Enqueue::raw("k", "1")).await.unwrap().id();
    kit.mill.signal(id, Signal::new("go", &())).await.unwrap();
    gate.runs().await;
    let kit = kit
        .restart(async |_, away| {
            gate.open();
            away.asked("/journal").await;
        })
        .await;
    assert_eq!(kit.output::<String>(id).await, "passed");
    let view = kit.end(id).await;
    assert_eq!((view.attempt, view.lost), (1, 0));
    worker.stop().await;
    kit.close().await;
}

/// Its step left no trace when its worker stopped, and begins when it is known that the sleep beside it goes on.
async fn a_run_that_waits_for_an_answer_is_not_taken_for_other_code(kit: Kit) {
    let gate = Gate::new();
    let work = |client: &Client| {
        let pass = gate.clone();
        let number = |number: Payload, _| async { Ok(number) };
        let handler = move |_, cx: Context| {
            let pass = pass.clone();
            async move {
                let step = cx.step("gate").run(move |_| pass.clone().pass());
                let slept = async {
                    cx.output_of::<u64>("number").await?;
                    cx.sleep(Duration::from_millis(1100)).await
                };
                let (passed, ()) = cx.join((step, slept)).await?;
                Ok(passed)
            }
        };
        let worker = client.worker().handle_raw("number", Settings::default(), number);
        let stop = Stop { drain: Duration::ZERO, grace: Duration::ZERO };
        worker.handle_raw("k", Settings::default(), handler).stop_as(stop)
    };
    let worker = work(&kit.client).start().await.unwrap();
    let flow = Flow::new("f").step("number", Enqueue::raw("number", "1"));
    let flow = flow.then("k", Enqueue::raw("k", "1"));
    let flow = kit.mill.start(flow).await.unwrap();
    gate.runs().await;
    let id = kit.mill.flow(flow).await.unwrap().unwrap().steps[1].first.unwrap();
    let sleeps = async || (kit.mill.journal(id).await.unwrap().len() == 1).then_some(());
    eventually("the journal has the sleep", SOON, sleeps).await;
    worker.stop().await;
    // Longer than code may wait for something of its own.
    let (away, asked) = (Duration::from_secs(3), OnceLock::new());
    let judge = move |request: &str| {
        let is_asked = request.lines().next().is_some_and(|line| line.contains("/inputs "));
        match is_asked.then(|| asked.get_or_init(Instant::now).elapsed() < away) {
            Some(true) => Verdict::Stops("503 Service Unavailable"),
            _ => Verdict::Passes,
        }
    };
    let client = doorman(kit.server.address(), judge).await;
    let worker = work(&client).start().await.unwrap();
    gate.open();
    let ended = async || {
        let parked = kit.mill.run(id).await.unwrap().and_then(|run| run.parked);
        assert_eq!(parked, None);
        kit.mill.job(id).await.unwrap()?.state.is_final().then_some(())
    };
    eventually("the run ends", SOON, ended).await;
    assert_eq!(kit.output::<String>(id).await, "passed");
    worker.stop().await;
    kit.close().await;
}

async fn a_beat_whose_answer_is_lost_costs_no_handler(kit: Kit) {
    let (gate, beats) = (Gate::new(), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&beats);
    let judge = move |request: &str| {
        let is_beat = request.lines().next().is_some_and(|line| line.contains("/beat "));
        match is_beat.then(|| count.fetch_add(1, Ordering::SeqCst)) {
            Some(1) => Verdict::IsLost,
            _ => Verdict::Passes,
        }
    };
    let client = doorman(kit.server.address(), judge).await;
    let worker = gate.worker(&client, Duration::from_secs(3)).await;
    let id = kit.mill.enqueue(Enqueue::raw("k", "1")).await.unwrap().id();
    gate.runs().await;
    eventually("the beats after it", SOON, async || {
        (beats.load(Ordering::SeqCst) > 4).then_some(())
    })
    .await;
    gate.open();
    assert_eq!(kit.output::<String>(id).await, "passed");
    assert!(!gate.has_begun(), "its handler ran through");
    worker.stop().await;
    kit.close().await;
}

/// Whoever could not beat because there was nobody to beat to is not lost.
async fn a_server_that_was_away_for_longer_than_a_lease_blames_nobody(kit: Kit) {
    let (gate, lease) = (Gate::new(), Duration::from_secs(3));
    let worker = gate.worker(&kit.client, lease).await;
    let id = kit.mill.enqueue(Enqueue::raw("k", "1")).await.unwrap().id();
    gate.runs().await;
    let kit = kit
        .restart(async |mill, _| {
            eventually("its lease to be over", SOON, async || {
                let beaten = mill.workers().await.unwrap().pop().unwrap().beat_at;
                let silent = mill.now().await.unwrap().duration_since(beaten);
                (Duration::try_from(silent).unwrap() > lease).then_some(())
            })
            .await;
        })
        .await;
    gate.open();
    assert_eq!(kit.output::<String>(id).await, "passed");
    let view = kit.end(id).await;
    assert_eq!((view.attempt, view.lost), (1, 0));
    worker.stop().await;
    kit.close().await;
}

async fn a_worker_that_was_given_up_begins_anew(kit: Kit) {
    let gate = Gate::new();
    let worker = gate.worker(&kit.client, Duration::from_secs(1)).await;
    let before = worker.id();
    let id = kit.mill.enqueue(Enqueue::raw("k", "1")).await.unwrap().id();
    gate.runs().await;
    let beaten = kit.mill.workers().await.unwrap().pop().unwrap();
    assert_eq!(beaten.id, before, "it is known by the id that it was given");
    kit.mill.store().deregister(before).await.unwrap();
    gate.runs().await;
    assert_ne!(worker.id(), before);
    gate.open();
    assert_eq!(kit.output::<String>(id).await, "passed");
    worker.stop().await;
    kit.close().await;
}

/// Runs a step, waits for the clock, and then in the middle of another step for as long as its worker lives.
async fn journey(cx: Context, steps: Arc<AtomicU32>, gate: Gate) -> Result<Payload, Fail> {
    let seen = Arc::clone(&steps);
    let number = cx.step("first").run(move |_| {
        let number = seen.fetch_add(1, Ordering::SeqCst);
        async move { Ok(number) }
    });
    let number = number.await?;
    cx.sleep(Duration::from_millis(1100)).await?;
    let word = cx.signal::<String>("go").await?;
    let gate = cx.step("gate").run(move |_| {
        let gate = gate.clone();
        async move { gate.pass().await }
    });
    gate.await?;
    Ok(Payload::trusted(format!("\"{number} {word}\"")))
}

async fn another_worker_takes_up_the_run_of_one_that_died(kit: Kit) {
    let (steps, gate) = (Arc::new(AtomicU32::new(0)), Gate::new());
    let worker = || {
        let (steps, gate) = (Arc::clone(&steps), gate.clone());
        let worker = kit.client.worker().lease_ttl(Duration::from_secs(1));
        worker.handle_raw("k", Settings::default(), move |_, cx| {
            journey(cx, Arc::clone(&steps), gate.clone())
        })
    };
    let id: JobId = kit.mill.enqueue(Enqueue::raw("k", "1")).await.unwrap().id();
    kit.mill.signal(id, Signal::new("go", "on")).await.unwrap();
    // With its runtime everything of a worker is gone at once, as with its process.
    let dying = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let dying = dying.unwrap();
    let dies = worker();
    dying.spawn(async move {
        let _running = dies.start().await.unwrap();
        std::future::pending::<()>().await;
    });
    gate.runs().await;
    dying.shutdown_background();
    let other = worker().start().await.unwrap();
    gate.runs().await;
    gate.open();
    assert_eq!(kit.output::<String>(id).await, "0 on");
    assert_eq!(steps.load(Ordering::SeqCst), 1, "what the journal has is not done again");
    assert_eq!(kit.end(id).await.lost, 1);
    other.stop().await;
    kit.close().await;
}

async fn what_needs_the_store_itself_is_refused(kit: Kit) {
    let handler = |_: Payload, cx: Context| async move {
        let code = cx.mill().map(drop).map_err(|error| error.code());
        let begun = cx
            .transaction("charge")
            .run(|_| async { Err::<tidemill::Proof<()>, _>(Fail::transient("it was begun")) });
        let failed = begun.await.unwrap_err();
        Ok(Payload::trusted(serde_json::json!([code, failed.to_string()]).to_string()))
    };
    let worker = kit.client.worker().handle_raw("k", Settings::default(), handler);
    let worker = worker.start().await.unwrap();
    let id = kit.mill.enqueue(Enqueue::raw("k", "1")).await.unwrap().id();
    let (code, failed): (Result<(), String>, String) = kit.output(id).await;
    assert_eq!(code.unwrap_err(), "store_elsewhere");
    assert!(failed.contains("has no store of its own"), "{failed}");
    worker.stop().await;
    let drained = tidemill::testing::drain(kit.client.worker()).await.unwrap_err();
    assert_eq!(drained.code(), "store_elsewhere");
    kit.close().await;
}

/// One that is refused does not hold up the others, and is seen.
async fn an_outcome_that_the_server_refuses_is_dead(kit: Kit) {
    let limit = Limit { per: Per::Key, concurrency: Some(1), ..Limit::default() };
    kit.mill.set_limit("keyed", "by_key", Some(limit)).await.unwrap();
    let handler = |word: Payload, cx: Context| async move {
        if word.as_str() == "1" {
            // It has no key: the engine here would say so at once, the server does when it hears of it.
            cx.follow_up(Enqueue::raw("other", "1").queue("keyed"))?;
        }
        Ok(word)
    };
    let worker = kit.client.worker().handle_raw("k", Settings::default(), handler);
    let worker = worker.start().await.unwrap();
    let jobs = ["1", "2"].map(|word| Enqueue::raw("k", word));
    let receipts = kit.mill.enqueue_many(jobs).await.unwrap();
    let (first, second) = (kit.end(receipts[0].id()).await, kit.end(receipts[1].id()).await);
    assert_eq!((first.state, second.state), (State::Dead, State::Done));
    assert!(first.error.as_ref().unwrap().contains("key_missing"), "{first:?}");
    worker.stop().await;
    kit.close().await;
}
