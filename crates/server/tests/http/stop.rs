//! Health, and the end of a server.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tidemill::{JobId, Payload};
use tokio::sync::Notify;

use super::kit::{Kit, Told};

over_both_stores!(
    who_waits_for_a_job_is_answered_before_the_server_ends,
    a_store_that_cannot_write_is_not_ready,
);

async fn who_waits_for_a_job_is_answered_before_the_server_ends(kit: Kit) {
    let (started, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, goes_on) = (Arc::clone(&started), Arc::clone(&release));
    let handler = move |payload: Payload, _| {
        let (begins, goes_on) = (Arc::clone(&begins), Arc::clone(&goes_on));
        async move {
            begins.notify_one();
            goes_on.notified().await;
            Ok(payload)
        }
    };
    let worker = kit.mill.worker().handle_raw("slow", tidemill::Settings::default(), handler);
    let worker = worker.start().await.unwrap();
    let wish = json!({ "kind": "slow", "payload": 1 });
    let request = kit.request(Method::POST, "/v1/jobs").header("prefer", "wait=30").json(&wish);
    let waiting = tokio::spawn(async move { Told::of(request.send().await.unwrap()).await });
    started.notified().await;
    let livez = kit.request(Method::GET, "/livez");
    let Kit { mill, server, .. } = kit;
    // The job goes on; who waits for it learns at once which one it is, and can ask elsewhere.
    let (told, ()) = tokio::join!(async { waiting.await.unwrap() }, server.stop());
    let id: JobId = told.is(202).body["id"].as_str().unwrap().parse().unwrap();
    assert!(livez.send().await.is_err(), "nobody listens");
    release.notify_one();
    let view = mill.wait(id, Duration::from_secs(30)).await.unwrap();
    assert_eq!(view.output.unwrap().as_str(), "1");
    worker.stop().await;
    mill.close().await;
}

async fn a_store_that_cannot_write_is_not_ready(kit: Kit) {
    for path in ["/livez", "/startupz", "/readyz"] {
        assert_eq!(kit.get(path).await.is(200).body, "ok");
    }
    kit.mill.close().await;
    let told = kit.get("/readyz").await.refused(503, "not_ready", "");
    assert_eq!(told.header("retry-after"), "1");
    kit.get("/livez").await.is(200);
    kit.server.stop().await;
}
