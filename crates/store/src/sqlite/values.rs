//! Encrypted values as they are kept.

use async_trait::async_trait;
use rusqlite::{Connection, params};

use crate::error::Result;
use crate::sqlite::Sqlite;
use crate::sqlite::writer::Turn;
use crate::value::{Place, RowKey, Texts, ValueRow, Values, statements};

macro_rules! texts {
    ($place:literal) => {
        (
            include_str!(concat!("sql/select_encrypted_", $place, ".sql")),
            include_str!(concat!("sql/encrypt_", $place, "_again.sql")),
        )
    };
}

#[async_trait]
impl Values for Sqlite {
    async fn values(
        &self,
        place: Place,
        after: Option<&RowKey>,
        limit: usize,
    ) -> Result<Vec<ValueRow>> {
        let after = after.cloned().unwrap_or_else(|| RowKey::first(place));
        self.read(move |conn| select(conn, place, &after, limit)).await
    }

    async fn replace_values(&self, place: Place, rows: Vec<(ValueRow, Texts)>) -> Result<u64> {
        self.write(move |turn| replace(turn, place, &rows)).await
    }
}

fn select(conn: &Connection, place: Place, after: &RowKey, limit: usize) -> Result<Vec<ValueRow>> {
    let mut select = conn.prepare_cached(statements!(texts, place).0)?;
    let rows = select.query_map(params![after.id, after.number, limit as i64], |row| {
        let key = RowKey { id: row.get(0)?, number: row.get(1)? };
        Ok(ValueRow { key, texts: [row.get(2)?, row.get(3)?] })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn replace(turn: &mut Turn<'_>, place: Place, rows: &[(ValueRow, Texts)]) -> Result<u64> {
    let mut update = turn.conn.prepare_cached(statements!(texts, place).1)?;
    let mut replaced = 0;
    for (ValueRow { key, texts: [old_a, old_b] }, [a, b]) in rows {
        replaced += update.execute(params![key.id, key.number, a, b, old_a, old_b])?;
    }
    Ok(replaced as u64)
}
