//! What hyper answers by itself is told as a problem document, too.
//!
//! A request whose head cannot be read never comes to our code: hyper answers it with a status and no body, and ends
//! the connection. Nothing of ours answers 4xx without a body, so such an answer is known by its bytes on their way
//! out, and gets one. It refuses to touch anything else: what it does not know for certain goes out as it is.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::problem::Refusal;

/// A connection whose bare answers get a body.
pub(crate) struct Clothed<T> {
    inner: T,
    /// What goes out in place of such an answer.
    rest: Vec<u8>,
}

impl<T> Clothed<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, rest: Vec::new() }
    }
}

impl<T: AsyncWrite + Unpin> Clothed<T> {
    /// Writes what is still to be said before anything else.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.rest.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.rest.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

/// The whole answer, with a body, to what hyper says of a request that it cannot read; nothing of any other bytes.
fn clothed(bytes: &[u8]) -> Option<Vec<u8>> {
    let head = bytes.strip_prefix(b"HTTP/1.1 4").or_else(|| bytes.strip_prefix(b"HTTP/1.0 4"))?;
    let head = str::from_utf8(head).ok()?.strip_suffix("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let (status, code, detail) = match lines.next()?.get(..2)? {
        "00" => {
            let detail = "the request line or a header is not as HTTP/1.1 has it, and nothing was read further";
            (StatusCode::BAD_REQUEST, "request_invalid", detail)
        }
        "14" => (
            StatusCode::URI_TOO_LONG,
            "head_too_large",
            "the path and the query have too many bytes",
        ),
        "31" => {
            let detail = "the head has too many headers, or too many bytes";
            (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", detail)
        }
        _ => return None,
    };
    let is_length = |line: &str| line.eq_ignore_ascii_case("content-length: 0");
    let (lengths, others): (Vec<&str>, Vec<&str>) = lines.partition(|line| is_length(line));
    if lengths.len() != 1 || others.contains(&"") {
        return None;
    }
    let problem = serde_json::to_string(&Refusal::new(status, code, detail).problem()).ok()?;
    let reason = status.canonical_reason().unwrap_or_default();
    let length = problem.len();
    let mut answer = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16());
    for line in others {
        answer.push_str(line);
        answer.push_str("\r\n");
    }
    answer += "content-type: application/problem+json\r\n";
    Some(format!("{answer}content-length: {length}\r\n\r\n{problem}").into_bytes())
}

impl<T: AsyncRead + Unpin> AsyncRead for Clothed<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Clothed<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_rest(cx))?;
        match clothed(bytes) {
            Some(answer) => {
                this.rest = answer;
                // Whether it is out is for the flush to say.
                let _ = this.poll_rest(cx)?;
                Poll::Ready(Ok(bytes.len()))
            }
            None => Pin::new(&mut this.inner).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_rest(cx))?;
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_rest(cx))?;
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut said = parts.iter().filter(|part| !part.is_empty());
        if let (Some(only), None) = (said.next(), said.next()) {
            return self.poll_write(cx, only);
        }
        let this = self.get_mut();
        ready!(this.poll_rest(cx))?;
        Pin::new(&mut this.inner).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bare_refusals_of_a_head_get_a_body() {
        let bare = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\ndate: now\r\n\r\n";
        let answer = String::from_utf8(clothed(bare.as_bytes()).unwrap()).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\nconnection: close\r\ndate: now\r\n"));
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head}");
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(
            (&problem["code"], &problem["status"]),
            (&"request_invalid".into(), &400.into())
        );
        for other in [
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 7\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 4",
            "",
        ] {
            assert!(clothed(other.as_bytes()).is_none(), "{other:?}");
        }
    }
}
