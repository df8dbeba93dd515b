//! Credentials: found by their hashes alone, one live one to a name, ended once and for all.

use std::time::Duration;

use futures::future::join_all;
use tidemill_core::access::secret::{Secret, SecretHash};
use tidemill_core::access::{ENDED_KEPT_DAYS, Standing};
use tidemill_core::{CredentialId, Grant, Role};
use tidemill_store::CredentialView;
use tidemill_store::credential::{Added, NewCredential};

use super::kit::{HOUR, Kit, SECOND};

over_both_stores!(
    a_credential_is_shown_as_it_was_made,
    it_is_found_by_its_hash_alone,
    many_are_found_at_once_and_unknown_ones_are_left_out,
    a_name_is_free_once_its_holder_has_ended,
    sent_again_it_is_the_same,
    of_many_who_want_a_name_one_gets_it,
    revoking_counts_from_the_first_time,
    last_use_only_grows,
    what_ended_long_ago_is_forgotten,
    only_so_many_may_be_live,
    of_those_that_ended_the_latest_are_kept,
);

const DAY: Duration = Duration::from_hours(24);

fn hash() -> SecretHash {
    let (a, b) = (CredentialId::new().0, CredentialId::new().0);
    Secret::of_random([*a.as_bytes(), *b.as_bytes()].concat().try_into().unwrap()).hash()
}

fn new(name: &str) -> NewCredential {
    NewCredential {
        id: CredentialId::new(),
        name: name.into(),
        hash: hash(),
        grant: Grant::new(Role::Viewer),
        expires_in: None,
        live_max: 1000,
    }
}

async fn add(kit: &Kit, new: NewCredential) -> Added {
    kit.store.add_credential(new).await.unwrap()
}

async fn keep(kit: &Kit, new: NewCredential) -> CredentialId {
    let id = new.id;
    assert_eq!(add(kit, new).await, Added::Kept);
    id
}

async fn seen(kit: &Kit, id: CredentialId) -> Option<CredentialView> {
    kit.store.credentials().await.unwrap().into_iter().find(|view| view.id == id)
}

async fn a_credential_is_shown_as_it_was_made(kit: &Kit) {
    let now = kit.clock.now();
    let grant = Grant {
        role: Role::Worker,
        queues: vec!["mail:*".into(), "été, \"{x}\"".into()],
        tenant: Some("acme".into()),
    };
    let wished = NewCredential { grant: grant.clone(), expires_in: Some(HOUR), ..new("a, {b}") };
    let first = keep(kit, wished).await;
    let second = keep(kit, new("plain")).await;
    let views = kit.store.credentials().await.unwrap();
    assert_eq!(views.iter().map(|view| view.id).collect::<Vec<_>>(), [second, first]);
    let expected = CredentialView {
        id: first,
        name: "a, {b}".into(),
        grant,
        created_at: now,
        expires_at: Some(now + HOUR),
        revoked_at: None,
        used_at: None,
    };
    assert_eq!(views[1], expected);
    assert_eq!((views[0].expires_at, &views[0].grant), (None, &Grant::new(Role::Viewer)));
    assert_eq!(views[1].standing(now), Standing::Live);
    assert_eq!(views[1].standing(now + HOUR), Standing::Expired);
}

async fn it_is_found_by_its_hash_alone(kit: &Kit) {
    let wished = new("bot");
    let (id, own) = (keep(kit, wished.clone()).await, wished.hash);
    kit.clock.advance(SECOND);
    let found = kit.store.find_credentials(&[own]).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].view.id, found[0].hash, found[0].now), (id, own, kit.clock.now()));
    let mut near = *own.as_bytes();
    near[31] ^= 1;
    let none = kit.store.find_credentials(&[SecretHash::of_bytes(near)]).await.unwrap();
    assert!(none.is_empty());
    // Also when it has ended: whoever asks decides.
    assert!(kit.store.revoke_credential(id).await.unwrap());
    let found = kit.store.find_credentials(&[own]).await.unwrap();
    assert_eq!(found[0].view.revoked_at, Some(kit.clock.now()));
}

async fn many_are_found_at_once_and_unknown_ones_are_left_out(kit: &Kit) {
    let mut hashes = vec![hash()];
    for n in 0..20 {
        let wished = new(&format!("c{n}"));
        hashes.extend([wished.hash, hash()]);
        keep(kit, wished).await;
    }
    let found = kit.store.find_credentials(&hashes).await.unwrap();
    let mut names: Vec<_> = found.iter().map(|found| found.view.name.clone()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!((found.len(), names.len()), (20, 20));
    assert!(found.iter().all(|found| hashes.contains(&found.hash)));
    assert!(kit.store.find_credentials(&[]).await.unwrap().is_empty());
}

async fn a_name_is_free_once_its_holder_has_ended(kit: &Kit) {
    keep(kit, NewCredential { expires_in: Some(HOUR), ..new("bot") }).await;
    assert_eq!(add(kit, new("bot")).await, Added::NameTaken);
    keep(kit, new("Bot")).await;
    kit.clock.advance(HOUR);
    let second = keep(kit, new("bot")).await;
    assert_eq!(add(kit, new("bot")).await, Added::NameTaken);
    assert!(kit.store.revoke_credential(second).await.unwrap());
    keep(kit, new("bot")).await;
    assert_eq!(kit.store.credentials().await.unwrap().len(), 4);
}

async fn sent_again_it_is_the_same(kit: &Kit) {
    let wished = new("bot");
    let id = keep(kit, wished.clone()).await;
    kit.clock.advance(SECOND);
    keep(kit, wished).await;
    let views = kit.store.credentials().await.unwrap();
    assert_eq!((views.len(), views[0].id), (1, id));
    assert_eq!(views[0].created_at + SECOND, kit.clock.now());
}

async fn of_many_who_want_a_name_one_gets_it(kit: &Kit) {
    let neighbour = kit.neighbour().await;
    let stores = [&kit.store, &neighbour];
    let adding = (0..24).map(|n: usize| stores[n % 2].add_credential(new("bot")));
    let answers = join_all(adding).await;
    let kept = answers.into_iter().filter(|added| *added.as_ref().unwrap() == Added::Kept).count();
    assert_eq!((kept, kit.store.credentials().await.unwrap().len()), (1, 1));
    neighbour.close().await;
}

async fn revoking_counts_from_the_first_time(kit: &Kit) {
    let id = keep(kit, new("bot")).await;
    let first = kit.clock.now();
    assert!(kit.store.revoke_credential(id).await.unwrap());
    kit.clock.advance(HOUR);
    assert!(kit.store.revoke_credential(id).await.unwrap());
    assert_eq!(seen(kit, id).await.unwrap().revoked_at, Some(first));
    assert!(!kit.store.revoke_credential(CredentialId::new()).await.unwrap());
}

async fn last_use_only_grows(kit: &Kit) {
    let (a, b) = (keep(kit, new("a")).await, keep(kit, new("b")).await);
    let (early, late) = (kit.clock.now(), kit.clock.now() + HOUR);
    kit.store.touch_credentials(&[(a, late), (CredentialId::new(), late)]).await.unwrap();
    kit.store.touch_credentials(&[(b, early), (a, early)]).await.unwrap();
    kit.store.touch_credentials(&[]).await.unwrap();
    assert_eq!(seen(kit, a).await.unwrap().used_at, Some(late));
    assert_eq!(seen(kit, b).await.unwrap().used_at, Some(early));
}

async fn what_ended_long_ago_is_forgotten(kit: &Kit) {
    let kept = DAY * ENDED_KEPT_DAYS;
    let revoked = keep(kit, new("revoked")).await;
    assert!(kit.store.revoke_credential(revoked).await.unwrap());
    let expired = keep(kit, NewCredential { expires_in: Some(HOUR), ..new("expired") }).await;
    let far = keep(kit, NewCredential { expires_in: Some(kept * 2), ..new("far") }).await;
    let live = keep(kit, new("live")).await;
    kit.clock.advance(kept + SECOND);
    keep(kit, new("one")).await;
    assert!(seen(kit, revoked).await.is_none());
    for id in [expired, far, live] {
        assert!(seen(kit, id).await.is_some());
    }
    kit.clock.advance(HOUR);
    keep(kit, new("two")).await;
    assert!(seen(kit, expired).await.is_none());
    assert!(seen(kit, far).await.is_some() && seen(kit, live).await.is_some());
}

async fn only_so_many_may_be_live(kit: &Kit) {
    let wish = |name: &str| NewCredential { live_max: 3, ..new(name) };
    keep(kit, NewCredential { expires_in: Some(HOUR), ..wish("a") }).await;
    let (second, last) = (keep(kit, wish("b")).await, wish("c"));
    keep(kit, last.clone()).await;
    assert_eq!(add(kit, wish("d")).await, Added::TooMany);
    assert_eq!(add(kit, wish("a")).await, Added::NameTaken);
    // One that is kept is kept, however often it is sent.
    keep(kit, last).await;
    assert!(kit.store.revoke_credential(second).await.unwrap());
    keep(kit, wish("d")).await;
    assert_eq!(add(kit, wish("e")).await, Added::TooMany);
    kit.clock.advance(HOUR);
    keep(kit, wish("e")).await;
    assert_eq!(kit.store.credentials().await.unwrap().len(), 5);
}

async fn of_those_that_ended_the_latest_are_kept(kit: &Kit) {
    let live = keep(kit, new("live")).await;
    let mut ended = Vec::new();
    for n in 0..5 {
        let wish = NewCredential { live_max: 3, expires_in: Some(HOUR), ..new(&n.to_string()) };
        ended.push(keep(kit, wish).await);
        if n % 2 == 0 {
            assert!(kit.store.revoke_credential(ended[n]).await.unwrap());
        }
        kit.clock.advance(HOUR);
    }
    let last = keep(kit, NewCredential { live_max: 3, ..new("last") }).await;
    let views = kit.store.credentials().await.unwrap();
    let ids: Vec<_> = views.iter().map(|view| view.id).collect();
    assert_eq!(ids, [last, ended[4], ended[3], ended[2], live]);
}
