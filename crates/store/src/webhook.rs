//! What the engine asks of a store about webhooks, and what it is answered.
//!
//! A store keeps them with their secrets, which signing needs; and whenever a job ends or is parked it writes the jobs
//! that tell them of it, in the same transaction. Where there are no webhooks that is one look at an empty table.

use async_trait::async_trait;
use jiff::Timestamp;
use tidemill_core::NewJob;
use tidemill_core::alert::book::Book;
use tidemill_core::webhook::sign::Secrets;
use tidemill_core::webhook::{Told, Webhook, delivery};
use uuid::Uuid;

use crate::error::{Error, Result};

/// A webhook as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Names it for ever.
    pub id: Uuid,
    /// For people; each has another.
    pub name: String,
    /// Who is told of what.
    pub webhook: Webhook,
    /// What is signed with.
    pub secrets: Secrets,
    /// How often it was set.
    pub version: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was set last.
    pub changed_at: Timestamp,
}

/// Memory of webhooks.
#[async_trait]
pub trait Webhooks {
    /// All of them, by name.
    async fn webhooks(&self) -> Result<Vec<Kept>>;

    /// Sets a webhook, one version on; with version 0 it is made, by the store's clock. `false`: one of this name is
    /// there already, or has another version or id by now, and nothing was changed.
    async fn set_webhook(&self, kept: &Kept) -> Result<bool>;

    /// Takes a webhook away, if it is this one and has this version. Nothing is told to it from the commit on. `false`:
    /// it is not there, or not as it was.
    async fn delete_webhook(&self, id: Uuid, version: u64) -> Result<bool>;

    /// Which alerts webhooks were told of, with its version; 0 before it is written first.
    async fn alert_book(&self) -> Result<(u64, Book)>;

    /// Writes that, one version on. `false`: it has another version by now, and nothing was changed.
    async fn set_alert_book(&self, version: u64, book: &Book) -> Result<bool>;
}

/// The jobs that tell those of them who mean it.
pub(crate) fn deliveries(all: &[Kept], told: &Told<'_>) -> Vec<NewJob> {
    let meant = all.iter().filter(|kept| kept.webhook.means(&kept.name, told.job, told.event));
    meant.map(|kept| delivery(kept.id, &kept.webhook, told)).collect()
}

/// What is kept of it as text: itself, its secrets, and how its deliveries are tried.
pub(crate) fn texts(kept: &Kept) -> Result<[String; 3]> {
    let options = tidemill_core::webhook::options();
    let text = |text: serde_json::Result<String>| text.map_err(|error| unreadable(&error));
    Ok([
        text(serde_json::to_string(&kept.webhook))?,
        text(serde_json::to_string(&kept.secrets))?,
        text(serde_json::to_string(&options))?,
    ])
}

/// Reads the first two of them.
pub(crate) fn read(webhook: &str, secrets: &str) -> Result<(Webhook, Secrets)> {
    let webhook = serde_json::from_str(webhook).map_err(|error| unreadable(&error))?;
    Ok((webhook, serde_json::from_str(secrets).map_err(|error| unreadable(&error))?))
}

/// The book as it is kept.
pub(crate) fn book_text(book: &Book) -> Result<String> {
    serde_json::to_string(book).map_err(|error| unreadable(&error))
}

/// Reads it.
pub(crate) fn read_book(text: &str) -> Result<Book> {
    serde_json::from_str(text).map_err(|error| unreadable(&error))
}

fn unreadable(error: &dyn std::fmt::Display) -> Error {
    Error::Database { reason: format!("a webhook cannot be read: {error}") }
}
