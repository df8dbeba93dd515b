//! Enqueue: one, many, or in the caller's own transaction.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;

use tidemill_core::{Error as Invalid, JobId, NewJob};
use tidemill_store::ask::{Answer, Ask};
use tidemill_store::flow::text::Texts;
#[cfg(feature = "sqlite")]
use tidemill_store::rusqlite::Connection;
use tidemill_store::{Full, Hint, Receipt};

use crate::engine::Tidemill;
use crate::engine::measure::Measures;
use crate::engine::measure::series::Sorts;
use crate::engine::telemetry::verb;
use crate::engine::trace;
use crate::error::{Error, Result};
use crate::worker::job::Enqueue;

impl Tidemill {
    /// Enqueues one job. When it answers, the job is durable. Many concurrent calls share a commit.
    ///
    /// A queue that is full overflows as its rules say; by default it refuses (`queue_full`), and
    /// [`Error::retry_after`] says when to try again. One that diverts says where the job went
    /// ([`Receipt::Diverted`]).
    ///
    /// A job that lacks the tenant or key by which a limit counts it is refused (`key_missing`), unless the limit
    /// lets such jobs pass.
    pub async fn enqueue(&self, job: impl Into<Enqueue>) -> Result<Receipt> {
        self.know_rules().await;
        let job = job.into();
        let chosen = job.chosen_id().into_iter().collect();
        let job = self.checked(job)?;
        let id = job.id;
        self.refuse_taken(&chosen, std::slice::from_ref(&job)).await?;
        let receipts = self.write(vec![job]).await.map_err(Error::alone)?;
        Ok(receipts.into_iter().next().unwrap_or(Receipt::Enqueued { id }))
    }

    /// Enqueues many jobs in one transaction: all or none. Answers stand in the order of the jobs.
    pub async fn enqueue_many<E: Into<Enqueue>>(
        &self,
        jobs: impl IntoIterator<Item = E>,
    ) -> Result<Vec<Receipt>> {
        self.know_rules().await;
        let (jobs, chosen) = self.checked_many(jobs)?;
        self.refuse_taken(&chosen, &jobs).await?;
        self.write(jobs).await
    }

    /// Enqueues many jobs that have unique keys, as one: either none of the keys is held, or all are. A batch of
    /// which some jobs are duplicates and others are not is another one than that which has the keys, and is refused
    /// (`idempotency_key_reused`) without writing anything.
    pub async fn enqueue_together<E: Into<Enqueue>>(
        &self,
        jobs: impl IntoIterator<Item = E>,
    ) -> Result<Vec<Receipt>> {
        self.know_rules().await;
        let (mut jobs, chosen) = self.checked_many(jobs)?;
        self.refuse_taken(&chosen, &jobs).await?;
        jobs.iter_mut().filter_map(|job| job.unique.as_mut()).for_each(|key| key.together = true);
        self.write(jobs).await
    }

    /// Enqueues in the caller's own transaction: roll back and there is no job, commit and there
    /// is. Nothing but one statement runs on the connection. Call [`wake`](Self::wake) after the
    /// commit to have it start at once; else it starts when a worker next looks, within a second.
    /// Where a full queue diverts it to is not told here, but by its view, after the commit.
    pub async fn enqueue_in<'t>(
        &self,
        target: impl Target<'t>,
        job: impl Into<Enqueue>,
    ) -> Result<Receipt> {
        self.know_rules().await;
        let job = job.into();
        let chosen = job.chosen_id().into_iter().collect();
        let job = self.checked(job)?;
        let id = job.id;
        self.refuse_taken(&chosen, std::slice::from_ref(&job)).await?;
        let receipts = self.write_in(target, vec![job]).await.map_err(Error::alone)?;
        Ok(receipts.into_iter().next().unwrap_or(Receipt::Enqueued { id }))
    }

    /// Enqueues many jobs in the caller's own transaction.
    pub async fn enqueue_many_in<'t, E: Into<Enqueue>>(
        &self,
        target: impl Target<'t>,
        jobs: impl IntoIterator<Item = E>,
    ) -> Result<Vec<Receipt>> {
        self.know_rules().await;
        let (jobs, chosen) = self.checked_many(jobs)?;
        self.refuse_taken(&chosen, &jobs).await?;
        self.write_in(target, jobs).await
    }

    /// Enqueues in the caller's own rusqlite transaction (which derefs to its connection). Begin it
    /// with `BEGIN IMMEDIATE`, so that it cannot fail half-way for want of the write lock.
    #[cfg(feature = "sqlite")]
    pub fn enqueue_in_rusqlite(
        &self,
        connection: &Connection,
        job: impl Into<Enqueue>,
    ) -> Result<Receipt> {
        self.same_store("sqlite")?;
        let job = job.into();
        let chosen = job.chosen_id();
        let mut job = self.checked(job)?;
        if chosen.is_some() {
            self.refuse_taken_in(connection, &job)?;
        }
        self.0.keys.hide_job(&mut job)?;
        let id = job.id;
        let receipts = tidemill_store::sqlite::adapter::enqueue_in_rusqlite(connection, &[job])?;
        Ok(receipts.into_iter().next().unwrap_or(Receipt::Enqueued { id }))
    }

    /// Tells workers that this queue may have jobs. Needed only after a commit of one's own.
    pub fn wake(&self, queue: &str) {
        self.0.store.hint(Hint::Ready { queue: queue.to_owned() });
    }

    /// Whether a job would be taken: its payload, names, times and kind. Writes nothing.
    pub fn check(&self, job: &Enqueue) -> Result<()> {
        let job = self.checked(job.clone())?;
        Ok(self.0.keys.check_job(&job)?)
    }

    /// Checks one job against the limits, the declared kinds and, as far as this process knows them, the rules.
    pub(crate) fn checked(&self, job: Enqueue) -> Result<NewJob> {
        let job = self.checked_alone(job)?;
        let (tenant, key) = (job.tenant.as_deref(), job.key.as_deref());
        let book = self.0.rooms.book();
        book.check_counted(&job.queue, &job.kind, tenant, key)?;
        let rules = book.of(&job.queue).filter(|_| job.options.finish_within_ms.is_none());
        if let Some(ms) = rules.and_then(|rules| rules.finish_within_ms) {
            let whose = format!("the deadline to finish of the queue {:?}", job.queue);
            job.check_deadline(Some(ms), &whose, self.0.clock.now())?;
        }
        Ok(job)
    }

    /// The same without the rules: for what is not enqueued.
    pub(crate) fn checked_alone(&self, job: Enqueue) -> Result<NewJob> {
        if let Some(kinds) = &self.0.kinds
            && !kinds.contains(job.kind())
        {
            let known = kinds.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(Error::KindUnknown { kind: job.kind().to_owned(), known });
        }
        let mut job = job.check(&self.0.limits, self.0.clock.now())?;
        if job.options.trace.is_none() {
            job.options.trace = trace::current();
        }
        Ok(job)
    }

    /// Answers also the ids that were chosen.
    fn checked_many<E: Into<Enqueue>>(
        &self,
        jobs: impl IntoIterator<Item = E>,
    ) -> Result<(Vec<NewJob>, HashSet<JobId>)> {
        let mut chosen = HashSet::new();
        let check = |job: E| {
            let job = job.into();
            chosen.extend(job.chosen_id());
            self.checked(job)
        };
        let jobs: Vec<_> = jobs.into_iter().map(check).collect::<Result<_>>()?;
        let jobs_max = self.0.limits.batch_jobs_max;
        if jobs.len() > jobs_max {
            return Err(Invalid::BatchTooLarge { jobs: jobs.len(), jobs_max }.into());
        }
        Ok((jobs, chosen))
    }

    async fn write(&self, mut jobs: Vec<NewJob>) -> Result<Vec<Receipt>> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        self.check_told(&jobs).await?;
        let mut held = self.hold_back(&mut jobs).await?;
        let (number, sorts) = (jobs.len(), self.0.measures.sorts(jobs.iter()));
        let may_divert = self.may_divert(&jobs);
        let answer = verb("enqueue", number, full_is_no_failure(self.put(jobs))).await?;
        if let Err(full) = &answer
            && let Some(refused) = held.remove(&full.queue)
        {
            return Err(refused.into());
        }
        let answer = answer.map_err(|full| self.full_beyond(&may_divert, full));
        Ok(self.diverted(may_divert, counted(&sorts, answer)?).await)
    }

    async fn write_in<'t>(
        &self,
        target: impl Target<'t>,
        mut jobs: Vec<NewJob>,
    ) -> Result<Vec<Receipt>> {
        self.same_store(target.backend())?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        self.check_told(&jobs).await?;
        self.check_diverted(&jobs).await?;
        let may_divert = self.may_divert(&jobs);
        self.0.keys.hide_jobs(&mut jobs)?;
        let (number, sorts) = (jobs.len(), self.0.measures.sorts(jobs.iter()));
        let answer = verb("enqueue_in", number, full_is_no_failure(target.put(jobs))).await?;
        let answer = answer.map_err(|full| self.full_beyond(&may_divert, full));
        counted(&sorts, answer)
    }

    pub(crate) fn same_store(&self, given: &'static str) -> Result<()> {
        let store = self.0.store.backend();
        if given != store {
            return Err(Error::TransactionElsewhere { given, store });
        }
        Ok(())
    }
}

fn counted(sorts: &Sorts, answer: std::result::Result<Vec<Receipt>, Full>) -> Result<Vec<Receipt>> {
    let receipts = let_in(sorts, answer)?;
    Measures::enqueued(sorts, &receipts);
    Ok(receipts)
}

/// What was let in; what a full queue refused is counted.
pub(crate) fn let_in<T>(sorts: &Sorts, answer: std::result::Result<T, Full>) -> Result<T> {
    answer.map_err(|full| {
        sorts.each().for_each(|series| series.refused.add(1));
        Error::Store(tidemill_store::Error::QueueFull(full))
    })
}

/// A full queue is part of normal life: it is told to the caller, and not to the log.
pub(crate) async fn full_is_no_failure<T>(
    writing: impl Future<Output = tidemill_store::Result<T>>,
) -> tidemill_store::Result<std::result::Result<T, Full>> {
    match writing.await {
        Err(tidemill_store::Error::QueueFull(full)) => Ok(Err(full)),
        answer => answer.map(Ok),
    }
}

type Putting<'t> = Pin<Box<dyn Future<Output = tidemill_store::Result<Vec<Receipt>>> + Send + 't>>;

type Starting<'t> = Pin<Box<dyn Future<Output = tidemill_store::Result<()>> + Send + 't>>;

type Asking<'t> = Pin<Box<dyn Future<Output = tidemill_store::Result<Answer>> + Send + 't>>;

/// A connection or an open transaction of the caller's, on which jobs can be enqueued.
///
/// Implemented for tokio-postgres (`&Client`, `&Transaction`) and, with the features `sqlx-postgres`
/// and `sqlx-sqlite`, for sqlx connections and transactions.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a connection on which jobs can be enqueued"
)]
pub trait Target<'t>: Send + Sized {
    /// Which database it speaks to.
    fn backend(&self) -> &'static str;
    /// Writes the jobs, in one statement.
    fn put(self, jobs: Vec<NewJob>) -> Putting<'t>;
    /// Writes a flow, in one statement.
    fn start(self, flow: Texts) -> Starting<'t>;
    /// Runs one statement of ours.
    fn ask(self, ask: Ask) -> Asking<'t>;
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::{Ask, Asking, NewJob, Putting, Starting, Target, Texts};
    use tidemill_store::postgres::adapter::{
        ask_in_postgres, enqueue_in_postgres, start_in_postgres,
    };
    use tidemill_store::tokio_postgres::{Client, Transaction};

    impl<'t> Target<'t> for &'t Client {
        fn backend(&self) -> &'static str {
            "postgres"
        }
        fn put(self, jobs: Vec<NewJob>) -> Putting<'t> {
            Box::pin(async move { enqueue_in_postgres(self, &jobs).await })
        }
        fn start(self, flow: Texts) -> Starting<'t> {
            Box::pin(async move { start_in_postgres(self, &flow).await })
        }
        fn ask(self, ask: Ask) -> Asking<'t> {
            Box::pin(async move { ask_in_postgres(self, &ask).await })
        }
    }

    impl<'t> Target<'t> for &'t Transaction<'t> {
        fn backend(&self) -> &'static str {
            "postgres"
        }
        fn put(self, jobs: Vec<NewJob>) -> Putting<'t> {
            Box::pin(async move { enqueue_in_postgres(self, &jobs).await })
        }
        fn start(self, flow: Texts) -> Starting<'t> {
            Box::pin(async move { start_in_postgres(self, &flow).await })
        }
        fn ask(self, ask: Ask) -> Asking<'t> {
            Box::pin(async move { ask_in_postgres(self, &ask).await })
        }
    }
}

#[cfg(any(feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
mod sqlx {
    use super::{Ask, Asking, NewJob, Putting, Starting, Target, Texts};
    use tidemill_store::sqlx::Transaction;
    #[cfg(feature = "sqlx-postgres")]
    use tidemill_store::sqlx::{PgConnection, Postgres};
    #[cfg(feature = "sqlx-sqlite")]
    use tidemill_store::sqlx::{Sqlite, SqliteConnection};

    macro_rules! target {
        ($feature:literal, $backend:literal, $connection:ty, $database:ty, $put:path, $start:path,
         $ask:path) => {
            #[cfg(feature = $feature)]
            impl<'t> Target<'t> for &'t mut $connection {
                fn backend(&self) -> &'static str {
                    $backend
                }
                fn put(self, jobs: Vec<NewJob>) -> Putting<'t> {
                    Box::pin(async move { $put(self, &jobs).await })
                }
                fn start(self, flow: Texts) -> Starting<'t> {
                    Box::pin(async move { $start(self, &flow).await })
                }
                fn ask(self, ask: Ask) -> Asking<'t> {
                    Box::pin(async move { $ask(self, &ask).await })
                }
            }
            #[cfg(feature = $feature)]
            impl<'t> Target<'t> for &'t mut Transaction<'_, $database> {
                fn backend(&self) -> &'static str {
                    $backend
                }
                fn put(self, jobs: Vec<NewJob>) -> Putting<'t> {
                    Box::pin(async move { $put(&mut **self, &jobs).await })
                }
                fn start(self, flow: Texts) -> Starting<'t> {
                    Box::pin(async move { $start(&mut **self, &flow).await })
                }
                fn ask(self, ask: Ask) -> Asking<'t> {
                    Box::pin(async move { $ask(&mut **self, &ask).await })
                }
            }
        };
    }

    target!(
        "sqlx-postgres",
        "postgres",
        PgConnection,
        Postgres,
        tidemill_store::postgres::adapter::enqueue_in_sqlx_postgres,
        tidemill_store::postgres::adapter::start_in_sqlx_postgres,
        tidemill_store::postgres::adapter::ask_in_sqlx_postgres
    );
    target!(
        "sqlx-sqlite",
        "sqlite",
        SqliteConnection,
        Sqlite,
        tidemill_store::sqlite::adapter::enqueue_in_sqlx_sqlite,
        tidemill_store::sqlite::adapter::start_in_sqlx_sqlite,
        tidemill_store::sqlite::adapter::ask_in_sqlx_sqlite
    );
}
