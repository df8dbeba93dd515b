//! Brings the schema up to date.
//!
//! All in one transaction that holds the write lock from its start, so that two programs which
//! start at once both find it done. Refuses a database that a newer program has migrated, and one
//! whose migrations are not those of this program.

use rusqlite::{Connection, OptionalExtension, params};

use crate::error::{Error, Result};

const MIGRATIONS: &[(i64, &str)] = &[
    (1, include_str!("migrations/0001_heart.sql")),
    (2, include_str!("migrations/0002_schedules.sql")),
    (3, include_str!("migrations/0003_claim.sql")),
    (4, include_str!("migrations/0004_depth.sql")),
    (5, include_str!("migrations/0005_flows.sql")),
    (6, include_str!("migrations/0006_runs.sql")),
    (7, include_str!("migrations/0007_streams.sql")),
    (8, include_str!("migrations/0008_webhooks.sql")),
    (9, include_str!("migrations/0009_operators.sql")),
    (10, include_str!("migrations/0010_deadlines.sql")),
];

/// The version this program needs.
pub(super) const KNOWN: i64 = MIGRATIONS.len() as i64;

/// Migrates if `wanted`, else only checks.
pub(super) fn migrate(conn: &Connection, wanted: bool) -> Result<()> {
    let found = found(conn)?;
    if found > KNOWN {
        return Err(Error::SchemaNewer { found, known: KNOWN });
    }
    if found == KNOWN {
        return check(conn);
    }
    if !wanted {
        return Err(Error::SchemaOlder { found, known: KNOWN });
    }
    conn.execute_batch("begin immediate")?;
    let applied = apply(conn).and_then(|()| Ok(conn.execute_batch("commit")?));
    if applied.is_err() && !conn.is_autocommit() {
        // The first error is the one to tell.
        let _ = conn.execute_batch("rollback");
    }
    applied
}

/// The version of the database; 0 if it has none of our tables.
pub(super) fn found(conn: &Connection) -> Result<i64> {
    if !conn.table_exists(None, "tidemill_schema_version")? {
        return Ok(0);
    }
    Ok(conn.query_one(include_str!("sql/schema_version.sql"), [], |row| row.get(0))?)
}

fn apply(conn: &Connection) -> Result<()> {
    conn.execute_batch(include_str!("sql/create_schema_version.sql"))?;
    // Whoever held the lock before may have done it.
    let found = found(conn)?;
    for (number, sql) in MIGRATIONS.iter().filter(|(number, _)| *number > found) {
        conn.execute_batch(sql)?;
        let insert = include_str!("sql/insert_schema_version.sql");
        conn.execute(insert, params![number, checksum(sql)])?;
    }
    Ok(())
}

fn check(conn: &Connection) -> Result<()> {
    for (number, sql) in MIGRATIONS {
        let select = include_str!("sql/schema_checksum.sql");
        let applied = conn.query_one(select, [number], |row| row.get::<_, i64>(0)).optional()?;
        if applied != Some(checksum(sql)) {
            let reason = format!(
                "migration {number} of this database is not the one of this program; \
                 was it made by an unreleased version?"
            );
            return Err(Error::Database { reason });
        }
    }
    Ok(())
}

/// FNV-1a: enough to notice an edited file.
fn checksum(text: &str) -> i64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash as i64
}
