//! A batch of jobs as columns: what one enqueue statement takes, whatever the batch's size.
//!
//! Jobs of one queue, band, kind, tenant, key and due time share a ready row, a sheaf, of at most a
//! hundred ids: that stays out of TOAST, and a claim of any size needs few rows.

use std::collections::HashMap;
use std::time::Duration;

pub(crate) use tidemill_core::clock::delay_us;
use tidemill_core::{Due, NewJob, Options, Priority};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::postgres::connect::Conn;
use crate::postgres::error::Fault;
use crate::postgres::statement::{At, Statement, sql};
use crate::postgres::unique::Depth;

const ENQUEUE: Statement = sql!(
    "insert_job",
    TIMESTAMPTZ,
    UUID_ARRAY,
    TEXT_ARRAY,
    INT2_ARRAY,
    TEXT_ARRAY,
    TEXT_ARRAY,
    TIMESTAMPTZ_ARRAY,
    INT8_ARRAY,
    INT4_ARRAY,
    INT4_ARRAY,
    TEXT_ARRAY,
    TEXT_ARRAY,
    INT2_ARRAY,
    TEXT_ARRAY,
    TEXT_ARRAY,
    INT4_ARRAY,
    TEXT_ARRAY,
    TEXT_ARRAY,
    TEXT_ARRAY,
    BOOL,
);

const ENQUEUE_ONE: Statement = sql!(
    "insert_one_job",
    TIMESTAMPTZ,
    UUID,
    TEXT,
    TEXT,
    INT2,
    TEXT,
    TEXT,
    TIMESTAMPTZ,
    INT8,
    TEXT,
    TEXT,
);

const ENQUEUE_LONE: Statement = sql!(
    "insert_lone_job",
    TIMESTAMPTZ,
    UUID,
    TEXT,
    TEXT,
    INT2,
    TEXT,
    TEXT,
    TIMESTAMPTZ,
    INT8,
    TEXT,
    TEXT,
);

/// Ids in one ready row.
pub(crate) const SHEAF_IDS_MAX: usize = 100;
/// Jobs in one statement: fewer than the steps of the sequence that numbers sheaves.
pub(crate) const STATEMENT_JOBS_MAX: usize = 10_000;

/// What the payloads of one statement have together, unless it is a single one: a parameter is held several times while
/// it is read, and has an end.
const STATEMENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The same of a statement within a transaction: the server, which ends a transaction that is silent for too long,
/// takes a message that is still on its way for silence.
const PART_BYTES_MAX: usize = 4 * 1024 * 1024;

/// From here on jobs may take a second to be sent over a slow link.
const LARGE_BYTES: usize = 128 * 1024;

/// About what a job has beside its payload.
const JOB_BYTES: usize = 200;

/// What one parameter may have: the server ends a connection that brings it a gigabyte.
const PARAMETER_BYTES_MAX: usize = 1000 * 1000 * 1000;

/// Refuses what the server would take for nonsense, and what would be sent again and again because of that.
pub(crate) fn check_bytes(bytes: usize) -> Result<()> {
    if bytes <= PARAMETER_BYTES_MAX {
        return Ok(());
    }
    let reason = format!(
        "these jobs are {bytes} bytes for Postgres, which takes {PARAMETER_BYTES_MAX} at once; enqueue fewer at a \
         time, or say in them where their content is kept"
    );
    Err(Error::Database { reason })
}

/// Whether one statement is enough for these jobs.
pub(crate) fn is_one_statement(jobs: &[&NewJob]) -> bool {
    match jobs {
        [_] => true,
        _ => jobs.len() <= STATEMENT_JOBS_MAX && bytes(jobs) <= STATEMENT_BYTES_MAX,
    }
}

/// Whether it may take long to send these jobs.
pub(crate) fn is_large(jobs: &[&NewJob]) -> bool {
    bytes(jobs) + jobs.len() * JOB_BYTES > LARGE_BYTES
}

fn bytes(jobs: &[&NewJob]) -> usize {
    jobs.iter().map(|job| job.payload.as_str().len()).sum()
}

/// The jobs of each statement that it takes to write these in a transaction.
pub(crate) fn parts<'a, 'j>(jobs: &'a [&'j NewJob]) -> Vec<&'a [&'j NewJob]> {
    let (mut parts, mut first, mut bytes) = (Vec::new(), 0, 0);
    for (at, job) in jobs.iter().enumerate() {
        let payload = job.payload.as_str().len();
        let is_full = at - first == STATEMENT_JOBS_MAX || bytes + payload > PART_BYTES_MAX;
        if at > first && is_full {
            parts.push(&jobs[first..at]);
            (first, bytes) = (at, 0);
        }
        bytes += payload;
    }
    parts.push(&jobs[first..]);
    parts
}

/// The statement that writes this many jobs.
pub(crate) fn statement(jobs: usize, depth: Depth) -> &'static Statement {
    match (jobs, depth) {
        (1, Depth::Free) => &ENQUEUE_LONE,
        (1, _) => &ENQUEUE_ONE,
        _ => &ENQUEUE,
    }
}

/// Writes plain jobs, no more than [`parts`] gives, in one statement. Answers `false`, and
/// writes nothing, where one of their queues may have a bound that holds for them.
pub(crate) async fn write(
    conn: &Conn<'_>,
    now: Option<At>,
    jobs: &[&NewJob],
    depth: Depth,
) -> Result<bool, Fault> {
    if let [job] = jobs {
        check_bytes(job.payload.as_str().len()).map_err(Fault::Refused)?;
        return write_one(conn, now, job, depth).await;
    }
    let columns = Columns::of(jobs);
    let Columns {
        ids,
        kinds,
        queues,
        priorities,
        tenants,
        keys,
        numbers,
        payloads,
        options,
        sheaves,
    } = &columns;
    let sheaf =
        |of: fn(&SheafKey<'_>) -> _| -> Vec<_> { sheaves.iter().map(|s| of(&s.key)).collect() };
    let sheaf_queues: Vec<&str> = sheaves.iter().map(|s| s.key.queue).collect();
    let sheaf_kinds: Vec<&str> = sheaves.iter().map(|s| s.key.kind).collect();
    let sheaf_tenants: Vec<Option<&str>> = sheaves.iter().map(|s| s.key.tenant).collect();
    let sheaf_keys: Vec<Option<&str>> = sheaves.iter().map(|s| s.key.key).collect();
    let sheaf_priorities: Vec<i16> = sheaf(|key| key.priority.band());
    let ats: Vec<Option<At>> = sheaves.iter().map(|s| due_at(s.key.due)).collect();
    let delays: Vec<Option<i64>> = sheaves.iter().map(|s| due_delay_us(s.key.due)).collect();
    let firsts: Vec<i32> = sheaves.iter().map(|s| s.first).collect();
    let lasts: Vec<i32> = sheaves.iter().map(|s| s.last).collect();
    let rows = conn
        .query(
            &ENQUEUE,
            &[
                &now,
                ids,
                &sheaf_queues,
                &sheaf_priorities,
                &sheaf_kinds,
                &sheaf_tenants,
                &ats,
                &delays,
                &firsts,
                &lasts,
                kinds,
                queues,
                priorities,
                tenants,
                keys,
                numbers,
                payloads,
                options,
                &sheaf_keys,
                &(depth == Depth::Free),
            ],
        )
        .await?;
    Ok(!rows.is_empty())
}

async fn write_one(
    conn: &Conn<'_>,
    now: Option<At>,
    job: &NewJob,
    depth: Depth,
) -> Result<bool, Fault> {
    let due = DueKey::of(job.due);
    let rows = conn
        .query(
            statement(1, depth),
            &[
                &now,
                &job.id.0,
                &job.kind,
                &job.queue,
                &job.priority.band(),
                &job.tenant,
                &job.key,
                &due_at(due),
                &due_delay_us(due),
                &job.payload.as_str(),
                &options_text(&job.options),
            ],
        )
        .await?;
    Ok(depth == Depth::Free || !rows.is_empty())
}

/// What the jobs of one sheaf share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct SheafKey<'a> {
    queue: &'a str,
    priority: Priority,
    kind: &'a str,
    tenant: Option<&'a str>,
    key: Option<&'a str>,
    due: DueKey,
}

/// A due time that can be compared and hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DueKey {
    Now,
    In(Duration),
    At(jiff::Timestamp),
}

impl DueKey {
    fn of(due: Due) -> Self {
        match due {
            Due::Now => Self::Now,
            Due::In(delay) => Self::In(delay),
            // What has passed means now, also where a timestamptz does not reach.
            Due::At(at) => Self::At(at.max(jiff::Timestamp::UNIX_EPOCH)),
        }
    }
}

struct Sheaf<'a> {
    key: SheafKey<'a>,
    /// Where its ids stand in the batch, from 1, both included.
    first: i32,
    last: i32,
}

#[derive(Default)]
struct Columns<'a> {
    ids: Vec<Uuid>,
    kinds: Vec<&'a str>,
    queues: Vec<&'a str>,
    priorities: Vec<i16>,
    tenants: Vec<Option<&'a str>>,
    keys: Vec<Option<&'a str>>,
    numbers: Vec<i32>,
    payloads: Vec<&'a str>,
    options: Vec<Option<String>>,
    sheaves: Vec<Sheaf<'a>>,
}

impl<'a> Columns<'a> {
    fn of(jobs: &[&'a NewJob]) -> Self {
        let mut columns = Self::default();
        for (key, group) in groups(jobs) {
            for part in group.chunks(SHEAF_IDS_MAX) {
                let first = columns.ids.len() as i32 + 1;
                let last = first + part.len() as i32 - 1;
                columns.sheaves.push(Sheaf { key, first, last });
                for job in part {
                    columns.add(job);
                }
            }
        }
        columns
    }

    fn add(&mut self, job: &'a NewJob) {
        self.ids.push(job.id.0);
        self.kinds.push(&job.kind);
        self.queues.push(&job.queue);
        self.priorities.push(job.priority.band());
        self.tenants.push(job.tenant.as_deref());
        self.keys.push(job.key.as_deref());
        self.numbers.push(self.sheaves.len() as i32);
        self.payloads.push(job.payload.as_str());
        self.options.push(options_text(&job.options));
    }
}

/// Jobs that may share a sheaf, groups and jobs in the order of their first appearance.
fn groups<'a>(jobs: &[&'a NewJob]) -> Vec<(SheafKey<'a>, Vec<&'a NewJob>)> {
    let mut groups: Vec<(SheafKey<'a>, Vec<&'a NewJob>)> = Vec::new();
    let mut places: HashMap<SheafKey<'a>, usize> = HashMap::new();
    let mut last = usize::MAX;
    for job in jobs {
        let key = SheafKey {
            queue: &job.queue,
            priority: job.priority,
            kind: &job.kind,
            tenant: job.tenant.as_deref(),
            key: job.key.as_deref(),
            due: DueKey::of(job.due),
        };
        // Most batches are of one sort: the hash is for the others.
        if groups.get(last).is_none_or(|(known, _)| *known != key) {
            last = *places.entry(key).or_insert_with(|| {
                groups.push((key, Vec::new()));
                groups.len() - 1
            });
        }
        groups[last].1.push(job);
    }
    groups
}

/// The options as they are kept: nothing when all are at their defaults.
pub(crate) fn options_text(options: &Options) -> Option<String> {
    if options.is_default() { None } else { serde_json::to_string(options).ok() }
}

fn due_at(due: DueKey) -> Option<At> {
    if let DueKey::At(at) = due { Some(At(at)) } else { None }
}

fn due_delay_us(due: DueKey) -> Option<i64> {
    if let DueKey::In(delay) = due { Some(delay_us(delay)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_core::Payload;

    fn job(kind: &str) -> NewJob {
        NewJob::new(kind, Payload::null())
    }

    #[test]
    fn sheaves_hold_up_to_a_hundred_of_one_sort() {
        let jobs: Vec<_> = (0..250).map(|n| job(if n % 5 == 0 { "a" } else { "b" })).collect();
        let columns = Columns::of(&jobs.iter().collect::<Vec<_>>());
        let spans: Vec<_> = columns.sheaves.iter().map(|s| (s.key.kind, s.first, s.last)).collect();
        assert_eq!(spans, [("a", 1, 50), ("b", 51, 150), ("b", 151, 250)]);
        assert_eq!(columns.numbers[0], 1);
        assert_eq!(columns.numbers[249], 3);
        assert!(columns.kinds[..50].iter().all(|kind| *kind == "a"));
    }

    #[test]
    fn due_times_do_not_share_a_sheaf() {
        let later = NewJob { due: Due::In(Duration::from_secs(1)), ..job("a") };
        let jobs = [job("a"), later, job("a")];
        assert_eq!(Columns::of(&jobs.iter().collect::<Vec<_>>()).sheaves.len(), 2);
    }

    #[test]
    fn what_no_statement_holds_is_refused_at_once() {
        assert!(check_bytes(PARAMETER_BYTES_MAX).is_ok());
        let error = check_bytes(PARAMETER_BYTES_MAX + 1).unwrap_err();
        assert_eq!((error.code(), error.is_temporary()), ("store_refused", false));
    }

    #[test]
    fn a_statement_has_so_many_bytes_or_one_job() {
        let text = |bytes| Payload::trusted(format!("\"{}\"", "x".repeat(bytes)));
        let sizes = [PART_BYTES_MAX, 1, PART_BYTES_MAX / 2, PART_BYTES_MAX / 2, 1];
        let jobs = sizes.map(|bytes| NewJob::new("k", text(bytes)));
        let jobs: Vec<_> = jobs.iter().collect();
        assert!(is_one_statement(&jobs) && is_large(&jobs), "it is no transaction");
        assert_eq!(parts(&jobs).iter().map(|part| part.len()).collect::<Vec<_>>(), [1, 2, 2]);
    }
}
