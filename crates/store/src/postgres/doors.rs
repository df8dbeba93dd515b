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
use std::time::Duration;

use tidemill_core::gate::{GateView, Horizon, prefix};
use tidemill_core::{Breaker, RuleBook, Token, WorkerId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::Error;
use crate::postgres::Shared;
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{At, Param, Statement, sql};
use crate::postgres::{queues, stowaways};
use crate::request::{SettleItem, Settled};
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
    INT8_ARRAY,
);
const BASES: Statement = sql!("select_gate_bases");
const MEND: Statement =
    sql!("mend_gates", TIMESTAMPTZ, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY);
const TURN: Statement = sql!("take_turn", TEXT_ARRAY);
const SPLIT: Statement = sql!("select_split_limits");
const FORGET: Statement = sql!("forget_gates", TIMESTAMPTZ, TEXT, INT8);
const VIEWS: Statement = sql!("select_gates", TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, INT8_ARRAY);
const HELD_OF: Statement = sql!("count_held_of", TEXT_ARRAY, TEXT);
const LOOK_BACK: Statement = sql!("look_back", TIMESTAMPTZ, TEXT, TEXT_ARRAY);
const UNSTICK: Statement = sql!("unstick_gates", TIMESTAMPTZ, TEXT_ARRAY, INT4_ARRAY);

/// Gates of a limit that are forgotten at once.
const FORGET_MAX: i64 = 1000;
/// How often in a row that is done for one limit, before the next sweep.
const FORGET_TURNS_MAX: usize = 10;

/// How attempts ended that came out of one gate: so many well, so many not, by their leases.
#[derive(Debug, Clone, Default)]
struct Tally {
    breaker: Option<Breaker>,
    ends: HashMap<Token, (i32, i32)>,
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
    /// Notes that those of these attempts that were taken came out of their gates; somebody will look, soon. A stale
    /// one came out when its lease was lost, and says nothing of the other side.
    pub fn came_out(&self, shared: &Arc<Shared>, items: &[SettleItem], answers: &[Settled]) {
        let taken = || {
            let settled = items.iter().zip(answers).filter(|(_, how)| **how != Settled::Stale);
            settled.map(|(item, _)| item)
        };
        if taken().all(|item| item.gates.is_empty()) {
            return;
        }
        let mut waiting = self.lock();
        for item in taken() {
            for end in &item.gates {
                let tally = waiting.gates.entry(end.gate.clone()).or_default();
                tally.breaker = end.breaker.or(tally.breaker);
                if end.breaker.is_some() {
                    let (good, bad) = tally.ends.entry(item.token).or_default();
                    *good += i32::from(item.is_well() == Some(true));
                    *bad += i32::from(item.is_well() == Some(false));
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
    let judged = gates.iter().filter_map(|(gate, tally)| Some((gate, tally, tally.breaker?)));
    let judged: Vec<_> = judged
        .flat_map(|(gate, tally, breaker)| tally.ends.iter().map(move |end| (gate, end, breaker)))
        .collect();
    let of: Vec<&str> = judged.iter().map(|(gate, ..)| &***gate).collect();
    let tokens: Vec<i64> = judged.iter().map(|(_, (token, _), _)| token.0).collect();
    let goods: Vec<i32> = judged.iter().map(|(_, (_, (good, _)), _)| *good).collect();
    let bads: Vec<i32> = judged.iter().map(|(_, (_, (_, bad)), _)| *bad).collect();
    let of_rule = |number: fn(&Breaker) -> i32| -> Vec<i32> {
        judged.iter().map(|(.., breaker)| number(breaker)).collect()
    };
    let percents = of_rule(|breaker| breaker.failures_percent as i32);
    let leasts = of_rule(|breaker| breaker.attempts_min as i32);
    let us = |ms: u64| i64::try_from(ms.saturating_mul(1000)).unwrap_or(i64::MAX);
    let windows: Vec<i64> = judged.iter().map(|(.., breaker)| us(breaker.window_ms)).collect();
    let opens: Vec<i64> = judged.iter().map(|(.., breaker)| us(breaker.open_ms)).collect();
    let now = shared.db.manual_now();
    let asked: [Param<'_>; 10] =
        [&now, &names, &of, &goods, &bads, &percents, &windows, &leasts, &opens, &tokens];
    let rows = shared.db.query(&COME_OUT, &asked).await?;
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

/// Makes gates forget what is further ahead than their limits reach: some clock was wrong.
pub(crate) async fn mend_all(shared: &Arc<Shared>) -> Result<(), Error> {
    let book = queues::rules(&shared.db).await?;
    let bases = bases(&shared.db.read(&BASES, &[]).await?);
    let known = bases.into_iter().filter_map(|base| Some((book.horizon(&base)?, base)));
    let known: Vec<(Horizon, String)> = known.collect();
    if !known.is_empty() {
        let mended =
            shared.db.read(&MEND, &horizons(shared.db.manual_now(), &known).params()).await?;
        shared.doors.vacated(shared, mended.iter().map(|row| row.get(0)));
    }
    Ok(())
}

/// Forgets gates that remember nothing any more: of a rate by key there would be one for each key that ever was.
/// A thousand at a time, each by a transaction in which no claim judges by them.
pub(crate) async fn forget_idle(shared: &Shared) -> Result<(), Error> {
    let book = queues::rules(&shared.db).await?;
    for base in bases(&shared.db.read(&SPLIT, &[]).await?) {
        let window = book.horizon(&base).and_then(|horizon| horizon.window).unwrap_or_default();
        for _ in 0..FORGET_TURNS_MAX {
            let mut tries = Tries::once();
            let forgotten = loop {
                match forget(shared, &base, window).await {
                    Ok(forgotten) => break forgotten,
                    Err(fault) => tries.again(fault).await?,
                }
            };
            if forgotten < FORGET_MAX {
                break;
            }
        }
    }
    Ok(())
}

async fn forget(shared: &Shared, base: &str, window: Duration) -> Result<i64, Fault> {
    let conn = shared.db.begin().await?;
    let forgotten = async {
        conn.query(&TURN, &[&[base].as_slice()]).await?;
        let now = shared.db.manual_now();
        let rows = conn.query(&FORGET, &[&now, &base, &(window.as_micros() as i64)]).await?;
        Ok(rows.first().map_or(0, |row| row.get(0)))
    };
    let forgotten = forgotten.await;
    conn.end(forgotten).await
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

fn bases(rows: &[Row]) -> Vec<String> {
    rows.iter().map(|row| row.get(0)).collect()
}

/// How far ahead gates may remember anything, by columns.
struct Horizons<'a> {
    now: Option<At>,
    bases: Vec<&'a str>,
    rates: Vec<Option<i64>>,
    pauses: Vec<Option<i64>>,
    opens: Vec<Option<i64>>,
}

impl Horizons<'_> {
    fn params(&self) -> [Param<'_>; 5] {
        [&self.now, &self.bases, &self.rates, &self.pauses, &self.opens]
    }
}

fn horizons(now: Option<At>, of: &[(Horizon, String)]) -> Horizons<'_> {
    let us = |by: fn(&Horizon) -> Option<Duration>| -> Vec<Option<i64>> {
        let us = |ahead: Duration| i64::try_from(ahead.as_micros()).unwrap_or(i64::MAX);
        of.iter().map(|(horizon, _)| by(horizon).map(us)).collect()
    };
    Horizons {
        now,
        bases: of.iter().map(|(_, base)| base.as_str()).collect(),
        rates: us(|horizon| horizon.rate),
        pauses: us(|horizon| horizon.pause),
        opens: us(|horizon| horizon.open),
    }
}

/// Makes gates forget what their limits, as they are in this new book, would not let them remember.
/// Only gates that the rules of this name or pattern may mean.
pub(crate) async fn mend(
    conn: &Conn<'_>,
    now: Option<At>,
    book: &RuleBook,
    rule: &str,
) -> Result<(), Fault> {
    let begin = prefix(rule);
    let mut bases = bases(&conn.query(&BASES, &[]).await?);
    bases.retain(|base| base.starts_with(&begin));
    let of = bases.into_iter().map(|base| (book.horizon(&base).unwrap_or_default(), base));
    let of: Vec<(Horizon, String)> = of.collect();
    conn.query(&MEND, &horizons(now, &of).params()).await?;
    Ok(())
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
            broken: row.get::<_, i64>(9) as u64,
            is_probed: row.get(8),
            credit: row.get(4),
            held: row.get::<_, i64>(7) as u64,
        }
    };
    let (wide, inside) = stowaways::uncounted(db, names).await?;
    let gates: Vec<&str> = inside.iter().map(|one| one.gate.as_str()).collect();
    let tokens: Vec<i64> = inside.iter().map(|one| one.token.0).collect();
    Ok(db.read(&VIEWS, &[&names, &wide, &gates, &tokens]).await?.iter().map(view).collect())
}

/// How many jobs of a queue are held at each of these gates.
pub(crate) async fn held_of(db: &Db, queue: &str, gates: &[String]) -> Result<Vec<u64>, Error> {
    let rows = db.read(&HELD_OF, &[&gates, &queue]).await?;
    Ok(rows.iter().map(|row| row.get::<_, i64>(0) as u64).collect())
}
