//! Queues: what is in them now, and their rules.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_core::queue::takes;
use tidemill_core::{Edition, Priority, RuleBook};
use tokio_postgres::Row;

use crate::error::{Error, Result};
use crate::over::Over;
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{At, Param, Statement, sql};
use crate::postgres::{Shared, doors, held, reach, stowaways, workers};
use crate::view::{QueueRules, QueueView, WorkerView};
use crate::wake::Hint;

const WAITING: Statement = sql!("count_waiting", TIMESTAMPTZ);
const RUNNING: Statement = sql!("count_running");
const BLOCKED: Statement = sql!("list_blocked_queues");
const DEAD: Statement = sql!("count_dead");
const RULES: Statement = sql!("select_queue_rules");
const SET: Statement =
    sql!("upsert_queue_rules", TEXT, TEXT, INT8, INT8, TEXT, INT8, TEXT, INT8, INT8);
const DEPTHS: Statement = sql!("select_depths");
const NAMES: Statement = sql!("queue_names");
const UNSET: Statement = sql!("delete_queue_rules", TEXT);
const LOCK: Statement = sql!("lock_rules");
const NEXT: Statement = sql!("next_edition");

/// All queues that have jobs, dead letters or rules.
pub(crate) async fn list(db: &Db) -> Result<Vec<QueueView>> {
    let mut queues = Queues::default();
    let mut kinds: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in db.read(&WAITING, &[&db.manual_now()]).await? {
        let name: String = row.get(0);
        let queue = queues.named(&name);
        let ready: i64 = row.get(2);
        if ready > 0 {
            queue.ready.insert(Priority::of_band(row.get(1)), ready as u64);
        }
        queue.scheduled += row.get::<_, i64>(3) as u64;
        let due = row.get::<_, Option<At>>(4).map(|at| at.0);
        queue.oldest_due_at = queue.oldest_due_at.into_iter().chain(due).min();
        kinds.entry(name).or_default().extend(row.get::<_, Vec<String>>(5));
    }
    for row in db.read(&RUNNING, &[]).await? {
        let queue = queues.named(row.get(0));
        queue.running = row.get::<_, i64>(1) as u64;
        queue.oldest_running_at = row.get::<_, Option<At>>(2).map(|at| at.0);
    }
    for row in db.read(&BLOCKED, &[]).await? {
        queues.named(row.get(0));
    }
    for row in db.read(&DEAD, &[]).await? {
        let queue = queues.named(row.get(0));
        queue.dead = row.get::<_, i64>(1) as u64;
        queue.oldest_dead_at = row.get::<_, Option<At>>(2).map(|at| at.0);
    }
    for row in db.read(&DEPTHS, &[]).await? {
        let queue = queues.named(row.get(0));
        queue.depth = row.get::<_, i64>(1).max(0) as u64;
        queue.above_since = row.get::<_, Option<At>>(2).map(|at| at.0);
    }
    for (name, rules) in rules(db).await?.iter() {
        queues.named(name).rules = Some(rules.clone());
    }
    let known = Known::of(db).await?;
    for (name, kinds) in kinds {
        let orphans = kinds.into_iter().filter(|kind| !known.contains(&name, kind));
        queues.named(&name).orphan_kinds = orphans.collect();
    }
    Ok(queues.0.into_values().collect())
}

#[derive(Default)]
struct Queues(BTreeMap<String, QueueView>);

impl Queues {
    fn named(&mut self, name: &str) -> &mut QueueView {
        let view = || QueueView { name: name.to_owned(), ..QueueView::default() };
        self.0.entry(name.to_owned()).or_insert_with(view)
    }
}

/// What live workers know.
struct Known(Vec<WorkerView>);

impl Known {
    async fn of(db: &Db) -> Result<Self> {
        Ok(Self(workers::list(db).await?))
    }

    fn contains(&self, queue: &str, kind: &str) -> bool {
        self.0.iter().any(|worker| {
            worker.queues.iter().any(|own| takes(own, queue))
                && (worker.kinds.is_empty() || worker.kinds.iter().any(|known| known == kind))
        })
    }
}

/// The rules of the queues that have some.
pub(crate) async fn rules(db: &Db) -> Result<RuleBook> {
    book(&db.read(&RULES, &[]).await?)
}

/// The same, in a transaction.
pub(crate) async fn book_of(conn: &Conn<'_>) -> Result<RuleBook, Fault> {
    book(&conn.query(&RULES, &[]).await?).map_err(Fault::Refused)
}

fn book(rows: &[Row]) -> Result<RuleBook> {
    let edition = rows.first().map(|row| Edition(row.get::<_, i64>(0) as u64));
    let rule = |row: &Row| {
        let name: Option<String> = row.get(1);
        let name = name?;
        let rules = serde_json::from_str(row.get(2)).map_err(|error| Error::Database {
            reason: format!("the rules of queue {name} cannot be read: {error}"),
        });
        let version = |rules| QueueRules { version: row.get::<_, i64>(3) as u64, ..rules };
        Some(rules.map(|rules| (name, version(rules))))
    };
    let rules = rows.iter().filter_map(rule).collect::<Result<Vec<_>>>()?;
    Ok(RuleBook::new(edition.unwrap_or_default(), rules))
}

/// Sets the rules of a queue, or takes them away; `false` when they have another version by now. Claims that were made
/// up before are refused from its commit on, and who runs counts where the new rules count.
pub(crate) async fn set(
    shared: &Shared,
    name: &str,
    rules: Option<&QueueRules>,
    over: Over,
) -> Result<bool> {
    let is_set = commit(&shared.db, name, rules, over).await?;
    shared.hint(Hint::Rules);
    if is_set {
        held::release(shared, name).await?;
    }
    Ok(is_set)
}

async fn commit(db: &Db, name: &str, rules: Option<&QueueRules>, over: Over) -> Result<bool> {
    let mut tries = Tries::once();
    loop {
        let done = async {
            let conn = db.begin().await?;
            match change(db, &conn, name, rules, over).await {
                Ok(false) => conn.rollback().await.map(|()| false),
                changed => conn.end(changed).await,
            }
        };
        match done.await {
            Ok(is_set) => return Ok(is_set),
            Err(fault) => tries.again(fault).await?,
        }
    }
}

async fn change(
    db: &Db,
    conn: &Conn<'_>,
    name: &str,
    rules: Option<&QueueRules>,
    over: Over,
) -> Result<bool, Fault> {
    conn.query(&LOCK, &[]).await?;
    let before = book_of(conn).await?;
    let is_set = match rules {
        Some(rules) => upsert(conn, name, rules, over).await?,
        None if over.is(before.set_for(name)) => {
            conn.query(&UNSET, &[&name]).await.map(|_| true)?
        }
        None => false,
    };
    if is_set {
        conn.query(&NEXT, &[]).await?;
        let book = book_of(conn).await?;
        let reach = reach::covered(conn, &book).await?;
        let found = stowaways::find(conn, &book, reach).await?;
        // Only now: beats of workers wait for it.
        reach::cover(conn, &book).await?;
        found.open(conn, db.manual_now()).await?;
        // What nobody heeded before is not heeded now.
        for book in [&before, &book] {
            doors::mend(conn, db.manual_now(), book, name).await?;
        }
    }
    Ok(is_set)
}

async fn upsert(
    conn: &Conn<'_>,
    name: &str,
    rules: &QueueRules,
    over: Over,
) -> Result<bool, Fault> {
    let text = serde_json::to_string(rules)
        .map_err(|error| Fault::Refused(Error::Database { reason: error.to_string() }))?;
    let number = |number: u64| number as i64;
    let (depth_max, marks) = (rules.depth_max.map(number), rules.watermarks());
    let overflow = depth_max.map(|_| rules.overflow.word());
    let (wait_ms, divert) = (rules.overflow.wait_ms().map(number), rules.overflow.divert());
    let (high, low) = marks.map(|marks| (number(marks.high), number(marks.low))).unzip();
    let version = over.number();
    let columns: [Param<'_>; 9] =
        [&name, &text, &version, &depth_max, &overflow, &wait_ms, &divert, &high, &low];
    Ok(!conn.query(&SET, &columns).await?.is_empty())
}

/// The queues that have jobs waiting.
pub(crate) async fn names(db: &Db) -> Result<Vec<String>> {
    Ok(db.read(&NAMES, &[]).await?.iter().map(|row| row.get(0)).collect())
}
