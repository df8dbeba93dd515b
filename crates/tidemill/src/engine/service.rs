//! The clockwork: many small things that happen every so often, in every process that works.
//!
//! A service that fails is logged and tried again at its next turn; it never stops the others. Any
//! number of processes may run the same service at once: each is safe so, or takes a duty.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tidemill_store::Hint;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::engine::Tidemill;
use crate::engine::rules::follow;
use crate::engine::services::{
    alert::Alert, depth::Depth, expire::Expire, flows, pulse, redrive::Redrive, rescue::Rescue,
    retain::Retain, runs, schedule,
};
use crate::error::Result;
use crate::worker::options::Options;

/// How long a service that stops may take to say so.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// One small thing that happens every so often.
#[async_trait]
pub trait Service: Send + Sync + 'static {
    /// Its name in logs.
    fn name(&self) -> &'static str;
    /// How long between two turns.
    fn every(&self) -> Duration;
    /// One turn.
    async fn turn(&self, mill: &Tidemill) -> Result<()>;
    /// What is done when no turn follows.
    async fn leave(&self, _mill: &Tidemill) -> Result<()> {
        Ok(())
    }
}

/// When workers are given up, and how often that is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clockwork {
    pub(crate) lease_ttl: Duration,
    pub(crate) lost_max: u16,
}

/// The clockwork of a process that does not work itself: whoever serves others lets it run.
#[derive(Debug)]
pub struct Services {
    running: JoinSet<()>,
    stop: CancellationToken,
}

impl Services {
    /// Stops it, when what is under way has ended.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.running.join_next().await.is_some() {}
    }
}

impl Tidemill {
    /// Starts the clockwork without a worker: jobs of lost workers are rescued, schedules fire, what has passed its
    /// retention is forgotten, and the rules of queues are followed for those who claim through this process. A worker
    /// has it running by itself. Workers elsewhere that could not reach this process before have the length of their
    /// lease to beat again.
    pub fn start_services(&self) -> Services {
        let (Options { lease_ttl, lost_max, .. }, stop) =
            (Options::default(), CancellationToken::new());
        self.0.hands.open();
        let mut running = start(self, Clockwork { lease_ttl, lost_max }, &stop);
        running.spawn(follow(self.clone(), stop.clone()));
        Services { running, stop }
    }
}

/// Starts the clockwork; it runs until `stop`.
pub(crate) fn start(mill: &Tidemill, rules: Clockwork, stop: &CancellationToken) -> JoinSet<()> {
    let services: [Arc<dyn Service>; 6] = [
        Arc::new(Rescue::new(rules.lease_ttl, rules.lost_max)),
        Arc::new(Expire),
        Arc::new(Depth),
        Arc::new(Alert::default()),
        Arc::new(Redrive),
        Arc::new(Retain::default()),
    ];
    let mut running = JoinSet::new();
    for service in services {
        running.spawn(run(service, mill.clone(), stop.clone()));
    }
    running.spawn(schedule::run(mill.clone(), stop.clone()));
    running.spawn(flows::run(mill.clone(), stop.clone()));
    running.spawn(runs::run(mill.clone(), stop.clone()));
    running.spawn(pulse::run(mill.clone(), stop.clone()));
    running
}

/// One turn of every service, and a whole round of the one that walks in pages.
pub(crate) async fn turn_all(mill: &Tidemill) -> Result<()> {
    let Options { lease_ttl, lost_max, .. } = Options::default();
    Rescue::new(lease_ttl, lost_max).turn(mill).await?;
    Expire.turn(mill).await?;
    Redrive.turn(mill).await?;
    Depth.turn(mill).await?;
    schedule::fire_due(mill, &mut schedule::HeldUp::new()).await?;
    runs::tend(mill).await?;
    flows::tend(mill).await?;
    Retain::default().rounds(mill).await
}

/// What is done when it is told of, and every so often because hints may be lost.
pub(crate) struct Tending {
    pub(crate) every: Duration,
    pub(crate) is_meant: fn(&Hint) -> bool,
    /// What a log says when it fails.
    pub(crate) failed: &'static str,
}

impl Tending {
    /// Does it until `stop`.
    pub(crate) async fn run<Fut: Future<Output = Result<()>>>(
        self,
        mill: Tidemill,
        stop: CancellationToken,
        tend: impl Fn(Tidemill) -> Fut,
    ) {
        let mut hints = mill.0.store.wake().listen();
        let mut failing = false;
        loop {
            match tend(mill.clone()).await {
                Ok(()) => failing = false,
                Err(error) if !failing => {
                    failing = true;
                    tracing::warn!(%error, "{}; it goes on trying", self.failed);
                }
                Err(_) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.every) => {}
                () = told(&mut hints, self.is_meant) => {}
            }
        }
    }
}

async fn told(hints: &mut Receiver<Hint>, is_meant: fn(&Hint) -> bool) {
    loop {
        match hints.recv().await {
            Ok(hint) if is_meant(&hint) => return,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

async fn run(service: Arc<dyn Service>, mill: Tidemill, stop: CancellationToken) {
    let mut turns = tokio::time::interval(service.every());
    let mut failing = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = turns.tick() => {}
        }
        match service.turn(&mill).await {
            Ok(()) => failing = false,
            // Said once per outage: a database that is down for an hour must not fill the log.
            Err(error) if !failing => {
                failing = true;
                tracing::warn!(service = service.name(), %error, "a service failed; it goes on trying");
            }
            Err(_) => {}
        }
        // One that was held up leaves the others as much time as ever: what they wrote had to wait as well.
        turns.reset();
    }
    // A store that cannot be reached must not hold up a stop; the others come to it in time.
    if let Ok(Err(error)) = tokio::time::timeout(LEAVE_WITHIN, service.leave(&mill)).await {
        tracing::debug!(service = service.name(), %error, "a service could not say goodbye");
    }
}
