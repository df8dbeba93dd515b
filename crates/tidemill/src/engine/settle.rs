//! Settles attempts, so that one which the store cannot write takes no others with it.

use tidemill_core::{ErrorClass, Failure, Settlement, WorkerId};
use tidemill_store::{Error, Result, SettleItem, Settled};

use crate::engine::Tidemill;
use crate::engine::telemetry::verb;

/// Settles a batch; answers in its order. Sent again, it is answered as before.
pub(crate) async fn settle(
    mill: &Tidemill,
    worker: WorkerId,
    items: Vec<SettleItem>,
) -> Result<Vec<Settled>> {
    let settling = mill.0.store.settle(worker, items.clone());
    match verb("settle", items.len(), settling).await {
        Ok(answers) => {
            mill.0.measures.settled(&items, &answers);
            tell_stale(&items, &answers);
            Ok(answers)
        }
        // One attempt that the store cannot write must not take the others with it.
        Err(Error::Database { .. }) if items.len() > 1 => {
            let mut answers = Vec::with_capacity(items.len());
            for item in items {
                answers.extend(Box::pin(settle(mill, worker, vec![item])).await?);
            }
            Ok(answers)
        }
        Err(Error::Database { reason }) => match unwritable(&items, &reason) {
            Some(item) => Box::pin(settle(mill, worker, vec![item])).await,
            None => Ok(vec![Settled::Stale; items.len()]),
        },
        Err(error) => Err(error),
    }
}

/// What to settle instead of an outcome that the database refuses to keep: else the job would run
/// for as long as its worker lives, and nobody would see why.
fn unwritable(items: &[SettleItem], reason: &str) -> Option<SettleItem> {
    let item = items.first()?;
    let id = item.job.id;
    tracing::error!(%id, reason, "the outcome of an attempt cannot be written");
    if matches!(item.settlement, Settlement::Dead { .. }) {
        return None;
    }
    let message = format!("its outcome cannot be kept: {reason}");
    let failure = Failure::new(&item.job.kind, ErrorClass::Ambiguous, message);
    Some(SettleItem { settlement: Settlement::Dead { failure }, ..item.clone() })
}

fn tell_stale(items: &[SettleItem], answers: &[Settled]) {
    for (item, _) in items.iter().zip(answers).filter(|(_, answer)| **answer == Settled::Stale) {
        let (id, token) = (item.job.id, item.token);
        tracing::warn!(%id, %token, "a stale attempt was refused: its lease was lost");
    }
}
