//! The same over a WebSocket, with messages in the other direction: each does what an operation of HTTP does, and is
//! for those who may call that.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidemill::audit::AuditEnd;
use tidemill::{CancelAnswer, Event, Follow, JobId, Priority, Signal};
use tidemill_core::access::Act;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Error as Broken;

use super::{From, Place, begin};
use crate::access::Caller;
use crate::api::App;
use crate::audit::Begun;
use crate::extract::{Named, Params, check_nul};
use crate::problem::{Answer, Problem, Refusal};

/// What a client may say at once.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// A client that takes nothing for so long is cut off.
const STALL_MAX: Duration = Duration::from_secs(30);
/// A client that was not heard for so many heartbeats is gone.
const SILENT_BEATS_MAX: u32 = 3;
/// A client that was told the end has so long to say that it heard.
const FAREWELL_MAX: Duration = Duration::from_secs(2);

/// What a client may say. Which of the fields it needs depends on what is to be done.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    #[serde(rename = "do")]
    act: Word,
    /// What the answer is known by.
    #[serde(rename = "ref")]
    mark: Option<String>,
    /// Why it is called off.
    reason: Option<String>,
    /// The name of the signal.
    name: Option<String>,
    /// What the signal carries.
    payload: Option<Box<RawValue>>,
    /// Sent again under the same id, it is heard once.
    id: Option<String>,
    approved: Option<bool>,
    priority: Option<Priority>,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    /// Calls the job off.
    Cancel,
    /// Lets it wait in another band.
    SetPriority,
    /// Sends a signal to the run.
    Signal,
    /// Answers what the run asked: the signal `answer`, or one of another name.
    Answer,
    /// Approves, or not: the signal `approve`, or one of another name, that carries true or false.
    Approve,
}

impl Word {
    /// The fields that go with it.
    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Cancel => &["reason"],
            Self::SetPriority => &["priority"],
            Self::Signal | Self::Answer => &["name", "payload", "id"],
            Self::Approve => &["name", "approved", "id"],
        }
    }
}

impl Order {
    /// Refuses fields that go with other words: a payload would not say what is approved.
    fn check(&self) -> Answer<()> {
        let given = [
            ("reason", self.reason.is_some()),
            ("name", self.name.is_some()),
            ("payload", self.payload.is_some()),
            ("id", self.id.is_some()),
            ("approved", self.approved.is_some()),
            ("priority", self.priority.is_some()),
        ];
        let known = self.act.fields();
        match given.iter().find(|(field, is_given)| *is_given && !known.contains(field)) {
            Some((field, _)) => {
                let known = known.join("`, `");
                Err(Refusal::request(format!("`{field}` does not go with it; `{known}` would")))
            }
            None => Ok(()),
        }
    }
}

/// What is read of a message that cannot be read.
#[derive(Debug, Deserialize)]
struct Mark {
    #[serde(rename = "ref")]
    mark: Option<String>,
}

/// What a message is answered.
#[derive(Debug, Serialize)]
struct Told<'a> {
    event: &'a str,
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    mark: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<CancelAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
}

/// Follows the output of a job over a WebSocket, and takes messages to it.
///
/// The events are those of `stream`, a document each. Messages are documents too: `{"do":"cancel","reason":"…"}`,
/// `{"do":"set_priority","priority":"high"}`, `{"do":"signal","name":"…","payload":…,"id":"…"}`,
/// `{"do":"answer","payload":…}`, `{"do":"approve","approved":true}`; each is answered with `{"event":"taken"}` or
/// `{"event":"refused","code":"…"}`, and with its `ref` if it has one.
#[utoipa::path(get, path = "/v1/jobs/{id}/live", operation_id = "live_job", tag = "jobs",
    params(("id" = JobId, Path), From), responses(
        (status = 101, description = "From here on it is a WebSocket"),
        (status = 426, body = Problem, content_type = "application/problem+json", description = "It was not asked for"),
        (status = 503, body = Problem, content_type = "application/problem+json", description = "Too many follow"),
    ))]
pub(super) async fn live(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<JobId>,
    Params(From { after }): Params<From>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Answer<Response> {
    let upgrade = upgrade.map_err(|why| {
        let detail = format!(
            "this is a WebSocket, and the request does not ask for one: {}",
            why.body_text()
        );
        Refusal::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", detail)
    })?;
    let (follow, place) = begin(&app, &caller, id, None, after).await?;
    let follow = follow.ok_or(tidemill::Error::JobUnknown { id })?;
    let upgrade = upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX);
    // Counted from here on, so that a server that stops waits for it.
    let counted = app.streams.lives.token();
    Ok(upgrade.on_upgrade(move |socket| async move {
        let live = Live { app, caller, id, socket, heard_at: Instant::now() };
        if let Err(error) = live.run(follow, place).await {
            tracing::debug!(%id, %error, "a WebSocket ended early");
        }
        drop(counted);
    }))
}

/// One connection.
struct Live {
    app: Arc<App>,
    caller: Caller,
    id: JobId,
    socket: WebSocket,
    heard_at: Instant,
}

impl Live {
    async fn run(mut self, mut follow: Follow, place: Place) -> Result<(), axum::Error> {
        let heartbeat = self.app.settings.heartbeat;
        let mut beats = tokio::time::interval_at(Instant::now() + heartbeat, heartbeat);
        loop {
            tokio::select! {
                next = follow.next() => match next {
                    Ok(Some(event)) => {
                        self.send_document(&event).await?;
                        if matches!(event, Event::End(_)) {
                            return self.close(close_code::NORMAL, "the job has ended").await;
                        }
                    }
                    Ok(None) => return self.close(close_code::NORMAL, "the job has ended").await,
                    Err(error) => return self.close(close_code::AGAIN, error.code()).await,
                },
                message = self.socket.recv() => match message {
                    Some(message) => {
                        self.heard_at = Instant::now();
                        let message = match message {
                            Ok(message) => message,
                            Err(error) => return self.break_off(error).await,
                        };
                        match message {
                            Message::Text(text) => {
                                if let Some(code) = self.take(&text).await? {
                                    return self.close(close_code::POLICY, code).await;
                                }
                            }
                            // Its answer is sent when more is read, of which there is none.
                            Message::Close(_) => {
                                let rest = async { while let Some(Ok(_)) = self.socket.recv().await {} };
                                tokio::time::timeout(FAREWELL_MAX, rest).await.ok();
                                return Ok(());
                            }
                            Message::Binary(_) => {
                                return self.close(close_code::UNSUPPORTED, "messages are text").await;
                            }
                            Message::Ping(_) | Message::Pong(_) => {}
                        }
                    }
                    None => return Ok(()),
                },
                _ = beats.tick() => {
                    if self.heard_at.elapsed() > heartbeat * SILENT_BEATS_MAX {
                        return Ok(());
                    }
                    self.send(Message::Ping(axum::body::Bytes::new())).await?;
                }
                () = place.leave() => return self.close(close_code::RESTART, "come again").await,
            }
        }
    }

    /// Does what a message says, and answers it. Who may not send messages any more is told the code of that instead.
    async fn take(&mut self, text: &str) -> Result<Option<&'static str>, axum::Error> {
        // Serde would take a list for the fields in their order. No field is an object, so there are none within.
        if !text.trim_ascii_start().starts_with('{') {
            let refusal =
                Refusal::request("the message is not understood: it is not a JSON object");
            self.answer(None, Err(refusal)).await?;
            return Ok(None);
        }
        let (mark, done) = match serde_json::from_str::<Order>(text) {
            Ok(mut order) => {
                let mark = order.mark.take();
                let done = match self.admit().await {
                    Ok(()) => match check_nul(text.as_bytes()) {
                        Ok(()) => obey(&self.app, &self.caller, self.id, order).await,
                        Err(refusal) => Err(refusal),
                    },
                    Err(refusal) if refusal.is_final() => return Ok(Some(refusal.told().0)),
                    // The store is away: whether the caller may is not known, and nothing is done.
                    Err(refusal) => Err(refusal),
                };
                (mark, done)
            }
            Err(error) => {
                let mark = serde_json::from_str::<Mark>(text).ok().and_then(|told| told.mark);
                (mark, Err(Refusal::request(format!("the message is not understood: {error}"))))
            }
        };
        self.answer(mark.as_deref(), done).await?;
        Ok(None)
    }

    /// Tells what became of a message.
    async fn answer(
        &mut self,
        mark: Option<&str>,
        done: Answer<Option<CancelAnswer>>,
    ) -> Result<(), axum::Error> {
        match done {
            Ok(answer) => {
                let taken = Told { event: "taken", mark, answer, code: None, detail: None };
                self.send_document(&taken).await
            }
            Err(refusal) => {
                let (code, detail) = refusal.told();
                let (code, detail) = (Some(code), Some(detail));
                let refused = Told { event: "refused", mark, answer: None, code, detail };
                self.send_document(&refused).await
            }
        }
    }

    /// Asks anew whether the caller may send messages to the job: a connection outlives credentials, and what was
    /// found at its beginning would let one that was revoked go on acting.
    async fn admit(&mut self) -> Answer<()> {
        self.caller = self.caller.again(&self.app).await?;
        self.caller.check_job(&self.app, self.id).await
    }

    async fn send_document<T: Serialize>(&mut self, document: &T) -> Result<(), axum::Error> {
        let text = serde_json::to_string(document).map_err(axum::Error::new)?;
        self.send(Message::Text(text.into())).await
    }

    async fn send(&mut self, message: Message) -> Result<(), axum::Error> {
        let sent = tokio::time::timeout(STALL_MAX, self.socket.send(message)).await;
        sent.map_err(axum::Error::new)?
    }

    /// Closes a connection of which nothing more can be read, and says why if that is the client's doing.
    async fn break_off(mut self, error: axum::Error) -> Result<(), axum::Error> {
        let inner = error.into_inner();
        let (code, reason) = match inner.downcast_ref::<Broken>() {
            Some(Broken::Capacity(_)) => (close_code::SIZE, "a message has 1 MiB at most"),
            Some(Broken::Utf8(_)) => (close_code::INVALID, "messages are UTF-8"),
            Some(Broken::Protocol(_)) => (close_code::PROTOCOL, "this is no WebSocket any more"),
            _ => return Err(axum::Error::new(inner)),
        };
        self.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await?;
        // The rest is not read, so the connection will be reset: not before the client could read why.
        tokio::time::sleep(FAREWELL_MAX).await;
        Ok(())
    }

    async fn close(mut self, code: u16, reason: &str) -> Result<(), axum::Error> {
        self.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await?;
        // A connection that is let go with something unread is reset, and the client never reads why it ended.
        let heard = async { while let Some(Ok(_)) = self.socket.recv().await {} };
        tokio::time::timeout(FAREWELL_MAX, heard).await.ok();
        Ok(())
    }
}

/// Does what a message says, if the caller may.
async fn obey(
    app: &App,
    caller: &Caller,
    job: JobId,
    order: Order,
) -> Answer<Option<CancelAnswer>> {
    order.check()?;
    let Order { act, reason, name, payload, id, approved, priority, .. } = order;
    let missing = |what: &str| Refusal::request(format!("the message needs `{what}`"));
    let signal = match act {
        Word::Cancel => {
            let reason = reason.as_deref().unwrap_or("cancelled");
            let cancel = async {
                caller.check_act(Act::Operate)?;
                Ok(Some(app.mill.cancel(job, reason).await?))
            };
            return recorded(app, caller, "cancel_job", job, cancel).await;
        }
        Word::SetPriority => {
            let set = async {
                caller.check_act(Act::Operate)?;
                app.mill.set_priority(job, priority.ok_or_else(|| missing("priority"))?).await?;
                Ok(None)
            };
            return recorded(app, caller, "edit_job", job, set).await;
        }
        Word::Signal => Signal::new(name.ok_or_else(|| missing("name"))?, &payload),
        Word::Answer => Signal::new(name.as_deref().unwrap_or("answer"), &payload),
        Word::Approve => {
            let approved = approved.ok_or_else(|| missing("approved"))?;
            Signal::new(name.as_deref().unwrap_or("approve"), &approved)
        }
    };
    caller.check_act(Act::Enqueue)?;
    app.mill.signal(job, id.into_iter().fold(signal, Signal::id)).await?;
    Ok(None)
}

/// Does what an operator asks for in a message, written down as the operation that it stands for.
async fn recorded<T>(
    app: &App,
    caller: &Caller,
    operation: &str,
    job: JobId,
    act: impl Future<Output = Answer<T>>,
) -> Answer<T> {
    let begun = Begun::message(app, caller, operation, job).await?;
    let done = act.await;
    let result = done.as_ref().map_or_else(|refusal| refusal.told().0, |_| "ok").to_owned();
    begun.end(app, AuditEnd { result, ..AuditEnd::default() }).await;
    done
}
