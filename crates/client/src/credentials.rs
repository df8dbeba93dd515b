//! Credentials: made, listed, ended. Only with the credential of an admin.

use std::time::Duration;

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidemill::core::span::Span;
use tidemill::{CredentialId, CredentialView, Grant, Role, Secret};

use crate::error::Result;
use crate::http::{Client, path};

/// The credentials of a server; see [`Client::credentials`].
#[derive(Debug, Clone, Copy)]
pub struct Credentials<'a>(&'a Client);

#[derive(Serialize)]
struct Wish<'a> {
    name: &'a str,
    role: Role,
    queues: &'a [String],
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in: Option<Span>,
}

#[derive(Deserialize)]
struct Made {
    secret: String,
}

#[derive(Serialize)]
struct Named<'a> {
    which: &'a str,
}

impl Client {
    /// Who may talk to the server, and what they may do there.
    pub fn credentials(&self) -> Credentials<'_> {
        Credentials(self)
    }
}

impl Credentials<'_> {
    /// Makes a credential; its secret is told here and never again.
    pub async fn create(
        &self,
        name: &str,
        grant: Grant,
        expires_in: Option<Duration>,
    ) -> Result<(CredentialView, Secret)> {
        let Grant { role, queues, tenant } = &grant;
        let (tenant, expires_in) = (tenant.as_deref(), expires_in.map(Span));
        let wish = Wish { name, role: *role, queues, tenant, expires_in };
        let text: Box<RawValue> = self.0.post(&path(["tokens"]), &wish).await?;
        let read = || {
            let view = serde_json::from_str(text.get())?;
            let Made { secret } = serde_json::from_str(text.get())?;
            serde_json::Result::Ok((view, secret))
        };
        let (view, secret) = read().map_err(|error| self.0.unreadable(error.to_string()))?;
        let secret = Secret::parse(&secret);
        Ok((view, secret.ok_or_else(|| self.0.unreadable("no secret".to_owned()))?))
    }

    /// All credentials that are kept, newest first.
    pub async fn list(&self) -> Result<Vec<CredentialView>> {
        self.0.get(&path(["tokens"]), &()).await
    }

    /// The live credential of this name, or the one with this id, or with this secret.
    pub async fn find(&self, which: &str) -> Result<CredentialView> {
        self.0.post(&path(["tokens", "find"]), &Named { which }).await
    }

    /// Ends a credential, everywhere within a second.
    pub async fn revoke(&self, id: CredentialId) -> Result<()> {
        self.0.told(self.0.request(Method::DELETE, &path(["tokens", &id.to_string()]))).await
    }
}
