//! Schedules: set, listed, deleted; and the history of their slots.
//!
//! A change locks the rows it speaks of, in the order of their names, and looks at their versions.
//! Refuses to write anything when one of them is another than its change was made of.

use std::collections::HashMap;

use tidemill_core::JobId;
use tokio_postgres::Row;

use crate::error::Result;
use crate::postgres::Shared;
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{At, Statement, sql};
use crate::schedule::{
    FireView, Forgot, How, NextAt, ScheduleChange, ScheduleView, What, Which, of_number,
    read_definition, write_definition,
};
use crate::wake::Hint;

const LIST: Statement = sql!("select_schedules", TEXT, TEXT, TEXT, INT8);
const NEXT: Statement = sql!("select_next_schedules", INT8);
const LOCK: Statement = sql!("lock_schedules", TIMESTAMPTZ, TEXT_ARRAY);
const MAKE: Statement = sql!("insert_schedule", TIMESTAMPTZ, TEXT, TEXT, BOOL, TEXT, TIMESTAMPTZ);
const CHANGE: Statement =
    sql!("update_schedule", TIMESTAMPTZ, TEXT, TEXT, BOOL, TEXT, TIMESTAMPTZ, BOOL);
const DELETE: Statement = sql!("delete_schedule", TEXT);
const DELETE_FIRES: Statement = sql!("delete_fires", TEXT);
const HISTORY: Statement = sql!("select_fires", TEXT, INT8);

/// The schedules that are meant.
pub(crate) async fn list(db: &Db, which: &Which) -> Result<Vec<ScheduleView>> {
    let (none, all) = (None::<&String>, None::<i64>);
    let rows = match which {
        Which::All => db.read(&LIST, &[&none, &none, &none, &all]).await?,
        Which::Named(name) => db.read(&LIST, &[&Some(name), &none, &none, &all]).await?,
        Which::OwnedBy(owner) => db.read(&LIST, &[&none, &Some(owner), &none, &all]).await?,
        Which::Page { owner, after, limit } => {
            db.read(&LIST, &[&none, owner, after, &Some(*limit as i64)]).await?
        }
        Which::Next(limit) => db.read(&NEXT, &[&(*limit as i64)]).await?,
    };
    rows.iter().map(view).collect()
}

fn view(row: &Row) -> Result<ScheduleView> {
    let time = |column: usize| row.get::<_, Option<At>>(column).map(|at| at.0);
    Ok(ScheduleView {
        definition: read_definition(row.get(0))?,
        version: row.get(1),
        paused: row.get(2),
        next_at: time(3),
        last_slot: time(4),
        last_job: row.get::<_, Option<uuid::Uuid>>(5).map(JobId),
        made_at: row.get::<_, At>(6).0,
        changed_at: row.get::<_, At>(7).0,
        forgot: Forgot { own: time(8).zip(time(9)), backfilled: time(10).zip(time(11)) },
    })
}

/// Changes schedules, all or none.
pub(crate) async fn change(shared: &Shared, changes: &[ScheduleChange]) -> Result<bool> {
    let mut tries = Tries::resend();
    let done = loop {
        match change_once(shared, changes).await {
            Ok(done) => break done,
            Err(fault) => tries.again(fault).await?,
        }
    };
    if done {
        shared.hint(Hint::Schedules);
    }
    Ok(done)
}

async fn change_once(shared: &Shared, changes: &[ScheduleChange]) -> Result<bool, Fault> {
    let conn = shared.db.begin().await?;
    match write_all(&conn, &shared.db, changes).await {
        Ok(true) => conn.commit().await.map(|()| true),
        Ok(false) => conn.rollback().await.map(|()| false),
        Err(fault) => {
            conn.rollback().await?;
            Err(fault)
        }
    }
}

async fn write_all(conn: &Conn<'_>, db: &Db, changes: &[ScheduleChange]) -> Result<bool, Fault> {
    let meant: Vec<Meant<'_>> = changes.iter().map(Meant::of).collect();
    let names: Vec<&str> = meant.iter().map(|meant| meant.name).collect();
    let rows = conn.query(&LOCK, &[&db.manual_now(), &names]).await?;
    let found: HashMap<&str, &Row> = rows.iter().map(|row| (row.get(0), row)).collect();
    if meant.iter().any(|meant| !meant.is_as_seen(found.get(meant.name).copied())) {
        return Ok(false);
    }
    for change in changes {
        write(conn, db, change).await?;
    }
    Ok(true)
}

/// Which schedule a change is of, and as what it was seen.
struct Meant<'a> {
    name: &'a str,
    version: i64,
    next_at: NextAt,
}

impl<'a> Meant<'a> {
    fn of(change: &'a ScheduleChange) -> Self {
        match change {
            ScheduleChange::Put { definition, version, next_at, .. } => {
                Self { name: &definition.name, version: *version, next_at: *next_at }
            }
            ScheduleChange::Delete { name, version } => {
                Self { name, version: *version, next_at: NextAt::Keep }
            }
        }
    }

    /// Whether it is so still: what `lock_schedules.sql` says of it.
    fn is_as_seen(&self, row: Option<&Row>) -> bool {
        let Some(row) = row else { return self.version == 0 };
        let (waits_for, At(now)) = (row.get::<_, Option<At>>(2).map(|at| at.0), row.get(3));
        row.get::<_, i64>(1) == self.version && !self.next_at.overlooks(waits_for, now)
    }
}

async fn write(conn: &Conn<'_>, db: &Db, change: &ScheduleChange) -> Result<(), Fault> {
    match change {
        ScheduleChange::Put { definition, version, paused, next_at } => {
            let text = write_definition(definition).map_err(Fault::Refused)?;
            let (keep, next) = match next_at {
                NextAt::Keep => (true, None),
                NextAt::At { next, .. } => (false, next.map(At)),
            };
            let (now, name, owner) = (db.manual_now(), &definition.name, &definition.owner);
            if *version == 0 {
                conn.query(&MAKE, &[&now, name, owner, paused, &text, &next]).await?;
            } else {
                conn.query(&CHANGE, &[&now, name, owner, paused, &text, &next, &keep]).await?;
            }
        }
        ScheduleChange::Delete { name, .. } => {
            conn.query(&DELETE, &[name]).await?;
            conn.query(&DELETE_FIRES, &[name]).await?;
        }
    }
    Ok(())
}

/// The history of a schedule, latest first.
pub(crate) async fn history(db: &Db, name: &str, limit: usize) -> Result<Vec<FireView>> {
    let rows = db.read(&HISTORY, &[&name, &(limit as i64)]).await?;
    let fire = |row: &Row| {
        Ok(FireView {
            slot: row.get::<_, At>(0).0,
            until: row.get::<_, Option<At>>(1).map(|at| at.0),
            slots: row.get::<_, i64>(2) as u64,
            what: of_number(&What::ALL, row.get(3))?,
            how: of_number(&How::ALL, row.get(4))?,
            job: row.get::<_, Option<uuid::Uuid>>(5).map(JobId),
            jobs: row.get::<_, i32>(6) as u32,
            at: row.get::<_, At>(7).0,
        })
    };
    rows.iter().map(fire).collect()
}
