//! The numbers that name things: a job, a flow, a lease, a worker, a credential, a plan and an act.
//!
//! Ids of jobs, flows, workers and credentials are UUIDv7, made by the caller's side, so an enqueue that
//! is sent twice can be recognised. A token is given by the store at every claim and only grows.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use jiff::Timestamp;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

use crate::error::{Error, Result};

/// Names a job for ever. Ordered by the time it was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobId(pub Uuid);

/// Names a flow for ever. Ordered by the time it was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FlowId(pub Uuid);

/// Names one run of one worker; a restarted worker is a new one, so it can never pass for the old.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerId(pub Uuid);

/// Names a credential for ever. It is no secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CredentialId(pub Uuid);

/// Names a plan for dead letters for ever. Ordered by the time it was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanId(pub Uuid);

/// Names an act in the record of who did what. Ordered by the time it was begun.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditId(pub Uuid);

/// Proves a lease. Larger at every claim; a write that carries an older one is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Token(pub i64);

/// Reads an id from its text; what is none is told in our words.
struct Text<T>(PhantomData<T>);

impl<T: FromStr<Err = Error>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id, the text of a UUID")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

macro_rules! uuid_id {
    ($name:ident) => {
        impl $name {
            /// A new one, larger than all this process made before.
            #[expect(clippy::new_without_default, reason = "a default id would hide a choice")]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self> {
                let wrong = |_| Error::IdInvalid { value: text.to_owned() };
                Uuid::parse_str(text).map(Self).map_err(wrong)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
                from.deserialize_str(Text(PhantomData))
            }
        }
    };
}

uuid_id!(JobId);
uuid_id!(FlowId);
uuid_id!(WorkerId);
uuid_id!(CredentialId);
uuid_id!(PlanId);
uuid_id!(AuditId);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl JobId {
    /// The id of what happens at this moment and is told apart by this text: the same, whoever makes it.
    pub fn of_text(at: Timestamp, text: &str) -> Self {
        let mut bits = [0; 10];
        bits.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..10]);
        let millis = u64::try_from(at.as_millisecond()).unwrap_or_default();
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &bits).into_uuid())
    }
}

/// Where the mark of its owner begins in the id of a worker; all before it is its own.
const MARK_AT: usize = 11;

impl WorkerId {
    /// A new one, of a worker that the holder of this credential registers. Whose it is stands in it, so that every
    /// process knows without a look, for as long as the worker lives: 40 bits of a hash, which nobody can choose.
    pub fn of(owner: CredentialId) -> Self {
        let own = Uuid::now_v7();
        let mut bytes = *own.as_bytes();
        // Of two that are made in one moment only the last bits differ, which the mark takes.
        bytes[6..MARK_AT].copy_from_slice(&blake3::hash(own.as_bytes()).as_bytes()[6..MARK_AT]);
        let mut builder = uuid::Builder::from_bytes(bytes);
        builder.set_variant(uuid::Variant::RFC4122).set_version(uuid::Version::SortRand);
        let mut bytes = builder.into_uuid().into_bytes();
        let mark = Self::mark(owner, &bytes);
        bytes[MARK_AT..].copy_from_slice(&mark);
        Self(Uuid::from_bytes(bytes))
    }

    /// Whether it was made for the holder of this credential.
    pub fn is_of(self, owner: CredentialId) -> bool {
        self.0.as_bytes()[MARK_AT..] == Self::mark(owner, self.0.as_bytes())
    }

    fn mark(owner: CredentialId, id: &[u8; 16]) -> [u8; 16 - MARK_AT] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(owner.0.as_bytes()).update(&id[..MARK_AT]);
        let mut mark = [0; 16 - MARK_AT];
        mark.copy_from_slice(&hasher.finalize().as_bytes()[..16 - MARK_AT]);
        mark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_of_the_credential_that_it_was_made_for() {
        let (one, other) = (CredentialId::new(), CredentialId::new());
        let ids: std::collections::BTreeSet<_> = (0..10_000).map(|_| WorkerId::of(one)).collect();
        assert_eq!(ids.len(), 10_000, "each its own");
        for id in ids {
            assert!(id.is_of(one) && !id.is_of(other), "{id}");
            assert_eq!(id.0.get_version_num(), 7);
        }
        assert!(!WorkerId::new().is_of(one));
    }

    #[test]
    fn ids_made_one_after_another_are_ordered() {
        let ids: Vec<_> = (0..10_000).map(|_| JobId::new()).collect();
        assert!(ids.is_sorted());
    }

    #[test]
    fn an_id_survives_its_text() {
        let id = JobId::new();
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(serde_json::from_str::<JobId>(&format!("\"{id}\"")).unwrap(), id);
    }

    #[test]
    fn what_is_no_id_is_told_in_our_words() {
        let refused = "42".parse::<JobId>().unwrap_err();
        assert_eq!(refused.code(), "id_invalid");
        let said = "\"42\" is not an id; one is a UUID like 018f3a2e-7c11-7bbb-8000-5fd1e2a0c0de";
        assert_eq!(refused.to_string(), said);
        let read = serde_json::from_str::<JobId>("\"42\"").unwrap_err().to_string();
        assert!(read.starts_with(said), "{read}");
    }
}
