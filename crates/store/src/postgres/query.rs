//! Looking: one job, a page of jobs, attempts, counts.
//!
//! A page is found by the shortest way its state offers, and then seen in one statement.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use tidemill_core::{ErrorClass, JobId, State, Token, WorkerId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::Result;
use crate::postgres::body::{body, payload};
use crate::postgres::connect::Db;
use crate::postgres::statement::{At, Param, Statement, sql};
use crate::stream::progress;
use crate::view::{AttemptView, End, JobFilter, JobPage, JobPlace, JobView, Unfinished};

const JOB_VIEW: Statement = sql!("select_job", TIMESTAMPTZ, UUID_ARRAY);
const ATTEMPTS: Statement = sql!("select_attempts", UUID);
const UNFINISHED: Statement = sql!("count_unfinished");
const READY_DEPTH: Statement = sql!("count_sheaves", INT8);

const UNFINISHED_OF: Statement = sql!("select_unfinished_of", UUID_ARRAY);
const BEGUN_OF: Statement = sql!("select_begun", UUID_ARRAY);
const ENDS_OF: Statement = sql!("select_ends", UUID_ARRAY);
const QUEUES_OF: Statement = sql!("select_queues_of", UUID_ARRAY);
const PLACES_OF: Statement = sql!("select_places_of", UUID_ARRAY);
const BLOCKED_DUE: Statement = sql!("select_blocked_due", UUID);
const KEY_HOLDER: Statement = sql!("select_key_holder", UUID);
const LOOK_END: Statement = sql!("look_end", UUID, INT8);
const JOBS_ANY: Statement = sql!("list_jobs", UUID, INT8, TEXT, TEXT, TEXT, TEXT, TEXT, UUID);
const JOBS_DONE: Statement = sql!("list_done", UUID, INT8, TEXT, TEXT, TEXT, TEXT, TEXT, UUID);
const JOBS_CANCELLED: Statement = sql!("list_cancelled", UUID, INT8, TEXT, TEXT, TEXT, TEXT, TEXT);
const JOBS_DEAD: Statement = sql!("list_dead", UUID, INT8, TEXT, TEXT, TEXT, TEXT, TEXT);
const JOBS_RUNNING: Statement = sql!("list_running", UUID, INT8, TEXT, TEXT, TEXT, TEXT, TEXT);
const JOBS_BLOCKED: Statement = sql!("list_blocked", UUID, INT8, TEXT, TEXT, TEXT, TEXT, TEXT);
const JOBS_WAITING: Statement =
    sql!("list_waiting", UUID, INT8, TEXT, TEXT, TEXT, TEXT, TEXT, TIMESTAMPTZ, BOOL);
const JOBS_WAITING_DEEP: Statement =
    sql!("list_waiting_deep", UUID, INT8, TEXT, TEXT, TEXT, TEXT, TEXT, TIMESTAMPTZ, BOOL, UUID);

/// Beyond this many sheaves it is quicker to walk the jobs, newest first, than all sheaves.
const SHEAVES_FEW: i64 = 20_000;

/// One job, wherever it stands.
pub(crate) async fn job(db: &Db, id: JobId) -> Result<Option<JobView>> {
    Ok(views(db, &[id.0]).await?.pop())
}

/// Those of these jobs that are there.
pub(crate) async fn jobs_of(db: &Db, ids: &[JobId]) -> Result<Vec<JobView>> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    views(db, &ids).await
}

/// Which of these jobs are there and have not finished.
pub(crate) async fn unfinished_of(db: &Db, ids: &[JobId]) -> Result<HashSet<JobId>> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = db.read(&UNFINISHED_OF, &[&ids]).await?;
    Ok(rows.iter().map(|row| JobId(row.get(0))).collect())
}

/// Of which of these jobs an attempt has begun.
pub(crate) async fn begun_of(db: &Db, ids: &[JobId]) -> Result<HashSet<JobId>> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = db.read(&BEGUN_OF, &[&ids]).await?;
    Ok(rows.iter().map(|row| JobId(row.get(0))).collect())
}

/// How those of these jobs ended that are there; `None`: not yet.
pub(crate) async fn ends_of(db: &Db, ids: &[JobId]) -> Result<HashMap<JobId, Option<End>>> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = db.read(&ENDS_OF, &[&ids]).await?;
    Ok(rows.iter().map(|row| (JobId(row.get(0)), end(row))).collect())
}

fn end(row: &Row) -> Option<End> {
    let state: Option<i16> = row.get(1);
    Some(End {
        state: State::of_number(state?).unwrap_or(State::Done),
        output: payload(row.get(2)),
        error: row.get(3),
    })
}

/// The queues in which these jobs are.
pub(crate) async fn queues_of(db: &Db, ids: &[JobId]) -> Result<HashMap<JobId, String>> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = db.read(&QUEUES_OF, &[&ids]).await?;
    Ok(rows.iter().map(|row| (JobId(row.get(0)), row.get(1))).collect())
}

/// Where these jobs are, and whose.
pub(crate) async fn places_of(db: &Db, ids: &[JobId]) -> Result<HashMap<JobId, JobPlace>> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = db.read(&PLACES_OF, &[&ids]).await?;
    let place = |row: &Row| JobPlace { queue: row.get(1), tenant: row.get(2) };
    Ok(rows.iter().map(|row| (JobId(row.get(0)), place(row))).collect())
}

/// Who holds the unique key that a job is kept for, or had when it finished.
pub(crate) async fn key_holder(db: &Db, id: JobId) -> Result<Option<JobId>> {
    let rows = db.read(&KEY_HOLDER, &[&id.0]).await?;
    Ok(rows.first().map(|row| JobId(row.get(0))))
}

/// When a job that waits behind others is due by itself.
pub(crate) async fn blocked_due(db: &Db, id: JobId) -> Result<Option<Timestamp>> {
    let rows = db.read(&BLOCKED_DUE, &[&id.0]).await?;
    Ok(rows.first().map(|row| row.get::<_, At>(0).0))
}

/// A page of jobs, newest first.
pub(crate) async fn jobs(db: &Db, filter: &JobFilter) -> Result<JobPage> {
    let before = filter.before.map_or(Uuid::max(), |id| id.0);
    let rows = filter.page_rows() as i64;
    let now = db.manual_now();
    let scheduled = filter.state == Some(State::Scheduled);
    let is_waiting = matches!(filter.state, Some(State::Ready | State::Scheduled));
    let is_walk = if is_waiting { is_deep(db).await? } else { filter.is_narrow() };
    let mut end = None;
    if is_walk {
        // Known before anything is looked for, so that the next page begins exactly where this one ended.
        let last = db.read(&LOOK_END, &[&before, &(filter.look_rows() as i64)]).await?;
        end = last.first().map(|row| row.get::<_, Uuid>(0));
    }
    let from = end.unwrap_or_default();
    let mut params: Vec<Param<'_>> =
        vec![&before, &rows, &filter.kind, &filter.queue, &filter.tenant, &filter.key, &filter.tag];
    let statement = match filter.state {
        None => &JOBS_ANY,
        Some(State::Done) => &JOBS_DONE,
        Some(State::Cancelled) => &JOBS_CANCELLED,
        Some(State::Dead) => &JOBS_DEAD,
        Some(State::Running) => &JOBS_RUNNING,
        Some(State::Blocked) => &JOBS_BLOCKED,
        Some(State::Ready | State::Scheduled) => {
            params.push(&now);
            params.push(&scheduled);
            if is_walk { &JOBS_WAITING_DEEP } else { &JOBS_WAITING }
        }
    };
    if params.len() < statement.types.len() {
        params.push(&from);
    }
    let ids: Vec<Uuid> = db.read(statement, &params).await?.iter().map(|row| row.get(0)).collect();
    let is_full = ids.len() >= filter.page_rows();
    let last = ids.last().copied().filter(|_| is_full).or(end).map(JobId);
    let mut jobs = views(db, &ids).await?;
    // It may have gone on between the two looks.
    jobs.retain(|view| filter.state.is_none_or(|state| view.state == state));
    Ok(JobPage::new(filter, jobs, last))
}

async fn is_deep(db: &Db) -> Result<bool> {
    let rows = db.read(&READY_DEPTH, &[&(SHEAVES_FEW + 1)]).await?;
    Ok(rows.first().is_some_and(|row| row.get::<_, i64>(0) > SHEAVES_FEW))
}

async fn views(db: &Db, ids: &[Uuid]) -> Result<Vec<JobView>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows = db.read(&JOB_VIEW, &[&db.manual_now(), &ids]).await?;
    Ok(rows.iter().map(view).collect())
}

fn view(row: &Row) -> JobView {
    JobView {
        job: body(row, 0),
        state: State::of_number(row.get(10)).unwrap_or(State::Blocked),
        attempt: row.get::<_, i16>(11) as u16,
        lost: row.get::<_, i16>(12) as u16,
        due_at: row.get::<_, Option<At>>(13).map(|at| at.0),
        worker: row.get::<_, Option<Uuid>>(14).map(WorkerId),
        token: row.get::<_, Option<i64>>(15).map(Token),
        finished_at: row.get::<_, Option<At>>(16).map(|at| at.0),
        output: payload(row.get(17)),
        error: row.get(18),
        cancel_requested: row.get(19),
        gate: row.get(20),
        progress: progress(row.get(21)),
        bare: row.get(22),
    }
    .of_run()
}

/// The attempts of a job that are kept, oldest first.
pub(crate) async fn attempts(db: &Db, id: JobId) -> Result<Vec<AttemptView>> {
    let rows = db.read(&ATTEMPTS, &[&id.0]).await?;
    let attempt = |row: &Row| AttemptView {
        attempt: row.get::<_, i16>(0) as u16,
        token: Token(row.get(1)),
        worker: row.get::<_, Option<Uuid>>(2).map(WorkerId),
        started_at: row.get::<_, Option<At>>(3).map(|at| at.0),
        ended_at: row.get::<_, At>(4).0,
        class: row.get::<_, Option<&str>>(5).map(ErrorClass::of_word),
        error: row.get(6),
        next_at: row.get::<_, Option<At>>(7).map(|at| at.0),
    };
    Ok(rows.iter().map(attempt).collect())
}

/// How many jobs are not finished.
pub(crate) async fn unfinished(db: &Db) -> Result<Unfinished> {
    let rows = db.read(&UNFINISHED, &[]).await?;
    let count = |at| rows.first().map_or(0, |row| row.get::<_, i64>(at) as u64);
    Ok(Unfinished { waiting: count(0), running: count(1) })
}
