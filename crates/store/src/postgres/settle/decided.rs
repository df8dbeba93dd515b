//! What callers decided in transactions of their own, carried out as any settle is.
//!
//! It is read before anything is locked, because what follows from it says which flows, keys and lines are; and taken
//! when the lease is locked. One that was committed in between makes the whole start anew.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use tidemill_core::{Settlement, Token, WorkerId};
use uuid::Uuid;

use super::whole;
use crate::decided::settlement;
use crate::error::Result;
use crate::postgres::Shared;
use crate::postgres::body::body;
use crate::postgres::connect::Conn;
use crate::postgres::error::Fault;
use crate::postgres::statement::{Statement, sql};
use crate::request::SettleItem;

const DECIDED: Statement = sql!("select_decided", UUID_ARRAY);
const TAKE: Statement = sql!("take_decided", UUID_ARRAY, INT8_ARRAY);

/// Attempts that a caller's transaction may have decided, as far as is known.
#[derive(Debug, Default)]
pub(super) struct Known {
    asked: Vec<(Uuid, i64)>,
    found: Vec<Uuid>,
}

impl Known {
    /// Whether there is any.
    pub fn is_any(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Takes what was decided; their leases are locked. One that was not known before has everything begin anew.
    pub async fn take(&self, conn: &Conn<'_>) -> Result<(), Fault> {
        if !self.is_any() {
            return Ok(());
        }
        let (ids, tokens): (Vec<Uuid>, Vec<i64>) = self.asked.iter().copied().unzip();
        let rows = conn.query(&TAKE, &[&ids, &tokens]).await?;
        if rows.iter().all(|row| self.found.contains(&row.get(0))) {
            return Ok(());
        }
        Err(Fault::Again("a job was decided meanwhile, in a transaction of its handler's".into()))
    }
}

/// The items, with what was decided for them in place of what they say.
pub(super) async fn known<'a>(
    conn: &Conn<'_>,
    items: &'a [SettleItem],
) -> Result<(Cow<'a, [SettleItem]>, Known), Fault> {
    let asked = items.iter().filter(|item| item.decided).map(|item| (item.job.id.0, item.token.0));
    let asked: Vec<(Uuid, i64)> = asked.collect();
    if asked.is_empty() {
        return Ok((Cow::Borrowed(items), Known::default()));
    }
    let ids: Vec<Uuid> = asked.iter().map(|(id, _)| *id).collect();
    let mut found: HashMap<(Uuid, i64), Settlement> = HashMap::new();
    for row in conn.query(&DECIDED, &[&ids]).await? {
        let so = settlement(row.get(11), row.get(12)).map_err(Fault::Refused)?;
        found.insert((row.get(0), row.get(10)), so);
    }
    let known = Known { asked, found: found.keys().map(|(id, _)| *id).collect() };
    let mut items = items.to_vec();
    for item in items.iter_mut().filter(|item| item.decided) {
        if let Some(settlement) = found.remove(&(item.job.id.0, item.token.0)) {
            item.settlement = settlement;
        }
    }
    Ok((Cow::Owned(items), known))
}

/// Settles what lost workers had decided of these jobs.
pub(crate) async fn carry_out(shared: &Arc<Shared>, ids: &[Uuid]) -> Result<()> {
    for row in shared.db.read(&DECIDED, &[&ids]).await? {
        let item = SettleItem {
            job: Arc::new(body(&row, 0)),
            token: Token(row.get(10)),
            attempt: row.get::<_, i16>(14).saturating_add(1) as u16,
            lost: row.get::<_, i16>(15) as u16,
            started_at: shared.db.machine_now(),
            gates: Vec::new(),
            settlement: settlement(row.get(11), row.get(12))?,
            decided: true,
            run: None,
        };
        whole::settle(shared, WorkerId(row.get(13)), &[item]).await?;
    }
    Ok(())
}
