//! Keys as text: one to a line, an id and 32 bytes in base64. Lines that begin with `#` are for people.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};

use super::{Key, Keyring, Keys};
use crate::error::{Error, Result};

/// Names the secret for unique keys; it encrypts nothing.
const UNIQUE: &str = "unique";
const ID_BYTES_MAX: usize = 64;
/// More would slow down every value that is read.
const KEYS_MAX: usize = 100;

impl Keyring {
    /// Reads keys from a text. The first key encrypts, all of them decrypt. A line `unique` holds the secret with which
    /// unique keys are hashed that are derived from payloads; it must stay the same for ever.
    pub fn parse(text: &str) -> Result<Self> {
        let mut keys = Keys::default();
        let lines = text.lines().map(str::trim).enumerate();
        for (at, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let wrong = |why: &str| invalid(format!("line {}: {why}", at + 1));
            let (id, secret) = line
                .split_once(char::is_whitespace)
                .ok_or_else(|| wrong("it should have an id, a space, and 32 bytes in base64"))?;
            let secret = bytes(secret.trim()).ok_or_else(|| {
                wrong("the key should be 32 bytes in base64; `tidemill keys new` makes one")
            })?;
            if !is_id(id) {
                return Err(wrong(
                    "an id has up to 64 letters, digits, dots, dashes and underscores",
                ));
            }
            if keys.keys.iter().any(|key| key.id == id) || (id == UNIQUE && keys.unique.is_some()) {
                return Err(wrong("this id stands twice"));
            }
            if id == UNIQUE {
                keys.unique = Some(secret);
            } else {
                let cipher = XChaCha20Poly1305::new(&secret.into());
                keys.keys.push(Key { id: id.to_owned(), cipher });
            }
        }
        match keys.keys.len() {
            0 => Err(invalid("there is no key in it".to_owned())),
            n if n > KEYS_MAX => Err(invalid(format!("there are more than {KEYS_MAX} keys in it"))),
            _ => Ok(Self(keys.into())),
        }
    }

    /// Reads keys from a file.
    pub fn read(file: &Path) -> Result<Self> {
        let named = |why: &dyn std::fmt::Display| invalid(format!("{}: {why}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|e| named(&e))?;
        Self::parse(&text).map_err(|error| match error {
            Error::KeysInvalid { reason } => named(&reason),
            error => error,
        })
    }

    /// A line with a new key of this id, to be put into a file.
    pub fn new_line(id: &str) -> Result<String> {
        if !is_id(id) {
            return Err(invalid(format!(
                "{id:?} is no id: up to 64 letters, digits, dots, dashes and underscores"
            )));
        }
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)
            .map_err(|e| invalid(format!("the operating system gives no random bytes: {e}")))?;
        Ok(format!("{id} {}", STANDARD_NO_PAD.encode(secret)))
    }
}

/// Whether this may be the id of a key.
pub(super) fn is_id(id: &str) -> bool {
    let is_sign = |sign: u8| sign.is_ascii_alphanumeric() || b"._-".contains(&sign);
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_sign)
}

fn bytes(text: &str) -> Option<[u8; 32]> {
    let text = text.trim_end_matches('=');
    let bytes = STANDARD_NO_PAD.decode(text).or_else(|_| URL_SAFE_NO_PAD.decode(text));
    bytes.ok()?.try_into().ok()
}

fn invalid(reason: String) -> Error {
    Error::KeysInvalid { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_in_their_order_and_mistakes_are_named_by_line() {
        let (a, b) = (Keyring::new_line("a").unwrap(), Keyring::new_line("b-2.x_").unwrap());
        let keys = Keyring::parse(&format!("# ours\n\n  {a}=\n{b}\n")).unwrap();
        assert_eq!(keys.ids().collect::<Vec<_>>(), ["a", "b-2.x_"]);
        let long = "x".repeat(65);
        for (text, says) in [
            ("", "no key in it"),
            ("# nothing", "no key in it"),
            ("a", "line 1: it should have an id"),
            ("a AAAA", "32 bytes"),
            (&format!("{a}\n{a}"), "line 2: this id stands twice"),
            (&a.replacen('a', "a/b", 1), "an id has"),
            (&a.replacen('a', &long, 1), "an id has"),
            (&a.replacen('a', "unique", 1), "no key in it"),
        ] {
            let error = Keyring::parse(text).unwrap_err();
            assert_eq!(error.code(), "keys_invalid");
            assert!(error.to_string().contains(says), "{error}");
            assert!(!error.to_string().contains(a.split(' ').nth(1).unwrap()), "{error}");
        }
        let error = Keyring::read(Path::new("/nowhere/keys")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/keys"), "{error}");
    }
}
