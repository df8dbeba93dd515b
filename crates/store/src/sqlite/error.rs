//! From what SQLite says to the store's own words.

use rusqlite::ErrorCode;

use crate::error::Error;

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        let reason = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy { reason },
            Some(ErrorCode::DiskFull) => Self::DiskFull { reason },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly { reason },
            Some(ErrorCode::CannotOpen) => Self::Unavailable { reason, unknown: false },
            // A write or an fsync that failed: what reached the disk, nobody can say.
            Some(ErrorCode::SystemIoFailure) => Self::Unavailable { reason, unknown: true },
            _ => Self::Database { reason },
        }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn sqlite_codes_become_ours() {
        for (code, expected) in [
            (ffi::SQLITE_BUSY, "store_busy"),
            (ffi::SQLITE_BUSY_SNAPSHOT, "store_busy"),
            (ffi::SQLITE_LOCKED, "store_busy"),
            (ffi::SQLITE_FULL, "store_disk_full"),
            (ffi::SQLITE_READONLY, "store_read_only"),
            (ffi::SQLITE_READONLY_DBMOVED, "store_read_only"),
            (ffi::SQLITE_CANTOPEN, "store_unavailable"),
            (ffi::SQLITE_IOERR_FSYNC, "store_unavailable"),
            (ffi::SQLITE_CORRUPT, "store_refused"),
            (ffi::SQLITE_NOTADB, "store_refused"),
        ] {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            assert_eq!(Error::from(error).code(), expected, "{code}");
        }
    }
}
