//! Writes flows: one call, one statement per table, however many jobs.

use std::collections::BTreeMap;
use std::sync::Arc;

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
use crate::run::Debt;

const WRITE: Statement = sql!("write_flow", TIMESTAMPTZ, TEXT, TEXT);
const PAY: Statement = sql!("delete_debt", UUID, INT8);
const ADMIT: Statement = sql!("admit_flow", TIMESTAMPTZ, TEXT_ARRAY, INT8_ARRAY);

/// Writes a flow and, unless it is to be built further, lets it begin.
pub(crate) async fn start(shared: &Arc<Shared>, plan: Plan, when: Start) -> Result<bool> {
    if matches!(when, Start::Now | Start::IfRoom) && is_plain(&plan) {
        return start_plain(shared, plan, when).await;
    }
    let Texts { flow: given, jobs } = texts(&plan)?;
    let mut tries = Tries::resend();
    loop {
        let written = start_once(shared, &plan, &given, &jobs, when).await;
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
    plan: &Plan,
    given: &str,
    jobs: &str,
    when: Start,
) -> Result<(bool, advance::Done), Fault> {
    let conn = shared.db.begin().await?;
    let acted = write(shared, &conn, plan, given, jobs, when).await;
    conn.end(acted).await
}

async fn write(
    shared: &Shared,
    conn: &Conn<'_>,
    plan: &Plan,
    given: &str,
    jobs: &str,
    when: Start,
) -> Result<(bool, advance::Done), Fault> {
    if let Start::Pays(Debt { job, number }) = when
        && conn.query(&PAY, &[&job.0, &number]).await?.is_empty()
    {
        return Ok((false, advance::Done::default()));
    }
    let rows = conn.query(&WRITE, &[&shared.db.manual_now(), &given, &jobs]).await?;
    let is_new = rows.first().is_some_and(|row| row.get(0));
    if !is_new || when == Start::Later {
        return Ok((is_new, advance::Done::default()));
    }
    if when == Start::IfRoom {
        admit(shared, conn, plan.first_jobs()).await?;
    }
    Ok((true, act::begin_in(shared, conn, plan.id.0).await?.1))
}

/// Refuses so many jobs of each queue that are about to be let go, where one has no room for them.
pub(super) async fn admit(
    shared: &Shared,
    conn: &Conn<'_>,
    first: BTreeMap<String, u64>,
) -> Result<(), Fault> {
    let (queues, jobs): (Vec<String>, Vec<i64>) =
        first.into_iter().map(|(queue, jobs)| (queue, jobs as i64)).unzip();
    conn.query(&ADMIT, &[&shared.db.manual_now(), &queues, &jobs]).await?;
    Ok(())
}
