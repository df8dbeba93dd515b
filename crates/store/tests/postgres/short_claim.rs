//! A claim that was not filled says what it left, also where it began at a mark: nobody asks again in vain.

use std::time::Duration;

use tidemill_core::{Due, NewJob};
use tidemill_testkit::databases::fresh_postgres_url;
use tokio_postgres::Client;

use super::kit::{connect, job, store, worker};

/// Claims five jobs from a mark: how many there were, whether something due was left, and whether more is to come.
const CLAIM: &str = "select c.ids, c.due, c.next_due is not null
    from tidemill.claim(now(), (select min(id::text)::uuid from tidemill.worker), tidemill.uuid7(), array['default'],
        array[(select min(priority) from tidemill.ready)], null, array[now() - interval '1 minute'], false, null,
        array[''], array[null]::text[], array[0], '{}', '{}', 10, 5, null, null) c
    limit 1";

async fn claim(client: &Client) -> (i32, bool, bool) {
    let row = client.query_one(CLAIM, &[]).await.unwrap();
    (row.get(0), row.get(1), row.get(2))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_short_claim_left_is_told() {
    let url = fresh_postgres_url();
    let store = store(&url).await;
    worker(&store).await;
    let client = connect(&url).await;
    store.enqueue(vec![job()]).await.unwrap();
    assert_eq!(claim(&client).await, (1, false, false), "nothing is left");
    // One is in other hands, and one is to come.
    store.enqueue(vec![job()]).await.unwrap();
    let mut other = connect(&url).await;
    let transaction = other.transaction().await.unwrap();
    transaction.execute("select from tidemill.ready for update", &[]).await.unwrap();
    store.enqueue(vec![job()]).await.unwrap();
    let due = Due::In(Duration::from_hours(1));
    store.enqueue(vec![NewJob { due, ..job() }]).await.unwrap();
    assert_eq!(claim(&client).await, (1, true, true), "something is left, and more will be due");
    transaction.rollback().await.unwrap();
    assert_eq!(claim(&client).await, (1, false, true), "more will be due");
}
