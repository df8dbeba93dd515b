//! Enqueues in the caller's own transaction, through the view that plain SQL uses.
//!
//! What the caller commits is enqueued, what she rolls back never was. A duplicate is a receipt,
//! not an error, so it cannot harm her transaction. Nothing here begins, commits or sets anything
//! that outlives the call. Workers learn of the jobs by the file's change, after her commit.

use rusqlite::{Connection, params, params_from_iter};
use tidemill_core::{Clock, Due, Job, JobId, NewJob};
use uuid::Uuid;

use crate::ask::{Answer, Ask};
use crate::error::{Error, Result};
use crate::flow::text::Texts;
use crate::keyring::Keyring;
use crate::request::Receipt;
use crate::sqlite::bound;
use crate::sqlite::enqueue::due;
use crate::sqlite::ready;
use crate::sqlite::rows::write_options;

/// A period beyond a century is one for ever; SQL refuses longer ones.
const MS_MAX: i64 = 3_155_760_000_000;
/// Whether a full queue may refuse a job: not by itself, but all that came with it, once they are written.
const JUDGED_TOGETHER: i64 = 2;

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
    let receipts = enqueue_judged(conn, jobs);
    // A full or failing disk may have rolled back the caller's whole transaction already.
    if receipts.is_err() && !conn.is_autocommit() {
        conn.execute_batch("rollback to tidemill_enqueue")?;
    }
    if !conn.is_autocommit() {
        conn.execute_batch("release tidemill_enqueue")?;
    }
    receipts
}

/// Enqueues what fits; says which queue is full.
fn enqueue_judged(conn: &Connection, jobs: &[NewJob]) -> Result<Vec<Receipt>> {
    if !bound::is_any(conn)? {
        return enqueue(conn, None, jobs, false);
    }
    let now = Clock::default().now().as_microsecond();
    let judged = bound::judge(conn, now, jobs)?;
    if let Some(full) = judged.refused {
        return Err(Error::QueueFull(full));
    }
    enqueue(conn, None, &judged.jobs, true).map_err(|error| judged.explain(error))
}

/// Enqueues through the view. Without `now` the view reads the clock. `bounded`: queues that are full make room
/// for all of them, or refuse them.
pub(super) fn enqueue(
    conn: &Connection,
    now: Option<i64>,
    jobs: &[NewJob],
    bounded: bool,
) -> Result<Vec<Receipt>> {
    let receipt = Uuid::now_v7().to_string();
    let mut insert = conn.prepare_cached(include_str!("sql/insert_enqueue.sql"))?;
    for job in jobs {
        let wish = Wish::new(job, now);
        let unique = job.unique.as_ref();
        insert.execute(params![
            job.id.0.as_bytes(),
            job.kind,
            job.payload.as_str(),
            job.queue,
            job.priority.band(),
            wish.run_at,
            wish.delay_ms,
            job.tenant,
            job.key,
            wish.options,
            unique.map(|unique| &unique.key),
            unique.map(|unique| unique.scope.word()),
            wish.period_ms,
            unique.map(|unique| unique.on_duplicate.word()),
            unique.is_some_and(|unique| unique.force),
            now,
            receipt,
            if bounded { JUDGED_TOGETHER } else { 0 },
            wish.within
        ])?;
    }
    if bounded {
        conn.prepare_cached(include_str!("sql/make_room.sql"))?.execute([&receipt])?;
    }
    let mut take = conn.prepare_cached(include_str!("sql/take_receipts.sql"))?;
    let taken = take.query_map([&receipt], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    receipts(taken.collect::<rusqlite::Result<_>>()?, jobs.len())
}

/// The job of this id, decrypted, as the caller's transaction sees it.
pub fn job_in_rusqlite(conn: &Connection, id: JobId, keys: &Keyring) -> Result<Option<Job>> {
    let Some(body) = ready::body(conn, id)? else { return Ok(None) };
    let mut job = body.job;
    keys.show_job(&mut job)?;
    Ok(Some(job))
}

/// What of a job must be worked out for SQL.
struct Wish {
    run_at: Option<i64>,
    delay_ms: Option<i64>,
    period_ms: Option<i64>,
    options: Option<String>,
    within: Option<String>,
}

impl Wish {
    fn new(job: &NewJob, now: Option<i64>) -> Self {
        let (run_at, delay_ms) = match (job.due, now) {
            (_, Some(now)) => (Some(due(job, now)), None),
            (Due::Now, None) => (None, None),
            (Due::In(delay), None) => {
                (None, Some(i64::try_from(delay.as_millis()).map_or(MS_MAX, |ms| ms.min(MS_MAX))))
            }
            (Due::At(at), None) => (Some(at.as_microsecond()), None),
        };
        let period_ms = job.unique.as_ref().and_then(|unique| unique.scope.period_ms());
        let period_ms = period_ms.map(|ms| ms.min(MS_MAX));
        let within = job.unique.as_ref().map(|unique| &unique.within).filter(|w| !w.is_empty());
        let within = within.map(|within| serde_json::Value::from(within.as_slice()).to_string());
        Self { run_at, delay_ms, period_ms, options: write_options(&job.options), within }
    }
}

/// Starts a flow on a rusqlite connection or transaction, once.
pub fn start_in_rusqlite(conn: &Connection, flow: &Texts) -> Result<()> {
    let now = Clock::default().now().as_microsecond();
    let mut start = conn.prepare_cached(include_str!("sql/start_flow.sql"))?;
    start.execute(params![flow.flow, flow.jobs, now])?;
    Ok(())
}

/// Asks on a rusqlite connection or transaction.
pub fn ask_in_rusqlite(conn: &Connection, ask: &Ask) -> Result<Answer> {
    let mut statement = conn.prepare_cached(ask.question.sqlite())?;
    let answer = statement.query_map(params_from_iter(&ask.words), |row| row.get(0))?;
    Ok(answer.collect::<rusqlite::Result<_>>()?)
}

/// Puts the answers in order and reads them.
fn receipts(mut answers: Vec<(i64, String, [u8; 16])>, jobs: usize) -> Result<Vec<Receipt>> {
    answers.sort_unstable_by_key(|(number, _, _)| *number);
    let receipts: Option<Vec<_>> = answers
        .into_iter()
        .map(|(_, word, id)| Receipt::of_word(&word, JobId(Uuid::from_bytes(id))))
        .collect();
    receipts.filter(|receipts| receipts.len() == jobs).ok_or_else(|| Error::Database {
        reason: "the view tidemill_enqueue gave no receipt; were its triggers changed?".to_owned(),
    })
}

#[cfg(feature = "sqlx-sqlite")]
pub use of_sqlx::{ask_in_sqlx_sqlite, enqueue_in_sqlx_sqlite, start_in_sqlx_sqlite};

/// The same for sqlx, whose every statement is a message to another thread: one for all jobs.
#[cfg(feature = "sqlx-sqlite")]
mod of_sqlx {
    use serde_json::{Value, json};
    use sqlx::{Connection as _, Row as _, SqliteConnection};
    use tidemill_core::depth::Sample;
    use tidemill_core::{Clock, NewJob};
    use uuid::Uuid;

    use super::{Wish, receipts};
    use crate::ask::{Answer, Ask};
    use crate::error::{Error, Result};
    use crate::flow::text::Texts;
    use crate::request::Receipt;
    use crate::sqlite::bound::{self, Bound};
    use crate::sqlite::rows::time;

    /// Enqueues on a sqlx connection or transaction; receipts stand in the order of the jobs.
    pub async fn enqueue_in_sqlx_sqlite(
        conn: &mut SqliteConnection,
        jobs: &[NewJob],
    ) -> Result<Vec<Receipt>> {
        match write(conn, jobs).await {
            Err(refused) if refused.to_string().contains(bound::FULL) => {
                Err(full(conn, jobs).await.unwrap_or_else(|| error(refused)))
            }
            answer => answer.map_err(error)?,
        }
    }

    /// Starts a flow on a sqlx connection or transaction, once.
    pub async fn start_in_sqlx_sqlite(conn: &mut SqliteConnection, flow: &Texts) -> Result<()> {
        let now = Clock::default().now().as_microsecond();
        let start = sqlx::query(include_str!("sql/start_flow.sql"));
        start.bind(&flow.flow).bind(&flow.jobs).bind(now).execute(conn).await.map_err(error)?;
        Ok(())
    }

    /// Asks on a sqlx connection or transaction.
    pub async fn ask_in_sqlx_sqlite(conn: &mut SqliteConnection, ask: &Ask) -> Result<Answer> {
        let mut query = sqlx::query_scalar(ask.question.sqlite());
        for word in &ask.words {
            query = query.bind(word);
        }
        query.fetch_all(conn).await.map_err(error)
    }

    /// The refusal of the queue that is full.
    async fn full(conn: &mut SqliteConnection, jobs: &[NewJob]) -> Option<Error> {
        let now = Clock::default().now().as_microsecond();
        for (queue, jobs) in bound::by_queue(jobs) {
            let select = sqlx::query(include_str!("sql/select_bound.sql")).bind(&queue).bind(now);
            let Some(row) = select.fetch_optional(&mut *conn).await.ok()? else { continue };
            let number = |column| row.try_get::<Option<i64>, _>(column).ok().flatten();
            let sample = |at: usize| -> Option<Sample> {
                let (came, went) = (number(at + 1)? as u64, number(at + 2)? as u64);
                Some(Sample { at: time(number(at)?), came, went })
            };
            let bound = Bound {
                depth_max: number(0)? as u64,
                drops: row.try_get::<Option<String>, _>(1).ok()?.as_deref() == Some("drop_oldest"),
                wait_ms: number(2).map(|ms| ms as u64),
                divert: row.try_get(3).ok()?,
                now: Sample { at: time(now), came: number(4)? as u64, went: number(5)? as u64 },
                before: sample(6),
            };
            if !bound.fits(jobs) {
                return Some(Error::QueueFull(bound.full(&queue, jobs)));
            }
        }
        None
    }

    async fn write(
        conn: &mut SqliteConnection,
        jobs: &[NewJob],
    ) -> sqlx::Result<Result<Vec<Receipt>>> {
        let receipt = Uuid::now_v7().to_string();
        let mut savepoint = conn.begin().await?;
        sqlx::query(include_str!("sql/enqueue_json.sql"))
            .bind(rows(jobs))
            .bind(&receipt)
            .execute(&mut *savepoint)
            .await?;
        let take = sqlx::query(include_str!("sql/take_receipts.sql")).bind(&receipt);
        let taken = take.fetch_all(&mut *savepoint).await?;
        savepoint.commit().await?;
        let answer = |row: &sqlx::sqlite::SqliteRow| -> sqlx::Result<_> {
            let id: Vec<u8> = row.try_get(2)?;
            Ok((row.try_get(0)?, row.try_get(1)?, id.try_into().unwrap_or_default()))
        };
        let answers: sqlx::Result<Vec<_>> = taken.iter().map(answer).collect();
        Ok(receipts(answers?, jobs.len()))
    }

    fn error(error: sqlx::Error) -> Error {
        match error {
            sqlx::Error::Database(error) => Error::Database { reason: error.to_string() },
            other => Error::Unavailable { reason: other.to_string(), unknown: true },
        }
    }

    /// The jobs as one JSON text. Payloads are strings in it, so that no digit of them changes.
    fn rows(jobs: &[NewJob]) -> String {
        let rows: Vec<Value> = jobs.iter().map(row).collect();
        Value::from(rows).to_string()
    }

    fn row(job: &NewJob) -> Value {
        let wish = Wish::new(job, None);
        let unique = job.unique.as_ref();
        json!({
            "id": job.id.0.simple().to_string(),
            "kind": job.kind,
            "payload": job.payload.as_str(),
            "queue": job.queue,
            "priority": job.priority.band(),
            "run_at": wish.run_at,
            "delay_ms": wish.delay_ms,
            "tenant": job.tenant,
            "key": job.key,
            "options": wish.options,
            "whole_key": unique.map(|unique| &unique.key),
            "unique_scope": unique.map(|unique| unique.scope.word()),
            "unique_period_ms": wish.period_ms,
            "on_duplicate": unique.map(|unique| unique.on_duplicate.word()),
            "force": unique.is_some_and(|unique| unique.force),
            "within": wish.within,
        })
    }
}
