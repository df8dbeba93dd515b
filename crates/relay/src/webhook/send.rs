//! One request to an address that was checked: resolve, check each address, connect to that very address.
//!
//! The name is resolved once, and what was found is what is called: a name that means something else a moment later
//! (rebinding) gains nothing. No redirect is followed, no proxy asked, no body of an answer read; everything has a
//! bound.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Request, Response, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName};
use thiserror::Error;
use tidemill_core::webhook::target::{Policy, Target};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Connecting, asking and the head of the answer, together.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);
/// Each address is given so long.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The head of an answer may have so many bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Addresses that are tried.
const ADDRESSES_MAX: usize = 4;

/// What was answered; nobody reads more than this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// The status.
    pub status: u16,
    /// How long it took from the first packet to the head of the answer.
    pub took_ms: u64,
    /// How long it asked to be left alone.
    pub retry_after: Option<Duration>,
}

impl Answered {
    /// Whether the message was taken.
    pub fn is_taken(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Why nothing was answered.
#[derive(Debug, Error)]
pub enum Trouble {
    /// It may not be called: trying again changes nothing.
    #[error(transparent)]
    Refused(#[from] tidemill_core::Error),
    /// It could not be reached, or did not answer.
    #[error("{host}: {reason} after {took_ms} ms")]
    Failed {
        /// The host of the URL; not the URL, which may carry what is nobody's business.
        host: String,
        /// What went wrong.
        reason: String,
        /// How long it took.
        took_ms: u64,
    },
}

type Resolving<'a> = Pin<Box<dyn Future<Output = std::io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Who knows the addresses of names.
pub trait Resolve: Send + Sync {
    /// All addresses of a name.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Resolving<'a>;
}

/// This machine's own resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Resolve for System {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Resolving<'a> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// Sends.
#[derive(Clone)]
pub struct Sender {
    policy: Policy,
    resolver: Arc<dyn Resolve>,
    tls: TlsConnector,
    timeout: Duration,
}

impl Sender {
    /// One that calls what the policy lets it, and trusts the certificates that this machine does.
    pub fn new(policy: Policy) -> Self {
        Self::trusting(policy, [])
    }

    /// One that trusts these certificates besides.
    pub fn trusting(
        policy: Policy,
        certificates: impl IntoIterator<Item = CertificateDer<'static>>,
    ) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots.add_parsable_certificates(certificates);
        let provider = Arc::new(default_provider());
        // Both versions are the provider's own, so there is nothing to fail.
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map(|builder| builder.with_root_certificates(roots).with_no_client_auth());
        #[expect(clippy::expect_used, reason = "ring has TLS 1.2 and 1.3")]
        let tls = TlsConnector::from(Arc::new(config.expect("ring has TLS 1.2 and 1.3")));
        Self { policy, resolver: Arc::new(System), tls, timeout: SEND_TIMEOUT }
    }

    /// The same with another resolver.
    #[must_use]
    pub fn resolver(self, resolver: impl Resolve + 'static) -> Self {
        Self { resolver: Arc::new(resolver), ..self }
    }

    /// The same with less patience than 20 s.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Posts a body, once.
    pub async fn send(
        &self,
        url: &str,
        headers: &[(&'static str, String)],
        body: String,
    ) -> Result<Answered, Trouble> {
        let (target, began) = (Target::parse(url)?, Instant::now());
        let took_ms = || u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let failed = |reason: String| {
            let host = target.host.clone();
            Trouble::Failed { host, reason, took_ms: took_ms() }
        };
        let request = request(&target, headers, body).map_err(|e| failed(e.to_string()))?;
        let response = timeout(self.timeout, self.ask(&target, request)).await;
        let response = match response {
            Err(_) => return Err(failed("no answer".to_owned())),
            Ok(Err(Why::Refused(error))) => return Err(Trouble::Refused(error)),
            Ok(Err(Why::Failed(reason))) => return Err(failed(reason)),
            Ok(Ok(response)) => response,
        };
        let after = response.headers().get(header::RETRY_AFTER).and_then(|v| v.to_str().ok());
        let retry_after = after.and_then(|text| text.parse().ok()).map(Duration::from_secs);
        Ok(Answered { status: response.status().as_u16(), took_ms: took_ms(), retry_after })
    }

    async fn ask(
        &self,
        target: &Target,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Why> {
        let stream = self.connect(target).await?;
        if !target.is_secure {
            return exchange(stream, request).await;
        }
        let name = target.host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(name).map_err(|error| Why::Failed(error.to_string()))?;
        let stream = self.tls.connect(name, stream).await;
        exchange(stream.map_err(|error| Why::Failed(format!("TLS: {error}")))?, request).await
    }

    /// Connects to an address of the target's. If one of them may not be called, none is: who puts one of those under a
    /// name means no good.
    async fn connect(&self, target: &Target) -> Result<TcpStream, Why> {
        let addresses = match target.address {
            Some(address) => vec![SocketAddr::new(address, target.port)],
            None => self
                .resolver
                .resolve(&target.host, target.port)
                .await
                .map_err(|error| Why::Failed(format!("its name is not found: {error}")))?,
        };
        for address in &addresses {
            self.policy.check(target, address.ip())?;
        }
        let mut last = "its name has no address".to_owned();
        for address in addresses.into_iter().take(ADDRESSES_MAX) {
            match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = format!("it cannot be reached: {error}"),
                Err(_) => "it cannot be reached in time".clone_into(&mut last),
            }
        }
        Err(Why::Failed(last))
    }
}

/// Why it was not asked, or did not answer.
enum Why {
    Refused(tidemill_core::Error),
    Failed(String),
}

impl From<tidemill_core::Error> for Why {
    fn from(error: tidemill_core::Error) -> Self {
        Self::Refused(error)
    }
}

fn request(
    target: &Target,
    headers: &[(&'static str, String)],
    body: String,
) -> http::Result<Request<Full<Bytes>>> {
    let url = &target.url;
    let path = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let host = match url.port() {
        Some(port) => format!("{}:{port}", target.host),
        None => target.host.clone(),
    };
    let request = Request::post(path)
        .header(header::HOST, host)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, concat!("tidemill/", env!("CARGO_PKG_VERSION")));
    let request =
        headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
    request.body(Full::new(Bytes::from(body)))
}

/// Asks, and reads the head of the answer; the connection is closed with what is left of it.
async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Why>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: hyper::Error| Why::Failed(format!("it does not answer: {error}"));
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake::<_, Full<Bytes>>(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    let mut asking = std::pin::pin!(sender.send_request(request));
    let answer = tokio::select! {
        answer = &mut asking => answer,
        // Who closes after the answer has answered all the same.
        _ = connection => asking.await,
    };
    answer.map_err(failed)
}
