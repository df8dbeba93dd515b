//! Delivers webhooks: reads where to, signs, sends, and says what came of it.
//!
//! The log of a delivery is its attempts: statuses and times, never bodies, URLs or secrets.

pub mod send;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tidemill::{Context, Fail, Payload, Running, Sent, Settings, Stop, Tidemill, Worker};
use tidemill_core::webhook::{BACKOFF_MS, KIND, Message, QUEUE, turned_down};

use send::{Answered, Sender, Trouble};

/// Deliveries at once, of one process.
const SLOTS: usize = 32;
/// An endpoint that hangs does not hold up a stop: what it has not answered by then is given back, no try spent, and
/// sent again under the id it had.
const STOP: Stop = Stop { drain: Duration::from_secs(3), grace: Duration::ZERO };
/// No endpoint is waited for longer, whatever it asks.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);
/// Nor shorter: no try is spent, so one that asks for nothing would be called without a pause.
const RETRY_AFTER_MIN: Duration = Duration::from_millis(BACKOFF_MS);
/// A webhook that is paused is looked at again after this; its other deliveries wait at its gate meanwhile.
const PAUSED: Duration = Duration::from_mins(1);

/// Gives the queue of deliveries its rules, unless it has some, and starts a worker that delivers.
pub async fn start(mill: &Tidemill, sender: Sender) -> tidemill::Result<Running> {
    mill.webhooks().prepare().await?;
    worker(mill, sender).start().await
}

/// A worker that delivers, and nothing else.
pub fn worker(mill: &Tidemill, sender: Sender) -> Worker {
    let sender = Arc::new(sender);
    let settings = Settings { queue: QUEUE.to_owned(), ..Settings::default() };
    mill.worker().slots(SLOTS).stop_as(STOP).handle_raw(KIND, settings, move |payload, cx| {
        let sender = Arc::clone(&sender);
        async move { deliver(&sender, &payload, &cx).await }
    })
}

fn count(mill: &Tidemill, answer: &Result<Answered, Trouble>) {
    let (sent, took) = match answer {
        Ok(answered) => {
            let sent = if answered.is_taken() { Sent::Taken } else { Sent::TurnedDown };
            (sent, Some(Duration::from_millis(answered.took_ms)))
        }
        Err(Trouble::Failed { .. }) => (Sent::Failed, None),
        Err(Trouble::Refused(_)) => (Sent::Refused, None),
    };
    mill.webhooks().count(sent, took);
}

async fn deliver(sender: &Sender, payload: &Payload, cx: &Context) -> Result<Payload, Fail> {
    // What is not to be seen is not told either.
    let mill = cx.mill()?;
    let payload = mill.hidden().document(payload.as_str());
    let message: Message = serde_json::from_str(&payload)
        .map_err(|error| Fail::permanent(format!("it is no delivery: {error}")))?;
    let found = mill.webhooks().to_deliver(message.webhook).await.map_err(Fail::transient)?;
    let Some((webhook, secrets)) = found else {
        return Err(Fail::cancel("the webhook was taken away"));
    };
    if cx.job().key != Some(message.webhook.to_string()) {
        return Err(Fail::permanent("it is no delivery of this webhook"));
    }
    if !webhook.may_hear(&message) {
        return Err(Fail::cancel("the webhook is another tenant's by now"));
    }
    if webhook.paused {
        return Err(Fail::rate_limited(PAUSED).context("the webhook is paused"));
    }
    let now = mill.now().await.map_err(Fail::transient)?;
    let (id, body) = (message.id(), message.body());
    let signature = secrets.sign(&id, now, &body);
    let timestamp = now.as_second().to_string();
    let headers =
        [("webhook-id", id), ("webhook-timestamp", timestamp), ("webhook-signature", signature)];
    let job = cx.job().id;
    let answer = sender.send(&webhook.url, &headers, body).await;
    count(mill, &answer);
    match answer {
        Ok(answered) if answered.is_taken() => {
            let Answered { status, took_ms, .. } = answered;
            tracing::debug!(%job, webhook = %message.webhook, status, took_ms, "a webhook was told");
            let log = json!({ "status": status, "took_ms": took_ms });
            Ok(Payload::trusted(log.to_string()))
        }
        Ok(answered) => {
            let Answered { status, took_ms, retry_after } = answered;
            tracing::info!(%job, webhook = %message.webhook, status, took_ms, "a webhook was not told");
            let answer = turned_down(status, took_ms);
            Err(match (status, retry_after) {
                (410, _) => Fail::permanent(format!("{answer}: it wants to hear no more")),
                (429 | 503, Some(after)) => {
                    Fail::rate_limited(after.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX))
                        .context(answer)
                }
                _ => Fail::transient(answer),
            })
        }
        Err(trouble) => {
            tracing::info!(%job, webhook = %message.webhook, %trouble, "a webhook was not told");
            Err(match trouble {
                Trouble::Refused(_) => Fail::permanent(trouble),
                Trouble::Failed { .. } => Fail::transient(trouble),
            })
        }
    }
}
