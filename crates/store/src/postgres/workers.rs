//! Workers: they register, beat and leave.
//!
//! Beats have a connection of their own, so that a pool full of slow work cannot make a worker look
//! dead. A beat also tidies: leases that are settled to the end, and claims whose answers were lost.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::{JobId, WorkerId};
use tokio::sync::Mutex;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::error::Result;
use crate::postgres::batch::delay_us;
use crate::postgres::connect::{Db, unnamed};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{At, Param, Statement, sql};
use crate::postgres::{Shared, reach, rescue};
use crate::request::{Beat, WorkerCard};
use crate::view::WorkerView;

const REGISTER: Statement =
    sql!("insert_worker", TIMESTAMPTZ, UUID, TEXT, TEXT_ARRAY, TEXT_ARRAY, INT4, INT8, TEXT, BOOL);
const BEAT: Statement = sql!("update_beat", TIMESTAMPTZ, UUID);
const LIST: Statement = sql!("select_workers");
const LEASE_CLOSE: Statement = sql!("delete_lease", INT8_ARRAY);
const DUTY_TAKE: Statement = sql!("take_duty", TIMESTAMPTZ, TEXT, UUID, INT8);
const DUTY_LEAVE: Statement = sql!("delete_duty", TEXT, UUID);

/// A connection kept for one purpose; made again when it is lost.
#[derive(Default)]
pub(crate) struct Reserved(Mutex<Option<Arc<Client>>>);

impl Reserved {
    pub async fn client(&self, db: &Db) -> Result<Arc<Client>, Fault> {
        let mut kept = self.0.lock().await;
        if let Some(client) = kept.as_ref().filter(|client| !client.is_closed()) {
            return Ok(Arc::clone(client));
        }
        let client = Arc::new(db.single().await?);
        *kept = Some(Arc::clone(&client));
        Ok(client)
    }

    pub async fn close(&self) {
        self.0.lock().await.take();
    }
}

/// Announces a worker. Where limits count, no claim is under way meanwhile.
pub(crate) async fn register(db: &Db, card: WorkerCard) -> Result<()> {
    let slots = i32::try_from(card.slots).unwrap_or(i32::MAX);
    let (now, lease_us) = (db.manual_now(), card.lease_ttl.map(delay_us));
    let WorkerCard { id, name, queues, kinds, .. } = &card;
    let slots_of = serde_json::json!(card.slots_of).to_string();
    let params = |alone| -> [Param<'_>; 9] {
        [&now, &id.0, name, queues, kinds, &slots, &lease_us, &slots_of, alone]
    };
    let mut tries = Tries::resend();
    let is_written = loop {
        match db.query(&REGISTER, &params(&false)).await {
            Ok(rows) => break rows.first().is_some_and(|row| row.get(0)),
            Err(fault) => tries.again(fault).await?,
        }
    };
    if is_written {
        return Ok(());
    }
    let wanted = |own: Option<i32>| slots.saturating_mul(2).max(own.unwrap_or(0));
    reach::grow(db, *id, wanted, &REGISTER, &params(&true)).await
}

/// Says that a worker lives.
pub(crate) async fn beat(shared: &Arc<Shared>, worker: WorkerId) -> Result<Beat> {
    let mut tries = Tries::read();
    let beat = loop {
        match beat_once(shared, worker).await {
            Ok(beat) => break beat,
            Err(fault) => tries.again(fault).await?,
        }
    };
    if beat.lost {
        shared.leases.forget(worker);
    } else {
        tidy(shared, worker);
    }
    Ok(beat)
}

async fn beat_once(shared: &Shared, worker: WorkerId) -> Result<Beat, Fault> {
    let client = shared.beats.client(&shared.db).await?;
    let rows = unnamed(&client, &BEAT, &[&shared.db.manual_now(), &worker.0]).await;
    let rows = rows.map_err(|fault| fault.at(shared.db.place()))?;
    let Some(row) = rows.first() else { return Ok(Beat { lost: true, ..Beat::default() }) };
    let (known, cancelled): (bool, Vec<Uuid>) = (row.get(0), row.get(1));
    let lease_us: Option<i64> = row.get(2);
    let lease_ttl = lease_us.map(|us| Duration::from_micros(us.unsigned_abs()));
    Ok(Beat { lost: !known, cancelled: cancelled.into_iter().map(JobId).collect(), lease_ttl })
}

/// Ends what is left over, beside the beat: a worker must not wait for it.
fn tidy(shared: &Arc<Shared>, worker: WorkerId) {
    let empty: Vec<i64> = shared.leases.take_empty().iter().map(|token| token.0).collect();
    let strays = shared.leases.strays(worker);
    if empty.is_empty() && strays.is_empty() {
        return;
    }
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        if !empty.is_empty() && shared.db.query(&LEASE_CLOSE, &[&empty]).await.is_err() {
            tracing::debug!("empty leases stay until the next sweep");
        }
        if !strays.is_empty()
            && let Err(error) = rescue::give_back_strays(&shared, worker, &strays).await
        {
            tracing::debug!(%error, "jobs of a lost claim stay until the next beat");
        }
    });
}

/// All workers that are registered.
pub(crate) async fn list(db: &Db) -> Result<Vec<WorkerView>> {
    let rows = db.read(&LIST, &[]).await?;
    let view = |row: &tokio_postgres::Row| WorkerView {
        id: WorkerId(row.get(0)),
        name: row.get(1),
        queues: row.get(2),
        kinds: row.get(3),
        slots: row.get::<_, i32>(4) as u32,
        started_at: row.get::<_, At>(5).0,
        beat_at: row.get::<_, At>(6).0,
        slots_of: serde_json::from_str(row.get(7)).unwrap_or_default(),
        lease_ms: row.get::<_, Option<i64>>(8).map(|us| us.unsigned_abs() / 1000),
    };
    Ok(rows.iter().map(view).collect())
}

/// Takes or keeps a duty that one node at a time should have; answers since when it has had it.
pub(crate) async fn take_duty(
    db: &Db,
    name: &str,
    holder: WorkerId,
    ttl: Duration,
) -> Result<Option<Timestamp>> {
    let ttl_us = delay_us(ttl);
    let rows = db.read(&DUTY_TAKE, &[&db.manual_now(), &name, &holder.0, &ttl_us]).await?;
    Ok(rows.first().map(|row| row.get::<_, At>(0).0))
}

/// Gives a duty back.
pub(crate) async fn leave_duty(db: &Db, name: &str, holder: WorkerId) -> Result<()> {
    db.read(&DUTY_LEAVE, &[&name, &holder.0]).await.map(drop)
}
