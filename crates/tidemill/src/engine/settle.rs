//! Settles attempts, so that one which the store cannot write takes no others with it.

use std::slice::from_ref;

use tidemill_core::stream::Said;
use tidemill_core::{Settlement, WorkerId};
use tidemill_store::stream::StreamItem;
use tidemill_store::{Error, Result, SettleItem, Settled};
use uuid::Uuid;

use crate::engine::Tidemill;
use crate::engine::ends::Ends;
use crate::engine::telemetry::verb;

/// Settles a batch of a worker of this process; answers in its order. Sent again, it is answered as before. Who waits
/// here for one of these jobs is told of its end.
pub(crate) async fn settle_own(
    mill: &Tidemill,
    worker: WorkerId,
    items: &[SettleItem],
) -> Result<Vec<Settled>> {
    settle_by(mill, worker, items, Some(&mill.0.ends)).await
}

/// Settles a batch that was reported; answers in its order. Sent again, it is answered as before. Nobody is told of an
/// end by what a report says: one that came before it may have said otherwise.
pub(crate) async fn settle(
    mill: &Tidemill,
    worker: WorkerId,
    items: &[SettleItem],
) -> Result<Vec<Settled>> {
    settle_by(mill, worker, items, None).await
}

async fn settle_by(
    mill: &Tidemill,
    worker: WorkerId,
    items: &[SettleItem],
    ends: Option<&Ends>,
) -> Result<Vec<Settled>> {
    say_parked(mill, worker, items).await;
    let told = ends.map(|ends| ends.settling(items));
    let settling = mill.0.store.settle(worker, items.to_vec());
    match verb("settle", items.len(), settling).await {
        Ok(answers) => {
            if let Some(told) = told {
                told.settled(&answers);
            }
            mill.0.measures.settled(items, &answers);
            tell_stale(items, &answers);
            Ok(answers)
        }
        Err(error) if !is_about_outcome(&error) => Err(error),
        // One attempt that the store cannot write must not take the others with it.
        Err(_) if items.len() > 1 => {
            let mut answers = Vec::with_capacity(items.len());
            for item in items {
                answers.extend(Box::pin(settle_by(mill, worker, from_ref(item), ends)).await?);
            }
            Ok(answers)
        }
        Err(error) => match items.first().and_then(|item| instead(item, &error)) {
            Some(item) => Box::pin(settle_by(mill, worker, &[item], ends)).await,
            None => Ok(vec![Settled::Stale; items.len()]),
        },
    }
}

/// Whether the same outcome would be refused again. What is wrong with the store as a whole somebody will mend.
fn is_about_outcome(error: &Error) -> bool {
    let is_about_store = matches!(
        error,
        Error::ReadOnly { .. }
            | Error::TlsRefused { .. }
            | Error::SchemaNewer { .. }
            | Error::SchemaOlder { .. }
    );
    !is_about_store && !error.is_temporary()
}

/// Whether the store answers that failed so: then it may be what it was asked for that it cannot do now, for want of
/// memory, of time, or of a block of its disk. What is wrong with a file is wrong with all of it.
pub(crate) async fn is_there(mill: &Tidemill, error: &Error) -> bool {
    let store = &mill.0.store;
    let may_be_there = match error {
        Error::Unavailable { .. } => true,
        Error::DiskFailed { .. } | Error::Busy { .. } => store.backend() == "postgres",
        _ => false,
    };
    may_be_there && store.now().await.is_ok()
}

/// What to settle instead of an outcome that the store refuses to keep: else the job would run for as long as its
/// worker lives, and nobody would see why. What its run has done is kept, unless that is what is refused.
fn instead(item: &SettleItem, error: &Error) -> Option<SettleItem> {
    let id = item.job.id;
    tracing::error!(%id, %error, "the outcome of an attempt cannot be written");
    match (&item.settlement, &item.run) {
        (Settlement::Dead { .. }, None) => None,
        (Settlement::Dead { .. }, Some(_)) => Some(SettleItem { run: None, ..item.clone() }),
        _ => Some(item.unkept(error)),
    }
}

/// Says in the streams of runs that are to be parked that they are, before it can be seen: under the lease, as all that
/// is said. A stream that is full, or cannot be written now, parks nobody later for it.
async fn say_parked(mill: &Tidemill, worker: WorkerId, items: &[SettleItem]) {
    let parked = items.iter().filter_map(|item| match &item.settlement {
        Settlement::Wait(waiting) => Some((item, waiting.parked.as_ref()?)),
        _ => None,
    });
    for (item, parked) in parked {
        let (job, token) = (item.job.id, item.token);
        // The same however often it is settled: it is said once.
        let sent = Uuid::from_u128(job.0.as_u128() ^ token.0 as u128);
        let said = vec![Said::from(parked)];
        let item = StreamItem { job, token, sent, said, ephemeral: Vec::new() };
        if let Err(error) = mill.append_stream(worker, vec![item]).await {
            tracing::debug!(id = %job, %error, "that a run is parked is not in its stream");
        }
    }
}

fn tell_stale(items: &[SettleItem], answers: &[Settled]) {
    for (item, _) in items.iter().zip(answers).filter(|(_, answer)| **answer == Settled::Stale) {
        let (id, token) = (item.job.id, item.token);
        tracing::warn!(%id, %token, "a stale attempt was refused: its lease was lost");
    }
}
