//! Stopping in four phases: quiet, drain until a deadline, cancel, give back unspent.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::engine::rules::follow;
use crate::engine::service::{self, Clockwork};
use crate::worker::boss::Boss;
use crate::worker::dispatch::dispatch;
use crate::worker::lease::beat;
use crate::worker::options::Options;
use crate::worker::reporter::report_all;
use crate::worker::settler::settle_all;
use crate::worker::shop::{Shop, Why};

/// How a stop proceeds.
#[derive(Debug, Clone, Copy)]
pub struct Stop {
    /// Running handlers may go on this long. Defaults to 20 s.
    pub drain: Duration,
    /// Then they are told, and may go on this long. What still runs is dropped and given back, no
    /// attempt spent. Defaults to 5 s.
    pub grace: Duration,
}

impl Default for Stop {
    fn default() -> Self {
        Self { drain: Duration::from_secs(20), grace: Duration::from_secs(5) }
    }
}

/// Tasks that run on when nobody holds them any more. A set by itself would abort them: of a worker whose loops run
/// on in part, the jobs stay leased for as long as it beats.
struct Tasks(JoinSet<()>);

impl Tasks {
    async fn ended(mut self) {
        while self.0.join_next().await.is_some() {}
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.detach_all();
    }
}

/// The loops of a running worker. They run on when this is dropped, all of them.
pub(crate) struct Loops {
    shop: Arc<Shop>,
    quiet: CancellationToken,
    done: CancellationToken,
    dispatchers: Tasks,
    settler: Option<JoinHandle<()>>,
    heart: JoinHandle<()>,
    /// What is done here for everybody; elsewhere it is done there.
    rules: Option<JoinHandle<()>>,
    services: Tasks,
}

impl Loops {
    pub(crate) fn start(shop: Arc<Shop>) -> Self {
        let (quiet, done) = (CancellationToken::new(), CancellationToken::new());
        let (rules, services) = match &shop.boss {
            Boss::Here(mill) => {
                let Options { lease_ttl, lost_max, .. } = shop.options;
                let services = service::start(mill, Clockwork { lease_ttl, lost_max }, &done);
                (Some(tokio::spawn(follow(mill.clone(), done.clone()))), services)
            }
            Boss::Elsewhere(_) => (None, JoinSet::new()),
        };
        Self {
            dispatchers: dispatchers(&shop, &quiet),
            settler: settler(&shop),
            heart: tokio::spawn(beat(Arc::clone(&shop), done.clone())),
            rules,
            services: Tasks(services),
            shop,
            quiet,
            done,
        }
    }

    pub(crate) fn shop(&self) -> &Shop {
        &self.shop
    }

    /// Stops all of them. Once begun it goes on to its end, also if nobody waits for it any more: what is left of a
    /// worker that stopped halfway would beat for ever.
    pub(crate) async fn stop(self) {
        let _ = tokio::spawn(self.end()).await;
    }

    async fn end(self) {
        let Stop { drain, grace } = self.shop.options.stop;
        self.quiet.cancel();
        self.dispatchers.ended().await;
        self.shop.attempts.close();
        if !ended_within(&self.shop, drain).await {
            self.shop.end_all(Why::Stopping);
            let mut patience = grace;
            while !ended_within(&self.shop, patience).await {
                // Said again and again: an attempt that had not begun when it was said first would
                // not have heard it.
                self.shop.end_all(Why::Stopping);
                self.shop.abandon_all();
                patience = Duration::from_millis(50);
            }
        }
        settled_within(&self.shop, drain.saturating_add(grace)).await;
        if let Some(settler) = self.settler {
            settler.abort();
        }
        self.done.cancel();
        let _ = self.heart.await;
        if let Some(rules) = self.rules {
            let _ = rules.await;
        }
        self.services.ended().await;
        // What could not be settled (the store is away) is given back, by this or by the rescue.
        if let Err(error) = sign_off(&self.shop).await {
            tracing::warn!(%error, "the worker could not sign off; its jobs return when its lease ends");
        }
        tracing::info!(worker = %self.shop.worker(), "the worker stopped");
    }
}

/// The loops of a worker that nobody could stop any more if this is dropped: then they stop by themselves.
pub(crate) struct Bound {
    loops: Option<Loops>,
    /// Whoever drops this need not be on it.
    runtime: Handle,
}

impl Bound {
    pub(crate) fn new(loops: Loops) -> Self {
        Self { loops: Some(loops), runtime: Handle::current() }
    }

    pub(crate) async fn stop(mut self) {
        if let Some(loops) = self.loops.take() {
            loops.stop().await;
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(loops) = self.loops.take() {
            self.runtime.spawn(loops.end());
        }
    }
}

/// The loop that settles, or reports to whoever does.
fn settler(shop: &Arc<Shop>) -> Option<JoinHandle<()>> {
    let own = Arc::clone(shop);
    Some(match &shop.boss {
        Boss::Here(mill) => tokio::spawn(settle_all(own, mill.clone(), shop.take_settled()?)),
        Boss::Elsewhere(boss) => {
            tokio::spawn(report_all(own, Arc::clone(boss), boss.take_ended()?))
        }
    })
}

async fn sign_off(shop: &Shop) -> tidemill_store::Result<()> {
    match &shop.boss {
        Boss::Here(mill) => mill.0.store.deregister(shop.worker()).await.map(drop),
        Boss::Elsewhere(boss) => boss.broker.sign_off(shop.worker()).await,
    }
}

/// One loop for each group of slots.
fn dispatchers(shop: &Arc<Shop>, quiet: &CancellationToken) -> Tasks {
    let mut running = JoinSet::new();
    for group in &shop.groups {
        running.spawn(dispatch(Arc::clone(shop), Arc::clone(group), quiet.clone()));
    }
    Tasks(running)
}

async fn ended_within(shop: &Shop, limit: Duration) -> bool {
    tokio::time::timeout(limit, shop.attempts.wait()).await.is_ok()
}

/// Waits until everything that ended is settled, but not for ever.
async fn settled_within(shop: &Shop, limit: Duration) {
    let settled = async {
        loop {
            let progress = shop.unsettled.fewer.notified();
            if shop.unsettled.number() == 0 {
                return;
            }
            progress.await;
        }
    };
    if tokio::time::timeout(limit, settled).await.is_err() {
        tracing::warn!(attempts = shop.unsettled.number(), "some attempts could not be settled");
    }
}

/// An ear for SIGTERM and Ctrl-C. It hears from when it was made, not from when it is asked: a
/// signal that comes while a worker is still starting would otherwise kill the process, with jobs
/// in its hands.
pub(crate) struct Signals {
    #[cfg(unix)]
    heard: Option<[tokio::signal::unix::Signal; 2]>,
}

impl Signals {
    pub(crate) fn listen() -> Self {
        Self {
            #[cfg(unix)]
            heard: {
                use tokio::signal::unix::{SignalKind, signal};
                let term = signal(SignalKind::terminate()).ok();
                let interrupt = signal(SignalKind::interrupt()).ok();
                term.zip(interrupt).map(Into::into)
            },
        }
    }

    /// Completes at the first of them.
    pub(crate) async fn first(self) {
        #[cfg(unix)]
        if let Some([mut term, mut interrupt]) = self.heard {
            tokio::select! {
                _ = term.recv() => {}
                _ = interrupt.recv() => {}
            }
            return;
        }
        let _ = tokio::signal::ctrl_c().await;
    }
}
