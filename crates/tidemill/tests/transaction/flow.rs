//! Flows in the caller's own transaction, by every driver: the same meaning for all.

use std::time::Duration;

use sqlx::{Connection as _, PgConnection, SqliteConnection};
use tidemill::core::flow::FlowState;
use tidemill::{Enqueue, Flow, FlowFilter, Settings, Tidemill};
use tidemill_testkit::databases::{fresh_postgres_url, fresh_sqlite_url};
use tokio_postgres::NoTls;

const SOON: Duration = Duration::from_secs(30);
/// Kept to its last digit.
const PAYLOAD: &str = r#"{"n":9007199254740993,"text":"é\"\\ \u001f"}"#;

fn flow() -> Flow {
    let job = |kind: &str| Enqueue::raw(kind, PAYLOAD).queue("flows").tenant("acme").tag("t");
    Flow::new("order")
        .step("stock", job("k"))
        .fan_out("parts", (0..30).map(|_| job("k")))
        .step("ship", job("k").delay(Duration::from_millis(1)))
        .after_when("stock", "output.n > 1")
        .after("parts")
}

/// `start` starts the flow in a transaction, and commits it or not.
async fn means_the_same(url: &str, start: impl AsyncFn(&Tidemill, Flow, bool)) {
    let mill = Tidemill::open(url).await.unwrap();
    start(&mill, flow(), false).await;
    assert!(mill.flows(&FlowFilter::default()).await.unwrap().is_empty(), "it never was");
    let worker = mill.worker().queues(["flows"]);
    let worker = worker.handle_raw("k", Settings::default(), |payload, _| async { Ok(payload) });
    let running = worker.start().await.unwrap();
    for flow in [flow(), flow().at_once(4)] {
        let id = tidemill::FlowId::new();
        start(&mill, flow.clone().id(id), true).await;
        start(&mill, flow.id(id), true).await;
        mill.wake_flows();
        let view = mill.wait_flow(id, SOON).await.unwrap();
        assert_eq!((view.head.state, view.head.done, view.head.jobs), (FlowState::Done, 32, 32));
        let ship = mill.job(view.steps[2].first.unwrap()).await.unwrap().unwrap();
        assert_eq!(ship.job.payload.as_str(), PAYLOAD);
        assert_eq!((ship.job.tenant.as_deref(), ship.job.options.tags.len()), (Some("acme"), 1));
    }
    running.stop().await;
    mill.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_tokio_postgres() {
    let url = fresh_postgres_url();
    means_the_same(&url, async |mill, flow, commits| {
        let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let transaction = client.transaction().await.unwrap();
        mill.start_in(&transaction, flow).await.unwrap();
        if commits {
            transaction.commit().await.unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_sqlx_on_postgres() {
    let url = fresh_postgres_url();
    means_the_same(&url, async |mill, flow, commits| {
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let mut transaction = connection.begin().await.unwrap();
        mill.start_in(&mut transaction, flow).await.unwrap();
        if commits {
            transaction.commit().await.unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_rusqlite() {
    let (_folder, url) = fresh_sqlite_url();
    means_the_same(&url, async |mill, flow, commits| {
        let file = url.strip_prefix("sqlite:").unwrap();
        let mut connection = rusqlite::Connection::open(file).unwrap();
        connection.busy_timeout(SOON).unwrap();
        let immediate = rusqlite::TransactionBehavior::Immediate;
        let transaction = connection.transaction_with_behavior(immediate).unwrap();
        mill.start_in_rusqlite(&transaction, flow).unwrap();
        if commits {
            transaction.commit().unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_sqlx_on_sqlite() {
    let (_folder, url) = fresh_sqlite_url();
    means_the_same(&url, async |mill, flow, commits| {
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
        mill.start_in(&mut transaction, flow).await.unwrap();
        if commits {
            transaction.commit().await.unwrap();
        }
    })
    .await;
}
