//! Requests as they are put together, the connections they go over, and their answers.
//!
//! Connections are kept and used again. A TLS provider is named here and nowhere installed, so that a client changes
//! nothing for others in the same program. No redirect is followed, which would carry the token elsewhere, and no
//! proxy is asked.

use std::error::Error;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde::Serialize;
use tokio::time::Instant;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Well below what servers have for connections that say nothing (ours 10 s), and what stands before them: a request
/// must not meet their end on the way.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no answer, for people.
pub(crate) type Reason = String;

/// Sends requests, over connections that are kept.
#[derive(Debug)]
pub(crate) struct Wire {
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Those of every request; what is a secret among them is marked so.
    headers: HeaderMap,
}

impl Wire {
    /// Sends these headers with every request. For `https` it trusts what this machine does, and the certificates of
    /// these PEM texts.
    pub(crate) fn new(
        headers: HeaderMap,
        is_secure: bool,
        trusted: &[String],
    ) -> Result<Self, Reason> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(HttpsConnector::from((http, tls(is_secure, trusted)?)));
        Ok(Self { pool, headers })
    }

    /// The request as HTTP has it, or why it cannot be said there.
    pub(crate) fn put_together(&self, request: Request) -> Result<Sendable, Reason> {
        let Request { head, body, headers, timeout } = request;
        let mut request = head?.body(Full::new(body)).map_err(|error| error.to_string())?;
        let all = request.headers_mut();
        all.clone_from(&self.headers);
        all.extend(headers);
        Ok(Sendable { request, timeout })
    }

    /// Sends it; its time is over when the answer was not read by then.
    pub(crate) async fn send(&self, sendable: Sendable) -> Result<Answer, Reason> {
        let Sendable { request, timeout } = sendable;
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let answer = within(until, self.pool.request(request)).await?;
        let (head, body) = answer.map_err(|error| reason(&error))?.into_parts();
        Ok(Answer { status: head.status, headers: head.headers, body, until })
    }
}

/// What can be sent.
pub(crate) struct Sendable {
    request: http::Request<Full<Bytes>>,
    timeout: Option<Duration>,
}

/// What is to be sent. What cannot be said in HTTP is told when it is put together.
#[must_use]
pub(crate) struct Request {
    head: Result<http::request::Builder, Reason>,
    headers: HeaderMap,
    body: Bytes,
    timeout: Option<Duration>,
}

impl Request {
    /// A request that has a query, if any, once; the URL has none.
    pub(crate) fn new(method: Method, url: &str) -> Self {
        let head = Ok(http::Request::builder().method(method).uri(url));
        Self { head, headers: HeaderMap::new(), body: Bytes::new(), timeout: None }
    }

    /// Asks with these fields.
    pub(crate) fn query(mut self, fields: &impl Serialize) -> Self {
        self.head = self.head.and_then(|head| {
            let fields = serde_urlencoded::to_string(fields).map_err(|error| error.to_string())?;
            match head.uri_ref() {
                Some(uri) if !fields.is_empty() => {
                    let uri = format!("{uri}?{fields}");
                    Ok(head.uri(uri))
                }
                _ => Ok(head),
            }
        });
        self
    }

    /// Says this.
    pub(crate) fn json(mut self, body: &impl Serialize) -> Self {
        match serde_json::to_vec(body) {
            Ok(body) => self.body = body.into(),
            Err(error) => self.head = Err(error.to_string()),
        }
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self
    }

    /// With this header, in place of what every request has there.
    pub(crate) fn header(mut self, name: HeaderName, value: &str) -> Self {
        match HeaderValue::from_str(value) {
            Ok(value) => drop(self.headers.insert(name, value)),
            Err(error) => self.head = Err(format!("the header {name}: {error}")),
        }
        self
    }

    /// Its answer is to be read in this time.
    pub(crate) fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }
}

/// What was answered; its body is read by whoever wants it.
#[derive(Debug)]
pub(crate) struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Incoming,
    until: Option<Instant>,
}

impl Answer {
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// A header, if it is there and is text.
    pub(crate) fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// What comes next of its body; nothing at its end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Reason> {
        while let Some(frame) = within(self.until, self.body.frame()).await? {
            // What is no data is trailers, which say nothing here.
            if let Ok(bytes) = frame.map_err(|error| reason(&error))?.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// All of its body.
    pub(crate) async fn bytes(self) -> Result<Bytes, Reason> {
        let read = within(self.until, self.body.collect()).await?;
        Ok(read.map_err(|error| reason(&error))?.to_bytes())
    }
}

async fn within<T>(until: Option<Instant>, future: impl Future<Output = T>) -> Result<T, Reason> {
    match until {
        Some(until) => {
            let timely = tokio::time::timeout_at(until, future).await;
            timely.map_err(|_| "no answer in time".to_owned())
        }
        None => Ok(future.await),
    }
}

/// What went wrong, with its causes, which say what it was. They have no URL in them.
fn reason(error: &(dyn Error + 'static)) -> Reason {
    let (mut reason, mut last) = (String::new(), String::new());
    let causes = std::iter::successors(error.source(), |error| Error::source(*error));
    for text in causes.map(ToString::to_string) {
        if text != last {
            let colon = if reason.is_empty() { "" } else { ": " };
            let _ = write!(reason, "{colon}{text}");
        }
        last = text;
    }
    if reason.is_empty() { error.to_string() } else { reason }
}

/// Whom to believe that they are who they say. The certificates of this machine are read only where they are used.
fn tls(is_secure: bool, trusted: &[String]) -> Result<ClientConfig, Reason> {
    let mut roots = RootCertStore::empty();
    if is_secure {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    for pem in trusted {
        let unreadable = |why: &dyn ToString| {
            format!("a certificate to trust cannot be read: {}", why.to_string())
        };
        let known = roots.len();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|error| unreadable(&error))?;
            roots.add(certificate).map_err(|error| unreadable(&error))?;
        }
        if roots.len() == known {
            return Err(unreadable(&"there is none in its PEM text"));
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_let_go_before_the_server_closes_them() {
        let kept_there = tidemill_server::Settings::default().head_timeout;
        assert!(IDLE_TIMEOUT * 2 <= kept_there, "{IDLE_TIMEOUT:?} is too near to {kept_there:?}");
    }
}
