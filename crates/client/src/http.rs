//! The one place that speaks HTTP: a request in, a value or the server's own error out.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_core::problem::Problem;

use crate::error::{Error, Result};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer may take; what waits for something says how long, and has that besides.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// Of an answer that is no problem document, so much is shown.
const SHOWN_CHARS_MAX: usize = 200;
/// What stands for itself in a segment of a path.
const SEGMENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':');

/// A Tidemill server. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Client(Arc<Wire>);

#[derive(Debug)]
struct Wire {
    /// Without a slash at its end.
    url: String,
    http: reqwest::Client,
}

/// What a client is made of.
#[derive(Clone)]
#[must_use]
pub struct Builder {
    url: String,
    token: Option<String>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Builder {
    /// The secret of a credential, as `tidemill token create` shows it.
    pub fn token(self, secret: impl Into<String>) -> Self {
        Self { token: Some(secret.into()), ..self }
    }

    /// Makes the client. It connects when it is first asked for something.
    pub fn build(self) -> Result<Client> {
        let Self { url, token } = self;
        let invalid = |reason: String| Error::ClientInvalid { url: url.clone(), reason };
        let parsed = reqwest::Url::parse(&url).map_err(|error| invalid(error.to_string()))?;
        if parsed.scheme() != "http" || parsed.host_str().is_none() {
            let reason = "it begins with http:// and names a host; TLS is the business of what stands before it";
            return Err(invalid(reason.to_owned()));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(invalid("a token is given apart, not in the URL".to_owned()));
        }
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(token) = token {
            let bearer = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
            let mut bearer = bearer.map_err(|_| invalid("its token is none".to_owned()))?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .user_agent(concat!("tidemill-client/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            // A redirect would carry the token elsewhere.
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .build()
            .map_err(|error| invalid(error.to_string()))?;
        Ok(Client(Arc::new(Wire { url: url.trim_end_matches('/').to_owned(), http })))
    }
}

impl Client {
    /// The server at this URL, for whoever needs no credential there.
    pub fn new(url: &str) -> Result<Self> {
        Self::builder(url).build()
    }

    /// The server at this URL, with choices.
    pub fn builder(url: &str) -> Builder {
        Builder { url: url.to_owned(), token: None }
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

    /// A request; [`value`](Self::value) or [`answer`](Self::answer) sends it.
    pub(crate) fn request(&self, method: Method, path: &Path) -> RequestBuilder {
        self.0.http.request(method, format!("{}{}", self.0.url, path.0)).timeout(ANSWER_TIMEOUT)
    }

    /// The same for a request that the server answers only after `wait`, or sooner.
    pub(crate) fn patient(&self, method: Method, path: &Path, wait: Duration) -> RequestBuilder {
        self.request(method, path).timeout(ANSWER_TIMEOUT + wait)
    }

    /// Sends it; answers what it came to.
    pub(crate) async fn value<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T> {
        self.read(self.answer(request).await?).await
    }

    /// What an answer says.
    pub(crate) async fn read<T: DeserializeOwned>(&self, response: Response) -> Result<T> {
        let bytes = response.bytes().await.map_err(|error| self.unreachable(&error))?;
        serde_json::from_slice(&bytes).map_err(|error| self.unreadable(error.to_string()))
    }

    /// Sends it; answers a success, or the server's own error.
    pub(crate) async fn answer(&self, request: RequestBuilder) -> Result<Response> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = after.and_then(|text| text.parse().ok()).map(Duration::from_secs);
        let bytes = response.bytes().await.map_err(|error| self.unreachable(&error))?;
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
            502..=504 => Error::Unreachable { url: self.0.url.clone(), reason },
            _ => self.unreadable(reason),
        }
    }

    pub(crate) fn unreadable(&self, reason: String) -> Error {
        Error::Unreadable { url: self.0.url.clone(), reason }
    }

    pub(crate) fn unreachable(&self, error: &reqwest::Error) -> Error {
        // Without the URL, which may have names in its path; with its causes, which say what it was.
        let (mut reason, mut cause) = (String::new(), std::error::Error::source(error));
        while let Some(error) = cause {
            let colon = if reason.is_empty() { "" } else { ": " };
            let _ = write!(reason, "{colon}{error}");
            cause = error.source();
        }
        if reason.is_empty() {
            reason =
                if error.is_timeout() { "no answer in time".to_owned() } else { error.to_string() };
        }
        Error::Unreachable { url: self.0.url.clone(), reason }
    }
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
        for url in ["", "postgres://host/db", "http://", "http://me:secret@host", "https://host"] {
            let error = Client::new(url).unwrap_err();
            assert_eq!(error.code(), "client_invalid", "{url}: {error}");
        }
        let builder = Client::builder("http://host").token("tm_secret");
        assert!(
            !format!("{builder:?} {:?}", builder.clone().build().unwrap()).contains("tm_secret")
        );
    }
}
