//! Which parts of what the engine writes and reads are encrypted: every payload, output, signal, state and word of a
//! stream. Names (kinds, queues, keys, tags, steps, signals) and errors are not: they are searched by.
//!
//! `hide` is on the way into a store, `show` on the way out of it.

use std::sync::Arc;

use tidemill_core::flow::{Plan, Undo};
use tidemill_core::stream::{Chunk, Progress, Said};
use tidemill_core::workflow::{ChildEnd, Content, Ending, Entry};
use tidemill_core::{Job, JobId, NewJob, Payload, Settlement};

use super::{Keyring, What};
use crate::error::{Error, Result};
use crate::request::{ClaimedJob, SettleItem};
use crate::run::{Keep, RunWrites};
use crate::view::JobView;

impl Keyring {
    /// A payload, as it is kept.
    pub fn hide(&self, what: What, of: Option<JobId>, payload: &mut Payload) -> Result<()> {
        let hidden = self.encrypt(what, of, payload.as_str())?;
        if !self.is_empty() {
            *payload = Payload::trusted(hidden);
        }
        Ok(())
    }

    /// A job, as it is kept.
    pub fn hide_job(&self, job: &mut NewJob) -> Result<()> {
        if let Some(unique) = &mut job.unique
            && let Some(hashed) = self.unique(&job.kind, &unique.key)
        {
            unique.key = hashed;
        }
        self.hide(What::Payload, Some(job.id), &mut job.payload)
    }

    /// Refuses a job that could not be kept, as [`hide_job`](Self::hide_job) would.
    pub fn check_job(&self, job: &NewJob) -> Result<()> {
        self.check(job.payload.as_str())
    }

    /// Jobs, as they are kept.
    pub fn hide_jobs(&self, jobs: &mut [NewJob]) -> Result<()> {
        jobs.iter_mut().try_for_each(|job| self.hide_job(job))
    }

    /// A flow, as it is kept.
    pub fn hide_plan(&self, plan: &mut Plan) -> Result<()> {
        plan.jobs.iter_mut().try_for_each(|planned| self.hide_job(&mut planned.job))?;
        let undos = plan.steps.iter_mut().filter_map(|step| step.undo.as_deref_mut());
        undos.into_iter().try_for_each(|undo| self.hide_undo(undo))
    }

    /// An undo stands in a flow or a journal until its job is made.
    fn hide_undo(&self, undo: &mut Undo) -> Result<()> {
        self.hide(What::Payload, None, &mut undo.payload)
    }

    /// An entry of a journal, as JSON.
    pub fn hide_entry(&self, job: JobId, text: &str) -> Result<String> {
        if self.is_empty() {
            return self.encrypt(What::Run, None, text);
        }
        let hide = |payload: &mut Payload| self.hide(What::Run, Some(job), payload);
        let mut entry: Entry = serde_json::from_str(text).map_err(|e| unreadable(&e))?;
        match &mut entry {
            Entry::Began(began) => {
                began.undo.iter_mut().try_for_each(|undo| self.hide_undo(undo))?;
            }
            Entry::Ended { ending, .. } => self.hide_ending(job, ending)?,
            Entry::Recorded { output: value, .. }
            | Entry::Signalled { payload: value, .. }
            | Entry::Noted { value, .. } => hide(value)?,
            Entry::Joined { ends, .. } => {
                ends.iter_mut().filter_map(|end| end.output.as_mut()).try_for_each(hide)?;
            }
            Entry::Failed { .. }
            | Entry::Sealed { .. }
            | Entry::Died { .. }
            | Entry::Slept { .. }
            | Entry::Woke { .. }
            | Entry::Passed { .. }
            | Entry::Answered { .. }
            | Entry::Started { .. }
            | Entry::Pivot { .. } => {}
        }
        serde_json::to_string(&entry).map_err(|e| unreadable(&e))
    }

    /// What a step ended with.
    pub(crate) fn hide_ending(&self, job: JobId, ending: &mut Ending) -> Result<()> {
        match ending {
            Ending::Ok(value) => self.hide(What::Run, Some(job), value),
            Ending::Aside { .. } | Ending::Err { .. } => Ok(()),
        }
    }

    /// What a run wants written.
    pub(crate) fn hide_writes(&self, job: JobId, writes: &mut RunWrites) -> Result<()> {
        let hide = |payload: &mut Payload| self.hide(What::Run, Some(job), payload);
        for (_, entry) in &mut writes.entries {
            *entry = self.hide_entry(job, entry)?;
        }
        writes.values.iter_mut().try_for_each(|(_, value)| hide(value))?;
        writes.state.iter_mut().try_for_each(hide)?;
        self.hide_jobs(&mut writes.children)?;
        for (_, answer) in &mut writes.answers {
            let mut ending: Ending = serde_json::from_str(answer).map_err(|e| unreadable(&e))?;
            self.hide_ending(job, &mut ending)?;
            *answer = serde_json::to_string(&ending).map_err(|e| unreadable(&e))?;
        }
        if let Some(renewal) = &mut writes.renewal {
            self.hide(What::Payload, Some(job), &mut renewal.payload)?;
        }
        match &mut writes.object {
            // Of whichever run comes next.
            Some(Keep::This(state)) => self.hide(What::Run, None, state),
            Some(Keep::Nothing) | None => Ok(()),
        }
    }

    /// An attempt that is settled.
    pub(crate) fn hide_settle(&self, item: &mut SettleItem) -> Result<()> {
        let id = item.job.id;
        match &mut item.settlement {
            Settlement::Done { output, follow_ups } => {
                self.hide(What::Output, Some(id), output)?;
                self.hide_jobs(follow_ups)?;
            }
            Settlement::Again { .. }
            | Settlement::Wait(_)
            | Settlement::Cancelled { .. }
            | Settlement::Dead { .. } => {}
        }
        item.run.iter_mut().try_for_each(|writes| self.hide_writes(id, writes))
    }

    /// What a job says while it runs.
    pub(crate) fn hide_said(&self, job: JobId, said: &mut Said) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        words(said).try_for_each(|word| {
            let text = serde_json::to_string(word).map_err(|e| unreadable(&e))?;
            let hidden = self.encrypt(What::Stream, Some(job), &text)?;
            hidden.trim_matches('"').clone_into(word);
            Ok(())
        })
    }

    /// A payload, as it was; `own`: of this job, and not one that was moved there from another.
    pub(crate) fn show(&self, own: Option<(What, JobId)>, payload: &mut Payload) -> Result<()> {
        if let std::borrow::Cow::Owned(shown) = self.decrypt(payload.as_str(), own)? {
            *payload = Payload::trusted(shown);
        }
        Ok(())
    }

    /// A job, as it was. The payload of one that has a unique key, is of a flow or a fork may be another's by right.
    pub(crate) fn show_job(&self, job: &mut Job) -> Result<()> {
        let is_own = job.unique_key.is_none()
            && job.options.flow.is_none()
            && job.options.origins.is_empty();
        self.show(is_own.then_some((What::Payload, job.id)), &mut job.payload)
    }

    pub(crate) fn show_view(&self, view: &mut JobView) -> Result<()> {
        self.show_job(&mut view.job)?;
        self.show_output(view.job.id, &mut view.output)?;
        view.progress.iter_mut().try_for_each(|progress| self.show_progress(progress))
    }

    pub(crate) fn show_output(&self, job: JobId, output: &mut Option<Payload>) -> Result<()> {
        output.iter_mut().try_for_each(|output| self.show(Some((What::Output, job)), output))
    }

    pub(crate) fn show_claimed(&self, claimed: &mut ClaimedJob) -> Result<()> {
        if super::tokens(claimed.job.payload.as_str()).next().is_some() {
            self.show_job(Arc::make_mut(&mut claimed.job))?;
        }
        Ok(())
    }

    pub(crate) fn show_ending(&self, ending: &mut Ending) -> Result<()> {
        match ending {
            Ending::Ok(value) => self.show(None, value),
            Ending::Aside { .. } | Ending::Err { .. } => Ok(()),
        }
    }

    pub(crate) fn show_content(&self, content: &mut Content) -> Result<()> {
        match content {
            Content::Signal { payload, .. }
            | Content::Child(ChildEnd { output: Some(payload), .. }) => self.show(None, payload),
            Content::Child(ChildEnd { output: None, .. }) | Content::Taken => Ok(()),
        }
    }

    /// A piece of a stream, as it was.
    pub(crate) fn show_chunk(&self, chunk: &mut Chunk) -> Result<()> {
        words(&mut chunk.said).try_for_each(|word| self.show_word(word))
    }

    fn show_progress(&self, progress: &mut Progress) -> Result<()> {
        words_of(progress).try_for_each(|word| self.show_word(word))
    }

    fn show_word(&self, word: &mut String) -> Result<()> {
        let text = format!("\"{word}\"");
        if !text.starts_with(super::MARK) {
            return Ok(());
        }
        if let std::borrow::Cow::Owned(shown) = self.decrypt(&text, None)? {
            *word = serde_json::from_str(&shown).map_err(|e| unreadable(&e))?;
        }
        Ok(())
    }
}

fn words(said: &mut Said) -> Box<dyn Iterator<Item = &mut String> + '_> {
    match said {
        Said::Progress(progress) => Box::new(words_of(progress)),
        Said::Log { message: word }
        | Said::Text { text: word }
        | Said::Parked { why: word, .. } => Box::new(std::iter::once(word)),
        Said::Paused | Said::Resumed => Box::new(std::iter::empty()),
    }
}

fn words_of(progress: &mut Progress) -> impl Iterator<Item = &mut String> {
    let Progress { status, tool, message, step: _, total: _ } = progress;
    [status, tool, message].into_iter().flatten()
}

fn unreadable(error: &serde_json::Error) -> Error {
    Error::Database { reason: format!("what is to be encrypted cannot be read: {error}") }
}
