//! Brings the schema up to date, once, however many processes start together.
//!
//! It refuses to run on a schema newer than it knows, and on one whose migrations are not its own.

use crate::error::{Error, Result};
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{Statement, sql};

const VERSIONS: Statement = sql!("schema_version");
const VERSION_TABLE: Statement = sql!("create_schema_version");
const VERSION_ADD: Statement = sql!("insert_schema_version", INT4, TEXT);
const LOCK: Statement = sql!("lock_schema");
const PRESENT: Statement = sql!("schema_present");

/// All migrations, by number from 1.
const MIGRATIONS: [&str; 10] = [
    include_str!("migrations/0001_heart.sql"),
    include_str!("migrations/0002_schedules.sql"),
    include_str!("migrations/0003_claim.sql"),
    include_str!("migrations/0004_depth.sql"),
    include_str!("migrations/0005_flows.sql"),
    include_str!("migrations/0006_runs.sql"),
    include_str!("migrations/0007_streams.sql"),
    include_str!("migrations/0008_webhooks.sql"),
    include_str!("migrations/0009_operators.sql"),
    include_str!("migrations/0010_deadlines.sql"),
];

/// The newest schema this program knows.
pub(crate) fn known() -> i64 {
    MIGRATIONS.len() as i64
}

/// Checks the schema and, if `migrate`, brings it up to date.
pub(crate) async fn run(db: &Db, migrate: bool) -> Result<()> {
    let mut tries = Tries::resend();
    loop {
        match run_once(db, migrate).await {
            Err(fault) => tries.again(fault).await?,
            Ok(()) => return Ok(()),
        }
    }
}

async fn run_once(db: &Db, migrate: bool) -> Result<(), Fault> {
    let conn = db.conn().await?;
    let found = found(&conn).await?;
    if found == known() {
        return Ok(());
    }
    if !migrate {
        return Err(Fault::Refused(Error::SchemaOlder { found, known: known() }));
    }
    drop(conn);
    let conn = db.begin().await?;
    let applied = apply(&conn).await;
    match applied {
        Ok(()) => conn.commit().await,
        Err(fault) => {
            conn.rollback().await?;
            Err(fault)
        }
    }
}

/// Applies what is missing. Whoever comes second waits, and finds nothing to do.
async fn apply(conn: &Conn<'_>) -> Result<(), Fault> {
    conn.query(&LOCK, &[]).await?;
    if !is_present(conn).await? {
        conn.batch("create schema if not exists tidemill").await?;
        conn.query(&VERSION_TABLE, &[]).await?;
    }
    let found = found(conn).await?;
    for (at, text) in MIGRATIONS.iter().enumerate().skip(found as usize) {
        conn.batch(text).await?;
        conn.query(&VERSION_ADD, &[&(at as i32 + 1), &checksum(text)]).await?;
        tracing::info!(number = at + 1, "the schema was migrated");
    }
    Ok(())
}

async fn is_present(conn: &Conn<'_>) -> Result<bool, Fault> {
    let rows = conn.query(&PRESENT, &[]).await?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

/// The version of the database; 0 when there is nothing yet.
async fn found(conn: &Conn<'_>) -> Result<i64, Fault> {
    if !is_present(conn).await? {
        return Ok(0);
    }
    let rows = conn.query(&VERSIONS, &[]).await?;
    let found = rows.last().map_or(0, |row| i64::from(row.get::<_, i32>(0)));
    if found > known() {
        return Err(Fault::Refused(Error::SchemaNewer { found, known: known() }));
    }
    for row in rows {
        let (number, kept): (i32, String) = (row.get(0), row.get(1));
        let ours = MIGRATIONS.get(number as usize - 1).map(|text| checksum(text));
        if ours.as_deref() != Some(&*kept) {
            let reason =
                format!("migration {number} of the database is not the one of this program");
            return Err(Fault::Refused(Error::Database { reason }));
        }
    }
    Ok(found)
}

/// FNV-1a: tells an edited file from its original; it guards against mistakes, not against malice.
fn checksum(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}
