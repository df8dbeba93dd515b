//! What is measured on the way to the server, and what the server says of its health.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tidemill_core::depth::Sample;
use tidemill_core::flow::FlowState;

use crate::error::{Error, Result};
use crate::measure::{Figure, FlowCount, Measured, Passed, Way};
use crate::postgres::Postgres;
use crate::postgres::statement::{At, Statement, sql};

const FIGURES: Statement = sql!("select_figures");
const PASSED: Statement = sql!("count_passed", TIMESTAMPTZ);
const FLOWS: Statement = sql!("count_flows");

/// The tables whose rows come and go; the names of others are not told.
const TABLES: [&str; 6] = ["ready", "lease", "depth_delta", "run", "flow", "worker"];

#[async_trait]
impl Measured for Postgres {
    fn way(&self) -> Way {
        let shared = &self.shared;
        Way {
            batches: vec![
                ("enqueue", shared.enqueues.batches()),
                ("flow", shared.starts.batches()),
                ("journal", shared.appends.batches()),
            ],
            waits: vec![("pool", shared.db.waits())],
            commits: None,
            connections: shared.db.connections(),
        }
    }

    async fn figures(&self) -> Result<Vec<Figure>> {
        let rows = self.shared.db.read(&FIGURES, &[]).await?;
        let Some(row) = rows.first() else { return Ok(Vec::new()) };
        let mut figures = vec![
            Figure::new("oldest_transaction_seconds", row.get::<_, Option<f64>>(0).unwrap_or(0.0)),
            Figure::new("database_bytes", row.get(2)),
        ];
        figures.extend(row.get::<_, Option<f64>>(1).map(|wal| Figure::new("wal_bytes_total", wal)));
        let tables: BTreeMap<String, (f64, f64)> =
            serde_json::from_str(row.get::<_, Option<&str>>(3).unwrap_or("{}"))
                .map_err(|error| Error::Database { reason: error.to_string() })?;
        for table in TABLES {
            let Some((live, dead)) = tables.get(table) else { continue };
            for (name, value) in [("live_rows", live), ("dead_rows", dead)] {
                figures.push(Figure { name, table: Some(table), value: *value });
            }
        }
        Ok(figures)
    }

    async fn passed(&self) -> Result<Vec<Passed>> {
        let db = &self.shared.db;
        let rows = db.read(&PASSED, &[&db.manual_now()]).await?;
        let passed = |row: &tokio_postgres::Row| {
            let count = |at: usize| row.get::<_, i64>(at).max(0) as u64;
            let before = row.get::<_, Option<At>>(4);
            Passed {
                queue: row.get(1),
                now: Sample { at: row.get::<_, At>(0).0, came: count(2), went: count(3) },
                before: before.map(|at| Sample { at: at.0, came: count(5), went: count(6) }),
                dropped: count(7),
            }
        };
        Ok(rows.iter().map(passed).collect())
    }

    async fn count_flows(&self) -> Result<Vec<FlowCount>> {
        let rows = self.shared.db.read(&FLOWS, &[]).await?;
        let count = |row: &tokio_postgres::Row| FlowCount {
            state: FlowState::of_number(row.get(0)),
            is_saga: row.get(1),
            flows: row.get::<_, i64>(2).max(0) as u64,
        };
        Ok(rows.iter().map(count).collect())
    }
}
