//! A lease: one claim, its token, and the jobs of it that are not settled yet.
//!
//! One row per claim keeps a claim of a hundred jobs as cheap as one of a single job. The row is
//! the only proof: a job is held by a token exactly while that token's row names it, in whatever
//! process. Nothing of it is remembered in memory.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tidemill_core::{JobId, Token, WorkerId};
use uuid::Uuid;

use crate::error::Result;
use crate::sqlite::rows::worker_id;

const HELD_BYTES: usize = 20;

/// A job under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub id: JobId,
    /// Attempts spent before this one.
    pub spent: u16,
    /// Workers lost before this one.
    pub lost: u16,
}

#[derive(Debug)]
pub(super) struct Lease {
    pub token: Token,
    pub worker: WorkerId,
    pub jobs: Vec<Held>,
    /// Whether some of the jobs may have been called off.
    pub has_cancels: bool,
}

impl Lease {
    /// Reads the columns token, worker, jobs, cancels.
    pub fn of_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            token: Token(row.get(0)?),
            worker: worker_id(row, 1)?,
            jobs: unpack(row.get_ref(2)?.as_blob()?),
            has_cancels: row.get::<_, i64>(3)? > 0,
        })
    }

    /// Takes a lease on jobs; its token is larger than all before. `gates` are those they are inside of.
    pub fn insert(
        conn: &Connection,
        worker: WorkerId,
        now: i64,
        jobs: &[Held],
        gates: Option<&str>,
    ) -> Result<Token> {
        let mut insert = conn.prepare_cached(include_str!("sql/insert_lease.sql"))?;
        Ok(Token(insert.insert(params![worker.0.as_bytes(), now, pack(jobs), gates])?))
    }

    pub fn find(conn: &Connection, token: Token) -> Result<Option<Self>> {
        let mut select = conn.prepare_cached(include_str!("sql/select_lease.sql"))?;
        Ok(select.query_one([token.0], Self::of_row).optional()?)
    }

    /// Those of a worker, and when each began.
    pub fn of_worker(conn: &Connection, worker: WorkerId) -> Result<Vec<(Self, i64)>> {
        let mut select = conn.prepare_cached(include_str!("sql/select_leases_of_worker.sql"))?;
        let leases =
            select.query_map([worker.0.as_bytes()], |row| Ok((Self::of_row(row)?, row.get(4)?)))?;
        Ok(leases.collect::<rusqlite::Result<_>>()?)
    }

    /// The lease that holds this job, if it runs.
    pub fn holding(conn: &Connection, id: JobId) -> Result<Option<(Self, Held)>> {
        let mut select = conn.prepare_cached(include_str!("sql/select_leases_holding.sql"))?;
        for lease in select.query_map([id.0.as_bytes()], Self::of_row)? {
            let lease = lease?;
            if let Some(held) = lease.jobs.iter().find(|held| held.id == id).copied() {
                return Ok(Some((lease, held)));
            }
        }
        Ok(None)
    }

    pub fn all(conn: &Connection) -> Result<Vec<Self>> {
        let mut select = conn.prepare_cached(include_str!("sql/select_leases.sql"))?;
        let leases = select.query_map([], Self::of_row)?;
        Ok(leases.collect::<rusqlite::Result<_>>()?)
    }

    /// Lets go of one job; `None` when the lease does not hold it. `save` makes it so.
    pub fn take(&mut self, id: JobId) -> Option<Held> {
        let at = self.jobs.iter().position(|held| held.id == id)?;
        Some(self.jobs.remove(at))
    }

    /// Keeps what is still held; a lease that holds nothing goes away.
    pub fn save(&self, conn: &Connection) -> Result<()> {
        if self.jobs.is_empty() {
            return self.delete(conn);
        }
        let mut update = conn.prepare_cached(include_str!("sql/update_lease.sql"))?;
        update.execute(params![self.token.0, pack(&self.jobs)])?;
        Ok(())
    }

    pub fn delete(&self, conn: &Connection) -> Result<()> {
        conn.prepare_cached(include_str!("sql/delete_lease.sql"))?.execute([self.token.0])?;
        if self.has_cancels {
            let mut delete = conn.prepare_cached(include_str!("sql/delete_cancels.sql"))?;
            delete.execute([self.token.0])?;
        }
        Ok(())
    }

    /// Why this job was called off, if it was.
    pub fn cancel_reason(&self, conn: &Connection, id: JobId) -> Result<Option<String>> {
        if !self.has_cancels {
            return Ok(None);
        }
        let mut select = conn.prepare_cached(include_str!("sql/select_cancel.sql"))?;
        let found = select.query_one(params![self.token.0, id.0.as_bytes()], |row| row.get(0));
        Ok(found.optional()?)
    }

    /// A job that was settled need not be called off any more.
    pub fn forget_cancel(&self, conn: &Connection, id: JobId) -> Result<()> {
        if self.has_cancels {
            let mut delete = conn.prepare_cached(include_str!("sql/delete_cancel.sql"))?;
            delete.execute(params![self.token.0, id.0.as_bytes()])?;
        }
        Ok(())
    }
}

fn pack(jobs: &[Held]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(jobs.len() * HELD_BYTES);
    for held in jobs {
        bytes.extend_from_slice(held.id.0.as_bytes());
        bytes.extend_from_slice(&held.spent.to_be_bytes());
        bytes.extend_from_slice(&held.lost.to_be_bytes());
    }
    bytes
}

fn unpack(bytes: &[u8]) -> Vec<Held> {
    let (jobs, _) = bytes.as_chunks::<HELD_BYTES>();
    jobs.iter()
        .map(|bytes| {
            let [id @ .., a, b, c, d] = *bytes;
            Held {
                id: JobId(Uuid::from_bytes(id)),
                spent: u16::from_be_bytes([a, b]),
                lost: u16::from_be_bytes([c, d]),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::migrate::migrate;
    use crate::sqlite::open::{self, Place};

    #[test]
    fn held_jobs_survive_their_bytes() {
        let held = |spent, lost| Held { id: JobId::new(), spent, lost };
        let jobs = vec![held(0, 0), held(1, 2), held(u16::MAX, u16::MAX)];
        assert_eq!(unpack(&pack(&jobs)), jobs);
    }

    #[test]
    fn a_token_that_a_power_cut_took_is_not_given_again() -> Result<()> {
        let database = || -> Result<Connection> {
            let conn = open::writer(&Place::Memory)?;
            migrate(&conn, true)?;
            Ok(conn)
        };
        // Before the cut, and after it: without anything of what was not synced.
        let (before, after) = (database()?, database()?);
        let (worker, now) = (WorkerId::new(), 1_700_000_000_000_000);
        let first = Lease::insert(&before, worker, now, &[], None)?;
        let second = Lease::insert(&before, worker, now, &[], None)?;
        assert!(second > first, "also within one microsecond");
        assert!(
            Lease::insert(&before, worker, now - 9, &[], None)? > second,
            "also when clocks go back"
        );
        assert!(
            Lease::insert(&after, worker, now + 9, &[], None)? > second,
            "a power cut takes its time"
        );
        Ok(())
    }
}
