//! The first words of a connection have to come in time.
//!
//! Whether a client speaks HTTP/1.1 or HTTP/2 is seen by its first bytes, and hyper waits for those without a clock:
//! its time limit for heads begins with a head. Who connects and says nothing, or the beginning of the preface of
//! HTTP/2 and nothing more, would hold a connection for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// What a client of HTTP/2 begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection that fails when its first words do not come in time.
pub(crate) struct Greeted<T> {
    inner: T,
    /// How much of the preface was read, and until when the rest may come; `None` once that is decided.
    waits: Option<(usize, Pin<Box<Sleep>>)>,
}

impl<T> Greeted<T> {
    pub(crate) fn new(inner: T, within: Duration) -> Self {
        Self { inner, waits: Some((0, Box::pin(tokio::time::sleep(within)))) }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Greeted<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.inner).poll_read(cx, buf);
        let Some((seen, deadline)) = &mut this.waits else { return read };
        match read {
            Poll::Ready(Ok(())) => {
                let new = &buf.filled()[before..];
                *seen += new.len();
                let is_preface = PREFACE.get(*seen - new.len()..*seen) == Some(new);
                if new.is_empty() || !is_preface || *seen == PREFACE.len() {
                    this.waits = None;
                }
                read
            }
            Poll::Pending => {
                std::task::ready!(deadline.as_mut().poll(cx));
                Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "nothing was asked in time",
                )))
            }
            failed @ Poll::Ready(Err(_)) => failed,
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Greeted<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
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
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
