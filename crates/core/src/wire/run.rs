//! What an attempt writes while it runs: the journal of a run, and its stream.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::Brought;
use crate::id::{JobId, Token};
use crate::stream::{Progress, Said};
use crate::workflow::{Ending, Entry};

/// What a run wants written: all of it, or nothing.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RunBody {
    /// Nothing of this run was written before; it goes by this version of the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins: Option<String>,
    /// What is added to its journal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<NumberedEntry>,
    /// What stands beside entries, because it is large.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<NumberedValue>,
    /// Numbers of entries that others stand for now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forget: Vec<u32>,
    /// What it shows of itself from now on.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Box<RawValue>>,
    /// There is something to see to if it ends otherwise than well: undos, children.
    #[serde(default)]
    pub owes: bool,
    /// Children that are started.
    #[serde(default, skip_serializing_if = "Brought::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<crate::wish::Wish>))]
    pub children: Brought,
    /// Jobs that are started and that nobody waits for: no children of it.
    #[serde(default, skip_serializing_if = "Brought::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<crate::wish::Wish>))]
    pub starts: Brought,
    /// Children that nobody waits for any more; they are called off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cancel: Vec<JobId>,
    /// What it answers to mail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<MailAnswer>,
    /// It continues anew. Only with a settle whose outcome is `wait`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewal: Option<RenewalBody>,
    /// What its object is from now on. Only with a settle that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<KeepBody>,
}

/// An entry of a journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NumberedEntry {
    /// Its number in the journal.
    pub number: u32,
    /// An object with one field, its word.
    pub entry: Entry,
}

/// What stands beside an entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NumberedValue {
    /// Its number in the journal.
    pub number: u32,
    /// Any JSON.
    #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value))]
    pub value: Box<RawValue>,
}

/// The answer to a piece of mail that asked for one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MailAnswer {
    /// The number of the mail.
    pub number: i64,
    /// `{"ok": …}` or `{"err": {"class": …, "message": …}}`.
    pub ending: Ending,
}

/// How a run continues anew.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewalBody {
    /// What its handler gets from now on.
    #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value))]
    pub payload: Box<RawValue>,
    /// The version of the code by which it goes on.
    #[serde(default)]
    pub version: String,
    /// Numbers of mail that is of no more use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<i64>,
}

/// What an object is from now on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum KeepBody {
    /// This.
    #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value))]
    This(Box<RawValue>),
    /// Nothing any more.
    Nothing,
}

/// A write to the journal of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AppendBody {
    /// Which job.
    pub id: JobId,
    /// The token of its claim.
    pub token: Token,
    /// What is written.
    pub writes: RunBody,
}

/// What attempts say while they run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SaidBody {
    /// At most 1,000.
    pub items: Vec<SaidItem>,
}

/// What one attempt says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SaidItem {
    /// Which job.
    pub id: JobId,
    /// The token of its claim.
    pub token: Token,
    /// Sent again under the same id, right after, it is written once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Uuid>,
    /// What is kept, in this order: all of it, or nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "strictly")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Saying>))]
    pub said: Vec<Said>,
    /// What reaches only who listens now.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "strictly")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Saying>))]
    pub ephemeral: Vec<Said>,
}

/// What a worker may say, to the letter: who follows a stream passes over what it does not know, who writes must not.
/// That a run is parked is said by whoever settles it.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
enum Saying {
    /// How far the job has come. All that is not known is left out.
    Progress {
        /// How many steps are done.
        step: Option<u64>,
        /// How many there are.
        total: Option<u64>,
        /// What it is at, in a word of its own: `thinking`, `uploading`.
        status: Option<String>,
        /// Which tool it uses.
        tool: Option<String>,
        /// A sentence for people.
        message: Option<String>,
    },
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
}

fn strictly<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Said>, D::Error> {
    let sayings = Vec::<Saying>::deserialize(deserializer)?;
    // As it is described: an int64, which readers in other languages can have.
    let is_over = |saying: &Saying| match saying {
        Saying::Progress { step, total, .. } => (*step).max(*total) > Some(i64::MAX.unsigned_abs()),
        Saying::Log { .. } | Saying::Text { .. } => false,
    };
    if sayings.iter().any(is_over) {
        return Err(serde::de::Error::custom("step and total are at most 9223372036854775807"));
    }
    let said = sayings.into_iter().map(|saying| match saying {
        Saying::Progress { step, total, status, tool, message } => {
            Said::Progress(Progress { step, total, status, tool, message })
        }
        Saying::Log { message } => Said::Log { message },
        Saying::Text { text } => Said::Text { text },
    });
    Ok(said.collect())
}

/// What became of it, in the order of the items.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SaidAnswers {
    /// One for each item.
    pub answers: Vec<SaidAnswer>,
}

/// What became of what one attempt said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SaidAnswer {
    /// It is durable.
    Written,
    /// The lease was lost: nothing was written.
    Stale,
    /// The stream has as many bytes as it may have: nothing was written.
    Full,
}
