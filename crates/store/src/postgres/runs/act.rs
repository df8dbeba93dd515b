//! What people do with runs: done under the lock of the run, and kept with who did it and why.

use jiff::Timestamp;
use tidemill_core::JobId;
use tidemill_core::workflow::{Amend, Ending, Entry, NEVER};
use uuid::Uuid;

use super::mail::locked;
use super::view::{entry_row, views};
use crate::error::Result;
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{At, Statement, sql};
use crate::postgres::{Shared, cancel};
use crate::request::CancelAnswer;
use crate::run::{RunAct, RunActView, RunAnswer, RunOrder, act_of, entries, unwritten, written};
use crate::wake::Hint;

const PAUSE: Statement = sql!("update_run", UUID, BOOL);
const PUT_OFF: Statement = sql!("put_off", UUID, TIMESTAMPTZ);
const RUN_NOW: Statement = sql!("run_now", TIMESTAMPTZ, UUID);
const JOURNAL: Statement = sql!("select_journal", UUID);
const CUT: Statement = sql!("cut_journal", UUID, INT4);
const ADD: Statement = sql!("insert_entry", TIMESTAMPTZ, UUID, INT4, TEXT);
const KNOWN: Statement = sql!("select_known_jobs", UUID_ARRAY);
const ACTS: Statement = sql!("select_run_acts", UUID);
const HAS_ACT: Statement = sql!("has_run_act", UUID);
const KEEP: Statement =
    sql!("insert_run_act", TIMESTAMPTZ, UUID, UUID, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT);

/// What came of an act.
struct Came {
    answer: RunAnswer,
    /// The queue in which the run goes on.
    queue: Option<String>,
    called_off: Option<cancel::Search>,
}

impl From<RunAnswer> for Came {
    fn from(answer: RunAnswer) -> Self {
        Self { answer, queue: None, called_off: None }
    }
}

/// What the step of an act had ended with, and has since.
type Endings = (Option<Ending>, Option<Ending>);

/// Acts on a run.
pub(crate) async fn change(shared: &Shared, job: JobId, order: &RunOrder) -> Result<RunAnswer> {
    if views(&shared.db, vec![job.0]).await?.is_empty() {
        return Ok(RunAnswer::Unknown);
    }
    let (mut tries, id) = (Tries::resend(), Uuid::now_v7());
    let came = loop {
        let conn = shared.db.begin().await?;
        let acted = change_once(shared, &conn, (job, id), order, tries.was_lost()).await;
        if let Ok(Came { answer: answer @ (RunAnswer::NotNow | RunAnswer::Refused(_)), .. }) = acted
        {
            // Where it waited is where it waits.
            conn.rollback().await?;
            return Ok(answer);
        }
        match conn.end(acted).await {
            Ok(came) => break came,
            Err(fault) => tries.again(fault).await?,
        }
    };
    if let Some(queue) = came.queue {
        shared.hint(Hint::Ready { queue });
    }
    if let Some(search) = came.called_off {
        search.tell(shared);
    }
    Ok(came.answer)
}

async fn change_once(
    shared: &Shared,
    conn: &Conn<'_>,
    (job, id): (JobId, Uuid),
    order: &RunOrder,
    was_lost: bool,
) -> Result<Came, Fault> {
    if was_lost && !conn.query(&HAS_ACT, &[&id]).await?.is_empty() {
        return Ok(RunAnswer::Acted.into());
    }
    let now = shared.db.manual_now();
    let (came, (was, became)) = match &order.act {
        RunAct::Cancel => (call_off(shared, conn, job, order.reason()).await?, Endings::default()),
        act => change_in(conn, now, job, act).await?,
    };
    if matches!(came.answer, RunAnswer::Acted | RunAnswer::Told) {
        let text = |ending: Option<Ending>| ending.as_ref().map(written).transpose();
        let (was, became) =
            (text(was).map_err(Fault::Refused)?, text(became).map_err(Fault::Refused)?);
        let (word, step) = (order.word().word(), order.step());
        let (by, why) = (&order.by, &order.why);
        conn.query(&KEEP, &[&now, &id, &job.0, &word, &step, by, why, &was, &became]).await?;
    }
    Ok(came)
}

async fn call_off(
    shared: &Shared,
    conn: &Conn<'_>,
    job: JobId,
    reason: &str,
) -> Result<Came, Fault> {
    let search = cancel::cancel_in(shared, conn, job, reason).await?;
    let answer = match search.answer(job) {
        CancelAnswer::Cancelled => RunAnswer::Acted,
        CancelAnswer::Requested => RunAnswer::Told,
        CancelAnswer::Finished => RunAnswer::NotNow,
        CancelAnswer::Unknown => RunAnswer::Unknown,
    };
    Ok(Came { answer, queue: None, called_off: Some(search) })
}

async fn change_in(
    conn: &Conn<'_>,
    now: Option<At>,
    job: JobId,
    act: &RunAct,
) -> Result<(Came, Endings), Fault> {
    locked(conn, now, &[job.0]).await?;
    let mut endings = Endings::default();
    let known = conn.query(&KNOWN, &[&[job.0].as_slice()]).await?;
    if known.iter().any(|row| row.get(1)) {
        return Ok((RunAnswer::NotNow.into(), endings));
    }
    if let RunAct::Amend(amend) = act {
        // Only what waits can be changed: out of its sheaf, no claim gets it before this is committed.
        if put_off(conn, job, NEVER).await?.is_none() {
            return Ok((RunAnswer::NotNow.into(), endings));
        }
        match amend_in(conn, now, job, amend).await? {
            Ok(amended) => endings = amended,
            Err(why) => return Ok((RunAnswer::Refused(why).into(), endings)),
        }
    }
    let is_paused = *act == RunAct::Pause;
    conn.query(&PAUSE, &[&job.0, &is_paused]).await?;
    if is_paused {
        put_off(conn, job, NEVER).await?;
        return Ok((RunAnswer::Acted.into(), endings));
    }
    let rows = conn.query(&RUN_NOW, &[&now, &job.0]).await?;
    let queue = rows.first().and_then(|row| row.get(0));
    Ok((Came { queue, ..RunAnswer::Acted.into() }, endings))
}

/// Changes a journal as is decided on it; or says why not.
async fn amend_in(
    conn: &Conn<'_>,
    now: Option<At>,
    job: JobId,
    amend: &Amend,
) -> Result<Result<Endings, String>, Fault> {
    let rows: Vec<_> = conn.query(&JOURNAL, &[&job.0]).await?.iter().map(entry_row).collect();
    let journal = entries(&rows).map_err(Fault::Refused)?;
    let amendment = match amend.decide(&journal) {
        Ok(amendment) => amendment,
        Err(why) => return Ok(Err(why)),
    };
    if let Some(from) = amendment.cut {
        conn.query(&CUT, &[&job.0, &(from as i32)]).await?;
    }
    let mut became = None;
    if let Some((number, entry)) = amendment.add {
        let text = written(&entry).map_err(Fault::Refused)?;
        conn.query(&ADD, &[&now, &job.0, &(number as i32), &text]).await?;
        if let Entry::Ended { ending, .. } = entry {
            became = Some(ending);
        }
    }
    Ok(Ok((amendment.was, became)))
}

async fn put_off(conn: &Conn<'_>, job: JobId, until: Timestamp) -> Result<Option<String>, Fault> {
    let rows = conn.query(&PUT_OFF, &[&job.0, &At(until)]).await?;
    Ok(rows.first().and_then(|row| row.get(0)))
}

/// What was done with a run from outside.
pub(crate) async fn acts(db: &Db, job: JobId) -> Result<Vec<RunActView>> {
    let rows = db.read(&ACTS, &[&job.0]).await?;
    let read = |row: &tokio_postgres::Row| {
        Ok(RunActView {
            at: row.get::<_, At>(0).0,
            act: act_of(row.get(1))?,
            step: row.get(2),
            by: row.get(3),
            why: row.get(4),
            was: unwritten(row.get(5))?,
            became: unwritten(row.get(6))?,
        })
    };
    rows.iter().map(read).collect()
}
