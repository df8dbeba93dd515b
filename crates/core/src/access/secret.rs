//! The secret of a credential: how it is made of random bytes, read, and turned into what is kept.
//!
//! `tdm_`, 256 random bits as 43 characters, and six characters of checksum: a typo is refused without a look
//! at the database, and whoever scans texts for secrets finds no false ones. Only its hash is kept. The hash
//! is a quick one: slow ones are for what people think up, and nobody guesses 256 random bits.
//!
//! A secret does not print itself, and neither does its hash.

use std::fmt;

/// What every secret begins with.
pub const PREFIX: &str = "tdm_";
/// The digits of a secret, so that a double click takes all of it.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// As many digits as 256 bits need.
const BODY_CHARS: usize = 43;
/// As many digits as 32 bits need.
const CHECKSUM_CHARS: usize = 6;
const CHARS: usize = PREFIX.len() + BODY_CHARS + CHECKSUM_CHARS;

/// What a caller shows. It is known to nobody but its holder.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// The secret of these bytes, which nobody must be able to guess.
    pub fn of_random(bytes: [u8; 32]) -> Self {
        let mut text = String::with_capacity(CHARS);
        text.push_str(PREFIX);
        push_digits(&mut text, bytes, BODY_CHARS);
        let checksum = checksum(text.as_bytes());
        push_digits(&mut text, checksum, CHECKSUM_CHARS);
        Self(text)
    }

    /// Reads a secret; `None` when it cannot be one.
    pub fn parse(text: &str) -> Option<Self> {
        let is_whole = text.len() == CHARS && text.is_ascii() && text.starts_with(PREFIX);
        if !is_whole {
            return None;
        }
        let (body, last) = text.split_at(CHARS - CHECKSUM_CHARS);
        let mut right = String::with_capacity(CHECKSUM_CHARS);
        push_digits(&mut right, checksum(body.as_bytes()), CHECKSUM_CHARS);
        let is_digits = body[PREFIX.len()..].bytes().all(|byte| DIGITS.contains(&byte));
        (is_digits && right == last).then(|| Self(text.to_owned()))
    }

    /// Its text, for the one moment in which it is shown to its holder.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    pub fn hash(&self) -> SecretHash {
        SecretHash(blake3::hash(self.0.as_bytes()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}…")
    }
}

/// What is kept of a secret. Two are compared in a time that does not depend on where they differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SecretHash(blake3::Hash);

impl SecretHash {
    /// The hash that a store kept.
    pub fn of_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes.into())
    }

    /// The bytes that a store keeps.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash(…)")
    }
}

/// Writes a number, its largest byte first, with so many digits.
fn push_digits<const N: usize>(text: &mut String, mut number: [u8; N], digits: usize) {
    let mut reversed = Vec::with_capacity(digits);
    for _ in 0..digits {
        let mut rest = 0_u16;
        for byte in &mut number {
            let part = rest * 256 + u16::from(*byte);
            (*byte, rest) = ((part / 62) as u8, part % 62);
        }
        reversed.push(char::from(DIGITS[usize::from(rest)]));
    }
    text.extend(reversed.into_iter().rev());
}

/// CRC-32 as everybody has it (zlib's), because it finds typos and scanners in any language can compute it.
fn checksum(bytes: &[u8]) -> [u8; 4] {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg());
        }
    }
    (!crc).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_checksum_is_the_one_everybody_has() {
        assert_eq!(checksum(b"123456789"), 0xCBF4_3926_u32.to_be_bytes());
    }

    #[test]
    fn the_largest_number_fits_and_the_smallest_is_filled_up() {
        let all = Secret::of_random([0xFF; 32]);
        assert_eq!(all.reveal().len(), CHARS);
        assert!(Secret::parse(all.reveal()).is_some());
        let none = Secret::of_random([0; 32]);
        assert!(none.reveal().starts_with(&format!("tdm_{}", "0".repeat(BODY_CHARS))));
    }

    #[test]
    fn neither_a_secret_nor_its_hash_prints_itself() {
        let secret = Secret::of_random([7; 32]);
        assert_eq!(format!("{secret:?}"), "tdm_…");
        assert_eq!(format!("{:?}", secret.hash()), "SecretHash(…)");
    }

    #[test]
    fn what_cannot_be_a_secret_is_refused() {
        let good = Secret::of_random([9; 32]).reveal().to_owned();
        let bads = [
            String::new(),
            "tdm_".to_owned(),
            good[1..].to_owned(),
            format!("{good} "),
            format!("{good}0"),
            good.to_lowercase(),
            good.replacen("tdm_", "tdx_", 1),
            format!("tdm_{}", "é".repeat(24) + "a"),
        ];
        for bad in bads {
            assert!(Secret::parse(&bad).is_none(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_secret_survives_its_text_and_every_typo_is_found(
            bytes: [u8; 32], at in 0..CHARS, digit in 0_usize..62
        ) {
            let secret = Secret::of_random(bytes);
            let read = Secret::parse(secret.reveal()).unwrap();
            prop_assert_eq!(read.hash(), secret.hash());
            let mut typo = secret.reveal().as_bytes().to_vec();
            typo[at] = DIGITS[digit];
            let typo = String::from_utf8(typo).unwrap();
            prop_assert_eq!(Secret::parse(&typo).is_some(), typo == secret.reveal());
        }

        #[test]
        fn two_secrets_are_never_the_same(one: [u8; 32], other: [u8; 32]) {
            let (a, b) = (Secret::of_random(one), Secret::of_random(other));
            prop_assert_eq!(one == other, a.reveal() == b.reveal());
            prop_assert_eq!(one == other, a.hash() == b.hash());
        }
    }
}
