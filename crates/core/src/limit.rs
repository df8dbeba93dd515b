//! The limits on what one call may carry. Everything has one, with its unit in its name.

use serde::{Deserialize, Serialize};

/// What inputs are checked against.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Size of one payload. Defaults to 1 MiB.
    pub payload_bytes_max: usize,
    /// Nesting of one payload. Defaults to 64.
    pub payload_depth_max: usize,
    /// Jobs in one enqueue call. Defaults to 10,000.
    pub batch_jobs_max: usize,
    /// Tags of one job. Defaults to 32.
    pub tags_max: usize,
    /// How far in the future a job may be due. Defaults to 20 years.
    pub due_years_max: u32,
    /// Size of one chunk of a stream, as it is kept. Defaults to 64 KiB.
    pub stream_chunk_bytes_max: usize,
    /// Size of all chunks of one job's stream that are kept. Defaults to 16 MiB.
    pub stream_bytes_max: u64,
    /// Signals to one run that nobody has taken. Defaults to 10,000.
    pub mailbox_signals_max: u64,
    /// Size of all signals to one run that nobody has taken, as they are kept. Defaults to 64 MiB.
    pub mailbox_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes_max: 1024 * 1024,
            payload_depth_max: 64,
            batch_jobs_max: 10_000,
            tags_max: 32,
            due_years_max: 20,
            stream_chunk_bytes_max: 64 * 1024,
            stream_bytes_max: 16 * 1024 * 1024,
            mailbox_signals_max: 10_000,
            mailbox_bytes_max: 64 * 1024 * 1024,
        }
    }
}

/// The longest kind, queue, tenant, key or tag.
pub const NAME_BYTES_MAX: usize = 200;
/// The longest unique key a caller may give.
pub const UNIQUE_KEY_BYTES_MAX: usize = 500;
/// The longest error message that is kept; the rest is cut off with a notice.
pub const ERROR_BYTES_MAX: usize = 16 * 1024;
/// The longest trace context that is kept.
pub const TRACE_BYTES_MAX: usize = 1024;
/// The largest ephemeral chunk: it must fit into a hint to other processes.
pub const EPHEMERAL_BYTES_MAX: usize = 4 * 1024;
/// The longest span that means anything else than for ever, a thousand years: more cannot be added to a time
/// everywhere.
pub const SPAN_MS_MAX: u64 = 1000 * 366 * 24 * 60 * 60 * 1000;
