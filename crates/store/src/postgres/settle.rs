//! Settle: what attempts came to, with everything they cause, each only if its token still holds.
//!
//! Most attempts finish well and cause nothing more: those are one statement. All others go through
//! one transaction that locks unique keys, lines and leases, and then writes. Both answer a settle that is
//! sent again as they answered it first.

mod decided;
mod whole;

pub(crate) use whole::{FollowUp, follow_up};

use std::collections::HashSet;
use std::sync::Arc;

use tidemill_core::{Settlement, WorkerId};
use uuid::Uuid;

use crate::error::Result;
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::leases::Flight;
use crate::postgres::statement::{Statement, sql};
use crate::postgres::{Shared, flows};
use crate::request::{SettleItem, Settled};

pub(crate) use decided::carry_out;

const SETTLE_DONE: Statement = sql!(
    "settle_done",
    TIMESTAMPTZ,
    UUID,
    UUID_ARRAY,
    TEXT_ARRAY,
    INT8_ARRAY,
    INT2_ARRAY,
    INT2_ARRAY,
    TEXT_ARRAY,
    INT8_ARRAY,
    INT8_ARRAY,
    INT8_ARRAY,
    INT8_ARRAY,
    UUID_ARRAY,
    INT8_ARRAY,
    TEXT_ARRAY,
    UUID_ARRAY,
    INT4_ARRAY,
    UUID_ARRAY,
    INT4_ARRAY,
    TEXT_ARRAY,
    UUID_ARRAY,
    TEXT_ARRAY,
);
const SETTLED_BEFORE: Statement = sql!("was_settled", UUID_ARRAY, INT8_ARRAY);

/// Records attempts that ended; answers in their order.
pub(crate) async fn settle(
    shared: &Arc<Shared>,
    worker: WorkerId,
    items: Vec<SettleItem>,
) -> Result<Vec<Settled>> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    if items.iter().all(SettleItem::is_plain)
        && let Some(flight) = shared.leases.begin(&items)
    {
        return settle_done(shared, worker, &items, flight).await;
    }
    whole::settle(shared, worker, &items).await
}

async fn settle_done(
    shared: &Arc<Shared>,
    worker: WorkerId,
    items: &[SettleItem],
    flight: Flight<'_>,
) -> Result<Vec<Settled>> {
    let mut tries = Tries::resend();
    let Written { jobs: written, others, done } = loop {
        match write_done(&shared.db, worker, items, &flight).await {
            Ok(written) => break written,
            Err(fault) => tries.again(fault).await?,
        }
    };
    let refused: Vec<_> = items.iter().filter(|item| !written.contains(&item.job.id.0)).collect();
    let mut before = Vec::new();
    while !refused.is_empty() {
        match settled_before(&shared.db.conn().await?, &refused).await {
            Ok(found) => {
                before = found;
                break;
            }
            Err(fault) => tries.again(fault).await?,
        }
    }
    shared.leases.settled(flight);
    let answer = |item: &SettleItem| {
        let id = item.job.id.0;
        let accepted = written.contains(&id) || before.iter().any(|(known, _)| *known == id);
        if accepted { Settled::Accepted } else { Settled::Stale }
    };
    let answers: Vec<_> = items.iter().map(answer).collect();
    shared.doors.came_out(shared, items, &answers);
    done.tell(shared);
    shared.arrivals.came(shared, others);
    shared.finished(items.iter().map(|item| item.job.id));
    Ok(answers)
}

/// What a settle wrote.
#[derive(Default)]
struct Written {
    jobs: HashSet<Uuid>,
    /// Flows that are still to be carried on.
    others: Vec<Uuid>,
    /// What became of those that were.
    done: flows::Done,
}

async fn write_done(
    db: &Db,
    worker: WorkerId,
    items: &[SettleItem],
    flight: &Flight<'_>,
) -> Result<Written, Fault> {
    let ids: Vec<Uuid> = items.iter().map(|item| item.job.id.0).collect();
    let queues: Vec<&str> = items.iter().map(|item| item.job.queue.as_str()).collect();
    let tokens: Vec<i64> = items.iter().map(|item| item.token.0).collect();
    let attempts: Vec<i16> = items.iter().map(|item| item.attempt as i16).collect();
    let losts: Vec<i16> = items.iter().map(|item| item.lost as i16).collect();
    let outputs: Vec<Option<&str>> = items.iter().map(output).collect();
    let retains: Vec<_> = items.iter().map(|item| item.job.options.kept_ms()).collect();
    let numbers =
        |tokens: &[tidemill_core::Token]| -> Vec<i64> { tokens.iter().map(|t| t.0).collect() };
    let (open, closing) = (numbers(&flight.open), numbers(&flight.closing));
    let swept = numbers(&flight.swept);
    let (mut inside, mut of_tokens, mut gates) = (Vec::new(), Vec::new(), Vec::new());
    for item in items.iter().filter(|item| !flight.closing.contains(&item.token)) {
        for end in &item.gates {
            inside.push(item.job.id.0);
            of_tokens.push(item.token.0);
            gates.push(&*end.gate);
        }
    }
    let place = |item: &SettleItem| {
        item.job.options.flow.as_deref().map(|place| (place.id.0, place.step as i32))
    };
    let places: Vec<Option<(Uuid, i32)>> = items.iter().map(place).collect();
    let flows: Vec<Option<Uuid>> = places.iter().map(|place| place.map(|p| p.0)).collect();
    let steps: Vec<Option<i32>> = places.iter().map(|place| place.map(|p| p.1)).collect();
    let of_runs = || items.iter().filter_map(|item| Some((item.job.id.0, item.run.as_deref()?)));
    let entries = || of_runs().flat_map(|(id, run)| run.entries.iter().map(move |e| (id, e)));
    let entry_jobs: Vec<Uuid> = entries().map(|(id, _)| id).collect();
    let numbers: Vec<i32> = entries().map(|(_, (number, _))| *number as i32).collect();
    let texts: Vec<&str> = entries().map(|(_, (_, text))| text.as_str()).collect();
    let begun = of_runs().filter_map(|(id, run)| Some((id, run.begins.as_deref()?)));
    let (begun, versions): (Vec<Uuid>, Vec<&str>) = begun.unzip();
    let rows = db
        .query(
            &SETTLE_DONE,
            &[
                &db.manual_now(),
                &worker.0,
                &ids,
                &queues,
                &tokens,
                &attempts,
                &losts,
                &outputs,
                &open,
                &closing,
                &swept,
                &retains,
                &inside,
                &of_tokens,
                &gates,
                &flows,
                &steps,
                &entry_jobs,
                &numbers,
                &texts,
                &begun,
                &versions,
            ],
        )
        .await?;
    let mut written = Written::default();
    let (mut queues, mut over) = (Vec::<String>::new(), Vec::new());
    for row in &rows {
        let Some(id) = row.get(0) else {
            written.others.extend(row.get::<_, Option<Vec<Uuid>>>(1).into_iter().flatten());
            queues.extend(row.get::<_, Option<Vec<String>>>(2).into_iter().flatten());
            over.extend(row.get::<_, Option<Vec<Uuid>>>(3).into_iter().flatten());
            continue;
        };
        written.jobs.insert(id);
    }
    written.done = flows::Done::new(queues, over);
    Ok(written)
}

fn output(item: &SettleItem) -> Option<&str> {
    match &item.settlement {
        Settlement::Done { output, .. } => Some(output.as_str()),
        _ => None,
    }
}

/// Which of these were settled before under the same token, and whether as cancelled.
async fn settled_before(
    conn: &Conn<'_>,
    items: &[&SettleItem],
) -> Result<Vec<(Uuid, bool)>, Fault> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Uuid> = items.iter().map(|item| item.job.id.0).collect();
    let tokens: Vec<i64> = items.iter().map(|item| item.token.0).collect();
    let rows = conn.query(&SETTLED_BEFORE, &[&ids, &tokens]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}
