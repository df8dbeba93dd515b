//! Health, and the end of a server.

use serde_json::json;

use super::kit::Kit;

over_both_stores!(
    a_request_under_way_is_answered_before_the_server_ends,
    a_store_that_cannot_write_is_not_ready,
);

async fn a_request_under_way_is_answered_before_the_server_ends(kit: Kit) {
    let id = kit.enqueue(json!({ "kind": "echo", "payload": 1 })).await;
    let url = format!("http://{}/v1/jobs/{id}/wait?timeout=30s", kit.server.address());
    let waiting = tokio::spawn(async move { reqwest::get(url).await.unwrap().status().as_u16() });
    // Who waits has said so to the store, and is under way.
    let mut hints = kit.mill.store().wake().listen();
    kit.get("/livez").await.is(200);
    drop(hints.try_recv());
    let worker = kit.work().await;
    let address = kit.server.address();
    let Kit { mill, server, .. } = kit;
    server.stop().await;
    assert_eq!(waiting.await.unwrap(), 200);
    assert!(reqwest::get(format!("http://{address}/livez")).await.is_err(), "nobody listens");
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
