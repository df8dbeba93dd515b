//! Enqueue in the caller's own transaction: roll back and there is no job, commit and there is.
//!
//! One unnamed statement runs on the caller's connection, and nothing else: no SET, no LISTEN, no
//! NOTIFY, no prepared statement left behind. Other processes find the job when they next look, or at
//! once when the caller tells the store after the commit.

use tidemill_core::NewJob;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use crate::ask::{Answer, Ask};
use crate::error::Result;
use crate::flow::text::Texts;
use crate::postgres::error::Fault;
use crate::postgres::statement::{Param, Statement, sql};
use crate::postgres::unique::{ENQUEUE_IN, lines, receipt};
use crate::request::Receipt;

/// Enqueues on a connection or transaction of tokio-postgres. Answers stand in the order of the jobs.
pub async fn enqueue_in_postgres<C>(client: &C, jobs: &[NewJob]) -> Result<Vec<Receipt>>
where
    C: GenericClient + Sync,
{
    let text = lines(jobs)?;
    let params: [(Param<'_>, Type); 1] = [(&text, ENQUEUE_IN.types[0].clone())];
    let rows = client.query_typed(ENQUEUE_IN.text, &params).await.map_err(Fault::from)?;
    rows.iter().map(receipt).collect()
}

const START_FLOW: Statement = sql!("start_flow", TEXT, TEXT);

/// Starts a flow on a connection or transaction of tokio-postgres, once.
pub async fn start_in_postgres<C>(client: &C, flow: &Texts) -> Result<()>
where
    C: GenericClient + Sync,
{
    let types = START_FLOW.types;
    let params: [(Param<'_>, Type); 2] =
        [(&flow.flow, types[0].clone()), (&flow.jobs, types[1].clone())];
    client.query_typed(START_FLOW.text, &params).await.map_err(Fault::from)?;
    Ok(())
}

/// Starts a flow on a connection or transaction of sqlx, once.
#[cfg(feature = "sqlx-postgres")]
pub async fn start_in_sqlx_postgres(
    connection: &mut sqlx::PgConnection,
    flow: &Texts,
) -> Result<()> {
    sqlx::query(START_FLOW.text)
        .bind(&flow.flow)
        .bind(&flow.jobs)
        .persistent(false)
        .execute(connection)
        .await
        .map_err(refused)?;
    Ok(())
}

/// Asks on a connection or transaction of tokio-postgres.
pub async fn ask_in_postgres<C>(client: &C, ask: &Ask) -> Result<Answer>
where
    C: GenericClient + Sync,
{
    let params: Vec<(Param<'_>, Type)> =
        ask.words.iter().map(|word| (word as Param<'_>, Type::TEXT)).collect();
    let rows = client.query_typed(ask.question.postgres(), &params).await.map_err(Fault::from)?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Asks on a connection or transaction of sqlx.
#[cfg(feature = "sqlx-postgres")]
pub async fn ask_in_sqlx_postgres(
    connection: &mut sqlx::PgConnection,
    ask: &Ask,
) -> Result<Answer> {
    let mut query = sqlx::query_scalar(ask.question.postgres());
    for word in &ask.words {
        query = query.bind(word);
    }
    query.persistent(false).fetch_all(connection).await.map_err(refused)
}

#[cfg(feature = "sqlx-postgres")]
fn refused(error: sqlx::Error) -> crate::error::Error {
    use crate::error::Error;
    match error {
        sqlx::Error::Io(error) => Error::Unavailable { reason: error.to_string(), unknown: true },
        error => Error::Database { reason: error.to_string() },
    }
}

/// Enqueues on a connection or transaction of sqlx. Answers stand in the order of the jobs.
#[cfg(feature = "sqlx-postgres")]
pub async fn enqueue_in_sqlx_postgres(
    connection: &mut sqlx::PgConnection,
    jobs: &[NewJob],
) -> Result<Vec<Receipt>> {
    use crate::postgres::unique::answer;

    let rows: Vec<(i64, Option<uuid::Uuid>, String)> = sqlx::query_as(ENQUEUE_IN.text)
        .bind(lines(jobs)?)
        .persistent(false)
        .fetch_all(connection)
        .await
        .map_err(refused)?;
    rows.iter().map(|(_, id, word)| answer(word, *id)).collect()
}
