//! A job's body as it comes back from the database.

use tidemill_core::{Job, JobId, Options, Payload, Priority};
use tokio_postgres::Row;

use crate::postgres::statement::At;

/// Reads ten columns, from `at` on: id, kind, queue, priority, tenant, key, unique_key, payload,
/// options, created_at.
pub(crate) fn body(row: &Row, at: usize) -> Job {
    Job {
        id: JobId(row.get(at)),
        kind: row.get(at + 1),
        queue: row.get(at + 2),
        priority: Priority::of_band(row.get(at + 3)),
        tenant: row.get(at + 4),
        key: row.get(at + 5),
        unique_key: row.get(at + 6),
        payload: Payload::trusted(row.get(at + 7)),
        options: options(row.get(at + 8)),
        created_at: row.get::<_, At>(at + 9).0,
    }
}

/// Options that cannot be read are as good as none: a job must not be stuck for its wishes.
fn options(text: Option<&str>) -> Options {
    let Some(text) = text else { return Options::default() };
    serde_json::from_str(text).unwrap_or_else(|error| {
        tracing::warn!(%error, "options of a job cannot be read and are ignored");
        Options::default()
    })
}

/// A column of JSON that may be absent.
pub(crate) fn payload(text: Option<String>) -> Option<Payload> {
    text.map(Payload::trusted)
}
