//! The verbs of runs, each handed to the file that does it.

use async_trait::async_trait;
use tidemill_core::workflow::{Mail, ObjectKey};
use tidemill_core::{JobId, NewJob, Payload, WorkerId};

use crate::error::Result;
use crate::postgres::{Postgres, runs};
use crate::request::Receipt;
use crate::run::{
    Append, Beside, Debt, EntryRow, PAGE_MAIL_MAX, Reply, Room, RunActView, RunAnswer, RunFilter,
    RunOrder, RunView, Runs, Seal, Signal, SignalAnswer,
};

#[async_trait]
impl Runs for Postgres {
    async fn append(&self, worker: WorkerId, items: Vec<Append>) -> Result<Vec<bool>> {
        runs::append(&self.shared, worker, items).await
    }

    async fn seal(&self, worker: WorkerId, item: Append) -> Result<Seal> {
        runs::seal(&self.shared, worker, &item).await
    }

    async fn journal(&self, job: JobId) -> Result<(Vec<EntryRow>, Option<RunView>)> {
        runs::journal(&self.shared.db, job).await
    }

    async fn value(&self, job: JobId, number: u32) -> Result<Option<Beside>> {
        runs::value(&self.shared.db, job, number).await
    }

    async fn mail_page(&self, job: JobId, after: i64, limit: usize) -> Result<Vec<Mail>> {
        runs::mail(&self.shared.db, job, after, limit.min(PAGE_MAIL_MAX + 1)).await
    }

    async fn signal(
        &self,
        start: Option<NewJob>,
        signals: Vec<Signal>,
        room: Room,
    ) -> Result<(Option<Receipt>, Vec<SignalAnswer>)> {
        runs::signal(&self.shared, start, signals, room).await
    }

    async fn reply(&self, job: JobId, sent: &str) -> Result<Reply> {
        runs::reply(&self.shared.db, job, sent).await
    }

    async fn object(&self, queue: &str, key: ObjectKey<'_>) -> Result<Option<Payload>> {
        runs::object(&self.shared.db, queue, key).await
    }

    async fn change_run(&self, job: JobId, order: RunOrder) -> Result<RunAnswer> {
        runs::change(&self.shared, job, &order).await
    }

    async fn run_acts(&self, job: JobId) -> Result<Vec<RunActView>> {
        runs::acts(&self.shared.db, job).await
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<RunView>> {
        runs::list(&self.shared.db, filter).await
    }

    async fn debts(&self, after: Option<Debt>, limit: usize) -> Result<Vec<Debt>> {
        runs::debts(&self.shared.db, after, limit).await
    }

    async fn children_of(&self, run: JobId, named: Vec<JobId>) -> Result<Vec<JobId>> {
        runs::children(&self.shared.db, run, &named).await
    }

    async fn undo_run(&self, debt: Debt) -> Result<bool> {
        runs::undo(&self.shared.db, debt).await
    }

    async fn pay(&self, debt: Debt, orphans: &[JobId], reason: &str) -> Result<bool> {
        runs::pay(&self.shared, debt, orphans, reason).await
    }
}
