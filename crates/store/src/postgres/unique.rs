//! Enqueue with unique keys or in lines: one statement, decided on the server.
//!
//! The same function serves a caller's own transaction and plain SQL, so a duplicate is treated alike
//! whichever way it comes.

use jiff::Timestamp;
use serde::Serialize;
use tidemill_core::{Due, JobId, NewJob, Options, Scope};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::postgres::batch::{check_bytes, delay_us, is_one_statement, parts};
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::judged::{Judged, Routes, route};
use crate::postgres::statement::{At, Statement, sql};
use crate::request::Receipt;
use crate::together;

const ENQUEUE_UNIQUE: Statement = sql!("insert_enqueue", TEXT, TIMESTAMPTZ, BOOL, BOOL);
pub(crate) const ENQUEUE_IN: Statement = sql!("enqueue_in", TEXT);

/// Whether a queue that is full may refuse jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Somebody enqueues: yes.
    Bounded,
    /// Several enqueue together: yes, and if it does, each is judged alone.
    Together,
    /// They follow from what the system decided: no.
    Free,
}

impl Depth {
    /// The same for these jobs: with one among them that stays, none is diverted.
    pub fn with(self, jobs: &[&NewJob]) -> Self {
        let stays = self == Self::Bounded && jobs.iter().any(|job| job.options.stays);
        if stays { Self::Together } else { self }
    }
}

/// Writes a batch in which some have unique keys or take turns in lines, all or none.
pub(crate) async fn enqueue<'a>(
    db: &Db,
    jobs: impl IntoIterator<Item = &'a NewJob>,
) -> Result<Vec<Receipt>> {
    let jobs: Vec<&NewJob> = jobs.into_iter().collect();
    let mut tries = Tries::resend();
    loop {
        match put_whole(db, &jobs, Depth::Bounded).await {
            Ok(receipts) => return Ok(receipts),
            Err(fault) => tries.again(fault).await?,
        }
    }
}

/// The same for a batch that is judged before it is committed.
pub(crate) async fn enqueue_judged(db: &Db, jobs: &[NewJob]) -> Result<Vec<Receipt>> {
    let all: Vec<&NewJob> = jobs.iter().collect();
    let mut tries = Tries::resend();
    loop {
        let done = async {
            let conn = db.begin_for(&all).await?;
            let put = put_all(&conn, db.manual_now(), &all, Depth::Bounded).await;
            let judged = put.and_then(|receipts| {
                together::check(jobs, &receipts).map_err(Fault::Refused)?;
                Ok(receipts)
            });
            conn.end(judged).await
        };
        match done.await {
            Ok(receipts) => return Ok(receipts),
            Err(fault) => tries.again(fault).await?,
        }
    }
}

/// Writes a batch, all or none: in a transaction, if one statement is not enough.
pub(crate) async fn put_whole(
    db: &Db,
    jobs: &[&NewJob],
    depth: Depth,
) -> Result<Vec<Receipt>, Fault> {
    if is_one_statement(jobs) {
        let text = lines(jobs.iter().copied()).map_err(Fault::Refused)?;
        return put(&db.conn().await?, db.manual_now(), &text, depth).await;
    }
    let conn = db.begin_for(jobs).await?;
    let put = put_all(&conn, db.manual_now(), jobs, depth).await;
    conn.end(put).await
}

/// Writes a batch in as many statements as it takes, in the caller's transaction.
pub(crate) async fn put_all(
    conn: &Conn<'_>,
    now: Option<At>,
    jobs: &[&NewJob],
    depth: Depth,
) -> Result<Vec<Receipt>, Fault> {
    let parts = parts(jobs);
    if parts.len() == 1 {
        let text = lines(jobs.iter().copied()).map_err(Fault::Refused)?;
        return put(conn, now, &text, depth).await;
    }
    let judged = match depth {
        Depth::Free => None,
        Depth::Bounded | Depth::Together => Judged::begin(conn, jobs, depth).await?,
    };
    let mut receipts = Vec::with_capacity(jobs.len());
    for part in parts {
        let text = match &judged {
            None => lines(part.iter().copied()),
            Some(judged) => routed(part.iter().copied(), &judged.routes),
        };
        receipts.extend(put(conn, now, &text.map_err(Fault::Refused)?, Depth::Free).await?);
    }
    if let Some(judged) = judged {
        judged.end(conn, now, jobs, &receipts).await?;
    }
    Ok(receipts)
}

/// Writes a batch of one statement on this connection.
pub(crate) async fn put(
    conn: &Conn<'_>,
    now: Option<At>,
    text: &str,
    depth: Depth,
) -> Result<Vec<Receipt>, Fault> {
    let (bounded, diverts) = (depth != Depth::Free, depth == Depth::Bounded);
    let rows = conn.query(&ENQUEUE_UNIQUE, &[&text, &now, &bounded, &diverts]).await?;
    rows.iter().map(receipt).collect::<Result<_>>().map_err(Fault::Refused)
}

/// What the server answered for one job.
pub(crate) fn receipt(row: &Row) -> Result<Receipt> {
    answer(row.get(2), row.get(1))
}

/// The receipt that a word and an id stand for; without an id it tells of a queue that is full.
pub(crate) fn answer(word: &str, id: Option<Uuid>) -> Result<Receipt> {
    let Some(id) = id else {
        let full = serde_json::from_str(word);
        return Err(
            full.map_or_else(|e| Error::Database { reason: e.to_string() }, Error::QueueFull)
        );
    };
    Receipt::of_word(word, JobId(id)).ok_or_else(|| Error::Database {
        reason: format!("tidemill.enqueue_json answered {word:?}"),
    })
}

/// One job as `tidemill.enqueue_json` reads it. The payload travels as a string, to the letter.
#[derive(Serialize)]
struct Line<'a> {
    id: JobId,
    kind: &'a str,
    queue: &'a str,
    priority: i16,
    run_at: Option<Timestamp>,
    delay_us: Option<i64>,
    tenant: Option<&'a str>,
    key: Option<&'a str>,
    unique_key: Option<&'a str>,
    scope: i16,
    period_us: Option<i64>,
    on_duplicate: &'a str,
    force: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    within: Option<&'a [String]>,
    payload: &'a str,
    options: Option<&'a Options>,
}

/// The whole batch as one JSON text.
pub(crate) fn lines<'a>(jobs: impl IntoIterator<Item = &'a NewJob>) -> Result<String> {
    routed(jobs, &Routes::new())
}

/// The same, of which some are diverted.
fn routed<'a>(jobs: impl IntoIterator<Item = &'a NewJob>, routes: &Routes) -> Result<String> {
    let lines: Vec<_> = jobs.into_iter().map(|job| line(job, route(routes, job))).collect();
    let unwritable = |e: serde_json::Error| Error::Database { reason: e.to_string() };
    let text = serde_json::to_string(&lines).map_err(unwritable)?;
    check_bytes(text.len())?;
    Ok(text)
}

fn line<'a>(job: &'a NewJob, queue: &'a str) -> Line<'a> {
    let unique = job.unique.as_ref();
    Line {
        id: job.id,
        kind: &job.kind,
        queue,
        priority: job.priority.band(),
        // What has passed means now, also where a timestamptz does not reach.
        run_at: if let Due::At(at) = job.due { Some(at.max(Timestamp::UNIX_EPOCH)) } else { None },
        delay_us: if let Due::In(delay) = job.due { Some(delay_us(delay)) } else { None },
        tenant: job.tenant.as_deref(),
        key: job.key.as_deref(),
        unique_key: unique.map(|unique| unique.key.as_str()),
        scope: match unique.map(|unique| unique.scope) {
            None | Some(Scope::Unfinished) => 0,
            Some(Scope::Period(_)) => 1,
            Some(Scope::Forever) => 2,
        },
        period_us: match unique.map(|unique| unique.scope) {
            Some(Scope::Period(period)) => Some(delay_us(period)),
            _ => None,
        },
        on_duplicate: unique.map_or("reject", |unique| unique.on_duplicate.word()),
        force: unique.is_some_and(|unique| unique.force),
        within: unique.map(|unique| &*unique.within).filter(|within| !within.is_empty()),
        payload: job.payload.as_str(),
        options: (!job.options.is_default()).then_some(&job.options),
    }
}
