//! Webhooks that others change while somebody is about to act on them.

use std::time::Duration;

use tidemill::Error;
use tidemill::core::webhook::Webhook;
use tidemill::core::webhook::sign::Secrets;
use tokio::task::JoinSet;

use super::kit::Kit;

over_both_stores!(
    what_passes_to_another_meanwhile_keeps_its_secret,
    rotations_at_once_all_count_and_the_first_secret_signs_on,
);

const DAY: Duration = Duration::from_hours(24);

fn of(tenant: &str) -> Webhook {
    Webhook { tenant: Some(tenant.into()), ..Webhook::new("https://example.com/in") }
}

/// Who may act on a webhook is asked about the one that is there, and acts on that one alone: between the look and the
/// write its name may become that of another tenant's.
async fn what_passes_to_another_meanwhile_keeps_its_secret(kit: Kit) {
    let mill = kit.open_still().await;
    let webhooks = mill.webhooks();
    // What another process does in a moment, on a runtime of its own.
    let pass = || {
        let kit = &kit;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.unwrap().block_on(async {
                    let other = kit.open_still().await;
                    other.webhooks().delete("w").await.unwrap();
                    other.webhooks().set("w", of("b")).await.unwrap();
                    other.close().await;
                });
            });
        });
    };
    for act in ["rotate", "delete"] {
        webhooks.set("w", of("a")).await.unwrap();
        let may = |webhook: &Webhook| {
            if webhook.tenant.as_deref() == Some("b") {
                return Err(Error::WebhookUnknown { name: "w".into() });
            }
            pass();
            Ok(())
        };
        let done = match act {
            "rotate" => webhooks.rotate_if("w", DAY, may).await.map(drop),
            _ => webhooks.delete_if("w", may).await,
        };
        assert_eq!(done.unwrap_err().code(), "webhook_unknown", "{act}");
        let left = webhooks.get("w").await.unwrap();
        assert_eq!((left.webhook.tenant.as_deref(), left.secrets), (Some("b"), 1), "{act}");
        webhooks.delete("w").await.unwrap();
    }
    mill.close().await;
}

/// Of two that write the same version one does, and the other looks again: each is told a secret that signs.
async fn rotations_at_once_all_count_and_the_first_secret_signs_on(kit: Kit) {
    let (mill, other) = (kit.open_still().await, kit.open_still().await);
    let (_, first) = mill.webhooks().set("w", of("a")).await.unwrap();
    let mut rotations = JoinSet::new();
    for mill in [&mill, &other] {
        let mill = mill.clone();
        rotations.spawn(async move { mill.webhooks().rotate("w", DAY).await.unwrap() });
    }
    let told = rotations.join_all().await;
    let view = mill.webhooks().get("w").await.unwrap();
    assert_eq!((view.version, view.secrets), (3, 3));
    let (_, secrets) = mill.webhooks().to_deliver(view.id).await.unwrap().unwrap();
    let now = mill.now().await.unwrap();
    let signed = secrets.sign("m", now, "{}");
    for secret in told.iter().map(|(_, secret)| secret).chain(&first) {
        let own = Secrets::of(secret.clone()).sign("m", now, "{}");
        assert!(signed.split(' ').any(|one| one == own), "every secret that was told signs");
    }
    mill.close().await;
    other.close().await;
}
