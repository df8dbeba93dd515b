//! Queues: what is in them now, and their rules.
//!
//! Counts by band and kind are counted, not kept: a counter that every job touches would cost more than
//! all the looking. Its cost grows with what waits, and a reader pays it, not the writer. Only the depth
//! is kept (`depth.rs`).

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Row, params};
use tidemill_core::queue::takes;
use tidemill_core::{Edition, Priority, RuleBook};

use crate::error::{Error, Result};
use crate::over::Over;
use crate::sqlite::held::Changed;
use crate::sqlite::lease::Lease;
use crate::sqlite::rows::{count, time, time_at, time_opt};
use crate::sqlite::writer::Turn;
use crate::sqlite::{gates, reach, stowaways, workers};
use crate::view::{QueueRules, QueueView, Unfinished};

type Queues = BTreeMap<String, QueueView>;

/// All queues that have jobs, dead letters or rules.
pub(super) fn queues(conn: &Connection, now: i64) -> Result<Vec<QueueView>> {
    let mut queues = Queues::new();
    count_waiting(conn, now, &mut queues)?;
    count_running(conn, &mut queues)?;
    let mut select = conn.prepare_cached(include_str!("sql/list_blocked_queues.sql"))?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        queue(&mut queues, row.get(0)?);
    }
    count_dead(conn, &mut queues)?;
    let mut select = conn.prepare_cached(include_str!("sql/select_depths.sql"))?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let view = queue(&mut queues, row.get(0)?);
        view.depth = count::<i64>(row, 1)?;
        view.above_since = time_opt(row, 2)?;
    }
    for (name, rules) in rules(conn)?.iter() {
        queue(&mut queues, name.to_owned()).rules = Some(rules.clone());
    }
    Ok(queues.into_values().collect())
}

fn queue(queues: &mut Queues, name: String) -> &mut QueueView {
    queues
        .entry(name)
        .or_insert_with_key(|name| QueueView { name: name.clone(), ..QueueView::default() })
}

fn count_waiting(conn: &Connection, now: i64, queues: &mut Queues) -> Result<()> {
    let workers = workers::workers(conn)?;
    let is_known = |queue: &String, kind: &String| {
        workers.iter().any(|worker| {
            worker.queues.iter().any(|own| takes(own, queue))
                && (worker.kinds.is_empty() || worker.kinds.contains(kind))
        })
    };
    let mut select = conn.prepare_cached(include_str!("sql/count_waiting.sql"))?;
    let mut rows = select.query([now])?;
    while let Some(row) = rows.next()? {
        let view = queue(queues, row.get(0)?);
        let ready = count::<i64>(row, 2)?;
        if ready > 0 {
            *view.ready.entry(Priority::of_band(row.get(1)?)).or_default() += ready;
        }
        view.scheduled += count::<i64>(row, 3)?;
        view.oldest_due_at = view.oldest_due_at.into_iter().chain(time_opt(row, 4)?).min();
        for kind in kinds(row, 5)? {
            if !is_known(&view.name, &kind) && !view.orphan_kinds.contains(&kind) {
                view.orphan_kinds.push(kind);
            }
        }
    }
    for view in queues.values_mut() {
        view.orphan_kinds.sort_unstable();
    }
    Ok(())
}

fn kinds(row: &Row<'_>, column: usize) -> Result<Vec<String>> {
    let kinds = row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?;
    serde_json::from_str(kinds)
        .map_err(|error| Error::Database { reason: format!("kinds cannot be read: {error}") })
}

fn count_dead(conn: &Connection, queues: &mut Queues) -> Result<()> {
    let mut counts: BTreeMap<String, (u64, i64)> = BTreeMap::new();
    let mut select = conn.prepare_cached(include_str!("sql/count_dead.sql"))?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (queue, died_at): (&str, i64) =
            (row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?, row.get(1)?);
        if !counts.contains_key(queue) {
            counts.insert(queue.to_owned(), (0, i64::MAX));
        }
        if row.get(2)?
            && let Some((letters, oldest)) = counts.get_mut(queue)
        {
            *letters += 1;
            *oldest = died_at.min(*oldest);
        }
    }
    for (name, (letters, oldest)) in counts {
        let view = queue(queues, name);
        view.dead = letters;
        view.oldest_dead_at = (letters > 0).then(|| time(oldest));
    }
    Ok(())
}

fn count_running(conn: &Connection, queues: &mut Queues) -> Result<()> {
    let mut select = conn.prepare_cached(include_str!("sql/select_queue_of_job.sql"))?;
    let mut leases = conn.prepare_cached(include_str!("sql/select_leases.sql"))?;
    for lease in leases.query_map([], |row| Ok((Lease::of_row(row)?, time_at(row, 4)?)))? {
        let (lease, claimed_at) = lease?;
        for held in lease.jobs {
            let name = select.query_one([held.id.0.as_bytes()], |row| row.get(0)).optional()?;
            if let Some(name) = name {
                let view = queue(queues, name);
                view.running += 1;
                let oldest = view.oldest_running_at.map_or(claimed_at, |at| at.min(claimed_at));
                view.oldest_running_at = Some(oldest);
            }
        }
    }
    Ok(())
}

/// How many jobs are not finished.
pub(super) fn unfinished(conn: &Connection) -> Result<Unfinished> {
    let mut select = conn.prepare_cached(include_str!("sql/count_unfinished.sql"))?;
    let counts = |row: &Row<'_>| {
        Ok(Unfinished { waiting: count::<i64>(row, 0)?, running: count::<i64>(row, 1)? })
    };
    Ok(select.query_one([], counts)?)
}

/// The rules of the queues that have some.
pub(super) fn rules(conn: &Connection) -> Result<RuleBook> {
    let mut select = conn.prepare_cached(include_str!("sql/select_queue_rules.sql"))?;
    let (mut edition, mut all) = (Edition::default(), Vec::new());
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        edition = Edition(count::<i64>(row, 0)?);
        let Some(name) = row.get::<_, Option<String>>(1)? else { continue };
        let rules = row.get::<_, String>(2)?;
        let rules: QueueRules = serde_json::from_str(&rules).unwrap_or_default();
        all.push((name, QueueRules { version: count::<i64>(row, 3)?, ..rules }));
    }
    Ok(RuleBook::new(edition, all))
}

/// Sets the rules of a queue; `false` when they have another version by now. Claims that were made up before are
/// refused from here on, and who runs counts where the new rules count.
pub(super) fn set_rules(
    turn: &mut Turn<'_>,
    name: &str,
    rules: Option<&QueueRules>,
    over: Over,
) -> Result<bool> {
    let conn = turn.conn;
    let before = self::rules(conn)?;
    let is_set = match rules {
        Some(rules) => upsert(conn, name, rules, over)?,
        None if over.is(before.set_for(name)) => {
            conn.prepare_cached(include_str!("sql/delete_queue_rules.sql"))?.execute([name])?;
            true
        }
        None => false,
    };
    if is_set {
        conn.prepare_cached(include_str!("sql/next_edition.sql"))?.execute([])?;
        let book = self::rules(conn)?;
        let reach = reach::cover(turn, &book)?;
        stowaways::find(turn, &book, reach)?;
        let changed = Changed::by(name);
        // What nobody heeded before is not heeded now.
        for book in [&before, &book] {
            gates::mend(turn, book, Some(changed.names()))?;
        }
        // What is let through may be due since long.
        turn.marks.forget();
    }
    Ok(is_set)
}

fn upsert(conn: &Connection, name: &str, rules: &QueueRules, over: Over) -> Result<bool> {
    let mut upsert = conn.prepare_cached(include_str!("sql/upsert_queue_rules.sql"))?;
    let number = |number: u64| number as i64;
    let marks = rules.watermarks();
    Ok(upsert.execute(params![
        name,
        serde_json::json!(rules).to_string(),
        over.number(),
        rules.depth_max.map(number),
        rules.depth_max.map(|_| rules.overflow.word()),
        rules.overflow.wait_ms().map(number),
        rules.overflow.divert(),
        marks.map(|marks| number(marks.high)),
        marks.map(|marks| number(marks.low))
    ])? == 1)
}

/// The queues that have jobs waiting.
pub(super) fn names(conn: &Connection) -> Result<Vec<String>> {
    let mut select = conn.prepare_cached(include_str!("sql/queue_names.sql"))?;
    let names = select.query_map([], |row| row.get(0))?;
    Ok(names.collect::<rusqlite::Result<_>>()?)
}
