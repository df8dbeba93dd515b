//! From what SQLite says to the store's own words.

use std::path::Path;

use rusqlite::{ErrorCode, ffi};

use crate::error::{Error, ID_TAKEN};

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        let reason = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy { reason },
            Some(ErrorCode::DiskFull) => Self::DiskFull { reason },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly { reason },
            Some(ErrorCode::CannotOpen | ErrorCode::OutOfMemory) => {
                Self::Unavailable { reason, unknown: false }
            }
            Some(ErrorCode::SystemIoFailure) => {
                let code = error.sqlite_error().map(|error| error.extended_code);
                if code == Some(ffi::SQLITE_IOERR_NOMEM) {
                    return Self::Unavailable { reason, unknown: true };
                }
                // A write that is refused (a quota, a limit on file sizes) leaves no whole commit in
                // the log. After any other failure, what reached the disk nobody can say.
                Self::DiskFailed { reason, unknown: code != Some(ffi::SQLITE_IOERR_WRITE) }
            }
            _ if reason.contains(ID_TAKEN) => Self::IdTaken,
            _ => Self::Database { reason },
        }
    }
}

impl Error {
    /// The same, saying which file it is about; none means a database in memory.
    pub(super) fn of_file(mut self, file: Option<&Path>) -> Self {
        if let Some(file) = file
            && let Self::Unavailable { reason, .. }
            | Self::ReadOnly { reason }
            | Self::DiskFull { reason }
            | Self::DiskFailed { reason, .. }
            | Self::Busy { reason }
            | Self::Database { reason } = &mut self
        {
            let file = file.display().to_string();
            if !reason.contains(&file) {
                *reason = format!("{file}: {reason}");
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_once_which_file_it_is_about() {
        let busy = || Error::from(rusqlite::Error::SqliteFailure(ffi::Error::new(5), None));
        let file = Path::new("app.db");
        let said = busy().of_file(Some(file)).of_file(Some(file)).to_string();
        assert_eq!(
            said,
            "the database stayed locked by others: app.db: Error code 5: database is locked"
        );
        assert!(!busy().of_file(None).to_string().contains("app.db"));
    }

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
            (ffi::SQLITE_NOMEM, "store_unavailable"),
            (ffi::SQLITE_IOERR_NOMEM, "store_unavailable"),
            (ffi::SQLITE_IOERR_FSYNC, "store_disk_failed"),
            (ffi::SQLITE_IOERR_WRITE, "store_disk_failed"),
            (ffi::SQLITE_CORRUPT, "store_refused"),
            (ffi::SQLITE_NOTADB, "store_refused"),
        ] {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            assert_eq!(Error::from(error).code(), expected, "{code}");
        }
    }

    #[test]
    fn a_refused_write_wrote_nothing_and_a_failed_flush_may_have() {
        for (code, unknown) in [(ffi::SQLITE_IOERR_WRITE, false), (ffi::SQLITE_IOERR_FSYNC, true)] {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            assert_eq!(Error::from(error).is_unknown(), unknown, "{code}");
        }
    }
}
