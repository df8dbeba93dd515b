//! What these tests are told in.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tidemill_core::{NewJob, Payload, Priority, WorkerId};
use tidemill_store::{ClaimRequest, Error, Lane, OpenOptions, Share, Store, WorkerCard, open};
use tidemill_testkit::Process;
use tidemill_testkit::databases::fresh_sqlite_url;

/// How long anything here may take.
pub const SOON: Duration = Duration::from_secs(20);

const URL: &str = "TIDEMILL_SQLITE_URL";

/// A file that does not exist yet, in a folder of its own.
pub struct Place {
    pub folder: TempDir,
    pub url: String,
    pub file: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        let (folder, url) = fresh_sqlite_url();
        let file = PathBuf::from(url.strip_prefix("sqlite:").unwrap());
        Self { folder, url, file }
    }

    /// With a database in it that has one job, and that nobody has open.
    pub async fn with_a_job() -> Self {
        let place = Self::new();
        let store = place.store().await;
        store.enqueue(vec![job()]).await.unwrap();
        store.close().await;
        place
    }

    pub async fn store(&self) -> Arc<dyn Store> {
        open(&self.url, OpenOptions::default()).await.unwrap()
    }

    /// Why it cannot be opened.
    pub async fn refusal(&self) -> Error {
        open(&self.url, OpenOptions::default()).await.map(|_| ()).unwrap_err()
    }

    /// A connection of the test's own.
    pub fn connect(&self) -> Connection {
        Connection::open(&self.file).unwrap()
    }

    /// The names and contents of all files of the folder.
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let mut files: Vec<_> = entries
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.clone(), std::fs::read(path).unwrap()))
            .collect();
        files.sort_unstable();
        files
    }

    /// Lets another process enqueue a job.
    pub fn enqueue_elsewhere(&self) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["role", "--exact"]).env(URL, &self.url);
        let mut process = Process::spawn(&mut command).unwrap();
        let status = process.wait(SOON).unwrap();
        assert!(status.success(), "{status}");
    }
}

/// Plays the other process, if this is one.
pub fn play() {
    let Ok(url) = std::env::var(URL) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = open(&url, OpenOptions::default()).await.unwrap();
        store.enqueue(vec![job()]).await.unwrap();
        store.close().await;
    });
}

/// What SQLite itself says of the file's health.
pub fn is_sound(file: &Path) -> bool {
    let conn = Connection::open(file).unwrap();
    let said: String = conn.query_one("pragma integrity_check", [], |row| row.get(0)).unwrap();
    said == "ok"
}

/// A job with every wish at its default.
pub fn job() -> NewJob {
    NewJob::new("k", Payload::null())
}

/// Registers a worker.
pub async fn worker(store: &Arc<dyn Store>) -> WorkerId {
    let id = WorkerId::new();
    let (queues, kinds) = (vec!["default".into()], Vec::new());
    store
        .register(WorkerCard {
            id,
            name: "w".into(),
            queues,
            kinds,
            slots: 1,
            slots_of: std::collections::BTreeMap::new(),
            lease_ttl: None,
        })
        .await
        .unwrap();
    id
}

/// A wish for the normal band of the default queue.
pub fn ask(worker: WorkerId, jobs_max: usize) -> ClaimRequest {
    let lanes = vec![Lane { queue: "default".into(), priority: Priority::Normal }];
    ClaimRequest {
        worker,
        lanes,
        share: Share::default(),
        limits: Arc::default(),
        edition: None,
        kinds: None,
        jobs_max,
        stand: None,
    }
}
