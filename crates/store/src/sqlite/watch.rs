//! Notices what other processes, and other connections of this one, write to the file.
//!
//! SQLite has no channels. But every commit appends to the `-wal` file, and a connection's
//! `data_version` changes exactly when another connection has committed. So: when the file changes,
//! ask the writer's connection whether it was somebody else, and if so tell `Hint::Any`.
//!
//! The file changes before the commit can be seen (an fsync lies between), so after an event it is
//! asked a few times, ever more rarely. Our own commits make the same noise; it costs one question
//! per millisecond at most. Refuses to matter: without it, workers look by themselves now and then.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, sleep};
use std::time::Duration;

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use rusqlite::Connection;

use crate::error::Result;
use crate::sqlite::news::Listeners;
use crate::sqlite::writer::Writer;
use crate::wake::Hint;

/// Pauses between two questions after an event; an fsync seldom takes longer than their sum.
const PAUSES_MS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
const THROTTLE: Duration = Duration::from_millis(1);

/// Watches until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    _watcher: RecommendedWatcher,
}

impl Watch {
    /// Starts watching; `None` where the system cannot.
    pub fn start(file: &Path, writer: Writer, listeners: Arc<Listeners>) -> Option<Self> {
        let mut wal = file.as_os_str().to_owned();
        wal.push("-wal");
        let (events, changes) = sync_channel(1);
        let started = notify::recommended_watcher(move |event| heard(event, &events)).and_then(
            |mut watcher| {
                watcher.watch(Path::new(&wal), RecursiveMode::NonRecursive)?;
                Ok(watcher)
            },
        );
        match started {
            Ok(watcher) => {
                thread::Builder::new()
                    .name("tidemill-watch".to_owned())
                    .spawn(move || follow(&changes, &writer, &listeners))
                    .ok()?;
                Some(Self { _watcher: watcher })
            }
            Err(error) => {
                tracing::debug!(%error, "the database file cannot be watched; workers will poll");
                None
            }
        }
    }
}

/// Passes an event on. While this sleeps, the system merges the events that follow into one.
fn heard(event: notify::Result<Event>, events: &SyncSender<()>) {
    if event.is_ok_and(|event| event.kind.is_modify()) {
        // A full channel means that a look is due anyway.
        let _ = events.try_send(());
        sleep(THROTTLE);
    }
}

/// Asks after every event whether somebody else wrote; ends with the watcher.
fn follow(changes: &Receiver<()>, writer: &Writer, listeners: &Listeners) {
    let Ok(mut seen) = writer.read_blocking(data_version) else { return };
    // What was written between the opening and this first look would be missed: whoever listens looks once.
    listeners.wake.tell(Hint::Any);
    while changes.recv().is_ok() {
        let mut pauses = PAUSES_MS.iter();
        loop {
            match writer.read_blocking(data_version) {
                Ok(version) if version != seen => {
                    seen = version;
                    listeners.wake.tell(Hint::Any);
                }
                Ok(_) => {}
                Err(_) => return,
            }
            let Some(pause) = pauses.next() else { break };
            match changes.recv_timeout(Duration::from_millis(*pause)) {
                Ok(()) => pauses = PAUSES_MS.iter(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

fn data_version(conn: &Connection) -> Result<i64> {
    Ok(conn.prepare_cached("pragma data_version")?.query_one([], |row| row.get(0))?)
}
