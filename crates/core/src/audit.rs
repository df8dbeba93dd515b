//! The record of who did what: what is kept of it, and for how long.

use std::time::Duration;

/// How long an act is kept.
pub const KEPT: Duration = Duration::from_hours(24 * 365);

/// The most acts that are kept; the oldest go first.
pub const ROWS_MAX: usize = 500_000;

/// No text of an act is longer than this.
pub const TEXT_BYTES_MAX: usize = 300;

/// A text as it is kept: no longer than it may be, cut between two characters.
pub fn cut(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let end = (0..=TEXT_BYTES_MAX - '…'.len_utf8()).rev().find(|end| text.is_char_boundary(*end));
    format!("{}…", &text[..end.unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let long = cut(&"ä".repeat(TEXT_BYTES_MAX));
        assert!(long.len() <= TEXT_BYTES_MAX && long.ends_with("ä…"), "{long}");
    }
}
