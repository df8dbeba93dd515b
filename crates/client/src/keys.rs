//! The keys that values are encrypted with. Only with the credential of an admin; keys themselves never travel.
//!
//! A server goes a part of the way at a time, so each verb asks until it has gone all of it.

use serde::{Deserialize, Serialize};
use tidemill::{KeyCount, Rotated};

use crate::error::Result;
use crate::http::{Client, path};

#[derive(Default, Serialize)]
struct From {
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

#[derive(Deserialize)]
struct Counted {
    keys: Vec<KeyCount>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Part {
    #[serde(flatten)]
    rotated: Rotated,
    next: Option<String>,
}

impl Client {
    /// How many rows each key holds, of those that the server has and of all others that there are. Its cost grows
    /// with the store.
    pub async fn key_counts(&self) -> Result<Vec<KeyCount>> {
        let (mut counts, mut from) = (Vec::new(), From::default());
        loop {
            let Counted { keys, next } = self.get(&path(["keys"]), &from).await?;
            KeyCount::add(&mut counts, keys);
            if next.is_none() {
                return Ok(counts);
            }
            from.cursor = next;
        }
    }

    /// Encrypts everything with the server's first key that is encrypted with another; `told` hears how far it has
    /// come. If it fails on the way, what was rotated stays so: it is begun again.
    pub async fn rotate_keys(&self, mut told: impl FnMut(Rotated)) -> Result<Rotated> {
        let (mut so_far, mut from) = (Rotated::default(), From::default());
        loop {
            let Part { rotated, next } = self.post(&path(["keys", "rotate"]), &from).await?;
            so_far += rotated;
            told(so_far);
            if next.is_none() {
                return Ok(so_far);
            }
            from.cursor = next;
        }
    }
}
