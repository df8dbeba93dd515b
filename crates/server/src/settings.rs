//! How a server listens, and what it bears. Everything has a limit with a unit.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tidemill::Reach;
use tidemill_core::webhook::target::Policy;

use crate::tls::TlsFiles;

/// Whether callers must show who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// No: whoever can reach it may do everything. Only on addresses of this machine.
    Open,
    /// Each request shows a credential, and does what that is for.
    Credentials,
}

/// The choices of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it listens. Without credentials, only addresses of this machine are allowed.
    pub listen: SocketAddr,
    /// Who may call it.
    pub access: Access,
    /// The certificate and key it shows; without them it speaks plain HTTP.
    pub tls: Option<TlsFiles>,
    /// How often it looks whether these files have changed.
    pub tls_look: Duration,
    /// Names under which it is reached, besides `localhost` and its address: a request for another host is refused.
    pub hosts: Vec<String>,
    /// Pages of other origins that may call it; none is allowed unless named.
    pub origins: Vec<String>,
    /// Where webhooks may point, besides the public internet over https.
    pub webhooks: Policy,
    /// A request's body may have so many bytes.
    pub body_bytes_max: usize,
    /// Connections at once; others wait until one is closed.
    pub connections_max: usize,
    /// How long a client may take to send the head of a request, and for the handshake of TLS before the first. So long
    /// a connection is kept for the next request, too: who uses one again lets it go sooner.
    pub head_timeout: Duration,
    /// How long a client may take nothing of what is sent to it, or leave a sign of life unanswered over HTTP/2, before
    /// its connection is closed.
    pub write_timeout: Duration,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// The longest wait for a job that may be asked for.
    pub wait_max: Duration,
    /// Streams that are followed at once, over SSE and WebSockets; others are refused, so that there is always room
    /// for requests. Connections that became WebSockets are counted here alone.
    pub streams_max: usize,
    /// How often one who follows a stream is sent a sign of life, and a client of HTTP/2 that says nothing is asked for
    /// one.
    pub heartbeat: Duration,
    /// How long a stream is followed before the client has to come again, and show who it is.
    pub stream_for: Duration,
    /// How far one request goes that walks through the whole store, as for keys; the next goes on there.
    pub reach: Reach,
    /// How long requests under way may take when the server stops.
    pub drain: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8384)),
            access: Access::Open,
            tls: None,
            tls_look: Duration::from_secs(5),
            hosts: Vec::new(),
            origins: Vec::new(),
            webhooks: Policy::default(),
            body_bytes_max: 16 * 1024 * 1024,
            connections_max: 20_000,
            head_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            wait_max: Duration::from_mins(1),
            streams_max: 15_000,
            heartbeat: Duration::from_secs(15),
            stream_for: Duration::from_hours(1),
            reach: Reach::default(),
            drain: Duration::from_secs(10),
        }
    }
}
