//! Leases as those see them who did not make them.

use std::sync::Arc;

use async_trait::async_trait;
use tidemill_core::{JobId, Token, WorkerId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::Result;
use crate::lease::{LeaseView, Leases};
use crate::postgres::Postgres;
use crate::postgres::body::body;
use crate::postgres::statement::{At, Statement, sql};
use crate::request::ClaimedJob;

const HELD: Statement = sql!("select_claimed", INT8_ARRAY, UUID_ARRAY, UUID);
const OF_WORKER: Statement = sql!("select_leases_of_worker", UUID);

#[async_trait]
impl Leases for Postgres {
    async fn held(
        &self,
        worker: WorkerId,
        asked: &[(Token, JobId)],
    ) -> Result<Vec<Option<ClaimedJob>>> {
        let (tokens, ids): (Vec<i64>, Vec<Uuid>) =
            asked.iter().map(|(token, id)| (token.0, id.0)).unzip();
        let rows = self.shared.db.read(&HELD, &[&tokens, &ids, &worker.0]).await?;
        let mut jobs = vec![None; asked.len()];
        for row in &rows {
            let number = row.get::<_, i64>(13) as usize;
            if let Some(place) = number.checked_sub(1).and_then(|at| jobs.get_mut(at)) {
                *place = Some(held(row));
            }
        }
        Ok(jobs)
    }

    async fn leases(&self, worker: WorkerId) -> Result<Vec<LeaseView>> {
        let rows = self.shared.db.read(&OF_WORKER, &[&worker.0]).await?;
        let view = |row: &Row| LeaseView {
            token: Token(row.get(0)),
            claimed_at: row.get::<_, At>(1).0,
            jobs: row.get::<_, Vec<Uuid>>(2).into_iter().map(JobId).collect(),
        };
        Ok(rows.iter().map(view).filter(|lease| !lease.jobs.is_empty()).collect())
    }
}

fn held(row: &Row) -> ClaimedJob {
    let job = body(row, 0);
    let spent: Option<i16> = row.get(10);
    let gates = row.get::<_, Option<Vec<String>>>(12).filter(|_| spent.is_some());
    ClaimedJob {
        attempt: spent.map_or(0, |spent| spent as u16 + 1),
        lost: row.get::<_, Option<i16>>(11).unwrap_or(0) as u16,
        due_at: job.created_at,
        job: Arc::new(job),
        gates: gates.unwrap_or_default().into_iter().map(Into::into).collect(),
        has_run: false,
    }
}
