//! Encrypted values as they are kept.

use async_trait::async_trait;
use tokio_postgres::types::Type;

use crate::error::Result;
use crate::postgres::Postgres;
use crate::postgres::error::Tries;
use crate::postgres::statement::{Param, Statement};
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
impl Values for Postgres {
    async fn values(
        &self,
        place: Place,
        after: Option<&RowKey>,
        limit: usize,
    ) -> Result<Vec<ValueRow>> {
        let text = statements!(texts, place).0;
        let select = Statement { text, types: &[Type::TEXT, Type::INT8, Type::INT8] };
        let (after, limit) = (after.cloned().unwrap_or_else(|| RowKey::first(place)), limit as i64);
        let rows = self.shared.db.read(&select, &[&after.id, &after.number, &limit]).await?;
        let row = |row: &tokio_postgres::Row| {
            let key = RowKey { id: row.get(0), number: row.get(1) };
            ValueRow { key, texts: [row.get(2), row.get(3)] }
        };
        Ok(rows.iter().map(row).collect())
    }

    async fn replace_values(&self, place: Place, rows: Vec<(ValueRow, Texts)>) -> Result<u64> {
        let text = statements!(texts, place).1;
        let types = &[Type::TEXT, Type::INT8, Type::TEXT, Type::TEXT, Type::TEXT, Type::TEXT];
        let (replace, mut replaced) = (Statement { text, types }, 0);
        for (ValueRow { key, texts: [old_a, old_b] }, [a, b]) in &rows {
            let columns: [Param<'_>; 6] = [&key.id, &key.number, a, b, old_a, old_b];
            let mut tries = Tries::once();
            // Sent again after a lost answer, it finds what it has replaced, and counts one too few.
            replaced += loop {
                match self.shared.db.query(&replace, &columns).await {
                    Ok(rows) => break rows.len() as u64,
                    Err(fault) => tries.again(fault).await?,
                }
            };
        }
        Ok(replaced)
    }
}
