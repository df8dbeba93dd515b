//! A batch of several statements, judged as one: a queue that is full refuses all of it, or makes room for all of it.
//!
//! One statement is judged by the server while it writes (`tidemill.enqueue_json`). If each of several were judged
//! alone, the second would push the first out of a queue that drops its oldest. So they are written whatever the
//! depth, and the transaction is judged at its end: by the same rule, and what was there before is what may be dropped.

use std::collections::{BTreeMap, HashMap, HashSet};

use tidemill_core::{JobId, NewJob};
use uuid::Uuid;

use crate::postgres::connect::Conn;
use crate::postgres::enqueue::KNOWN;
use crate::postgres::error::Fault;
use crate::postgres::statement::{At, Statement, sql};
use crate::postgres::unique::Depth;
use crate::request::Receipt;

const ROUTES: Statement = sql!("select_routes", TEXT_ARRAY, INT8_ARRAY, BOOL);
const ADMIT: Statement = sql!("admit_parts", TEXT_ARRAY, INT8_ARRAY, INT2_ARRAY, INT8, TIMESTAMPTZ);

/// The queues to which jobs of others are diverted.
pub(crate) type Routes = HashMap<String, String>;

/// A batch that is being written.
pub(crate) struct Judged {
    pub routes: Routes,
    /// Its sheaves have larger numbers.
    first_sheaf: i64,
    /// What was written before, when this was sent for the first time.
    known: HashSet<Uuid>,
}

impl Judged {
    /// Before anything of it is written. `None`: none of its queues has a bound.
    pub async fn begin(
        conn: &Conn<'_>,
        jobs: &[&NewJob],
        depth: Depth,
    ) -> Result<Option<Self>, Fault> {
        let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
        for job in jobs {
            *counts.entry(&job.queue).or_default() += 1;
        }
        let (queues, counts): (Vec<&str>, Vec<i64>) = counts.into_iter().unzip();
        let rows = conn.query(&ROUTES, &[&queues, &counts, &(depth == Depth::Bounded)]).await?;
        let Some(first) = rows.first() else { return Ok(None) };
        let first_sheaf = first.get(2);
        let routes = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let ids: Vec<Uuid> = jobs.iter().map(|job| job.id.0).collect();
        let known = conn.query(&KNOWN, &[&ids]).await?;
        let known = known.iter().map(|row| row.get(0)).collect();
        Ok(Some(Self { routes, first_sheaf, known }))
    }

    /// When all of it is written, and these are the answers.
    pub async fn end(
        mut self,
        conn: &Conn<'_>,
        now: Option<At>,
        jobs: &[&NewJob],
        receipts: &[Receipt],
    ) -> Result<(), Fault> {
        // How many, and the lowest band.
        let mut new: BTreeMap<&str, (i64, i16)> = BTreeMap::new();
        for (job, receipt) in jobs.iter().zip(receipts) {
            let JobId(id) = job.id;
            let is_new = *receipt == Receipt::Enqueued { id: job.id };
            if is_new && self.known.insert(id) {
                let (jobs, band) = new.entry(route(&self.routes, job)).or_default();
                *jobs += 1;
                *band = (*band).max(job.priority.band());
            }
        }
        let queues: Vec<&str> = new.keys().copied().collect();
        let (counts, bands): (Vec<i64>, Vec<i16>) = new.into_values().unzip();
        conn.query(&ADMIT, &[&queues, &counts, &bands, &self.first_sheaf, &now]).await?;
        Ok(())
    }
}

/// The queue that a job goes to. Those that take turns stay in their lines.
pub(crate) fn route<'a>(routes: &'a Routes, job: &'a NewJob) -> &'a str {
    let diverted = routes.get(&job.queue).filter(|_| job.line().is_none());
    diverted.unwrap_or(&job.queue)
}
