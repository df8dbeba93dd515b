//! The store is away after something was written: what is done is not told to be undone.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tidemill::store::tokio_postgres::{NoTls, connect};
use tidemill::{JobFilter, Tidemill};
use tidemill_server::Server;
use tidemill_testkit::Cluster;
use tidemill_testkit::eventually::eventually;

use super::kit::{Kit, Told, settings};

const SOON: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_enqueued_is_told_to_be_though_its_end_cannot_be_seen() {
    let mut cluster = Cluster::start().unwrap();
    let mill = Tidemill::open(&cluster.url("postgres")).await.unwrap();
    let server = Server::start(mill.clone(), settings()).await.unwrap();
    let url = format!("http://{}/v1/jobs", server.address());
    let sending = tokio::spawn(async move {
        let request = reqwest::Client::new().request(Method::POST, url);
        let request = request.header("prefer", "wait=20").json(&json!({ "kind": "echo" }));
        Told::of(request.send().await.unwrap()).await
    });
    // The row is there before the server hears that it is; what it counts, it has heard of.
    let counted = r#"tidemill_jobs_enqueued_total{queue="default",kind="echo"} 1"#;
    eventually("the server to know that it is enqueued", SOON, async || {
        mill.metrics().await.contains(counted).then_some(())
    })
    .await;
    let id = mill.jobs(&JobFilter::default()).await.unwrap()[0].job.id;
    cluster.stop().unwrap();
    let told = sending.await.unwrap().is(202);
    assert_eq!(told.body["id"], id.to_string());
    assert_eq!(told.header("location"), format!("/v1/jobs/{id}"));
    server.stop().await;
}

/// From now on whoever reads rows of a table for which this holds is told that it cannot be done for now.
async fn refuse(kit: &Kit, table: &str, which: &str) {
    let (client, connection) = connect(kit.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let statements = format!(
        "alter table tidemill.{table} rename to kept;
        create function tidemill.not_now() returns boolean language plpgsql as $$
        begin
            raise exception 'not now' using errcode = '55P03';
        end $$;
        create view tidemill.{table} as
        select * from tidemill.kept where case when {which} then tidemill.not_now() else true end"
    );
    client.batch_execute(&statements).await.unwrap();
}

#[tokio::test]
async fn a_pause_that_is_written_is_told_to_be_perhaps_though_it_cannot_be_looked_at() {
    let kit = Kit::postgres().await;
    let schedule = json!({ "cron": "30 2 * * *", "zone": "UTC", "job": { "kind": "echo" } });
    kit.send(Method::PUT, "/v1/schedules/s", &[], schedule).await.is(200);
    refuse(&kit, "schedule", "paused").await;
    let told = kit.post("/v1/schedules/s/pause", json!({})).await.refused(503, "store_busy", "");
    assert_eq!(told.body["unknown"], true, "{told:?}");
    kit.close().await;
}
