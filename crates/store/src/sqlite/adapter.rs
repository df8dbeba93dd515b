//! Enqueues in the caller's own transaction, through the view that plain SQL uses.
//!
//! What the caller commits is enqueued, what she rolls back never was. A duplicate is a receipt,
//! not an error, so it cannot harm her transaction. Nothing here begins, commits or sets anything
//! that outlives the call. Workers learn of the jobs by the file's change, after her commit.

use rusqlite::{Connection, params};
use serde_json::{Value, json};
use tidemill_core::{Due, JobId, NewJob};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::request::Receipt;
use crate::sqlite::enqueue::due;
use crate::sqlite::rows::write_options;

const INSERT: &str = include_str!("sql/insert_enqueue.sql");
const RECEIPTS: &str = include_str!("sql/take_receipts.sql");
/// A period beyond a century is one for ever; SQL refuses longer ones.
const PERIOD_MS_MAX: i64 = 3_155_760_000_000;

/// Enqueues on a rusqlite connection or transaction; receipts stand in the order of the jobs.
///
/// ```
/// # use tidemill_core::NewJob;
/// # type Res = Result<(), Box<dyn std::error::Error>>;
/// # fn example(conn: &mut rusqlite::Connection, job: NewJob) -> Res {
/// let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
/// tx.execute("insert into user (name) values ('ada')", [])?;
/// tidemill_store::sqlite::adapter::enqueue_in_rusqlite(&tx, &[job])?;
/// tx.commit()?; // the user and the job, or neither
/// # Ok(())
/// # }
/// ```
pub fn enqueue_in_rusqlite(conn: &Connection, jobs: &[NewJob]) -> Result<Vec<Receipt>> {
    conn.execute_batch("savepoint tidemill_enqueue")?;
    let receipts = enqueue(conn, None, jobs);
    if receipts.is_err() && !conn.is_autocommit() {
        conn.execute_batch("rollback to tidemill_enqueue")?;
    }
    if !conn.is_autocommit() {
        conn.execute_batch("release tidemill_enqueue")?;
    }
    receipts
}

/// Enqueues on a sqlx connection or transaction; receipts stand in the order of the jobs.
#[cfg(feature = "sqlx-sqlite")]
pub async fn enqueue_in_sqlx_sqlite(
    conn: &mut sqlx::SqliteConnection,
    jobs: &[NewJob],
) -> Result<Vec<Receipt>> {
    use sqlx::{Connection as _, Row as _};

    let receipt = Uuid::now_v7().to_string();
    let mut savepoint = conn.begin().await.map_err(of_sqlx)?;
    sqlx::query(INSERT)
        .bind(rows(jobs, None))
        .bind(None::<i64>)
        .bind(&receipt)
        .execute(&mut *savepoint)
        .await
        .map_err(of_sqlx)?;
    let taken =
        sqlx::query(RECEIPTS).bind(&receipt).fetch_all(&mut *savepoint).await.map_err(of_sqlx)?;
    let answers = taken.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)));
    let answers: std::result::Result<Vec<_>, sqlx::Error> = answers.collect();
    let receipts = receipts(answers.map_err(of_sqlx)?, jobs.len())?;
    savepoint.commit().await.map_err(of_sqlx)?;
    Ok(receipts)
}

#[cfg(feature = "sqlx-sqlite")]
fn of_sqlx(error: sqlx::Error) -> Error {
    match error {
        sqlx::Error::Database(error) => Error::Database { reason: error.to_string() },
        other => Error::Unavailable { reason: other.to_string(), unknown: true },
    }
}

/// Enqueues through the view. Without `now` the view reads the clock.
pub(super) fn enqueue(
    conn: &Connection,
    now: Option<i64>,
    jobs: &[NewJob],
) -> Result<Vec<Receipt>> {
    let receipt = Uuid::now_v7().to_string();
    conn.prepare_cached(INSERT)?.execute(params![rows(jobs, now), now, receipt])?;
    let mut take = conn.prepare_cached(RECEIPTS)?;
    let taken = take.query_map([&receipt], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let answers: rusqlite::Result<Vec<_>> = taken.collect();
    receipts(answers?, jobs.len())
}

/// The jobs as one JSON text. Payloads are strings in it, so that no digit of them changes.
fn rows(jobs: &[NewJob], now: Option<i64>) -> String {
    let rows: Vec<Value> = jobs.iter().map(|job| row(job, now)).collect();
    Value::from(rows).to_string()
}

fn row(job: &NewJob, now: Option<i64>) -> Value {
    let (run_at, delay_ms) = match (job.due, now) {
        (_, Some(now)) => (Some(due(job, now)), None),
        (Due::Now, None) => (None, None),
        (Due::In(delay), None) => (None, i64::try_from(delay.as_millis()).ok()),
        (Due::At(at), None) => (Some(at.as_microsecond()), None),
    };
    let unique = job.unique.as_ref();
    json!({
        "id": job.id.0.simple().to_string(),
        "kind": job.kind,
        "payload": job.payload.as_str(),
        "queue": job.queue,
        "priority": job.priority.band(),
        "run_at": run_at,
        "delay_ms": delay_ms.map(|ms: i64| ms.min(PERIOD_MS_MAX)),
        "tenant": job.tenant,
        "key": job.key,
        "options": write_options(&job.options),
        "whole_key": unique.map(|unique| &unique.key),
        "unique_scope": unique.map(|unique| unique.scope.word()),
        "unique_period_ms": unique
            .and_then(|unique| unique.scope.period_ms())
            .map(|ms| ms.min(PERIOD_MS_MAX)),
        "on_duplicate": unique.map(|unique| unique.on_duplicate.word()),
        "force": unique.is_some_and(|unique| unique.force),
    })
}

/// Puts the answers in order and reads them.
fn receipts(mut answers: Vec<(i64, String, Vec<u8>)>, jobs: usize) -> Result<Vec<Receipt>> {
    answers.sort_unstable_by_key(|(number, _, _)| *number);
    let read = |(_, word, id): &(i64, String, Vec<u8>)| {
        Receipt::of_word(word, JobId(Uuid::from_slice(id).ok()?))
    };
    let receipts: Option<Vec<_>> = answers.iter().map(read).collect();
    receipts.filter(|receipts| receipts.len() == jobs).ok_or_else(|| Error::Database {
        reason: "the view tidemill_enqueue gave no receipt; was its trigger changed?".to_owned(),
    })
}
