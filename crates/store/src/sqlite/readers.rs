//! Reading beside the writer.
//!
//! A WAL lets readers see the last commit while the writer works, so reads have connections of
//! their own, opened when first needed, and each read sees one moment. A database in memory has
//! one connection only: there the writer reads, between transactions.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rusqlite::Connection;
use tidemill_core::measure::{Histogram, SHORT_TIMES_US, Seen};
use tokio::sync::Semaphore;

use crate::error::{Error, Result};
use crate::sqlite::open::{self, Place};
use crate::sqlite::writer::Writer;

/// Reads at once. More would gain little: one writer decides how much there is to read.
const READERS: usize = 2;

/// Where reads go.
#[derive(Debug, Clone)]
pub(super) enum Readers {
    Writer(Writer),
    Pool(Arc<Pool>),
}

#[derive(Debug)]
pub(super) struct Pool {
    file: PathBuf,
    idle: Mutex<Vec<Connection>>,
    slots: Arc<Semaphore>,
    /// How long reads waited for one of them.
    waits: Histogram,
}

impl Readers {
    pub fn new(place: &Place, writer: &Writer) -> Self {
        match place {
            Place::Memory => Self::Writer(writer.clone()),
            Place::File(file) => Self::Pool(Arc::new(Pool {
                file: file.clone(),
                idle: Mutex::default(),
                slots: Arc::new(Semaphore::new(READERS)),
                waits: Histogram::new(SHORT_TIMES_US),
            })),
        }
    }

    /// Runs a read on one snapshot.
    pub async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let pool = match self {
            Self::Writer(writer) => return writer.read(look).await,
            Self::Pool(pool) => Arc::clone(pool),
        };
        let asked = Instant::now();
        let slot = Arc::clone(&pool.slots).acquire_owned().await.map_err(|_| closed())?;
        pool.waits.see_time(asked.elapsed());
        let file = pool.file.clone();
        let looking = tokio::task::spawn_blocking(move || {
            let conn = pool.take()?;
            let found = conn.unchecked_transaction().map_err(Error::from).and_then(|snapshot| {
                let found = look(&snapshot)?;
                snapshot.finish()?;
                Ok(found)
            });
            pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
            drop(slot);
            found
        });
        let found = looking
            .await
            .map_err(|e| Error::Unavailable { reason: e.to_string(), unknown: false })?;
        found.map_err(|error| error.of_file(Some(&file)))
    }

    /// How long reads waited so far; `None` where the writer reads.
    pub fn waits(&self) -> Option<Seen> {
        if let Self::Pool(pool) = self { Some(pool.waits.read()) } else { None }
    }

    /// Closes the connections, those of reads under way when these have ended; later reads fail. A connection that
    /// outlived this would keep the WAL, and what is in it would not reach the file.
    pub async fn close(&self) {
        if let Self::Pool(pool) = self {
            let all = pool.slots.acquire_many(READERS as u32).await;
            pool.slots.close();
            drop(all);
            pool.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }
}

impl Pool {
    fn take(&self) -> Result<Connection> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| open::reader(&self.file), Ok)
    }
}

fn closed() -> Error {
    Error::Unavailable { reason: "the store is closed".to_owned(), unknown: false }
}
