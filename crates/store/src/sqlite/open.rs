//! Where the database is, and how a connection to it is set up.
//!
//! Refuses a SQLite that can corrupt a WAL, a folder that does not exist, and a file it may not
//! write to, each with a sentence that says so.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::{Error, Result};

const SQLITE_MIN: i32 = 3_051_003;
/// How long others may keep the database locked before a call fails with `store_busy`.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
const BUSY_PAUSE: Duration = Duration::from_millis(5);
/// All statements of this backend stay prepared.
const STATEMENTS_MAX: usize = 256;

/// Where a database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// In memory, private to one connection.
    Memory,
    /// In a file.
    File(PathBuf),
}

impl Place {
    /// Reads what stands after `sqlite:` in a URL.
    pub fn parse(text: &str) -> Result<Self> {
        if text == ":memory:" {
            return Ok(Self::Memory);
        }
        let file = text.strip_prefix("//").unwrap_or(text);
        if file.is_empty() || file.contains(['?', '\0']) {
            return Err(Error::UrlUnknown { url: format!("sqlite:{text}") });
        }
        Ok(Self::File(PathBuf::from(file)))
    }

    /// Whether there can be tables.
    pub fn exists(&self) -> bool {
        self.file().is_some_and(Path::exists)
    }

    /// The file, if there is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Memory => None,
            Self::File(file) => Some(file),
        }
    }
}

/// Opens the connection that writes; creates the file if it is not there.
pub(super) fn writer(place: &Place) -> Result<Connection> {
    check_version(rusqlite::version_number(), rusqlite::version())?;
    let conn = match place {
        Place::Memory => Connection::open_in_memory()?,
        Place::File(file) => {
            check_folder(file)?;
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
                | OpenFlags::SQLITE_OPEN_CREATE
                | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            Connection::open_with_flags(file, flags).map_err(|e| cannot_open(file, e))?
        }
    };
    if let Place::File(file) = place {
        // Asked before anything is read: reading would leave files beside it.
        if conn.is_readonly("main")? {
            return Err(read_only(file, "it may only be read"));
        }
        set_up_writer(&conn).and_then(|()| use_wal(&conn)).map_err(|error| match error {
            Error::ReadOnly { reason } => read_only(file, &reason),
            other => other,
        })?;
    } else {
        set_up_writer(&conn)?;
    }
    Ok(conn)
}

fn set_up_writer(conn: &Connection) -> Result<()> {
    set_up(conn)?;
    // 8 MiB at most; an idle worker touches little of it.
    conn.execute_batch(
        "pragma cache_size=-8192; pragma synchronous=full; pragma journal_size_limit=67108864",
    )?;
    Ok(())
}

fn read_only(file: &Path, reason: &str) -> Error {
    let reason =
        format!("the file {}, or its folder, may not be written to ({reason})", file.display());
    Error::ReadOnly { reason }
}

/// Opens a connection that only reads.
pub(super) fn reader(file: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(file, flags).map_err(|e| cannot_open(file, e))?;
    set_up(&conn)?;
    conn.execute_batch("pragma cache_size=-2048; pragma query_only=on")?;
    Ok(conn)
}

fn set_up(conn: &Connection) -> Result<()> {
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Plans do not depend on what is bound. Else SQLite prepares every statement with `limit ?` anew at each
    // run: a quarter of the writer's time on an idle queue.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Reading through mmap turns an I/O error into a crash, and it widened the WAL-reset bug.
    conn.execute_batch(
        "pragma mmap_size=0; pragma foreign_keys=off; pragma temp_store=memory;
         pragma trusted_schema=on",
    )?;
    Ok(())
}

fn check_version(number: i32, text: &str) -> Result<()> {
    if number < SQLITE_MIN {
        return Err(Error::SqliteTooOld { found: text.to_owned() });
    }
    Ok(())
}

fn check_folder(file: &Path) -> Result<()> {
    let folder = match file.parent() {
        None => Path::new("/"),
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
    };
    if folder.is_dir() {
        return Ok(());
    }
    let reason = format!("the folder {} does not exist; create it first", folder.display());
    Err(Error::Unavailable { reason, unknown: false })
}

fn cannot_open(file: &Path, error: rusqlite::Error) -> Error {
    let unreachable = error.sqlite_error_code() == Some(ErrorCode::CannotOpen);
    if unreachable && !file.exists() {
        let reason = format!("there is no file {} and it cannot be created", file.display());
        return Error::Unavailable { reason, unknown: false };
    }
    error.into()
}

/// Turns the WAL on. SQLite does not wait for others here, so this does.
fn use_wal(conn: &Connection) -> Result<()> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        let set = conn
            .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0));
        match set.map_err(Error::from) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let reason = format!(
                    "its journal mode stays {mode}, but a WAL is needed; is it on a network drive?"
                );
                return Err(Error::Database { reason });
            }
            Err(Error::Busy { .. }) if Instant::now() < deadline => sleep(BUSY_PAUSE),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn places_are_read_from_urls() {
        for (text, expected) in [
            (":memory:", Some(Place::Memory)),
            ("app.db", Some(Place::File("app.db".into()))),
            ("/var/app.db", Some(Place::File("/var/app.db".into()))),
            ("//app.db", Some(Place::File("app.db".into()))),
            ("///var/app.db", Some(Place::File("/var/app.db".into()))),
            ("", None),
            ("//", None),
            ("app.db?mode=ro", None),
        ] {
            assert_eq!(Place::parse(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_bound_does_not_make_a_statement_be_prepared_again() -> Result<()> {
        let conn = writer(&Place::Memory)?;
        conn.execute_batch("create table t (a integer primary key)")?;
        let mut select = conn.prepare_cached("select a from t where a > ?1 order by a limit ?2")?;
        for most in 1..5 {
            assert!(!select.exists([most, most])?);
        }
        assert_eq!(select.get_status(StatementStatus::RePrepare), 0);
        Ok(())
    }

    #[test]
    fn an_old_sqlite_is_refused() {
        let code = |number| check_version(number, "x").err().map(|e| e.code());
        assert_eq!(code(3_051_002), Some("sqlite_too_old"));
        assert_eq!(code(3_051_003), None);
    }
}
