//! Signatures as Standard Webhooks has them: HMAC-SHA256 of `id.timestamp.body`, one for each secret that holds.
//!
//! A secret is `whsec_` and the base64 of its bytes. It does not print itself.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// What every secret begins with.
pub const PREFIX: &str = "whsec_";

/// What a receiver verifies with.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SigningSecret(String);

impl SigningSecret {
    /// The secret of these bytes, which nobody must be able to guess.
    pub fn of_random(bytes: [u8; 32]) -> Self {
        Self(format!("{PREFIX}{}", STANDARD.encode(bytes)))
    }

    /// Its text, for the one moment in which it is shown.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    fn signature(&self, id: &str, timestamp: i64, body: &str) -> Option<String> {
        let bytes = STANDARD.decode(self.0.strip_prefix(PREFIX)?).ok()?;
        let mut mac = Hmac::<Sha256>::new_from_slice(&bytes).ok()?;
        mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
        Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("whsec_…")
    }
}

/// A secret, and until when it holds; the newest one has no end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// It.
    pub secret: SigningSecret,
    /// Nothing is signed with it from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// All secrets of a webhook, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secrets(pub Vec<Held>);

/// The most secrets that hold at once: receivers look at each signature.
const SECRETS_MAX: usize = 3;

impl Secrets {
    /// The first one.
    pub fn of(secret: SigningSecret) -> Self {
        Self(vec![Held { secret, until: None }])
    }

    /// With a new one; those of before hold until `until`, or as long as they would have.
    #[must_use]
    pub fn rotated(&self, secret: SigningSecret, now: Timestamp, until: Timestamp) -> Self {
        let older = self.0.iter().filter(|held| held.until.is_none_or(|end| end > now));
        let older = older.map(|held| Held {
            secret: held.secret.clone(),
            until: Some(held.until.map_or(until, |end| end.min(until))),
        });
        let new = Held { secret, until: None };
        Self(std::iter::once(new).chain(older).take(SECRETS_MAX).collect())
    }

    /// The value of `webhook-signature`: one signature for each that holds.
    pub fn sign(&self, id: &str, now: Timestamp, body: &str) -> String {
        let holds = self.0.iter().filter(|held| held.until.is_none_or(|end| end > now));
        let signed = holds.filter_map(|held| held.secret.signature(id, now.as_second(), body));
        signed.collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    #[test]
    fn the_example_of_the_standard_is_signed_as_it_says() {
        let secret = SigningSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into());
        let at = Timestamp::from_second(1_614_265_330).unwrap();
        let signed =
            Secrets::of(secret).sign("msg_p5jXN8AQM9LWM0D4loKWxJek", at, r#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_rotated_secret_holds_for_a_while_beside_the_new_one() {
        let at = |s| Timestamp::from_second(s).unwrap();
        let secret = |n| SigningSecret::of_random([n; 32]);
        let secrets = Secrets::of(secret(1)).rotated(secret(2), at(0), at(100));
        let number = |now| secrets.sign("m", at(now), "b").split(' ').count();
        assert_eq!((number(99), number(100)), (2, 1));
        assert_eq!(secrets.sign("m", at(100), "b"), Secrets::of(secret(2)).sign("m", at(100), "b"));
        let many = (3..9).fold(secrets, |s, n| s.rotated(secret(n), at(1), at(100)));
        assert_eq!(many.0.len(), 3);
        assert!(!format!("{many:?}").contains(secret(8).reveal()));
    }
}
