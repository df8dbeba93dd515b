//! What people do with runs: done under the lock of the run, and kept with who did it and why.

use jiff::Timestamp;
use tidemill_core::stream::Said;
use tidemill_core::workflow::{Amend, Ending, NEVER};
use tidemill_core::{By, JobId, Payload};
use uuid::Uuid;

use super::fork::fork;
use super::mail::{Locked, locked};
use super::view::{entry_row, views};
use crate::error::Result;
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{At, Param, Statement, sql};
use crate::postgres::{Shared, cancel, streams};
use crate::request::CancelAnswer;
use crate::run::{
    self, Act, Endings, FORGOTTEN, RunAct, RunActView, RunAnswer, RunOrder, act_of, allowed,
    entries, unwritten, written,
};
use crate::wake::Hint;

const PAUSE: Statement = sql!("update_run", UUID, BOOL);
const UNLOCK: Statement = sql!("unlock_run", UUID);
const PUT_OFF: Statement = sql!("put_off", UUID, TIMESTAMPTZ);
const RUN_NOW: Statement = sql!("run_now", TIMESTAMPTZ, UUID);
const JOURNAL: Statement = sql!("select_journal", UUID);
const CUT: Statement = sql!("cut_journal", UUID, INT4, INT4_ARRAY);
const UNHEAR: Statement = sql!("unhear_mail", UUID, INT8_ARRAY);
const ALLOW: Statement = sql!("allow_journal", UUID, INT4);
const ADD: Statement = sql!("insert_entry", TIMESTAMPTZ, UUID, INT4, TEXT);
const KNOWN: Statement = sql!("select_known_jobs", UUID_ARRAY);
const IS_DEAD: Statement = sql!("is_dead_run", UUID);
const LOCK_FLOW: Statement = sql!("lock_flow_of_run", UUID);
const REVIVE: Statement = sql!("redrive_dead", TIMESTAMPTZ, UUID_ARRAY, TEXT, TEXT, TEXT);
const ACTS: Statement = sql!("select_run_acts", UUID);
const HAS_ACT: Statement = sql!("has_run_act", UUID);
const KEEP: Statement =
    sql!("insert_run_act", TIMESTAMPTZ, UUID, UUID, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, UUID);
const VALUE: Statement = sql!("select_value", UUID, INT4);

/// What came of an act.
pub(super) struct Came {
    pub answer: RunAnswer,
    /// The queue in which the run goes on.
    pub queue: Option<String>,
    /// Its flow has something to see to.
    pub flow: bool,
    pub called_off: Vec<cancel::Search>,
}

impl From<RunAnswer> for Came {
    fn from(answer: RunAnswer) -> Self {
        Self { answer, queue: None, flow: false, called_off: Vec::new() }
    }
}

/// Acts on a run.
pub(crate) async fn change(shared: &Shared, job: JobId, order: &RunOrder) -> Result<RunAnswer> {
    let before = views(&shared.db, vec![job.0]).await?.pop();
    let Some(before) = before else { return Ok(RunAnswer::Unknown) };
    let said = order.said(&before);
    let (mut tries, id) = (Tries::resend(), Uuid::now_v7());
    let came = loop {
        let conn = shared.db.begin_thoughtful().await?;
        let acted =
            change_once(shared, &conn, (job, id), order, said.clone(), tries.was_lost()).await;
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
    if came.flow {
        shared.hint(Hint::Flows);
    }
    if said.is_some() {
        for id in shared.followed.written(std::iter::once(job)) {
            shared.hint(Hint::Stream { id });
        }
    }
    for search in came.called_off {
        search.tell(shared);
    }
    Ok(came.answer)
}

async fn change_once(
    shared: &Shared,
    conn: &Conn<'_>,
    (job, id): (JobId, Uuid),
    order: &RunOrder,
    said: Option<Said>,
    was_lost: bool,
) -> Result<Came, Fault> {
    if was_lost && !conn.query(&HAS_ACT, &[&id]).await?.is_empty() {
        return Ok(RunAnswer::Acted.into());
    }
    let now = shared.db.manual_now();
    let (came, endings) = match &order.act {
        RunAct::Cancel => (call_off(shared, conn, job, order.reason()).await?, Endings::default()),
        RunAct::Fork { to, into, instead } => {
            let step = (to.as_str(), *into, *instead);
            (fork(shared, conn, job, step, order).await?, Endings::default())
        }
        RunAct::Amend(amend) => {
            let by = By::from(&order.by).because(order.why.as_str());
            amend_run(shared, conn, job, amend, by).await?
        }
        RunAct::Pause => (hold_or_let_go(conn, now, job, true).await?, Endings::default()),
        RunAct::Unlock => (unlock(conn, now, job).await?, Endings::default()),
        RunAct::Resume { journal_entries_max } => {
            let came = hold_or_let_go(conn, now, job, false).await?;
            if let Some(entries) = journal_entries_max {
                conn.query(&ALLOW, &[&job.0, &(*entries as i32)]).await?;
            }
            (came, allowed(*journal_entries_max))
        }
    };
    if matches!(came.answer, RunAnswer::Acted | RunAnswer::Told) {
        keep(conn, now, (id, job), &Act { endings, ..Act::of(order) }).await?;
        if let Some(said) = said {
            streams::say(conn, now, job, said).await?;
        }
    }
    Ok(came)
}

/// Keeps an act under this id.
pub(super) async fn keep(
    conn: &Conn<'_>,
    now: Option<At>,
    (id, job): (Uuid, JobId),
    act: &Act<'_>,
) -> Result<(), Fault> {
    let text = |ending: &Option<Ending>| ending.as_ref().map(written).transpose();
    let was = text(&act.endings.0).map_err(Fault::Refused)?;
    let became = text(&act.endings.1).map_err(Fault::Refused)?;
    let Act { step, by, why, .. } = act;
    let (word, other) = (act.word.word(), act.other.map(|other| other.0));
    conn.query(&KEEP, &[&now, &id, &job.0, &word, step, by, why, &was, &became, &other]).await?;
    Ok(())
}

async fn call_off(
    shared: &Shared,
    conn: &Conn<'_>,
    job: JobId,
    reason: &str,
) -> Result<Came, Fault> {
    let search = cancel::cancel_in(shared, conn, &[job], reason).await?;
    let answer = match search.answer(job) {
        CancelAnswer::Cancelled => RunAnswer::Acted,
        CancelAnswer::Requested => RunAnswer::Told,
        CancelAnswer::Finished => RunAnswer::NotNow,
        CancelAnswer::Unknown => RunAnswer::Unknown,
    };
    Ok(Came { called_off: vec![search], ..answer.into() })
}

/// Pauses a run, or lets it go on.
async fn hold_or_let_go(
    conn: &Conn<'_>,
    now: Option<At>,
    job: JobId,
    is_paused: bool,
) -> Result<Came, Fault> {
    locked(conn, now, &[job.0]).await?;
    if is_finished(conn, job).await? {
        return Ok(RunAnswer::NotNow.into());
    }
    if !is_paused {
        return let_go(conn, now, job).await;
    }
    conn.query(&PAUSE, &[&job.0, &true]).await?;
    put_off(conn, job, NEVER).await?;
    Ok(RunAnswer::Acted.into())
}

/// Lets a run go on that waits for a key, if that is all it waits for.
async fn unlock(conn: &Conn<'_>, now: Option<At>, job: JobId) -> Result<Came, Fault> {
    locked(conn, now, &[job.0]).await?;
    if is_finished(conn, job).await? || conn.query(&UNLOCK, &[&job.0]).await?.is_empty() {
        return Ok(RunAnswer::NotNow.into());
    }
    let queue = run_now(conn, now, job).await?;
    Ok(Came { queue, ..RunAnswer::Acted.into() })
}

async fn let_go(conn: &Conn<'_>, now: Option<At>, job: JobId) -> Result<Came, Fault> {
    conn.query(&PAUSE, &[&job.0, &false]).await?;
    let queue = run_now(conn, now, job).await?;
    Ok(Came { queue, ..RunAnswer::Acted.into() })
}

async fn run_now(conn: &Conn<'_>, now: Option<At>, job: JobId) -> Result<Option<String>, Fault> {
    let rows = conn.query(&RUN_NOW, &[&now, &job.0]).await?;
    Ok(rows.first().and_then(|row| row.get(0)))
}

async fn is_finished(conn: &Conn<'_>, job: JobId) -> Result<bool, Fault> {
    let known = conn.query(&KNOWN, &[&[job.0].as_slice()]).await?;
    Ok(known.iter().any(|row| row.get(1)))
}

/// Changes the journal of a run that waits, or is dead with nothing undone, and lets it go on.
async fn amend_run(
    shared: &Shared,
    conn: &Conn<'_>,
    job: JobId,
    amend: &Amend,
    by: By<'_>,
) -> Result<(Came, Endings), Fault> {
    let now = shared.db.manual_now();
    conn.query(&LOCK_FLOW, &[&job.0]).await?;
    let is_paused = locked(conn, now, &[job.0]).await?.values().any(Locked::is_paused);
    let is_dead =
        !conn.query(&IS_DEAD, &[&job.0]).await?.is_empty() && is_finished(conn, job).await?;
    // Out of its sheaf, no claim gets it before this is committed.
    if !is_dead && put_off(conn, job, NEVER).await?.is_none() {
        return Ok((RunAnswer::NotNow.into(), Endings::default()));
    }
    let (endings, orphans) = match amend_in(conn, now, job, amend).await? {
        Ok(amended) => amended,
        Err(why) => return Ok((RunAnswer::Refused(why).into(), Endings::default())),
    };
    let mut called_off = Vec::with_capacity(orphans.len());
    for orphan in orphans {
        called_off.push(cancel::cancel_in(shared, conn, &[orphan], FORGOTTEN).await?);
    }
    // A pause lasts until somebody ends it.
    conn.query(&PAUSE, &[&job.0, &None::<bool>]).await?;
    if !is_dead {
        let queue = if is_paused { None } else { run_now(conn, now, job).await? };
        return Ok((Came { queue, called_off, ..RunAnswer::Acted.into() }, endings));
    }
    let params: [Param<'_>; 5] = [&now, &vec![job.0], &by.who, &by.why, &None::<&str>];
    let revived = conn.query(&REVIVE, &params).await?;
    // Whoever replays a dead letter at the same time may have been first.
    let Some(row) = revived.first() else { return Ok((RunAnswer::NotNow.into(), endings)) };
    let (queue, flow) = (Some(row.get(1)), row.get(2));
    Ok((Came { queue, flow, called_off, ..RunAnswer::Acted.into() }, endings))
}

/// Changes a journal as is decided on it, and answers the children that nobody knows of any more; or says why not.
async fn amend_in(
    conn: &Conn<'_>,
    now: Option<At>,
    job: JobId,
    amend: &Amend,
) -> Result<Result<(Endings, Vec<JobId>), String>, Fault> {
    let rows: Vec<_> = conn.query(&JOURNAL, &[&job.0]).await?.iter().map(entry_row).collect();
    let journal = entries(&rows).map_err(Fault::Refused)?;
    let mut amendment = match amend.decide(&journal) {
        Ok(amendment) => amendment,
        Err(why) => return Ok(Err(why)),
    };
    if let Some(Ending::Aside { number, .. }) = amendment.was {
        // What stands beside goes with its entry; who looks later finds it here.
        let rows = conn.query(&VALUE, &[&job.0, &(number as i32)]).await?;
        amendment.was = rows.first().map(|row| Ending::Ok(Payload::trusted(row.get(0))));
    }
    if let Some(from) = amendment.cut {
        let dropped: Vec<i32> = amendment.dropped.iter().map(|number| *number as i32).collect();
        conn.query(&CUT, &[&job.0, &(from as i32), &dropped]).await?;
        conn.query(&UNHEAR, &[&job.0, &amendment.unheard]).await?;
    }
    let mut became = None;
    if let Some((number, entry)) = amendment.add {
        let text = written(&entry).map_err(Fault::Refused)?;
        conn.query(&ADD, &[&now, &job.0, &(number as i32), &text]).await?;
        became = run::became(entry);
    }
    Ok(Ok(((amendment.was, became), amendment.orphans)))
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
            other: row.get::<_, Option<Uuid>>(7).map(JobId),
        })
    };
    rows.iter().map(read).collect()
}
