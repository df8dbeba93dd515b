//! The worker that is killed: it writes down every effect before it says so to the store.

use std::sync::Arc;
use std::time::Duration;

use tidemill::{Backoff, Context, Enqueue, Fail, Job, Retry, Stop};

use super::history::{Effect, Log};
use super::role::{Orders, open};
use super::work::{Plan, Work, child_of};

pub const LEASE_TTL: Duration = Duration::from_secs(1);

/// Works until SIGTERM, or worse.
pub async fn work(orders: &Orders, lost_max: u16) {
    let mill = open(orders).await;
    let effects = Arc::new(Log::open(&orders.folder, "effects"));
    let worker = mill
        .worker()
        .name(format!("pid {}", std::process::id()))
        .slots(8)
        .lease_ttl(LEASE_TTL)
        .lost_max(lost_max)
        .stop_as(Stop { drain: Duration::from_millis(300), grace: Duration::from_millis(300) })
        .handle(move |work: Work, cx| run(work, cx, Arc::clone(&effects)));
    worker.run().await.unwrap();
    mill.close().await;
}

/// Retries come soon: a run is short.
pub fn retry() -> Retry {
    Retry::attempts(10).backoff(Backoff::Fixed { delay_ms: 20 })
}

async fn run(work: Work, cx: Context, effects: Arc<Log>) -> Result<<Work as Job>::Output, Fail> {
    if work.plan == Plan::Killer {
        std::process::abort();
    }
    // It takes its time, so that faults find it at work; it ends early when it is told to.
    let told = tokio::time::timeout(Duration::from_millis(work.takes_ms), cx.cancelled()).await;
    if told.is_ok() {
        return Err(Fail::transient("told to end"));
    }
    effects.write(&Effect {
        id: cx.id(),
        token: cx.token(),
        attempt: cx.attempt(),
        pid: std::process::id(),
        stale: cx.mill()?.counts().stale,
    });
    match work.plan {
        Plan::Fatal => return Err(Fail::permanent("made to fail")),
        Plan::Flaky(failures) if cx.attempt() <= failures => {
            return Err(Fail::transient(format!("failure {} of {failures}", cx.attempt())));
        }
        Plan::Parent => {
            let child = Work { plan: Plan::Child, takes_ms: work.takes_ms };
            cx.follow_up(Enqueue::from(child).id(child_of(cx.id())).retry(retry()))?;
        }
        _ => {}
    }
    Ok(cx.token().0)
}
