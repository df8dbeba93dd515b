//! Pages of runs, each with its kind and where its job stands, and where the next page begins.

use serde::Serialize;
use tidemill_core::{JobId, State};
use tidemill_store::run::{RunFilter, RunView};

use crate::engine::Tidemill;
use crate::error::Result;

/// A run, and where its job stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunHead {
    /// It.
    #[serde(flatten)]
    pub run: RunView,
    /// The kind of its job.
    pub kind: String,
    /// Where that stands.
    pub job_state: State,
}

/// A page of runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RunPage {
    /// Those that match, newest first.
    pub runs: Vec<RunHead>,
    /// What to ask for as `before` for what follows, also where this page is not full; `None`: nothing follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<JobId>,
}

impl Tidemill {
    /// A page of runs, newest first, and where the next one begins. Of a run that was forgotten meanwhile nothing is
    /// told.
    pub async fn runs_page(&self, filter: &RunFilter) -> Result<RunPage> {
        let found = self.runs(filter).await?;
        let next = found.last().filter(|_| found.len() >= filter.page_rows()).map(|run| run.job);
        let mut runs = Vec::with_capacity(found.len());
        for run in found {
            let view = self.job(run.job).await?;
            runs.extend(view.map(|view| RunHead {
                run,
                kind: view.job.kind,
                job_state: view.state,
            }));
        }
        Ok(RunPage { runs, next })
    }
}
