//! SQLite: by rusqlite, and by plain SQL through the view.

use rusqlite::{Connection, TransactionBehavior};
use tempfile::TempDir;
use tidemill::{OnDuplicate, Receipt, Tidemill};
use tidemill_testkit::databases::{fresh_postgres_url, fresh_sqlite_url};

use super::ask::{Ask, COUNT, CREATE, End, INSERT, Way};
use super::meaning::{assert_full, every_way_means_the_same, loser_stands, room_for_one};

struct Database {
    _folder: TempDir,
    url: String,
}

impl Database {
    async fn open() -> Self {
        let (folder, url) = fresh_sqlite_url();
        Tidemill::open(&url).await.unwrap().close().await;
        let database = Self { _folder: folder, url };
        database.connect().execute_batch(CREATE).unwrap();
        database
    }

    fn connect(&self) -> Connection {
        let connection = Connection::open(self.url.strip_prefix("sqlite:").unwrap()).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
        connection
    }

    fn rows(&self) -> i64 {
        self.connect().query_row(COUNT, [], |row| row.get(0)).unwrap()
    }

    /// One transaction, in which `enqueue` does its part.
    fn run(&self, end: End, enqueue: impl FnOnce(&Connection) -> Vec<Receipt>) -> Vec<Receipt> {
        let mut connection = self.connect();
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        transaction.execute(INSERT[0], []).unwrap();
        let receipts = enqueue(&transaction);
        transaction.execute(INSERT[1], []).unwrap();
        match end {
            End::Commit => transaction.commit().unwrap(),
            End::RollBack => transaction.rollback().unwrap(),
        }
        receipts
    }
}

macro_rules! way {
    ($name:ident, $mill:ident, $connection:ident, $ask:ident => $enqueue:expr) => {
        struct $name(Database);

        impl $name {
            async fn open() -> Self {
                Self(Database::open().await)
            }
        }

        impl Way for $name {
            async fn run(&self, $mill: &Tidemill, asks: &[Ask], end: End) -> Vec<Receipt> {
                self.0.run(end, |$connection| asks.iter().filter_map(|$ask| $enqueue).collect())
            }
            async fn rows(&self) -> i64 {
                self.0.rows()
            }
            fn url(&self) -> &str {
                &self.0.url
            }
        }
    };
}

way!(Rusqlite, mill, connection, ask => {
    Some(mill.enqueue_in_rusqlite(connection, ask.job()).unwrap())
});
way!(View, _mill, connection, ask => {
    connection.execute(&ask.insert(), []).unwrap();
    None
});

mod rusqlite_way {
    use super::{Rusqlite, every_way_means_the_same};
    every_way_means_the_same!(Rusqlite);
}

mod view {
    use super::{View, every_way_means_the_same};
    every_way_means_the_same!(View);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn winner_that_rolls_back_does_not_swallow_the_loser() {
    let database = Database::open().await;
    let mill = Tidemill::open(&database.url).await.unwrap();
    let mut connection = database.connect();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let winner = Ask::new("winner").unique("k", OnDuplicate::Join);
    mill.enqueue_in_rusqlite(&transaction, winner.job()).unwrap();
    let asking = mill.clone();
    let loser = Ask::new("loser").unique("k", OnDuplicate::Join).job();
    let asked = tokio::spawn(async move { asking.enqueue(loser).await });
    transaction.rollback().unwrap();
    loser_stands(&mill, winner.id, asked.await.unwrap().unwrap()).await;
}

#[tokio::test]
async fn transaction_of_another_database_is_refused() {
    let mill = Tidemill::open(&fresh_postgres_url()).await.unwrap();
    let connection = Connection::open_in_memory().unwrap();
    let error = mill.enqueue_in_rusqlite(&connection, Ask::new("x").job()).unwrap_err();
    assert_eq!(error.code(), "transaction_elsewhere");
}

#[tokio::test]
async fn view_refuses_bad_input_with_its_code() {
    let database = Database::open().await;
    let connection = database.connect();
    for (values, code) in [
        ("('', 'null')", "name_empty"),
        ("('k', '{')", "payload_not_json"),
        ("(printf('%.300c', 'k'), 'null')", "name_too_long"),
    ] {
        let insert = format!("INSERT INTO tidemill_enqueue (kind, payload) VALUES {values}");
        let error = connection.execute(&insert, []).unwrap_err();
        assert!(error.to_string().contains(code), "{error}");
    }
    let mill = Tidemill::open(&database.url).await.unwrap();
    assert_eq!(mill.unfinished().await.unwrap().waiting, 0);
}

#[tokio::test]
async fn a_full_queue_leaves_the_transaction_as_it_was() {
    let database = Database::open().await;
    let mill = room_for_one(&database.url).await;
    let (first, second) = (Ask::new("a"), Ask::new("b"));
    database.run(End::Commit, |connection| {
        mill.enqueue_in_rusqlite(connection, first.job()).unwrap();
        assert_full(mill.enqueue_in_rusqlite(connection, second.job()));
        Vec::new()
    });
    assert_eq!((database.rows(), mill.depth("default").await.unwrap().depth()), (2, 1));
    assert!(mill.job(second.id).await.unwrap().is_none());
}

#[tokio::test]
async fn an_id_that_another_job_has_is_refused_in_the_same_transaction() {
    let database = Database::open().await;
    let mill = Tidemill::open(&database.url).await.unwrap();
    let first = Ask::new("a");
    let keyed = Ask::new("b").unique("k", OnDuplicate::Replace);
    database.run(End::Commit, |connection| {
        let put = |ask: &Ask| mill.enqueue_in_rusqlite(connection, ask.job());
        for ask in [&first, &keyed, &Ask::new("c").unique("k", OnDuplicate::Replace)] {
            put(ask).unwrap();
        }
        // Sent again they are there already, also the one that took over what a duplicate said.
        for ask in [&first, &keyed] {
            assert_eq!(put(ask).unwrap(), Receipt::Enqueued { id: ask.id });
            let other = Ask { text: "d".to_owned(), unique: None, ..ask.clone() };
            assert_eq!(put(&other).unwrap_err().code(), "id_taken");
        }
        Vec::new()
    });
    assert_eq!(mill.unfinished().await.unwrap().waiting, 2);
}
