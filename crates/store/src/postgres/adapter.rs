//! Enqueue in the caller's own transaction: roll back and there is no job, commit and there is.
//!
//! One unnamed statement runs on the caller's connection, and nothing else: no SET, no LISTEN, no
//! NOTIFY, no prepared statement left behind. Other processes find the job when they next look, or at
//! once when the caller tells the store after the commit.

use tidemill_core::NewJob;
use tokio_postgres::GenericClient;

use crate::error::Result;
use crate::postgres::error::Fault;
use crate::postgres::statement::At;
use crate::postgres::unique::{ENQUEUE_UNIQUE, lines, receipt};
use crate::request::Receipt;

/// Enqueues on a connection or transaction of tokio-postgres. Answers stand in the order of the jobs.
pub async fn enqueue_in_postgres<C>(client: &C, jobs: &[NewJob]) -> Result<Vec<Receipt>>
where
    C: GenericClient + Sync,
{
    let (text, now) = (lines(jobs)?, None::<At>);
    let types = ENQUEUE_UNIQUE.types;
    let rows = client
        .query_typed(ENQUEUE_UNIQUE.text, &[(&text, types[0].clone()), (&now, types[1].clone())])
        .await
        .map_err(Fault::from)?;
    rows.iter().map(receipt).collect()
}

/// Enqueues on a connection or transaction of sqlx. Answers stand in the order of the jobs.
#[cfg(feature = "sqlx-postgres")]
pub async fn enqueue_in_sqlx_postgres(
    connection: &mut sqlx::PgConnection,
    jobs: &[NewJob],
) -> Result<Vec<Receipt>> {
    use crate::error::Error;
    use crate::postgres::unique::answer;

    let rows: Vec<(i64, uuid::Uuid, String)> = sqlx::query_as(ENQUEUE_UNIQUE.text)
        .bind(lines(jobs)?)
        .bind(None::<String>)
        .persistent(false)
        .fetch_all(connection)
        .await
        .map_err(|error| match error {
            sqlx::Error::Io(error) => {
                Error::Unavailable { reason: error.to_string(), unknown: true }
            }
            error => Error::Database { reason: error.to_string() },
        })?;
    rows.iter().map(|(_, id, word)| answer(word, *id)).collect()
}
