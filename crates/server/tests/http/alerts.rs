//! Built-in alerts: seen at once by whoever asks, and told once they have held.

use std::time::Duration;

use serde_json::{Value, json};
use tidemill::{AlertKind, Grant, Role};
use tidemill_testkit::eventually::eventually;

use super::kit::Kit;

over_both_stores!(
    alerts_hold_until_somebody_sees_to_it,
    alerts_of_queues_are_for_those_who_reach_them,
);

const SOON: Duration = Duration::from_mins(1);

async fn alerts(kit: &Kit) -> Vec<Value> {
    kit.get("/v1/alerts").await.is(200).body.as_array().unwrap().clone()
}

async fn alerts_hold_until_somebody_sees_to_it(kit: Kit) {
    assert!(alerts(&kit).await.is_empty());
    let mut told = kit.mill.watch_alerts();
    for _ in 0..10 {
        kit.enqueue(json!({ "kind": "fail" })).await;
    }
    let seen = eventually("an alert for a kind that nobody knows", SOON, async || {
        alerts(&kit).await.into_iter().find(|alert| alert["alert"] == "no_worker")
    })
    .await;
    assert_eq!((&seen["queue"], &seen["kind"]), (&json!("default"), &json!("fail")));
    assert!(seen["sentence"].as_str().unwrap().contains("no live worker knows"));
    // It is told when it has held for a while.
    let holds = told.wait_for(|alerts| alerts.iter().any(|a| a.alert == AlertKind::NoWorker));
    let holds = tokio::time::timeout(SOON, holds).await.unwrap().unwrap().clone();
    assert!(holds[0].since.is_some());
    let worker = kit.work().await;
    let seen = eventually("one that is over and one that is new", SOON, async || {
        let words: Vec<_> = alerts(&kit).await.iter().map(|a| a["alert"].clone()).collect();
        (words == [json!("dead_letters")]).then_some(())
    });
    seen.await;
    let over = told.wait_for(|alerts| alerts.iter().all(|a| a.alert != AlertKind::NoWorker));
    tokio::time::timeout(SOON, over).await.unwrap().unwrap();
    worker.stop().await;
    kit.close().await;
}

async fn alerts_of_queues_are_for_those_who_reach_them(kit: Kit) {
    for queue in ["mail:eu", "other"] {
        kit.enqueue(json!({ "kind": "nobody", "queue": queue })).await;
    }
    let kit = kit.closed().await;
    let grant = Grant { queues: vec!["mail:*".into()], ..Grant::new(Role::Viewer) };
    let secret = kit.credential("mailer", grant).await;
    let path = "/v1/alerts";
    let admin = kit.credential("root", Grant::new(Role::Admin)).await;
    let queues = async |secret: &str| {
        let told = kit.ask(secret, reqwest::Method::GET, path, json!({})).await.is(200).body;
        told.as_array().unwrap().iter().map(|a| a["queue"].clone()).collect::<Vec<_>>()
    };
    eventually("both to be seen", SOON, async || (queues(&admin).await.len() == 2).then_some(()))
        .await;
    assert_eq!(queues(&secret).await, ["mail:eu"]);
    kit.close().await;
}
