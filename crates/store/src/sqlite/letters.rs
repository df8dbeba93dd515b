//! Finds and groups dead letters.
//!
//! One statement serves every filter: a condition that was not given is true. Letters are few and
//! cold, so it walks over them. Refuses to read payloads unless a filter asks for one of their fields.

use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};
use tidemill_core::dead::{DeadFilter, DeadPlace, Triage};
use tidemill_core::{ErrorClass, State};

use crate::error::Result;
use crate::sqlite::rows::{count, job_id, time_at};
use crate::view::{DeadGroup, DeadLetter, Note};

/// Dead letters, latest death first.
pub(super) fn list(
    conn: &Connection,
    filter: &DeadFilter,
    before: Option<DeadPlace>,
    limit: usize,
) -> Result<Vec<DeadLetter>> {
    let mut conditions = conditions(filter);
    conditions.push(before.map(|place| place.died_at.as_microsecond()).into());
    conditions.push(before.map(|place| place.id.0.as_bytes().to_vec()).into());
    conditions.push((limit as i64).into());
    let mut select = conn.prepare_cached(include_str!("sql/select_dead.sql"))?;
    let letters = select.query_map(params_from_iter(conditions), letter)?;
    let mut letters: Vec<_> = letters.collect::<rusqlite::Result<_>>()?;
    for letter in &mut letters {
        letter.notes = notes(conn, letter)?;
    }
    Ok(letters)
}

/// How many letters there are of each fingerprint, most numerous first.
pub(super) fn groups(conn: &Connection, filter: &DeadFilter) -> Result<Vec<DeadGroup>> {
    let conditions = conditions(filter);
    let mut select = conn.prepare_cached(include_str!("sql/select_dead_groups.sql"))?;
    let groups = select.query_map(params_from_iter(conditions), group)?;
    Ok(groups.collect::<rusqlite::Result<_>>()?)
}

fn letter(row: &Row<'_>) -> rusqlite::Result<DeadLetter> {
    let state = row.get::<_, Option<i16>>(12)?.and_then(State::of_number);
    Ok(DeadLetter {
        id: job_id(row, 0)?,
        kind: row.get(1)?,
        queue: row.get(2)?,
        tenant: row.get(3)?,
        class: ErrorClass::of_word(row.get_ref(4)?.as_str()?),
        error: row.get(5)?,
        fingerprint: row.get(6)?,
        attempt: row.get(7)?,
        died_at: time_at(row, 8)?,
        triage: Triage::of_number(row.get(9)?),
        redrives: row.get(10)?,
        archived: row.get(11)?,
        dead: state == Some(State::Dead),
        recovered: state == Some(State::Done),
        notes: Vec::new(),
    })
}

fn group(row: &Row<'_>) -> rusqlite::Result<DeadGroup> {
    Ok(DeadGroup {
        fingerprint: row.get(0)?,
        kind: row.get(1)?,
        class: ErrorClass::of_word(row.get_ref(2)?.as_str()?),
        error: row.get(3)?,
        sample: job_id(row, 4)?,
        count: count::<i64>(row, 5)?,
        new: count::<i64>(row, 6)?,
        first_at: time_at(row, 7)?,
        last_at: time_at(row, 8)?,
    })
}

fn notes(conn: &Connection, letter: &DeadLetter) -> Result<Vec<Note>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_notes.sql"))?;
    let notes = select.query_map([letter.id.0.as_bytes()], |row| {
        Ok(Note { at: time_at(row, 0)?, by: row.get(1)?, text: row.get(2)? })
    })?;
    Ok(notes.collect::<rusqlite::Result<_>>()?)
}

/// A filter as the first parameters of both statements, in their order.
pub(super) fn conditions(filter: &DeadFilter) -> Vec<Value> {
    let ids: Vec<_> = filter.ids.iter().map(|id| id.0.simple().to_string()).collect();
    let ids = (!ids.is_empty()).then(|| serde_json::json!(ids).to_string());
    let (path, field) = filter.payload_field.clone().unzip();
    let (by_name, by_position) = path.as_deref().map(json_paths).unzip();
    vec![
        ids.into(),
        filter.kind.clone().into(),
        filter.queue.clone().into(),
        filter.tenant.clone().into(),
        filter.fingerprint.clone().into(),
        filter.triage.map(|triage| i64::from(triage.number())).into(),
        filter.tag.clone().into(),
        filter.died_from.map(Timestamp::as_microsecond).into(),
        filter.died_until.map(Timestamp::as_microsecond).into(),
        filter.error_contains.clone().into(),
        by_name.into(),
        by_position.into(),
        field.into(),
        filter.archived.into(),
    ]
}

/// `items.0.id` as SQLite's paths: `$."items"."0"."id"`, and with numbers as positions,
/// `$."items"[0]."id"`.
fn json_paths(path: &str) -> (String, String) {
    let mut paths = ("$".to_owned(), "$".to_owned());
    for part in path.split('.') {
        let name = format!(".\"{part}\"");
        paths.0.push_str(&name);
        if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
            paths.1.extend(["[", part, "]"]);
        } else {
            paths.1.push_str(&name);
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_by_name_and_by_position() {
        let (by_name, by_position) = json_paths("items.0.id");
        assert_eq!(by_name, r#"$."items"."0"."id""#);
        assert_eq!(by_position, r#"$."items"[0]."id""#);
    }
}
