//! What is measured on the way to the file, and what the file says of its health.

use std::collections::BTreeMap;
use std::path::Path;

use async_trait::async_trait;
use rusqlite::Connection;
use tidemill_core::depth::Sample;
use tidemill_core::flow::FlowState;

use crate::error::Result;
use crate::measure::{Figure, FlowCount, Measured, Passed, Way};
use crate::sqlite::Sqlite;
use crate::sqlite::depth::sample;
use crate::sqlite::rows::{count, time};

#[async_trait]
impl Measured for Sqlite {
    fn way(&self) -> Way {
        let pace = self.writer.pace();
        let mut waits = vec![("writer", pace.waits.read())];
        waits.extend(self.readers.waits().map(|seen| ("reader", seen)));
        let batches = vec![("writer", pace.batches.read())];
        Way { batches, waits, commits: Some(pace.commits.read()), connections: Vec::new() }
    }

    async fn figures(&self) -> Result<Vec<Figure>> {
        let file = self.place.file().map(Path::to_path_buf);
        self.read(move |conn| figures(conn, file.as_deref())).await
    }

    async fn passed(&self) -> Result<Vec<Passed>> {
        let now = self.now_us();
        self.read(move |conn| passed(conn, now)).await
    }

    async fn count_flows(&self) -> Result<Vec<FlowCount>> {
        self.read(count_flows).await
    }
}

fn figures(conn: &Connection, file: Option<&Path>) -> Result<Vec<Figure>> {
    let mut figures = Vec::with_capacity(4);
    for (name, pragma) in
        [("page_bytes", "page_size"), ("pages", "page_count"), ("free_pages", "freelist_count")]
    {
        let value: i64 = conn.pragma_query_value(None, pragma, |row| row.get(0))?;
        figures.push(Figure::new(name, value as f64));
    }
    if let Some(file) = file {
        let mut name = file.as_os_str().to_owned();
        name.push("-wal");
        let bytes = std::fs::metadata(Path::new(&name)).map_or(0, |data| data.len());
        figures.push(Figure::new("wal_bytes", bytes as f64));
    }
    Ok(figures)
}

fn passed(conn: &Connection, now: i64) -> Result<Vec<Passed>> {
    let mut select = conn.prepare_cached(include_str!("sql/count_passed.sql"))?;
    let rows = select.query_map([now], |row| {
        let (came, went) = (count::<i64>(row, 1)?, count::<i64>(row, 2)?);
        let now = Sample { at: time(now), came, went };
        let dropped = count::<i64>(row, 6)?;
        Ok(Passed { queue: row.get(0)?, now, before: sample(row, 3)?, dropped })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn count_flows(conn: &Connection) -> Result<Vec<FlowCount>> {
    let mut select = conn.prepare_cached(include_str!("sql/count_flows.sql"))?;
    let (mut rows, mut counts) = (select.query([])?, BTreeMap::<(i16, bool), u64>::new());
    while let Some(row) = rows.next()? {
        *counts.entry((row.get(0)?, row.get(1)?)).or_default() += 1;
    }
    let count = |((state, is_saga), flows)| FlowCount {
        state: FlowState::of_number(state),
        is_saga,
        flows,
    };
    Ok(counts.into_iter().map(count).collect())
}
