//! The record of who did what: what is kept of it, and for how long.

use std::time::Duration;

/// How long an act is kept.
pub const KEPT: Duration = Duration::from_hours(24 * 365);

/// The most acts that are kept; the oldest go first. Those that were refused are not among them.
pub const ROWS_MAX: usize = 500_000;

/// So many refused acts are kept beside so many others. They have a share of their own: who may do nothing could
/// otherwise have the record forget what others did, by being refused often enough.
pub fn refused_max(rows_max: usize) -> usize {
    rows_max / 5
}

/// Whether this result says that nothing was done. Where that is in doubt the act counts as done.
pub fn is_refusal(result: &str) -> bool {
    let is_done = matches!(result, "ok" | "nothing");
    let is_in_doubt =
        matches!(result, "failed" | "internal" | "encryption_key_missing" | "ciphertext_invalid")
            || result.starts_with("store_")
            || result.ends_with("_timeout");
    !is_done && !is_in_doubt
}

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

    #[test]
    fn what_may_have_been_done_is_no_refusal() {
        for result in
            ["ok", "nothing", "failed", "internal", "store_unavailable", "flow_wait_timeout"]
        {
            assert!(!is_refusal(result), "{result}");
        }
        for result in ["role_refused", "queue_refused", "job_unknown", "request_invalid", "refused"]
        {
            assert!(is_refusal(result), "{result}");
        }
    }
}
