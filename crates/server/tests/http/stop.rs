//! Health, and the end of a server.

use std::sync::Arc;

use reqwest::Method;
use serde_json::json;
use tidemill::Payload;
use tokio::sync::Notify;

use super::kit::{Kit, Told};

over_both_stores!(
    a_request_under_way_is_answered_before_the_server_ends,
    a_store_that_cannot_write_is_not_ready,
);

async fn a_request_under_way_is_answered_before_the_server_ends(kit: Kit) {
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
    let (told, ()) = tokio::join!(
        async {
            release.notify_one();
            waiting.await.unwrap()
        },
        server.stop(),
    );
    assert_eq!(told.is(200).body["output"], 1);
    assert!(livez.send().await.is_err(), "nobody listens");
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
