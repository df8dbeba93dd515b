//! Lets jobs die that wait past their deadlines.
//!
//! Judged under the locks of what they wait in: a job that is changed, taken or called off meanwhile is seen as it is
//! then. Deadlines are moved last, so that nobody who writes one waits for us while we wait for him.

use std::collections::{BTreeSet, HashMap};

use tidemill_core::RuleBook;
use tidemill_core::job::Options;
use tidemill_core::job::deadline::Deadlines;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::Result;
use crate::late::{self, Bounded, LATER_JOBS_MAX, LOOKS_MAX, Look, Stand};
use crate::postgres::Shared;
use crate::postgres::cancel::{Fate, SHEAF_LOCK, Search};
use crate::postgres::connect::Conn;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::queues;
use crate::postgres::statement::{At, Param, Statement, sql};
use crate::request::Expired;

const ANY: Statement = sql!("any_deadline", TIMESTAMPTZ);
const DUE: Statement = sql!("select_deadlines", TIMESTAMPTZ, INT8);
const LATE: Statement =
    sql!("select_late", TEXT, TIMESTAMPTZ, TIMESTAMPTZ, INT8, TIMESTAMPTZ, INT8);
const LOOKED_AT: Statement = sql!("select_looked_at", TIMESTAMPTZ, UUID_ARRAY);
const MOVE: Statement = sql!("move_deadlines", TIMESTAMPTZ_ARRAY, UUID_ARRAY, TIMESTAMPTZ_ARRAY);

/// Looks at what is to be looked at by now.
pub(crate) async fn expire(shared: &Shared, book: &RuleBook) -> Result<Expired> {
    let late = late(shared, book).await?;
    let any = shared.db.read(&ANY, &[&shared.db.manual_now()]).await?;
    if late.is_empty() && !any.first().is_some_and(|row| row.get(0)) {
        return Ok(Expired::default());
    }
    let mut tries = Tries::resend();
    let (search, expired) = loop {
        match expire_once(shared, book, &late).await {
            Ok(done) => break done,
            Err(fault) => tries.again(fault).await?,
        }
    };
    search.tell(shared);
    Ok(expired)
}

/// Jobs that the rules of their queues make late.
async fn late(shared: &Shared, book: &RuleBook) -> Result<Vec<Uuid>> {
    if !late::has_deadlines(book) {
        return Ok(Vec::new());
    }
    let names = queues::names(&shared.db).await?;
    let mut late = Vec::new();
    for bounded in late::bounded(book, names, shared.now().await?) {
        let Bounded { queue, start, finish, due } = bounded;
        let (start, finish, due) = (start.map(At), finish.map(At), due.map(At));
        let limit = LOOKS_MAX as i64;
        let late_in: [Param<'_>; 6] = [&queue, &start, &finish, &limit, &due, &LATER_JOBS_MAX];
        let rows = shared.db.read(&LATE, &late_in).await?;
        late.extend(rows.iter().map(|row| row.get::<_, Uuid>(0)));
    }
    Ok(late)
}

async fn expire_once(
    shared: &Shared,
    book: &RuleBook,
    late: &[Uuid],
) -> Result<(Search, Expired), Fault> {
    let conn = shared.db.begin().await?;
    match look(shared, &conn, book, late).await {
        Ok(done) => conn.commit().await.map(|()| done),
        Err(fault) => {
            conn.rollback().await?;
            Err(fault)
        }
    }
}

async fn look(
    shared: &Shared,
    conn: &Conn<'_>,
    book: &RuleBook,
    late: &[Uuid],
) -> Result<(Search, Expired), Fault> {
    let now = shared.db.manual_now();
    let due = conn.query(&DUE, &[&now, &(LOOKS_MAX as i64)]).await?;
    let is_full = due.len() == LOOKS_MAX;
    let (ats, due): (Vec<At>, Vec<Uuid>) =
        due.iter().map(|row| (row.get::<_, At>(0), row.get::<_, Uuid>(1))).unzip();
    let ids: BTreeSet<Uuid> = due.iter().chain(late).copied().collect();
    let ids: Vec<Uuid> = ids.into_iter().collect();
    let mut found = Search::lock(conn, now, &ids).await?;
    let sheaves: BTreeSet<i64> = found.values().map(|(_, sheaf)| *sheaf).collect();
    conn.query(&SHEAF_LOCK, &[&sheaves.into_iter().collect::<Vec<i64>>()]).await?;
    let (mut fates, mut next) = (HashMap::new(), HashMap::new());
    for row in conn.query(&LOOKED_AT, &[&now, &ids]).await? {
        let (id, look) = (row.get(0), judged(&row, book));
        match look {
            Look::Dies(failure) => {
                let (attempt, error) = (row.get(7), failure.message.clone());
                fates.insert(id, Fate { attempt, error, failure: Some(failure) });
            }
            Look::Again(at) => {
                next.insert(id, at);
            }
            Look::Over => {}
        }
    }
    found.retain(|id, _| fates.contains_key(id));
    let search = Search::bury(conn, now, &found, fates).await?;
    let next: Vec<Option<At>> = due.iter().map(|id| next.get(id).copied().map(At)).collect();
    conn.query(&MOVE, &[&ats, &due, &next]).await?;
    let jobs = search.buried().count() as u64;
    let more = is_full || late.len() >= LOOKS_MAX && jobs > 0;
    Ok((search, Expired { jobs, more }))
}

fn judged(row: &Row, book: &RuleBook) -> Look {
    let (kind, queue, options): (&str, &str, Option<&str>) = (row.get(1), row.get(2), row.get(3));
    let At(created_at) = row.get(4);
    let options = options.and_then(|text| serde_json::from_str::<Options>(text).ok());
    let deadlines = Deadlines::new(created_at, &options.unwrap_or_default(), book.of(queue));
    let due_at: Option<At> = row.get(6);
    let stand = match due_at {
        _ if row.get(5) => Stand::Finished,
        Some(At(due_at)) => Stand::Waits { due_at, has_begun: row.get(9) },
        None => Stand::Elsewhere,
    };
    let At(now): At = row.get(8);
    Look::at(deadlines, kind, &stand, now)
}
