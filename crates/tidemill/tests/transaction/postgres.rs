//! Postgres: by tokio-postgres, and by plain SQL through the view and the function.

use std::sync::Arc;
use std::time::Duration;

use tidemill::store::request::RescueRules;
use tidemill::{Context, JobId, OnDuplicate, Receipt, State, Tidemill, testing};
use tidemill_testkit::databases::fresh_postgres_url;
use tokio::sync::Mutex;
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
    await_a_lock(&url).await;
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
        said.starts_with("tidemill: queue_full: the queue default is full: 1 job waits"),
        "{said}"
    );
}

/// The zombie has decided and not committed; whoever rescues its worker waits, and finds the job done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rescue_waits_for_a_transaction_that_settles() {
    for commits in [true, false] {
        let url = database().await;
        let mill = Tidemill::open(&url).await.unwrap();
        let id = mill.enqueue(Ask::new("x").job()).await.unwrap().id();
        let place = url.clone();
        let worker = mill.worker().handle(move |_: super::ask::Echo, cx: Context| {
            let place = place.clone();
            async move {
                let mut client = connect(&place).await;
                let transaction = client.transaction().await?;
                cx.settle_in(&transaction, "decided").await?;
                let mill = cx.mill()?.clone();
                let rules = RescueRules { lease_ttl: Duration::ZERO, clear_for: None, lost_max: 9 };
                let rescuing = tokio::spawn(async move { mill.store().rescue(rules).await });
                await_a_lock(&place).await;
                if commits {
                    transaction.commit().await?;
                } else {
                    transaction.rollback().await?;
                }
                rescuing.await??;
                Ok(String::new())
            }
        });
        testing::drain(worker).await.unwrap();
        let job = mill.job(id).await.unwrap().unwrap();
        let (state, output) = (job.state, job.output.map(|output| output.as_str().to_owned()));
        if commits {
            assert_eq!((state, output.as_deref()), (State::Done, Some("\"decided\"")));
        } else {
            assert_eq!(state, State::Ready, "the rescue gave it back");
        }
    }
}

/// A handler that runs too long has its transaction open: what it decides there holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_timed_out_is_settled_as_its_transaction_ends() {
    let url = database().await;
    let mill = Tidemill::open(&url).await.unwrap();
    let job = Ask::new("x").job().run_timeout(Duration::from_millis(300));
    let id = mill.enqueue(job).await.unwrap().id();
    let (place, ending) = (url.clone(), Arc::new(Mutex::new(None)));
    let end = Arc::clone(&ending);
    let worker = mill.worker().handle(move |_: super::ask::Echo, cx: Context| {
        let (place, end) = (place.clone(), Arc::clone(&end));
        async move {
            let (asked, is_asked) = tokio::sync::oneshot::channel();
            // A task of its own goes on when the handler is dropped.
            *end.lock().await = Some(tokio::spawn(async move {
                let mut client = connect(&place).await;
                let transaction = client.transaction().await.unwrap();
                cx.settle_in(&transaction, "decided").await.unwrap();
                asked.send(()).unwrap();
                await_a_lock(&place).await;
                transaction.commit().await.unwrap();
            }));
            is_asked.await?;
            std::future::pending().await
        }
    });
    testing::drain(worker).await.unwrap();
    ending.lock().await.take().unwrap().await.unwrap();
    let job = mill.job(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.output.unwrap().as_str()), (State::Done, "\"decided\""));
}

/// Waits until somebody waits for a lock.
async fn await_a_lock(url: &str) {
    let watching = connect(url).await;
    let waits = "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let looking = async {
        while watching.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), looking).await.unwrap();
}
