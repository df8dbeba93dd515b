//! A look at the health of the database: what would lose jobs, slow claims down, or keep hints away.

use std::time::Duration;

use tokio_postgres::Row;

use crate::error::Result;
use crate::postgres::statement::{At, Statement, sql};
use crate::postgres::{Shared, migrate};
use crate::view::Finding;

const EXAMINE: Statement = sql!("examine");

const LISTEN_WAIT: Duration = Duration::from_secs(2);
const SKEW_MAX_MS: i128 = 1000;
const TRANSACTION_MAX_S: i64 = 300;
const DEAD_ROWS_MAX: i64 = 100_000;

/// Looks at everything.
pub(crate) async fn examine(shared: &Shared) -> Result<Vec<Finding>> {
    let rows = shared.db.read(&EXAMINE, &[]).await?;
    let Some(row) = rows.first() else { return Ok(Vec::new()) };
    let mut findings = vec![
        good("version", row.get("version")),
        schema(row),
        setting(row, "fsync", "a crash of the machine can corrupt the database"),
        setting(row, "full_page_writes", "a crash of the machine can corrupt the database"),
        setting(row, "synchronous_commit", "a crash can lose jobs that were acknowledged"),
        recovery(row),
        skew(shared, row),
        transaction(row),
    ];
    findings.extend(["ready", "lease"].map(|table| bloat(row, table)));
    findings.extend(FILLED.map(|filled| filling(row, filled)));
    findings.push(listener(shared).await);
    Ok(findings)
}

/// A table that migrations fill, and that stays as full: how many rows, and what puts them back.
type Filled = (&'static str, i64, &'static str);

const FILLED: [Filled; 2] = [
    (
        "rulebook",
        1,
        "its row is gone, and without it nothing is claimed; run `insert into tidemill.rulebook (edition) values \
         (extract(epoch from now())::int8)`",
    ),
    (
        "turn",
        16_384,
        "rows of it are gone, and without them limits by tenant or key let nothing start; run `insert into \
         tidemill.turn select generate_series(0, 16383) on conflict do nothing`",
    ),
];

fn filling(row: &Row, (table, rows, hint): Filled) -> Finding {
    let found: i64 = row.get(&*format!("{table}_rows"));
    judged(&format!("table {table}"), format!("{found} of {rows} rows"), found == rows, hint)
}

fn good(what: &str, found: String) -> Finding {
    Finding { what: what.into(), found, ok: true, hint: None }
}

fn judged(what: &str, found: String, ok: bool, hint: &str) -> Finding {
    Finding { what: what.into(), found, ok, hint: (!ok).then(|| hint.to_owned()) }
}

fn schema(row: &Row) -> Finding {
    let found = row.get::<_, Option<i64>>("schema_version").unwrap_or(0);
    judged("schema", found.to_string(), found == migrate::known(), "run `tidemill migrate`")
}

fn setting(row: &Row, name: &str, danger: &str) -> Finding {
    let found: String = row.get(name);
    let ok = !matches!(found.as_str(), "off" | "local");
    judged(name, found, ok, &format!("{danger}; set {name} = on"))
}

fn recovery(row: &Row) -> Finding {
    let standby: bool = row.get("in_recovery");
    let found = if standby { "a standby" } else { "a primary" };
    judged("role", found.into(), !standby, "connect to the primary: a standby accepts no writes")
}

fn skew(shared: &Shared, row: &Row) -> Finding {
    let theirs = row.get::<_, At>("clock").0;
    let ms = theirs.duration_since(shared.db.machine_now()).as_millis();
    let ok = ms.abs() <= SKEW_MAX_MS || shared.db.is_manual();
    let hint = "synchronise both machines' clocks; the database's decides when jobs are due";
    judged("clock", format!("{ms} ms ahead of this machine"), ok, hint)
}

fn transaction(row: &Row) -> Finding {
    let age_s = row.get::<_, Option<i64>>("oldest_transaction_s").unwrap_or(0);
    let hint =
        "find it in pg_stat_activity (backend_xmin): while it is open, vacuum removes nothing";
    judged("oldest transaction", format!("{age_s} s"), age_s <= TRANSACTION_MAX_S, hint)
}

fn bloat(row: &Row, table: &str) -> Finding {
    let dead = row.get::<_, Option<i64>>(&*format!("{table}_dead")).unwrap_or(0);
    let bytes: i64 = row.get(&*format!("{table}_bytes"));
    let found = format!("{dead} dead rows, {} KiB", bytes / 1024);
    let hint = "look for a long transaction, and whether autovacuum keeps up";
    judged(&format!("table {table}"), found, dead <= DEAD_ROWS_MAX, hint)
}

async fn listener(shared: &Shared) -> Finding {
    if shared.db.is_behind_pooler() {
        let found = "a pooler shares connections: jobs of other processes are found by looking";
        return good("hints", found.into());
    }
    // A store that nobody has listened to yet is only now about to.
    let _heard = shared.wake.listen();
    let mut listening = shared.listening.subscribe();
    let ok = tokio::time::timeout(LISTEN_WAIT, listening.wait_for(|on| *on))
        .await
        .is_ok_and(|on| on.is_ok());
    let found = if ok { "heard at once" } else { "not heard" };
    judged("hints", found.into(), ok, "jobs of other processes start up to a second later")
}
