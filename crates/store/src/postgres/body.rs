//! A job's body as it comes back from the database.

use tidemill_core::{Job, JobId, Options, Payload, Priority};
use tokio_postgres::Row;

use crate::options::read_options;
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

fn options(text: Option<&str>) -> Options {
    text.map_or_else(Options::default, read_options)
}

/// A column of JSON that may be absent.
pub(crate) fn payload(text: Option<String>) -> Option<Payload> {
    text.map(Payload::trusted)
}
