//! Everything works through PgBouncer in transaction mode, where nothing of a session survives.

use tidemill::Tidemill;
use tidemill_testkit::Pgbouncer;
use tidemill_testkit::databases::fresh_postgres_url;
use tokio_postgres::NoTls;

use super::kit::{Echo, SOON};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_behind_pgbouncer_is_a_store() {
    let url = fresh_postgres_url();
    let bouncer = Pgbouncer::start(&url).unwrap();
    let through = bouncer.through(&url).unwrap();
    let mill = Tidemill::open(&through).await.unwrap();
    let other = Tidemill::open(&through).await.unwrap();
    let worker = other.worker().handle(|echo: Echo, cx| async move {
        if echo.text == "first" {
            cx.follow_up(Echo::new("follow-up"))?;
        }
        Ok(echo.text)
    });
    let running = worker.start().await.unwrap();
    let first = mill.enqueue(Echo::new("first")).await.unwrap().id();
    assert_eq!(mill.result::<Echo>(first, SOON).await.unwrap(), "first");
    let many = mill.enqueue_many((0..500).map(|n| Echo::new(&n.to_string()))).await.unwrap();
    for receipt in many {
        mill.result::<Echo>(receipt.id(), SOON).await.unwrap();
    }
    let (mut client, connection) = tokio_postgres::connect(&through, NoTls).await.unwrap();
    tokio::spawn(connection);
    for n in 0..10 {
        let transaction = client.transaction().await.unwrap();
        let job = Echo::new(&format!("in transaction {n}"));
        let id = mill.enqueue_in(&transaction, job.clone()).await.unwrap().id();
        transaction.commit().await.unwrap();
        mill.wake("default");
        assert_eq!(mill.result::<Echo>(id, SOON).await.unwrap(), job.text);
    }
    running.stop().await;
    assert_eq!(mill.unfinished().await.unwrap().waiting, 0);
}
