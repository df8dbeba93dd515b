//! The lock around the state, and what follows when it is let go.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle as Runtime;
use tokio::time::{Duration, Instant};

use tidemill_core::Priority;

use crate::local::builder::OnDrop;
use crate::local::counts::Ended;
use crate::local::entry::{Entry, Run};
use crate::local::error::Error;
use crate::local::runner;
use crate::local::state::{Effects, Started, State};

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    runtime: Runtime,
    built: Instant,
    /// For tasks that do not say otherwise.
    pub(super) limit_ns: u64,
    pub(super) on_drop: OnDrop,
}

impl Shared {
    pub(super) fn new(state: State, runtime: Runtime, limit_ns: u64, on_drop: OnDrop) -> Arc<Self> {
        let state = Mutex::new(state);
        Arc::new(Self { state, runtime, built: Instant::now(), limit_ns, on_drop })
    }

    pub(super) fn moment(&self, at_ns: u64) -> Instant {
        self.built + Duration::from_nanos(at_ns)
    }

    pub(super) fn look<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the state, then does what became possible.
    pub(super) fn change<R>(self: &Arc<Self>, change: impl FnOnce(&mut State, u64) -> R) -> R {
        let now = self.built.elapsed().as_nanos() as u64;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = change(&mut state, now);
        let effects = state.advance(now);
        drop(state);
        self.perform(effects);
        answer
    }

    fn perform(self: &Arc<Self>, effects: Effects) {
        for told in effects.told {
            // Who no longer listens need not know.
            let _ = told.send(());
        }
        for started in effects.started {
            self.runtime.spawn(runner::run(self.clone(), started));
        }
        if let Some((number, at_ns)) = effects.gate {
            self.runtime.spawn(runner::gate(self.clone(), number, at_ns));
        }
    }

    /// Ends a task and gives the runner the next one, if one may start.
    pub(super) fn end(self: &Arc<Self>, mut started: Started, ended: Ended) -> Option<Started> {
        let next = self.change(|state, now| {
            state.end(&mut started, ended, now);
            state.start(now)
        });
        started.entry.publish();
        next
    }

    /// Takes a task in at once or not at all.
    pub(super) fn try_push(self: &Arc<Self>, entry: &Entry) -> Result<(), Error> {
        self.change(|state, now| state.enqueue(entry, false, now))
    }

    /// Takes a task in, waiting for room.
    pub(super) fn push(
        self: &Arc<Self>,
        entry: Entry,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        let shared = self.clone();
        async move {
            let priority = entry.head().priority;
            let mut outside = None;
            shared.change(|state, now| {
                if state.closed || state.has_room() {
                    return state.enqueue(&entry, false, now);
                }
                outside = Some(state.wait_outside(priority));
                Ok(())
            })?;
            let Some(room) = outside else { return Ok(()) };
            let mut outside = Outside { shared: shared.clone(), priority, room: Some(room) };
            outside.wait().await?;
            shared.change(|state, now| state.enqueue(&entry, true, now))
        }
    }

    /// Calls a task off: one that waits always, one that runs if `running`.
    pub(super) fn call_off(self: &Arc<Self>, entry: &dyn Run, running: bool) {
        if self.change(|state, _| state.call_off(entry)) {
            entry.fail(Error::Cancelled);
            entry.publish();
        } else if running {
            entry.interrupt();
        }
    }

    /// Calls off all that wait; how many these were.
    pub(super) fn clear(self: &Arc<Self>) -> usize {
        let entries = self.change(|state, _| state.clear());
        call_off_all(&entries);
        entries.len()
    }

    /// Nobody can run or resume what waits, if `when` says so: ends it, so that nobody waits in vain.
    /// One change, since nothing may be started on a runtime that is no more.
    pub(super) fn abandon_if(self: &Arc<Self>, when: impl FnOnce(&mut State) -> bool) {
        let entries = self.change(|state, _| {
            if !when(state) {
                return Vec::new();
            }
            state.close();
            state.clear()
        });
        call_off_all(&entries);
    }
}

fn call_off_all(entries: &[Entry]) {
    for entry in entries {
        entry.fail(Error::Cancelled);
        entry.publish();
    }
}

/// Somebody waiting for room, who may give up at any moment.
struct Outside {
    shared: Arc<Shared>,
    priority: Priority,
    room: Option<tokio::sync::oneshot::Receiver<()>>,
}

impl Outside {
    async fn wait(&mut self) -> Result<(), Error> {
        let Some(room) = &mut self.room else { return Ok(()) };
        let told = room.await;
        self.room = None;
        told.map_err(|_| Error::Closed)
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if let Some(room) = self.room.take() {
            self.shared.change(|state, _| state.leave_outside(self.priority, room));
        }
    }
}
