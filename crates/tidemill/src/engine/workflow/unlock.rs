//! Lets runs go on that are parked for want of a key, when a worker comes whose process has it.
//!
//! It looks once for every worker that starts, beside its work: there may be many runs. A run that one without the key
//! claims then is parked again until the next one comes: no two processes hand it to and fro for ever.

use tidemill_core::JobId;
use tidemill_core::workflow::ParkCode;
use tidemill_store::run::{RunAct, RunFilter};

use crate::engine::Tidemill;
use crate::error::Result;

const BY: &str = "tidemill";
const WHY: &str = "a worker has come that has its key";
const PAGE_RUNS: usize = 1000;

/// Resumes what a worker of these kinds can read; none means all kinds. Does not wait for that.
pub(crate) fn unlock(mill: &Tidemill, kinds: Vec<String>) {
    if mill.0.keys.is_empty() {
        return;
    }
    let mill = mill.clone();
    tokio::spawn(async move {
        let all = kinds.is_empty().then_some(None);
        for kind in kinds.into_iter().map(Some).chain(all) {
            if let Err(error) = unlock_kind(&mill, kind).await {
                tracing::warn!(%error, "runs that are parked for want of a key could not be looked at");
            }
        }
    });
}

async fn unlock_kind(mill: &Tidemill, kind: Option<String>) -> Result<()> {
    let (parked, unfinished, limit) = (true, true, PAGE_RUNS);
    let mut filter = RunFilter { kind, parked, unfinished, before: None, limit };
    loop {
        let runs = mill.runs(&filter).await?;
        let lacks = |code: ParkCode| code == ParkCode::KeyMissing;
        // One that is paused too goes on when somebody resumes it.
        let parked = runs.iter().filter(|run| !run.paused);
        for run in parked.filter(|run| run.parked.as_ref().is_some_and(|p| lacks(p.code))) {
            if is_readable(mill, run.job).await {
                // Somebody else may have resumed it since, or paused it, or called it off.
                if let Err(error) = mill.act_on_run(run.job, RunAct::Unlock, BY, WHY).await {
                    tracing::debug!(id = %run.job, %error, "a run was not resumed");
                }
            }
        }
        filter.before = runs.last().map(|run| run.job);
        if runs.len() < PAGE_RUNS {
            return Ok(());
        }
    }
}

async fn is_readable(mill: &Tidemill, id: JobId) -> bool {
    let store = &mill.0.store;
    store.journal(id).await.is_ok() && store.mail(id, 0).await.is_ok()
}
