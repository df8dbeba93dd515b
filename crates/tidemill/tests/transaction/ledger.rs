//! A handler's own table, written by every driver there is, with a mark or with the job's settle in one transaction.

use std::time::Duration;

use rusqlite::TransactionBehavior;
use sqlx::{Connection as _, PgConnection, SqliteConnection};
use tempfile::TempDir;
use tidemill::{
    Context, Effect, Enqueue, Fail, JobId, Proof, Recorder, State, Tidemill, async_trait, effect,
};
use tidemill_testkit::databases::{fresh_postgres_url, fresh_sqlite_url};
use tokio_postgres::NoTls;

const CREATE: &str = "CREATE TABLE IF NOT EXISTS ledger (line bigint)";
const INSERT: &str = "INSERT INTO ledger VALUES (1)";
const COUNT: &str = "SELECT count(*) FROM ledger";
const SOON: Duration = Duration::from_secs(30);

/// Makes each test of each driver.
macro_rules! by_every_driver {
    ($($name:ident),+ $(,)?) => {
        by_every_driver!(@on tokio_postgres TokioPostgres: $($name),+);
        by_every_driver!(@on sqlx_postgres SqlxPostgres: $($name),+);
        by_every_driver!(@on rusqlite Rusqlite: $($name),+);
        by_every_driver!(@on sqlx_sqlite SqlxSqlite: $($name),+);
    };
    (@on $module:ident $ledger:ident: $($name:ident),+) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(super::super::ledger::$ledger::open()).await;
                }
            )+
        }
    };
}
pub(crate) use by_every_driver;

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Commit,
    RollBack,
}

/// The handler's own database, by one driver.
#[async_trait]
pub trait Ledger: Send + Sync + 'static {
    fn url(&self) -> &str;
    /// Makes its table; and the one of marks.
    async fn create(&self, marks: bool);
    /// Writes a line with a mark, unless that was done. Answers what the mark says.
    async fn write(&self, cx: &Context, name: &str, output: u64, end: End) -> Result<u64, Fail>;
    /// Writes a line and settles the job.
    async fn settle(&self, cx: &Context, output: u64, end: End) -> Result<(), Fail>;
    /// Writes a line and records the step.
    async fn record(&self, t: &Recorder, output: u64, end: End) -> Result<Proof<u64>, Fail>;
    async fn lines(&self) -> i64;
    async fn forget(&self, older_than: Duration) -> usize;
}

/// Enqueues the job that writes to it.
pub async fn pay(mill: &Tidemill) -> JobId {
    mill.enqueue(Enqueue::raw("pay", "{}")).await.unwrap().id()
}

/// What a job that is done returned.
pub async fn output(mill: &Tidemill, id: JobId) -> String {
    let job = mill.job(id).await.unwrap().unwrap();
    assert_eq!(job.state, State::Done, "{job:?}");
    job.output.unwrap().as_str().to_owned()
}

/// A fresh database.
pub struct Place {
    url: String,
    _folder: Option<TempDir>,
}

impl Place {
    pub fn postgres() -> Self {
        Self { url: fresh_postgres_url(), _folder: None }
    }

    pub fn sqlite() -> Self {
        let (folder, url) = fresh_sqlite_url();
        Self { url, _folder: Some(folder) }
    }
}

/// By a driver that awaits: how to connect, to begin, to run a statement, to count, and what the library is given.
macro_rules! awaited {
    ($name:ident, $place:ident, |$url:ident| $connect:expr, |$open:ident| $begin:expr,
     |$on:ident, $sql:ident| $run:expr, |$counted:ident| $count:expr, |$tx:ident| $target:expr) => {
        pub struct $name(Place);

        impl $name {
            pub fn open() -> Self {
                Self(Place::$place())
            }
        }

        #[async_trait]
        impl Ledger for $name {
            fn url(&self) -> &str {
                &self.0.url
            }

            #[allow(unused_mut, reason = "one driver needs it")]
            async fn create(&self, marks: bool) {
                let $url = &self.0.url;
                let mut $open = $connect;
                let mut $on = $begin.unwrap();
                let $sql = CREATE;
                $run.unwrap();
                let mut $tx = $on;
                if marks {
                    effect::create_in($target).await.unwrap();
                    effect::create_in($target).await.unwrap();
                }
                $tx.commit().await.unwrap();
            }

            #[allow(unused_mut, reason = "one driver needs it")]
            async fn write(
                &self,
                cx: &Context,
                name: &str,
                output: u64,
                end: End,
            ) -> Result<u64, Fail> {
                let $url = &self.0.url;
                let mut $open = $connect;
                let mut $tx = $begin?;
                match cx.effect_named_in($target, name).await? {
                    Effect::Done(recorded) => Ok(recorded),
                    Effect::Fresh(mark) => {
                        let mut $on = $tx;
                        let $sql = INSERT;
                        $run?;
                        let mut $tx = $on;
                        mark.record($target, &output).await?;
                        if end == End::Commit {
                            $tx.commit().await?;
                        }
                        Ok(output)
                    }
                }
            }

            #[allow(unused_mut, reason = "one driver needs it")]
            async fn settle(&self, cx: &Context, output: u64, end: End) -> Result<(), Fail> {
                let $url = &self.0.url;
                let mut $open = $connect;
                let mut $on = $begin?;
                let $sql = INSERT;
                $run?;
                let mut $tx = $on;
                cx.settle_in($target, &output).await?;
                if end == End::Commit {
                    $tx.commit().await?;
                }
                Ok(())
            }

            #[allow(unused_mut, reason = "one driver needs it")]
            async fn record(
                &self,
                t: &Recorder,
                output: u64,
                end: End,
            ) -> Result<Proof<u64>, Fail> {
                let $url = &self.0.url;
                let mut $open = $connect;
                let mut $on = $begin?;
                let $sql = INSERT;
                $run?;
                let mut $tx = $on;
                let proof = t.record_in($target, &output).await?;
                if end == End::Commit {
                    $tx.commit().await?;
                }
                Ok(proof)
            }

            #[allow(unused_mut, reason = "one driver needs it")]
            async fn lines(&self) -> i64 {
                let $url = &self.0.url;
                let mut $counted = $connect;
                $count
            }

            #[allow(unused_mut, reason = "one driver needs it")]
            async fn forget(&self, older_than: Duration) -> usize {
                let $url = &self.0.url;
                let mut $tx = $connect;
                effect::forget_in($target, older_than).await.unwrap()
            }
        }
    };
}

awaited!(
    TokioPostgres,
    postgres,
    |url| {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    },
    |client| client.transaction().await,
    |on, sql| on.execute(sql, &[]).await,
    |client| client.query_one(COUNT, &[]).await.unwrap().get(0),
    |tx| &tx
);
awaited!(
    SqlxPostgres,
    postgres,
    |url| PgConnection::connect(url).await.unwrap(),
    |connection| connection.begin().await,
    |on, sql| sqlx::query(sql).execute(&mut *on).await,
    |connection| sqlx::query_scalar(COUNT).fetch_one(&mut connection).await.unwrap(),
    |tx| &mut tx
);
awaited!(
    SqlxSqlite,
    sqlite,
    |url| SqliteConnection::connect(url).await.unwrap(),
    |connection| connection.begin_with("BEGIN IMMEDIATE").await,
    |on, sql| sqlx::query(sql).execute(&mut *on).await,
    |connection| sqlx::query_scalar(COUNT).fetch_one(&mut connection).await.unwrap(),
    |tx| &mut tx
);

/// By the driver that blocks.
pub struct Rusqlite(Place);

impl Rusqlite {
    pub fn open() -> Self {
        Self(Place::sqlite())
    }

    fn connect(url: &str) -> rusqlite::Connection {
        let file = url.strip_prefix("sqlite:").unwrap();
        let connection = rusqlite::Connection::open(file).unwrap();
        connection.busy_timeout(SOON).unwrap();
        connection
    }

    /// A handler must not block the runtime.
    async fn blocking<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut rusqlite::Connection) -> T + Send + 'static,
    ) -> T {
        let url = self.0.url.clone();
        tokio::task::spawn_blocking(move || act(&mut Self::connect(&url))).await.unwrap()
    }
}

#[async_trait]
impl Ledger for Rusqlite {
    fn url(&self) -> &str {
        &self.0.url
    }

    async fn create(&self, marks: bool) {
        let connection = Self::connect(&self.0.url);
        connection.execute_batch(CREATE).unwrap();
        if marks {
            effect::create_in_rusqlite(&connection).unwrap();
            effect::create_in_rusqlite(&connection).unwrap();
        }
    }

    async fn write(&self, cx: &Context, name: &str, output: u64, end: End) -> Result<u64, Fail> {
        let (cx, name) = (cx.clone(), name.to_owned());
        self.blocking(move |connection| {
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            match cx.effect_in_rusqlite(&tx, &name)? {
                Effect::Done(recorded) => Ok(recorded),
                Effect::Fresh(mark) => {
                    tx.execute(INSERT, [])?;
                    mark.record_in_rusqlite(&tx, &output)?;
                    if end == End::Commit {
                        tx.commit()?;
                    }
                    Ok(output)
                }
            }
        })
        .await
    }

    async fn settle(&self, cx: &Context, output: u64, end: End) -> Result<(), Fail> {
        let cx = cx.clone();
        self.blocking(move |connection| {
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            tx.execute(INSERT, [])?;
            cx.settle_in_rusqlite(&tx, &output)?;
            if end == End::Commit {
                tx.commit()?;
            }
            Ok(())
        })
        .await
    }

    async fn record(&self, t: &Recorder, output: u64, end: End) -> Result<Proof<u64>, Fail> {
        let t = t.clone();
        self.blocking(move |connection| {
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            tx.execute(INSERT, [])?;
            let proof = t.record_in_rusqlite(&tx, &output)?;
            if end == End::Commit {
                tx.commit()?;
            }
            Ok(proof)
        })
        .await
    }

    async fn lines(&self) -> i64 {
        Self::connect(&self.0.url).query_row(COUNT, [], |row| row.get(0)).unwrap()
    }

    async fn forget(&self, older_than: Duration) -> usize {
        effect::forget_in_rusqlite(&Self::connect(&self.0.url), older_than).unwrap()
    }
}
