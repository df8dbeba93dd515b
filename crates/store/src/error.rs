//! What can go wrong below the engine, in sentences and stable codes.
//!
//! A stale token, a duplicate or an unknown id are answers, not errors: they do not appear here.

use thiserror::Error;
use tidemill_core::JobId;

use crate::full::Full;

/// The result of a store's call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a store could not do what it was asked. Nothing of the call was written, except where
/// `is_unknown` says that this cannot be known.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL names no store that this build has.
    #[error(
        "the store URL {url:?} is not understood; use sqlite:FILE, sqlite::memory: or \
         postgres://USER@HOST/DATABASE"
    )]
    UrlUnknown {
        /// What was given, without its password.
        url: String,
    },
    /// A name or a text has the character U+0000, which not every database can be asked for.
    #[error("the {what} {text:?} contains a control character")]
    NulInvalid {
        /// Which.
        what: &'static str,
        /// The text.
        text: String,
    },
    /// The database cannot be reached now; trying again later may work.
    #[error("the database cannot be reached: {reason}")]
    Unavailable {
        /// What the driver said.
        reason: String,
        /// Whether the call may have taken effect before the connection was lost.
        unknown: bool,
    },
    /// The connection would be less safe than the URL asks for.
    #[error("no safe connection to the database: {reason}")]
    TlsRefused {
        /// What is wrong with the server's certificate, or with what the URL says.
        reason: String,
    },
    /// The database was migrated by a newer Tidemill.
    #[error(
        "the database has schema version {found}, this program knows {known}; upgrade this program"
    )]
    SchemaNewer {
        /// The version of the database.
        found: i64,
        /// The newest version this program knows.
        known: i64,
    },
    /// The database has an older schema, or none, and migrating was not asked for.
    #[error(
        "the database has schema version {found}, this program needs {known}; run `tidemill migrate`"
    )]
    SchemaOlder {
        /// The version of the database.
        found: i64,
        /// The version this program needs.
        known: i64,
    },
    /// The database accepts no writes.
    #[error("the database is read-only: {reason}")]
    ReadOnly {
        /// What the driver said.
        reason: String,
    },
    /// The disk is full.
    #[error("the disk is full: {reason}; free some space, nothing of this call was written")]
    DiskFull {
        /// What the driver said.
        reason: String,
    },
    /// The disk refused or failed, other than by being full.
    #[error(
        "the disk failed: {reason}; look at quotas, limits on file sizes, free space and the \
         disk's health"
    )]
    DiskFailed {
        /// What the driver said.
        reason: String,
        /// Whether the call may have taken effect all the same.
        unknown: bool,
    },
    /// Others kept the database locked for too long.
    #[error("the database stayed locked by others: {reason}")]
    Busy {
        /// What the driver said.
        reason: String,
    },
    /// The SQLite library is too old to be trusted with a WAL.
    #[error("SQLite {found} can corrupt a database in WAL mode; 3.51.3 or later is needed")]
    SqliteTooOld {
        /// The version found.
        found: String,
    },
    /// A claim follows rules that are no more.
    #[error(
        "the rules of queues have changed since this claim read them; read them again and claim anew"
    )]
    RulesOutdated,
    /// A queue has no room for these jobs.
    #[error("{0}")]
    QueueFull(Full),
    /// Some jobs of a batch that is written once are there already, and others are not.
    #[error(
        "some of these jobs were enqueued before under these keys, as {job}, and others were not: this is another \
         batch; take a new key"
    )]
    BatchReused {
        /// One that was there.
        job: JobId,
    },
    /// Another job has the unique key, and is in none of the queues that it may be in.
    #[error(
        "{job} is a duplicate of a job that is out of reach, and nothing was enqueued; give it another unique key"
    )]
    DuplicateUnreached {
        /// The one that was not enqueued.
        job: JobId,
    },
    /// The keys that were given cannot be read.
    #[error("the encryption keys cannot be used: {reason}")]
    KeysInvalid {
        /// What is wrong, and where; never a key.
        reason: String,
    },
    /// A value was encrypted with a key that this process does not have.
    #[error(
        "what was asked for is encrypted with the key {key:?}, which this process does not have; give it that key"
    )]
    KeyMissing {
        /// The id of the key.
        key: String,
    },
    /// A value is not as it was encrypted, or stands where it does not belong.
    #[error(
        "a value that is encrypted with the key {key:?} was changed, or does not belong where it stands"
    )]
    CiphertextInvalid {
        /// The id of the key that it names.
        key: String,
    },
    /// A value looks as if it were encrypted, and is not.
    #[error(
        "a value begins as encrypted ones do (tdm1:), and would be taken for one; write it differently"
    )]
    PayloadReserved,
    /// What is encrypted cannot be searched.
    #[error(
        "payloads are encrypted, so dead letters cannot be searched by a field of theirs; search by kind, tag or \
         fingerprint"
    )]
    SearchEncrypted,
    /// A job of a flow has the id of another job.
    #[error("a job of the flow has the id of another job; make the flow's jobs anew")]
    IdTaken,
    /// Anything else the database said.
    #[error("the database refused: {reason}")]
    Database {
        /// What the driver said.
        reason: String,
    },
}

/// How SQL says that a job of a flow has the id of another job.
pub(crate) const ID_TAKEN: &str = "tidemill: id_taken: ";

impl Error {
    /// The stable code of this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UrlUnknown { .. } => "store_url_unknown",
            Self::NulInvalid { .. } => "name_invalid",
            Self::Unavailable { .. } => "store_unavailable",
            Self::TlsRefused { .. } => "store_tls_refused",
            Self::SchemaNewer { .. } => "schema_newer",
            Self::SchemaOlder { .. } => "schema_older",
            Self::ReadOnly { .. } => "store_read_only",
            Self::DiskFull { .. } => "store_disk_full",
            Self::DiskFailed { .. } => "store_disk_failed",
            Self::Busy { .. } => "store_busy",
            Self::SqliteTooOld { .. } => "sqlite_too_old",
            Self::RulesOutdated => "rules_outdated",
            Self::QueueFull(_) => "queue_full",
            Self::BatchReused { .. } => "idempotency_key_reused",
            Self::DuplicateUnreached { .. } => "duplicate_rejected",
            Self::KeysInvalid { .. } => "keys_invalid",
            Self::KeyMissing { .. } => "encryption_key_missing",
            Self::CiphertextInvalid { .. } => "ciphertext_invalid",
            Self::PayloadReserved => "payload_reserved",
            Self::SearchEncrypted => "search_encrypted",
            Self::IdTaken => "id_taken",
            Self::Database { .. } => "store_refused",
        }
    }

    /// Whether the same call may work later.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::QueueFull(full) => full.fits_ever(),
            Self::Unavailable { .. }
            | Self::Busy { .. }
            | Self::DiskFull { .. }
            | Self::DiskFailed { .. } => true,
            _ => false,
        }
    }

    /// Whether the call may have taken effect although it failed.
    pub fn is_unknown(&self) -> bool {
        matches!(
            self,
            Self::Unavailable { unknown: true, .. } | Self::DiskFailed { unknown: true, .. }
        )
    }
}
