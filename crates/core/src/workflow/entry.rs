//! What a journal holds, entry by entry, as JSON that every language reads.
//!
//! Entries are only added. Some open something (a step that must not begin unseen, a sleep, children), some end it.
//! The order of those that end something is the order in which the code heard of it, and will hear of it again.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::flow::Undo;
use crate::id::JobId;
use crate::job::outcome::ErrorClass;
use crate::job::state::State;
use crate::payload::Payload;
use crate::workflow::ASIDE_BYTES_MIN;

/// One entry of a journal. `key` is the scope, the name and, from the second time on, the number of its occurrence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Entry {
    /// A step is about to begin which can be undone, or must not run twice.
    Began(Began),
    /// A step failed and is tried again later.
    Failed {
        /// Which step.
        key: String,
        /// How often it was tried by now.
        tries: u16,
        /// What it said.
        message: String,
        /// When it is tried again.
        again_at: Timestamp,
    },
    /// A step, or a scope, has ended.
    Ended {
        /// Which one.
        key: String,
        /// The hash of what it was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hash: Option<String>,
        /// How often it was tried.
        #[serde(default = "once", skip_serializing_if = "is_once")]
        tries: u16,
        /// How long its last try took.
        #[serde(default, skip_serializing_if = "is_zero")]
        took_ms: u64,
        /// With what.
        ending: Ending,
    },
    /// A transaction of the code's own has recorded what its step came to. The step's end takes its place when the
    /// code is told.
    Recorded {
        /// Which step.
        key: String,
        /// The hash of what it was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hash: Option<String>,
        /// How often it was tried.
        #[serde(default = "once", skip_serializing_if = "is_once")]
        tries: u16,
        /// What it returned.
        output: Payload,
    },
    /// A transaction that was to record what its step came to has not, and cannot any more.
    Sealed {
        /// Which step.
        key: String,
    },
    /// The run died of the failure of this step. If it is sent on its way again, the step is tried again, unless the
    /// code did something else when it heard of the failure.
    Died {
        /// Which step.
        key: String,
    },
    /// A sleep began.
    Slept {
        /// Which one.
        key: String,
        /// Until when.
        until: Timestamp,
    },
    /// A sleep is over.
    Woke {
        /// Which one.
        key: String,
    },
    /// A signal was taken.
    Signalled {
        /// By which wait.
        key: String,
        /// Its name.
        name: String,
        /// Its number in the mailbox.
        number: i64,
        /// What it carries.
        payload: Payload,
    },
    /// A signal that was taken is passed over, as an operator wished: the next one of its name is taken instead.
    Passed {
        /// By which wait.
        key: String,
        /// Its name.
        name: String,
        /// Its number in the mailbox.
        number: i64,
    },
    /// A message that asked for an answer was given one.
    Answered {
        /// By which call.
        key: String,
        /// The message's number in the mailbox.
        number: i64,
    },
    /// Children were started.
    Started {
        /// By which call.
        key: String,
        /// The kind of the first.
        kind: String,
        /// They.
        ids: Vec<JobId>,
        /// They are not called off with the run.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        outlives: bool,
        /// They are waited for under other keys, or by nobody.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        later: bool,
    },
    /// Children have ended, all of a call. What many of them returned is told by several entries.
    Joined {
        /// Of which call.
        key: String,
        /// How, in the order of their start.
        ends: Vec<ChildEnd>,
        /// Others of the call are told by entries that come later.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        more: bool,
        /// What they returned is large: it stands beside the entry, and is read when the code asks for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
        aside: Option<Outputs>,
    },
    /// A value that must stay the same: the time, a version of the code.
    Noted {
        /// Which one.
        key: String,
        /// It.
        value: Payload,
    },
    /// There is no way back from here: nothing before it is undone any more.
    Pivot {
        /// Which one.
        key: String,
    },
}

/// A step that is about to begin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Began {
    /// Which step.
    pub key: String,
    /// The hash of what it is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// It runs at most once: if nobody knows what became of it, it has failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub once: bool,
    /// How it is undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Undo>))]
    pub undo: Option<StepUndo>,
}

/// The job that undoes a step of a workflow. It gets the step's output when that has ended.
pub type StepUndo = Box<Undo>;

/// What a step ended with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Ending {
    /// It returned this.
    Ok(Payload),
    /// It returned something large, which stands beside the entry and is read when the code asks for it.
    Aside {
        /// The number of the entry.
        number: u32,
        /// How many bytes it has.
        bytes: usize,
    },
    /// It failed for good.
    Err {
        /// What kind of failure.
        class: ErrorClass,
        /// What it said.
        message: String,
    },
}

/// What children returned, beside the entry that tells of their ends: as an array, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outputs {
    /// The number of the entry.
    pub number: u32,
    /// How many bytes they have.
    pub bytes: usize,
}

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChildEnd {
    /// Which child.
    pub id: JobId,
    /// Done, cancelled or dead.
    pub state: State,
    /// What it returned, if it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Payload>,
    /// What it said, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Entry {
    /// The key it is about.
    pub fn key(&self) -> &str {
        match self {
            Self::Began(began) => &began.key,
            Self::Failed { key, .. }
            | Self::Ended { key, .. }
            | Self::Recorded { key, .. }
            | Self::Sealed { key }
            | Self::Died { key }
            | Self::Answered { key, .. }
            | Self::Slept { key, .. }
            | Self::Woke { key }
            | Self::Signalled { key, .. }
            | Self::Passed { key, .. }
            | Self::Started { key, .. }
            | Self::Joined { key, .. }
            | Self::Noted { key, .. }
            | Self::Pivot { key } => key,
        }
    }

    /// Takes what a step or children returned out of its entry, of this number, if it is large. It is to be written
    /// beside it.
    pub fn put_aside(&mut self, number: u32) -> Option<Payload> {
        if let Self::Joined { ends, aside, .. } = self {
            return put_outputs_aside(number, ends, aside);
        }
        let Self::Ended { ending, .. } = self else { return None };
        let Ending::Ok(value) = ending else { return None };
        let bytes = value.as_str().len();
        if bytes < ASIDE_BYTES_MIN {
            return None;
        }
        match std::mem::replace(ending, Ending::Aside { number, bytes }) {
            Ending::Ok(value) => Some(value),
            _ => None,
        }
    }

    /// Its word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Began(_) => "began",
            Self::Failed { .. } => "failed",
            Self::Ended { .. } => "ended",
            Self::Recorded { .. } => "recorded",
            Self::Sealed { .. } => "sealed",
            Self::Died { .. } => "died",
            Self::Answered { .. } => "answered",
            Self::Slept { .. } => "slept",
            Self::Woke { .. } => "woke",
            Self::Signalled { .. } => "signalled",
            Self::Passed { .. } => "passed",
            Self::Started { .. } => "started",
            Self::Joined { .. } => "joined",
            Self::Noted { .. } => "noted",
            Self::Pivot { .. } => "pivot",
        }
    }
}

fn put_outputs_aside(
    number: u32,
    ends: &mut [ChildEnd],
    aside: &mut Option<Outputs>,
) -> Option<Payload> {
    let bytes: usize = ends.iter().map(ChildEnd::bytes).sum();
    if bytes < ASIDE_BYTES_MIN {
        return None;
    }
    *aside = Some(Outputs { number, bytes });
    let outputs = ends.iter_mut().map(|end| end.output.take());
    let texts: Vec<String> =
        outputs.map(|one| one.unwrap_or_else(Payload::null).as_str().to_owned()).collect();
    Some(Payload::trusted(format!("[{}]", texts.join(","))))
}

/// Puts what children returned back to where they ended; `false` if it is not of them.
#[must_use]
pub fn put_outputs_back(ends: &mut [ChildEnd], outputs: &Payload) -> bool {
    let Ok(outputs) = outputs.read::<Vec<Payload>>() else { return false };
    let fits = outputs.len() == ends.len();
    for (end, output) in ends.iter_mut().zip(outputs) {
        end.output = (end.state == State::Done).then_some(output);
    }
    fits
}

impl ChildEnd {
    /// How many bytes it returned.
    pub fn bytes(&self) -> usize {
        self.output.as_ref().map_or(0, |output| output.as_str().len())
    }
}

fn once() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_once(tries: &u16) -> bool {
    *tries == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(ms: &u64) -> bool {
    *ms == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_short_and_survive_their_text() {
        let ending = Ending::Ok(Payload::trusted("{\"n\":12345678901234567890}".into()));
        let ended = Entry::Ended { key: "tax".into(), hash: None, tries: 1, took_ms: 0, ending };
        let text = serde_json::to_string(&ended).unwrap();
        assert_eq!(text, r#"{"ended":{"key":"tax","ending":{"ok":{"n":12345678901234567890}}}}"#);
        let began = Began { key: "pay#2".into(), hash: Some("ab".into()), once: true, undo: None };
        for entry in [Entry::Began(began), Entry::Woke { key: "nap".into() }] {
            let text = serde_json::to_string(&entry).unwrap();
            assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), entry, "{text}");
        }
    }
}
