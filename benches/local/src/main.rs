//! What a task costs in the local queue: the time from push to answer, and the memory while it waits.
//!
//! The same three measurements as `node/measure.js`, one JSON line each, so that `run` can lay them
//! side by side. Each runs in a process of its own: memory that one leaves behind is not the next's.
//! Two variants each, since callers differ: with a handle per task, whose answer is awaited, and
//! detached, whose answer nobody wants.

use std::fs;
use std::hint::black_box;
use std::time::Instant;

use tidemill::local::Queue;

const CONCURRENCY: usize = 16;

/// A task of the runtime measures, as it would be in a server: what waits in `main` itself is woken
/// through the kernel.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_default();
    let tasks = args.next().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    tokio::spawn(measure(what, tasks)).await.expect("it measured");
}

async fn measure(what: String, tasks: usize) {
    match what.as_str() {
        "burst" => burst(tasks).await,
        "detached" => burst_detached(tasks).await,
        "one" => one_by_one(tasks).await,
        "memory" => memory(tasks),
        "memory_detached" => memory_detached(tasks),
        _ => panic!("one of: burst, detached, one, memory, memory_detached"),
    }
}

fn queue(tasks: usize) -> Queue {
    let queue = Queue::builder().concurrency(CONCURRENCY).depth_max(tasks);
    queue.build().expect("the rules are right")
}

fn report(name: &str, what: &str, value: f64) {
    println!(r#"{{"name":"{name}","what":"{what}","value":{value:.1}}}"#);
}

/// All pushed first, then all answers awaited.
async fn burst(tasks: usize) {
    let queue = queue(tasks);
    let begin = Instant::now();
    let push = |n| queue.try_push(async move { black_box(n) }).expect("there is room");
    let handles: Vec<_> = (0..tasks).map(push).collect();
    let mut sum = 0;
    for handle in handles {
        sum += handle.await.expect("it is done");
    }
    report("tidemill", "burst", begin.elapsed().as_nanos() as f64 / tasks as f64);
    assert_eq!(sum, tasks * (tasks - 1) / 2);
}

async fn burst_detached(tasks: usize) {
    let queue = queue(tasks);
    let begin = Instant::now();
    for n in 0..tasks {
        queue.try_push(async move { black_box(n) }).expect("there is room").detach();
    }
    queue.on_idle().await;
    report("tidemill, detached", "burst", begin.elapsed().as_nanos() as f64 / tasks as f64);
    assert_eq!(queue.counts().done, tasks as u64);
}

/// Each awaited before the next: an idle queue's latency.
async fn one_by_one(tasks: usize) {
    let queue = queue(tasks);
    let begin = Instant::now();
    for n in 0..tasks {
        assert_eq!(queue.run(async move { black_box(n) }).await, Ok(n));
    }
    report("tidemill", "one", begin.elapsed().as_nanos() as f64 / tasks as f64);
}

fn memory(tasks: usize) {
    let queue = queue(tasks);
    queue.pause();
    let before = resident_bytes();
    let push = |n| queue.try_push(async move { black_box(n) }).expect("there is room");
    let handles: Vec<_> = (0..tasks).map(push).collect();
    let bytes = resident_bytes() - before;
    assert_eq!(queue.size(), handles.len());
    report("tidemill", "memory", bytes / tasks as f64);
}

fn memory_detached(tasks: usize) {
    let queue = queue(tasks);
    queue.pause();
    let before = resident_bytes();
    for n in 0..tasks {
        queue.try_push(async move { black_box(n) }).expect("there is room").detach();
    }
    report("tidemill, detached", "memory", (resident_bytes() - before) / tasks as f64);
    assert_eq!(queue.size(), tasks);
}

fn resident_bytes() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("Linux");
    let kib: f64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    kib * 1024.0
}
