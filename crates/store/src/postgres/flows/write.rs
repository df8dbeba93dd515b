//! Writes flows: one call, one statement per table, however many jobs.

use std::sync::Arc;

use tidemill_core::FlowId;
use tidemill_core::flow::Plan;

use super::start::{is_plain, start_plain};
use super::{act, advance};
use crate::error::Result;
use crate::flow::Start;
use crate::flow::text::{Texts, texts};
use crate::postgres::Shared;
use crate::postgres::connect::Conn;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{Statement, sql};

const WRITE: Statement = sql!("write_flow", TIMESTAMPTZ, TEXT, TEXT);

/// Writes a flow and, unless it is to be built further, lets it begin.
pub(crate) async fn start(shared: &Arc<Shared>, plan: Plan, when: Start) -> Result<bool> {
    if when == Start::Now && is_plain(&plan) {
        return start_plain(shared, plan).await;
    }
    let Texts { flow: given, jobs } = texts(&plan)?;
    let mut tries = Tries::resend();
    loop {
        let written = start_once(shared, plan.id, &given, &jobs, when).await;
        match written {
            Ok((is_new, done)) => {
                done.tell(shared);
                return Ok(is_new || tries.was_lost());
            }
            Err(fault) => tries.again(fault).await?,
        }
    }
}

async fn start_once(
    shared: &Shared,
    id: FlowId,
    given: &str,
    jobs: &str,
    when: Start,
) -> Result<(bool, advance::Done), Fault> {
    let conn = shared.db.begin().await?;
    let acted = write(shared, &conn, id, given, jobs, when).await;
    conn.end(acted).await
}

async fn write(
    shared: &Shared,
    conn: &Conn<'_>,
    id: FlowId,
    given: &str,
    jobs: &str,
    when: Start,
) -> Result<(bool, advance::Done), Fault> {
    let rows = conn.query(&WRITE, &[&shared.db.manual_now(), &given, &jobs]).await?;
    let is_new = rows.first().is_some_and(|row| row.get(0));
    if !is_new || when == Start::Later {
        return Ok((is_new, advance::Done::default()));
    }
    Ok((true, act::begin_in(shared, conn, id.0).await?.1))
}
