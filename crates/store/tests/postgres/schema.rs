//! The schema: whose it is, and where the view stands.

use tidemill_store::{OpenOptions, open};
use tidemill_testkit::databases::{empty_postgres_url, fresh_postgres_url};

use super::kit::{connect, store};

#[tokio::test]
async fn a_migration_that_is_not_ours_is_refused() {
    let url = fresh_postgres_url();
    store(&url).await.close().await;
    let client = connect(&url).await;
    client.batch_execute("update tidemill.schema_version set checksum = 'other'").await.unwrap();
    let error = open(&url, OpenOptions::default()).await.map(|_| ()).unwrap_err();
    assert_eq!(error.code(), "store_refused");
    assert!(error.to_string().contains("migration 1"), "{error}");
}

#[tokio::test]
async fn the_view_stands_where_the_search_path_begins() {
    let url = empty_postgres_url();
    let client = connect(&url).await;
    client.batch_execute("create schema app").await.unwrap();
    let in_app = format!("{url}?options=-c%20search_path%3Dapp,public");
    store(&in_app).await.close().await;
    client.batch_execute("insert into app.tidemill_enqueue (kind) values ('k')").await.unwrap();
    let rows = client.query("select id from tidemill.job", &[]).await.unwrap();
    assert_eq!(rows.len(), 1);
}

#[tokio::test]
async fn who_may_not_create_in_the_first_schema_gets_the_view_beside_the_tables() {
    let url = empty_postgres_url();
    let client = connect(&url).await;
    let role = format!("app_{:x}", std::process::id());
    let grant = format!(
        "drop role if exists {role}; create role {role} login; \
         do $$ begin execute format('grant create on database %I to {role}', current_database()); end $$; \
         revoke create on schema public from public"
    );
    client.batch_execute(&grant).await.unwrap();
    let (_, rest) = url.split_once('@').unwrap();
    let as_role = format!("postgres://{role}@{rest}");
    store(&as_role).await.close().await;
    let client = connect(&as_role).await;
    client
        .batch_execute("insert into tidemill.tidemill_enqueue (kind) values ('k')")
        .await
        .unwrap();
}
