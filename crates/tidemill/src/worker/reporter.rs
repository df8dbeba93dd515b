//! The loop that reports to a broker how attempts ended: what ended while a report was on its way goes with the next.
//!
//! What is refused is split until it is known which report it is, and that one is replaced. What gets no answer is sent
//! again for as long as it takes; after a few tries in smaller parts, and behind what has ended since: it may be
//! something on the way that does not let it through.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::ErrorClass;
use tidemill_core::wire::work::{OutcomeBody, ReportBody, SettledBody};
use tidemill_store::{Error, Result};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::worker::boss::Elsewhere;
use crate::worker::shop::Shop;
use crate::worker::wire;

/// Attempts that are reported together.
const BATCH_MAX: usize = 500;
/// Tries of a batch before it is split and put back.
const TRIES_MAX: u32 = 5;
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Reports that go together, and how often they went in vain.
struct Batch {
    reports: Vec<ReportBody>,
    tries: u32,
}

/// Runs until everything that can still come was reported.
pub(crate) async fn report_all(
    shop: Arc<Shop>,
    boss: Arc<Elsewhere>,
    mut ended: UnboundedReceiver<ReportBody>,
) {
    let (mut batches, mut pause) = (VecDeque::new(), PAUSE_MIN);
    while let Some(batch) = next(&mut batches, &mut ended).await {
        let Err(error) = settle(&shop, &boss, batch.reports.clone()).await else {
            for report in &batch.reports {
                boss.held.ended(report.token);
            }
            shop.settled(batch.reports.len());
            pause = PAUSE_MIN;
            continue;
        };
        tracing::debug!(%error, "attempts could not be reported; trying again until it works");
        put_back(&mut batches, batch, &error);
        tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// What is to be reported next. One that went in vain is tried a few times before anything else is.
async fn next(
    batches: &mut VecDeque<Batch>,
    ended: &mut UnboundedReceiver<ReportBody>,
) -> Option<Batch> {
    let mut reports = Vec::new();
    match batches.front() {
        Some(batch) if (1..TRIES_MAX).contains(&batch.tries) => {}
        Some(_) => {
            while reports.len() < BATCH_MAX
                && let Ok(report) = ended.try_recv()
            {
                reports.push(report);
            }
        }
        None => drop(ended.recv_many(&mut reports, BATCH_MAX).await),
    }
    if reports.is_empty() { batches.pop_front() } else { Some(Batch { reports, tries: 0 }) }
}

/// Keeps what went in vain for another try.
fn put_back(batches: &mut VecDeque<Batch>, batch: Batch, error: &Error) {
    let Batch { mut reports, tries } = batch;
    let tries = tries.saturating_add(1);
    if tries < TRIES_MAX {
        batches.push_front(Batch { reports, tries });
        return;
    }
    if tries == TRIES_MAX {
        let attempts = reports.len();
        tracing::warn!(%error, attempts, "attempts cannot be reported; trying again, in smaller parts");
    }
    if reports.len() > 1 {
        let rest = reports.split_off(reports.len() / 2);
        batches.extend([reports, rest].map(|reports| Batch { reports, tries: 0 }));
    } else {
        batches.push_back(Batch { reports, tries });
    }
}

/// Settles a batch, so that one report which is refused takes no others with it.
async fn settle(shop: &Shop, boss: &Elsewhere, mut reports: Vec<ReportBody>) -> Result<()> {
    match boss.broker.settle(shop.worker(), reports.clone()).await {
        Ok(answers) => {
            tell_stale(&reports, &answers);
            Ok(())
        }
        Err(error) if error.is_temporary() => Err(error),
        Err(_) if reports.len() > 1 => {
            let rest = reports.split_off(reports.len() / 2);
            Box::pin(settle(shop, boss, reports)).await?;
            Box::pin(settle(shop, boss, rest)).await
        }
        Err(error) => match reports.first().and_then(|report| instead(report, &error)) {
            Some(report) => Box::pin(settle(shop, boss, vec![report])).await,
            None => Ok(()),
        },
    }
}

/// What to report instead of an outcome that is refused: else the job would run for as long as its worker lives, and
/// nobody would see why.
fn instead(report: &ReportBody, error: &Error) -> Option<ReportBody> {
    let ReportBody { id, token, .. } = *report;
    tracing::error!(%id, %error, "the outcome of an attempt was refused");
    let message = format!("its outcome cannot be kept: {error}");
    match &report.outcome {
        OutcomeBody::Failed { class, .. } if class.is_final() && report.run.is_none() => None,
        _ => {
            let class = ErrorClass::InDoubt;
            let failed = OutcomeBody::Failed { class, message, retry_after: None };
            Some(wire::report(id, token, failed))
        }
    }
}

fn tell_stale(reports: &[ReportBody], answers: &[SettledBody]) {
    let both = reports.iter().zip(answers);
    for (report, _) in both.filter(|(_, answer)| **answer == SettledBody::Stale) {
        let (id, token) = (report.id, report.token);
        tracing::warn!(%id, %token, "a stale attempt was refused: its lease was lost");
    }
}
