//! Bad input: a clear error with a stable code, and nothing written, not even half of a batch.

use std::time::Duration;

use tidemill::core::dead::plan::Act;
use tidemill::{DeadFilter, Enqueue, Flow, Limits, Tidemill, Timestamp, Triage, Unique};

use super::kit::{Echo, Kit};

over_both_stores!(
    bad_input_is_refused_whole,
    limits_can_be_set,
    due_time_in_the_past_means_now,
    words_that_one_store_cannot_keep_are_kept_alike,
);

fn raw(payload: &str) -> Enqueue {
    Enqueue::raw("k", payload)
}

fn bad_jobs() -> Vec<(&'static str, Enqueue)> {
    let far = "2199-01-01T00:00:00Z".parse::<Timestamp>().unwrap();
    vec![
        ("payload_too_large", raw(&format!("\"{}\"", "x".repeat(1024 * 1024)))),
        ("payload_not_json", raw("{")),
        ("payload_not_json", raw("")),
        ("payload_too_deep", raw(&format!("{}{}", "[".repeat(65), "]".repeat(65)))),
        ("payload_nul", raw(r#""a\u0000b""#)),
        ("payload_surrogate", raw(r#""\ud800""#)),
        ("name_empty", Enqueue::raw("", "1")),
        ("name_empty", raw("1").queue("")),
        ("name_too_long", Enqueue::raw("k".repeat(201), "1")),
        ("name_too_long", raw("1").tenant("t".repeat(201))),
        ("name_invalid", raw("1").key("a\0b")),
        ("name_empty", raw("1").unique(Unique::by_key(""))),
        ("unique_field_missing", raw("{}").unique(Unique::by_fields(["user"]))),
        ("due_too_far", raw("1").delay(Duration::MAX)),
        ("due_too_far", raw("1").run_at(far)),
        ("tags_too_many", (0..33).fold(raw("1"), |job, n| job.tag(n.to_string()))),
    ]
}

async fn bad_input_is_refused_whole(kit: Kit) {
    let mill = kit.open().await;
    for (code, bad) in bad_jobs() {
        assert_eq!(mill.enqueue(bad).await.unwrap_err().code(), code);
    }
    for (code, bad) in bad_jobs() {
        let batch = [Enqueue::from(Echo::new("good")), bad];
        assert_eq!(mill.enqueue_many(batch).await.unwrap_err().code(), code);
    }
    let crowd = (0..10_001).map(|_| raw("1"));
    assert_eq!(mill.enqueue_many(crowd).await.unwrap_err().code(), "batch_too_large");
    assert!(mill.enqueue_many(Vec::<Enqueue>::new()).await.unwrap().is_empty());
    assert_eq!(mill.unfinished().await.unwrap().waiting, 0);
}

async fn limits_can_be_set(kit: Kit) {
    let limits = Limits { payload_bytes_max: 10, batch_jobs_max: 2, ..Limits::default() };
    let mill = Tidemill::builder().limits(limits).open(&kit.url).await.unwrap();
    assert!(mill.enqueue(raw("123456789")).await.is_ok());
    let error = mill.enqueue(raw("12345678901")).await.unwrap_err();
    assert_eq!(error.code(), "payload_too_large");
    assert!(error.to_string().contains("11 bytes"), "{error}");
    let error = mill.enqueue_many([raw("1"), raw("2"), raw("3")]).await.unwrap_err();
    assert_eq!(error.code(), "batch_too_large");
}

async fn due_time_in_the_past_means_now(kit: Kit) {
    let mill = kit.open_still().await;
    let id = mill.enqueue(raw("1").run_at(Timestamp::UNIX_EPOCH)).await.unwrap().id();
    assert_eq!(mill.job(id).await.unwrap().unwrap().due_at, Some(kit.clock.now()));
}

/// PostgreSQL has no U+0000 in text: what people say of their acts is kept without it, whichever store it is.
async fn words_that_one_store_cannot_keep_are_kept_alike(kit: Kit) {
    let mill = kit.open().await;
    let id = mill.enqueue(raw("1")).await.unwrap().id();
    mill.cancel(id, "no\0more").await.unwrap();
    let view = mill.job(id).await.unwrap().unwrap();
    assert_eq!(view.error.as_deref(), Some("no\u{FFFD}more"));
    let flow = mill.start(Flow::new("f").step("s", raw("1"))).await.unwrap();
    mill.cancel_flow(flow, "no\0more").await.unwrap();
    let reason = mill.flow(flow).await.unwrap().unwrap().head.reason;
    assert_eq!(reason.as_deref(), Some("no\u{FFFD}more"));
    let triaged = mill.dead().triage(&[id], Triage::Investigated, "a\0", "b\0").await;
    assert_eq!(triaged.unwrap(), 0);
    let plan = mill.dead().plan(DeadFilter::default(), Act::Archive, "a\0", "b\0").await.unwrap();
    assert_eq!(plan.by, "a\u{FFFD}");
    mill.close().await;
}
