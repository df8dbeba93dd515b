//! Whether a secret is good, without a look at the store for every request.
//!
//! What was found is known for a second, counted from before the look: so a credential that is revoked
//! anywhere is refused everywhere a second later, and no hint is needed for that. What was not found is asked
//! for again each time; those who try secrets share one look at a time with everybody, and take no memory.
//!
//! Expiry is judged by the store's clock: its present at the look, and the time that passed here since.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::access::secret::SecretHash;
use tidemill_core::access::{CREDENTIALS_MAX, Standing};
use tidemill_core::{Clock, CredentialId, Grant};
use tidemill_store::Store;
use tidemill_store::credential::Found;
use tokio::time::Instant;

use super::uses::Uses;
use crate::engine::look::Looks;
use crate::error::Result;
use crate::worker::shop::locked;

/// How long what was found is known.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// Who shows a secret that is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Names the credential.
    pub id: CredentialId,
    /// Its name, for people.
    pub name: String,
    /// What it lets its holder do.
    pub grant: Grant,
    /// When it is over; who serves a caller for long should [verify again](super::Credentials::verify_again).
    pub expires_at: Option<Timestamp>,
    /// Finds the credential again, without its secret.
    pub(super) hash: SecretHash,
}

/// Why a secret is not accepted. For logs and counts: its text tells a caller nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It cannot be a secret; the store was not asked.
    Malformed,
    /// Nobody has it.
    Unknown,
    /// Its time is over.
    Expired,
    /// Somebody has ended it.
    Revoked,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the credential is not accepted")
    }
}

impl std::error::Error for Refusal {}

/// What was found of a secret, and when.
#[derive(Debug)]
struct Known {
    verified: Arc<Verified>,
    revoked_at: Option<Timestamp>,
    /// The store's present at the look.
    now: Timestamp,
    /// When the look began.
    since: Instant,
}

impl Known {
    fn new(found: Found, since: Instant) -> Self {
        let Found { view, now, hash } = found;
        let (id, name, grant, expires_at) = (view.id, view.name, view.grant, view.expires_at);
        let verified = Arc::new(Verified { id, name, grant, expires_at, hash });
        Self { verified, revoked_at: view.revoked_at, now, since }
    }

    fn is_fresh(&self) -> bool {
        self.since.elapsed() < KNOWN_FOR
    }

    fn judge(&self, now: Timestamp) -> std::result::Result<Arc<Verified>, Refusal> {
        match Standing::of(self.verified.expires_at, self.revoked_at, now) {
            Standing::Live => Ok(Arc::clone(&self.verified)),
            Standing::Expired => Err(Refusal::Expired),
            Standing::Revoked => Err(Refusal::Revoked),
        }
    }
}

#[derive(Default)]
struct Memory {
    known: HashMap<SecretHash, Arc<Known>>,
    /// How often it was forgotten: what was looked at before that is not known after it.
    forgotten: u64,
}

/// What this process knows of those who showed a secret.
#[derive(Default)]
pub(crate) struct Checks {
    memory: Mutex<Memory>,
    looks: Looks<SecretHash, Arc<Known>>,
    uses: Uses,
}

impl Checks {
    /// Who has the secret of this hash.
    pub(crate) async fn verify(
        &self,
        store: &Arc<dyn Store>,
        clock: &Clock,
        hash: SecretHash,
    ) -> Result<std::result::Result<Arc<Verified>, Refusal>> {
        let (known, forgotten) = self.known(&hash);
        let known = match known {
            Some(known) => known,
            None => match self.look(store, hash).await? {
                Some(known) => self.learn(hash, known, forgotten),
                None => return Ok(Err(Refusal::Unknown)),
            },
        };
        let passed = known.since.elapsed();
        let now = clock.manual().or_else(|| known.now.checked_add(passed).ok());
        let now = now.unwrap_or(Timestamp::MAX);
        let judged = known.judge(now);
        if let Ok(verified) = &judged {
            self.uses.note(store, verified.id, now);
        }
        Ok(judged)
    }

    /// Forgets everything, because something was revoked.
    pub(crate) fn forget(&self) {
        let mut memory = locked(&self.memory);
        memory.known.clear();
        memory.forgotten += 1;
    }

    fn known(&self, hash: &SecretHash) -> (Option<Arc<Known>>, u64) {
        let memory = locked(&self.memory);
        let known = memory.known.get(hash).filter(|known| known.is_fresh());
        (known.cloned(), memory.forgotten)
    }

    async fn look(&self, store: &Arc<dyn Store>, hash: SecretHash) -> Result<Option<Arc<Known>>> {
        let store = Arc::clone(store);
        let look = move |hashes: Vec<SecretHash>| {
            let store = Arc::clone(&store);
            async move {
                let since = Instant::now();
                let found = store.find_credentials(&hashes).await?;
                let known = |found: Found| (found.hash, Arc::new(Known::new(found, since)));
                Ok(found.into_iter().map(known).collect())
            }
        };
        Ok(self.looks.ask(hash, look).await?)
    }

    /// Keeps what was found, unless all was forgotten meanwhile.
    fn learn(&self, hash: SecretHash, known: Arc<Known>, forgotten: u64) -> Arc<Known> {
        let mut memory = locked(&self.memory);
        if memory.known.len() >= CREDENTIALS_MAX {
            memory.known.retain(|_, known| known.is_fresh());
        }
        if memory.forgotten == forgotten && memory.known.len() < CREDENTIALS_MAX {
            memory.known.insert(hash, Arc::clone(&known));
        }
        known
    }
}
