//! Looks at the health of the database file.
//!
//! Refuses to read a large database through just to check it: above a bound it says how to.

use std::path::Path;

use rusqlite::Connection;

use crate::error::Result;
use crate::sqlite::migrate;
use crate::view::Finding;

const CHECKED_BYTES_MAX: i64 = 512 * 1024 * 1024;
const WAL_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Free pages below this are no waste: they are used again.
const FREE_BYTES_MAX: i64 = 256 * 1024 * 1024;
/// The log alone may need that much before it is reused.
const DISK_BYTES_MIN: u64 = WAL_BYTES_MAX;
const MIB: i64 = 1024 * 1024;

/// Looks at the database through a reader's connection.
pub(super) fn examine(conn: &Connection, file: Option<&Path>) -> Result<Vec<Finding>> {
    let page_bytes: i64 = pragma(conn, "page_size")?;
    let bytes = page_bytes * pragma::<i64>(conn, "page_count")?;
    let free_bytes = page_bytes * pragma::<i64>(conn, "freelist_count")?;
    let mut findings = vec![
        finding("SQLite", rusqlite::version().to_owned(), None),
        schema(conn)?,
        journal(conn, file)?,
        finding("database size", format!("{} MiB", bytes / MIB), None),
        free(bytes, free_bytes),
        integrity(conn, bytes)?,
    ];
    if migrate::found(conn)? == migrate::KNOWN {
        findings.extend(filled(conn)?);
    }
    findings.extend(file.map(wal));
    findings.extend(file.and_then(disk_bytes).map(disk));
    Ok(findings)
}

fn finding(what: &str, found: String, hint: Option<String>) -> Finding {
    Finding { what: what.to_owned(), found, ok: hint.is_none(), hint }
}

fn pragma<T: rusqlite::types::FromSql>(conn: &Connection, name: &str) -> Result<T> {
    Ok(conn.pragma_query_value(None, name, |row| row.get(0))?)
}

fn schema(conn: &Connection) -> Result<Finding> {
    let found = migrate::found(conn)?;
    let hint = (found != migrate::KNOWN)
        .then(|| format!("this program needs version {}; run `tidemill migrate`", migrate::KNOWN));
    Ok(finding("schema version", found.to_string(), hint))
}

/// Tables that migrations fill: what was taken out by hand is missed.
fn filled(conn: &Connection) -> Result<[Finding; 2]> {
    let rows = conn.query_one(include_str!("sql/examine.sql"), [], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
    });
    let (rulebook, bytes) = rows?;
    let edition = "its row is gone, and without it nothing is claimed; run `insert into tidemill_rulebook (edition) \
        values (unixepoch())`";
    let hex = "rows of it are gone, and without them ids are not read that plain SQL gives as text; run `with \
        recursive b (n) as (select 0 union all select n + 1 from b where n < 255) insert or ignore into tidemill_byte \
        select n, printf('%02x', n), unhex(printf('%02x', n)) from b`";
    Ok([filling("rulebook", rulebook, 1, edition), filling("byte", bytes, 256, hex)])
}

fn filling(table: &str, found: i64, rows: i64, hint: &str) -> Finding {
    let hint = (found != rows).then(|| hint.to_owned());
    finding(&format!("table {table}"), format!("{found} of {rows} rows"), hint)
}

fn journal(conn: &Connection, file: Option<&Path>) -> Result<Finding> {
    let mode: String = pragma(conn, "journal_mode")?;
    let hint = (file.is_some() && mode != "wal").then(|| {
        "another program changed the journal mode; restart with all others stopped".to_owned()
    });
    Ok(finding("journal mode", mode, hint))
}

/// How durable a commit is; asked inside a transaction of the writer, where it counts.
pub(super) fn synchronous(conn: &Connection) -> Result<Finding> {
    let level: i64 = pragma(conn, "synchronous")?;
    let word = ["off", "normal", "full", "extra"].get(level as usize).unwrap_or(&"unknown");
    let hint = (level < 2).then(|| "a power cut could lose what was acknowledged".to_owned());
    Ok(finding("synchronous", (*word).to_owned(), hint))
}

fn free(bytes: i64, free_bytes: i64) -> Finding {
    let wasted = free_bytes > FREE_BYTES_MAX && free_bytes > bytes / 2;
    let hint = wasted.then(|| "run VACUUM in a quiet hour to give the space back".to_owned());
    finding("free space in the file", format!("{} MiB", free_bytes / MIB), hint)
}

fn integrity(conn: &Connection, bytes: i64) -> Result<Finding> {
    let what = "integrity";
    if bytes > CHECKED_BYTES_MAX {
        let found = "not checked: the file is large; run PRAGMA quick_check yourself".to_owned();
        return Ok(finding(what, found, None));
    }
    let found: String = conn.query_one("pragma quick_check(1)", [], |row| row.get(0))?;
    let hint = (found != "ok").then(|| "restore a backup, and look at the disk".to_owned());
    Ok(finding(what, found, hint))
}

fn wal(file: &Path) -> Finding {
    let mut name = file.as_os_str().to_owned();
    name.push("-wal");
    let bytes = std::fs::metadata(Path::new(&name)).map_or(0, |data| data.len());
    let hint = (bytes > WAL_BYTES_MAX).then(|| {
        "a program keeps a read transaction open, so the log cannot be reused; find and end it"
            .to_owned()
    });
    finding("write-ahead log", format!("{} MiB", bytes / MIB as u64), hint)
}

/// What the disk of the file has left for us; `None` where nobody can say.
#[cfg(unix)]
fn disk_bytes(file: &Path) -> Option<u64> {
    let disk = nix::sys::statvfs::statvfs(file).ok()?;
    // Their types differ between systems.
    Some((disk.blocks_available() as u64).saturating_mul(disk.fragment_size() as u64))
}

#[cfg(not(unix))]
fn disk_bytes(_: &Path) -> Option<u64> {
    None
}

fn disk(bytes: u64) -> Finding {
    let hint = (bytes < DISK_BYTES_MIN)
        .then(|| "make room: nothing can be enqueued or settled on a full disk".to_owned());
    finding("free space on the disk", format!("{} MiB", bytes / MIB as u64), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_nearly_full_is_a_finding() {
        assert!(disk(DISK_BYTES_MIN).ok);
        let full = disk(DISK_BYTES_MIN - 1);
        assert_eq!((full.ok, full.found.as_str(), full.hint.is_some()), (false, "255 MiB", true));
    }

    #[cfg(unix)]
    #[test]
    fn the_disk_of_a_file_says_what_it_has_left() -> std::io::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        assert!(disk_bytes(file.path()).is_some());
        assert_eq!(disk_bytes(Path::new("/no/such/file")), None);
        Ok(())
    }
}
