//! What stands in a queue: what is due, what waits for the clock, for its line, or to be woken, and who is busy.
//!
//! Asked by people, while a million may wait: nothing is counted further than it is told.

use tidemill_core::why::{COUNTED_MAX, LINES_MAX};
use tidemill_core::{JobId, WorkerId};
use tokio_postgres::Row;

use crate::error::Result;
use crate::postgres::connect::Db;
use crate::postgres::statement::{At, Statement, sql};
use crate::view::Crowd;

const CROWD: Statement = sql!("select_crowd", TIMESTAMPTZ, TEXT, INT8);
const LINES: Statement = sql!("select_stuck_lines", TEXT, INT8, INT8);
const HELD: Statement = sql!("select_busy", INT8);

pub(crate) async fn look(db: &Db, queue: &str) -> Result<Crowd> {
    let most = COUNTED_MAX as i64;
    let number = |row: &Row, at: usize| row.get::<_, i64>(at).max(0) as u64;
    let time = |row: &Row, at: usize| row.get::<_, Option<At>>(at).map(|at| at.0);
    let mut crowd = Crowd::default();
    for row in db.read(&CROWD, &[&db.manual_now(), &queue, &most]).await? {
        crowd.due += number(&row, 0);
        crowd.later += number(&row, 1);
        crowd.asleep += number(&row, 2);
        crowd.next_at = [crowd.next_at, time(&row, 3)].into_iter().flatten().min();
        crowd.last_at = crowd.last_at.max(time(&row, 4));
        crowd.kinds.extend(row.get::<_, Vec<String>>(5));
    }
    for row in db.read(&LINES, &[&queue, &most, &LINES_MAX]).await? {
        (crowd.lined, crowd.stuck) = (number(&row, 0), number(&row, 1));
        let head = row.get::<_, Option<uuid::Uuid>>(3).map(JobId);
        crowd.stuck_line = row.get::<_, Option<String>>(2).zip(head);
    }
    let held = db.read(&HELD, &[&most]).await?;
    crowd.held =
        held.iter().map(|row| (WorkerId(row.get(0)), row.get(1), number(row, 2))).collect();
    Ok(crowd)
}
