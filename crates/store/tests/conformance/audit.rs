//! The record of who did what.

use tidemill_core::{AuditId, CredentialId};
use tidemill_store::audit::{AuditEnd, AuditFilter, AuditView, NewAudit};

use super::kit::{HOUR, Kit, SECOND};

over_both_stores!(
    an_act_is_written_down_before_it_is_done_and_completed_once,
    acts_are_found_by_every_field_in_pages,
    acts_are_forgotten_by_age_and_number,
    refused_acts_push_out_nothing_that_was_done,
);

fn new(who: &str, act: &str, target: &str) -> NewAudit {
    let [who, act, target] = [who, act, target].map(str::to_owned);
    let (id, credential) = (AuditId::new(), None);
    let (target_kind, detail) = ("job".to_owned(), String::new());
    NewAudit { id, who, credential, act, target_kind, target, detail }
}

async fn list(kit: &Kit, filter: AuditFilter) -> Vec<AuditView> {
    kit.store.audit(&AuditFilter { limit: 100, ..filter }).await.unwrap()
}

async fn an_act_is_written_down_before_it_is_done_and_completed_once(kit: &Kit) {
    let credential = Some(CredentialId::new());
    let act = NewAudit { credential, detail: "queue=mail".into(), ..new("ada", "plan_dead", "") };
    kit.store.begin_audit(act.clone()).await.unwrap();
    kit.store.begin_audit(act.clone()).await.unwrap();
    let begun = list(kit, AuditFilter::default()).await;
    assert_eq!(begun.len(), 1, "sent again it is the same");
    let expected = AuditView {
        id: act.id,
        at: kit.clock.now(),
        who: "ada".into(),
        credential,
        act: "plan_dead".into(),
        target_kind: "job".into(),
        target: String::new(),
        detail: "queue=mail".into(),
        ended_at: None,
        result: None,
    };
    assert_eq!(begun[0], expected);
    kit.clock.advance(SECOND);
    let target = Some(("plan".to_owned(), "7".to_owned()));
    let end = AuditEnd { result: "ok".into(), target, detail: "3 letters".into() };
    kit.store.end_audit(act.id, end.clone()).await.unwrap();
    let ended = list(kit, AuditFilter::default()).await.remove(0);
    assert_eq!((ended.target_kind.as_str(), ended.target.as_str()), ("plan", "7"));
    assert_eq!(
        (ended.detail.as_str(), ended.result.as_deref()),
        ("queue=mail 3 letters", Some("ok"))
    );
    assert_eq!(ended.ended_at, Some(kit.clock.now()));
    kit.store.end_audit(act.id, AuditEnd { result: "other".into(), ..end }).await.unwrap();
    assert_eq!(list(kit, AuditFilter::default()).await, [ended], "what was said stays");
}

async fn acts_are_found_by_every_field_in_pages(kit: &Kit) {
    let start = kit.clock.now();
    let mut ids = Vec::new();
    for (who, act, target) in
        [("ada", "cancel", "1"), ("bob", "cancel", "2"), ("ada", "pause", "1"), ("eve", "x", "3")]
    {
        let act = new(who, act, target);
        ids.push(act.id);
        kit.store.begin_audit(act).await.unwrap();
        kit.clock.advance(SECOND);
    }
    let some = |text: &str| Some(text.to_owned());
    let any = AuditFilter::default;
    for (filter, expected) in [
        (any(), vec![3, 2, 1, 0]),
        (AuditFilter { who: some("ada"), ..any() }, vec![2, 0]),
        (AuditFilter { act: some("cancel"), ..any() }, vec![1, 0]),
        (AuditFilter { target: some("1"), ..any() }, vec![2, 0]),
        (AuditFilter { since: Some(start + SECOND), ..any() }, vec![3, 2, 1]),
        (AuditFilter { until: Some(start + SECOND), ..any() }, vec![0]),
        (AuditFilter { before: Some(ids[2]), ..any() }, vec![1, 0]),
        (AuditFilter { who: some("ada"), act: some("cancel"), ..any() }, vec![0]),
    ] {
        let found = list(kit, filter.clone()).await;
        let found: Vec<_> = found.into_iter().map(|act| act.id).collect();
        let expected: Vec<_> = expected.into_iter().map(|at| ids[at]).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
    let page = kit.store.audit(&AuditFilter { limit: 2, ..any() }).await.unwrap();
    assert_eq!(page.len(), 2);
}

async fn acts_are_forgotten_by_age_and_number(kit: &Kit) {
    let mut ids = Vec::new();
    for n in 0..6 {
        let act = new("ada", "cancel", &n.to_string());
        ids.push(act.id);
        kit.store.begin_audit(act).await.unwrap();
        kit.clock.advance(HOUR);
    }
    assert!(!kit.store.forget_audit(4 * HOUR + SECOND, 100).await.unwrap());
    let left = async || {
        let acts = list(kit, AuditFilter::default()).await;
        acts.into_iter().map(|act| act.id).collect::<Vec<_>>()
    };
    assert_eq!(left().await, [ids[5], ids[4], ids[3], ids[2]]);
    kit.store.forget_audit(100 * HOUR, 3).await.unwrap();
    assert_eq!(left().await, [ids[5], ids[4], ids[3]]);
}

async fn refused_acts_push_out_nothing_that_was_done(kit: &Kit) {
    let acts = async |who: &str, results: &[Option<&str>]| {
        let mut ids = Vec::new();
        for result in results {
            let act = new(who, "cancel", "1");
            ids.push(act.id);
            kit.store.begin_audit(act.clone()).await.unwrap();
            if let Some(result) = result {
                let end = AuditEnd { result: (*result).to_owned(), ..AuditEnd::default() };
                kit.store.end_audit(act.id, end).await.unwrap();
            }
        }
        ids
    };
    // Done, under way, and perhaps done.
    let kept = acts("ada", &[Some("ok"), None, Some("store_unavailable"), Some("ok")]).await;
    let refused = acts("eve", &[Some("role_refused"); 40]).await;
    let left = async || {
        let acts = list(kit, AuditFilter::default()).await;
        acts.into_iter().rev().map(|act| act.id).collect::<Vec<_>>()
    };
    // Of ten acts, two that were refused are kept beside.
    assert!(!kit.store.forget_audit(HOUR, 10).await.unwrap());
    assert_eq!(left().await, [&kept[..], &refused[38..]].concat());
    let more = acts("ada", &[Some("ok"); 8]).await;
    kit.store.forget_audit(HOUR, 10).await.unwrap();
    let expected = [&kept[2..], &refused[38..], &more[..]].concat();
    assert_eq!(left().await, expected, "what was done does not push out what was refused either");
    kit.clock.advance(2 * HOUR);
    kit.store.forget_audit(HOUR, 10).await.unwrap();
    assert!(left().await.is_empty(), "age holds for all");
}
