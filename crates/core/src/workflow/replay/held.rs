//! What is done at once when it is asked for, as a value that is noted or a job that is started. It is held back while
//! the journal goes on: what is new there is other code, and is found out before it has done anything.

use super::open::Manner;
use super::{Kept, Op, Replay};
use crate::payload::Payload;
use crate::workflow::entry::Entry;
use crate::workflow::talk::{Answer, Ask, Rest};

impl Replay {
    /// Whether the code has come by all that the journal has.
    pub(super) fn is_at_end(&self) -> bool {
        self.telling.is_empty() && self.ahead.is_empty()
    }

    /// Does what needs no waiting.
    pub(super) fn at_once(&mut self, key: &str, kept: Kept, ask: Ask) -> Option<Answer> {
        let is_new = kept.word.is_empty();
        let answer = match ask {
            Ask::Start { kind, ids, outlives } => self.start(key, kept, (kind, ids), outlives),
            Ask::Children { kind, ids, outlives } => {
                self.learn_anew(key);
                if let Some(kept) = self.kept.get_mut(key) {
                    kept.ids = Some(ids.clone());
                }
                self.start_anew(key, (kind, ids), outlives)
            }
            Ask::Note { value } => Answer::Value(self.note(key, kept, value)),
            Ask::Answer { number } => {
                if is_new {
                    self.push(Entry::Answered { key: key.to_owned(), number });
                }
                Answer::IsNew(is_new)
            }
            Ask::Pivot => {
                if is_new {
                    self.push(Entry::Pivot { key: key.to_owned() });
                }
                Answer::Value(Payload::null())
            }
            _ => return None,
        };
        Some(answer)
    }

    /// Everything was told: what was held back is done, unless the journal has more that the code did not come by.
    pub(super) fn let_held(&mut self) -> Option<Rest> {
        let key = self.ops.by(Manner::Held).next()?.clone();
        let missed = self.ahead.iter().map(|(key, number)| (*number, key.clone())).min();
        if let Some((number, missed)) = missed {
            return Some(self.untold(number, &missed));
        }
        let Some(Op::Held(ask)) = self.ops.get(&key).cloned() else { return None };
        let answer = self.at_once(&key, Kept::default(), ask)?;
        Some(self.deliver(key, answer))
    }
}
