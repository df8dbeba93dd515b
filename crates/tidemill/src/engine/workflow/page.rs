//! Pages of runs, each with its kind and where its job stands, and of the mail of one; and where the next page begins.

use serde::{Deserialize, Serialize};
use tidemill_core::workflow::Mail;
use tidemill_core::{JobId, State};
use tidemill_store::run::{PAGE_MAIL_MAX, RunFilter, RunView};

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

/// A page of the mail of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MailPage {
    /// Signals, updates and ends of children, in the order in which they came; also such as the run has taken.
    pub mail: Vec<Mail>,
    /// What to ask for as `after` for what follows; `None`: nothing follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}

impl Tidemill {
    /// A page of what has come for a run, after a number; 0: from the first on. A page has at most 1,000 pieces.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidemill::Result<()> {
    /// # let mill = tidemill::Tidemill::open("sqlite::memory:").await?;
    /// use tidemill::{Enqueue, Signal};
    /// let run = mill.enqueue(Enqueue::raw("order", "1")).await?.id();
    /// for click in 1..=3 {
    ///     mill.signal(run, Signal::new("click", &click)).await?;
    /// }
    /// let first = mill.mail_page(run, 0, 2).await?;
    /// assert_eq!((first.mail.len(), first.next), (2, Some(2)));
    /// let rest = mill.mail_page(run, 2, 2).await?;
    /// assert_eq!((rest.mail.len(), rest.next), (1, None));
    /// # mill.close().await; Ok(()) }
    /// ```
    pub async fn mail_page(&self, id: JobId, after: i64, limit: usize) -> Result<MailPage> {
        let limit = limit.clamp(1, PAGE_MAIL_MAX);
        // One more says whether anything follows.
        let mut mail = self.0.store.mail_page(id, after, limit + 1).await?;
        let has_more = mail.len() > limit;
        mail.truncate(limit);
        let next = mail.last().filter(|_| has_more).map(|piece| piece.number);
        Ok(MailPage { mail, next })
    }

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
