//! Changing keys: what each of them still holds, and everything under the first one.
//!
//! It goes through the store a page at a time, and a value that is replaced is not met again: stopped in the middle, by
//! whatever, it is begun again and goes on. Jobs run meanwhile.

use std::collections::BTreeMap;

use serde::Serialize;
use tidemill_store::value::{Place, Texts, ValueRow};
use tidemill_store::{Keyring, Store};

use crate::engine::Tidemill;
use crate::error::Result;

/// Rows of one page.
const PAGE_ROWS: usize = 500;

/// How many rows hold values of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyCount {
    /// The id of the key.
    pub key: String,
    /// How many rows; one with values of two keys counts for both.
    pub rows: u64,
    /// Whether this process has the key.
    pub known: bool,
    /// Whether new values are encrypted with it.
    pub first: bool,
}

/// How far a rotation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Rotated {
    /// Rows that were looked at.
    pub seen: u64,
    /// Rows that are under the first key since.
    pub rotated: u64,
    /// Rows that changed while they were looked at; another rotation sees to them.
    pub changed: u64,
    /// Rows that cannot be decrypted, for want of a key or because they were forged.
    pub unreadable: u64,
}

impl Tidemill {
    /// How many rows each key holds, of those that this process has and of all others that there are. Its cost grows
    /// with the store.
    pub async fn key_counts(&self) -> Result<Vec<KeyCount>> {
        let own: Vec<&str> = self.0.keys.ids().collect();
        let mut counts: BTreeMap<String, u64> =
            own.iter().map(|id| ((*id).to_owned(), 0)).collect();
        for place in Place::ALL {
            let mut pages = Pages::new(self, place);
            while let Some(rows) = pages.next().await? {
                for row in &rows {
                    for id in ids(row) {
                        *counts.entry(id).or_default() += 1;
                    }
                }
            }
        }
        let count = |(key, rows): (String, u64)| {
            let place = own.iter().position(|id| *id == key);
            KeyCount { key, rows, known: place.is_some(), first: place == Some(0) }
        };
        Ok(counts.into_iter().map(count).collect())
    }

    /// Encrypts everything with the first key that is encrypted with another; `told` hears how far it has come.
    /// Afterwards, once [`key_counts`](Self::key_counts) has no rows of it, a key can be taken away.
    pub async fn rotate_keys(&self, mut told: impl FnMut(Rotated)) -> Result<Rotated> {
        let mut so_far = Rotated::default();
        for place in Place::ALL {
            let mut pages = Pages::new(self, place);
            while let Some(rows) = pages.next().await? {
                so_far.seen += rows.len() as u64;
                let mut changes = Vec::new();
                for row in rows {
                    match again(&self.0.keys, &row) {
                        Ok(Some(texts)) => changes.push((row, texts)),
                        Ok(None) => {}
                        Err(error) => {
                            so_far.unreadable += 1;
                            tracing::warn!(?place, key = ?row.key, %error, "a row keeps its key");
                        }
                    }
                }
                if !changes.is_empty() {
                    let asked = changes.len() as u64;
                    let rotated = self.0.store.replace_values(place, changes).await?;
                    so_far.rotated += rotated;
                    so_far.changed += asked - rotated;
                }
                told(so_far);
            }
        }
        Ok(so_far)
    }
}

/// The pages of a place, one after the other.
struct Pages<'a> {
    store: &'a dyn Store,
    place: Place,
    after: Option<tidemill_store::value::RowKey>,
    is_over: bool,
}

impl<'a> Pages<'a> {
    fn new(mill: &'a Tidemill, place: Place) -> Self {
        Self { store: &*mill.0.store, place, after: None, is_over: false }
    }

    async fn next(&mut self) -> Result<Option<Vec<ValueRow>>> {
        if self.is_over {
            return Ok(None);
        }
        let rows = self.store.values(self.place, self.after.as_ref(), PAGE_ROWS).await?;
        self.is_over = rows.len() < PAGE_ROWS;
        self.after = rows.last().map(|row| row.key.clone());
        Ok(Some(rows).filter(|rows| !rows.is_empty()))
    }
}

/// The ids of the keys of a row, each once.
fn ids(row: &ValueRow) -> Vec<String> {
    let texts = row.texts.iter().flatten();
    let mut ids: Vec<String> =
        texts.flat_map(|text| Keyring::ids_in(text)).map(str::to_owned).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The texts of a row under the first key; `None` if they are already.
fn again(keys: &Keyring, row: &ValueRow) -> Result<Option<Texts>> {
    let mut texts = row.texts.clone();
    let mut is_other = false;
    for text in texts.iter_mut().flatten() {
        if let Some(other) = keys.encrypt_again(text)? {
            (*text, is_other) = (other, true);
        }
    }
    Ok(is_other.then_some(texts))
}
