//! The field of battle: a database, the processes that use it, and the folder of their files.

use std::collections::BTreeSet;
use std::time::Duration;

use tempfile::TempDir;
use tidemill::Tidemill;
use tidemill_testkit::databases::fresh_sqlite_url;
use tidemill_testkit::eventually::eventually;
use tidemill_testkit::{Cluster, Process};

use super::history::Folder;
use super::role;

const WORKERS: usize = 4;
const LEAVE_MAX: Duration = Duration::from_secs(20);

/// A database of this test's own, which may be killed.
#[derive(Debug)]
pub struct Database {
    pub url: String,
    pub cluster: Option<Cluster>,
    _folder: Option<TempDir>,
}

impl Database {
    pub fn sqlite() -> Self {
        let (folder, url) = fresh_sqlite_url();
        Self { url, cluster: None, _folder: Some(folder) }
    }

    pub fn postgres() -> Self {
        let cluster = Cluster::start().unwrap();
        Self { url: cluster.url("postgres"), cluster: Some(cluster), _folder: None }
    }

    pub fn name(&self) -> &'static str {
        if self.cluster.is_some() { "postgres" } else { "sqlite" }
    }
}

/// Everything that is on the field.
pub struct Field {
    pub database: Database,
    pub folder: Folder,
    pub mill: Tidemill,
    pub workers: Vec<Process>,
    pub producer: Option<Process>,
    /// Processes that were frozen: they may act late.
    pub frozen: BTreeSet<u32>,
    started: u64,
    seed: u64,
    _files: TempDir,
}

impl Field {
    /// Workers and a producer, all at work.
    pub async fn open(database: Database, seed: u64) -> Self {
        let files = tempfile::Builder::new().prefix("tidemill-crash-").tempdir().unwrap();
        let mill = Tidemill::open(&database.url).await.unwrap();
        super::transaction::Ledger::create(&database.url).await.unwrap();
        let mut field = Self {
            database,
            folder: Folder(files.path().to_owned()),
            mill,
            workers: Vec::new(),
            producer: None,
            frozen: BTreeSet::new(),
            started: 0,
            seed,
            _files: files,
        };
        field.fill_up();
        field
    }

    /// Starts who is missing.
    pub fn fill_up(&mut self) {
        while self.workers.len() < WORKERS {
            let worker = self.start("worker");
            self.workers.push(worker);
        }
        if self.producer.is_none() {
            self.producer = Some(self.start("producer"));
        }
    }

    fn start(&mut self, role: &str) -> Process {
        self.started += 1;
        role::start(role, &self.database.url, &self.folder.0, self.seed + self.started)
    }

    /// Whether the store knows a worker of this process.
    pub async fn knows(&self, pid: u32) -> Option<bool> {
        let workers = self.mill.workers().await.ok()?;
        let name = format!("pid {pid}");
        Some(workers.iter().any(|worker| worker.name == name))
    }

    /// Asks a worker to leave, and expects it to go in peace and leave nothing behind.
    pub async fn send_home(&mut self, mut worker: Process) {
        let pid = worker.id();
        // Before it opens the store it is a process like any other, and may end by the signal.
        eventually("the worker to register", LEAVE_MAX, async || {
            self.knows(pid).await.filter(|known| *known)
        })
        .await;
        worker.term().unwrap();
        let status = worker.wait(LEAVE_MAX).unwrap();
        assert!(status.success(), "a worker that was asked to leave ended with {status}");
        eventually("the worker to be forgotten", LEAVE_MAX, async || {
            self.knows(pid).await.filter(|known| !*known)
        })
        .await;
    }
}
