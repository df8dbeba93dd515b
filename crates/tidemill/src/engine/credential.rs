//! Credentials: made, listed, revoked, and verified.
//!
//! What a caller from outside shows is a secret, and what the store keeps is its hash. A process that has the
//! store needs no credential: whoever has the database has everything. Servers ask [`Credentials::verify`].
//!
//! It refuses to tell a secret twice, and to tell a caller why one is not accepted.

mod uses;
pub(crate) mod verify;

use std::sync::Arc;
use std::time::Duration;

use tidemill_core::access::secret::PREFIX;
use tidemill_core::access::{self, CREDENTIALS_MAX, Standing};
use tidemill_core::{CredentialId, Grant, Secret};
use tidemill_store::credential::{Added, CredentialView, NewCredential};

use crate::engine::Tidemill;
use crate::error::{Error, Result};
use verify::{Refusal, Verified};

/// The credentials of a store; see [`Tidemill::credentials`].
#[derive(Debug, Clone)]
pub struct Credentials<'a>(&'a Tidemill);

impl Tidemill {
    /// The credentials that callers from outside show.
    ///
    /// ```
    /// # use tidemill::{Act, Grant, Role, Tidemill};
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// let mill = Tidemill::open("sqlite::memory:").await?;
    /// let (made, secret) = mill.credentials().create("shop", Grant::new(Role::Producer), None).await?;
    /// let shown = secret.reveal();
    /// let caller = mill.credentials().verify(shown).await?.expect("it was just made");
    /// assert!(caller.id == made.id && caller.grant.may(Act::Enqueue));
    /// mill.credentials().revoke(made.id).await?;
    /// assert!(mill.credentials().verify(shown).await?.is_err());
    /// # mill.close().await;
    /// # anyhow::Ok(()) })?;
    /// # anyhow::Ok(())
    /// ```
    pub fn credentials(&self) -> Credentials<'_> {
        Credentials(self)
    }
}

impl Credentials<'_> {
    /// Makes a credential; without `expires_in` it is good until it is revoked. Its secret is told here and
    /// never again. Of those that are live, each has a name of its own (`credential_taken`).
    pub async fn create(
        &self,
        name: &str,
        grant: Grant,
        expires_in: Option<Duration>,
    ) -> Result<(CredentialView, Secret)> {
        access::check_name(name)?;
        access::check_expiry(expires_in)?;
        grant.check()?;
        let (secret, id) = (random_secret()?, CredentialId::new());
        let (name, live_max) = (name.to_owned(), CREDENTIALS_MAX);
        let new = NewCredential {
            id,
            name: name.clone(),
            hash: secret.hash(),
            grant,
            expires_in,
            live_max,
        };
        match self.0.0.store.add_credential(new).await? {
            Added::NameTaken => Err(Error::CredentialTaken { name }),
            Added::TooMany => Err(Error::CredentialsTooMany { max: live_max }),
            Added::Kept => {
                let found = self.0.0.store.find_credentials(&[secret.hash()]).await?.pop();
                let found = found.ok_or(Error::CredentialUnknown { which: id.to_string() })?;
                Ok((found.view, secret))
            }
        }
    }

    /// All credentials that are kept, newest first; those that have ended, for 90 days.
    pub async fn list(&self) -> Result<Vec<CredentialView>> {
        Ok(self.0.0.store.credentials().await?)
    }

    /// The live credential of this name, or the one with this id, or with this secret, for one that was found
    /// where it should not be. What may be a secret is not repeated in the error.
    pub async fn find(&self, which: &str) -> Result<CredentialView> {
        if which.starts_with(PREFIX) {
            let hash = Secret::parse(which).map(|secret| secret.hash());
            let found = self.0.0.store.find_credentials(hash.as_slice()).await?.pop();
            let unknown = || Error::CredentialUnknown { which: format!("{PREFIX}…") };
            return found.map(|found| found.view).ok_or_else(unknown);
        }
        let (all, now) = (self.list().await?, self.0.now().await?);
        let id = which.parse::<CredentialId>().ok();
        let is_meant = |view: &CredentialView| match id {
            Some(id) => view.id == id,
            None => view.name == which && view.standing(now) == Standing::Live,
        };
        let found = all.into_iter().find(is_meant);
        found.ok_or_else(|| Error::CredentialUnknown { which: which.to_owned() })
    }

    /// Ends a credential: here at once, in every other process within a second. One that has been revoked
    /// stays so.
    pub async fn revoke(&self, id: CredentialId) -> Result<()> {
        let is_there = self.0.0.store.revoke_credential(id).await?;
        self.0.0.checks.forget();
        if is_there { Ok(()) } else { Err(Error::CredentialUnknown { which: id.to_string() }) }
    }

    /// Who shows this secret. Costs no look at the store while what is known of it is less than a second old.
    ///
    /// A store that is away is an error, and nobody is let in on what was known before. The inner error is for
    /// logs and counts; its text is always the same, so that a caller learns nothing from it.
    pub async fn verify(
        &self,
        secret: &str,
    ) -> Result<std::result::Result<Arc<Verified>, Refusal>> {
        let Some(secret) = Secret::parse(secret) else { return Ok(Err(Refusal::Malformed)) };
        let engine = &self.0.0;
        engine.checks.verify(&engine.store, &engine.clock, secret.hash()).await
    }

    /// Whether one who was verified before still is, for who serves a caller for long: what was revoked or is over
    /// is refused, as early as by [`verify`](Self::verify), and nobody has to keep the secret.
    pub async fn verify_again(
        &self,
        known: &Verified,
    ) -> Result<std::result::Result<Arc<Verified>, Refusal>> {
        let engine = &self.0.0;
        engine.checks.verify(&engine.store, &engine.clock, known.hash).await
    }
}

fn random_secret() -> Result<Secret> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::RandomUnavailable { reason: error.to_string() })?;
    Ok(Secret::of_random(bytes))
}
