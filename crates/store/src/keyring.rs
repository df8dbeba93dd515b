//! The keys that payloads and outputs are encrypted with, and how one value is encrypted.
//!
//! The first key encrypts, all of them decrypt; each has an id, which stands beside what it encrypted. A value becomes
//! a JSON string, so that it can stand wherever a value can: as a whole payload, or inside of a journal's entry. It is
//! bound to the job it was written for and to what it is there ([`What`]); both stand in it, authenticated.
//!
//! It refuses to guess: a value whose key is not here, or that is not as it was written, is an error that names the
//! key and never the data.

mod file;
pub(crate) mod walk;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use chacha20poly1305::aead::{Aead, Payload as Sealed};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use tidemill_core::{JobId, UniqueKey};
use uuid::Uuid;

use crate::error::{Error, Result};

/// What every encrypted value begins with, its opening quote included.
const MARK: &str = "\"tdm1:";
const NONCE_BYTES: usize = 24;
/// What it is, and the job it was written for.
const HEAD_BYTES: usize = 1 + 16;
const TAG_BYTES: usize = 16;

/// What a value is where it was written; it decrypts nowhere else, as far as the reader knows where it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The payload of a job.
    Payload = 1,
    /// The output of a job.
    Output = 2,
    /// Of a run: its journal, its mail, what it shows, the state of an object.
    Run = 3,
    /// The payload of the job that a schedule makes.
    Schedule = 4,
    /// Of a stream.
    Stream = 5,
}

/// The keys of a process. Cheap to clone; without any, nothing is encrypted.
///
/// ```
/// use tidemill_store::Keyring;
/// let keys = Keyring::parse("2026-11 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")?;
/// assert_eq!(format!("{keys:?}"), r#"Keyring(["2026-11"])"#);
/// # Ok::<(), tidemill_store::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Keyring(Arc<Keys>);

#[derive(Default)]
struct Keys {
    /// The first one encrypts.
    keys: Vec<Key>,
    /// Hashes unique keys that are derived from payloads, if there is one.
    unique: Option<[u8; 32]>,
}

struct Key {
    id: String,
    cipher: XChaCha20Poly1305,
}

/// An encrypted value, taken apart.
struct Envelope<'a> {
    key: &'a str,
    /// What it is, the job, the nonce and the rest.
    bytes: Vec<u8>,
    /// How many bytes of the text it takes, both quotes included.
    length: usize,
}

impl Keyring {
    /// The ids of its keys; the first one encrypts.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.keys.iter().map(|key| key.id.as_str())
    }

    /// Whether nothing is encrypted.
    pub fn is_empty(&self) -> bool {
        self.0.keys.is_empty()
    }

    /// Refuses a text that looks encrypted where there is no key: it would be taken for such when it is read.
    fn check(&self, text: &str) -> Result<()> {
        if self.is_empty() && tokens(text).next().is_some() {
            return Err(Error::PayloadReserved);
        }
        Ok(())
    }

    /// A JSON text as it is kept: encrypted, if there is a key. `of`: the job it is written for; without, it decrypts
    /// wherever it stands. `null` stays: it says nothing, and the rules of journals must see that it does not.
    pub(crate) fn encrypt(&self, what: What, of: Option<JobId>, text: &str) -> Result<String> {
        self.check(text)?;
        let Some(key) = self.0.keys.first() else { return Ok(text.to_owned()) };
        if text == "null" {
            return Ok(text.to_owned());
        }
        let mut head = [0; HEAD_BYTES];
        head[0] = what as u8;
        head[1..].copy_from_slice(of.map_or(Uuid::nil(), |job| job.0).as_bytes());
        key.encrypt(&head, text.as_bytes())
    }

    /// A text as it was before it was kept: every encrypted value in it is decrypted, at any depth. `own`: if the whole
    /// text is one value, it must have been written as this, for this job.
    pub(crate) fn decrypt<'t>(
        &self,
        text: &'t str,
        own: Option<(What, JobId)>,
    ) -> Result<Cow<'t, str>> {
        each(text, |envelope| {
            let is_whole = envelope.length == text.len();
            if let Some((what, job)) = own.filter(|_| is_whole) {
                let (kind, of) = (envelope.bytes[0], &envelope.bytes[1..HEAD_BYTES]);
                let is_bound = of != Uuid::nil().as_bytes();
                if kind != what as u8 || (is_bound && of != job.0.as_bytes()) {
                    return Err(envelope.invalid());
                }
            }
            self.open(envelope).map(Some)
        })
    }

    /// The same text with every value in it encrypted by the first key; `None` if they are already.
    pub fn encrypt_again(&self, text: &str) -> Result<Option<String>> {
        let Some(first) = self.0.keys.first() else { return Ok(None) };
        let again = each(text, |envelope| {
            if envelope.key == first.id {
                return Ok(None);
            }
            let plain = self.open(envelope)?;
            first.encrypt(&envelope.bytes[..HEAD_BYTES], plain.as_bytes()).map(Some)
        })?;
        Ok(match again {
            Cow::Owned(again) => Some(again),
            Cow::Borrowed(_) => None,
        })
    }

    /// The ids of the keys that values in a text are encrypted with, one for each value.
    pub fn ids_in(text: &str) -> Vec<&str> {
        tokens(text).map(|(_, envelope)| envelope.key).collect()
    }

    /// A unique key as it is kept. One that was derived from a payload (`kind#hash`) is hashed again with a secret, if
    /// there is one: a hash of little can be guessed.
    pub(crate) fn unique(&self, kind: &str, key: &str) -> Option<String> {
        let (key, whose) = UniqueKey::split(key);
        let (secret, hash) = (self.0.unique?, key.strip_prefix(kind)?.strip_prefix('#')?);
        let hash = blake3::keyed_hash(&secret, hash.as_bytes());
        Some(format!("{kind}#{}{whose}", &hash.to_hex()[..32]))
    }

    fn open(&self, envelope: &Envelope<'_>) -> Result<String> {
        let key = self.0.keys.iter().find(|key| key.id == envelope.key);
        let key = key.ok_or_else(|| Error::KeyMissing { key: envelope.key.to_owned() })?;
        key.decrypt(&envelope.bytes).ok_or_else(|| envelope.invalid())
    }
}

impl Key {
    fn encrypt(&self, head: &[u8], text: &[u8]) -> Result<String> {
        let mut nonce = [0; NONCE_BYTES];
        let failed = |reason: String| Error::Database { reason };
        getrandom::fill(&mut nonce)
            .map_err(|e| failed(format!("the operating system gives no random bytes: {e}")))?;
        let sealed = Sealed { msg: text, aad: &self.aad(head) };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), sealed);
        let sealed = sealed.map_err(|_| failed("the value is too large to be encrypted".into()))?;
        let all = [head, &nonce, &sealed].concat();
        Ok(format!("{MARK}{}:{}\"", self.id, BASE64.encode(all)))
    }

    fn decrypt(&self, bytes: &[u8]) -> Option<String> {
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>()?;
        let sealed = Sealed { msg: sealed, aad: &self.aad(head) };
        String::from_utf8(self.cipher.decrypt(&XNonce::from(*nonce), sealed).ok()?).ok()
    }

    fn aad(&self, head: &[u8]) -> Vec<u8> {
        [b"tidemill/1/", self.id.as_bytes(), b"/", head].concat()
    }
}

impl Envelope<'_> {
    fn invalid(&self) -> Error {
        Error::CiphertextInvalid { key: self.key.to_owned() }
    }
}

/// Replaces the values in a text for which there is something else.
fn each(
    text: &str,
    mut other: impl FnMut(&Envelope<'_>) -> Result<Option<String>>,
) -> Result<Cow<'_, str>> {
    let (mut new, mut copied) = (None::<String>, 0);
    for (at, envelope) in tokens(text) {
        if let Some(other) = other(&envelope)? {
            let new = new.get_or_insert_default();
            new.push_str(&text[copied..at]);
            new.push_str(&other);
            copied = at + envelope.length;
        }
    }
    Ok(match new {
        Some(new) => Cow::Owned(new + &text[copied..]),
        None => Cow::Borrowed(text),
    })
}

/// The encrypted values of a text, and where they begin. What only looks like one is none.
fn tokens(text: &str) -> impl Iterator<Item = (usize, Envelope<'_>)> {
    text.match_indices(MARK).filter_map(|(at, _)| {
        // Outside of strings there is no backslash: this quote is a part of a string.
        let is_inside = text[..at].ends_with('\\');
        let content = &text[at + MARK.len()..];
        let content = &content[..content.find('"').filter(|_| !is_inside)?];
        let (key, bytes) = content.split_once(':')?;
        let bytes = BASE64.decode(bytes).ok()?;
        let is_whole = bytes.len() >= HEAD_BYTES + NONCE_BYTES + TAG_BYTES;
        let length = MARK.len() + content.len() + 1;
        (is_whole && file::is_id(key)).then_some((at, Envelope { key, bytes, length }))
    })
}

impl fmt::Debug for Keyring {
    /// Never shows a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keyring").field(&self.ids().collect::<Vec<_>>()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "old AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
    const NEW: &str = "new HxwdHhsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA";

    fn keys(lines: &[&str]) -> Keyring {
        Keyring::parse(&lines.join("\n")).unwrap()
    }

    #[test]
    fn a_value_comes_back_where_it_was_written_and_nowhere_else() {
        let (keys, job, other) = (keys(&[OLD]), JobId::new(), JobId::new());
        let kept = keys.encrypt(What::Payload, Some(job), r#"{"card":"visa 4711"}"#).unwrap();
        assert!(kept.starts_with("\"tdm1:old:") && !kept.contains("visa 4711"), "{kept}");
        assert_ne!(
            kept,
            keys.encrypt(What::Payload, Some(job), r#"{"card":"visa 4711"}"#).unwrap()
        );
        let read = |what, job| keys.decrypt(&kept, Some((what, job))).map(Cow::into_owned);
        assert_eq!(read(What::Payload, job).unwrap(), r#"{"card":"visa 4711"}"#);
        assert_eq!(read(What::Output, job).unwrap_err().code(), "ciphertext_invalid");
        assert_eq!(read(What::Payload, other).unwrap_err().code(), "ciphertext_invalid");
        assert_eq!(keys.decrypt(&kept, None).unwrap(), r#"{"card":"visa 4711"}"#);
    }

    #[test]
    fn values_inside_of_others_are_found_and_what_only_looks_like_one_is_left() {
        let keys = keys(&[OLD]);
        let (a, b) = (keys.encrypt(What::Run, None, "1"), keys.encrypt(What::Run, None, "\"x\""));
        let text =
            format!(r#"{{"a":{},"b":[{},"tdm1:x:y","\"tdm1:old:AAAA"]}}"#, a.unwrap(), b.unwrap());
        let plain = keys.decrypt(&text, None).unwrap();
        assert_eq!(plain, r#"{"a":1,"b":["x","tdm1:x:y","\"tdm1:old:AAAA"]}"#);
    }

    #[test]
    fn a_changed_value_is_refused_and_a_missing_key_is_named() {
        let (old, new) = (keys(&[OLD]), keys(&[NEW]));
        let kept = old.encrypt(What::Payload, None, "12345").unwrap();
        let error = new.decrypt(&kept, None).unwrap_err();
        assert_eq!(error.code(), "encryption_key_missing");
        assert!(error.to_string().contains("\"old\"") && !error.to_string().contains(&kept[12..]));
        let content = kept.split(':').nth(2).unwrap().trim_end_matches('"');
        let bytes = BASE64.decode(content).unwrap();
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            let forged = format!("{MARK}old:{}\"", BASE64.encode(bytes));
            assert_eq!(
                old.decrypt(&forged, None).unwrap_err().code(),
                "ciphertext_invalid",
                "{at}"
            );
        }
        let renamed = kept.replace("tdm1:old", "tdm1:new");
        let both = keys(&[NEW, OLD]);
        assert_eq!(both.decrypt(&renamed, None).unwrap_err().code(), "ciphertext_invalid");
    }

    #[test]
    fn the_first_key_encrypts_again_what_others_did_and_keeps_what_it_is_bound_to() {
        let (old, both, job) = (keys(&[OLD]), keys(&[NEW, OLD]), JobId::new());
        let kept = old.encrypt(What::Output, Some(job), "[1]").unwrap();
        let again = both.encrypt_again(&format!("{{\"o\":{kept}}}")).unwrap().unwrap();
        assert_eq!(Keyring::ids_in(&again), ["new"]);
        assert_eq!(both.encrypt_again(&again).unwrap(), None);
        assert_eq!(both.encrypt_again("{\"plain\":1}").unwrap(), None);
        let again = both.encrypt_again(&kept).unwrap().unwrap();
        assert_eq!(keys(&[NEW]).decrypt(&again, Some((What::Output, job))).unwrap(), "[1]");
        assert!(keys(&[NEW]).decrypt(&again, Some((What::Output, JobId::new()))).is_err());
    }

    #[test]
    fn without_keys_nothing_is_encrypted_and_nothing_may_look_so() {
        let (none, some) = (Keyring::default(), keys(&[OLD]));
        assert_eq!(none.encrypt(What::Payload, None, "{\"a\":1}").unwrap(), "{\"a\":1}");
        let kept = some.encrypt(What::Payload, None, "1").unwrap();
        let error = none.encrypt(What::Payload, None, &format!("[{kept}]")).unwrap_err();
        assert_eq!(error.code(), "payload_reserved");
        assert_eq!(none.decrypt(&kept, None).unwrap_err().code(), "encryption_key_missing");
        let twice = some.encrypt(What::Payload, None, &kept).unwrap();
        assert_eq!(some.decrypt(&twice, None).unwrap(), kept);
    }

    #[test]
    fn derived_unique_keys_are_hashed_with_a_secret_and_given_ones_stay() {
        let secret = "unique HxwdHhsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA";
        let keys = keys(&[OLD, secret]);
        let hashed = keys.unique("pay", "pay#0123456789abcdef0123456789abcdef").unwrap();
        assert!(hashed.starts_with("pay#") && !hashed.ends_with("abcdef"), "{hashed}");
        assert_eq!(keys.unique("pay", "pay=order:42"), None);
        assert_eq!(Keyring::parse(OLD).unwrap().unique("pay", "pay#0123"), None);
    }
}
