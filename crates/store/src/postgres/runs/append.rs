//! Writes to journals, by natural batching: what comes while a commit is under way goes with the next one.
//!
//! Most bring new entries and nothing else: they go together, by a statement that takes for granted that they are new.
//! Where one is not, because an answer was lost, nothing of it happens, and each entry is looked for.

use std::collections::HashSet;
use std::sync::Arc;

use tidemill_core::{Payload, WorkerId};
use uuid::Uuid;

use super::beside::Beside;
use super::mail::locked;
use crate::error::Result;
use crate::postgres::Shared;
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::gather::{Call, Gather, refuse};
use crate::postgres::statement::{Statement, sql};
use crate::run::{self, Append, Seal};

const APPEND: Statement = sql!(
    "append_journal",
    TIMESTAMPTZ,
    UUID,
    UUID_ARRAY,
    INT8_ARRAY,
    TEXT_ARRAY,
    UUID_ARRAY,
    INT4_ARRAY,
    TEXT_ARRAY,
    UUID_ARRAY,
    BOOL_ARRAY,
    TEXT_ARRAY,
    UUID_ARRAY,
    INT4_ARRAY,
    INT8_ARRAY,
);

const APPEND_NEW: Statement = sql!(
    "append_entries",
    TIMESTAMPTZ,
    UUID,
    UUID_ARRAY,
    INT8_ARRAY,
    TEXT_ARRAY,
    UUID_ARRAY,
    INT8_ARRAY,
    INT4_ARRAY,
    TEXT_ARRAY,
);

const ENTRY: Statement = sql!("select_entry", UUID, INT4);

/// Runs in one shared commit.
const BATCH_RUNS_MAX: usize = 500;

/// What one worker writes.
pub(crate) struct OfWorker {
    worker: WorkerId,
    items: Vec<Append>,
    /// They bring new entries alone.
    is_new: bool,
}

/// Where writes to journals wait for a commit.
pub(crate) type Appends = Gather<OfWorker, Vec<bool>>;

/// Writes to journals; answers in the order of the items.
pub(crate) async fn append(
    shared: &Arc<Shared>,
    worker: WorkerId,
    items: Vec<Append>,
) -> Result<Vec<bool>> {
    if !items.iter().all(|item| item.writes.is_lone()) {
        // In a box: it is rare, and whoever is asked to append would make room for it each time.
        return Box::pin(append_whole(shared, worker, &items)).await;
    }
    let is_new = items.iter().all(|item| item.writes.is_plain() && !item.writes.entries.is_empty());
    let given = OfWorker { worker, items, is_new };
    shared.appends.call(given, |appends| fly(appends, Arc::clone(shared))).await
}

async fn fly(appends: Appends, shared: Arc<Shared>) {
    loop {
        let (mut runs, mut first) = (0, None);
        let calls = appends.next(|given| {
            runs += given.items.len();
            let sort = (given.worker, given.is_new);
            *first.get_or_insert(sort) == sort && runs <= BATCH_RUNS_MAX
        });
        let Some(calls) = calls else { return };
        write_calls(&shared.db, calls).await;
    }
}

/// Writes what calls of one worker and one sort bring, in one commit.
async fn write_calls(db: &Db, calls: Vec<Call<OfWorker, Vec<bool>>>) {
    let Some(&OfWorker { worker, mut is_new, .. }) = calls.first().map(|call| &call.given) else {
        return;
    };
    let items: Vec<&Append> = calls.iter().flat_map(|call| &call.given.items).collect();
    let mut tries = Tries::resend();
    let written = loop {
        let writing = async {
            let conn = db.conn().await?;
            if is_new {
                write_new(&conn, db, worker, &items).await
            } else {
                write(&conn, db, worker, &items).await
            }
        };
        match writing.await {
            Ok(held) => break Ok(held),
            Err(Fault::Duplicate(_)) if is_new => is_new = false,
            Err(fault) => {
                is_new &= !matches!(fault, Fault::Lost(_));
                if let Err(error) = tries.again(fault).await {
                    break Err(error);
                }
            }
        }
    };
    match written {
        Ok(held) => {
            for call in calls {
                let holds = |item: &Append| held.contains(&item.job.0);
                let answers = call.given.items.iter().map(holds).collect();
                call.answer(Ok(answers));
            }
        }
        Err(error) => refuse(calls, &error),
    }
}

/// What every write brings, column by column: a place for each run in the first three, for each entry in the others.
struct Columns<'a> {
    jobs: Vec<Uuid>,
    tokens: Vec<i64>,
    begins: Vec<Option<&'a str>>,
    entry_jobs: Vec<Uuid>,
    numbers: Vec<i32>,
    texts: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    fn of(items: &[&'a Append]) -> Self {
        let entries =
            || items.iter().flat_map(|item| item.writes.entries.iter().map(|e| (item.job.0, e)));
        Self {
            jobs: items.iter().map(|item| item.job.0).collect(),
            tokens: items.iter().map(|item| item.token.0).collect(),
            begins: items.iter().map(|item| item.writes.begins.as_deref()).collect(),
            entry_jobs: entries().map(|(job, _)| job).collect(),
            numbers: entries().map(|(_, (number, _))| *number as i32).collect(),
            texts: entries().map(|(_, (_, text))| text.as_str()).collect(),
        }
    }
}

/// Writes entries that should be new. Answers the runs whose leases hold; a duplicate, and nothing was written, where
/// one is there already.
async fn write_new(
    conn: &Conn<'_>,
    db: &Db,
    worker: WorkerId,
    items: &[&Append],
) -> Result<HashSet<Uuid>, Fault> {
    let Columns { jobs, tokens, begins, entry_jobs, numbers, texts } = Columns::of(items);
    let entry_tokens = items.iter().flat_map(|i| i.writes.entries.iter().map(|_| i.token.0));
    let entry_tokens: Vec<i64> = entry_tokens.collect();
    let now = db.manual_now();
    let rows = conn
        .query(
            &APPEND_NEW,
            &[
                &now,
                &worker.0,
                &jobs,
                &tokens,
                &begins,
                &entry_jobs,
                &entry_tokens,
                &numbers,
                &texts,
            ],
        )
        .await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Writes all that can be written by one statement. Answers the runs whose leases hold.
pub(super) async fn write(
    conn: &Conn<'_>,
    db: &Db,
    worker: WorkerId,
    items: &[&Append],
) -> Result<HashSet<Uuid>, Fault> {
    let Columns { jobs, tokens, begins, entry_jobs, numbers, texts } = Columns::of(items);
    let heard: Vec<Option<i64>> = texts.iter().map(|text| run::heard(text)).collect();
    let changing = items.iter().filter(|item| item.writes.changes_run());
    let changing: Vec<Uuid> = changing.map(|item| item.job.0).collect();
    let owes: Vec<bool> = items.iter().map(|item| item.writes.owes).collect();
    let states = items.iter().map(|item| item.writes.state.as_ref().map(Payload::as_str));
    let states: Vec<Option<&str>> = states.collect();
    let forget = items.iter().flat_map(|i| i.writes.forget.iter().map(|n| (i.job.0, *n as i32)));
    let (forget_jobs, forget_numbers): (Vec<Uuid>, Vec<i32>) = forget.unzip();
    let now = db.manual_now();
    let rows = conn
        .query(
            &APPEND,
            &[
                &now,
                &worker.0,
                &jobs,
                &tokens,
                &begins,
                &entry_jobs,
                &numbers,
                &texts,
                &changing,
                &owes,
                &states,
                &forget_jobs,
                &forget_numbers,
                &heard,
            ],
        )
        .await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Writes to journals together with children that start or are called off.
async fn append_whole(shared: &Shared, worker: WorkerId, items: &[Append]) -> Result<Vec<bool>> {
    let mut tries = Tries::resend();
    let (held, told) = loop {
        let conn = shared.db.begin().await?;
        let acted = append_in(shared, &conn, worker, items).await;
        match conn.end(acted).await {
            Ok(done) => break done,
            Err(fault) => tries.again(fault).await?,
        }
    };
    told.tell(shared);
    Ok(items.iter().map(|item| held.contains(&item.job.0)).collect())
}

async fn append_in(
    shared: &Shared,
    conn: &Conn<'_>,
    worker: WorkerId,
    items: &[Append],
) -> Result<(HashSet<Uuid>, Beside), Fault> {
    let items: Vec<&Append> = items.iter().collect();
    let now = shared.db.manual_now();
    // Runs are locked before unique keys.
    let clashing = items.iter().filter(|item| item.writes.may_clash());
    locked(conn, now, &clashing.map(|item| item.job.0).collect::<Vec<_>>()).await?;
    let held = write(conn, &shared.db, worker, &items).await?;
    let holding = items.iter().filter(|item| held.contains(&item.job.0));
    let mut told =
        Beside::write(shared, conn, holding.map(|item| (item.job, &item.writes))).await?;
    told.turn_away(conn, now).await?;
    Ok((held, told))
}

/// Writes one entry unless a transaction of a caller has written under its number. One that is under way is waited
/// for: both want the same place.
pub(crate) async fn seal(shared: &Shared, worker: WorkerId, item: &Append) -> Result<Seal> {
    let mut tries = Tries::resend();
    loop {
        let conn = shared.db.begin().await?;
        let acted = seal_in(shared, &conn, worker, item).await;
        match conn.end(acted).await {
            Ok(seal) => return Ok(seal),
            Err(fault) => tries.again(fault).await?,
        }
    }
}

async fn seal_in(
    shared: &Shared,
    conn: &Conn<'_>,
    worker: WorkerId,
    item: &Append,
) -> Result<Seal, Fault> {
    let held = write(conn, &shared.db, worker, &[item]).await?;
    let Some((number, sealed)) = item.writes.entries.first() else { return Ok(Seal::Stale) };
    // Only now: what was waited for is visible to this statement.
    let rows = conn.query(&ENTRY, &[&item.job.0, &(*number as i32)]).await?;
    Ok(Seal::of(rows.first().map(|row| row.get(0)), sealed, !held.is_empty()))
}
