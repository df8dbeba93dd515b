//! The door: the address is listened on before there is a store, so that probes and callers hear that it starts.
//!
//! Connections are bounded in number and time (`pace.rs`). A handshake of TLS counts as a part of the first head: it
//! has as long, and a stop does not wait for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::get;
use http::{HeaderValue, StatusCode, header};
use tidemill::Tidemill;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::named;
use crate::pace::{Taken, Times, converse};
use crate::problem::Refusal;
use crate::routes::health;
use crate::serve::{Error, Server};
use crate::settings::{Access, Settings};
use crate::tls::{Found, Tls};

/// How long to wait when no connection can be taken, for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// An address that is listened on, for a server whose store is not open yet. It answers that the process lives, and
/// everything else with `starting`.
#[derive(Debug)]
pub struct Door {
    pub(crate) address: SocketAddr,
    pub(crate) settings: Settings,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) found: Option<Found>,
    /// Those who come before the store is open are told so until this is dropped.
    pub(crate) starting: DropGuard,
    /// Who tells them, and what they stand in.
    pub(crate) hall: JoinHandle<Hall>,
}

impl Door {
    /// Begins to listen.
    pub async fn open(settings: Settings) -> Result<Self, Error> {
        let listen = settings.listen;
        if !listen.ip().is_loopback() && settings.access == Access::Open {
            return Err(Error::BindRefused { listen });
        }
        named::check(&settings)?;
        let tls = settings.tls.clone().map(Tls::load).transpose()?;
        let (tls, found) = tls.map(|(tls, found)| (Arc::new(tls), found)).unzip();
        let failed = |source| Error::BindFailed { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let room = Arc::new(Semaphore::new(settings.connections_max));
        let entry = Entry { tls: tls.clone(), times: Times::of(&settings) };
        let hall = Hall { listener, room, entry };
        let opened = CancellationToken::new();
        let hall = tokio::spawn(put_off(hall, opened.clone()));
        Ok(Self { address, settings, tls, found, starting: opened.drop_guard(), hall })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves this store to all who come from now on, and runs its clockwork beside.
    pub fn serve(self, mill: Tidemill) -> Server {
        Server::behind(self, mill)
    }
}

/// Answers those who come before the store is open.
async fn put_off(hall: Hall, opened: CancellationToken) -> Hall {
    let starts = async || {
        let detail = "the server starts: its store is not open yet; its log says what it waits for";
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "starting", detail).again_in(1)
    };
    let service = Router::new()
        .route("/livez", get(health::livez))
        .fallback(starts)
        .method_not_allowed_fallback(starts)
        // Nobody keeps a connection on which there will never be a server.
        .layer(map_response(async |mut response: Response| {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            response
        }));
    hall.let_in(&service, &TaskTracker::new(), &opened).await;
    hall
}

/// Where connections come in, as many as there is room for.
#[derive(Debug)]
pub(crate) struct Hall {
    listener: TcpListener,
    room: Arc<Semaphore>,
    entry: Entry,
}

impl Hall {
    /// Lets connections in until it ends, and lets them talk to the service; the tracker has those that are there.
    pub(crate) async fn let_in(
        &self,
        service: &Router,
        connections: &TaskTracker,
        end: &CancellationToken,
    ) {
        loop {
            // The end first: who comes after it is for somebody else.
            let taken = tokio::select! {
                biased;
                () = end.cancelled() => break,
                taken = self.accept() => taken,
            };
            if let Some((stream, permit)) = taken {
                let connected = self.entry.clone().connect(stream, service.clone(), end.clone());
                connections.spawn(async move {
                    connected.await;
                    drop(permit);
                });
            }
        }
    }

    /// The next connection, once there is room for it.
    async fn accept(&self) -> Option<(TcpStream, OwnedSemaphorePermit)> {
        let permit = Arc::clone(&self.room).acquire_owned().await.ok()?;
        match self.listener.accept().await {
            Ok((stream, _)) => Some((stream, permit)),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                None
            }
        }
    }
}

/// How a connection comes in.
#[derive(Debug, Clone)]
struct Entry {
    tls: Option<Arc<Tls>>,
    times: Times,
}

impl Entry {
    /// Serves one connection until it ends.
    async fn connect(self, stream: TcpStream, service: Router, end: CancellationToken) {
        // Answers are small and waited for.
        let _ = stream.set_nodelay(true);
        let times = self.times;
        let stream = Taken::new(stream, times.write);
        let ended = match &self.tls {
            None => converse(stream, service, times, end).await,
            Some(tls) => match self.shaken(tls, stream, &end).await {
                Some(stream) => converse(stream, service, times, end).await,
                None => return,
            },
        };
        if let Err(error) = ended {
            tracing::debug!(error, "a connection ended early");
        }
    }

    /// The connection after its handshake, if that was done in time.
    async fn shaken<T: AsyncRead + AsyncWrite + Unpin>(
        &self,
        tls: &Tls,
        stream: T,
        end: &CancellationToken,
    ) -> Option<TlsStream<T>> {
        let within = self.times.head;
        let shaken = tokio::time::timeout(within, tls.acceptor().accept(stream));
        match end.run_until_cancelled(shaken).await? {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => tracing::debug!(%error, "a handshake failed"),
            Err(_) => tracing::debug!(?within, "a handshake took too long"),
        }
        tls.handshake_failed();
        None
    }
}
