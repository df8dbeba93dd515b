//! What was sent is what arrives: every wish and every character of a payload, exactly.

use tidemill_core::webhook::Tell;
use tidemill_core::workflow::Origin;
use tidemill_core::{
    Backoff, Due, Jitter, Job, JobId, NewJob, OnDead, OnDuplicate, Options, OwnRetry, Payload,
    Priority, Scope, Settlement,
};

use super::kit::{HOUR, Kit, SECOND, ask, item, job, json, unique};

over_both_stores!(
    every_wish_survives,
    payloads_are_not_touched,
    outputs_are_not_touched,
    names_may_hold_any_script,
    a_large_payload_survives,
);

fn wishes() -> Options {
    let backoff = Backoff::Exponential { base_ms: 5, cap_ms: 70, jitter: Jitter::Equal };
    Options {
        webhook: Some(Box::new(Tell { to: "w".into(), events: Vec::new() })),
        retry: Some(OwnRetry::attempts(7).backoff(backoff)),
        run_timeout_ms: Some(1),
        start_within_ms: Some(86_400_000),
        finish_within_ms: Some(u64::from(u32::MAX) * 10),
        tags: vec!["blue".into(), "a \"b\" \\ c".into(), "été ☕".into()],
        trace: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into()),
        retain_ms: Some(0),
        ordered: Some(OnDead::Skip),
        replayed_at: Some(jiff::Timestamp::from_microsecond(1_700_000_000_000_001).unwrap()),
        parent: None,
        origins: vec![Origin { run: JobId(uuid::Uuid::from_u128(7)), until: 7 }],
        turn: 3,
        flow: None,
        stays: false,
    }
}

async fn every_wish_survives(kit: &Kit) {
    let sent = NewJob {
        queue: "mail/out".into(),
        priority: Priority::High,
        tenant: Some("acme".into()),
        key: Some("customer:42".into()),
        options: wishes(),
        payload: json(r#"{"to":"a@example.com"}"#),
        due: Due::In(SECOND),
        ..unique("u", Scope::Period(HOUR), OnDuplicate::Join)
    };
    let id = kit.put(sent.clone()).await;
    let expected = Job {
        id,
        kind: sent.kind,
        queue: sent.queue,
        priority: sent.priority,
        tenant: sent.tenant,
        key: sent.key,
        unique_key: sent.unique.map(|unique| unique.key),
        payload: sent.payload,
        options: sent.options,
        created_at: kit.clock.now(),
    };
    assert_eq!(kit.view(id).await.job, expected);
    kit.clock.advance(SECOND);
    let worker = kit.worker().await;
    let claim = kit.store.claim(ask(worker, "mail/out", 1)).await.unwrap();
    assert_eq!(*claim.jobs[0].job, expected);
}

const PAYLOADS: [&str; 9] = [
    "null",
    "\"\"",
    "9007199254740993",
    r#"{"n":123456789012345678901234567890,"m":-0.10e+2,"z":1.0}"#,
    r#"{"b":1,"a":2,"b":3}"#,
    r#"{"spaces" :  [ 1 , 2 ] }"#,
    r#"["été","日本語","👩‍👩‍👧","\ud83d\ude00","\u00e9","\\u0000","\"","\n\t","' -- $1 ? :a"]"#,
    r#"{"":{"":[]}}"#,
    "1e400",
];

async fn payloads_are_not_touched(kit: &Kit) {
    let worker = kit.worker().await;
    for text in PAYLOADS {
        let id = kit.put(NewJob { payload: json(text), ..job("k") }).await;
        assert_eq!(kit.view(id).await.job.payload.as_str(), text);
        let claim = kit.take_one(worker).await;
        assert_eq!(claim.jobs[0].job.payload.as_str(), text);
    }
    let keyed = PAYLOADS.iter().enumerate().map(|(n, text)| NewJob {
        payload: json(text),
        ..unique(&n.to_string(), Scope::Unfinished, OnDuplicate::Reject)
    });
    kit.store.enqueue(keyed.collect()).await.unwrap();
    let mut got: Vec<_> = kit.take(worker, 99).await.jobs;
    got.sort_by_key(|taken| taken.job.id);
    let got: Vec<_> = got.iter().map(|taken| taken.job.payload.as_str()).collect();
    assert_eq!(got, PAYLOADS, "also on the way of unique keys");
}

async fn outputs_are_not_touched(kit: &Kit) {
    for text in PAYLOADS {
        let follow_up = NewJob { payload: json(text), queue: "next".into(), ..job("k") };
        let next = follow_up.id;
        let how = Settlement::Done { output: json(text), follow_ups: vec![follow_up] };
        let id = kit.finish(job("k"), how).await;
        assert_eq!(kit.view(id).await.output.as_ref().map(Payload::as_str), Some(text));
        assert_eq!(kit.view(next).await.job.payload.as_str(), text);
    }
}

async fn names_may_hold_any_script(kit: &Kit) {
    let odd = "naïve 'quote\" {brace} \\ ☕,日本";
    let sent = NewJob {
        kind: odd.into(),
        queue: odd.into(),
        tenant: Some(odd.into()),
        key: Some(odd.into()),
        ..unique(odd, Scope::Forever, OnDuplicate::Reject)
    };
    let id = kit.put(sent).await;
    let worker = kit.worker().await;
    let claim = kit.store.claim(ask(worker, odd, 1)).await.unwrap();
    let got = &claim.jobs[0].job;
    assert_eq!((got.id, got.kind.as_str(), got.queue.as_str()), (id, odd, odd));
    assert_eq!((got.tenant.as_deref(), got.key.as_deref()), (Some(odd), Some(odd)));
    let items = vec![item(&claim, 0, super::kit::dead(odd))];
    kit.store.settle(worker, items).await.unwrap();
    assert_eq!(kit.view(id).await.error.as_deref(), Some(odd));
}

async fn a_large_payload_survives(kit: &Kit) {
    let text = format!("\"{}\"", "é".repeat(500_000));
    let id = kit.put(NewJob { payload: json(&text), ..job("k") }).await;
    assert!(kit.view(id).await.job.payload.as_str() == text);
}
