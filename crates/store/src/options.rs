//! The rarer wishes of a job, as both stores read them back.

use tidemill_core::Options;

/// Reads options as they are kept; what cannot be read of them is told in the log.
pub(crate) fn read_options(text: &str) -> Options {
    let (options, unread) = Options::read(text);
    if let Some(error) = unread {
        tracing::warn!(%error, "a wish of a job cannot be read and is ignored");
    }
    options
}
