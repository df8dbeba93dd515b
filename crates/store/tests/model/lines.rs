//! The model's rule of lines: whoever is first waits for a slot or the clock, the others behind it.

use jiff::Timestamp;
use tidemill_core::{JobId, NewJob};

use super::memory::{LineName, Memory, Place};

/// By its wishes alone, so that the rule is not the one that is tested.
pub(super) fn line(new: &NewJob) -> Option<LineName> {
    new.options.ordered?;
    Some((new.queue.clone(), new.tenant.clone(), new.key.clone()?))
}

impl Memory {
    /// A job comes to wait: in its line, if it has one; whoever blocks it as a dead one is still first.
    pub(super) fn admit(&mut self, id: JobId, due: Timestamp) {
        let Some(line) = line(&self.jobs[&id].new) else {
            self.job(id).place = Place::Waiting { due };
            return;
        };
        let line = self.lines.entry(line).or_default();
        if line.first() != Some(&id) {
            line.push(id);
        }
        let is_first = line[0] == id;
        self.job(id).place = if is_first { Place::Waiting { due } } else { Place::Lined { due } };
    }

    /// A job leaves its line, if it is in one; behind a first one the next comes.
    pub(super) fn leave(&mut self, id: JobId) {
        let Some(name) = line(&self.jobs[&id].new) else { return };
        let Some(line) = self.lines.get_mut(&name) else { return };
        line.retain(|other| *other != id);
        let Some(first) = line.first().copied() else {
            self.lines.remove(&name);
            return;
        };
        let now = self.now;
        if let Place::Lined { due } = self.jobs[&first].place {
            self.job(first).place = Place::Waiting { due: due.max(now) };
        }
    }
}
