//! What a queue knows and decides, all under one lock: pure bookkeeping, no clock and no spawning.
//!
//! Every change ends in [`State::advance`], which starts whatever may start. So after each change the
//! same is true: a task that waits beside a free slot is held by a pause or by the rate, by nothing
//! else.

use tokio::sync::oneshot::{Receiver, Sender, channel};

use tidemill_core::Priority;

use crate::local::bands::{Bands, Waits};
use crate::local::counts::{Counts, Ended, Tally};
use crate::local::entry::{Entry, Run};
use crate::local::error::Error;
use crate::local::page::Measured;
use crate::local::watch::{Told, Watch};
use crate::local::window::{Opens, Window};

/// A task that has been given a slot.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) entry: Entry,
    slot: usize,
    /// The window whose place it took, until its start is noted.
    pub(super) reserved: Option<u32>,
}

/// What is to be done once the lock is free.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) started: Vec<Started>,
    pub(super) told: Told,
    /// Look again at this moment; the number of the gate that does.
    pub(super) gate: Option<(u64, u64)>,
}

/// Somebody who waits for room: told once there is some, which is then kept for them.
impl Waits for Sender<()> {
    fn waits(&self) -> bool {
        !self.is_closed()
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) concurrency: usize,
    pub(super) depth_max: usize,
    pub(super) paused: bool,
    pub(super) closed: bool,
    pub(super) watch: Watch,
    pub(super) tally: Tally,
    lines: Bands<Entry>,
    /// Those who wait for room, and how much room is kept for those who were told.
    outside: Bands<Sender<()>>,
    kept: usize,
    /// What runs, by slot.
    slots: Vec<Option<Entry>>,
    free: Vec<usize>,
    window: Option<Window>,
    windows: u32,
    /// The gate that sleeps now, and the number of the last one.
    gate_armed: bool,
    gates: u64,
}

impl State {
    pub(super) fn new(concurrency: usize, depth_max: usize) -> Self {
        Self {
            concurrency,
            depth_max,
            paused: false,
            closed: false,
            watch: Watch::default(),
            tally: Tally::default(),
            lines: Bands::new(),
            outside: Bands::new(),
            kept: 0,
            slots: Vec::new(),
            free: Vec::new(),
            window: None,
            windows: 0,
            gate_armed: false,
            gates: 0,
        }
    }

    pub(super) fn queued(&self) -> usize {
        self.lines.len()
    }

    pub(super) fn running(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queued() + self.running() + self.kept + self.outside.len() == 0
    }

    pub(super) fn counts(&self) -> Counts {
        self.tally.read(self.queued(), self.running())
    }

    pub(super) fn measured(&self) -> Measured {
        let (waits, runs) = (self.tally.waits.seen(), self.tally.runs.seen());
        Measured { counts: self.counts(), waits, runs }
    }

    pub(super) fn has_room(&self) -> bool {
        self.queued() + self.kept < self.depth_max
    }

    /// Takes a task in, or says why not. Room that was kept for it is used up either way.
    pub(super) fn enqueue(&mut self, entry: &Entry, kept: bool, now: u64) -> Result<(), Error> {
        self.kept -= usize::from(kept);
        let refused = if self.closed {
            Err(Error::Closed)
        } else if !self.has_room() {
            Err(Error::Full { depth_max: self.depth_max })
        } else {
            Ok(())
        };
        if refused.is_err() {
            self.tally.rejected += 1;
            return refused;
        }
        self.tally.enqueued += 1;
        entry.head().arrive(now);
        self.lines.push(entry.head().priority, entry.clone());
        Ok(())
    }

    /// Waits outside for room.
    pub(super) fn wait_outside(&mut self, priority: Priority) -> Receiver<()> {
        let (told, room) = channel();
        self.outside.push(priority, told);
        room
    }

    /// Waits outside no more: gives up the place or the room that was kept.
    pub(super) fn leave_outside(&mut self, priority: Priority, mut room: Receiver<()>) {
        use tokio::sync::oneshot::error::TryRecvError;
        match room.try_recv() {
            Ok(()) => self.kept -= 1,
            Err(TryRecvError::Empty) => {
                room.close();
                self.outside.left(priority);
            }
            Err(TryRecvError::Closed) => {}
        }
    }

    /// The next task, if one may start now.
    pub(super) fn start(&mut self, now: u64) -> Option<Started> {
        if self.paused || self.running() >= self.concurrency {
            return None;
        }
        let window = self.window.as_mut();
        if window.is_some_and(|window| window.opens(now) != Opens::Now) {
            return None;
        }
        let entry = self.lines.pop()?;
        let reserved = self.window.as_mut().map(Window::reserve);
        self.tally.started += 1;
        self.tally.waits.add(entry.head().start(now));
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(entry.clone());
        Some(Started { entry, slot, reserved })
    }

    /// Notes the start of a task, not later than `now`.
    pub(super) fn note(&mut self, started: &mut Started, now: u64) {
        if let (Some(reserved), Some(window)) = (started.reserved.take(), &mut self.window) {
            window.note(reserved, now);
        }
    }

    /// Frees the slot of a task.
    pub(super) fn end(&mut self, started: &mut Started, ended: Ended, now: u64) {
        self.note(started, now);
        let head = started.entry.head();
        self.tally.runs.add(head.age_ns(now));
        self.tally.end(ended);
        head.end();
        self.slots[started.slot] = None;
        self.free.push(started.slot);
    }

    /// Calls off a task that waits; false when it does not wait.
    pub(super) fn call_off(&mut self, entry: &dyn Run) -> bool {
        let head = entry.head();
        let waits = head.waits();
        if waits {
            head.end();
            self.lines.left(head.priority);
            self.tally.end(Ended::Cancelled);
        }
        waits
    }

    /// Calls off all that wait.
    pub(super) fn clear(&mut self) -> Vec<Entry> {
        let entries = self.lines.drain();
        for entry in &entries {
            entry.head().end();
            self.tally.end(Ended::Cancelled);
        }
        entries
    }

    /// Takes nothing more in; those outside are told by the end of their channel.
    pub(super) fn close(&mut self) {
        self.closed = true;
        let outside = self.outside.drain();
        self.tally.rejected += outside.len() as u64;
    }

    /// What runs now.
    pub(super) fn all_running(&self) -> Vec<Entry> {
        self.slots.iter().flatten().cloned().collect()
    }

    /// A new rate; none removes it. What started under the old one still counts under the new.
    pub(super) fn set_rate(&mut self, rate: Option<(usize, u64)>) {
        match (rate, &mut self.window) {
            (Some((starts_max, length_ns)), Some(window)) => window.change(starts_max, length_ns),
            (Some((starts_max, length_ns)), none) => {
                self.windows = self.windows.wrapping_add(1);
                *none = Some(Window::new(starts_max, length_ns, self.windows));
            }
            (None, window) => *window = None,
        }
        // The gate that sleeps waits for the wrong moment: it finds that it is no longer the last.
        self.gate_armed = false;
        self.gates += 1;
    }

    /// Whether the gate of this number is still the one that counts; it has woken.
    pub(super) fn gate_woke(&mut self, number: u64) -> bool {
        let counts = self.gates == number;
        self.gate_armed &= !counts;
        counts
    }

    /// Starts what may start, gives room to those outside and tells whose mark is reached.
    pub(super) fn advance(&mut self, now: u64) -> Effects {
        let mut effects = Effects::default();
        while let Some(started) = self.start(now) {
            effects.started.push(started);
        }
        while self.outside.len() > 0
            && self.has_room()
            && let Some(told) = self.outside.pop()
        {
            // Sent under the lock, so that who leaves finds either the room or their place.
            self.kept += usize::from(told.send(()).is_ok());
        }
        self.watch.reached(self.queued(), self.is_idle(), &mut effects.told);
        effects.gate = self.arm_gate(now);
        effects
    }

    fn arm_gate(&mut self, now: u64) -> Option<(u64, u64)> {
        let held = !self.gate_armed && !self.paused && self.queued() > 0;
        if !held || self.running() >= self.concurrency {
            return None;
        }
        let Opens::At(at) = self.window.as_mut()?.opens(now) else { return None };
        self.gate_armed = true;
        self.gates += 1;
        Some((self.gates, at))
    }
}
