//! One job, wherever it stands, and pages of jobs.
//!
//! A job's state is where its row is: an outcome, a ready row, a lease, or none of them (blocked).
//! Pages find ids first, by the table that knows the state asked for, and then look at each. No
//! index beyond the keys is needed, so none burdens the writer.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, ToSql};
use tidemill_core::{ErrorClass, JobId, Payload, State, Token, WorkerId};

use crate::error::Result;
use crate::sqlite::lease::{Held, Lease};
use crate::sqlite::ready::{self, LastAttempt};
use crate::sqlite::rows::{Body, job_id, time, time_at, time_opt, worker_id_opt};
use crate::sqlite::streams;
use crate::sqlite::sweep::ONLY_RESULT;
use crate::view::{AttemptView, End, JobFilter, JobPage, JobPlace, JobView};

/// One job, wherever it stands.
pub(super) fn job(conn: &Connection, now: i64, id: JobId) -> Result<Option<JobView>> {
    view(conn, now, id, |id| Running::find(conn, id))
}

/// Those of these jobs that are there.
pub(super) fn jobs_of(conn: &Connection, now: i64, ids: &[JobId]) -> Result<Vec<JobView>> {
    ids.iter().filter_map(|id| job(conn, now, *id).transpose()).collect()
}

/// Which of these jobs are there and have not finished.
pub(super) fn unfinished_of(conn: &Connection, ids: Vec<JobId>) -> Result<HashSet<JobId>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_unfinished_of.sql"))?;
    let mut unfinished = HashSet::new();
    for id in ids {
        if select.exists([id.0.as_bytes()])? {
            unfinished.insert(id);
        }
    }
    Ok(unfinished)
}

/// Of which of these jobs an attempt has begun.
pub(super) fn begun_of(conn: &Connection, ids: Vec<JobId>) -> Result<HashSet<JobId>> {
    let mut begun = HashSet::new();
    for id in ids {
        if has_begun(conn, id)? {
            begun.insert(id);
        }
    }
    Ok(begun)
}

/// Whether an attempt of this job has begun.
pub(super) fn has_begun(conn: &Connection, id: JobId) -> Result<bool> {
    let mut select = conn.prepare_cached(include_str!("sql/has_begun.sql"))?;
    Ok(select.exists([id.0.as_bytes()])?)
}

/// How those of these jobs ended that are there; `None`: not yet.
pub(super) fn ends_of(conn: &Connection, ids: Vec<JobId>) -> Result<HashMap<JobId, Option<End>>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_ends.sql"))?;
    let mut ends = HashMap::with_capacity(ids.len());
    for id in ids {
        let found = select.query_one([id.0.as_bytes()], end).optional()?;
        ends.extend(found.map(|end| (id, end)));
    }
    Ok(ends)
}

fn end(row: &Row<'_>) -> rusqlite::Result<Option<End>> {
    let Some(state) = row.get(0)? else { return Ok(None) };
    let output: Option<String> = row.get(1)?;
    Ok(Some(End {
        state: State::of_number(state).unwrap_or(State::Done),
        output: output.map(Payload::trusted),
        error: row.get(2)?,
    }))
}

/// The queues in which these jobs are.
pub(super) fn queues_of(conn: &Connection, ids: &[JobId]) -> Result<HashMap<JobId, String>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_queues_of.sql"))?;
    let mut queues = HashMap::new();
    for id in ids {
        if let Some(queue) = select.query_one([id.0.as_bytes()], |row| row.get(0)).optional()? {
            queues.insert(*id, queue);
        }
    }
    Ok(queues)
}

/// Where these jobs are, and whose.
pub(super) fn places_of(conn: &Connection, ids: &[JobId]) -> Result<HashMap<JobId, JobPlace>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_places_of.sql"))?;
    let place = |row: &Row<'_>| Ok(JobPlace { queue: row.get(0)?, tenant: row.get(1)? });
    let mut places = HashMap::with_capacity(ids.len());
    for id in ids {
        if let Some(place) = select.query_one([id.0.as_bytes()], place).optional()? {
            places.insert(*id, place);
        }
    }
    Ok(places)
}

/// Who holds the unique key that a job is kept for, or had when it finished.
pub(super) fn key_holder(conn: &Connection, id: JobId) -> Result<Option<JobId>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_key_holder.sql"))?;
    Ok(select.query_one([id.0.as_bytes()], |row| job_id(row, 0)).optional()?)
}

/// When a job that waits behind others is due by itself.
pub(super) fn blocked_due(conn: &Connection, id: JobId) -> Result<Option<Timestamp>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_blocked_due.sql"))?;
    Ok(select.query_one([id.0.as_bytes()], |row| time_at(row, 0)).optional()?)
}

fn view(
    conn: &Connection,
    now: i64,
    id: JobId,
    running: impl FnOnce(JobId) -> Result<Option<Running>>,
) -> Result<Option<JobView>> {
    let Some(body) = ready::body(conn, id)? else { return Ok(None) };
    let last = ready::last_attempt(conn, id)?;
    if let Some(outcome) = Outcome::find(conn, id)? {
        let progress = streams::last_progress(conn, id)?;
        return Ok(Some(JobView { progress, ..outcome.view(body, &last) }));
    }
    let waiting = ready::find(conn, &body, &last)?;
    let mut view = JobView {
        job: body.job,
        state: State::Blocked,
        attempt: 0,
        lost: 0,
        due_at: None,
        gate: None,
        worker: last.worker,
        token: last.token,
        finished_at: None,
        output: None,
        error: last.error,
        cancel_requested: false,
        bare: false,
        progress: streams::last_progress(conn, id)?,
    };
    if let Some(waiting) = waiting {
        view.state = if waiting.run_at <= now { State::Ready } else { State::Scheduled };
        view.due_at = Some(time(waiting.run_at));
        view.gate = ready::gate(conn, &view.job, waiting.run_at)?;
        (view.attempt, view.lost) = (waiting.spent, waiting.lost);
    } else if let Some(running) = running(id)? {
        view.state = State::Running;
        (view.attempt, view.lost) = (running.held.spent, running.held.lost);
        (view.worker, view.token) = (Some(running.worker), Some(running.token));
        view.cancel_requested = running.cancelled;
    }
    Ok(Some(view.of_run()))
}

/// A job under a lease.
#[derive(Debug, Clone)]
struct Running {
    held: Held,
    token: Token,
    worker: WorkerId,
    cancelled: bool,
}

impl Running {
    fn new(conn: &Connection, lease: &Lease, held: Held) -> Result<Self> {
        let cancelled = lease.cancel_reason(conn, held.id)?.is_some();
        Ok(Self { held, token: lease.token, worker: lease.worker, cancelled })
    }

    fn find(conn: &Connection, id: JobId) -> Result<Option<Self>> {
        let found = Lease::holding(conn, id)?;
        found.map(|(lease, held)| Self::new(conn, &lease, held)).transpose()
    }

    fn all(conn: &Connection) -> Result<BTreeMap<JobId, Self>> {
        let mut all = BTreeMap::new();
        for lease in Lease::all(conn)? {
            for held in &lease.jobs {
                all.insert(held.id, Self::new(conn, &lease, *held)?);
            }
        }
        Ok(all)
    }
}

/// The row of a finished job.
struct Outcome {
    state: State,
    attempt: u16,
    lost: u16,
    token: Option<Token>,
    worker: Option<WorkerId>,
    finished_at: i64,
    output: Option<String>,
    error: Option<String>,
    bare: bool,
}

impl Outcome {
    fn find(conn: &Connection, id: JobId) -> Result<Option<Self>> {
        let mut select = conn.prepare_cached(include_str!("sql/select_outcome.sql"))?;
        Ok(select.query_one([id.0.as_bytes()], Self::of_row).optional()?)
    }

    fn of_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            state: State::of_number(row.get(0)?).unwrap_or(State::Done),
            attempt: row.get(1)?,
            lost: row.get(2)?,
            token: row.get::<_, Option<i64>>(3)?.map(Token),
            worker: worker_id_opt(row, 4)?,
            finished_at: row.get(5)?,
            output: row.get(6)?,
            error: row.get(7)?,
            bare: row.get::<_, i64>(8)? == ONLY_RESULT,
        })
    }

    fn view(self, body: Body, last: &LastAttempt) -> JobView {
        JobView {
            job: body.job,
            state: self.state,
            attempt: self.attempt,
            lost: self.lost,
            due_at: None,
            gate: None,
            worker: self.worker.or(last.worker),
            token: self.token.or(last.token),
            finished_at: Some(time(self.finished_at)),
            output: self.output.map(Payload::trusted),
            error: self.error,
            cancel_requested: false,
            bare: self.bare,
            progress: None,
        }
    }
}

/// The attempts of a job that are kept, oldest first, and the one that finished it after them.
pub(super) fn attempts(conn: &Connection, id: JobId) -> Result<Vec<AttemptView>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_attempts.sql"))?;
    let attempts = select.query_map([id.0.as_bytes()], attempt)?;
    let mut attempts: Vec<_> = attempts.collect::<rusqlite::Result<_>>()?;
    if attempts.is_empty() {
        return Ok(attempts);
    }
    let is_new = |token: &Token| attempts.iter().all(|attempt| attempt.token != *token);
    if let Some(outcome) = Outcome::find(conn, id)?
        && let Some(token) = outcome.token.filter(is_new)
    {
        attempts.push(AttemptView {
            attempt: outcome.attempt,
            token,
            worker: outcome.worker,
            started_at: None,
            ended_at: time(outcome.finished_at),
            class: None,
            error: outcome.error,
            next_at: None,
        });
    }
    Ok(attempts)
}

fn attempt(row: &Row<'_>) -> rusqlite::Result<AttemptView> {
    Ok(AttemptView {
        attempt: row.get(0)?,
        token: Token(row.get(1)?),
        worker: worker_id_opt(row, 2)?,
        started_at: time_opt(row, 3)?,
        ended_at: time_at(row, 4)?,
        class: row.get_ref(5)?.as_str_or_null()?.map(ErrorClass::of_word),
        error: row.get(6)?,
        next_at: time_opt(row, 7)?,
    })
}

/// A page of jobs, newest first.
pub(super) fn jobs(conn: &Connection, now: i64, filter: &JobFilter) -> Result<JobPage> {
    let running: HashMap<_, _> = match filter.state {
        None | Some(State::Running) => Running::all(conn)?.into_iter().collect(),
        Some(_) => HashMap::new(),
    };
    let mut end = None;
    let rows = filter.page_rows();
    let ids = match filter.state {
        Some(State::Running) => {
            let mut ids: Vec<_> = running.keys().copied().collect();
            ids.sort_unstable_by(|a, b| b.cmp(a));
            ids
        }
        Some(State::Blocked) => blocked(conn)?,
        Some(state @ (State::Ready | State::Scheduled)) if !is_deep(conn)? => {
            let is_due = i64::from(state == State::Ready);
            Page { filter, end, rows }.ids(
                conn,
                include_str!("sql/list_waiting.sql"),
                &[now, is_due],
            )?
        }
        Some(State::Ready | State::Scheduled) => {
            // Whether one of them waits is seen when it is looked at.
            end = look_end(conn, filter)?;
            let rows = filter.look_rows();
            Page { filter, end, rows }.ids(conn, include_str!("sql/list_jobs.sql"), &[])?
        }
        Some(State::Done) => {
            end = look_end(conn, filter)?;
            Page { filter, end, rows }.ids(conn, include_str!("sql/list_done.sql"), &[])?
        }
        Some(state @ (State::Cancelled | State::Dead)) => {
            let state = i64::from(state.number());
            Page { filter, end, rows }.ids(conn, include_str!("sql/list_unwell.sql"), &[state])?
        }
        None => {
            end = if filter.is_narrow() { look_end(conn, filter)? } else { None };
            Page { filter, end, rows }.ids(conn, include_str!("sql/list_jobs.sql"), &[])?
        }
    };
    let mut views = Vec::new();
    for id in ids {
        if views.len() >= rows {
            break;
        }
        let found = view(conn, now, id, |id| Ok(running.get(&id).cloned()))?;
        views.extend(found.filter(|view| fits(filter, view)));
    }
    Ok(JobPage::new(filter, views, end))
}

/// Beyond this many it is quicker to walk the jobs, newest first, than all that wait.
const WAITING_FEW: i64 = 20_000;

fn is_deep(conn: &Connection) -> Result<bool> {
    let mut count = conn.prepare_cached(include_str!("sql/count_ready.sql"))?;
    Ok(count.query_one([WAITING_FEW + 1], |row| row.get::<_, i64>(0))? > WAITING_FEW)
}

/// Where a look must end, if there is more than it may look at. Known before anything is looked for, so that
/// the next page begins exactly where this one ended.
fn look_end(conn: &Connection, filter: &JobFilter) -> Result<Option<JobId>> {
    let before = filter.before.as_ref().map(|id| id.0.as_bytes());
    let mut select = conn.prepare_cached(include_str!("sql/look_end.sql"))?;
    let last = select.query_one((before, filter.look_rows() as i64), |row| job_id(row, 0));
    Ok(last.optional()?)
}

/// What a page is made of.
struct Page<'a> {
    filter: &'a JobFilter,
    end: Option<JobId>,
    rows: usize,
}

impl Page<'_> {
    /// Finds its ids. `more` is what the statement wants to know besides the filter.
    fn ids(&self, conn: &Connection, statement: &str, more: &[i64]) -> Result<Vec<JobId>> {
        let before = self.filter.before.as_ref().map(|id| id.0.as_bytes());
        let end = self.end.as_ref().map(|id| id.0.as_bytes());
        let JobFilter { kind, queue, tenant, key, tag, .. } = self.filter;
        let rows = self.rows as i64;
        let mut values: Vec<&dyn ToSql> = vec![&before, kind, queue, tenant, key, tag, &rows, &end];
        values.extend(more.iter().map(|value| value as &dyn ToSql));
        let mut select = conn.prepare_cached(statement)?;
        let ids = select.query_map(&*values, |row| job_id(row, 0))?;
        Ok(ids.collect::<rusqlite::Result<_>>()?)
    }
}

fn blocked(conn: &Connection) -> Result<Vec<JobId>> {
    let mut select = conn.prepare_cached(include_str!("sql/list_blocked.sql"))?;
    let ids = select.query_map([], |row| job_id(row, 0))?;
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

fn fits(filter: &JobFilter, view: &JobView) -> bool {
    let fits = |wanted: &Option<String>, found: Option<&str>| {
        wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
    };
    let job = &view.job;
    filter.state.is_none_or(|state| state == view.state)
        && filter.before.is_none_or(|before| job.id < before)
        && fits(&filter.kind, Some(&job.kind))
        && fits(&filter.queue, Some(&job.queue))
        && fits(&filter.tenant, job.tenant.as_deref())
        && fits(&filter.key, job.key.as_deref())
        && filter.tag.as_ref().is_none_or(|tag| job.options.tags.contains(tag))
}
