//! What the engine asks of a store about credentials, and what it is answered.
//!
//! A store keeps hashes and never sees a secret. It finds; whether what it found is good is not its to say.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidemill_core::access::Standing;
use tidemill_core::access::secret::SecretHash;
use tidemill_core::{CredentialId, Grant, Role};

use crate::error::{Error, Result};

/// A credential that is to be kept. Sent again under the same id, it is the same.
#[derive(Debug, Clone)]
pub struct NewCredential {
    /// Names it for ever.
    pub id: CredentialId,
    /// For people; of those that are live, each has another.
    pub name: String,
    /// What is kept of its secret.
    pub hash: SecretHash,
    /// What it lets its holder do.
    pub grant: Grant,
    /// How long it is good for, by the store's clock; none means until it is revoked.
    pub expires_in: Option<Duration>,
    /// As many may be live, with it, and as many of those that have ended are kept.
    pub live_max: usize,
}

/// What became of a credential that was to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// It is kept.
    Kept,
    /// A live one has its name; nothing was written.
    NameTaken,
    /// As many are live as may be; nothing was written.
    TooMany,
}

/// A credential as people see it: all but its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CredentialView {
    /// Names it for ever.
    pub id: CredentialId,
    /// For people.
    pub name: String,
    /// What it lets its holder do.
    #[serde(flatten)]
    pub grant: Grant,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its time is over.
    pub expires_at: Option<Timestamp>,
    /// When somebody ended it.
    pub revoked_at: Option<Timestamp>,
    /// When it was last used, a minute or so behind.
    pub used_at: Option<Timestamp>,
}

impl CredentialView {
    /// Where it stands.
    pub fn standing(&self, now: Timestamp) -> Standing {
        Standing::of(self.expires_at, self.revoked_at, now)
    }
}

/// A credential that was found by its hash.
#[derive(Debug, Clone)]
pub struct Found {
    /// The hash it is kept under.
    pub hash: SecretHash,
    /// It.
    pub view: CredentialView,
    /// The store's present when it was looked at.
    pub now: Timestamp,
}

/// Memory of credentials.
#[async_trait]
pub trait Credentials {
    /// Keeps a credential, unless a live one has its name or there are too many. Of two that ask for the same
    /// name at once, one gets it. Also forgets those that ended long ago.
    async fn add_credential(&self, new: NewCredential) -> Result<Added>;

    /// Those of these hashes that are kept, live or not, in any order. Nothing is found that cannot be read
    /// as it was written.
    async fn find_credentials(&self, hashes: &[SecretHash]) -> Result<Vec<Found>>;

    /// All that are kept, newest first.
    async fn credentials(&self) -> Result<Vec<CredentialView>>;

    /// Ends a credential; one that was ended stays as it is. `false`: there is none of this id.
    async fn revoke_credential(&self, id: CredentialId) -> Result<bool>;

    /// Notes when credentials were last used. It waits for nobody: who is noted by somebody else just now is
    /// passed over.
    async fn touch_credentials(&self, used: &[(CredentialId, Timestamp)]) -> Result<()>;
}

/// A role as it was kept. What cannot be read grants nothing.
pub(crate) fn read_role(word: &str) -> Result<Role> {
    word.parse().map_err(|error: tidemill_core::Error| unreadable(&error))
}

pub(crate) fn unreadable(error: &dyn std::fmt::Display) -> Error {
    Error::Database { reason: format!("a credential cannot be read: {error}") }
}
