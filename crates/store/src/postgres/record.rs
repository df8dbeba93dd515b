//! What settling, rescuing and calling off write alike: ends, dead letters, jobs put back, freed keys,
//! lines that go on.
//!
//! Every function writes in its caller's transaction, whole columns at a time. The caller holds the
//! locks that make it true: unique keys first, then lines, then sheaves or leases.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tidemill_core::webhook::QUEUE;
use tidemill_core::{Failure, Job, Line, OnDead, State};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::postgres::batch::{SHEAF_IDS_MAX, STATEMENT_JOBS_MAX};
use crate::postgres::connect::Conn;
use crate::postgres::error::Fault;
use crate::postgres::statement::{At, Statement, sql};
use crate::postgres::{lines, runs};

const OUTCOME_WRITE: Statement = sql!(
    "insert_outcome",
    TIMESTAMPTZ,
    UUID_ARRAY,
    TEXT_ARRAY,
    INT2_ARRAY,
    INT2_ARRAY,
    INT2_ARRAY,
    INT8_ARRAY,
    UUID_ARRAY,
    INT8_ARRAY,
    BOOL_ARRAY,
    TEXT_ARRAY,
    TEXT_ARRAY,
);
const DEAD_WRITE: Statement = sql!(
    "upsert_dead",
    TIMESTAMPTZ,
    UUID_ARRAY,
    TEXT_ARRAY,
    TEXT_ARRAY,
    TEXT_ARRAY,
    TEXT_ARRAY,
    TEXT_ARRAY,
    TEXT_ARRAY,
    INT2_ARRAY,
    TIMESTAMPTZ_ARRAY,
);
const PUT_BACK: Statement = sql!(
    "insert_attempt",
    TIMESTAMPTZ,
    UUID_ARRAY,
    TEXT_ARRAY,
    INT2_ARRAY,
    TEXT_ARRAY,
    TEXT_ARRAY,
    INT8_ARRAY,
    INT2_ARRAY,
    INT2_ARRAY,
    INT4_ARRAY,
    INT4_ARRAY,
    INT8_ARRAY,
    INT2_ARRAY,
    UUID_ARRAY,
    TIMESTAMPTZ_ARRAY,
    TEXT_ARRAY,
    TEXT_ARRAY,
    INT8_ARRAY,
    INT4_ARRAY,
    TEXT_ARRAY,
);
const KEY_LOCK: Statement = sql!("lock_unique_keys", TEXT_ARRAY);
const LOSSES_WRITE: Statement = sql!(
    "insert_losses",
    TIMESTAMPTZ,
    UUID_ARRAY,
    INT8_ARRAY,
    INT2_ARRAY,
    UUID_ARRAY,
    TIMESTAMPTZ_ARRAY
);
const KEY_RELEASE: Statement = sql!("release_unique_key", TEXT_ARRAY, UUID_ARRAY, TIMESTAMPTZ);

/// What is needed of a job's body.
#[derive(Debug, Clone)]
pub(crate) struct Body {
    pub id: Uuid,
    pub kind: String,
    pub queue: String,
    pub priority: i16,
    pub tenant: Option<String>,
    pub unique_key: Option<String>,
    pub retain_ms: Option<i64>,
    pub key: Option<String>,
    pub ordered: Option<OnDead>,
    /// The run that hears of its end.
    pub parent: Option<Uuid>,
}

impl Body {
    /// Reads ten columns, from `at` on: id, kind, queue, priority, tenant, unique_key, retain_ms, key,
    /// ordered, parent.
    pub fn read(row: &Row, at: usize) -> Self {
        Self {
            id: row.get(at),
            kind: row.get(at + 1),
            queue: row.get(at + 2),
            priority: row.get(at + 3),
            tenant: row.get(at + 4),
            unique_key: row.get(at + 5),
            retain_ms: row.get(at + 6),
            key: row.get(at + 7),
            ordered: row
                .get::<_, Option<&str>>(at + 8)
                .map(|word| word.parse().unwrap_or_default()),
            parent: row.get(at + 9),
        }
    }

    /// The line it takes its turn in.
    pub fn line(&self) -> Option<Line<'_>> {
        self.ordered?;
        let key = self.key.as_deref()?;
        Some(Line { queue: &self.queue, tenant: self.tenant.as_deref(), key })
    }

    pub fn of(job: &Job) -> Self {
        Self {
            id: job.id.0,
            kind: job.kind.clone(),
            queue: job.queue.clone(),
            priority: job.priority.band(),
            tenant: job.tenant.clone(),
            unique_key: job.unique_key.clone(),
            retain_ms: job.options.kept_ms(),
            key: job.key.clone(),
            ordered: job.options.ordered,
            parent: job.options.parent.map(|id| id.0),
        }
    }
}

/// How a job ended.
#[derive(Debug)]
pub(crate) struct End {
    pub body: Body,
    pub state: State,
    pub attempt: i16,
    pub lost: i16,
    pub token: Option<i64>,
    pub worker: Option<Uuid>,
    pub started_at: Option<Timestamp>,
    pub output: Option<String>,
    pub error: Option<String>,
    /// What a dead letter says of it.
    pub failure: Option<Failure>,
}

impl End {
    /// Whether those behind it in its line get their turn.
    fn leaves_line(&self) -> bool {
        let blocks = self.state == State::Dead && self.body.ordered == Some(OnDead::Block);
        self.body.line().is_some() && !blocks
    }
}

/// A job that goes back to where it waits.
#[derive(Debug)]
pub(crate) struct Back {
    pub body: Body,
    /// Attempts spent, and workers lost, when it waits again.
    pub spent: i16,
    pub lost: i16,
    pub delay_us: i64,
    /// The attempt that did not finish it.
    pub attempt: i16,
    pub token: i64,
    pub worker: Uuid,
    pub started_at: Option<Timestamp>,
    pub class: Option<&'static str>,
    pub error: Option<String>,
}

/// An attempt that its worker did not end, of a job that is not tried again.
#[derive(Debug)]
pub(crate) struct Loss {
    pub id: Uuid,
    pub token: i64,
    pub attempt: i16,
    pub worker: Uuid,
    /// When its lease began, if its worker was lost; nothing, if that gave it back.
    pub claimed_at: Option<Timestamp>,
}

/// Who is to hear of what was written.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Queues in which jobs wait now.
    pub queues: BTreeSet<String>,
    /// Flows of which jobs have ended.
    pub flows: Vec<Uuid>,
    /// What runs hear of.
    pub runs: runs::News,
}

/// Everything that one transaction writes.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub ends: Vec<End>,
    pub backs: Vec<Back>,
    pub losses: Vec<Loss>,
}

impl Record {
    /// Writes it all; answers what follows from it.
    pub async fn write(&self, conn: &Conn<'_>, now: Option<At>) -> Result<Told, Fault> {
        let (flows, is_told) = write_ends(conn, now, &self.ends).await?;
        write_dead(conn, now, &self.ends).await?;
        write_losses(conn, now, &self.losses).await?;
        for part in self.backs.chunks(STATEMENT_JOBS_MAX) {
            put_back(conn, now, part).await?;
        }
        let mut queues: BTreeSet<_> = self.backs.iter().map(|b| b.body.queue.clone()).collect();
        queues.extend(is_told.then(|| QUEUE.to_owned()));
        queues.extend(release_keys(conn, now, &self.ends).await?);
        let leaving = self.ends.iter().filter(|end| end.leaves_line()).map(|end| end.body.id);
        queues.extend(lines::leave(conn, now, &leaving.collect::<Vec<_>>()).await?);
        let (woken, runs) = runs::ends(conn, now, &self.ends).await?;
        queues.extend(woken);
        Ok(Told { queues, flows, runs })
    }
}

/// Locks unique keys; before any sheaf or lease.
pub(crate) async fn lock_keys(conn: &Conn<'_>, keys: &BTreeSet<String>) -> Result<(), Fault> {
    if !keys.is_empty() {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        conn.query(&KEY_LOCK, &[&keys]).await?;
    }
    Ok(())
}

/// Answers the flows of which jobs have ended, and whether webhooks were told.
async fn write_ends(
    conn: &Conn<'_>,
    now: Option<At>,
    ends: &[End],
) -> Result<(Vec<Uuid>, bool), Fault> {
    if ends.is_empty() {
        return Ok((Vec::new(), false));
    }
    let ids: Vec<Uuid> = ends.iter().map(|e| e.body.id).collect();
    let queues: Vec<&str> = ends.iter().map(|e| e.body.queue.as_str()).collect();
    let states: Vec<i16> = ends.iter().map(|e| e.state.number()).collect();
    let attempts: Vec<i16> = ends.iter().map(|e| e.attempt).collect();
    let losts: Vec<i16> = ends.iter().map(|e| e.lost).collect();
    let tokens: Vec<Option<i64>> = ends.iter().map(|e| e.token).collect();
    let workers: Vec<Option<Uuid>> = ends.iter().map(|e| e.worker).collect();
    let retains: Vec<Option<i64>> = ends.iter().map(|e| e.body.retain_ms).collect();
    let keyed: Vec<bool> = ends.iter().map(|e| e.body.unique_key.is_some()).collect();
    let outputs: Vec<Option<&str>> = ends.iter().map(|e| e.output.as_deref()).collect();
    let errors: Vec<Option<&str>> = ends.iter().map(|e| e.error.as_deref()).collect();
    let rows = conn
        .query(
            &OUTCOME_WRITE,
            &[
                &now, &ids, &queues, &states, &attempts, &losts, &tokens, &workers, &retains,
                &keyed, &outputs, &errors,
            ],
        )
        .await?;
    let flows: Vec<Uuid> = rows.iter().filter_map(|row| row.get(0)).collect();
    let is_told = flows.len() < rows.len();
    Ok((flows, is_told))
}

async fn write_dead(conn: &Conn<'_>, now: Option<At>, ends: &[End]) -> Result<(), Fault> {
    let letter = |end: &End| {
        let (Body { id, kind, queue, tenant, .. }, attempt) = (end.body.clone(), end.attempt);
        let (started_at, failure) = (end.started_at, end.failure.clone()?);
        Some(Letter { id, kind, queue, tenant, attempt, started_at, failure })
    };
    let letters: Vec<Letter> = ends.iter().filter_map(letter).collect();
    write_letters(conn, now, &letters).await
}

async fn write_losses(conn: &Conn<'_>, now: Option<At>, losses: &[Loss]) -> Result<(), Fault> {
    if losses.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = losses.iter().map(|loss| loss.id).collect();
    let tokens: Vec<i64> = losses.iter().map(|loss| loss.token).collect();
    let attempts: Vec<i16> = losses.iter().map(|loss| loss.attempt).collect();
    let workers: Vec<Uuid> = losses.iter().map(|loss| loss.worker).collect();
    let claimed: Vec<Option<At>> = losses.iter().map(|loss| loss.claimed_at.map(At)).collect();
    conn.query(&LOSSES_WRITE, &[&now, &ids, &tokens, &attempts, &workers, &claimed]).await?;
    Ok(())
}

/// A dead letter, as it is written.
pub(crate) struct Letter {
    pub id: Uuid,
    pub kind: String,
    pub queue: String,
    pub tenant: Option<String>,
    pub attempt: i16,
    pub started_at: Option<Timestamp>,
    pub failure: Failure,
}

/// Writes dead letters.
pub(crate) async fn write_letters(
    conn: &Conn<'_>,
    now: Option<At>,
    letters: &[Letter],
) -> Result<(), Fault> {
    if letters.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = letters.iter().map(|letter| letter.id).collect();
    let texts = |of: fn(&Letter) -> &str| letters.iter().map(of).collect::<Vec<&str>>();
    let tenants: Vec<Option<&str>> =
        letters.iter().map(|letter| letter.tenant.as_deref()).collect();
    let attempts: Vec<i16> = letters.iter().map(|letter| letter.attempt).collect();
    let started: Vec<Option<At>> = letters.iter().map(|letter| letter.started_at.map(At)).collect();
    conn.query(
        &DEAD_WRITE,
        &[
            &now,
            &ids,
            &texts(|letter| &letter.kind),
            &texts(|letter| &letter.queue),
            &tenants,
            &texts(|letter| letter.failure.class.word()),
            &texts(|letter| &letter.failure.message),
            &texts(|letter| &letter.failure.fingerprint),
            &attempts,
            &started,
        ],
    )
    .await?;
    Ok(())
}

/// What the jobs of one sheaf share, when they go back.
fn fits(one: &Back, other: &Back) -> bool {
    let (a, b) = (&one.body, &other.body);
    // Whoever replaces a job with a unique key locks its sheaf: it should hold no other.
    a.unique_key.is_none()
        && b.unique_key.is_none()
        && (a.priority, one.spent, one.lost, one.delay_us)
            == (b.priority, other.spent, other.lost, other.delay_us)
        && (&a.queue, &a.kind, &a.tenant, &a.key) == (&b.queue, &b.kind, &b.tenant, &b.key)
}

async fn put_back(conn: &Conn<'_>, now: Option<At>, backs: &[Back]) -> Result<(), Fault> {
    let sheaves: Vec<&[Back]> =
        backs.chunk_by(fits).flat_map(|sort| sort.chunks(SHEAF_IDS_MAX)).collect();
    let heads: Vec<&Back> = sheaves.iter().map(|sheaf| &sheaf[0]).collect();
    let (mut firsts, mut lasts, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    for (at, sheaf) in sheaves.iter().enumerate() {
        firsts.push(numbers.len() as i32 + 1);
        numbers.extend(std::iter::repeat_n(at as i32 + 1, sheaf.len()));
        lasts.push(numbers.len() as i32);
    }
    let ids: Vec<Uuid> = backs.iter().map(|b| b.body.id).collect();
    let queues: Vec<&str> = heads.iter().map(|b| b.body.queue.as_str()).collect();
    let priorities: Vec<i16> = heads.iter().map(|b| b.body.priority).collect();
    let kinds: Vec<&str> = heads.iter().map(|b| b.body.kind.as_str()).collect();
    let tenants: Vec<Option<&str>> = heads.iter().map(|b| b.body.tenant.as_deref()).collect();
    let keys: Vec<Option<&str>> = heads.iter().map(|b| b.body.key.as_deref()).collect();
    let sheaf_delays: Vec<i64> = heads.iter().map(|b| b.delay_us).collect();
    let spents: Vec<i16> = heads.iter().map(|b| b.spent).collect();
    let lost_counts: Vec<i16> = heads.iter().map(|b| b.lost).collect();
    let tokens: Vec<i64> = backs.iter().map(|b| b.token).collect();
    let attempts: Vec<i16> = backs.iter().map(|b| b.attempt).collect();
    let workers: Vec<Uuid> = backs.iter().map(|b| b.worker).collect();
    let started: Vec<Option<At>> = backs.iter().map(|b| b.started_at.map(At)).collect();
    let classes: Vec<Option<&str>> = backs.iter().map(|b| b.class).collect();
    let errors: Vec<Option<&str>> = backs.iter().map(|b| b.error.as_deref()).collect();
    let delays: Vec<i64> = backs.iter().map(|b| b.delay_us).collect();
    conn.query(
        &PUT_BACK,
        &[
            &now,
            &ids,
            &queues,
            &priorities,
            &kinds,
            &tenants,
            &sheaf_delays,
            &spents,
            &lost_counts,
            &firsts,
            &lasts,
            &tokens,
            &attempts,
            &workers,
            &started,
            &classes,
            &errors,
            &delays,
            &numbers,
            &keys,
        ],
    )
    .await?;
    Ok(())
}

async fn release_keys(
    conn: &Conn<'_>,
    now: Option<At>,
    ends: &[End],
) -> Result<Vec<String>, Fault> {
    let keyed: Vec<_> =
        ends.iter().filter_map(|e| Some((e.body.unique_key.as_deref()?, e.body.id))).collect();
    if keyed.is_empty() {
        return Ok(Vec::new());
    }
    let (keys, ids): (Vec<&str>, Vec<Uuid>) = keyed.into_iter().unzip();
    let rows = conn.query(&KEY_RELEASE, &[&keys, &ids, &now]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
