//! The workflow that is run under fire: parallel steps, a race, a sleep, a signal, children, and undos.
//!
//! Every body writes down its effect under its idempotency key before it returns, and returns the token of its
//! attempt: so a journal shows by whom each of its entries was written.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill::{Context, Enqueue, Fail, First, Job, JobId, Stop, Undo};

use super::history::Log;
use super::role::{Orders, open};
use super::worker::LEASE_TTL;

/// Steps that are undone, in no order.
pub const UNDONE: [&str; 4] = ["reserve", "tax", "risk", "charge"];
/// Children of a run.
pub const LEGS: u64 = 2;

/// What a run is made to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Voyage {
    /// Its race is won by a signal, which is sent; else by a sleep.
    pub is_called: bool,
    /// It fails at its end, and is undone.
    pub fails: bool,
    /// How long a body takes.
    pub takes_ms: u64,
}

impl Job for Voyage {
    const KIND: &'static str = "voyage";
    /// The tokens that its steps returned, as the code heard them.
    type Output = Vec<i64>;
}

/// A child of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Leg {
    pub of: JobId,
    pub number: u64,
}

impl Job for Leg {
    const KIND: &'static str = "leg";
    type Output = i64;
}

/// What undoes a step.
#[derive(Debug, Serialize, Deserialize)]
pub struct TurnBack(Undo<JobId, i64>);

impl Job for TurnBack {
    const KIND: &'static str = "turn_back";
    type Output = ();
}

/// What a body, a child or an undo did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    pub run: JobId,
    /// The key of a step, `leg N` or `undo STEP`.
    pub what: String,
    pub token: i64,
}

/// Works until SIGTERM, or worse.
pub async fn work(orders: &Orders) {
    let mill = open(orders).await;
    let effects = Arc::new(Log::open(&orders.folder, "effects"));
    let (of_legs, of_undos) = (Arc::clone(&effects), Arc::clone(&effects));
    let worker = mill
        .worker()
        .name(format!("pid {}", std::process::id()))
        .slots(16)
        .lease_ttl(LEASE_TTL)
        .lost_max(1000)
        .stop_as(Stop { drain: Duration::from_millis(300), grace: Duration::from_millis(300) })
        .handle(move |voyage: Voyage, cx| sail(voyage, cx, Arc::clone(&effects)))
        .handle(move |leg: Leg, cx: Context| {
            let what = format!("leg {}", leg.number);
            of_legs.write(&Done { run: leg.of, what, token: cx.token().0 });
            async move { Ok(cx.token().0) }
        })
        .handle(move |TurnBack(undo): TurnBack, cx: Context| {
            let what = format!("undo {}", undo.step);
            of_undos.write(&Done { run: undo.payload, what, token: cx.token().0 });
            async { Ok(()) }
        });
    worker.run().await.unwrap();
    mill.close().await;
}

async fn sail(voyage: Voyage, cx: Context, effects: Arc<Log>) -> Result<Vec<i64>, Fail> {
    let takes = Duration::from_millis(voyage.takes_ms);
    let (run, token) = (cx.id(), cx.token().0);
    let body = |cx: &Context, name: &str| {
        let effects = Arc::clone(&effects);
        let undo = Enqueue::raw(TurnBack::KIND, format!("\"{run}\""));
        cx.step(name).undo(undo).run(move |s| {
            let effects = Arc::clone(&effects);
            let what = s.idempotency_key().replace(&format!("{run}/"), "");
            async move {
                // It takes its time, so that faults find it at work, before its effect and after.
                let _ = tokio::time::timeout(takes, std::future::pending::<()>()).await;
                effects.write(&Done { run, what, token });
                let _ = tokio::time::timeout(takes, std::future::pending::<()>()).await;
                Ok(token)
            }
        })
    };
    let mut heard = vec![body(&cx, "reserve").await?];
    let (tax, risk) = cx.join((body(&cx, "tax"), body(&cx, "risk"))).await?;
    heard.extend([tax, risk]);
    let patience = if voyage.is_called { Duration::from_hours(1) } else { takes };
    match cx.race((cx.signal::<i64>("call"), cx.sleep(patience))).await? {
        First::A(said) => heard.push(said),
        First::B(()) => heard.push(0),
    }
    // Longer than what is waited for in memory: the run is let go, and goes on anywhere.
    cx.sleep(Duration::from_millis(1100)).await?;
    let legs = (0..LEGS).map(|number| Leg { of: run, number });
    for leg in cx.children(legs).await? {
        leg?;
    }
    heard.push(body(&cx, "charge").await?);
    if voyage.fails {
        return Err(Fail::permanent(format!("{heard:?}")));
    }
    Ok(heard)
}
