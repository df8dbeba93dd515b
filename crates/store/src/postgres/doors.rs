//! What happens at gates after a settle: those who wait there are told, and how attempts ended is judged.
//!
//! A settle gives its permits back and is done; it takes no turn at any gate. Looking who is held there, and
//! whether too much fails, comes after it, off its path, and for many settles at once: what arrives while
//! one look is under way goes with the next. A process that dies in between leaves nobody waiting for long:
//! see `unstick_gates.sql`.
//!
//! A claim looks back, too, when it has held somebody: who came out of that gate before the claim had committed
//! saw nobody held there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidemill_core::gate::GateView;
use tidemill_core::{Breaker, WorkerId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::Error;
use crate::postgres::Shared;
use crate::postgres::connect::Db;
use crate::postgres::error::Fault;
use crate::postgres::queues;
use crate::postgres::statement::{At, Statement, sql};
use crate::request::SettleItem;
use crate::wake::Hint;

const COME_OUT: Statement = sql!(
    "come_out",
    TIMESTAMPTZ,
    TEXT_ARRAY,
    TEXT_ARRAY,
    INT4_ARRAY,
    INT4_ARRAY,
    INT4_ARRAY,
    INT8_ARRAY,
    INT4_ARRAY,
    INT8_ARRAY,
);
const VIEWS: Statement = sql!("select_gates", TEXT_ARRAY);
const HELD_OF: Statement = sql!("count_held_of", TEXT_ARRAY, TEXT);
const LOOK_BACK: Statement = sql!("look_back", TIMESTAMPTZ, TEXT, TEXT_ARRAY);
const UNSTICK: Statement = sql!("unstick_gates", TIMESTAMPTZ, TEXT_ARRAY, INT4_ARRAY);

/// How attempts ended that came out of one gate.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    breaker: Option<Breaker>,
    good: i32,
    bad: i32,
}

#[derive(Debug, Default)]
struct Waiting {
    gates: HashMap<Arc<str>, Tally>,
    is_flying: bool,
}

/// The gates that something came out of, and nobody has looked at since.
#[derive(Debug, Clone, Default)]
pub(crate) struct Doors(Arc<Mutex<Waiting>>);

impl Doors {
    /// Notes that these attempts came out of their gates; somebody will look, soon.
    pub fn came_out(&self, shared: &Arc<Shared>, items: &[SettleItem]) {
        if items.iter().all(|item| item.gates.is_empty()) {
            return;
        }
        let mut waiting = self.lock();
        for item in items {
            for end in &item.gates {
                let tally = waiting.gates.entry(end.gate.clone()).or_default();
                tally.breaker = end.breaker.or(tally.breaker);
                match item.is_well() {
                    Some(true) => tally.good += 1,
                    Some(false) => tally.bad += 1,
                    None => {}
                }
            }
        }
        self.look_soon(shared, &mut waiting);
    }

    /// Notes that leases are gone which were inside of these gates.
    pub fn vacated(&self, shared: &Arc<Shared>, gates: impl Iterator<Item = String>) {
        let mut waiting = self.lock();
        for gate in gates {
            waiting.gates.entry(gate.into()).or_default();
        }
        if !waiting.gates.is_empty() {
            self.look_soon(shared, &mut waiting);
        }
    }

    fn look_soon(&self, shared: &Arc<Shared>, waiting: &mut Waiting) {
        if !waiting.is_flying {
            waiting.is_flying = true;
            tokio::spawn(self.clone().fly(Arc::clone(shared)));
        }
    }

    async fn fly(self, shared: Arc<Shared>) {
        while let Some(gates) = self.next() {
            match look(&shared, &gates).await {
                Ok(queues) => {
                    for queue in queues {
                        shared.hint(Hint::Ready { queue });
                    }
                }
                Err(fault) => tracing::warn!(?fault, "gates could not be looked at; a sweep will"),
            }
        }
    }

    fn next(&self) -> Option<HashMap<Arc<str>, Tally>> {
        let mut waiting = self.lock();
        waiting.is_flying = !waiting.gates.is_empty();
        waiting.is_flying.then(|| std::mem::take(&mut waiting.gates))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Judges, and answers the queues that have reason to look again.
async fn look(shared: &Shared, gates: &HashMap<Arc<str>, Tally>) -> Result<Vec<String>, Fault> {
    let names: Vec<&str> = gates.keys().map(|gate| &**gate).collect();
    let judged: Vec<_> =
        gates.iter().filter_map(|(gate, tally)| Some((gate, tally, tally.breaker?))).collect();
    let of: Vec<&str> = judged.iter().map(|(gate, ..)| &***gate).collect();
    let goods: Vec<i32> = judged.iter().map(|(_, tally, _)| tally.good).collect();
    let bads: Vec<i32> = judged.iter().map(|(_, tally, _)| tally.bad).collect();
    let of_rule = |number: fn(&Breaker) -> i32| -> Vec<i32> {
        judged.iter().map(|(.., breaker)| number(breaker)).collect()
    };
    let percents = of_rule(|breaker| breaker.failures_percent as i32);
    let leasts = of_rule(|breaker| breaker.attempts_min as i32);
    let us = |ms: u64| i64::try_from(ms.saturating_mul(1000)).unwrap_or(i64::MAX);
    let windows: Vec<i64> = judged.iter().map(|(.., breaker)| us(breaker.window_ms)).collect();
    let opens: Vec<i64> = judged.iter().map(|(.., breaker)| us(breaker.open_ms)).collect();
    let now = shared.db.manual_now();
    let rows = shared
        .db
        .query(&COME_OUT, &[&now, &names, &of, &goods, &bads, &percents, &windows, &leasts, &opens])
        .await?;
    Ok(rows.iter().filter_map(|row| row.get(1)).collect())
}

/// A claim under these limits has held jobs at these gates: whoever may pass by now is told, soon.
pub(crate) fn look_back(shared: &Arc<Shared>, under: Option<String>, stops: Vec<String>) {
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let now = shared.db.manual_now();
        match shared.db.query(&LOOK_BACK, &[&now, &under, &stops]).await {
            Ok(rows) => {
                for row in rows {
                    shared.hint(Hint::Ready { queue: row.get(0) });
                }
            }
            Err(fault) => tracing::warn!(?fault, "gates could not be looked at; a sweep will"),
        }
    });
}

/// Lets those through that are held while there is room, or no such limit, and no clock will open their gate: whoever
/// should have is gone. Answers the queues that have reason to look again.
pub(crate) async fn unstick(shared: &Shared) -> Result<Vec<String>, Error> {
    let book = queues::rules(&shared.db).await?;
    let named: Vec<_> = book.named_limits().collect();
    let bases: Vec<&str> = named.iter().map(|(base, _)| base.as_str()).collect();
    let mosts: Vec<_> =
        named.iter().map(|(_, limit)| limit.concurrency.map(|most| most as i32)).collect();
    let rows = shared.db.read(&UNSTICK, &[&shared.db.manual_now(), &bases, &mosts]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// What is known of these gates.
pub(crate) async fn views(db: &Db, names: &[String]) -> Result<Vec<GateView>, Error> {
    let view = |row: &Row| {
        let (workers, numbers): (Vec<Uuid>, Vec<i64>) = (row.get(5), row.get(6));
        let inside = workers.into_iter().zip(numbers);
        GateView {
            name: row.get(0),
            inside: inside.map(|(worker, jobs)| (WorkerId(worker), jobs as u64)).collect(),
            tat: row.get::<_, Option<At>>(1).map(|at| at.0),
            shut_until: row.get::<_, Option<At>>(2).map(|at| at.0),
            is_broken: row.get(3),
            credit: row.get(4),
            held: row.get::<_, i64>(7) as u64,
        }
    };
    Ok(db.read(&VIEWS, &[&names]).await?.iter().map(view).collect())
}

/// How many jobs of a queue are held at each of these gates.
pub(crate) async fn held_of(db: &Db, queue: &str, gates: &[String]) -> Result<Vec<u64>, Error> {
    let rows = db.read(&HELD_OF, &[&gates, &queue]).await?;
    Ok(rows.iter().map(|row| row.get::<_, i64>(0) as u64).collect())
}
