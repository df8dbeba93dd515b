//! The loop that reports to a broker how attempts ended: what ended while a report was on its way goes with the next.

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
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Runs until everything that can still come was reported.
pub(crate) async fn report_all(
    shop: Arc<Shop>,
    boss: Arc<Elsewhere>,
    mut ended: UnboundedReceiver<ReportBody>,
) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while ended.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let reports = std::mem::take(&mut batch);
        let tokens: Vec<_> = reports.iter().map(|report| report.token).collect();
        report(&shop, &boss, reports).await;
        for token in &tokens {
            boss.held.ended(*token);
        }
        shop.settled(tokens.len());
    }
}

/// Reports one batch, for as long as it takes: the answer of a broker that is away is not `no`.
async fn report(shop: &Shop, boss: &Elsewhere, reports: Vec<ReportBody>) {
    let mut pause = Duration::from_millis(20);
    while let Err(error) = settle(shop, boss, reports.clone()).await {
        tracing::debug!(%error, "attempts could not be reported; trying again until it works");
        tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Settles a batch, so that one report which is refused takes no others with it.
async fn settle(shop: &Shop, boss: &Elsewhere, reports: Vec<ReportBody>) -> Result<()> {
    match boss.broker.settle(shop.worker(), reports.clone()).await {
        Ok(answers) => {
            tell_stale(&reports, &answers);
            Ok(())
        }
        Err(error) if error.is_temporary() => Err(error),
        Err(_) if reports.len() > 1 => {
            for report in reports {
                Box::pin(settle(shop, boss, vec![report])).await?;
            }
            Ok(())
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
        OutcomeBody::Failed { class: ErrorClass::Permanent, .. } if report.run.is_none() => None,
        _ => {
            let class = ErrorClass::Permanent;
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
