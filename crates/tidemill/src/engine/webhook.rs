//! Webhooks: made, changed, given new secrets, looked at, and delivered once more.
//!
//! The store tells them of ended jobs, by jobs of the queue `tidemill:webhooks`; the crate `tidemill-relay` has the
//! handler that delivers those. It refuses to show a secret twice.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidemill_core::gate::{Breaker, Limit, PART, Per};
use tidemill_core::queue::QueueRules;
use tidemill_core::webhook::sign::{Secrets, SigningSecret};
use tidemill_core::webhook::{
    KIND, Message, QUEUE, TENANT_WEBHOOKS_MAX, WEBHOOKS_MAX, Webhook, answer_of,
};
use tidemill_core::{Error as Invalid, JobId, NewJob, Options, State};
use tidemill_store::webhook::Kept;
use tidemill_store::{JobFilter, JobView};
use uuid::Uuid;

use crate::engine::Tidemill;
use crate::error::{Error, Result};

/// The limit that spares an endpoint which is unwell.
const LIMIT: &str = "endpoint";
const LOOKS_MAX: usize = 20;
/// How long the secret of before may go on signing.
const OVERLAP_MAX: Duration = Duration::from_hours(90 * 24);

/// The webhooks of a store; see [`Tidemill::webhooks`].
#[derive(Debug, Clone)]
pub struct Webhooks<'a>(&'a Tidemill);

/// A webhook as people see it: all but its secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WebhookView {
    /// Names it for ever; the key of its deliveries.
    pub id: Uuid,
    /// For people; each has another.
    pub name: String,
    /// Who is told of what.
    #[serde(flatten)]
    pub webhook: Webhook,
    /// How many secrets it signs with: more than one for a while after a rotation.
    pub secrets: usize,
    /// Too much failed: nothing is sent until [`opens_at`](Self::opens_at), and then one as a probe.
    pub is_broken: bool,
    /// Nothing is sent before.
    pub opens_at: Option<Timestamp>,
    /// Deliveries that are held back by that, or because many run.
    pub held: u64,
    /// How often it was set.
    pub version: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was set last.
    pub changed_at: Timestamp,
}

/// What became of one message. Bodies of answers are not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Delivery {
    /// The job that delivers it; its attempts are the log.
    pub id: JobId,
    /// The `webhook-id` it is sent under; empty where it is encrypted, and the key is not there.
    pub message: String,
    /// What it tells; empty in the same case.
    pub event: String,
    /// Of which job.
    pub job: Option<String>,
    /// The queue of that.
    pub queue: Option<String>,
    /// Its tenant, if it has one.
    pub tenant: Option<String>,
    /// Where it stands.
    pub state: State,
    /// Attempts so far.
    pub attempt: u16,
    /// What was answered last, if anything was: when it was delivered, or turned down.
    pub status: Option<u16>,
    /// How long that took.
    pub took_ms: Option<u64>,
    /// What went wrong last.
    pub error: Option<String>,
    /// When it was written.
    pub created_at: Timestamp,
    /// When it is tried next.
    pub due_at: Option<Timestamp>,
    /// When it was delivered, or given up.
    pub finished_at: Option<Timestamp>,
}

/// What came of a try to deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The endpoint took it.
    Taken,
    /// It answered that it does not.
    TurnedDown,
    /// It did not answer.
    Failed,
    /// It may not be called.
    Refused,
}

impl Sent {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Taken, Self::TurnedDown, Self::Failed, Self::Refused];

    /// Its word.
    pub fn word(self) -> &'static str {
        ["taken", "turned_down", "failed", "refused"][self as usize]
    }
}

/// Which job a message tells of; an alert has none.
#[derive(Deserialize)]
struct OfJob {
    id: Option<String>,
    queue: Option<String>,
    tenant: Option<String>,
}

impl Delivery {
    /// One whose message cannot be read here, for want of a key, is shown without it.
    fn of(view: &JobView) -> Self {
        let message: Option<Message> = serde_json::from_str(view.job.payload.as_str()).ok();
        let output = view.output.as_ref().map(tidemill_core::Payload::as_str);
        let answer: serde_json::Value =
            output.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let taken = answer["status"].as_u64().and_then(|status| u16::try_from(status).ok());
        let turned_down = view.error.as_deref().and_then(answer_of);
        let of = message.as_ref().and_then(|message| message.data.read::<OfJob>().ok());
        Self {
            id: view.job.id,
            message: message.as_ref().map(Message::id).unwrap_or_default(),
            job: of.as_ref().and_then(|of| of.id.clone()),
            queue: of.as_ref().and_then(|of| of.queue.clone()),
            tenant: of.and_then(|of| of.tenant),
            event: message.map(|message| message.event).unwrap_or_default(),
            state: view.state,
            attempt: view.attempt,
            status: taken.or(turned_down.map(|(status, _)| status)),
            took_ms: answer["took_ms"].as_u64().or(turned_down.map(|(_, took_ms)| took_ms)),
            error: view.error.clone(),
            created_at: view.job.created_at,
            due_at: view.due_at,
            finished_at: view.finished_at,
        }
    }
}

impl Tidemill {
    /// Who is told, over HTTP, that jobs have ended.
    ///
    /// ```
    /// # use tidemill::core::webhook::Webhook;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidemill::Result<()> {
    /// let mill = tidemill::Tidemill::open("sqlite::memory:").await?;
    /// let orders = Webhook { queues: vec!["orders:*".into()], ..Webhook::new("https://example.com/in") };
    /// let (view, secret) = mill.webhooks().set("orders", orders).await?;
    /// assert!(secret.expect("it is new").reveal().starts_with("whsec_"));
    /// assert_eq!(mill.webhooks().list().await?, [view]);
    /// # mill.close().await; Ok(()) }
    /// ```
    pub fn webhooks(&self) -> Webhooks<'_> {
        Webhooks(self)
    }

    /// The webhooks that jobs with these wishes may ask to be told. Costs nothing where none of them asks.
    pub(crate) async fn hearers<'o>(
        &self,
        mut all: impl Iterator<Item = &'o Options>,
    ) -> Result<Hearers> {
        if all.all(|options| options.webhook.is_none()) {
            return Ok(Hearers(HashSet::new()));
        }
        let known = self.0.store.webhooks().await?;
        Ok(Hearers(known.into_iter().map(|kept| kept.name).collect()))
    }

    /// Refuses jobs that ask a webhook to be told which is not there, and says which of them does.
    pub(crate) async fn check_told(&self, jobs: &[NewJob]) -> Result<()> {
        let hearers = self.hearers(jobs.iter().map(|job| &job.options)).await?;
        jobs.iter().enumerate().try_for_each(|(index, job)| {
            hearers.check(&job.options).map_err(|error| error.in_batch(index))
        })
    }
}

/// The names of webhooks that are there, for jobs that ask one to be told.
pub(crate) struct Hearers(HashSet<String>);

impl Hearers {
    /// Refuses a wish to tell a webhook which is not there.
    pub(crate) fn check(&self, options: &Options) -> Result<()> {
        match &options.webhook {
            Some(tell) if !self.0.contains(&tell.to) => {
                Err(Error::WebhookUnknown { name: tell.to.clone() })
            }
            _ => Ok(()),
        }
    }
}

impl Webhooks<'_> {
    /// All of them, by name.
    pub async fn list(&self) -> Result<Vec<WebhookView>> {
        let kept = self.0.0.store.webhooks().await?;
        let now = self.0.now().await?;
        self.views(kept, now).await
    }

    /// The one of this name.
    pub async fn get(&self, name: &str) -> Result<WebhookView> {
        let (kept, now) = (self.kept(name).await?, self.0.now().await?);
        let view = self.views(vec![kept], now).await?.pop();
        view.ok_or_else(|| Error::WebhookUnknown { name: name.to_owned() })
    }

    /// Makes or changes the one of this name. The secret of a new one is told here, and never again.
    pub async fn set(
        &self,
        name: &str,
        webhook: Webhook,
    ) -> Result<(WebhookView, Option<SigningSecret>)> {
        self.set_if(name, webhook, |_| Ok::<_, Error>(())).await
    }

    /// The same, if `may` lets it be: it is asked of the one that is there, if there is one, and nothing but that one
    /// is changed. Of two who make one of the same name at once, the second is asked about the first's.
    pub async fn set_if<E: From<Error>>(
        &self,
        name: &str,
        webhook: Webhook,
        may: impl Fn(&Webhook) -> std::result::Result<(), E>,
    ) -> std::result::Result<(WebhookView, Option<SigningSecret>), E> {
        webhook.check(name).map_err(Error::from)?;
        for _ in 0..LOOKS_MAX {
            let all = self.0.0.store.webhooks().await.map_err(Error::from)?;
            if let Some(known) = all.iter().find(|kept| kept.name == name) {
                may(&known.webhook)?;
            }
            if let Some(set) = self.put(name, &webhook, &all).await? {
                return Ok(set);
            }
        }
        Err(busy(name).into())
    }

    /// Makes it, or changes the one that is among these; nothing, if that is not as it was any more.
    async fn put(
        &self,
        name: &str,
        webhook: &Webhook,
        all: &[Kept],
    ) -> Result<Option<(WebhookView, Option<SigningSecret>)>> {
        let of_tenant = all.iter().filter(|kept| kept.webhook.tenant == webhook.tenant).count();
        let (kept, secret) = if let Some(kept) = all.iter().find(|kept| kept.name == name) {
            (Kept { webhook: webhook.clone(), ..kept.clone() }, None)
        } else if all.len() >= WEBHOOKS_MAX {
            let reason = format!("there are {WEBHOOKS_MAX} already, and no more may be");
            return Err(Invalid::WebhookInvalid { reason }.into());
        } else if webhook.tenant.is_some() && of_tenant >= TENANT_WEBHOOKS_MAX {
            let reason = format!("a tenant has {TENANT_WEBHOOKS_MAX} webhooks at most");
            return Err(Invalid::WebhookInvalid { reason }.into());
        } else {
            let secret = random_secret()?;
            (new(name, webhook.clone(), &secret), Some(secret))
        };
        let is_set = self.0.0.store.set_webhook(&kept).await?;
        Ok(if is_set { Some((self.get(name).await?, secret)) } else { None })
    }

    /// Gives it a new secret, which is told here and never again. The one of before goes on signing for `overlap`, so
    /// that receivers can change theirs.
    pub async fn rotate(
        &self,
        name: &str,
        overlap: Duration,
    ) -> Result<(WebhookView, SigningSecret)> {
        self.rotate_if(name, overlap, |_| Ok::<_, Error>(())).await
    }

    /// The same, if `may` lets it be, as for [`delete_if`](Self::delete_if).
    pub async fn rotate_if<E: From<Error>>(
        &self,
        name: &str,
        overlap: Duration,
        may: impl Fn(&Webhook) -> std::result::Result<(), E>,
    ) -> std::result::Result<(WebhookView, SigningSecret), E> {
        for _ in 0..LOOKS_MAX {
            let kept = self.kept(name).await?;
            may(&kept.webhook)?;
            if let Some(rotated) = self.rotated(kept, overlap).await? {
                return Ok(rotated);
            }
        }
        Err(busy(name).into())
    }

    /// Gives this one a new secret; nothing, if it is not as it was any more.
    async fn rotated(
        &self,
        kept: Kept,
        overlap: Duration,
    ) -> Result<Option<(WebhookView, SigningSecret)>> {
        if overlap > OVERLAP_MAX {
            let reason = "the old secret signs for 90 days beside the new one at most".to_owned();
            return Err(Invalid::WebhookInvalid { reason }.into());
        }
        let now = self.0.now().await?;
        let until = now + overlap;
        let secret = random_secret()?;
        let secrets = kept.secrets.rotated(secret.clone(), now, until);
        let rotated = Kept { secrets, ..kept };
        if !self.0.0.store.set_webhook(&rotated).await? {
            return Ok(None);
        }
        // By its id: its name may be another's by now.
        let all = self.0.0.store.webhooks().await?;
        let kept = all.into_iter().find(|kept| kept.id == rotated.id).unwrap_or(rotated);
        Ok(self.views(vec![kept], now).await?.pop().map(|view| (view, secret)))
    }

    /// Takes it away. What was to be delivered to it is called off when its turn comes.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.delete_if(name, |_| Ok::<_, Error>(())).await
    }

    /// The same, if `may` lets it be: it is asked of the one that is there, and nothing but that one is deleted, also
    /// if its name passes to another meanwhile.
    pub async fn delete_if<E: From<Error>>(
        &self,
        name: &str,
        may: impl Fn(&Webhook) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        for _ in 0..LOOKS_MAX {
            let kept = self.kept(name).await?;
            may(&kept.webhook)?;
            let deleted = self.0.0.store.delete_webhook(kept.id, kept.version).await;
            if deleted.map_err(Error::from)? {
                return Ok(());
            }
        }
        Err(busy(name).into())
    }

    /// Its deliveries, newest first, at most `limit`, made before `before`; and where the next page begins.
    pub async fn deliveries(
        &self,
        name: &str,
        state: Option<State>,
        before: Option<JobId>,
        limit: usize,
    ) -> Result<(Vec<Delivery>, Option<JobId>)> {
        let kept = self.kept(name).await?;
        let filter = JobFilter {
            state,
            queue: Some(QUEUE.to_owned()),
            key: Some(kept.id.to_string()),
            before,
            limit,
            ..JobFilter::default()
        };
        let page = self.0.jobs_page(&filter).await?;
        Ok((page.jobs.iter().map(Delivery::of).collect(), page.next))
    }

    /// Sends a message once more, now, under the id it had: one that is waiting or dead is hurried, one that was
    /// delivered, or called off, is sent by a new delivery. Answers which delivery that is.
    pub async fn redeliver(&self, name: &str, delivery: JobId, by: &str) -> Result<JobId> {
        self.redeliver_if(name, delivery, by, |_| true).await
    }

    /// The same, if `may` lets it be; else there is no such delivery.
    pub async fn redeliver_if(
        &self,
        name: &str,
        delivery: JobId,
        by: &str,
        may: impl Fn(&Delivery) -> bool,
    ) -> Result<JobId> {
        let (kept, unknown) = (self.kept(name).await?, || Error::JobUnknown { id: delivery });
        let view = self.0.job(delivery).await?.ok_or_else(unknown)?;
        let is_of_it = view.job.queue == QUEUE && view.job.key == Some(kept.id.to_string());
        if !is_of_it || !may(&Delivery::of(&view)) {
            return Err(unknown());
        }
        match view.state {
            State::Scheduled => {
                self.0.0.store.run_now(delivery).await?;
                Ok(delivery)
            }
            State::Dead => {
                self.0.0.store.dead_replay(&[delivery], by.into(), None).await?;
                Ok(delivery)
            }
            State::Done | State::Cancelled => {
                let new = NewJob {
                    queue: view.job.queue,
                    tenant: kept.webhook.tenant,
                    key: view.job.key,
                    options: view.job.options,
                    ..NewJob::new(KIND, view.job.payload)
                };
                let id = new.id;
                self.0.0.store.enqueue(vec![new]).await?;
                Ok(id)
            }
            State::Blocked | State::Ready | State::Running => Ok(delivery),
        }
    }

    /// Counts a try, for [metrics](Tidemill::metrics); with how long the endpoint took, if it answered.
    pub fn count(&self, sent: Sent, took: Option<Duration>) {
        let measures = &self.0.0.measures;
        measures.webhooks[sent as usize].add(1);
        if let Some(took) = took {
            measures.webhook_times.see_time(took);
        }
    }

    /// The webhook of this id with its secrets, for who delivers to it.
    pub async fn to_deliver(&self, id: Uuid) -> Result<Option<(Webhook, Secrets)>> {
        let kept = self.0.0.store.webhooks().await?.into_iter().find(|kept| kept.id == id);
        Ok(kept.map(|kept| (kept.webhook, kept.secrets)))
    }

    /// Gives the queue of deliveries its rules, unless it has some: eight at once to one endpoint, which is spared for
    /// a minute when half of what was sent to it within one failed, and for as long as it asks to be.
    pub async fn prepare(&self) -> Result<()> {
        let book = self.0.0.store.queue_rules().await?;
        if book.set_for(QUEUE).is_some() {
            return Ok(());
        }
        let breaker =
            Breaker { failures_percent: 50, window_ms: 60_000, attempts_min: 5, open_ms: 60_000 };
        let limit = Limit {
            per: Per::Key,
            concurrency: Some(8),
            hold: true,
            breaker: Some(breaker),
            ..Limit::default()
        };
        let limits = [(LIMIT.to_owned(), limit)].into();
        let rules = QueueRules { limits, ..QueueRules::default() };
        match self.0.replace_queue(QUEUE, 0, Some(rules)).await {
            // Somebody else just did.
            Err(Error::Invalid(Invalid::RuleChanged { .. })) => Ok(()),
            answer => answer,
        }
    }

    async fn kept(&self, name: &str) -> Result<Kept> {
        let found = self.0.0.store.webhooks().await?.into_iter().find(|kept| kept.name == name);
        found.ok_or_else(|| Error::WebhookUnknown { name: name.to_owned() })
    }

    async fn views(&self, kept: Vec<Kept>, now: Timestamp) -> Result<Vec<WebhookView>> {
        let book = self.0.0.store.queue_rules().await?;
        let limit = book.set_for(QUEUE).and_then(|rules| rules.limits.get(LIMIT));
        let gate = limit.map(|limit| limit.gate(QUEUE, LIMIT)).unwrap_or_default();
        let names: Vec<_> = kept.iter().map(|kept| format!("{gate}{PART}{}", kept.id)).collect();
        let gates = self.0.0.store.gates(&names).await?;
        let view = |(kept, gate): (Kept, tidemill_core::gate::GateView)| {
            let opens_at = gate.shut_until.filter(|at| *at > now);
            let held = kept.secrets.0.iter().filter(|held| held.until.is_none_or(|end| end > now));
            WebhookView {
                id: kept.id,
                name: kept.name,
                secrets: held.count(),
                webhook: kept.webhook,
                is_broken: gate.is_broken,
                opens_at,
                held: gate.held,
                version: kept.version,
                created_at: kept.created_at,
                changed_at: kept.changed_at,
            }
        };
        Ok(kept.into_iter().zip(gates).map(view).collect())
    }
}

fn new(name: &str, webhook: Webhook, secret: &SigningSecret) -> Kept {
    Kept {
        id: Uuid::now_v7(),
        name: name.to_owned(),
        webhook,
        secrets: Secrets::of(secret.clone()),
        version: 0,
        // The store says when.
        created_at: Timestamp::UNIX_EPOCH,
        changed_at: Timestamp::UNIX_EPOCH,
    }
}

fn random_secret() -> Result<SigningSecret> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::RandomUnavailable { reason: error.to_string() })?;
    Ok(SigningSecret::of_random(bytes))
}

fn busy(name: &str) -> Error {
    let reason = format!("others change the webhook {name:?} all the time; try again");
    Error::Store(tidemill_store::Error::Busy { reason })
}
