//! Which parts of what the engine writes and reads are encrypted: every payload, output, signal, state and word of a
//! stream. Names (kinds, queues, keys, tags, steps, signals) and errors are not: they are searched by.
//!
//! `hide` is on the way into a store, `show` on the way out of it.

use std::borrow::Cow;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidemill_core::flow::{Plan, Undo};
use tidemill_core::stream::{Chunk, Progress, Said};
use tidemill_core::webhook::QUEUE;
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
        if self.is_empty() && self.check(text).is_ok() {
            return Ok(text.to_owned());
        }
        let mut entry: Entry = serde_json::from_str(text).map_err(|e| unreadable(&e))?;
        for (payload, what) in payloads(&mut entry) {
            // An undo's is moved to another job.
            self.hide(what, (what == What::Run).then_some(job), payload)?;
        }
        serde_json::to_string(&entry).map_err(|e| unreadable(&e))
    }

    /// An entry of a journal, as it was. What only looks encrypted in its names and messages is left as it is.
    pub(crate) fn show_entry(&self, text: &mut String) -> Result<()> {
        self.show_text(text, |entry: &mut Entry| {
            payloads(entry).into_iter().try_for_each(|(payload, _)| self.show(None, payload))
        })
    }

    /// The answer to a message, as it was.
    pub(crate) fn show_answer(&self, text: &mut String) -> Result<()> {
        self.show_text(text, |ending: &mut Ending| self.show_ending(ending))
    }

    /// What is encrypted in a text is decrypted wherever it stands; if something there is not what it looks like, only
    /// where it can stand.
    fn show_text<T: Serialize + DeserializeOwned>(
        &self,
        text: &mut String,
        show: impl Fn(&mut T) -> Result<()>,
    ) -> Result<()> {
        match self.decrypt(text, None) {
            Ok(Cow::Borrowed(_)) => {}
            Ok(Cow::Owned(shown)) => *text = shown,
            Err(_) => {
                let mut read: T = serde_json::from_str(text).map_err(|e| unreadable(&e))?;
                show(&mut read)?;
                *text = serde_json::to_string(&read).map_err(|e| unreadable(&e))?;
            }
        }
        Ok(())
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
        if let Cow::Owned(shown) = self.decrypt(payload.as_str(), own)? {
            *payload = Payload::trusted(shown);
        }
        Ok(())
    }

    /// A job, as it was. The payload of one that has a unique key, is of a flow or a fork may be another's by right. A
    /// delivery was put together by the store, of an output that may be encrypted and of texts that are not.
    pub(crate) fn show_job(&self, job: &mut Job) -> Result<()> {
        if job.queue == QUEUE
            && let Some((before, output, after)) = output_of(job.payload.as_str())
        {
            if let Cow::Owned(shown) = self.decrypt(output, None)? {
                job.payload = Payload::trusted([before, &shown, after].concat());
            }
            return Ok(());
        }
        let is_own = job.unique_key.is_none()
            && job.options.flow.is_none()
            && job.options.origins.is_empty();
        self.show(is_own.then_some((What::Payload, job.id)), &mut job.payload)
    }

    pub(crate) fn show_view(&self, view: &mut JobView) -> Result<()> {
        self.show_job(&mut view.job)?;
        view.progress.iter_mut().for_each(|progress| self.show_progress(progress));
        self.show_output(view.job.id, &mut view.output)
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

    /// A piece of a stream, as it was. Nobody is kept from the rest of it by a word that cannot be read.
    pub(crate) fn show_chunk(&self, chunk: &mut Chunk) {
        words(&mut chunk.said).for_each(|word| self.show_word(word));
    }

    fn show_progress(&self, progress: &mut Progress) {
        words_of(progress).for_each(|word| self.show_word(word));
    }

    fn show_word(&self, word: &mut String) {
        let text = format!("\"{word}\"");
        if !text.starts_with(super::MARK) {
            return;
        }
        let shown = match self.decrypt(&text, None) {
            Ok(Cow::Borrowed(_)) => return,
            Ok(Cow::Owned(shown)) => serde_json::from_str(&shown).map_err(|e| unreadable(&e)),
            Err(error) => Err(error),
        };
        *word = shown.unwrap_or_else(|error| format!("unreadable: {error}"));
    }
}

/// Whatever an entry carries, and what that is.
fn payloads(entry: &mut Entry) -> Vec<(&mut Payload, What)> {
    let own = |payload| (payload, What::Run);
    match entry {
        Entry::Began(began) => {
            began.undo.iter_mut().map(|undo| (&mut undo.payload, What::Payload)).collect()
        }
        Entry::Ended { ending: Ending::Ok(value), .. }
        | Entry::Recorded { output: value, .. }
        | Entry::Signalled { payload: value, .. }
        | Entry::Noted { value, .. } => vec![own(value)],
        Entry::Joined { ends, .. } => {
            ends.iter_mut().filter_map(|end| end.output.as_mut()).map(own).collect()
        }
        Entry::Ended { ending: Ending::Aside { .. } | Ending::Err { .. }, .. }
        | Entry::Failed { .. }
        | Entry::Sealed { .. }
        | Entry::Died { .. }
        | Entry::Slept { .. }
        | Entry::Woke { .. }
        | Entry::Passed { .. }
        | Entry::Answered { .. }
        | Entry::Started { .. }
        | Entry::Pivot { .. } => Vec::new(),
    }
}

/// The output that a delivery tells of, and what stands before and behind it.
fn output_of(payload: &str) -> Option<(&str, &str, &str)> {
    #[derive(Deserialize)]
    struct Delivery<'t> {
        #[serde(borrow)]
        data: Data<'t>,
    }
    #[derive(Deserialize)]
    struct Data<'t> {
        #[serde(borrow, default)]
        output: Option<&'t RawValue>,
    }
    let delivery: Delivery<'_> = serde_json::from_str(payload).ok()?;
    // One that tells of nothing encrypted: an empty part of it.
    let Some(output) = delivery.data.output else { return Some((payload, "", "")) };
    let output = output.get();
    let start = (output.as_ptr() as usize).checked_sub(payload.as_ptr() as usize)?;
    Some((payload.get(..start)?, output, payload.get(start + output.len()..)?))
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
