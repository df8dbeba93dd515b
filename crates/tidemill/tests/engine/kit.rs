//! What every test here stands on: a fresh database, a clock, and jobs to run.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tidemill::{Clock, Job, ManualClock, Tidemill};
use tidemill_testkit::databases::{fresh_postgres_url, fresh_sqlite_url};
use tokio_postgres::NoTls;

/// Longest wait for anything that should come soon.
pub const SOON: Duration = Duration::from_secs(30);

/// A fresh database.
pub struct Kit {
    pub url: String,
    pub clock: ManualClock,
    _folder: Option<TempDir>,
}

impl Kit {
    pub fn sqlite() -> Self {
        let (folder, url) = fresh_sqlite_url();
        Self { url, clock: ManualClock::default(), _folder: Some(folder) }
    }

    pub fn postgres() -> Self {
        Self { url: fresh_postgres_url(), clock: ManualClock::default(), _folder: None }
    }

    /// An instance on real time. Each call stands for another process.
    pub async fn open(&self) -> Tidemill {
        Tidemill::open(&self.url).await.unwrap()
    }

    /// An instance whose time moves only when the kit's clock is moved.
    pub async fn open_still(&self) -> Tidemill {
        let clock = Clock::Manual(self.clock.clone());
        Tidemill::builder().clock(clock).open(&self.url).await.unwrap()
    }

    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Runs a statement that is the same for both databases, with names as SQLite has them.
    pub async fn execute(&self, statement: &str) {
        if let Some(file) = self.url.strip_prefix("sqlite:") {
            rusqlite::Connection::open(file).unwrap().execute_batch(statement).unwrap();
            return;
        }
        let statement = statement.replace("tidemill_", "tidemill.");
        self.client().await.batch_execute(&statement).await.unwrap();
    }

    /// A connection of one's own to Postgres.
    pub async fn client(&self) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

/// A job that says something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Echo {
    pub text: String,
}

impl Echo {
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned() }
    }
}

impl Job for Echo {
    const KIND: &'static str = "echo";
    type Output = String;
}

/// Makes a test for SQLite and one for Postgres of each function over a `Kit`.
macro_rules! over_both_stores {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::engine::kit::Kit::sqlite()).await;
            })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::engine::kit::Kit::postgres()).await;
            })*
        }
    };
}
