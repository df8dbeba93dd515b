//! Dead letters: kept with their story, grouped, noted, triaged, archived; and redrive rules.

use std::time::Duration;

use tidemill_core::dead::{DeadFilter, RedriveRule, Triage, fingerprint};
use tidemill_core::{ErrorClass, Failure, JobId, NewJob, Settlement};
use tidemill_store::DeadLetter;

use super::kit::{HOUR, Kit, SECOND, dead, done, job};

over_both_stores!(
    a_letter_tells_its_story,
    letters_come_latest_first_in_pages,
    groups_are_by_fingerprint_most_numerous_first,
    groups_obey_the_filter,
    what_is_not_dead_any_more_is_neither_listed_nor_counted,
    only_a_note_is_for_one_that_was_replayed,
    notes_and_triage_are_kept,
    an_archived_letter_is_put_aside,
    what_is_not_dead_cannot_be_noted,
    rules_are_kept_by_name,
    a_rule_redrives_after_its_delay_and_within_its_bound,
    a_rule_picks_by_each_of_its_conditions,
);

fn anyone() -> DeadFilter {
    DeadFilter::default()
}

async fn letter(kit: &Kit, id: JobId) -> DeadLetter {
    let filter = DeadFilter { ids: vec![id], ..anyone() };
    kit.store.dead(&filter, None, 10).await.unwrap().remove(0)
}

async fn a_letter_tells_its_story(kit: &Kit) {
    let job = NewJob { tenant: Some("t".into()), ..job("k") };
    let id = kit.finish(job, dead("user 42 is gone")).await;
    let expected = DeadLetter {
        id,
        kind: "k".into(),
        queue: "default".into(),
        tenant: Some("t".into()),
        class: ErrorClass::Transient,
        error: "user 42 is gone".into(),
        fingerprint: fingerprint("k", ErrorClass::Transient, "user 7 is gone"),
        attempt: 1,
        died_at: kit.clock.now(),
        triage: Triage::New,
        redrives: 0,
        archived: false,
        dead: true,
        recovered: false,
        notes: Vec::new(),
    };
    assert_eq!(kit.store.dead(&anyone(), None, 10).await.unwrap(), [expected]);
    let attempts = kit.store.attempts(id).await.unwrap();
    let told: Vec<_> = attempts.iter().map(|one| (one.attempt, one.error.as_deref())).collect();
    assert_eq!(told, [(1, Some("user 42 is gone"))], "also of one that died at once");
    assert_eq!(attempts[0].started_at, Some(kit.clock.now()));
}

async fn letters_come_latest_first_in_pages(kit: &Kit) {
    let mut sent = Vec::new();
    for n in 0..7 {
        sent.push(kit.finish(job("k"), dead("x")).await);
        // Some die in one moment: then the larger id comes first.
        kit.clock.advance(if n % 3 == 0 { Duration::ZERO } else { SECOND });
    }
    sent.reverse();
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = kit.store.dead(&anyone(), before, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.place());
        seen.extend(page.iter().map(|letter| letter.id));
        // One that dies meanwhile moves nobody from one page to another.
        kit.finish(job("k"), dead("later")).await;
    }
    assert_eq!(seen, sent);
}

async fn groups_are_by_fingerprint_most_numerous_first(kit: &Kit) {
    let first = kit.clock.now();
    let mut of_users = Vec::new();
    for user in 0..3 {
        of_users.push(kit.finish(job("k"), dead(&format!("user {user} is gone"))).await);
        kit.clock.advance(SECOND);
    }
    let other = kit.finish(job("k"), dead("disk on fire")).await;
    kit.store.dead_note(&of_users[..1], "me", "", Some(Triage::Investigated), None).await.unwrap();
    let groups = kit.store.dead_groups(&anyone()).await.unwrap();
    assert_eq!(groups.len(), 2);
    let users = &groups[0];
    assert_eq!((users.count, users.new, users.kind.as_str()), (3, 2, "k"));
    assert_eq!(users.fingerprint, fingerprint("k", ErrorClass::Transient, "user 1 is gone"));
    assert_eq!((users.first_at, users.last_at), (first, first + SECOND * 2));
    assert!(of_users.contains(&users.sample) && users.error.starts_with("user "));
    assert_eq!(users.class, ErrorClass::Transient);
    assert_eq!((groups[1].count, groups[1].sample), (1, other));
}

async fn groups_obey_the_filter(kit: &Kit) {
    let alive = kit.finish(NewJob { tenant: Some("t".into()), ..job("k") }, dead("a")).await;
    let archived = kit.finish(job("k"), dead("b")).await;
    kit.store.dead_note(&[archived], "me", "", None, Some(true)).await.unwrap();
    let count = async |filter: DeadFilter| kit.store.dead_groups(&filter).await.unwrap().len();
    assert_eq!(count(anyone()).await, 1);
    assert_eq!(count(DeadFilter { archived: true, ..anyone() }).await, 1);
    let both = DeadFilter { ids: vec![archived, alive], ..anyone() };
    assert_eq!(count(both).await, 2, "those that are named are meant, archived or not");
    assert_eq!(count(DeadFilter { tenant: Some("nobody".into()), ..anyone() }).await, 0);
}

async fn what_is_not_dead_any_more_is_neither_listed_nor_counted(kit: &Kit) {
    let still = kit.finish(job("k"), dead("x")).await;
    let done_since = kit.finish(job("k"), dead("x")).await;
    let on_its_way = kit.finish(job("k"), dead("x")).await;
    kit.store.dead_replay(&[done_since], "ada".into(), None).await.unwrap();
    kit.run_to(done_since, done()).await;
    kit.store.dead_replay(&[on_its_way], "ada".into(), None).await.unwrap();
    let seen = async |filter: DeadFilter| {
        let letters = kit.store.dead(&filter, None, 10).await.unwrap();
        let groups = kit.store.dead_groups(&filter).await.unwrap();
        let count: u64 = groups.iter().map(|group| group.count).sum();
        assert_eq!(count, letters.len() as u64, "groups count what a page shows: {filter:?}");
        let mut seen: Vec<_> =
            letters.iter().map(|one| (one.id, one.dead, one.recovered)).collect();
        seen.sort_unstable();
        seen
    };
    assert_eq!(seen(anyone()).await, [(still, true, false)]);
    let retrying = DeadFilter { triage: Some(Triage::Retrying), ..anyone() };
    let gone = [(done_since, false, true), (on_its_way, false, false)];
    assert_eq!(seen(retrying).await, gone, "they are there for those who ask");
    let named = DeadFilter { ids: vec![done_since, on_its_way], ..anyone() };
    assert_eq!(seen(named).await, gone);
    kit.run_to(on_its_way, dead("x")).await;
    assert_eq!(seen(anyone()).await, [(still, true, false), (on_its_way, true, false)]);
}

async fn only_a_note_is_for_one_that_was_replayed(kit: &Kit) {
    let ids = [kit.finish(job("k"), dead("x")).await, kit.finish(job("k"), dead("y")).await];
    kit.store.dead_replay(&ids[..1], "ada".into(), None).await.unwrap();
    for is_done in [false, true] {
        if is_done {
            kit.run_to(ids[0], done()).await;
        }
        for (triage, archived) in [(Some(Triage::Abandoned), None), (None, Some(true))] {
            let noted = kit.store.dead_note(&ids[..1], "me", "no", triage, archived).await.unwrap();
            assert_eq!(noted, 0, "{triage:?}, done: {is_done}");
        }
        let after = letter(kit, ids[0]).await;
        assert_eq!((after.triage, after.archived), (Triage::Retrying, false));
        let noted = kit.store.dead_note(&ids[..1], "me", "it was the disk", None, None).await;
        assert_eq!(noted.unwrap(), 1, "what is known is worth a note");
    }
    let noted = kit.store.dead_note(&ids, "me", "no", Some(Triage::Abandoned), None).await;
    assert_eq!(noted.unwrap(), 1, "the other is dead");
    let texts: Vec<_> = letter(kit, ids[0]).await.notes.into_iter().map(|note| note.text).collect();
    assert_eq!(texts, ["replayed", "it was the disk", "it was the disk"]);
}

async fn notes_and_triage_are_kept(kit: &Kit) {
    let ids = [kit.finish(job("k"), dead("x")).await, kit.finish(job("k"), dead("y")).await];
    let noted = kit.store.dead_note(&ids, "ada", "I look at it", Some(Triage::Investigated), None);
    assert_eq!(noted.await.unwrap(), 2);
    let noted_at = kit.clock.now();
    kit.clock.advance(HOUR);
    let noted = kit.store.dead_note(&ids[..1], "bob", "hopeless ☕", Some(Triage::Abandoned), None);
    assert_eq!(noted.await.unwrap(), 1);
    let first = letter(kit, ids[0]).await;
    assert_eq!(first.triage, Triage::Abandoned);
    let said: Vec<_> = first.notes.iter().map(|n| (n.by.as_str(), n.text.as_str())).collect();
    assert_eq!(said, [("ada", "I look at it"), ("bob", "hopeless ☕")]);
    assert_eq!((first.notes[0].at, first.notes[1].at), (noted_at, noted_at + HOUR));
    let second = letter(kit, ids[1]).await;
    assert_eq!((second.triage, second.notes.len()), (Triage::Investigated, 1));
    kit.store.dead_note(&ids[1..], "ada", "still", None, None).await.unwrap();
    assert_eq!(
        letter(kit, ids[1]).await.triage,
        Triage::Investigated,
        "a note alone decides nothing"
    );
}

async fn an_archived_letter_is_put_aside(kit: &Kit) {
    let id = kit.finish(job("k"), dead("x")).await;
    kit.store.dead_note(&[id], "me", "old", None, Some(true)).await.unwrap();
    assert!(kit.store.dead(&anyone(), None, 10).await.unwrap().is_empty());
    assert!(letter(kit, id).await.archived);
    kit.store.dead_note(&[id], "me", "not so old", None, Some(false)).await.unwrap();
    assert_eq!(kit.store.dead(&anyone(), None, 10).await.unwrap().len(), 1);
}

async fn what_is_not_dead_cannot_be_noted(kit: &Kit) {
    let alive = kit.put(job("k")).await;
    let ids = [alive, JobId::new()];
    assert_eq!(kit.store.dead_note(&ids, "me", "hm", None, None).await.unwrap(), 0);
    assert_eq!(kit.store.dead_note(&[], "me", "hm", None, None).await.unwrap(), 0);
}

fn rule(name: &str) -> RedriveRule {
    RedriveRule {
        name: name.into(),
        kind: None,
        queue: None,
        class: None,
        error_contains: None,
        delay_ms: 60_000,
        redrives_max: 2,
    }
}

async fn rules_are_kept_by_name(kit: &Kit) {
    let full = RedriveRule {
        kind: Some("k".into()),
        queue: Some("q".into()),
        class: Some(ErrorClass::Ambiguous),
        error_contains: Some("100% \"sure\"".into()),
        ..rule("b")
    };
    for rule in [rule("a"), full.clone(), rule("c")] {
        kit.store.set_redrive_rule(&rule.name.clone(), Some(rule)).await.unwrap();
    }
    let changed = RedriveRule { delay_ms: 1, ..rule("a") };
    kit.store.set_redrive_rule("a", Some(changed.clone())).await.unwrap();
    kit.store.set_redrive_rule("c", None).await.unwrap();
    kit.store.set_redrive_rule("never set", None).await.unwrap();
    let mut rules = kit.store.redrive_rules().await.unwrap();
    rules.sort_by(|one, two| one.name.cmp(&two.name));
    assert_eq!(rules, [changed, full]);
}

async fn a_rule_redrives_after_its_delay_and_within_its_bound(kit: &Kit) {
    let id = kit.finish(job("k"), dead("x")).await;
    let redrive = async || kit.store.redrive(&rule("r"), 10, "rule r".into()).await.unwrap();
    for redrives in 0..2 {
        assert!(redrive().await.is_empty(), "not before its delay");
        kit.clock.advance(Duration::from_mins(1));
        assert_eq!(redrive().await, [id]);
        assert!(redrive().await.is_empty(), "it is on its way");
        kit.run_to(id, dead("x")).await;
        assert_eq!(letter(kit, id).await.redrives, redrives + 1);
    }
    kit.clock.advance(HOUR);
    assert!(redrive().await.is_empty(), "it has had its share");
    let long = RedriveRule { delay_ms: u64::MAX, redrives_max: 9, ..rule("long") };
    assert!(kit.store.redrive(&long, 10, "rule".into()).await.unwrap().is_empty(), "in a while");
}

async fn a_rule_picks_by_each_of_its_conditions(kit: &Kit) {
    let some = |text: &str| Some(text.to_owned());
    for (rule, limit, expected) in [
        (rule("all"), 10, &[0, 1][..]),
        (rule("all"), 1, &[0]),
        (RedriveRule { kind: some("other"), ..rule("r") }, 10, &[1]),
        (RedriveRule { queue: some("none"), ..rule("r") }, 10, &[]),
        (RedriveRule { class: Some(ErrorClass::Ambiguous), ..rule("r") }, 10, &[0]),
        (RedriveRule { error_contains: some("0%"), ..rule("r") }, 10, &[0]),
        (RedriveRule { error_contains: some("%fus"), ..rule("r") }, 10, &[]),
        (RedriveRule { redrives_max: 0, ..rule("r") }, 10, &[]),
    ] {
        let ambiguous = Failure::new("k", ErrorClass::Ambiguous, "timeout 100%");
        let one = kit.finish(job("k"), Settlement::Dead { failure: ambiguous }).await;
        kit.clock.advance(SECOND);
        let two = kit.finish(job("other"), dead("refused")).await;
        let seen = kit.finish(job("k"), dead("seen")).await;
        kit.store.dead_note(&[seen], "me", "", Some(Triage::Investigated), None).await.unwrap();
        kit.clock.advance(HOUR);
        let expected: Vec<_> = expected.iter().map(|at| [one, two][*at]).collect();
        let mut sent = kit.store.redrive(&rule, limit, "rule".into()).await.unwrap();
        sent.sort();
        assert_eq!(sent, expected, "{rule:?}");
        kit.store.cancel(sent, "enough").await.unwrap();
        kit.store.dead_note(&[one, two], "me", "", None, Some(true)).await.unwrap();
    }
}
