//! The times of a connection: who is waited for, and for how long.
//!
//! hyper knows a time for heads of HTTP/1 alone. A client that connects and says nothing, or the preface of HTTP/2 and
//! nothing more, would hold a connection for ever, and so would one that asks and takes no answer. So each connection
//! knows whose turn it is. While it is ours, because a request is worked on or a body waits for what comes next (a long
//! poll, a stream), nobody is hurried. While it is the client's turn, time runs.
//!
//! It refuses to look at what is sent: a frame is as good as another, and only requests and answers count. Pings, too,
//! can be sent for ever.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use http::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::bare::Clothed;
use crate::settings::Settings;

/// A client may not send larger heads.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// A body is given out in pieces of this size: that the next one is asked for shows that the client takes what it gets.
const PIECE_BYTES: usize = 16 * 1024;

/// How long clients are waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// For a head, and for the next request.
    pub head: Duration,
    /// For a client that takes nothing of what it is sent.
    pub write: Duration,
    /// How often one that says nothing is asked for a sign of life.
    pub heartbeat: Duration,
}

impl Times {
    pub(crate) fn of(settings: &Settings) -> Self {
        let Settings { head_timeout, write_timeout, heartbeat, .. } = *settings;
        Self { head: head_timeout, write: write_timeout, heartbeat }
    }
}

/// Talks to a client until the connection ends, or until it was waited for long enough. Once the server ends, requests
/// under way are the last.
pub(crate) async fn converse<T>(
    stream: T,
    service: Router,
    times: Times,
    end: CancellationToken,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(times.head)
        .max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .keep_alive_interval(times.heartbeat)
        .keep_alive_timeout(times.write);
    let pace = Arc::new(Pace::default());
    let service = paced(service, Arc::clone(&pace));
    let stream = TokioIo::new(Clothed::new(stream));
    let mut connection = pin!(builder.serve_connection_with_upgrades(stream, service));
    let (mut is_last, mut was_told) = (false, false);
    loop {
        let wait = if was_told { times.head + times.write } else { times.head };
        tokio::select! {
            ended = &mut connection => return ended,
            () = end.cancelled(), if !is_last => {
                is_last = true;
                connection.as_mut().graceful_shutdown();
            }
            () = pace.idle_for(wait) => {
                // Who has asked for nothing loses nothing.
                if was_told || !pace.was_asked() {
                    return Err("nothing was asked in time, or what was answered not taken".into());
                }
                // A request that crosses this is answered, and answers under way are sent to their end.
                was_told = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Whose turn it is on a connection.
#[derive(Debug)]
struct Pace(Mutex<Turns>);

#[derive(Debug)]
struct Turns {
    /// Requests and bodies that wait for us.
    ours: usize,
    /// When the last of them was done.
    since: Instant,
    was_asked: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self(Mutex::new(Turns { ours: 0, since: Instant::now(), was_asked: false }))
    }
}

impl Pace {
    fn turns<T>(&self, act: impl FnOnce(&mut Turns) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn was_asked(&self) -> bool {
        self.turns(|turns| turns.was_asked)
    }

    /// Completes when the client has been waited for so long. It looks again only when that could be so, and costs
    /// requests nothing.
    async fn idle_for(&self, long: Duration) {
        loop {
            let since =
                self.turns(|turns| if turns.ours > 0 { Instant::now() } else { turns.since });
            let until = since + long;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

/// A turn of ours, or of the client, in one request and its answer.
struct Turn {
    pace: Arc<Pace>,
    is_ours: bool,
}

impl Turn {
    /// A request has come.
    fn begin(pace: Arc<Pace>) -> Self {
        let mut turn = Self { pace, is_ours: false };
        turn.is(true);
        turn
    }

    fn is(&mut self, ours: bool) {
        if self.is_ours == ours {
            return;
        }
        self.is_ours = ours;
        self.pace.turns(|turns| {
            turns.was_asked = true;
            if ours {
                turns.ours += 1;
            } else {
                turns.ours -= 1;
                turns.since = Instant::now();
            }
        });
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.is(false);
    }
}

/// The service, of which each request and each answer is a turn.
fn paced(
    service: Router,
    pace: Arc<Pace>,
) -> impl Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Send + 'static>
{
    let service = TowerToHyperService::new(service);
    service_fn(move |request: Request<Incoming>| {
        let mut turn = Turn::begin(Arc::clone(&pace));
        let answer = service.call(request);
        async move {
            let answer = answer.await?;
            turn.is(false);
            Ok(answer.map(|inner| Body::new(Paced { inner, rest: Bytes::new(), turn })))
        }
    })
}

/// A body in pieces: while the next one is asked for it is our turn, and the client's until then.
struct Paced {
    inner: Body,
    /// What of a piece that was too large is still to be given out.
    rest: Bytes,
    turn: Turn,
}

type Given = Option<Result<Frame<Bytes>, axum::Error>>;

impl Paced {
    fn given(&mut self, given: Given) -> Poll<Given> {
        self.turn.is(false);
        Poll::Ready(given)
    }
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Given> {
        let this = self.get_mut();
        this.turn.is(true);
        if this.rest.is_empty() {
            let frame = std::task::ready!(Pin::new(&mut this.inner).poll_frame(cx));
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => this.rest = data,
                Some(Ok(Err(trailers))) => return this.given(Some(Ok(trailers))),
                Some(Err(error)) => return this.given(Some(Err(error))),
                None => return this.given(None),
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE_BYTES));
        this.given(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, inner) = (self.rest.len() as u64, self.inner.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

/// A connection that fails when the other side takes nothing for too long. It stands under TLS: only there each byte
/// that goes out is seen.
pub(crate) struct Taken<T> {
    inner: T,
    within: Duration,
    /// Until when something has to be taken, while nothing is.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<T> Taken<T> {
    pub(crate) fn new(inner: T, within: Duration) -> Self {
        Self { inner, within, waits: None }
    }

    /// What became of a write; too late, if it was tried for too long.
    fn in_time(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(self.within)));
        std::task::ready!(waits.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "nothing was taken in time")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Taken<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Taken<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write(cx, bytes);
        this.in_time(cx, written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write_vectored(cx, parts);
        this.in_time(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
