//! Runs and streams: what a journal, a mailbox, an object and a stream hold goes in encrypted and comes out as it was.

use async_trait::async_trait;
use tidemill_core::stream::Chunk;
use tidemill_core::workflow::{Amend, Mail, ObjectKey};
use tidemill_core::{JobId, NewJob, Payload, WorkerId};

use super::{Encrypted, passed_on};
use crate::error::{Error, Result};
use crate::keyring::What;
use crate::nul::{self, Texts};
use crate::request::Receipt;
use crate::run::{
    Append, Beside, Debt, EntryRow, Reply, Room, RunAct, RunActView, RunAnswer, RunFilter,
    RunOrder, RunView, Runs, Seal, Signal, SignalAnswer,
};
use crate::stream::{StreamAnswer, StreamItem, StreamPage, Streams};

impl Encrypted {
    fn show_run(&self, run: &mut RunView) -> Result<()> {
        run.state.iter_mut().try_for_each(|state| self.keys.show(None, state))
    }

    fn show_payload(&self, mut payload: Option<Payload>) -> Result<Option<Payload>> {
        payload.iter_mut().try_for_each(|payload| self.keys.show(None, payload))?;
        Ok(payload)
    }
}

passed_on! {
    Runs {
        async fn append(&self, worker: WorkerId, mut items: Vec<Append>) -> Result<Vec<bool>> {
            let mut items_mut = items.iter_mut();
            items_mut.try_for_each(|item| self.keys.hide_writes(item.job, &mut item.writes))?;
            self.inner.append(worker, items).await
        }

        async fn seal(&self, worker: WorkerId, mut item: Append) -> Result<Seal> {
            self.keys.hide_writes(item.job, &mut item.writes)?;
            let mut seal = self.inner.seal(worker, item).await?;
            if let Seal::Recorded(entry) = &mut seal {
                self.keys.show_entry(entry)?;
            }
            Ok(seal)
        }

        async fn journal(&self, job: JobId) -> Result<(Vec<EntryRow>, Option<RunView>)> {
            let (mut rows, mut run) = self.inner.journal(job).await?;
            rows.iter_mut().try_for_each(|row| self.keys.show_entry(&mut row.entry))?;
            run.iter_mut().try_for_each(|run| self.show_run(run))?;
            Ok((rows, run))
        }

        async fn value(&self, job: JobId, number: u32) -> Result<Option<Beside>> {
            let mut beside = self.inner.value(job, number).await?;
            if let Some(Beside { entry, value }) = &mut beside {
                self.keys.show_entry(entry)?;
                self.keys.show(None, value)?;
            }
            Ok(beside)
        }

        async fn mail_page(&self, job: JobId, after: i64, limit: usize) -> Result<Vec<Mail>> {
            let mut mail = self.inner.mail_page(job, after, limit).await?;
            mail.iter_mut().try_for_each(|piece| self.keys.show_content(&mut piece.content))?;
            Ok(mail)
        }

        async fn signal(
            &self,
            mut start: Option<NewJob>,
            mut signals: Vec<Signal>,
            room: Room,
        ) -> Result<(Option<Receipt>, Vec<SignalAnswer>)> {
            signals.as_slice().check_nul()?;
            start.iter_mut().try_for_each(|job| self.keys.hide_job(job))?;
            for Signal { to, payload, .. } in &mut signals {
                self.keys.hide(What::Run, Some(*to), payload)?;
            }
            self.inner.signal(start, signals, room).await
        }

        async fn reply(&self, job: JobId, sent: &str) -> Result<Reply> {
            nul::check("signal", [sent])?;
            let mut reply = self.inner.reply(job, sent).await?;
            if let Reply::Given(ending) = &mut reply {
                self.keys.show_answer(ending)?;
            }
            Ok(reply)
        }

        async fn object(&self, queue: &str, key: ObjectKey<'_>) -> Result<Option<Payload>> {
            nul::check("queue", [queue])?;
            nul::check("tenant", key.tenant)?;
            nul::check("key", [key.key])?;
            self.show_payload(self.inner.object(queue, key).await?)
        }

        async fn change_run(&self, job: JobId, mut order: RunOrder) -> Result<RunAnswer> {
            order.check_nul()?;
            match &mut order.act {
                RunAct::Amend(Amend::Skip { ending, .. }) => self.keys.hide_ending(job, ending)?,
                RunAct::Amend(Amend::Edit { output, .. }) => {
                    self.keys.hide(What::Run, Some(job), output)?;
                }
                RunAct::Amend(Amend::Reset { .. })
                | RunAct::Pause
                | RunAct::Unlock
                | RunAct::Resume { .. }
                | RunAct::Cancel
                | RunAct::Fork { .. } => {}
            }
            self.inner.change_run(job, order).await
        }

        async fn run_acts(&self, job: JobId) -> Result<Vec<RunActView>> {
            let mut acts = self.inner.run_acts(job).await?;
            for RunActView { was, became, .. } in &mut acts {
                let mut endings = [was, became].into_iter().flatten();
                endings.try_for_each(|ending| self.keys.show_ending(ending))?;
            }
            Ok(acts)
        }

        async fn runs(&self, filter: &RunFilter) -> Result<Vec<RunView>> {
            filter.check_nul()?;
            let mut runs = self.inner.runs(filter).await?;
            for run in &mut runs {
                match self.show_run(run) {
                    // One that is not to be read must not hide the others.
                    Err(Error::KeyMissing { .. } | Error::CiphertextInvalid { .. }) => run.state = None,
                    shown => shown?,
                }
            }
            Ok(runs)
        }
    }
    async fn debts(&self, after: Option<Debt>, limit: usize) -> Result<Vec<Debt>>;
    async fn children_of(&self, run: JobId, named: Vec<JobId>) -> Result<Vec<JobId>>;
    async fn undo_run(&self, debt: Debt) -> Result<bool>;
    async fn pay(&self, debt: Debt, orphans: &[JobId], reason: &str) -> Result<bool>;
}

passed_on! {
    Streams {
        async fn append_stream(
            &self,
            worker: WorkerId,
            mut items: Vec<StreamItem>,
            bytes_max: u64,
        ) -> Result<Vec<StreamAnswer>> {
            for StreamItem { job, said, ephemeral, .. } in &mut items {
                let mut said = said.iter_mut().chain(ephemeral);
                said.try_for_each(|said| self.keys.hide_said(*job, said))?;
            }
            self.inner.append_stream(worker, items, bytes_max).await
        }

        async fn streams_after(&self, jobs: Vec<(JobId, u64)>) -> Result<Vec<StreamPage>> {
            let mut pages = self.inner.streams_after(jobs).await?;
            let chunks = pages.iter_mut().flat_map(|page| &mut page.chunks);
            chunks.for_each(|chunk| self.keys.show_chunk(chunk));
            Ok(pages)
        }

        fn heard(&self, mut chunk: Chunk) -> Chunk {
            self.keys.show_chunk(&mut chunk);
            chunk
        }
    }
}
