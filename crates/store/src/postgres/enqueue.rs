//! Enqueue: batches in one statement, concurrent single calls in one commit.
//!
//! Every job has its id before it is sent, so an enqueue whose answer was lost is sent again: what
//! was written is found by its id, and the rest is written. Nobody is told `no` who may have a `yes`.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use tidemill_core::NewJob;
use uuid::Uuid;

use crate::error::Result;
use crate::postgres::batch::{is_one_statement, parts, statement, write};
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::gather::{Call, Gather, is_for_all, refuse};
use crate::postgres::notify::NOTIFY;
use crate::postgres::statement::{Param, Statement, sql};
use crate::postgres::unique::Depth;
use crate::postgres::{Shared, depth, unique};
use crate::request::Receipt;
use crate::together;
use crate::wake::Hint;

pub(crate) const KNOWN: Statement = sql!("select_known", UUID_ARRAY);

/// Calls with at most this many jobs share commits with others.
const SMALL_JOBS_MAX: usize = 100;
/// Jobs in one shared commit.
const BATCH_JOBS_MAX: usize = 1000;

/// Where small calls wait for a commit.
pub(crate) type Enqueues = Gather<Vec<NewJob>, ()>;

/// Writes jobs; answers in their order.
pub(crate) async fn enqueue(shared: &Arc<Shared>, jobs: Vec<NewJob>) -> Result<Vec<Receipt>> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let queues: BTreeSet<_> = jobs.iter().map(|job| job.queue.clone()).collect();
    if !jobs.iter().all(is_plain) {
        let receipts = if together::is_any(&jobs) {
            unique::enqueue_judged(&shared.db, &jobs).await?
        } else {
            unique::enqueue(&shared.db, &jobs).await?
        };
        if shared.bounds.include(queues.iter().map(String::as_str)) {
            depth::tend_soon(shared);
        }
        for queue in queues {
            shared.hint(Hint::Ready { queue });
        }
        return Ok(receipts);
    }
    let receipts = jobs.iter().map(|job| Receipt::Enqueued { id: job.id }).collect();
    if jobs.len() <= SMALL_JOBS_MAX {
        shared.enqueues.call(jobs, |enqueues| fly(enqueues, Arc::clone(shared))).await?;
    } else {
        write_all(shared, &jobs.iter().collect::<Vec<_>>(), Depth::Bounded).await?;
    }
    for queue in queues {
        shared.wake.tell(Hint::Ready { queue });
    }
    Ok(receipts)
}

async fn fly(enqueues: Enqueues, shared: Arc<Shared>) {
    loop {
        let mut number = 0;
        let calls = enqueues.next(|jobs| {
            number += jobs.len();
            number <= BATCH_JOBS_MAX
        });
        let Some(calls) = calls else { return };
        write_together(&shared, calls).await;
    }
}

/// Writes the jobs of calls in one commit. One call cannot fail another: what is refused together is written call by
/// call.
async fn write_together(shared: &Arc<Shared>, calls: Vec<Call<Vec<NewJob>, ()>>) {
    let all: Vec<_> = calls.iter().flat_map(|call| &call.given).collect();
    let alone = calls.len() == 1;
    let depth = if alone { Depth::Bounded } else { Depth::Together };
    let written = write_all(shared, &all, depth).await;
    match written {
        Err(error) if alone || is_for_all(&shared.db, &error).await => refuse(calls, &error),
        Err(_) => {
            for call in calls {
                let jobs: Vec<_> = call.given.iter().collect();
                let written = write_all(shared, &jobs, Depth::Bounded).await;
                call.answer(written);
            }
        }
        Ok(()) => calls.into_iter().for_each(|call| call.answer(Ok(()))),
    }
}

/// Nothing but its own row decides what becomes of it: it has no unique key, and is in no line.
pub(crate) fn is_plain(job: &NewJob) -> bool {
    job.unique.is_none() && job.line().is_none()
}

/// Writes plain jobs, all or none, and tells other processes. Ids that were written
/// before stay as they are. Jobs of bounded queues take another way, on which they are judged.
pub(crate) async fn write_all(shared: &Arc<Shared>, jobs: &[&NewJob], limit: Depth) -> Result<()> {
    let queues: BTreeSet<&str> = jobs.iter().map(|job| job.queue.as_str()).collect();
    let mut told = shared.notifier.ready_now(&queues);
    let mut tries = Tries::resend();
    let mut doubtful = false;
    let mut bounded = shared.bounds.include(queues.iter().copied());
    let is_free = !bounded && shared.bounds.are_free(queues.iter().copied());
    let look = if is_free { Depth::Free } else { Depth::Bounded };
    loop {
        let written = if bounded {
            told = None;
            write_bounded(&shared.db, jobs, limit).await
        } else if doubtful || !is_one_statement(jobs) {
            told = None;
            write_carefully(&shared.db, jobs).await
        } else {
            write_once(&shared.db, jobs, told.as_deref(), look).await
        };
        match written {
            Ok(true) => break,
            Ok(false) => {
                shared.bounds.learn(queues.iter().copied());
                bounded = true;
            }
            Err(fault) => {
                doubtful |= matches!(fault, Fault::Duplicate(_) | Fault::Lost(_));
                tries.again(fault).await?;
            }
        }
    }
    if bounded {
        depth::tend_soon(shared);
    } else if !is_free {
        shared.bounds.learn_free(queues.iter().copied());
    }
    if told.is_none() {
        for queue in queues {
            shared.notifier.tell(Hint::Ready { queue: queue.to_owned() });
        }
    }
    Ok(())
}

/// Writes jobs in one statement, and sends `told` right behind it. `false`: one of the queues may have
/// a bound.
async fn write_once(
    db: &Db,
    jobs: &[&NewJob],
    told: Option<&[String]>,
    depth: Depth,
) -> Result<bool, Fault> {
    let conn = db.conn().await?;
    let writing = write(&conn, db.manual_now(), jobs, depth);
    let Some(told) = told else { return writing.await };
    // Prepared before anything is sent, so that the two go out in this order.
    conn.prepare(statement(jobs.len(), depth)).await?;
    conn.prepare(&NOTIFY).await?;
    let hints: [Param<'_>; 1] = [&told];
    let telling = async {
        let _ = conn.query(&NOTIFY, &hints).await;
        std::future::pending::<()>().await;
    };
    // Both are on their way; only the first is waited for.
    tokio::select! {
        biased;
        written = writing => written,
        () = telling => Ok(true),
    }
}

/// Writes jobs of which some are for queues with a bound.
async fn write_bounded(db: &Db, jobs: &[&NewJob], depth: Depth) -> Result<bool, Fault> {
    let depth = depth.with(jobs);
    unique::put_whole(db, jobs, depth).await.map(|_| true)
}

/// Writes what is not there yet of jobs that may have been written before, or are too many for one
/// statement.
async fn write_carefully(db: &Db, jobs: &[&NewJob]) -> Result<bool, Fault> {
    let conn = db.begin_for(jobs).await?;
    match write_new(&conn, db, jobs, Depth::Bounded).await {
        Ok(true) => conn.commit().await.map(|()| true),
        Ok(false) => conn.rollback().await.map(|()| false),
        Err(fault) => {
            conn.rollback().await?;
            Err(fault)
        }
    }
}

/// Writes those that are not there yet, in the caller's transaction. `false`: one of the queues may
/// have a bound, and not all was written.
pub(crate) async fn write_new(
    conn: &Conn<'_>,
    db: &Db,
    jobs: &[&NewJob],
    depth: Depth,
) -> Result<bool, Fault> {
    let ids: Vec<Uuid> = jobs.iter().map(|job| job.id.0).collect();
    let known = conn.query(&KNOWN, &[&ids]).await?;
    let mut seen: HashSet<Uuid> = known.iter().map(|row| row.get(0)).collect();
    let new: Vec<_> = jobs.iter().copied().filter(|job| seen.insert(job.id.0)).collect();
    if new.is_empty() {
        return Ok(true);
    }
    // Where one of their queues may have a bound nothing is judged here: nothing is written.
    for part in parts(&new) {
        if !write(conn, db.manual_now(), part, depth).await? {
            return Ok(false);
        }
    }
    Ok(true)
}
