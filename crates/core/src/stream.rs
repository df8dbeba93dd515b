//! Streams: a running job's live output, in numbered chunks.
//!
//! A chunk that is kept has a number: 1, 2, 3 and so on, without a gap, over all attempts of its job, so whoever has
//! seen one can ask for those after it. An ephemeral one has none: it reaches who listens at that moment, and nobody
//! else. How many bytes a chunk, and all of a job, may have is for [`Limits`] to say.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::job::state::State;
use crate::limit::{EPHEMERAL_BYTES_MAX, Limits};
use crate::redact::Secrets;
use crate::workflow::{ParkCode, Parked};

/// How far a job has come. All that is not known is left out.
///
/// ```
/// use tidemill_core::stream::Progress;
/// let so_far = Progress::of(3, 10).tool("search").message("reading page 3");
/// assert_eq!(serde_json::to_string(&so_far).unwrap(),
///     r#"{"step":3,"total":10,"tool":"search","message":"reading page 3"}"#);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Progress {
    /// How many steps are done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// How many there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// What it is at, in a word of its own: `thinking`, `uploading`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Which tool it uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// A sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Progress {
    /// So many steps of so many.
    pub fn of(step: u64, total: u64) -> Self {
        Self { step: Some(step), total: Some(total), ..Self::default() }
    }

    /// What it is at.
    #[must_use]
    pub fn status(self, status: impl Into<String>) -> Self {
        Self { status: Some(status.into()), ..self }
    }

    /// Which tool it uses.
    #[must_use]
    pub fn tool(self, tool: impl Into<String>) -> Self {
        Self { tool: Some(tool.into()), ..self }
    }

    /// A sentence for people.
    #[must_use]
    pub fn message(self, message: impl Into<String>) -> Self {
        Self { message: Some(message.into()), ..self }
    }
}

/// What a job says while it runs, and what is said of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Said {
    /// How far it has come.
    Progress(Progress),
    /// A line of its log.
    Log {
        /// The line.
        message: String,
    },
    /// A piece of the text that it writes: the tokens of a model. Pieces are joined without anything between them.
    Text {
        /// The piece.
        text: String,
    },
    /// Its run waits until somebody has seen to it. Whoever settles it says so; no handler does.
    Parked {
        /// Why, for programs.
        code: ParkCode,
        /// The same in words.
        why: String,
    },
    /// Somebody has paused its run.
    Paused,
    /// Its run goes on that was paused or parked.
    Resumed,
}

impl Said {
    /// A line of a log.
    pub fn log(message: impl Into<String>) -> Self {
        Self::Log { message: message.into() }
    }

    /// A piece of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// The word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Progress(_) => "progress",
            Self::Log { .. } => "log",
            Self::Text { .. } => "text",
            Self::Parked { .. } => "parked",
            Self::Paused => "paused",
            Self::Resumed => "resumed",
        }
    }

    /// The same without these values in it.
    #[must_use]
    pub fn without(mut self, secrets: &Secrets) -> Self {
        match &mut self {
            Self::Progress(Progress { status, tool, message, .. }) => {
                let texts = [status, tool, message].into_iter().flatten();
                texts.for_each(|text| secrets.hide_in(text));
            }
            Self::Log { message: text } | Self::Text { text } | Self::Parked { why: text, .. } => {
                secrets.hide_in(text);
            }
            Self::Paused | Self::Resumed => {}
        }
        self
    }

    /// How many bytes it has, as it is kept.
    pub fn bytes(&self) -> usize {
        // What is said is text and numbers: it can always be written.
        serde_json::to_vec(self).map_or(usize::MAX, |written| written.len())
    }

    /// Refuses what is too large to be kept, or, if it is ephemeral, to be passed on. Answers its bytes.
    pub fn check(&self, is_ephemeral: bool, limits: &Limits) -> Result<usize> {
        let kept_max = limits.stream_chunk_bytes_max;
        let bytes_max = if is_ephemeral { kept_max.min(EPHEMERAL_BYTES_MAX) } else { kept_max };
        let bytes = self.bytes();
        if bytes > bytes_max { Err(Error::ChunkTooLarge { bytes, bytes_max }) } else { Ok(bytes) }
    }
}

impl From<&Parked> for Said {
    fn from(parked: &Parked) -> Self {
        Self::Parked { code: parked.code, why: parked.why.clone() }
    }
}

impl From<Progress> for Said {
    fn from(progress: Progress) -> Self {
        Self::Progress(progress)
    }
}

/// A piece of a job's stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Chunk {
    /// Its number; an ephemeral one has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// When it was written, or, if it is ephemeral, passed on.
    pub at: Timestamp,
    /// What was said.
    #[serde(flatten)]
    pub said: Said,
}

/// How a job ended whose stream has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct End {
    /// The state it ended in.
    pub state: State,
    /// Why, if it is dead or was called off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What whoever follows a stream is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A chunk.
    Chunk(Chunk),
    /// The job has ended, and with it the stream.
    End(End),
}

impl Event {
    /// The word for it: `progress`, `log`, `text`, `parked`, `paused`, `resumed` or `end`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Chunk(chunk) => chunk.said.word(),
            Self::End(_) => "end",
        }
    }
}

impl Serialize for Event {
    fn serialize<S: serde::Serializer>(
        &self,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Ended<'a> {
            event: &'static str,
            #[serde(flatten)]
            end: &'a End,
        }
        match self {
            Self::Chunk(chunk) => chunk.serialize(serializer),
            Self::End(end) => Ended { event: self.word(), end }.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_flat_documents_that_name_themselves() -> std::result::Result<(), serde_json::Error>
    {
        let at = Timestamp::UNIX_EPOCH;
        let chunk = Chunk { number: Some(7), at, said: Said::text("hi") };
        let written = serde_json::to_string(&Event::Chunk(chunk.clone()))?;
        assert_eq!(
            written,
            r#"{"number":7,"at":"1970-01-01T00:00:00Z","event":"text","text":"hi"}"#
        );
        assert_eq!(serde_json::from_str::<Chunk>(&written)?, chunk);
        let written = serde_json::to_string(&Said::from(Progress::of(1, 2)))?;
        assert_eq!(written, r#"{"event":"progress","step":1,"total":2}"#);
        let parked = ParkCode::Differs.because("it differs");
        assert_eq!(
            serde_json::to_string(&Said::from(&parked))?,
            r#"{"event":"parked","code":"parked_differs","why":"it differs"}"#
        );
        assert_eq!(serde_json::to_string(&Said::Resumed)?, r#"{"event":"resumed"}"#);
        let end = Event::End(End { state: State::Dead, error: Some("no".into()) });
        assert_eq!(serde_json::to_string(&end)?, r#"{"event":"end","state":"dead","error":"no"}"#);
        Ok(())
    }

    #[test]
    fn what_is_too_large_is_refused() {
        let limits = Limits { stream_chunk_bytes_max: 10_000, ..Limits::default() };
        let said = Said::text("x".repeat(9_000));
        assert!(said.check(false, &limits).is_ok());
        let refused = said.check(true, &limits).map_err(|error| error.code());
        assert_eq!(refused, Err("chunk_too_large"), "it must fit into a hint");
        let said = Said::text("x".repeat(10_000));
        assert!(matches!(
            said.check(false, &limits),
            Err(Error::ChunkTooLarge { bytes_max: 10_000, .. })
        ));
    }
}
