//! Reading requests, so that whatever is wrong with one is told as a problem document.

use axum::body::{Bytes, HttpBody};
use axum::extract::rejection::{BytesRejection, FailedToBufferBody};
use axum::extract::{FromRequest, FromRequestParts, MatchedPath, Path, Query, Request};
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::bounded::together;

use crate::nul::{self, Without};
use crate::problem::{Answer, Refusal};
use crate::shape::{Look, Shapes, Which};

/// Bytes of a body that says nothing.
const NOTHING_BYTES_MAX: usize = 64 * 1024;

/// How long a client may take to send a body, from its beginning to its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Within(pub Duration);

/// A body of JSON.
pub(crate) struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        if request.body().size_hint().exact() == Some(0) {
            return Err(empty());
        }
        if !is_json(request.headers()) {
            return Err(Refusal::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "content_type_unsupported",
                "the body must be JSON; send the header Content-Type: application/json",
            ));
        }
        check_plain(request.headers())?;
        let within = request.extensions().get::<Within>().copied();
        let shape = described(&request);
        let read = Bytes::from_request(request, state);
        let bytes = match within {
            Some(Within(time)) => tokio::time::timeout(time, read).await.map_err(|_| late(time))?,
            None => read.await,
        };
        let bytes = bytes.map_err(unread)?;
        if bytes.trim_ascii().is_empty() {
            return Err(empty());
        }
        // Serde would take a list for the fields in their order.
        if bytes.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
            return Err(Refusal::request(
                "the body is not as it should be: it is not a JSON object",
            ));
        }
        check_nul(&bytes)?;
        let read = together(|| serde_json::from_slice(&bytes));
        if let Some((shapes, shape)) = shape {
            // What nobody could read is told by whoever tried, who knows best what was meant.
            let look = if read.is_ok() { Look::Whole } else { Look::Lists };
            shapes.check(shape, look, &bytes)?;
        }
        read.map(Self).map_err(|error| unreadable::<T>(&bytes, &error))
    }
}

/// A request to an operation that takes no body. One that says nothing, `{}`, is let pass.
pub(crate) async fn without_body(request: Request) -> Answer<Request> {
    if request.body().size_hint().exact() == Some(0) {
        return Ok(request);
    }
    let within = request.extensions().get::<Within>().map_or(Duration::MAX, |within| within.0);
    let (parts, body) = request.into_parts();
    let wrong = || Refusal::request("there is no body here; leave out what was sent");
    let read = axum::body::to_bytes(body, NOTHING_BYTES_MAX);
    let bytes =
        tokio::time::timeout(within, read).await.map_err(|_| wrong())?.map_err(|_| wrong())?;
    let given: Map<String, Value> = match bytes.trim_ascii() {
        b"" => Map::new(),
        bytes => serde_json::from_slice(bytes).map_err(|_| wrong())?,
    };
    match given.keys().next() {
        None => Ok(Request::from_parts(parts, axum::body::Body::empty())),
        Some(field) => Err(Refusal::request(format!("there is no field {field:?} here, nor any"))),
    }
}

/// The shape that the description has for a body, among all of them.
fn described(request: &Request) -> Option<(Arc<Shapes>, Which)> {
    let shapes = request.extensions().get::<Arc<Shapes>>()?;
    let path = request.extensions().get::<MatchedPath>()?;
    let which = shapes.of_body(request.method().as_str(), path.as_str())?;
    Some((Arc::clone(shapes), which))
}

/// Refuses U+0000 in what a text of JSON names or says.
pub(crate) fn check_nul(bytes: &[u8]) -> Answer<()> {
    if nul::may_be_in(bytes) {
        let read = serde_json::from_slice::<Without>(bytes);
        read.map_err(|error| unreadable::<Without>(bytes, &error))?;
    }
    Ok(())
}

/// What is wrong with a body, and where. It is read once more for that: noting the place costs time.
fn unreadable<T: DeserializeOwned>(bytes: &[u8], error: &serde_json::Error) -> Refusal {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let place = together(|| serde_path_to_error::deserialize::<_, T>(&mut reader)).err();
    let place = place.map(|error| error.path().to_string()).filter(|place| place != ".");
    let index = place.as_deref().and_then(of_batch);
    let place = place.map(|place| format!("{place}: ")).unwrap_or_default();
    Refusal::request(format!("the body is not as it should be: {place}{error}")).of(index)
}

/// Which one of a batch a place in a body is within.
pub(crate) fn of_batch(place: &str) -> Option<usize> {
    let (batch, rest) = place.split_once('[')?;
    let (index, _) = rest.split_once(']')?;
    if ["jobs", "reports", "items"].contains(&batch) { index.parse().ok() } else { None }
}

fn unread(rejection: BytesRejection) -> Refusal {
    match rejection {
        BytesRejection::FailedToBufferBody(FailedToBufferBody::LengthLimitError(_)) => {
            Refusal::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "body_too_large",
                "the body has too many bytes",
            )
        }
        other => Refusal::request(format!("the body could not be read: {other}")),
    }
}

/// Nobody says of what kind nothing is.
fn empty() -> Refusal {
    Refusal::request(
        "the body is empty; send a JSON object, {} if there is nothing to say, with the header Content-Type: \
         application/json",
    )
}

fn late(time: Duration) -> Refusal {
    let detail = format!("the body did not come within {time:?}; send it faster, or in parts");
    Refusal::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", detail)
}

/// Refuses a body that is compressed, or coded otherwise: it would be taken for damaged JSON.
fn check_plain(headers: &HeaderMap) -> Answer<()> {
    let codings = headers.get_all(header::CONTENT_ENCODING).iter();
    let codings = codings.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let mut codings = codings.map(|coding| String::from_utf8_lossy(coding.trim_ascii()));
    match codings.find(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity")) {
        None => Ok(()),
        Some(coding) => Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "content_encoding_unsupported",
            format!("a body in the Content-Encoding {coding:?} is not read; send it as it is"),
        )),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
        || (essence.len() > 5 && essence.to_ascii_lowercase().ends_with("+json"))
}

/// What stands behind the question mark.
pub(crate) struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let read = Query::<T>::from_request_parts(parts, state).await;
        read.map(|Query(params)| Self(params)).map_err(|error| {
            Refusal::request(format!("the query is not as it should be: {}", error.body_text()))
        })
    }
}

/// A name or id in the path.
pub(crate) struct Named<T>(pub T);

impl<T, S> FromRequestParts<S> for Named<T>
where
    T: FromStr,
    T::Err: std::fmt::Display,
    S: Send + Sync,
{
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|error| Refusal::request(error.body_text()))?;
        text.parse().map(Self).map_err(|error| Refusal::request(format!("in the path: {error}")))
    }
}

/// Several names or ids in the path.
pub(crate) struct Names<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Names<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let read = Path::<T>::from_request_parts(parts, state).await;
        read.map(|Path(names)| Self(names)).map_err(|error| Refusal::request(error.body_text()))
    }
}

/// Reads a document of which nothing may be left over, however deep: what is misspelt must not pass for nothing. The
/// types pass over what they do not know, because stores keep them, and an older process reads what a newer one wrote.
pub(crate) fn understood<T: DeserializeOwned + Serialize>(what: &str, given: &Value) -> Answer<T> {
    let wrong = |why: String| Refusal::request(format!("{what}: {why}"));
    let read = T::deserialize(given).map_err(|error| wrong(error.to_string()))?;
    let known = serde_json::to_value(&read).map_err(|error| Refusal::internal(&error))?;
    left_over(given, &known).map_or(Ok(read), |why| Err(wrong(why)))
}

/// The first field that is given and was not understood.
fn left_over(given: &Value, known: &Value) -> Option<String> {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => given.iter().find_map(|(name, value)| {
            let Some(own) = known.get(name) else {
                let names: Vec<_> = known.keys().map(String::as_str).collect();
                return Some(format!("there is no {name:?}; there are {}", names.join(", ")));
            };
            left_over(value, own)
        }),
        (Value::Array(given), Value::Array(known)) => {
            given.iter().zip(known).find_map(|(value, own)| left_over(value, own))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;
    use futures::StreamExt;
    use tidemill_core::wire::work::OutcomeBody;
    use tokio::time::{Instant, interval};

    const EVERY: Duration = Duration::from_secs(1);
    const WITHIN: Duration = Duration::from_secs(30);

    /// A body that comes byte by byte, one a second, and never rests for longer.
    async fn trickled(text: &'static str) -> Result<Value, Refusal> {
        let bytes = futures::stream::unfold(interval(EVERY), |mut every| async {
            every.tick().await;
            Some(((), every))
        });
        let bytes = bytes.zip(futures::stream::iter(text.as_bytes().chunks(1)));
        let bytes = bytes.map(|((), byte)| Ok::<_, std::io::Error>(Bytes::from_static(byte)));
        let mut request = Request::new(axum::body::Body::from_stream(bytes));
        request.headers_mut().insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
        request.extensions_mut().insert(Within(WITHIN));
        Body::from_request(request, &()).await.map(|Body(value)| value)
    }

    #[tokio::test]
    async fn of_all_jobs_in_a_body_no_more_are_kept_than_one_may_have() {
        let lists = |lists: usize, each: usize, last: &str| {
            let jobs = r#"{"kind":"k"},"#.repeat(each);
            let list = format!(r#"{{"name":"s","jobs":[{jobs}{last}]}}"#);
            format!(r#"{{"done":{{"steps":[{}]}}}}"#, vec![list; lists].join(","))
        };
        let read = async |text: String| {
            let request = Request::new(axum::body::Body::from(text));
            let (mut parts, body) = request.into_parts();
            parts.headers.insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
            let read = Body::from_request(Request::from_parts(parts, body), &()).await;
            let Body(OutcomeBody::Done { steps, .. }) = read.unwrap() else { panic!("it is done") };
            let all = steps.into_iter().map(|step| step.jobs.all().map(|jobs| jobs.len()));
            all.sum::<Result<usize, _>>().map_err(|error| error.code())
        };
        assert_eq!(read(lists(5, 9_999, r#"{"kind":"k"}"#)).await, Ok(50_000));
        assert_eq!(read(lists(6, 9_999, r#"{"kind":"k"}"#)).await, Err("batch_too_large"));
        assert_eq!(read(lists(1, 50_000, r#"{"no":"job"}"#)).await, Err("batch_too_large"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_trickles_has_as_long_as_one_that_stands_still() {
        let start = Instant::now();
        assert_eq!(trickled(r#"{"kind":"k"}"#).await.unwrap()["kind"], "k");
        assert!(start.elapsed() < WITHIN);
        let start = Instant::now();
        let slow = trickled(r#"{"kind":"k","payload":"far too much for half a minute"}"#).await;
        let told = slow.unwrap_err();
        assert!(format!("{told:?}").contains("body_too_slow"), "{told:?}");
        assert_eq!(told.into_response().status(), StatusCode::REQUEST_TIMEOUT);
        assert_eq!(start.elapsed(), WITHIN, "no byte gives it more time");
    }
}
