//! A store that encrypts: around another one, it encrypts what goes in and decrypts what comes out.
//!
//! It stands around every store that is opened, also without keys: then nothing is encrypted, but what others have
//! encrypted is still told from what is not, so that no handler is given ciphertext. Each method of the store is
//! written down here, as passed on or not, so that a new one cannot be forgotten. Here is also where the character
//! U+0000 is refused in what is asked for (`nul.rs`). What the store below moves by itself (an output into the mail of
//! a parent, a payload into a fork) it moves encrypted.
//!
//! A job that cannot be decrypted is not run, not lost, and spends no attempt: it is put off for a minute, and says
//! why. Somebody may bring the key.

mod flows;
mod rest;
mod runs;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tidemill_core::dead::{DeadFilter, DeadPlace, RedriveRule, Triage};
use tidemill_core::gate::GateView;
use tidemill_core::job::edit::Edit;
use tidemill_core::retention::Finished;
use tidemill_core::why::LaneView;
use tidemill_core::{
    By, ErrorClass, Failure, JobId, NewJob, Payload, RuleBook, Settlement, Token, WorkerId,
};

use crate::error::{Error, Result};
use crate::keyring::{Keyring, What};
use crate::nul::{self, Texts};
use crate::request::{
    Beat, CancelAnswer, Claim, ClaimRequest, ClaimedJob, EditAnswer, Expired, GateEnd, Receipt,
    RescueRules, Rescued, SettleItem, Settled, WorkerCard,
};
use crate::schedule::{FireAnswer, FireRequest, FireView, ScheduleChange, ScheduleView, Which};
use crate::store::Store;
use crate::view::{
    AttemptView, Crowd, DeadGroup, DeadLetter, DepthView, End, Finding, JobFilter, JobPage,
    JobPlace, JobView, Lacking, Lacks, LineView, QueueRules, QueueView, Unfinished, WorkerView,
};
use crate::wake::{Hint, Wake};

/// How long a job is put off that cannot be decrypted.
const PUT_OFF: Duration = Duration::from_mins(1);

/// A store, and the keys for what is in it.
#[derive(Debug)]
pub(crate) struct Encrypted {
    inner: Arc<dyn Store>,
    keys: Keyring,
}

impl Encrypted {
    pub(crate) fn new(inner: Arc<dyn Store>, keys: Keyring) -> Self {
        Self { inner, keys }
    }

    /// Puts jobs off that nobody can run here.
    async fn put_off(
        &self,
        worker: WorkerId,
        (token, now): (Token, Timestamp),
        jobs: Vec<(ClaimedJob, Error)>,
    ) -> Result<()> {
        let item = |(claimed, error): (ClaimedJob, Error)| {
            let ClaimedJob { job, attempt, lost, gates, .. } = claimed;
            tracing::error!(job = %job.id, code = error.code(), %error, "a job was put off");
            let failure = Failure::new(&job.kind, ErrorClass::Transient, error.to_string());
            let spent = attempt.saturating_sub(1);
            let settlement = Settlement::Again { delay: PUT_OFF, spent, failure: Some(failure) };
            let gates = gates.into_iter().map(GateEnd::new).collect();
            let (started_at, decided, run) = (now, false, None);
            SettleItem { job, token, attempt, lost, started_at, gates, settlement, decided, run }
        };
        self.inner.settle(worker, jobs.into_iter().map(item).collect()).await.map(drop)
    }

    fn check_search(&self, filter: &DeadFilter) -> Result<()> {
        let is_inside = filter.payload_field.is_some() && !self.keys.is_empty();
        if is_inside { Err(Error::SearchEncrypted) } else { filter.check_nul() }
    }

    /// A job of a list: one that cannot be decrypted does not keep the others from being seen.
    fn show_listed(&self, view: &mut JobView) {
        let Err(error) = self.keys.show_view(view) else { return };
        let shown = serde_json::json!({ "unreadable": error.to_string() }).to_string();
        view.job.payload = Payload::trusted(shown);
        (view.output, view.progress) = (None, None);
    }
}

/// Implements a trait: these methods are passed on as they are, those in braces are its own.
macro_rules! passed_on {
    (
        $trait:ident { $($own:tt)* }
        $(async fn $name:ident(&self $(, $arg:ident: $type:ty)*) $(-> $answer:ty)?;)*
    ) => {
        #[async_trait]
        impl $trait for Encrypted {
            $($own)*
            $(async fn $name(&self $(, $arg: $type)*) $(-> $answer)? {
                self.inner.$name($($arg),*).await
            })*
        }
    };
}
use passed_on;

passed_on! {
    Store {
        fn backend(&self) -> &'static str {
            self.inner.backend()
        }

        fn wake(&self) -> &Wake {
            self.inner.wake()
        }

        fn hint(&self, hint: Hint) {
            self.inner.hint(hint);
        }

        async fn enqueue(&self, mut jobs: Vec<NewJob>) -> Result<Vec<Receipt>> {
            self.keys.hide_jobs(&mut jobs)?;
            self.inner.enqueue(jobs).await
        }

        async fn claim(&self, ask: ClaimRequest) -> Result<Claim> {
            let worker = ask.worker;
            let mut claim = self.inner.claim(ask).await?;
            let mut closed = Vec::new();
            let shown = std::mem::take(&mut claim.jobs).into_iter().filter_map(|mut claimed| {
                match self.keys.show_claimed(&mut claimed) {
                    Ok(()) => Some(claimed),
                    Err(error) => {
                        closed.push((claimed, error));
                        None
                    }
                }
            });
            claim.jobs = shown.collect();
            if let (Some(token), false) = (claim.token, closed.is_empty()) {
                self.put_off(worker, (token, claim.now), closed).await?;
                claim.token = claim.token.filter(|_| !claim.jobs.is_empty());
            }
            Ok(claim)
        }

        async fn settle(&self, worker: WorkerId, mut items: Vec<SettleItem>) -> Result<Vec<Settled>> {
            items.iter_mut().try_for_each(|item| self.keys.hide_settle(item))?;
            self.inner.settle(worker, items).await
        }

        async fn edit(&self, id: JobId, edit: &Edit) -> Result<EditAnswer> {
            let mut edit = edit.clone();
            if let Some(payload) = edit.payload_mut() {
                self.keys.hide(What::Payload, Some(id), payload)?;
            }
            // Who asks has seen the job decrypted, and the store compares it with what it keeps.
            if let Some(of) = &edit.of
                && let Some(mut view) = self.inner.job(id).await?
            {
                let kept = view.job.print();
                self.keys.show_job(&mut view.job)?;
                if *of == view.job.print() {
                    edit.of = Some(kept);
                }
            }
            self.inner.edit(id, &edit).await
        }

        async fn job(&self, id: JobId) -> Result<Option<JobView>> {
            let mut view = self.inner.job(id).await?;
            view.iter_mut().try_for_each(|view| self.keys.show_view(view))?;
            Ok(view)
        }

        async fn jobs_of(&self, ids: Vec<JobId>) -> Result<Vec<JobView>> {
            let mut views = self.inner.jobs_of(ids).await?;
            views.retain_mut(|view| self.keys.show_view(view).is_ok());
            Ok(views)
        }

        async fn ends_of(&self, ids: Vec<JobId>) -> Result<HashMap<JobId, Option<End>>> {
            let mut ends = self.inner.ends_of(ids).await?;
            ends.retain(|id, end| {
                let output = end.as_mut().map(|end| &mut end.output);
                output.is_none_or(|output| self.keys.show_output(*id, output).is_ok())
            });
            Ok(ends)
        }

        async fn jobs(&self, filter: &JobFilter) -> Result<JobPage> {
            filter.check_nul()?;
            let mut page = self.inner.jobs(filter).await?;
            page.jobs.iter_mut().for_each(|view| self.show_listed(view));
            Ok(page)
        }

        async fn dead(
            &self,
            filter: &DeadFilter,
            before: Option<DeadPlace>,
            limit: usize,
        ) -> Result<Vec<DeadLetter>> {
            self.check_search(filter)?;
            self.inner.dead(filter, before, limit).await
        }

        async fn dead_groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>> {
            self.check_search(filter)?;
            self.inner.dead_groups(filter).await
        }

        async fn dead_replay(
            &self,
            ids: &[JobId],
            by: By<'_>,
            mut payload: Option<Payload>,
        ) -> Result<Vec<JobId>> {
            nul::check("name", [by.who])?;
            nul::check("reason", by.why)?;
            // One payload for several jobs cannot be bound to one of them.
            let of = if let [id] = ids { Some(*id) } else { None };
            payload.iter_mut().try_for_each(|payload| self.keys.hide(What::Payload, of, payload))?;
            self.inner.dead_replay(ids, by, payload).await
        }

        async fn schedules(&self, which: &Which) -> Result<Vec<ScheduleView>> {
            which.check_nul()?;
            let mut views = self.inner.schedules(which).await?;
            let payloads = views.iter_mut().map(|view| &mut view.definition.job.payload);
            payloads.into_iter().try_for_each(|payload| self.keys.show(None, payload))?;
            Ok(views)
        }

        async fn change_schedules(&self, mut changes: Vec<ScheduleChange>) -> Result<bool> {
            for change in &mut changes {
                if let ScheduleChange::Put { definition, .. } = change {
                    self.keys.hide(What::Schedule, None, &mut definition.job.payload)?;
                }
            }
            self.inner.change_schedules(changes).await
        }

        async fn fire(&self, mut ask: FireRequest) -> Result<FireAnswer> {
            ask.slots.iter_mut().try_for_each(|slot| self.keys.hide_jobs(&mut slot.jobs))?;
            self.inner.fire(ask).await
        }

        async fn cancel(&self, ids: Vec<JobId>, reason: &str) -> Result<Vec<CancelAnswer>> {
            nul::check("reason", [reason])?;
            self.inner.cancel(ids, reason).await
        }

        async fn set_queue(&self, name: &str, rules: Option<QueueRules>) -> Result<bool> {
            nul::check("queue", [name])?;
            self.inner.set_queue(name, rules).await
        }

        async fn replace_queue(&self, name: &str, was: u64, rules: Option<QueueRules>) -> Result<bool> {
            nul::check("queue", [name])?;
            self.inner.replace_queue(name, was, rules).await
        }

        async fn gates(&self, names: &[String]) -> Result<Vec<GateView>> {
            nul::check("gate", names.iter().map(String::as_str))?;
            self.inner.gates(names).await
        }

        async fn held_of(&self, queue: &str, gates: &[String]) -> Result<Vec<u64>> {
            nul::check("queue", [queue])?;
            nul::check("gate", gates.iter().map(String::as_str))?;
            self.inner.held_of(queue, gates).await
        }

        async fn crowd(&self, queue: &str) -> Result<Crowd> {
            nul::check("queue", [queue])?;
            self.inner.crowd(queue).await
        }

        async fn depths(&self, queues: &[String]) -> Result<Vec<DepthView>> {
            nul::check("queue", queues.iter().map(String::as_str))?;
            self.inner.depths(queues).await
        }

        async fn dead_note(
            &self,
            ids: &[JobId],
            by: &str,
            text: &str,
            triage: Option<Triage>,
            archived: Option<bool>,
        ) -> Result<u64> {
            nul::check("name", [by])?;
            nul::check("note", [text])?;
            self.inner.dead_note(ids, by, text, triage, archived).await
        }

        async fn set_redrive_rule(&self, name: &str, rule: Option<RedriveRule>) -> Result<()> {
            nul::check("name", [name])?;
            rule.iter().try_for_each(Texts::check_nul)?;
            self.inner.set_redrive_rule(name, rule).await
        }

        async fn fires(&self, name: &str, limit: usize) -> Result<Vec<FireView>> {
            nul::check("name", [name])?;
            self.inner.fires(name, limit).await
        }

        async fn take_duty(
            &self,
            name: &str,
            holder: WorkerId,
            ttl: Duration,
        ) -> Result<Option<Timestamp>> {
            nul::check("name", [name])?;
            self.inner.take_duty(name, holder, ttl).await
        }

        async fn leave_duty(&self, name: &str, holder: WorkerId) -> Result<()> {
            nul::check("name", [name])?;
            self.inner.leave_duty(name, holder).await
        }
    }
    async fn now(&self) -> Result<Timestamp>;
    async fn register(&self, card: WorkerCard) -> Result<()>;
    async fn beat(&self, worker: WorkerId) -> Result<Beat>;
    async fn deregister(&self, worker: WorkerId) -> Result<Rescued>;
    async fn rescue(&self, rules: RescueRules) -> Result<Rescued>;
    async fn expire(&self, book: &RuleBook) -> Result<Expired>;
    async fn run_now(&self, id: JobId) -> Result<bool>;
    async fn unfinished_of(&self, ids: Vec<JobId>) -> Result<HashSet<JobId>>;
    async fn begun_of(&self, ids: Vec<JobId>) -> Result<HashSet<JobId>>;
    async fn line(&self, id: JobId) -> Result<Option<LineView>>;
    async fn key_holder(&self, id: JobId) -> Result<Option<JobId>>;
    async fn blocked_due(&self, id: JobId) -> Result<Option<Timestamp>>;
    async fn queues_of(&self, ids: Vec<JobId>) -> Result<HashMap<JobId, String>>;
    async fn places_of(&self, ids: Vec<JobId>) -> Result<HashMap<JobId, JobPlace>>;
    async fn lane(&self, id: JobId) -> Result<Option<LaneView>>;
    async fn attempts(&self, id: JobId) -> Result<Vec<AttemptView>>;
    async fn unfinished(&self) -> Result<Unfinished>;
    async fn queues(&self) -> Result<Vec<QueueView>>;
    async fn queue_rules(&self) -> Result<RuleBook>;
    async fn lacking(&self, lacks: &Lacks) -> Result<Option<Lacking>>;
    async fn queue_names(&self) -> Result<Vec<String>>;
    async fn workers(&self) -> Result<Vec<WorkerView>>;
    async fn redrive_rules(&self) -> Result<Vec<RedriveRule>>;
    async fn redrive(&self, rule: &RedriveRule, limit: usize, by: By<'_>) -> Result<Vec<JobId>>;
    async fn finished_after(&self, after: Option<JobId>, limit: usize) -> Result<Vec<Finished>>;
    async fn purge(&self, ids: &[JobId]) -> Result<u64>;
    async fn examine(&self) -> Result<Vec<Finding>>;
    async fn close(&self);
}
