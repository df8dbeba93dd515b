//! Ordered jobs under several workers at once: one of a key at a time, in order, through every failure.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill::core::why::Gate;
use tidemill::{
    Backoff, Enqueue, Fail, Job, OnDead, Retry, Running, Schedule, State, Tidemill, Triage,
};
use tidemill_testkit::eventually::eventually;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    keys_keep_their_order_under_several_workers,
    a_dead_one_blocks_until_it_is_replayed,
    a_dead_one_blocks_until_it_is_given_up,
    a_place_in_line_is_a_gate,
    order_without_a_key_is_refused_on_every_way_in,
);

const KEYS: u32 = 6;
const EACH: u32 = 25;

/// A step of one key.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Step {
    key: u32,
    number: u32,
}

impl Job for Step {
    const KIND: &'static str = "step";
    type Output = ();
}

#[derive(Debug, Default)]
struct Seen {
    /// The numbers of each key, in the order their first attempts began.
    begun: HashMap<u32, Vec<u32>>,
    running: HashMap<u32, u32>,
}

type Watch = Arc<Mutex<Seen>>;

async fn start(mill: &Tidemill, watch: &Watch) -> Running {
    let watch = Arc::clone(watch);
    let worker = mill.worker().slots(8).handle(move |step: Step, cx| {
        let watch = Arc::clone(&watch);
        async move {
            let is_new = {
                let mut seen = watch.lock().unwrap();
                let running = seen.running.insert(step.key, step.number);
                assert_eq!(running, None, "two of key {} at once", step.key);
                let begun = seen.begun.entry(step.key).or_default();
                let is_new = !begun.contains(&step.number);
                if is_new {
                    begun.push(step.number);
                }
                is_new
            };
            tokio::task::yield_now().await;
            watch.lock().unwrap().running.remove(&step.key);
            match step.number % 5 {
                1 if cx.attempt() <= 2 => Err(Fail::transient("not yet")),
                2 if is_new => Err(Fail::rate_limited(Duration::from_millis(5))),
                3 => Err(Fail::permanent("never")),
                4 if is_new => Err(Fail::snooze(Duration::from_millis(5))),
                _ => Ok(()),
            }
        }
    });
    worker.start().await.unwrap()
}

async fn keys_keep_their_order_under_several_workers(kit: Kit) {
    let mills = [kit.open().await, kit.open().await];
    let watch = Watch::default();
    let workers = [
        start(&mills[0], &watch).await,
        start(&mills[1], &watch).await,
        start(&mills[0], &watch).await,
    ];
    let soon = Retry::attempts(5).backoff(Backoff::Fixed { delay_ms: 2 });
    for number in 0..EACH {
        let jobs = (0..KEYS).map(|key| {
            let job = Enqueue::from(Step { key, number }).retry(soon.clone());
            job.key(format!("key {key}")).ordered(OnDead::Skip)
        });
        mills[number as usize % 2].enqueue_many(jobs).await.unwrap();
    }
    eventually("all jobs to finish", 2 * SOON, async || {
        let left = mills[0].unfinished().await.unwrap();
        (left.waiting + left.running == 0).then_some(())
    })
    .await;
    for worker in workers {
        worker.stop().await;
    }
    let seen = watch.lock().unwrap();
    let in_order: Vec<u32> = (0..EACH).collect();
    for key in 0..KEYS {
        assert_eq!(seen.begun[&key], in_order, "key {key}");
    }
}

fn echo(text: &str) -> Enqueue {
    Enqueue::from(Echo::new(text)).key("order:42").ordered(OnDead::Block)
}

/// A worker that fails what says so, until it is told otherwise.
async fn strict(mill: &Tidemill, forgiving: &Arc<Mutex<bool>>) -> Running {
    let forgiving = Arc::clone(forgiving);
    let worker = mill.worker().handle(move |echo: Echo, _cx| {
        let fails = echo.text == "bad" && !*forgiving.lock().unwrap();
        async move { if fails { Err(Fail::permanent("bad")) } else { Ok(echo.text) } }
    });
    worker.start().await.unwrap()
}

async fn a_dead_one_blocks_until_it_is_replayed(kit: Kit) {
    let mill = kit.open().await;
    let forgiving = Arc::default();
    let worker = strict(&mill, &forgiving).await;
    let bad = mill.enqueue(echo("bad")).await.unwrap().id();
    let good = mill.enqueue(echo("good")).await.unwrap().id();
    assert_eq!(mill.wait(bad, SOON).await.unwrap().state, State::Dead);
    assert_eq!(mill.job(good).await.unwrap().unwrap().state, State::Blocked);
    *forgiving.lock().unwrap() = true;
    assert!(mill.dead().replay_one(bad, "ada", None).await.unwrap());
    assert_eq!(mill.result::<Echo>(good, SOON).await.unwrap(), "good");
    assert_eq!(mill.job(bad).await.unwrap().unwrap().state, State::Done);
    worker.stop().await;
}

async fn a_dead_one_blocks_until_it_is_given_up(kit: Kit) {
    let mill = kit.open().await;
    let worker = strict(&mill, &Arc::default()).await;
    let bad = mill.enqueue(echo("bad")).await.unwrap().id();
    let good = mill.enqueue(echo("good")).await.unwrap().id();
    assert_eq!(mill.wait(bad, SOON).await.unwrap().state, State::Dead);
    mill.dead().triage(&[bad], Triage::Abandoned, "ada", "never mind").await.unwrap();
    assert_eq!(mill.result::<Echo>(good, SOON).await.unwrap(), "good");
    worker.stop().await;
}

async fn a_place_in_line_is_a_gate(kit: Kit) {
    let mill = kit.open().await;
    let worker = strict(&mill, &Arc::default()).await;
    let head = mill.enqueue(echo("bad")).await.unwrap().id();
    mill.wait(head, SOON).await.unwrap();
    mill.enqueue(echo("good")).await.unwrap();
    let last = mill.enqueue(echo("good")).await.unwrap().id();
    let why = mill.why(last).await.unwrap();
    let key = "order:42".to_owned();
    assert_eq!(why.gates, [Gate::Line { key, ahead: 2, head: Some(head), dead: true }]);
    worker.stop().await;
}

async fn order_without_a_key_is_refused_on_every_way_in(kit: Kit) {
    let mill = kit.open().await;
    let lone = || Enqueue::from(Echo::new("x")).ordered(OnDead::Block);
    assert_eq!(mill.enqueue(lone()).await.unwrap_err().code(), "key_missing");
    assert_eq!(mill.enqueue_many([lone()]).await.unwrap_err().code(), "key_missing");
    let schedule = Schedule::every("s", Duration::from_mins(1), lone());
    assert_eq!(mill.schedules().set(schedule).await.unwrap_err().code(), "key_missing");
    let keys = Schedule::every("s", Duration::from_mins(1), lone()).spread_keys(SOON, ["a", "b"]);
    mill.schedules().set(keys).await.expect("each of its jobs bears a key");
    // Its minute may be over while this runs.
    mill.schedules().pause("s").await.unwrap();
    let handler = move |_: Echo, cx: tidemill::Context| async move {
        let refused = cx.follow_up(Enqueue::from(Echo::new("y")).ordered(OnDead::Skip));
        Ok(refused.unwrap_err().to_string())
    };
    let worker = mill.worker().handle(handler).start().await.unwrap();
    let id = mill.enqueue(Echo::new("x")).await.unwrap().id();
    let said = mill.result::<Echo>(id, SOON).await.unwrap();
    assert!(said.contains("asks for order but has no key"), "{said}");
    worker.stop().await;
    assert_eq!(mill.unfinished().await.unwrap().waiting, 0);
}
