//! Values that stand beside their entries: they are read before the code is told, and nothing else is told meanwhile.

use super::{Op, Replay};
use crate::payload::Payload;
use crate::workflow::entry::Ending;
use crate::workflow::talk::Answer;

impl Replay {
    /// The number of the entry beside which the answer for this key stands, if it does.
    pub fn aside(&self, key: &str) -> Option<u32> {
        match self.ops.get(key)? {
            Op::Answered(Answer::Ended(Ending::Aside { number, .. })) => Some(*number),
            Op::Answered(Answer::Children(_)) => {
                self.pages.get(key)?.aside.front().map(|(outputs, ..)| outputs.number)
            }
            _ => None,
        }
    }

    /// What stands there; `false` if it cannot be of this key. There may be more of it.
    #[must_use]
    pub fn fetched(&mut self, key: &str, value: Payload) -> bool {
        if matches!(self.ops.get(key), Some(Op::Answered(Answer::Children(_)))) {
            return self.fetched_outputs(key, &value);
        }
        let answer = Answer::Ended(Ending::Ok(value));
        self.ops.set(key, Op::Answered(answer));
        true
    }
}
