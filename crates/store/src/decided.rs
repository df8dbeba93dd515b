//! What a caller decided in a transaction of her own: her job is done, with this output and these follow-ups.
//!
//! It stands in a table of its own until the next settle of the attempt, or the rescue of its lease, carries it out as
//! it would any other: so keys, lines, permits, flows and those who wait see nothing but a settle.

use tidemill_core::{NewJob, Payload, Settlement};

use crate::error::{Error, Result};

/// The follow-ups as they are kept; nothing if there are none.
pub fn write(follow_ups: &[NewJob]) -> Result<Option<String>> {
    if follow_ups.is_empty() {
        return Ok(None);
    }
    let text = serde_json::to_string(follow_ups);
    text.map(Some).map_err(|e| Error::Database { reason: e.to_string() })
}

/// What is settled for a job that was decided so.
pub(crate) fn settlement(output: String, follow_ups: Option<&str>) -> Result<Settlement> {
    let follow_ups = follow_ups.map_or(Ok(Vec::new()), serde_json::from_str);
    let unreadable = |e: serde_json::Error| Error::Database {
        reason: format!(
            "the follow-ups of a job that was settled in a transaction cannot be read: {e}"
        ),
    };
    let follow_ups = follow_ups.map_err(unreadable)?;
    Ok(Settlement::Done { output: Payload::trusted(output), follow_ups })
}
