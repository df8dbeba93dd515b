//! What the processes say they did, in files that only grow.
//!
//! A line is written by one `write` on a file opened for appending, so that lines of several
//! processes never mix, and what reached the kernel survives the death of its process. Only where a
//! line crosses a page can a kill cut it short; so each begins with a line break and ends with a
//! semicolon, and a torn one is what its writer did not live to say.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidemill::{JobId, Receipt, Token};

use super::work::Plan;

/// Written before a job is enqueued.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Intent {
    pub id: JobId,
    pub plan: Plan,
    pub unique: Option<String>,
    /// The key of the line it takes its turn in; only one task of one process enqueues there.
    pub line: Option<String>,
    /// How it is enqueued.
    pub way: Way,
}

/// How a job is enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// By the library.
    Plainly,
    /// In the producer's own transaction, together with a row of its ledger.
    InTransaction,
    /// The same, rolled back.
    RolledBack,
}

/// Written after the answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ack {
    pub id: JobId,
    pub receipt: Receipt,
}

/// Written by a handler before it returns.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Effect {
    pub id: JobId,
    pub token: Token,
    pub attempt: u16,
    pub pid: u32,
    /// How many stale writes of this process had been refused by then.
    pub stale: u64,
}

/// A file that only grows.
#[derive(Debug)]
pub struct Log(File);

impl Log {
    pub fn open(folder: &Path, name: &str) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(folder.join(name));
        Self(file.unwrap())
    }

    pub fn write(&self, line: &impl Serialize) {
        let text = format!("\n{};\n", serde_json::to_string(line).unwrap());
        (&self.0).write_all(text.as_bytes()).unwrap();
    }
}

/// Where a run's files are.
#[derive(Debug, Clone)]
pub struct Folder(pub PathBuf);

impl Folder {
    /// How much has been acknowledged and done, in bytes: it grows with every fact.
    pub fn size(&self) -> u64 {
        let size = |name: &str| fs::metadata(self.0.join(name)).map_or(0, |file| file.len());
        size("acks") + size("effects")
    }

    /// The whole lines of a file.
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> Vec<T> {
        let text = fs::read_to_string(self.0.join(name)).unwrap_or_default();
        let whole = text.lines().filter_map(|line| line.strip_suffix(';'));
        whole.map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Everything the processes wrote down.
#[derive(Debug)]
pub struct History {
    pub intents: BTreeMap<JobId, Intent>,
    pub acks: BTreeMap<JobId, Receipt>,
    /// In the order they were written.
    pub effects: BTreeMap<JobId, Vec<Effect>>,
    pub effects_in_all: usize,
    pub stale: u64,
}

impl History {
    pub fn read(folder: &Folder) -> Self {
        let intents = folder.read::<Intent>("intents").into_iter().map(|i| (i.id, i)).collect();
        let acks = folder.read::<Ack>("acks").into_iter().map(|a| (a.id, a.receipt)).collect();
        let all: Vec<Effect> = folder.read("effects");
        let mut stale: BTreeMap<u32, u64> = BTreeMap::new();
        let mut effects: BTreeMap<JobId, Vec<Effect>> = BTreeMap::new();
        let effects_in_all = all.len();
        for effect in all {
            let most = stale.entry(effect.pid).or_default();
            *most = effect.stale.max(*most);
            effects.entry(effect.id).or_default().push(effect);
        }
        Self { intents, acks, effects, effects_in_all, stale: stale.values().sum() }
    }

    /// What was acknowledged in each line, in the order of the enqueues: an id is made after the
    /// answer to the one before it.
    pub fn lines(&self) -> BTreeMap<&str, Vec<JobId>> {
        let mut lines: BTreeMap<&str, Vec<JobId>> = BTreeMap::new();
        for intent in self.intents.values().filter(|intent| self.acks.contains_key(&intent.id)) {
            if let Some(line) = &intent.line {
                lines.entry(line).or_default().push(intent.id);
            }
        }
        lines
    }

    /// The keys that were used.
    pub fn unique_keys(&self) -> BTreeSet<&str> {
        self.intents.values().filter_map(|intent| intent.unique.as_deref()).collect()
    }
}
