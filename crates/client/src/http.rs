//! The one place that speaks HTTP: a request in, a value or the server's own error out.

mod wire;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tidemill_core::problem::Problem;
use url::Url;

use crate::error::{Error, Result};

pub(crate) use self::wire::{Answer, Request};
use self::wire::{Reason, Wire};

const AGENT: &str = concat!("tidemill-client/", env!("CARGO_PKG_VERSION"));
/// How rustls words that nobody whom it trusts has signed a certificate; another root may have the same name.
const UNTRUSTED: [&str; 2] = ["UnknownIssuer", "BadSignature"];
/// How long an answer may take; what waits for something says how long, and has that besides.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// One request waits so long at most; a server may have less patience, and is asked again.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(50);
/// Of an answer that is no problem document, so much is shown.
const SHOWN_CHARS_MAX: usize = 200;
/// The most rows of one page of a list.
pub(crate) const PAGE_MAX: usize = 1000;
/// What stands for itself in a segment of a path.
const SEGMENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':');

/// A Tidemill server. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Client(Arc<Far>);

/// The far end.
#[derive(Debug)]
struct Far {
    /// Without a slash at its end.
    url: String,
    wire: Wire,
}

/// What a client is made of.
#[derive(Clone)]
#[must_use]
pub struct Builder {
    url: String,
    token: Option<String>,
    trusted: Vec<String>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("url", &shown(&self.url)).finish_non_exhaustive()
    }
}

impl Builder {
    /// The secret of a credential, as `tidemill token create` shows it.
    pub fn token(self, secret: impl Into<String>) -> Self {
        Self { token: Some(secret.into()), ..self }
    }

    /// Trusts the certificates of this PEM text besides those that this machine does.
    pub fn trust(mut self, pem: impl Into<String>) -> Self {
        self.trusted.push(pem.into());
        self
    }

    /// Makes the client. It connects when it is first asked for something.
    pub fn build(self) -> Result<Client> {
        let Self { url, token, trusted } = self;
        let invalid = |reason: Reason| Error::ClientInvalid { url: shown(&url), reason };
        let parsed = Url::parse(&url).map_err(|error| invalid(error.to_string()))?;
        if !matches!(parsed.scheme(), "http" | "https") || parsed.host_str().is_none() {
            return Err(invalid("it begins with http:// or https:// and names a host".to_owned()));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(invalid("a token is given apart, not in the URL".to_owned()));
        }
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(invalid("it ends with its path".to_owned()));
        }
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        if let Some(token) = token {
            let bearer = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
            let mut bearer = bearer.map_err(|_| invalid("its token is none".to_owned()))?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        let wire = Wire::new(headers, parsed.scheme() == "https", &trusted).map_err(invalid)?;
        let url = parsed.as_str().trim_end_matches('/').to_owned();
        Ok(Client(Arc::new(Far { url, wire })))
    }
}

impl Client {
    /// The server at this URL, for whoever needs no credential there.
    pub fn new(url: &str) -> Result<Self> {
        Self::builder(url).build()
    }

    /// The server at this URL, with choices.
    pub fn builder(url: &str) -> Builder {
        Builder { url: url.to_owned(), token: None, trusted: Vec::new() }
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &Path,
        query: &impl Serialize,
    ) -> Result<T> {
        self.value(self.request(Method::GET, path).query(query)).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &Path,
        body: &impl Serialize,
    ) -> Result<T> {
        self.value(self.request(Method::POST, path).json(body)).await
    }

    /// A request that has nothing to say beside its path.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, method: Method, path: &Path) -> Result<T> {
        self.value(self.request(method, path)).await
    }

    /// Sends it; what is answered has nothing that its sender does not know.
    pub(crate) async fn told(&self, request: Request) -> Result<()> {
        // Read to its end, so that the connection can be used again.
        let read = self.answer(request).await?.bytes().await;
        read.map(drop).map_err(|reason| self.unreachable(reason))
    }

    /// A request whose answer lasts: whoever reads it watches the time.
    pub(crate) fn lasting(&self, method: Method, path: &Path) -> Request {
        Request::new(method, &format!("{}{}", self.0.url, path.0))
    }

    /// A request; [`value`](Self::value) or [`answer`](Self::answer) sends it.
    pub(crate) fn request(&self, method: Method, path: &Path) -> Request {
        self.lasting(method, path).timeout(ANSWER_TIMEOUT)
    }

    /// The same for a request that the server answers only after `wait`, or sooner.
    pub(crate) fn patient(&self, method: Method, path: &Path, wait: Duration) -> Request {
        self.request(method, path).timeout(ANSWER_TIMEOUT + wait)
    }

    /// Sends it; answers what it came to.
    pub(crate) async fn value<T: DeserializeOwned>(&self, request: Request) -> Result<T> {
        self.read(self.answer(request).await?).await
    }

    /// What an answer says.
    pub(crate) async fn read<T: DeserializeOwned>(&self, answer: Answer) -> Result<T> {
        let bytes = answer.bytes().await.map_err(|reason| self.unreachable(reason))?;
        serde_json::from_slice(&bytes).map_err(|error| self.unreadable(error.to_string()))
    }

    /// Sends it; answers a success, or the server's own error.
    pub(crate) async fn answer(&self, request: Request) -> Result<Answer> {
        let unreachable = |reason| self.unreachable(reason);
        let sendable = self.0.wire.put_together(request);
        let sendable = sendable.map_err(|reason| Error::Unsendable { reason })?;
        let answer = self.0.wire.send(sendable).await.map_err(unreachable)?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let after = answer.header(RETRY_AFTER).and_then(|text| text.parse().ok());
        let retry_after = after.map(Duration::from_secs);
        let bytes = answer.bytes().await.map_err(unreachable)?;
        match serde_json::from_slice::<Problem>(&bytes) {
            Ok(problem) => Err(Error::Refused { problem: Box::new(problem), retry_after }),
            Err(_) => Err(self.stranger(status, &bytes)),
        }
    }

    /// Something that stands before the server has answered: a proxy, or another server.
    fn stranger(&self, status: StatusCode, bytes: &[u8]) -> Error {
        let text: String = String::from_utf8_lossy(bytes).chars().take(SHOWN_CHARS_MAX).collect();
        let reason = format!("it answered {status} and no problem document: {text:?}");
        match status.as_u16() {
            413 => too_large(reason),
            502..=504 => self.unreachable(reason),
            _ => self.unreadable(reason),
        }
    }

    pub(crate) fn unreadable(&self, reason: String) -> Error {
        Error::Unreadable { url: self.0.url.clone(), reason }
    }

    /// Nothing has come for too long.
    pub(crate) fn silent(&self) -> Error {
        self.unreachable("no answer in time".to_owned())
    }

    pub(crate) fn unreachable(&self, mut reason: Reason) -> Error {
        if UNTRUSTED.iter().any(|word| reason.contains(word)) {
            reason.push_str(
                " (its certificate is signed by nobody who is trusted here; name the file of the one who signed it: \
                 --ca-file FILE, or `trust` of the client)",
            );
        }
        Error::Unreachable { url: self.0.url.clone(), reason }
    }
}

/// A URL that may be anything, as it may be shown: without who asks and what they ask for, which may be secrets.
fn shown(url: &str) -> String {
    let (scheme, rest) = url.find("://").map_or(("", url), |at| url.split_at(at + 3));
    let (who, place) = rest.rsplit_once('@').map_or(("", rest), |(_, place)| ("…@", place));
    let place = place.split(['?', '#']).next().unwrap_or_default();
    format!("{scheme}{who}{place}")
}

/// What the server itself says of a body that is too large for it.
fn too_large(detail: String) -> Error {
    let (code, title) = ("body_too_large".to_owned(), "Payload Too Large".to_owned());
    let problem = Problem {
        uri: format!("urn:tidemill:{code}"),
        title,
        status: 413,
        detail,
        code,
        job: None,
        index: None,
        trace: None,
        unknown: false,
    };
    Error::Refused { problem: Box::new(problem), retry_after: None }
}

/// JSON that is sent as it is, digit by digit.
pub(crate) type Raw = Box<RawValue>;

/// This text, which must be JSON.
pub(crate) fn raw(text: &str) -> Result<Raw> {
    let parsed = RawValue::from_string(text.to_owned()).map_err(|error| {
        tidemill::Error::from(tidemill_core::Error::PayloadNotJson { reason: error.to_string() })
    });
    Ok(parsed?)
}

/// A path of the API; names in it are encoded.
pub(crate) struct Path(String);

/// The path of these segments, under `/v1`.
pub(crate) fn path<const N: usize>(segments: [&str; N]) -> Path {
    let mut path = "/v1".to_owned();
    for segment in segments {
        let _ = write!(path, "/{}", utf8_percent_encode(segment, SEGMENT));
    }
    Path(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_in_paths() {
        assert_eq!(path(["queues", "a/b c?", "why"]).0, "/v1/queues/a%2Fb%20c%3F/why");
        assert_eq!(path(["queues", "mail:eu"]).0, "/v1/queues/mail:eu");
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for url in [
            "",
            "http://",
            "sqlite:x",
            "postgres://host/db",
            "http://me:secret@host",
            "http://secret@host",
            "http://me:sec/secret@host",
            "http://me:sec?@secret@host",
            "postgres://me:secret@host/db",
            "postgres://host/db?password=secret",
            "me:secret@host",
            "http://host/?a=secret",
            "http://host/#secret",
        ] {
            let error = Client::new(url).unwrap_err();
            assert_eq!(error.code(), "client_invalid", "{url}: {error}");
            let told = format!("{error} {error:?} {:?}", Client::builder(url));
            assert!(!told.contains("sec"), "{told}");
        }
        let error = Client::new("postgres://me:pw@host:5432/db").unwrap_err().to_string();
        assert!(error.contains("postgres://…@host:5432/db"), "{error}");
        let error = Client::builder("https://host").trust("no certificate").build().unwrap_err();
        assert_eq!(error.code(), "client_invalid");
        let builder = Client::builder("https://host").token("tm_secret");
        assert!(
            !format!("{builder:?} {:?}", builder.clone().build().unwrap()).contains("tm_secret")
        );
    }
}
