//! Databases are fresh, also behind PgBouncer.

use tidemill_testkit::Pgbouncer;
use tidemill_testkit::databases::{fresh_postgres_url, fresh_sqlite_url};
use tokio_postgres::{NoTls, SimpleQueryMessage};

async fn current_database(url: &str) -> String {
    let connected = tokio_postgres::connect(url, NoTls).await;
    let (client, connection) = connected.expect("the database takes connections");
    tokio::spawn(connection);
    let messages = client.simple_query("SELECT current_database()").await;
    let messages = messages.expect("the database answers");
    let name = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    name.expect("the answer has a row")
}

#[tokio::test]
async fn each_call_makes_another_database() {
    let (first, second) = (fresh_postgres_url(), fresh_postgres_url());
    assert_ne!(first, second);
    assert!(first.ends_with(&current_database(&first).await));
    assert!(second.ends_with(&current_database(&second).await));
}

#[tokio::test]
async fn bouncer_reaches_the_same_database() {
    let direct = fresh_postgres_url();
    let bouncer = Pgbouncer::start(&direct).unwrap();
    let through = bouncer.through(&direct).unwrap();
    assert_ne!(direct, through);
    assert_eq!(current_database(&direct).await, current_database(&through).await);
}

#[test]
fn sqlite_folders_differ_and_are_empty() {
    let (first, first_url) = fresh_sqlite_url();
    let (_second, second_url) = fresh_sqlite_url();
    assert_ne!(first_url, second_url);
    assert_eq!(std::fs::read_dir(first.path()).unwrap().count(), 0);
}
