//! What a command writes to stdout becomes the job's output.
//!
//! JSON is kept as it is, other text as a JSON string, nothing as null. JSON that Tidemill does not take (it is too
//! deep, say) is text like any other: its job is done, and what it printed is no reason to call it undone. It refuses
//! to keep more than the limit, and stops reading there; and it refuses what is not UTF-8 or has a NUL, which would be
//! kept as something else.

use tidemill::{Limits, Payload};
use tidemill_core::Error;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The output, as far as it goes.
#[derive(Debug)]
pub struct Written {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Written {
    /// Reads to the end, or to one byte over the limit.
    pub async fn read(stdout: impl AsyncRead + Unpin, bytes_max: usize) -> Self {
        let mut bytes = Vec::new();
        // What was read before an error is the output: the pipe ends with its process.
        let _ = stdout.take(bytes_max as u64 + 1).read_to_end(&mut bytes).await;
        Self { bytes, bytes_max }
    }

    /// Whether there was more than the limit.
    pub fn is_too_much(&self) -> bool {
        self.bytes.len() > self.bytes_max
    }

    /// The output as it is kept, or why it cannot be.
    pub fn output(&self) -> Result<Payload, String> {
        if self.is_too_much() {
            return Err(format!("the output has more than {} bytes", self.bytes_max));
        }
        let text = std::str::from_utf8(&self.bytes).map_err(|error| {
            let at = error.valid_up_to();
            format!(
                "the output is not UTF-8: byte {at} is wrong; write text, or encode it (base64)"
            )
        })?;
        if text.trim().is_empty() {
            return Ok(Payload::null());
        }
        let said = |error: Error| error.to_string().replace("payload", "output");
        if let Some(at) = text.find('\0') {
            return Err(said(Error::PayloadNul { at }));
        }
        // Quotes and escapes make a text longer; that is not the command's fault.
        let limits = Limits { payload_bytes_max: self.bytes_max * 6 + 2, ..Limits::default() };
        // Why it is no JSON that can be kept says nothing: a parser looks at brackets in colours, too.
        Payload::parse(text, &limits)
            .or_else(|_| Payload::of(text.trim_end(), &limits))
            .map_err(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn output(text: impl AsRef<[u8]>) -> Result<String, String> {
        let written = Written::read(text.as_ref(), 40).await;
        written.output().map(Payload::into_string)
    }

    #[tokio::test]
    async fn output_is_json_text_or_nothing() {
        for (text, kept) in [
            (" {\"n\":9007199254740993}\n", "{\"n\":9007199254740993}"),
            ("42", "42"),
            ("hello\n", "\"hello\""),
            ("{broken", "\"{broken\""),
            (" \n", "null"),
        ] {
            assert_eq!(output(text).await.as_deref(), Ok(kept), "{text}");
        }
        assert!(output(&"x".repeat(41)).await.is_err());
        assert!(output("nul \0").await.is_err());
        let binary = output(b"ok \xff\xfe").await.unwrap_err();
        assert!(binary.contains("not UTF-8: byte 3"), "{binary}");
    }

    #[tokio::test]
    async fn what_is_no_json_or_is_refused_as_such_is_kept_as_text() {
        for text in [
            "\x1b[32mok\x1b[0m\n".repeat(130),
            "{".repeat(65),
            r#"it said "\ud800""#.to_owned(),
            r#"it said "\u0000""#.to_owned(),
            format!("{}{}", "[".repeat(65), "]".repeat(65)),
            r#"["\ud800"]"#.to_owned(),
            r#"["\u0000"]"#.to_owned(),
        ] {
            let written = Written::read(text.as_bytes(), 10_000).await;
            let kept =
                written.output().and_then(|kept| kept.read::<String>().map_err(|e| e.to_string()));
            assert_eq!(kept.as_deref(), Ok(text.trim_end()));
        }
    }

    #[tokio::test]
    async fn a_nul_is_named_where_it_stands() {
        let said = output("\"a\" \0").await.unwrap_err();
        assert!(said.contains("the output contains") && said.contains("at byte 4,"), "{said}");
    }
}
