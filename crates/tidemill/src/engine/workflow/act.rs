//! What operators do with runs. Every act is kept: who did it, why and when.

use serde::Serialize;
use tidemill_core::job::outcome::clean;
use tidemill_core::workflow::{
    Amend, ENTRY_BYTES_MAX, Ending, JOURNAL_ENTRIES_LAST, JOURNAL_ENTRIES_MAX,
};
use tidemill_core::{Error as Invalid, ErrorClass, JobId, Limits, Payload};
use tidemill_store::CancelAnswer;
use tidemill_store::run::{RunAct, RunActView, RunAnswer, RunOrder};

use crate::engine::Tidemill;
use crate::error::{Error, Result};

/// What becomes of a run that is forked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForkAs {
    /// It stays as it is, and the fork runs beside it. The default.
    #[default]
    Beside,
    /// It is called off in the same transaction, unless it has finished: what it did from the step on is undone.
    /// Refused if it would undo what its fork builds on.
    Instead,
}

impl Tidemill {
    /// Lets a run go no further than where it waits next, until it is resumed.
    pub async fn pause_run(&self, id: JobId, by: &str, why: &str) -> Result<()> {
        self.act_on_run(id, RunAct::Pause, by, why).await.map(drop)
    }

    /// Lets a run go on that was paused or parked.
    pub async fn resume_run(&self, id: JobId, by: &str, why: &str) -> Result<()> {
        let act = RunAct::Resume { journal_entries_max: None };
        self.act_on_run(id, act, by, why).await.map(drop)
    }

    /// The same for a run whose journal is full (`parked_journal_full`): from now on it may have so many entries, from
    /// 100,000 up to 1,000,000. All of them are read at every attempt; let the code end scopes or continue anew.
    pub async fn resume_run_with_journal(
        &self,
        id: JobId,
        journal_entries_max: u32,
        by: &str,
        why: &str,
    ) -> Result<()> {
        if !(JOURNAL_ENTRIES_MAX..=JOURNAL_ENTRIES_LAST).contains(&journal_entries_max) {
            return Err(Invalid::JournalLimitInvalid { asked: journal_entries_max }.into());
        }
        let act = RunAct::Resume { journal_entries_max: Some(journal_entries_max) };
        self.act_on_run(id, act, by, why).await.map(drop)
    }

    /// Forgets what a run did from this step on, and lets it go on from there. Only while it waits, or is dead with
    /// nothing undone: pause it first.
    pub async fn reset_run(&self, id: JobId, step: &str, by: &str, why: &str) -> Result<()> {
        let amend = Amend::Reset { to: step.to_owned() };
        self.act_on_run(id, RunAct::Amend(amend), by, why).await.map(drop)
    }

    /// Gives a step that keeps failing, or of which nobody knows the end, its outcome: it returned this. A sleep is
    /// over. A signal that was taken, and that the code cannot read, is passed over: the next of its name is taken
    /// instead, and everything after it is forgotten. Only while the run waits or is parked, or is dead with nothing
    /// undone; it goes on then.
    pub async fn skip_step<T: Serialize + ?Sized>(
        &self,
        id: JobId,
        step: &str,
        output: &T,
        by: &str,
        why: &str,
    ) -> Result<()> {
        let amend = Amend::Skip { step: step.to_owned(), ending: Ending::Ok(entry(output)?) };
        self.act_on_run(id, RunAct::Amend(amend), by, why).await.map(drop)
    }

    /// The same for a step that is to have failed for good: the code gets this as its error.
    pub async fn fail_step(
        &self,
        id: JobId,
        step: &str,
        message: &str,
        by: &str,
        why: &str,
    ) -> Result<()> {
        let (class, message) = (ErrorClass::Permanent, message.to_owned());
        let amend = Amend::Skip { step: step.to_owned(), ending: Ending::Err { class, message } };
        self.act_on_run(id, RunAct::Amend(amend), by, why).await.map(drop)
    }

    /// Corrects what a step returned or a signal carried, or lets a step that failed for good have returned it.
    /// Everything after it is
    /// forgotten, as by a reset. Only while the run waits or is parked, or is dead with nothing undone; it goes on
    /// then.
    pub async fn edit_step<T: Serialize + ?Sized>(
        &self,
        id: JobId,
        step: &str,
        output: &T,
        by: &str,
        why: &str,
    ) -> Result<()> {
        let amend = Amend::Edit { step: step.to_owned(), output: entry(output)? };
        self.act_on_run(id, RunAct::Amend(amend), by, why).await.map(drop)
    }

    /// Lets a new run go on from this step of a run, and answers its id. The run may be in any state, also finished; it
    /// stays as it is. The new one is a job of the same kind, payload, queue, tenant and key, with the journal up to
    /// there; what was still open then it does anew. See [`ForkAs`] for what becomes of the run itself.
    ///
    /// ```
    /// # use tidemill::{ForkAs, JobId, Tidemill};
    /// # async fn again(mill: Tidemill, order: JobId) -> tidemill::Result<JobId> {
    /// mill.fork_run(order, "charge", ForkAs::Beside, "ann", "the price was wrong").await
    /// # }
    /// ```
    pub async fn fork_run(
        &self,
        id: JobId,
        step: &str,
        fork: ForkAs,
        by: &str,
        why: &str,
    ) -> Result<JobId> {
        let (to, into, instead) = (step.to_owned(), JobId::new(), fork == ForkAs::Instead);
        self.act_on_run(id, RunAct::Fork { to, into, instead }, by, why).await?;
        Ok(into)
    }

    /// Calls a run off: what it did is undone. As [`cancel`](Self::cancel), and it is kept who did so.
    pub async fn cancel_run(&self, id: JobId, by: &str, why: &str) -> Result<CancelAnswer> {
        Ok(match self.act_on_run(id, RunAct::Cancel, by, why).await? {
            RunAnswer::Told => CancelAnswer::Requested,
            _ => CancelAnswer::Cancelled,
        })
    }

    /// What was done with a run from outside, in order.
    pub async fn run_acts(&self, id: JobId) -> Result<Vec<RunActView>> {
        Ok(self.0.store.run_acts(id).await?)
    }

    pub(super) async fn act_on_run(
        &self,
        id: JobId,
        act: RunAct,
        by: &str,
        why: &str,
    ) -> Result<RunAnswer> {
        let order = RunOrder { act, by: clean(by.to_owned()), why: clean(why.to_owned()) };
        match self.0.store.change_run(id, order).await? {
            answer @ (RunAnswer::Acted | RunAnswer::Told) => Ok(answer),
            RunAnswer::NotNow => Err(Error::RunNotNow { id, why: self.why_not_now(id).await? }),
            RunAnswer::Refused(why) => Err(Error::RunNotNow { id, why }),
            RunAnswer::Unknown => Err(Error::RunUnknown { id }),
        }
    }

    async fn why_not_now(&self, id: JobId) -> Result<String> {
        let state = self.job(id).await?.map(|view| view.state);
        Ok(match state.filter(|state| state.is_final()) {
            Some(state) => format!("it has finished: it is {}", state.word()),
            None => "it runs; pause it first, act when it waits, and resume it".to_owned(),
        })
    }
}

/// A value as an entry keeps it.
fn entry<T: Serialize + ?Sized>(value: &T) -> Result<Payload> {
    let limits = Limits { payload_bytes_max: ENTRY_BYTES_MAX, ..Limits::default() };
    Ok(Payload::of(value, &limits)?)
}
