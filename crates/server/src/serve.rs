//! Serving, and stopping: requests under way are let finish.
//!
//! It refuses to listen on an address that others can reach, unless they must show who they are.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidemill::{Services, Tidemill};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::{self, App};
use crate::door::{Door, Hall};
use crate::routes::flows::Places;
use crate::routes::health::Health;
use crate::routes::streams::Streams;
use crate::settings::Settings;
use crate::tls::TlsInvalid;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is not one of this machine alone, and anybody could do everything.
    #[error(
        "{listen} can be reached from other machines, and nobody would have to say who they are; ask for tokens \
         (--require-token), or listen on 127.0.0.1 or [::1]"
    )]
    BindRefused {
        /// The address that was asked for.
        listen: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("{listen} cannot be listened on: {source}")]
    BindFailed {
        /// The address that was asked for.
        listen: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A name under which it is to be reached is none.
    #[error("the host {host:?} {reason}")]
    HostInvalid {
        /// The name that was given.
        host: String,
        /// What is wrong with it, and what to do.
        reason: &'static str,
    },
    /// An origin whose pages are to call it is none.
    #[error("the origin {origin:?} {reason}")]
    OriginInvalid {
        /// What was given.
        origin: String,
        /// What is wrong with it, and what to do.
        reason: &'static str,
    },
    /// The files of the certificate cannot be used.
    #[error(transparent)]
    TlsInvalid(#[from] TlsInvalid),
}

impl Error {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::BindRefused { .. } => "bind_refused",
            Self::BindFailed { .. } => "bind_failed",
            Self::HostInvalid { .. } => "host_invalid",
            Self::OriginInvalid { .. } => "origin_invalid",
            Self::TlsInvalid(_) => "tls_invalid",
        }
    }
}

/// A server that listens. It serves until it is stopped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Server {
    /// Begins to listen, and runs the clockwork of the store beside.
    pub async fn start(mill: Tidemill, settings: Settings) -> Result<Self, Error> {
        Ok(Door::open(settings).await?.serve(mill))
    }

    /// Serves behind a door that is open.
    pub(crate) fn behind(door: Door, mill: Tidemill) -> Self {
        let Door { address, settings, tls, found, starting, hall } = door;
        drop(starting);
        let stop = CancellationToken::new();
        let services = mill.start_services();
        let streams = Streams::new(&settings, stop.clone());
        if let (Some(tls), Some(found)) = (&tls, found) {
            let watching = Arc::clone(tls).watch(found, settings.tls_look);
            tokio::spawn(stop.clone().run_until_cancelled_owned(watching));
        }
        let (health, stop_app) = (Health::default(), stop.clone());
        let flow_places = Places::default();
        let app = App { mill, settings, health, streams, flow_places, tls, stop: stop_app };
        let serving = tokio::spawn(serve(hall, Arc::new(app), services, stop.clone()));
        Self { address, stop, serving }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more requests, and waits for those under way as long as the settings say.
    pub async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.serving.await {
            tracing::error!(%error, "the server ended badly");
        }
    }

    /// The description of the API (OpenAPI 3.1), as JSON.
    pub fn description() -> String {
        let description = api::description().to_pretty_json();
        description.unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
    }
}

async fn serve(hall: JoinHandle<Hall>, app: Arc<App>, services: Services, stop: CancellationToken) {
    let (service, connections) = (api::service(Arc::clone(&app)), TaskTracker::new());
    match hall.await {
        Ok(hall) => hall.let_in(&service, &connections, &stop).await,
        Err(error) => tracing::error!(%error, "nobody can be let in"),
    }
    app.health.is_stopping.store(true, Ordering::Relaxed);
    let drain = app.settings.drain;
    let lives = &app.streams.lives;
    lives.close();
    connections.close();
    let ended = async { tokio::join!(connections.wait(), lives.wait()) };
    if tokio::time::timeout(drain, ended).await.is_err() {
        tracing::warn!(?drain, "requests under way did not end in time, and were cut off");
    }
    services.stop().await;
}
