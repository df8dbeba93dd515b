//! Postgres: by tokio-postgres, and by plain SQL through the view and the function.

use std::time::Duration;

use tidemill::{JobId, OnDuplicate, Receipt, Tidemill};
use tidemill_testkit::databases::fresh_postgres_url;
use tidemill_testkit::eventually::eventually;
use tokio_postgres::{Client, NoTls, Transaction};
use uuid::Uuid;

use super::ask::{Ask, COUNT, CREATE, End, INSERT, Way};
use super::meaning::{assert_full, every_way_means_the_same, loser_stands, room_for_one};

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A fresh database with the schema and the caller's own table.
async fn database() -> String {
    let url = fresh_postgres_url();
    Tidemill::open(&url).await.unwrap().close().await;
    connect(&url).await.batch_execute(CREATE).await.unwrap();
    url
}

async fn end_it(transaction: Transaction<'_>, end: End) {
    transaction.execute(INSERT[1], &[]).await.unwrap();
    match end {
        End::Commit => transaction.commit().await.unwrap(),
        End::RollBack => transaction.rollback().await.unwrap(),
    }
}

macro_rules! way {
    ($name:ident, $mill:ident, $transaction:ident, $ask:ident => $enqueue:expr) => {
        struct $name(String);

        impl $name {
            async fn open() -> Self {
                Self(database().await)
            }
        }

        impl Way for $name {
            async fn run(&self, $mill: &Tidemill, asks: &[Ask], end: End) -> Vec<Receipt> {
                let mut client = connect(&self.0).await;
                let $transaction = client.transaction().await.unwrap();
                $transaction.execute(INSERT[0], &[]).await.unwrap();
                let mut receipts: Vec<Receipt> = Vec::new();
                for $ask in asks {
                    receipts.extend::<Option<Receipt>>($enqueue);
                }
                end_it($transaction, end).await;
                receipts
            }
            async fn rows(&self) -> i64 {
                connect(&self.0).await.query_one(COUNT, &[]).await.unwrap().get(0)
            }
            fn url(&self) -> &str {
                &self.0
            }
        }
    };
}

way!(TokioPostgres, mill, transaction, ask => {
    Some(mill.enqueue_in(&transaction, ask.job()).await.unwrap())
});
way!(View, _mill, transaction, ask => {
    transaction.batch_execute(&ask.insert()).await.unwrap();
    None
});
way!(Function, _mill, transaction, ask => {
    let id: Uuid = transaction.query_one(&ask.call(), &[]).await.unwrap().get(0);
    assert!(ask.unique.is_some() || id == ask.id.0, "{ask:?} was answered {id}");
    None
});

mod tokio_postgres_way {
    use super::{TokioPostgres, every_way_means_the_same};
    every_way_means_the_same!(TokioPostgres);
}

mod view {
    use super::{View, every_way_means_the_same};
    every_way_means_the_same!(View);
}

mod function {
    use super::{Function, every_way_means_the_same};
    every_way_means_the_same!(Function);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn winner_that_rolls_back_does_not_swallow_the_loser() {
    let url = database().await;
    let mill = Tidemill::open(&url).await.unwrap();
    let mut client = connect(&url).await;
    let transaction = client.transaction().await.unwrap();
    let winner = Ask::new("winner").unique("k", OnDuplicate::Join);
    mill.enqueue_in(&transaction, winner.job()).await.unwrap();
    let asking = mill.clone();
    let loser = Ask::new("loser").unique("k", OnDuplicate::Join).job();
    let asked = tokio::spawn(async move { asking.enqueue(loser).await });
    let watching = connect(&url).await;
    eventually("the loser to wait for the winner", Duration::from_secs(30), async || {
        let waits = "SELECT count(*) FROM pg_stat_activity
                     WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let waiting: i64 = watching.query_one(waits, &[]).await.unwrap().get(0);
        (waiting > 0).then_some(())
    })
    .await;
    transaction.rollback().await.unwrap();
    loser_stands(&mill, winner.id, asked.await.unwrap().unwrap()).await;
}

#[tokio::test]
async fn function_answers_the_job_that_stands_for_a_duplicate() {
    let url = database().await;
    let client = connect(&url).await;
    let one = Ask::new("one").unique("k", OnDuplicate::Join);
    let two = Ask::new("two").unique("k", OnDuplicate::Join);
    for ask in [&one, &two] {
        let id: Uuid = client.query_one(&ask.call(), &[]).await.unwrap().get(0);
        assert_eq!(id, one.id.0);
    }
    let call = "SELECT tidemill.enqueue('echo', '1')";
    let made: Uuid = client.query_one(call, &[]).await.unwrap().get(0);
    let mill = Tidemill::open(&url).await.unwrap();
    assert!(mill.job(JobId(made)).await.unwrap().is_some());
}

#[tokio::test]
async fn view_and_function_refuse_bad_input_with_its_code() {
    let url = database().await;
    let client = connect(&url).await;
    for (kind, code) in [("''", "name_empty"), ("repeat('k', 300)", "name_too_long")] {
        for statement in [
            format!("INSERT INTO tidemill_enqueue (kind, payload) VALUES ({kind}, 'null')"),
            format!("SELECT tidemill.enqueue({kind}, 'null')"),
        ] {
            let error = client.batch_execute(&statement).await.unwrap_err();
            let said = error.as_db_error().unwrap().message().to_owned();
            assert!(said.contains(code), "{said}");
        }
    }
    let mill = Tidemill::open(&url).await.unwrap();
    assert_eq!(mill.unfinished().await.unwrap().waiting, 0);
}

#[tokio::test]
async fn a_full_queue_leaves_the_transaction_as_it_was() {
    let url = database().await;
    let mill = room_for_one(&url).await;
    let mut client = connect(&url).await;
    let transaction = client.transaction().await.unwrap();
    let (first, second) = (Ask::new("a"), Ask::new("b"));
    mill.enqueue_in(&transaction, first.job()).await.unwrap();
    assert_full(mill.enqueue_in(&transaction, second.job()).await);
    transaction.execute(INSERT[0], &[]).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(mill.depth("default").await.unwrap().depth(), 1);
    assert!(mill.job(second.id).await.unwrap().is_none());
    let refused = client.execute(&second.call(), &[]).await.unwrap_err();
    let said = refused.as_db_error().unwrap().message();
    assert!(
        said.starts_with("tidemill: queue_full: the queue default is full: 1 jobs wait"),
        "{said}"
    );
}
