//! Credentials: told once, verified without a look for every request, refused a second after their end.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use futures::future::join_all;
use tidemill::{Act, Grant, Refusal, Role, Secret, Tidemill};
use tidemill_testkit::eventually::eventually;

use super::kit::{Kit, SOON};

over_both_stores!(
    a_secret_lets_its_holder_in_with_what_was_granted,
    a_secret_is_told_once_and_kept_nowhere,
    what_cannot_be_a_secret_is_refused_without_a_look_at_the_store,
    a_credential_expires_by_the_clock_of_the_store,
    what_was_found_is_known_for_a_second,
    a_revoked_one_is_refused_here_at_once_and_elsewhere_within_a_second,
    a_store_that_is_away_lets_nobody_in,
    many_who_ask_at_once_get_each_their_own_answer,
    last_use_is_noted_once_a_minute,
    wishes_that_make_no_sense_are_refused_and_change_nothing,
    a_name_finds_the_live_one_an_id_or_a_secret_any,
);

const SECOND: Duration = Duration::from_secs(1);

/// A producer of this name, and its secret.
async fn made(mill: &Tidemill, name: &str) -> (tidemill::CredentialView, String) {
    let made = mill.credentials().create(name, Grant::new(Role::Producer), None).await.unwrap();
    (made.0, made.1.reveal().to_owned())
}

/// Why a secret is refused; none when it is good.
async fn refusal(mill: &Tidemill, secret: &str) -> Option<Refusal> {
    mill.credentials().verify(secret).await.unwrap().err()
}

/// Lets this time pass for this process, and not for the store.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Time that stands still for this process until it is moved, although the store answers.
struct Still {
    _held: Sender<()>,
}

fn stand_still() -> Still {
    tokio::time::pause();
    let (held, until_dropped) = channel::<()>();
    // While something blocks, tokio does not move a paused clock by itself.
    tokio::task::spawn_blocking(move || until_dropped.recv());
    Still { _held: held }
}

async fn a_secret_lets_its_holder_in_with_what_was_granted(kit: Kit) {
    let mill = kit.open().await;
    let grant =
        Grant { role: Role::Operator, queues: vec!["mail:*".into()], tenant: Some("acme".into()) };
    let expires_in = Some(Duration::from_hours(1));
    let (view, secret) =
        mill.credentials().create("mailer", grant.clone(), expires_in).await.unwrap();
    assert_eq!((view.name.as_str(), &view.grant), ("mailer", &grant));
    assert_eq!(view.expires_at, Some(view.created_at + Duration::from_hours(1)));
    let neighbour = kit.open().await;
    for mill in [&mill, &neighbour] {
        let caller = mill.credentials().verify(secret.reveal()).await.unwrap().unwrap();
        assert_eq!((caller.id, caller.name.as_str(), &caller.grant), (view.id, "mailer", &grant));
        assert!(caller.grant.may(Act::Operate) && !caller.grant.may(Act::Work));
        assert!(caller.grant.may_queue("mail:eu") && !caller.grant.may_queue("pay"));
        assert_eq!(caller.expires_at, view.expires_at);
    }
    let other = Secret::of_random([7; 32]);
    assert_eq!(refusal(&mill, other.reveal()).await, Some(Refusal::Unknown));
    neighbour.close().await;
    mill.close().await;
}

async fn a_secret_is_told_once_and_kept_nowhere(kit: Kit) {
    let mill = kit.open().await;
    let (view, secret) = made(&mill, "shop").await;
    let (again, other) = made(&mill, "shop two").await;
    assert!(secret != other && view.id != again.id);
    mill.credentials().verify(&secret).await.unwrap().unwrap();
    let listed = mill.credentials().list().await.unwrap();
    assert_eq!(listed.len(), 2);
    let body = &secret[4..];
    assert!(!format!("{listed:?} {mill:?}").contains(body));
    assert!(!serde_json::to_string(&listed).unwrap().contains(body));
    let parsed = Secret::parse(&secret).unwrap();
    assert!(!format!("{parsed:?} {:?}", parsed.hash()).contains(body));
    mill.close().await;
    if let Some(file) = kit.url.strip_prefix("sqlite:") {
        let bytes = std::fs::read(file).unwrap();
        let has = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
        assert!(has(b"shop two"), "the file was written");
        assert!(!has(body.as_bytes()) && !has(&body.as_bytes()[..20]));
    }
}

async fn what_cannot_be_a_secret_is_refused_without_a_look_at_the_store(kit: Kit) {
    let mill = kit.open().await;
    let (_, secret) = made(&mill, "shop").await;
    mill.close().await;
    let last = if secret.ends_with('0') { "1" } else { "0" };
    let typo = format!("{}{last}", &secret[..secret.len() - 1]);
    for wrong in ["", "tdm_", &typo, &format!("{secret}\n"), "Bearer", "\0"] {
        assert_eq!(refusal(&mill, wrong).await, Some(Refusal::Malformed), "{wrong:?}");
    }
    // A good one needs the store, which is closed.
    assert!(mill.credentials().verify(&secret).await.is_err());
    let texts = [Refusal::Malformed, Refusal::Unknown, Refusal::Expired, Refusal::Revoked];
    assert!(texts.iter().all(|why| why.to_string() == "the credential is not accepted"));
}

async fn a_credential_expires_by_the_clock_of_the_store(kit: Kit) {
    let mill = kit.open_still().await;
    let grant = Grant::new(Role::Viewer);
    let (_, secret) = mill.credentials().create("brief", grant, Some(SECOND * 10)).await.unwrap();
    let secret = secret.reveal();
    assert_eq!(refusal(&mill, secret).await, None);
    kit.advance(Duration::from_micros(9_999_999));
    assert_eq!(refusal(&mill, secret).await, None);
    // Also while what was found is still known.
    kit.advance(Duration::from_micros(1));
    assert_eq!(refusal(&mill, secret).await, Some(Refusal::Expired));
    pass(SECOND).await;
    assert_eq!(refusal(&mill, secret).await, Some(Refusal::Expired));
    mill.close().await;
}

async fn what_was_found_is_known_for_a_second(kit: Kit) {
    let mill = kit.open().await;
    let (view, secret) = made(&mill, "shop").await;
    let still = stand_still();
    assert_eq!(refusal(&mill, &secret).await, None);
    // Ended behind the back of this process, as another one does it.
    mill.store().revoke_credential(view.id).await.unwrap();
    tokio::time::advance(Duration::from_millis(999)).await;
    assert_eq!(refusal(&mill, &secret).await, None);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(refusal(&mill, &secret).await, Some(Refusal::Revoked));
    drop(still);
    tokio::time::resume();
    mill.close().await;
}

async fn a_revoked_one_is_refused_here_at_once_and_elsewhere_within_a_second(kit: Kit) {
    let (mill, neighbour) = (kit.open().await, kit.open().await);
    let (view, secret) = made(&mill, "shop").await;
    let (_, other) = made(&mill, "other").await;
    for mill in [&mill, &neighbour] {
        assert_eq!(refusal(mill, &secret).await, None);
        assert_eq!(refusal(mill, &other).await, None);
    }
    mill.credentials().revoke(view.id).await.unwrap();
    assert_eq!(refusal(&mill, &secret).await, Some(Refusal::Revoked));
    pass(SECOND).await;
    assert_eq!(refusal(&neighbour, &secret).await, Some(Refusal::Revoked));
    for mill in [&mill, &neighbour] {
        assert_eq!(refusal(mill, &other).await, None);
    }
    mill.credentials().revoke(view.id).await.unwrap();
    neighbour.close().await;
    mill.close().await;
}

async fn a_store_that_is_away_lets_nobody_in(kit: Kit) {
    let mill = kit.open().await;
    let (_, secret) = made(&mill, "shop").await;
    assert_eq!(refusal(&mill, &secret).await, None);
    mill.close().await;
    pass(SECOND).await;
    assert!(mill.credentials().verify(&secret).await.is_err());
}

async fn many_who_ask_at_once_get_each_their_own_answer(kit: Kit) {
    let mill = kit.open().await;
    let (view, secret) = made(&mill, "shop").await;
    let strangers: Vec<_> = (0..=250_u8).map(|n| Secret::of_random([n; 32])).collect();
    let asked = strangers.iter().flat_map(|stranger| [stranger.reveal(), &secret]);
    let credentials = mill.credentials();
    let answers = join_all(asked.map(|secret| credentials.verify(secret))).await;
    for pair in answers.chunks(2) {
        assert_eq!(*pair[0].as_ref().unwrap(), Err(Refusal::Unknown));
        assert_eq!(pair[1].as_ref().unwrap().as_ref().unwrap().id, view.id);
    }
    mill.close().await;
}

async fn last_use_is_noted_once_a_minute(kit: Kit) {
    let mill = kit.open_still().await;
    let (view, secret) = made(&mill, "shop").await;
    let (other, others) = made(&mill, "other").await;
    let noted = async |id| {
        let listed = mill.credentials().list().await.unwrap();
        listed.into_iter().find(|view| view.id == id).unwrap().used_at
    };
    let first = kit.clock.now();
    assert_eq!(refusal(&mill, &secret).await, None);
    let seen = eventually("the first use is noted", SOON, async || noted(view.id).await).await;
    assert_eq!((seen, noted(other.id).await), (first, None));
    // Not again within the minute: what is noted after it would be written after it.
    kit.advance(SECOND);
    assert_eq!(refusal(&mill, &secret).await, None);
    assert_eq!(refusal(&mill, &others).await, None);
    eventually("the other's use is noted", SOON, async || noted(other.id).await).await;
    assert_eq!(noted(view.id).await, Some(first));
    kit.advance(SECOND);
    pass(SECOND * 60).await;
    assert_eq!(refusal(&mill, &secret).await, None);
    let later = async || noted(view.id).await.filter(|at| *at > first);
    let seen = eventually("the use after a minute is noted", SOON, later).await;
    assert_eq!(seen, first + SECOND * 2);
    mill.close().await;
}

async fn wishes_that_make_no_sense_are_refused_and_change_nothing(kit: Kit) {
    let mill = kit.open().await;
    made(&mill, "shop").await;
    let viewer = || Grant::new(Role::Viewer);
    let many = Grant { queues: vec!["q".into(); 101], ..viewer() };
    let limited = Grant { tenant: Some("acme".into()), ..Grant::new(Role::Admin) };
    let century = Duration::from_hours(24 * 366 * 100);
    for (name, grant, expires_in, code) in [
        ("", viewer(), None, "name_empty"),
        ("shop", viewer(), None, "credential_taken"),
        ("a\nb", viewer(), None, "name_invalid"),
        ("018f3a90-0000-7000-8000-000000000001", viewer(), None, "credential_invalid"),
        ("x", viewer(), Some(Duration::ZERO), "credential_invalid"),
        ("x", viewer(), Some(century), "credential_invalid"),
        ("x", many, None, "credential_invalid"),
        ("x", limited, None, "credential_invalid"),
    ] {
        let error = mill.credentials().create(name, grant, expires_in).await.unwrap_err();
        assert_eq!(error.code(), code, "{name:?}");
    }
    let error = mill.credentials().revoke(tidemill::CredentialId::new()).await.unwrap_err();
    assert_eq!(error.code(), "credential_unknown");
    assert_eq!(mill.credentials().list().await.unwrap().len(), 1);
    mill.close().await;
}

async fn a_name_finds_the_live_one_an_id_or_a_secret_any(kit: Kit) {
    let mill = kit.open().await;
    let (first, secret) = made(&mill, "shop").await;
    mill.credentials().revoke(first.id).await.unwrap();
    let error = mill.credentials().find("shop").await.unwrap_err();
    assert_eq!(error.code(), "credential_unknown");
    let (second, _) = made(&mill, "shop").await;
    assert_eq!(mill.credentials().find("shop").await.unwrap().id, second.id);
    let by_id = mill.credentials().find(&first.id.to_string()).await.unwrap();
    assert!(by_id.id == first.id && by_id.revoked_at.is_some());
    assert_eq!(mill.credentials().find(&secret).await.unwrap().id, first.id);
    let unknown = Secret::of_random([7; 32]);
    for wrong in [unknown.reveal(), &secret[..secret.len() - 1]] {
        let error = mill.credentials().find(wrong).await.unwrap_err();
        assert_eq!(error.code(), "credential_unknown");
        assert!(!error.to_string().contains(&wrong[4..]), "a secret is not repeated");
    }
    mill.close().await;
}
