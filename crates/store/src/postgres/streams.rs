//! Streams: adding to them under a lease, and reading on.

use std::sync::Arc;

use tidemill_core::stream::Said;
use tidemill_core::{JobId, WorkerId};
use uuid::Uuid;

use crate::error::Result;
use crate::postgres::Shared;
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{At, Statement, sql};
use crate::stream::{PAGE_BYTES, StreamAnswer, StreamItem, StreamPage, Written, ephemeral};
use crate::wake::Hint;

const APPEND: Statement = sql!(
    "append_stream",
    TIMESTAMPTZ,
    UUID,
    UUID_ARRAY,
    INT8_ARRAY,
    UUID_ARRAY,
    INT4_ARRAY,
    INT8_ARRAY,
    TEXT_ARRAY,
    TEXT_ARRAY,
    INT8
);
const SAY: Statement = sql!("say", TIMESTAMPTZ, UUID, UUID, TEXT);
const SELECT: Statement = sql!("select_stream", UUID_ARRAY, INT8_ARRAY, INT8);

/// Adds to streams; answers in the order of the items.
pub(crate) async fn append(
    shared: &Arc<Shared>,
    worker: WorkerId,
    items: Vec<StreamItem>,
    bytes_max: u64,
) -> Result<Vec<StreamAnswer>> {
    let is_unheard = |item: &StreamItem| item.said.is_empty() && !shared.followed.has(item.job);
    if items.iter().all(is_unheard) {
        return Ok(vec![StreamAnswer::Kept { last: 0 }; items.len()]);
    }
    let rows: Vec<Written> =
        items.iter().map(|item| Written::of(&item.said)).collect::<Result<_>>()?;
    let mut answers = vec![StreamAnswer::Stale; items.len()];
    let mut left: Vec<usize> = (0..items.len()).collect();
    while !left.is_empty() {
        let batch =
            left.iter().filter_map(|at| Some((*at, items.get(*at)?, rows.get(*at)?))).collect();
        left = write(&shared.db, worker, batch, bytes_max, &mut answers).await?;
    }
    let written = items.iter().zip(&answers).filter(|(item, answer)| {
        matches!(answer, StreamAnswer::Kept { .. }) && !item.said.is_empty()
    });
    for id in shared.followed.written(written.map(|(item, _)| item.job)) {
        shared.hint(Hint::Stream { id });
    }
    for hint in ephemeral(&items, &answers, shared.db.machine_now(), &shared.followed) {
        shared.hint(hint);
    }
    Ok(answers)
}

/// Adds to the stream of a job what somebody has done with it.
pub(super) async fn say(
    conn: &Conn<'_>,
    now: Option<At>,
    job: JobId,
    said: Said,
) -> Result<(), Fault> {
    let (sent, written) = (Uuid::now_v7(), Written::of(&[said]).map_err(Fault::Refused)?);
    while conn.query(&SAY, &[&now, &job.0, &sent, &written.chunks]).await?.is_empty() {}
    Ok(())
}

type Item<'a> = (usize, &'a StreamItem, &'a Written);

/// Writes items in one transaction. Answers those that met another writer of the same stream.
async fn write(
    db: &Db,
    worker: WorkerId,
    batch: Vec<Item<'_>>,
    bytes_max: u64,
    answers: &mut [StreamAnswer],
) -> Result<Vec<usize>> {
    let mut tries = Tries::resend();
    let rows = loop {
        match write_once(db, worker, &batch, bytes_max).await {
            Ok(rows) => break rows,
            Err(fault) => tries.again(fault).await?,
        }
    };
    let mut met = Vec::new();
    for row in rows {
        let place = row.get::<_, i64>(0) as usize - 1;
        let Some((at, item, written)) = batch.get(place) else { continue };
        let (last, before, is_there): (i64, i64, bool) = (row.get(1), row.get(2), row.get(3));
        let answer = match row.get::<_, Option<i64>>(4) {
            Some(last) => StreamAnswer::Kept { last: last as u64 },
            None if is_there || item.said.is_empty() => StreamAnswer::Kept { last: last as u64 },
            None if before + written.bytes() > bytes_max as i64 => {
                StreamAnswer::Full { bytes_left: bytes_max.saturating_sub(before as u64) }
            }
            None => {
                met.push(*at);
                continue;
            }
        };
        if let Some(place) = answers.get_mut(*at) {
            *place = answer;
        }
    }
    Ok(met)
}

async fn write_once(
    db: &Db,
    worker: WorkerId,
    batch: &[Item<'_>],
    bytes_max: u64,
) -> std::result::Result<Vec<tokio_postgres::Row>, Fault> {
    let jobs: Vec<Uuid> = batch.iter().map(|(_, item, _)| item.job.0).collect();
    let tokens: Vec<i64> = batch.iter().map(|(_, item, _)| item.token.0).collect();
    let sents: Vec<Uuid> = batch.iter().map(|(_, item, _)| item.sent).collect();
    let sizes: Vec<i32> = batch.iter().map(|(_, item, _)| item.said.len() as i32).collect();
    let bytes: Vec<i64> = batch.iter().map(|(.., written)| written.bytes()).collect();
    let progress: Vec<Option<&str>> =
        batch.iter().map(|(.., written)| written.progress.as_deref()).collect();
    let chunks: Vec<&str> = batch.iter().map(|(.., written)| written.chunks.as_str()).collect();
    let (now, bytes_max) = (db.manual_now(), bytes_max as i64);
    let conn = db.conn().await?;
    let rows = conn
        .query(
            &APPEND,
            &[
                &now, &worker.0, &jobs, &tokens, &sents, &sizes, &bytes, &progress, &chunks,
                &bytes_max,
            ],
        )
        .await?;
    Ok(rows)
}

/// The chunks of these streams after these numbers.
pub(crate) async fn after(db: &Db, jobs: &[(JobId, u64)]) -> Result<Vec<StreamPage>> {
    let ids: Vec<Uuid> = jobs.iter().map(|(id, _)| id.0).collect();
    let afters: Vec<i64> = jobs.iter().map(|(_, after)| *after as i64).collect();
    let rows = db.read(&SELECT, &[&ids, &afters, &(PAGE_BYTES as i64)]).await?;
    let mut pages = vec![StreamPage::default(); jobs.len()];
    for row in rows {
        let place = row.get::<_, i64>(0) as usize - 1;
        if let (Some(page), Some((_, after))) = (pages.get_mut(place), jobs.get(place)) {
            page.add(*after, (row.get(1), row.get::<_, At>(2).0, row.get(3)), row.get(4))?;
        }
    }
    Ok(pages)
}
