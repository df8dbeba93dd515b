//! SQLite by sqlx.

use sqlx::{Connection, SqliteConnection};
use tempfile::TempDir;
use tidemill::{Receipt, Tidemill};
use tidemill_testkit::databases::fresh_sqlite_url;

use super::ask::{Ask, COUNT, CREATE, End, INSERT, Way};
use super::meaning::{assert_full, every_way_means_the_same, room_for_one};

struct Sqlx {
    url: String,
    _folder: TempDir,
}

impl Sqlx {
    async fn open() -> Self {
        let (folder, url) = fresh_sqlite_url();
        Tidemill::open(&url).await.unwrap().close().await;
        let way = Self { url, _folder: folder };
        sqlx::query(CREATE).execute(&mut way.connect().await).await.unwrap();
        way
    }

    async fn connect(&self) -> SqliteConnection {
        SqliteConnection::connect(&self.url).await.unwrap()
    }
}

impl Way for Sqlx {
    async fn run(&self, mill: &Tidemill, asks: &[Ask], end: End) -> Vec<Receipt> {
        let mut connection = self.connect().await;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
        sqlx::query(INSERT[0]).execute(&mut *transaction).await.unwrap();
        let mut receipts = Vec::new();
        for ask in asks {
            receipts.push(mill.enqueue_in(&mut transaction, ask.job()).await.unwrap());
        }
        sqlx::query(INSERT[1]).execute(&mut *transaction).await.unwrap();
        match end {
            End::Commit => transaction.commit().await.unwrap(),
            End::RollBack => transaction.rollback().await.unwrap(),
        }
        receipts
    }

    async fn rows(&self) -> i64 {
        sqlx::query_scalar(COUNT).fetch_one(&mut self.connect().await).await.unwrap()
    }

    fn url(&self) -> &str {
        &self.url
    }
}

every_way_means_the_same!(Sqlx);

/// A plain connection is a transaction of one statement.
#[tokio::test]
async fn connection_without_a_transaction_will_do() {
    let way = Sqlx::open().await;
    let mill = Tidemill::open(&way.url).await.unwrap();
    let ask = Ask::new("x");
    mill.enqueue_in(&mut way.connect().await, ask.job()).await.unwrap();
    assert!(mill.job(ask.id).await.unwrap().is_some());
}

#[tokio::test]
async fn a_full_queue_leaves_the_transaction_as_it_was() {
    let way = Sqlx::open().await;
    let mill = room_for_one(way.url()).await;
    let mut connection = way.connect().await;
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let (first, second) = (Ask::new("a"), Ask::new("b"));
    mill.enqueue_in(&mut transaction, first.job()).await.unwrap();
    assert_full(mill.enqueue_in(&mut transaction, second.job()).await);
    sqlx::query(INSERT[0]).execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!((way.rows().await, mill.depth("default").await.unwrap().depth()), (1, 1));
    assert!(mill.job(second.id).await.unwrap().is_none());
}
