//! Dead letters: found, grouped, noted, sent on their way again.

use std::collections::HashMap;

use tidemill_core::dead::{DeadFilter, DeadPlace, RedriveRule, Triage};
use tidemill_core::limit::SPAN_MS_MAX;
use tidemill_core::{By, ErrorClass, JobId, Payload, State};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::postgres::Shared;
use crate::postgres::connect::Db;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::lines;
use crate::postgres::statement::{At, Param, Statement, sql};
use crate::view::{DeadGroup, DeadLetter, Note};
use crate::wake::Hint;

const LIST: Statement = sql!(
    "select_dead",
    UUID_ARRAY,
    TEXT,
    TEXT,
    TEXT,
    TEXT,
    INT2,
    TEXT,
    TIMESTAMPTZ,
    TIMESTAMPTZ,
    TEXT,
    TEXT_ARRAY,
    TEXT,
    BOOL,
    TIMESTAMPTZ,
    UUID,
    INT8,
);
const GROUPS: Statement = sql!(
    "select_dead_groups",
    UUID_ARRAY,
    TEXT,
    TEXT,
    TEXT,
    TEXT,
    INT2,
    TEXT,
    TIMESTAMPTZ,
    TIMESTAMPTZ,
    TEXT,
    TEXT_ARRAY,
    TEXT,
    BOOL,
);
const NOTES: Statement = sql!("select_notes", UUID_ARRAY);
pub(crate) const NOTE: Statement =
    sql!("triage_dead", TIMESTAMPTZ, UUID_ARRAY, TEXT, TEXT, INT2, BOOL);
pub(crate) const REPLAY: Statement =
    sql!("redrive_dead", TIMESTAMPTZ, UUID_ARRAY, TEXT, TEXT, TEXT);
const RULES: Statement = sql!("select_redrive_rules");
const RULE_SET: Statement = sql!("upsert_redrive_rule", TEXT, TEXT);
const RULE_UNSET: Statement = sql!("delete_redrive_rule", TEXT);
const REDRIVABLE: Statement =
    sql!("select_redrivable", TIMESTAMPTZ, INT8, INT2, TEXT, TEXT, TEXT, TEXT, INT8);

/// A filter in the shape that the statements take.
pub(crate) struct Wanted<'a> {
    filter: &'a DeadFilter,
    ids: Vec<Uuid>,
    triage: Option<i16>,
    from: Option<At>,
    until: Option<At>,
    path: Option<Vec<&'a str>>,
    value: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    pub fn of(filter: &'a DeadFilter) -> Self {
        let field = filter.payload_field.as_ref();
        Self {
            filter,
            ids: filter.ids.iter().map(|id| id.0).collect(),
            triage: filter.triage.map(Triage::number),
            from: filter.died_from.map(At),
            until: filter.died_until.map(At),
            path: field.map(|(path, _)| path.split('.').collect()),
            value: field.map(|(_, value)| value.as_str()),
        }
    }

    pub fn params(&self) -> Vec<Param<'_>> {
        let filter = self.filter;
        vec![
            &self.ids,
            &filter.kind,
            &filter.queue,
            &filter.tenant,
            &filter.fingerprint,
            &self.triage,
            &filter.tag,
            &self.from,
            &self.until,
            &filter.error_contains,
            &self.path,
            &self.value,
            &filter.archived,
        ]
    }
}

/// A page of dead letters, latest death first.
pub(crate) async fn list(
    db: &Db,
    filter: &DeadFilter,
    before: Option<DeadPlace>,
    limit: usize,
) -> Result<Vec<DeadLetter>> {
    let wanted = Wanted::of(filter);
    let (died_at, id) = before.map(|place| (At(place.died_at), place.id.0)).unzip();
    let limit = limit as i64;
    let mut params = wanted.params();
    params.push(&died_at);
    params.push(&id);
    params.push(&limit);
    let rows = db.read(&LIST, &params).await?;
    let ids: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    let mut notes: HashMap<Uuid, Vec<Note>> = HashMap::new();
    for row in db.read(&NOTES, &[&ids]).await? {
        let note = Note { at: row.get::<_, At>(1).0, by: row.get(2), text: row.get(3) };
        notes.entry(row.get(0)).or_default().push(note);
    }
    Ok(rows.iter().map(|row| letter(row, &mut notes)).collect())
}

fn letter(row: &Row, notes: &mut HashMap<Uuid, Vec<Note>>) -> DeadLetter {
    let id: Uuid = row.get(0);
    let state = row.get::<_, Option<i16>>(12).and_then(State::of_number);
    DeadLetter {
        id: JobId(id),
        kind: row.get(1),
        queue: row.get(2),
        tenant: row.get(3),
        class: ErrorClass::of_word(row.get(4)),
        error: row.get(5),
        fingerprint: row.get(6),
        attempt: row.get::<_, i16>(7) as u16,
        died_at: row.get::<_, At>(8).0,
        triage: Triage::of_number(row.get(9)),
        redrives: row.get::<_, i16>(10) as u16,
        archived: row.get(11),
        dead: state == Some(State::Dead),
        recovered: state == Some(State::Done),
        notes: notes.remove(&id).unwrap_or_default(),
    }
}

/// How many there are of each fingerprint.
pub(crate) async fn groups(db: &Db, filter: &DeadFilter) -> Result<Vec<DeadGroup>> {
    let rows = db.read(&GROUPS, &Wanted::of(filter).params()).await?;
    let group = |row: &Row| DeadGroup {
        fingerprint: row.get(0),
        kind: row.get(1),
        class: ErrorClass::of_word(row.get(2)),
        error: row.get(3),
        count: row.get::<_, i64>(4) as u64,
        new: row.get::<_, i64>(5) as u64,
        first_at: row.get::<_, At>(6).0,
        last_at: row.get::<_, At>(7).0,
        sample: JobId(row.get(8)),
    };
    Ok(rows.iter().map(group).collect())
}

/// Notes something, and sets the triage or puts aside if asked. Those that are given up let others pass.
pub(crate) async fn note(
    shared: &Shared,
    ids: &[JobId],
    by: &str,
    text: &str,
    triage: Option<Triage>,
    archived: Option<bool>,
) -> Result<u64> {
    let db = &shared.db;
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let gives_up = triage == Some(Triage::Abandoned) || archived == Some(true);
    let (now, triage) = (db.manual_now(), triage.map(Triage::number));
    let params: [Param<'_>; 6] = [&now, &ids, &by, &text, &triage, &archived];
    if !gives_up {
        return Ok(db.write(&NOTE, &params).await?.len() as u64);
    }
    let mut tries = Tries::once();
    let (noted, queues) = loop {
        match give_up(db, &ids, &params).await {
            Ok(done) => break done,
            Err(fault) => tries.again(fault).await?,
        }
    };
    for queue in queues {
        shared.hint(Hint::Ready { queue });
    }
    Ok(noted)
}

/// Lets those pass who wait behind these, and notes it, in one transaction.
async fn give_up(db: &Db, ids: &[Uuid], note: &[Param<'_>]) -> Result<(u64, Vec<String>), Fault> {
    let conn = db.begin().await?;
    let done = async {
        let queues = lines::let_pass(&conn, db.manual_now(), ids).await?;
        Ok((conn.query(&NOTE, note).await?.len() as u64, queues))
    };
    let acted = done.await;
    conn.end(acted).await
}

/// Sends dead letters on their way again; answers those that were dead.
pub(crate) async fn replay(
    shared: &Shared,
    ids: &[JobId],
    by: By<'_>,
    payload: Option<Payload>,
) -> Result<Vec<JobId>> {
    let db = &shared.db;
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let payload = payload.as_ref().map(Payload::as_str);
    let rows = db.write(&REPLAY, &[&db.manual_now(), &ids, &by.who, &by.why, &payload]).await?;
    Ok(sent(shared, &rows))
}

/// Tells that these were sent on their way.
fn sent(shared: &Shared, rows: &[Row]) -> Vec<JobId> {
    let queues: std::collections::BTreeSet<String> = rows.iter().map(|row| row.get(1)).collect();
    if rows.iter().any(|row| row.get(2)) {
        shared.hint(Hint::Flows);
    }
    for queue in queues {
        shared.hint(Hint::Ready { queue });
    }
    rows.iter().map(|row| JobId(row.get(0))).collect()
}

/// The rules that redrive by themselves; one that cannot be read stops no other.
pub(crate) async fn rules(db: &Db) -> Result<Vec<RedriveRule>> {
    let rows = db.read(&RULES, &[]).await?;
    Ok(rows.iter().filter_map(|row| serde_json::from_str(row.get(0)).ok()).collect())
}

/// Sets a rule, or takes it away.
pub(crate) async fn set_rule(db: &Db, name: &str, rule: Option<RedriveRule>) -> Result<()> {
    match rule {
        Some(rule) => {
            let text = serde_json::to_string(&rule).map_err(unreadable)?;
            db.read(&RULE_SET, &[&name, &text]).await?
        }
        None => db.read(&RULE_UNSET, &[&name]).await?,
    };
    Ok(())
}

/// Sends dead letters on that this rule may send on now. A look that finds none is all there is, as a rule.
pub(crate) async fn redrive(
    shared: &Shared,
    rule: &RedriveRule,
    limit: usize,
    by: By<'_>,
) -> Result<Vec<JobId>> {
    let db = &shared.db;
    let (now, limit) = (db.manual_now(), limit as i64);
    let (delay_ms, class) =
        (rule.delay_ms.min(SPAN_MS_MAX) as i64, rule.class.map(ErrorClass::word));
    let bound = i16::try_from(rule.redrives_max).unwrap_or(i16::MAX);
    let RedriveRule { kind, queue, error_contains, .. } = rule;
    let ours: [Param<'_>; 8] =
        [&now, &delay_ms, &bound, kind, queue, &class, error_contains, &limit];
    if db.read(&REDRIVABLE, &ours).await?.is_empty() {
        return Ok(Vec::new());
    }
    let mut tries = Tries::once();
    loop {
        let conn = db.begin().await?;
        let acted = async {
            let rows = conn.query(&REDRIVABLE, &ours).await?;
            let ids: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
            conn.query(&REPLAY, &[&now, &ids, &by.who, &by.why, &None::<&str>]).await
        };
        let acted = acted.await;
        match conn.end(acted).await {
            Ok(rows) => return Ok(sent(shared, &rows)),
            Err(fault) => tries.again(fault).await?,
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
fn unreadable(error: serde_json::Error) -> Error {
    Error::Database { reason: format!("a rule cannot be read or written: {error}") }
}
