//! Dead letters: every field one can search by, alone and together.

use jiff::SignedDuration;
use tidemill_core::dead::{DeadFilter, Triage, fingerprint};
use tidemill_core::{ErrorClass, JobId, NewJob};

use super::kit::{HOUR, Kit, dead, job, json};

over_both_stores!(
    every_field_can_be_searched_by,
    a_payload_field_is_compared_as_text,
    an_error_is_searched_for_its_plain_text,
    times_include_the_first_and_exclude_the_last,
    conditions_hold_together,
);

fn anyone() -> DeadFilter {
    DeadFilter::default()
}

async fn found(kit: &Kit, filter: &DeadFilter) -> Vec<JobId> {
    let mut ids: Vec<_> = kit.store.dead(filter, None, 100).await.unwrap();
    ids.sort_by_key(|letter| letter.id);
    ids.into_iter().map(|letter| letter.id).collect()
}

async fn every_field_can_be_searched_by(kit: &Kit) {
    let some = |text: &str| Some(text.to_owned());
    let plain = kit.finish(job("k"), dead("plain")).await;
    let kind = kit.finish(job("other"), dead("plain")).await;
    let tenant = kit.finish(NewJob { tenant: some("t"), ..job("k") }, dead("plain")).await;
    let error = kit.finish(job("k"), dead("user 7 is gone")).await;
    let mut tagged = job("k");
    tagged.options.tags = vec!["red".into(), "blue".into()];
    let tagged = kit.finish(tagged, dead("plain")).await;
    let queue = NewJob { queue: "q".into(), ..job("k") };
    let queue = {
        let id = kit.put(queue).await;
        let worker = kit.worker().await;
        let claim = kit.store.claim(super::kit::ask(worker, "q", 1)).await.unwrap();
        kit.settle(worker, &claim, dead("plain")).await;
        id
    };
    kit.store.dead_note(&[plain], "me", "", Some(Triage::Abandoned), None).await.unwrap();
    let print = fingerprint("k", ErrorClass::Transient, "user 9 is gone");
    for (filter, expected) in [
        (anyone(), vec![plain, kind, tenant, error, tagged, queue]),
        (DeadFilter { ids: vec![kind, plain, JobId::new()], ..anyone() }, vec![plain, kind]),
        (DeadFilter { kind: some("other"), ..anyone() }, vec![kind]),
        (DeadFilter { queue: some("q"), ..anyone() }, vec![queue]),
        (DeadFilter { tenant: some("t"), ..anyone() }, vec![tenant]),
        (DeadFilter { fingerprint: Some(print), ..anyone() }, vec![error]),
        (DeadFilter { triage: Some(Triage::Abandoned), ..anyone() }, vec![plain]),
        (DeadFilter { tag: some("blue"), ..anyone() }, vec![tagged]),
        (DeadFilter { tag: some("blu"), ..anyone() }, vec![]),
        (DeadFilter { error_contains: some("is gone"), ..anyone() }, vec![error]),
        (DeadFilter { kind: some("none"), ..anyone() }, vec![]),
    ] {
        assert_eq!(found(kit, &filter).await, expected, "{filter:?}");
        let count: u64 =
            kit.store.dead_groups(&filter).await.unwrap().iter().map(|g| g.count).sum();
        assert_eq!(count, expected.len() as u64, "groups of {filter:?}");
    }
}

async fn a_payload_field_is_compared_as_text(kit: &Kit) {
    let with = |text: &str| NewJob { payload: json(text), ..job("k") };
    let nested = kit.finish(with(r#"{"user":{"id":42,"name":"ada"}}"#), dead("x")).await;
    let text = kit.finish(with(r#"{"user":{"id":"42"},"ok":true}"#), dead("x")).await;
    let large = kit.finish(with(r#"{"n":9007199254740993,"none":null}"#), dead("x")).await;
    kit.finish(with("[1,2]"), dead("x")).await;
    kit.finish(with("\"user\""), dead("x")).await;
    for (path, value, expected) in [
        ("user.id", "42", vec![nested, text]),
        ("user.name", "ada", vec![nested]),
        ("user.name", "ad", vec![]),
        ("ok", "true", vec![text]),
        ("n", "9007199254740993", vec![large]),
        ("n", "9007199254740992", vec![]),
        ("no.such.path", "1", vec![]),
        ("it's \"odd\"", "1", vec![]),
    ] {
        let payload_field = Some((path.to_owned(), value.to_owned()));
        let filter = DeadFilter { payload_field, ..anyone() };
        assert_eq!(found(kit, &filter).await, expected, "{path} = {value}");
    }
}

async fn an_error_is_searched_for_its_plain_text(kit: &Kit) {
    let percent = kit.finish(job("k"), dead("100% full_disk \\ Ω")).await;
    kit.finish(job("k"), dead("1000 fullXdisk")).await;
    for (text, expected) in [
        ("100%", vec![percent]),
        ("full_", vec![percent]),
        ("\\ Ω", vec![percent]),
        ("%disk", vec![]),
    ] {
        let filter = DeadFilter { error_contains: Some(text.to_owned()), ..anyone() };
        assert_eq!(found(kit, &filter).await, expected, "{text}");
    }
}

async fn times_include_the_first_and_exclude_the_last(kit: &Kit) {
    let first = kit.finish(job("k"), dead("x")).await;
    let first_at = kit.clock.now();
    kit.clock.advance(HOUR);
    let second = kit.finish(job("k"), dead("x")).await;
    let second_at = kit.clock.now();
    let tick = SignedDuration::from_micros(1);
    for (from, until, expected) in [
        (Some(first_at), None, vec![first, second]),
        (Some(first_at + tick), None, vec![second]),
        (None, Some(second_at), vec![first]),
        (None, Some(second_at + tick), vec![first, second]),
        (Some(first_at), Some(first_at), vec![]),
        (Some(second_at), Some(second_at + tick), vec![second]),
    ] {
        let filter = DeadFilter { died_from: from, died_until: until, ..anyone() };
        assert_eq!(found(kit, &filter).await, expected, "{from:?} {until:?}");
    }
}

async fn conditions_hold_together(kit: &Kit) {
    let with = |tenant: &str, n: u8| NewJob {
        tenant: Some(tenant.into()),
        payload: json(&format!(r#"{{"n":{n}}}"#)),
        ..job("k")
    };
    let both = kit.finish(with("t", 1), dead("x")).await;
    kit.finish(with("t", 2), dead("x")).await;
    kit.finish(with("s", 1), dead("x")).await;
    let filter = DeadFilter {
        tenant: Some("t".into()),
        payload_field: Some(("n".into(), "1".into())),
        error_contains: Some("x".into()),
        kind: Some("k".into()),
        ..anyone()
    };
    assert_eq!(found(kit, &filter).await, [both]);
}
