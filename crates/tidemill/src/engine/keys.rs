//! Changing keys: what each of them still holds, and everything under the first one.
//!
//! It goes through the store a page at a time, and a value that is replaced is not met again: stopped in the middle, by
//! whatever, it is begun again and goes on. Jobs run meanwhile. One call can go a part of the way and say how far it
//! came, for whoever must not be kept waiting.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill_store::value::{Place, Spot, Texts, ValueRow};
use tidemill_store::{Keyring, Store};
use tokio::time::Instant;

use crate::engine::Tidemill;
use crate::engine::patience::ends_at;
use crate::error::{Error, Result};

/// Rows of one page.
const PAGE_ROWS: usize = 500;

/// How many rows hold values of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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

impl KeyCount {
    /// Adds what a part of the way told to what was told before. All are in the order of their keys.
    pub fn add(all: &mut Vec<Self>, part: Vec<Self>) {
        for count in part {
            match all.binary_search_by(|known| known.key.cmp(&count.key)) {
                Ok(at) => all[at].rows += count.rows,
                Err(at) => all.insert(at, count),
            }
        }
    }
}

/// How far a rotation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Rotated {
    /// Encrypted rows that were looked at.
    pub seen: u64,
    /// Rows that are under the first key since.
    pub rotated: u64,
    /// Rows that changed while they were looked at; another rotation sees to them.
    pub changed: u64,
    /// Rows that cannot be decrypted, for want of a key or because they were forged.
    pub unreadable: u64,
}

impl AddAssign for Rotated {
    fn add_assign(&mut self, part: Self) {
        self.seen += part.seen;
        self.rotated += part.rotated;
        self.changed += part.changed;
        self.unreadable += part.unreadable;
    }
}

/// How far one call goes, whichever is reached first. It looks at a page in any case, so that many calls arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// So many rows are looked at, encrypted or not. Defaults to no bound.
    pub rows_max: usize,
    /// After so long no further page is begun. Defaults to a second.
    pub time_max: Duration,
}

impl Default for Reach {
    fn default() -> Self {
        Self { rows_max: usize::MAX, time_max: Duration::from_secs(1) }
    }
}

impl Reach {
    /// One page of one place.
    const PAGE: Self = Self { rows_max: PAGE_ROWS, time_max: Duration::ZERO };
}

impl Tidemill {
    /// How many rows each key holds, of those that this process has and of all others that there are. Its cost grows
    /// with the store.
    pub async fn key_counts(&self) -> Result<Vec<KeyCount>> {
        let (mut counts, mut from) = (Vec::new(), Some(Spot::default()));
        while let Some(spot) = from {
            let (part, next) = self.key_counts_from(spot, Reach::PAGE).await?;
            KeyCount::add(&mut counts, part);
            from = next;
        }
        Ok(counts)
    }

    /// A part of [`key_counts`](Self::key_counts), from a spot on; and where to go on, unless that was all.
    pub async fn key_counts_from(
        &self,
        spot: Spot,
        reach: Reach,
    ) -> Result<(Vec<KeyCount>, Option<Spot>)> {
        let own: Vec<&str> = self.0.keys.ids().collect();
        let mut counts: BTreeMap<String, u64> =
            own.iter().map(|id| ((*id).to_owned(), 0)).collect();
        let mut walk = Walk::new(self, spot, reach);
        while let Some((_, rows)) = walk.next().await? {
            for id in rows.iter().flat_map(ids) {
                *counts.entry(id).or_default() += 1;
            }
        }
        let count = |(key, rows): (String, u64)| {
            let place = own.iter().position(|id| *id == key);
            KeyCount { key, rows, known: place.is_some(), first: place == Some(0) }
        };
        Ok((counts.into_iter().map(count).collect(), walk.spot))
    }

    /// Encrypts everything with the first key that is encrypted with another; `told` hears how far it has come.
    /// Afterwards, once [`key_counts`](Self::key_counts) has no rows of it, a key can be taken away.
    pub async fn rotate_keys(&self, mut told: impl FnMut(Rotated)) -> Result<Rotated> {
        let (mut so_far, mut from) = (Rotated::default(), Some(Spot::default()));
        while let Some(spot) = from {
            let (part, next) = self.rotate_keys_from(spot, Reach::PAGE).await?;
            so_far += part;
            told(so_far);
            from = next;
        }
        Ok(so_far)
    }

    /// A part of [`rotate_keys`](Self::rotate_keys), from a spot on; and where to go on, unless that was all.
    pub async fn rotate_keys_from(
        &self,
        spot: Spot,
        reach: Reach,
    ) -> Result<(Rotated, Option<Spot>)> {
        if self.0.keys.is_empty() {
            return Err(Error::EncryptionOff);
        }
        let mut so_far = Rotated::default();
        let mut walk = Walk::new(self, spot, reach);
        while let Some((place, rows)) = walk.next().await? {
            so_far += self.rotate_page(place, rows).await?;
        }
        Ok((so_far, walk.spot))
    }

    async fn rotate_page(&self, place: Place, rows: Vec<ValueRow>) -> Result<Rotated> {
        let mut page = Rotated { seen: rows.len() as u64, ..Rotated::default() };
        let mut changes = Vec::new();
        for row in rows {
            match again(&self.0.keys, &row) {
                Ok(Some(texts)) => changes.push((row, texts)),
                Ok(None) => {}
                Err(error) => {
                    page.unreadable += 1;
                    tracing::warn!(?place, key = ?row.key, %error, "a row keeps its key");
                }
            }
        }
        if !changes.is_empty() {
            let asked = changes.len() as u64;
            page.rotated = self.0.store.replace_values(place, changes).await?;
            page.changed = asked - page.rotated;
        }
        Ok(page)
    }
}

/// The pages of all places, one after the other, as far as it reaches.
struct Walk<'a> {
    store: &'a dyn Store,
    /// What follows; `None` at the end.
    spot: Option<Spot>,
    rows_left: usize,
    until: Instant,
    has_begun: bool,
}

impl<'a> Walk<'a> {
    fn new(mill: &'a Tidemill, spot: Spot, reach: Reach) -> Self {
        let until = ends_at(reach.time_max);
        let (store, spot, rows_left) = (&*mill.0.store, Some(spot), reach.rows_max.max(1));
        Self { store, spot, rows_left, until, has_begun: false }
    }

    /// The encrypted rows of the next page.
    async fn next(&mut self) -> Result<Option<(Place, Vec<ValueRow>)>> {
        let is_over = self.rows_left == 0 || (self.has_begun && Instant::now() >= self.until);
        let Some(spot) = self.spot.as_ref().filter(|_| !is_over) else { return Ok(None) };
        let (place, limit) = (spot.place, self.rows_left.min(PAGE_ROWS));
        let mut rows = self.store.values(place, Some(&spot.after), limit).await?;
        self.spot = match rows.last() {
            Some(last) if rows.len() == limit => Some(Spot { place, after: last.key.clone() }),
            _ => spot.next_place(),
        };
        self.rows_left -= rows.len();
        self.has_begun = true;
        rows.retain(ValueRow::is_encrypted);
        Ok(Some((place, rows)))
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
