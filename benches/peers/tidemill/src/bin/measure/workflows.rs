//! What workflows hold while they sleep, and what it takes to lead one through a long journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidemill::{Context, Enqueue, Fail, JobId, Payload, Settings, Signal, State, Tidemill, Worker};

use crate::Res;
use crate::load::rest;
use crate::memory::resident_mib;

const SLEEPER: &str = "sleeper";
const LONG: &str = "long";
const SOON: Duration = Duration::from_secs(600);

/// Puts `runs` workflows to sleep for a day, then leads others through journals of 100 to 10,000 steps.
pub async fn measure(mill: &Tidemill, runs: u64) -> Res<()> {
    asleep(mill, runs).await?;
    for steps in [100, 1_000, 10_000] {
        resume(mill, steps).await?;
    }
    Ok(())
}

async fn asleep(mill: &Tidemill, runs: u64) -> Res<()> {
    let begun = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&begun);
    let sleeper = move |_, cx: Context| {
        let counted = Arc::clone(&counted);
        async move {
            cx.step("before").run(|_| async { Ok(1) }).await?;
            counted.fetch_add(1, Ordering::Relaxed);
            cx.sleep(Duration::from_hours(24)).await?;
            Ok(Payload::null())
        }
    };
    let worker = mill.worker().slots(500);
    let worker = worker.handle_raw(SLEEPER, Settings::default(), sleeper).start().await?;
    let mut marks = Vec::new();
    let began = Instant::now();
    for part in 1..=10 {
        for _ in 0..runs.div_ceil(10).div_ceil(1_000) {
            mill.enqueue_many((0..1_000).map(|_| Enqueue::raw(SLEEPER, "null"))).await?;
        }
        let wanted = part * runs.div_ceil(10).div_ceil(1_000) * 1_000;
        while begun.load(Ordering::Relaxed) < wanted {
            rest(Duration::from_millis(20)).await;
        }
        marks.push(format!("{:.1}", resident_mib()?));
    }
    let rate = begun.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    rest(Duration::from_secs(2)).await;
    let asleep = begun.load(Ordering::Relaxed);
    println!(
        "{asleep} workflows asleep, put to sleep at {rate:.0}/s; MiB at each tenth: {}",
        marks.join(" ")
    );
    println!("at rest: {:.1} MiB", resident_mib()?);
    worker.stop().await;
    Ok(())
}

/// A workflow of so many steps that then waits for a word.
fn long(mill: &Tidemill, steps: u64, heard: &Arc<AtomicU64>, began: Instant) -> Worker {
    let heard = Arc::clone(heard);
    mill.worker().handle_raw(LONG, Settings::default(), move |_, cx: Context| {
        let heard = Arc::clone(&heard);
        async move {
            for n in 0..steps {
                cx.step("one").run(move |_| async move { Ok::<_, Fail>(n) }).await?;
            }
            heard.store(began.elapsed().as_micros() as u64, Ordering::Relaxed);
            let _: bool = cx.signal("go").await?;
            Ok(Payload::null())
        }
    })
}

async fn resume(mill: &Tidemill, steps: u64) -> Res<()> {
    let (began, heard) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let id = mill.enqueue(Enqueue::raw(LONG, "null")).await?.id();
    let worker = long(mill, steps, &heard, began).start().await?;
    until_blocked(mill, id).await?;
    let rate = steps as f64 / began.elapsed().as_secs_f64();
    let mut replays = Vec::new();
    // It goes on from its beginning at every signal of another name: the journal is read and told anew.
    for n in 0..5_u64 {
        heard.store(0, Ordering::Relaxed);
        let before = began.elapsed().as_micros() as u64;
        mill.signal(id, Signal::new("other", &n)).await?;
        while heard.load(Ordering::Relaxed) == 0 {
            rest(Duration::from_micros(200)).await;
        }
        replays.push((heard.load(Ordering::Relaxed) - before) as f64 / 1000.0);
        until_blocked(mill, id).await?;
    }
    replays.sort_by(f64::total_cmp);
    println!(
        "{steps} steps one after another: {rate:.0}/s; resumed in {:.1} ms (median of 5)",
        replays[2]
    );
    mill.signal(id, Signal::new("go", &true)).await?;
    mill.wait(id, SOON).await?;
    worker.stop().await;
    Ok(())
}

async fn until_blocked(mill: &Tidemill, id: JobId) -> Res<()> {
    while mill.job(id).await?.is_none_or(|view| view.state != State::Blocked) {
        rest(Duration::from_millis(2)).await;
    }
    Ok(())
}
