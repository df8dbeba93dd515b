//! Webhooks: who is told of ended jobs, and what became of it.

use std::time::Duration;

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidemill::core::webhook::Webhook;
use tidemill::core::webhook::sign::SigningSecret;
use tidemill::{Delivery, JobId, State, WebhookView};

use crate::error::Result;
use crate::http::{Client, PAGE_MAX, path};

/// The webhooks of a server; see [`Client::webhooks`].
#[derive(Debug, Clone, Copy)]
pub struct Webhooks<'a>(&'a Client);

#[derive(Deserialize)]
struct Secret {
    secret: Option<SigningSecret>,
}

#[derive(Serialize)]
struct Rotation {
    overlap_s: u64,
}

#[derive(Serialize)]
struct Asked {
    state: Option<State>,
    before: Option<JobId>,
    limit: usize,
}

#[derive(Deserialize)]
struct Deliveries {
    deliveries: Vec<Delivery>,
    next: Option<JobId>,
}

#[derive(Serialize, Deserialize)]
struct Which {
    delivery: JobId,
}

impl Client {
    /// Who is told, over HTTP, that jobs have ended.
    pub fn webhooks(&self) -> Webhooks<'_> {
        Webhooks(self)
    }
}

impl Webhooks<'_> {
    /// All webhooks, by name.
    pub async fn list(&self) -> Result<Vec<WebhookView>> {
        self.0.get(&path(["webhooks"]), &()).await
    }

    /// The webhook of this name.
    pub async fn get(&self, name: &str) -> Result<WebhookView> {
        self.0.get(&path(["webhooks", name]), &()).await
    }

    /// Makes or changes a webhook; answers the secret of a new one, this once.
    pub async fn set(
        &self,
        name: &str,
        webhook: Webhook,
    ) -> Result<(WebhookView, Option<SigningSecret>)> {
        let request = self.0.request(Method::PUT, &path(["webhooks", name])).json(&webhook);
        self.made(&self.0.value::<Box<RawValue>>(request).await?)
    }

    /// Gives a webhook a new secret; the old one goes on signing for so long, beside it.
    pub async fn rotate(
        &self,
        name: &str,
        overlap: Duration,
    ) -> Result<(WebhookView, SigningSecret)> {
        let rotation = Rotation { overlap_s: overlap.as_secs() };
        let place = path(["webhooks", name, "rotate"]);
        let made: Box<RawValue> = self.0.post(&place, &rotation).await?;
        let (view, secret) = self.made(&made)?;
        Ok((view, secret.ok_or_else(|| self.0.unreadable("no secret".to_owned()))?))
    }

    /// A webhook, and its new secret if it has one.
    fn made(self, text: &RawValue) -> Result<(WebhookView, Option<SigningSecret>)> {
        let read = || {
            let view = serde_json::from_str(text.get())?;
            let Secret { secret } = serde_json::from_str(text.get())?;
            serde_json::Result::Ok((view, secret))
        };
        read().map_err(|error| self.0.unreadable(error.to_string()))
    }

    /// Takes a webhook away.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.0.told(self.0.request(Method::DELETE, &path(["webhooks", name]))).await
    }

    /// A page of its deliveries, newest first, and where the next begins.
    pub async fn deliveries(
        &self,
        name: &str,
        state: Option<State>,
        before: Option<JobId>,
        limit: usize,
    ) -> Result<(Vec<Delivery>, Option<JobId>)> {
        let asked = Asked { state, before, limit: limit.clamp(1, PAGE_MAX) };
        let page: Deliveries = self.0.get(&path(["webhooks", name, "deliveries"]), &asked).await?;
        Ok((page.deliveries, page.next))
    }

    /// Sends a message once more, now. Who did it is whose credential it is, whatever `by` says.
    pub async fn redeliver(&self, name: &str, delivery: JobId, by: &str) -> Result<JobId> {
        let _ = by;
        let which = Which { delivery };
        let sent: Which = self.0.post(&path(["webhooks", name, "redeliver"]), &which).await?;
        Ok(sent.delivery)
    }
}
