//! Listening, and stopping: connections are bounded in number and time, and those under way are let finish.
//!
//! It refuses to listen on an address that others can reach, unless they must show who they are. A handshake of TLS
//! counts as a part of the first head: it has as long, and a stop does not wait for it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tidemill::{Services, Tidemill};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::api::{self, App};
use crate::bare::Clothed;
use crate::greeting::Greeted;
use crate::routes::flows::Places;
use crate::routes::health::Health;
use crate::routes::streams::Streams;
use crate::settings::{Access, Settings};
use crate::tls::{Tls, TlsInvalid};

/// A client may not change its mind more often than that, nor send larger heads.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// How long to wait when no connection can be taken, for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
            Self::TlsInvalid(_) => "tls_invalid",
        }
    }
}

/// A server that listens. It serves until it is stopped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Begins to listen, and runs the clockwork of the store beside.
    pub async fn start(mill: Tidemill, settings: Settings) -> Result<Self, Error> {
        let listen = settings.listen;
        if !listen.ip().is_loopback() && settings.access == Access::Open {
            return Err(Error::BindRefused { listen });
        }
        let tls = settings.tls.clone().map(Tls::load).transpose()?;
        let (tls, found) = tls.map(|(tls, found)| (Arc::new(tls), found)).unzip();
        let failed = |source| Error::BindFailed { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
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
        let app = Arc::new(app);
        let serving = tokio::spawn(serve(listener, app, services, stop.clone()));
        Ok(Self { address, stop, serving })
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

async fn serve(listener: TcpListener, app: Arc<App>, services: Services, stop: CancellationToken) {
    let Settings { connections_max, drain, .. } = app.settings;
    let (service, graceful) = (api::service(Arc::clone(&app)), GracefulShutdown::new());
    let room = Arc::new(Semaphore::new(connections_max));
    loop {
        let taken = tokio::select! {
            taken = accept(&listener, &room) => taken,
            () = stop.cancelled() => break,
        };
        if let Some((stream, permit)) = taken {
            let (app, service, stop) = (Arc::clone(&app), service.clone(), stop.clone());
            let connected = connect(stream, app, service, graceful.watcher(), stop);
            tokio::spawn(async move {
                connected.await;
                drop(permit);
            });
        }
    }
    app.health.is_stopping.store(true, Ordering::Relaxed);
    drop(listener);
    let lives = &app.streams.lives;
    lives.close();
    let ended = async { tokio::join!(graceful.shutdown(), lives.wait()) };
    if tokio::time::timeout(drain, ended).await.is_err() {
        tracing::warn!(?drain, "requests under way did not end in time, and were cut off");
    }
    services.stop().await;
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, permit)),
        Err(error) => {
            tracing::warn!(%error, "a connection could not be taken");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// Serves one connection until it ends.
async fn connect(
    stream: TcpStream,
    app: Arc<App>,
    service: Router,
    watcher: Watcher,
    stop: CancellationToken,
) {
    // Answers are small and waited for.
    let _ = stream.set_nodelay(true);
    let head_timeout = app.settings.head_timeout;
    let Some(tls) = &app.tls else {
        return converse(stream, service, head_timeout, watcher).await;
    };
    let shaken = tokio::time::timeout(head_timeout, tls.acceptor().accept(stream));
    match stop.run_until_cancelled(shaken).await {
        Some(Ok(Ok(stream))) => converse(stream, service, head_timeout, watcher).await,
        Some(Ok(Err(error))) => {
            tls.handshake_failed();
            tracing::debug!(%error, "a handshake failed");
        }
        Some(Err(_)) => {
            tls.handshake_failed();
            tracing::debug!(?head_timeout, "a handshake took too long");
        }
        None => {}
    }
}

async fn converse<T>(stream: T, service: Router, head_timeout: Duration, watcher: Watcher)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .max_buf_size(HEAD_BYTES_MAX);
    builder.http2().timer(TokioTimer::new()).max_header_list_size(HEAD_BYTES_MAX as u32);
    let stream = TokioIo::new(Clothed::new(Greeted::new(stream, head_timeout)));
    let connection =
        builder.serve_connection_with_upgrades(stream, TowerToHyperService::new(service));
    if let Err(error) = watcher.watch(connection.into_owned()).await {
        tracing::debug!(error, "a connection ended early");
    }
}
