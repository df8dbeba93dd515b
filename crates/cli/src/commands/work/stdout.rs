//! What a command writes to stdout becomes the job's output.
//!
//! JSON is kept as it is, other text as a JSON string, nothing as null. It refuses to keep more
//! than the limit, and stops reading there; and it refuses what is not UTF-8, which would be kept as something else.

use tidemill::{Limits, Payload};
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
        // Quotes and escapes make a text longer; that is not the command's fault.
        let limits = Limits { payload_bytes_max: self.bytes_max * 6 + 2, ..Limits::default() };
        match Payload::parse(text, &limits) {
            Ok(payload) => Ok(payload),
            Err(tidemill_core::Error::PayloadNotJson { .. }) => {
                Payload::of(text.trim_end(), &limits)
                    .map_err(|error| error.to_string().replace("payload", "output"))
            }
            Err(error) => Err(error.to_string().replace("payload", "output")),
        }
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
}
