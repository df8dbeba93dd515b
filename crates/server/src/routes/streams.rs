//! The live output of a job: as server-sent events, and with messages in the other direction over a WebSocket.
//!
//! Both are handed what one reader of this process reads (`tidemill::Follow`); who is slow reads the store for himself
//! when there is room to write again. They last a while, end with the job or the server, and are resumed by number.

pub(crate) mod live;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Deserialize;
use tidemill::{Event, Follow, JobId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::api::App;
use crate::extract::{Named, Params};
use crate::problem::{Answer, Problem, Refusal};
use crate::settings::Settings;

/// How long a client waits before it comes again.
const COME_AGAIN: Duration = Duration::from_secs(1);
/// Behind the number in the id of the last event.
const END: &str = ".end";

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(stream)).routes(routes!(live::live))
}

/// What those who follow streams share.
#[derive(Debug)]
pub(crate) struct Streams {
    room: Arc<Semaphore>,
    /// The server stops.
    stop: CancellationToken,
    /// WebSockets, which the server of HTTP does not know any more.
    pub(crate) lives: TaskTracker,
}

impl Streams {
    pub(crate) fn new(settings: &Settings, stop: CancellationToken) -> Self {
        let room = Arc::new(Semaphore::new(settings.streams_max));
        Self { room, stop, lives: TaskTracker::new() }
    }

    /// A place for one more.
    fn place(&self, settings: &Settings) -> Answer<Place> {
        let taken = Arc::clone(&self.room).try_acquire_owned().map_err(|_| {
            let detail =
                format!("{} streams are followed here, and no more may be", settings.streams_max);
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "streams_too_many", detail).again_in(5)
        })?;
        let until = Instant::now() + settings.stream_for;
        Ok(Place { _taken: taken, stop: self.stop.clone(), until })
    }
}

/// The place of one who follows, and until when it is his.
struct Place {
    _taken: OwnedSemaphorePermit,
    stop: CancellationToken,
    until: Instant,
}

impl Place {
    /// Completes when it is to be left: the server stops, or the time is over.
    async fn leave(&self) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep_until(self.until) => {}
        }
    }
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct From {
    /// The number of the last chunk that was seen; 0, or nothing: from the beginning. `Last-Event-ID` goes before it.
    after: Option<u64>,
}

/// An event, as it is sent.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "it describes what is written by hand")]
struct StreamEvent {
    /// The number of its chunk; what is ephemeral has none.
    id: Option<String>,
    /// `progress`, `log`, `text` or `end`.
    event: String,
    /// JSON: what a worker sends as `said` to the stream of its job; of `end`, the `state` and any `error`.
    data: String,
}

/// Follows the output of a job, as server-sent events: first what is kept, then what comes, and at last how it ended.
///
/// Each event has the number of its chunk as its id, so a client that was cut off comes again with `Last-Event-ID` and
/// misses nothing, at any server of the same store, as long as the job is kept. What is ephemeral has no id. The last
/// event is `end`; who comes again after it is told 204, unless a later attempt has said more.
#[utoipa::path(get, path = "/v1/jobs/{id}/stream", operation_id = "stream_job", tag = "jobs",
    params(
        ("id" = JobId, Path), From,
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that was seen"),
    ),
    responses(
        (status = 200, body = StreamEvent, content_type = "text/event-stream", description = "Events: `progress`, \
            `log`, `text`, and at last `end` with the `state`, and `error` if there is one"),
        (status = 204, description = "It has ended, and all of it was seen"),
        (status = 503, body = Problem, content_type = "application/problem+json", description = "Too many follow"),
    ))]
async fn stream(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<JobId>,
    Params(From { after }): Params<From>,
    headers: HeaderMap,
) -> Answer<Response> {
    let (follow, place) = begin(&app, &caller, id, seen(&headers)?, after).await?;
    let Some(follow) = follow else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let first = stream::once(async { Sent::default().retry(COME_AGAIN) });
    let events = first.chain(events(follow, place)).map(Ok::<_, Infallible>);
    let heartbeat = KeepAlive::new().interval(app.settings.heartbeat);
    let mut response = Sse::new(events).keep_alive(heartbeat).into_response();
    // A proxy that gathers what it passes on would hold events back.
    let unbuffered = HeaderName::from_static("x-accel-buffering");
    response.headers_mut().insert(unbuffered, HeaderValue::from_static("no"));
    Ok(response)
}

/// Where a client stands that was here before: the number it has seen, and whether it has seen the end.
fn seen(headers: &HeaderMap) -> Answer<Option<(u64, bool)>> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let (number, is_end) = text.strip_suffix(END).map_or((text, false), |number| (number, true));
    let refused =
        |_| Refusal::request(format!("Last-Event-ID {text:?} is not an id that a stream gave"));
    Ok(Some((number.parse().map_err(refused)?, is_end)))
}

/// Begins to follow; nothing, if the end was seen and is still the end.
async fn begin(
    app: &App,
    caller: &Caller,
    id: JobId,
    seen: Option<(u64, bool)>,
    after: Option<u64>,
) -> Answer<(Option<Follow>, Place)> {
    caller.check_job(app, id).await?;
    let place = app.streams.place(&app.settings)?;
    if let Some((number, true)) = seen {
        let view = app.mill.job(id).await?.ok_or(tidemill::Error::JobUnknown { id })?;
        // It may have been tried again meanwhile, and have said more.
        if view.state.is_final() && !app.mill.has_said_more(id, number).await? {
            return Ok((None, place));
        }
    }
    let after = seen.map(|(number, _)| number).or(after).unwrap_or(0);
    Ok((Some(app.mill.stream(id, after).await?), place))
}

/// The events until the end, or until the place is to be left; whoever is cut off comes again.
fn events(follow: Follow, place: Place) -> impl stream::Stream<Item = Sent> + Send {
    stream::unfold((follow, place), |(mut follow, place)| async move {
        let next = tokio::select! {
            next = follow.next() => next,
            () = place.leave() => return None,
        };
        match next {
            Ok(event) => Some((sent(&event?, follow.seen()), (follow, place))),
            Err(error) => {
                tracing::debug!(%error, "a stream was cut off");
                None
            }
        }
    })
}

fn sent(event: &Event, seen: u64) -> Sent {
    let told = Sent::default().event(event.word());
    let told = match event {
        Event::Chunk(chunk) => match chunk.number {
            Some(number) => told.id(number.to_string()),
            None => told,
        },
        Event::End(_) => told.id(format!("{seen}{END}")),
    };
    // What is said is text and numbers: it can always be written.
    told.json_data(event).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_events_are_understood() {
        let seen = |id: &str| {
            let value = HeaderValue::from_str(id).unwrap_or(HeaderValue::from_static(""));
            seen(&HeaderMap::from_iter([(HeaderName::from_static("last-event-id"), value)]))
                .ok()
                .flatten()
        };
        assert_eq!(seen("17"), Some((17, false)));
        assert_eq!(seen("17.end"), Some((17, true)));
        for wrong in ["", "x", "-1", ".end", "17.", "99999999999999999999"] {
            assert_eq!(seen(wrong), None, "{wrong:?}");
        }
    }
}
