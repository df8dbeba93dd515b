//! The model's rule of unique keys: one match over policy and place, as the design says it.

use jiff::Timestamp;
use tidemill_core::{JobId, NewJob, OnDuplicate, Scope, UniqueKey};
use tidemill_store::Receipt;

use super::lines::line;
use super::memory::{Holder, Memory, Place};
use super::ops::Held;

impl Memory {
    /// Enqueues one job.
    pub(super) fn enqueue(&mut self, new: NewJob) -> Receipt {
        let id = new.id;
        if self.jobs.contains_key(&id) {
            return Receipt::Enqueued { id };
        }
        let due = new.due.resolve(self.now);
        let Some(unique) = new.unique.clone() else {
            self.write(new, Place::Waiting { due });
            self.admit(id, due);
            return Receipt::Enqueued { id };
        };
        match self.keys.get(&unique.key).cloned() {
            Some(holder) if !unique.force && !self.is_over(&holder) => {
                self.duplicate(new, &unique, &holder)
            }
            before => {
                if let Some(next) = before.and_then(|holder| holder.next) {
                    self.set_free(next);
                }
                self.keys.insert(unique.key.clone(), self.hold(id, &unique));
                self.write(new, Place::Waiting { due });
                self.admit(id, due);
                Receipt::Enqueued { id }
            }
        }
    }

    fn duplicate(&mut self, new: NewJob, unique: &UniqueKey, holder: &Holder) -> Receipt {
        use OnDuplicate::{Debounce, Join, Reject, Replace, RunOnceMore, Throttle};
        let id = holder.id;
        let place = self.jobs.get(&id).map(|job| job.place.clone());
        let waiting = matches!(place, Some(Place::Waiting { .. } | Place::Lined { .. }));
        let running = matches!(place, Some(Place::Running { .. }));
        match unique.on_duplicate {
            Reject => Receipt::Rejected { id },
            Replace | Debounce if waiting => {
                self.replace(id, new);
                Receipt::Replaced { id }
            }
            Debounce | RunOnceMore if running => self.keep(new, unique, holder),
            Join | Throttle | Replace | Debounce | RunOnceMore => Receipt::Joined { id },
        }
    }

    /// It takes over every wish but its key, whose scope stays as it was taken. In a line it keeps its
    /// place, unless it goes to another.
    fn replace(&mut self, id: JobId, new: NewJob) {
        let due = new.due.resolve(self.now);
        let stays = line(&self.jobs[&id].new) == line(&new);
        if !stays {
            self.leave(id);
        }
        let job = self.job(id);
        let unique = job.new.unique.take();
        job.new = NewJob { id, unique, ..new };
        if stays && matches!(job.place, Place::Lined { .. }) {
            job.place = Place::Lined { due };
        } else if stays || line(&job.new).is_none() {
            job.place = Place::Waiting { due };
        } else {
            (job.attempt, job.lost) = (0, 0);
            self.admit(id, due);
        }
    }

    /// Keeps one more for afterwards; a second one only changes what the first carries.
    fn keep(&mut self, new: NewJob, unique: &UniqueKey, holder: &Holder) -> Receipt {
        let due = new.due.resolve(self.now);
        if let Some(next) = holder.next {
            let kept = self.job(next);
            kept.new.payload = new.payload;
            kept.new.options = new.options;
            kept.new.key = new.key;
            if unique.on_duplicate == OnDuplicate::Debounce {
                kept.place = Place::Blocked { due };
            }
            return Receipt::Joined { id: next };
        }
        let id = new.id;
        self.keys.insert(unique.key.clone(), Holder { next: Some(id), ..holder.clone() });
        self.write(new, Place::Blocked { due });
        Receipt::Kept { id }
    }

    fn hold(&self, id: JobId, unique: &UniqueKey) -> Holder {
        let (held, until) = match unique.scope {
            Scope::Unfinished => (Held::Unfinished, None),
            Scope::Period(period) => (Held::Period, Some(self.now + period)),
            Scope::Forever => (Held::Forever, None),
        };
        Holder { id, next: None, held, until }
    }

    /// Whether a key's period is over.
    pub(super) fn is_over(&self, holder: &Holder) -> bool {
        let over = |until: Timestamp| until <= self.now;
        holder.until.is_some_and(over)
    }

    /// The holder of a key has finished.
    pub(super) fn release(&mut self, key: &str, id: JobId) {
        let Some(holder) = self.keys.get(key).cloned() else { return };
        if holder.id != id {
            return self.forget_kept(key, &holder, id);
        }
        match holder.next {
            Some(next) => {
                self.keys.insert(key.to_owned(), Holder { id: next, next: None, ..holder });
                self.set_free(next);
            }
            None if holder.held == Held::Unfinished => drop(self.keys.remove(key)),
            None => {}
        }
    }

    /// A kept job was called off: its place is free again.
    fn forget_kept(&mut self, key: &str, holder: &Holder, id: JobId) {
        if holder.next == Some(id) {
            self.keys.insert(key.to_owned(), Holder { next: None, ..holder.clone() });
        }
    }

    /// A kept job comes to its turn.
    fn set_free(&mut self, id: JobId) {
        let now = self.now;
        if let Place::Blocked { due } = self.job(id).place {
            self.admit(id, due.max(now));
        }
    }
}
