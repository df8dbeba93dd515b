//! The verbs of runs, each handed to the file that does it.

use async_trait::async_trait;
use tidemill_core::workflow::{Mail, ObjectKey};
use tidemill_core::{JobId, NewJob, Payload, WorkerId};

use crate::error::Result;
use crate::request::Receipt;
use crate::run::{
    Append, Beside, Debt, EntryRow, PAGE_MAIL_MAX, Reply, Room, RunActView, RunAnswer, RunFilter,
    RunOrder, RunView, Runs, Seal, Signal, SignalAnswer,
};
use crate::sqlite::{Sqlite, runs};

#[async_trait]
impl Runs for Sqlite {
    async fn append(&self, worker: WorkerId, items: Vec<Append>) -> Result<Vec<bool>> {
        self.write(move |turn| runs::append(turn, worker, &items)).await
    }

    async fn seal(&self, worker: WorkerId, item: Append) -> Result<Seal> {
        self.write(move |turn| runs::seal(turn, worker, &item)).await
    }

    async fn journal(&self, job: JobId) -> Result<(Vec<EntryRow>, Option<RunView>)> {
        self.read(move |conn| runs::journal(conn, job)).await
    }

    async fn value(&self, job: JobId, number: u32) -> Result<Option<Beside>> {
        self.read(move |conn| runs::value(conn, job, number)).await
    }

    async fn mail_page(&self, job: JobId, after: i64, limit: usize) -> Result<Vec<Mail>> {
        let limit = limit.min(PAGE_MAIL_MAX + 1);
        self.read(move |conn| runs::mail(conn, job, after, limit)).await
    }

    async fn signal(
        &self,
        start: Option<NewJob>,
        signals: Vec<Signal>,
        room: Room,
    ) -> Result<(Option<Receipt>, Vec<SignalAnswer>)> {
        self.write(move |turn| runs::signal(turn, start.as_ref(), &signals, room)).await
    }

    async fn reply(&self, job: JobId, sent: &str) -> Result<Reply> {
        let sent = sent.to_owned();
        self.read(move |conn| runs::reply(conn, job, &sent)).await
    }

    async fn object(&self, queue: &str, key: ObjectKey<'_>) -> Result<Option<Payload>> {
        let (queue, ObjectKey { key, tenant }) = (queue.to_owned(), key);
        let (key, tenant) = (key.to_owned(), tenant.map(str::to_owned));
        self.read(move |conn| {
            runs::object(conn, &queue, ObjectKey::new(&key).tenant(tenant.as_deref()))
        })
        .await
    }

    async fn change_run(&self, job: JobId, order: RunOrder) -> Result<RunAnswer> {
        self.write(move |turn| runs::change(turn, job, &order)).await
    }

    async fn run_acts(&self, job: JobId) -> Result<Vec<RunActView>> {
        self.read(move |conn| runs::acts(conn, job)).await
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<RunView>> {
        let filter = filter.clone();
        self.read(move |conn| runs::list(conn, &filter)).await
    }

    async fn debts(&self, after: Option<Debt>, limit: usize) -> Result<Vec<Debt>> {
        self.read(move |conn| runs::debts(conn, after, limit)).await
    }

    async fn children_of(&self, run: JobId, named: Vec<JobId>) -> Result<Vec<JobId>> {
        self.read(move |conn| runs::children(conn, run, named)).await
    }

    async fn undo_run(&self, debt: Debt) -> Result<bool> {
        self.write(move |turn| runs::undo(turn, debt)).await
    }

    async fn pay(&self, debt: Debt, orphans: &[JobId], reason: &str) -> Result<bool> {
        let (orphans, reason) = (orphans.to_vec(), reason.to_owned());
        self.write(move |turn| runs::pay(turn, debt, &orphans, &reason)).await
    }
}
