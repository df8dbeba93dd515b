//! Mail of runs: signals, ends of children, and the waits they end.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use tidemill_core::job::outcome::Waiting;
use tidemill_core::workflow::{ChildEnd, Content, Mail, NEVER};
use tidemill_core::{JobId, NewJob, Payload, State, Token};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::postgres::Shared;
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::record::End;
use crate::postgres::statement::{At, Param, Statement, sql};
use crate::postgres::unique::{self, Depth};
use crate::request::Receipt;
use crate::run::{Reply, Room, Signal, SignalAnswer, written};
use crate::together;
use crate::wake::Hint;

const MAIL: Statement = sql!("select_mail", UUID, INT8, INT8);
const REPLY: Statement = sql!("select_reply", UUID, TEXT);
const DELIVER: Statement =
    sql!("deliver", TIMESTAMPTZ, UUID_ARRAY, TEXT_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT8, INT8,);
const LOCK: Statement = sql!("lock_runs", TIMESTAMPTZ, UUID_ARRAY);
const WAKE: Statement = sql!("wake_runs", TIMESTAMPTZ, UUID_ARRAY);
const WAITS: Statement =
    sql!("update_waits", UUID_ARRAY, INT8_ARRAY, TEXT_ARRAY, TEXT_ARRAY, INT8_ARRAY);
const DEBTS: Statement = sql!("insert_debts", UUID_ARRAY);
const KNOWN: Statement = sql!("select_known_jobs", UUID_ARRAY);

/// The mail of a run after this number, at most so many pieces.
pub(crate) async fn mail(db: &Db, job: JobId, after: i64, limit: usize) -> Result<Vec<Mail>> {
    let rows = db.read(&MAIL, &[&job.0, &after, &(limit as i64)]).await?;
    let read = |row: &tokio_postgres::Row| {
        let content = serde_json::from_str(row.get(2));
        let content = content.map_err(|e| Error::Database { reason: e.to_string() })?;
        Ok(Mail { number: row.get(0), at: row.get::<_, At>(1).0, content })
    };
    rows.iter().map(read).collect()
}

/// What became of the message that was sent to a run under this id.
pub(crate) async fn reply(db: &Db, job: JobId, sent: &str) -> Result<Reply> {
    let rows = db.read(&REPLY, &[&job.0, &sent]).await?;
    Ok(rows.first().map_or(Reply::Unknown, |row| Reply::of(row.get(0), row.get(1))))
}

/// Puts signals into mailboxes; answers in their order.
pub(crate) async fn signal(
    shared: &Arc<Shared>,
    start: Option<NewJob>,
    signals: Vec<Signal>,
    room: Room,
) -> Result<(Option<Receipt>, Vec<SignalAnswer>)> {
    let mut tries = Tries::resend();
    let (receipt, answers, queues) = loop {
        let conn = shared.db.begin().await?;
        let acted = signal_in(shared, &conn, start.as_ref(), signals.clone(), room).await;
        match conn.end(acted).await {
            Ok(done) => break done,
            Err(fault) => tries.again(fault).await?,
        }
    };
    for queue in queues.into_iter().chain(start.map(|job| job.queue)) {
        shared.hint(Hint::Ready { queue });
    }
    for signal in &signals {
        shared.hint(Hint::Mail { id: receipt.as_ref().map_or(signal.to, Receipt::id) });
    }
    Ok((receipt, answers))
}

async fn signal_in(
    shared: &Shared,
    conn: &Conn<'_>,
    start: Option<&NewJob>,
    mut signals: Vec<Signal>,
    room: Room,
) -> Result<(Option<Receipt>, Vec<SignalAnswer>, Vec<String>), Fault> {
    let now = shared.db.manual_now();
    let mut receipt = None;
    if let Some(job) = start {
        let text = unique::lines([job]).map_err(Fault::Refused)?;
        let mut receipts = unique::put(conn, now, &text, Depth::Bounded).await?;
        together::check(std::slice::from_ref(job), &receipts).map_err(Fault::Refused)?;
        receipt = receipts.pop();
        // It may be another one that stands for it.
        for signal in &mut signals {
            signal.to = receipt.as_ref().map_or(signal.to, Receipt::id);
        }
    }
    let jobs: Vec<Uuid> = signals.iter().map(|signal| signal.to.0).collect();
    let known = conn.query(&KNOWN, &[&jobs]).await?;
    let known: HashMap<Uuid, bool> = known.iter().map(|row| (row.get(0), row.get(1))).collect();
    let mut answers: Vec<SignalAnswer> = signals
        .iter()
        .map(|signal| match known.get(&signal.to.0) {
            None => SignalAnswer::Unknown,
            Some(true) => SignalAnswer::Finished,
            Some(false) => SignalAnswer::Kept,
        })
        .collect();
    let known = signals.into_iter().zip(&mut answers).filter(|(_, a)| **a == SignalAnswer::Kept);
    let (pieces, answered): (Vec<Piece>, Vec<&mut SignalAnswer>) =
        known.map(|(signal, answer)| (Piece::of_signal(signal), answer)).unzip();
    let ids: Vec<(Uuid, Option<String>)> = pieces.iter().map(|p| (p.to, p.sent.clone())).collect();
    let (queues, refused) = deliver(conn, now, pieces, Some(room)).await?;
    for (at, answer) in answered.into_iter().enumerate() {
        // The same one twice in a call has one fate.
        let is_refused = |place: &usize| {
            *place == at || (ids[at].1.is_some() && ids.get(*place) == Some(&ids[at]))
        };
        if refused.iter().any(is_refused) {
            *answer = SignalAnswer::Full;
        }
    }
    Ok((receipt, answers, queues))
}

/// A piece of mail on its way.
struct Piece {
    to: Uuid,
    sent: Option<String>,
    content: Content,
}

impl Piece {
    fn of_signal(signal: Signal) -> Self {
        let Signal { to, name, payload, id } = signal;
        Self { to: to.0, sent: id, content: Content::Signal { name, payload } }
    }
}

/// Delivers mail; answers the queues in which runs are woken, and the places of pieces for which there was no room, if
/// that is a question: ends of children are as many as their run has started.
async fn deliver(
    conn: &Conn<'_>,
    now: Option<At>,
    pieces: Vec<Piece>,
    room: Option<Room>,
) -> Result<(Vec<String>, Vec<usize>), Fault> {
    if pieces.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let jobs: Vec<Uuid> = pieces.iter().map(|piece| piece.to).collect();
    let contents: Vec<String> = pieces
        .iter()
        .map(|piece| serde_json::to_string(&piece.content))
        .collect::<serde_json::Result<_>>()
        .map_err(|e| Fault::Refused(Error::Database { reason: e.to_string() }))?;
    let sents: Vec<Option<String>> = pieces.into_iter().map(|piece| piece.sent).collect();
    let bytes: Vec<Option<i64>> =
        contents.iter().map(|content| room.map(|_| content.len() as i64)).collect();
    let Room { signals_max, bytes_max } = room.unwrap_or_default();
    let (signals_max, bytes_max) = (stored(signals_max), stored(bytes_max));
    let given: [Param<'_>; 7] = [&now, &jobs, &sents, &contents, &bytes, &signals_max, &bytes_max];
    let rows = conn.query(&DELIVER, &given).await?;
    let refused = rows.iter().filter_map(|row| row.get::<_, Option<i64>>(1));
    let refused = refused.map(|place| place as usize - 1).collect();
    Ok((rows.iter().filter_map(|row| row.get(0)).collect(), refused))
}

fn stored(bound: u64) -> i64 {
    i64::try_from(bound).unwrap_or(i64::MAX)
}

/// Tells runs of the ends of children; answers the queues in which runs are woken.
pub(super) async fn child_ends(
    conn: &Conn<'_>,
    now: Option<At>,
    ends: Vec<(JobId, ChildEnd)>,
) -> Result<Vec<String>, Fault> {
    let piece =
        |(to, end): (JobId, _)| Piece { to: to.0, sent: None, content: Content::Child(end) };
    Ok(deliver(conn, now, ends.into_iter().map(piece).collect(), None).await?.0)
}

/// What runs hear of when it is committed.
#[derive(Debug, Default)]
pub(crate) struct News {
    parents: Vec<Uuid>,
    debts: bool,
}

impl News {
    /// Tells those who wait for it.
    pub fn tell(&self, shared: &Shared) {
        for id in &self.parents {
            shared.hint(Hint::Mail { id: JobId(*id) });
        }
        if self.debts {
            shared.hint(Hint::Runs);
        }
    }
}

/// What follows for runs from jobs that ended: parents hear of it, debts are noted. Answers the queues in which runs
/// are woken.
pub(crate) async fn ends(
    conn: &Conn<'_>,
    now: Option<At>,
    ends: &[End],
) -> Result<(Vec<String>, News), Fault> {
    let parents = ends.iter().filter_map(|end| end.body.parent).collect();
    let told = ends.iter().filter_map(|end| Some((end.body.parent?, end)));
    let pieces = told.map(|(to, end)| {
        let output = end.output.clone().map(Payload::trusted);
        let (id, state, error) = (JobId(end.body.id), end.state, end.error.clone());
        let content = Content::Child(ChildEnd { id, state, output, error });
        Piece { to, sent: None, content }
    });
    let (queues, _) = deliver(conn, now, pieces.collect(), None).await?;
    let unwell = ends.iter().filter(|end| end.state != State::Done).map(|end| end.body.id);
    let unwell: Vec<Uuid> = unwell.collect();
    let debts = !unwell.is_empty() && !conn.query(&DEBTS, &[&unwell]).await?.is_empty();
    Ok((queues, News { parents, debts }))
}

/// A run that is locked.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Locked {
    mail: i64,
    paused: bool,
    now: Timestamp,
}

/// Locks runs; before unique keys, lines and leases.
pub(crate) async fn locked(
    conn: &Conn<'_>,
    now: Option<At>,
    jobs: &[Uuid],
) -> Result<HashMap<Uuid, Locked>, Fault> {
    if jobs.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = conn.query(&LOCK, &[&now, &jobs]).await?;
    let read = |row: &tokio_postgres::Row| {
        let now = row.get::<_, At>(3).0;
        (row.get(0), Locked { mail: row.get(1), paused: row.get(2), now })
    };
    Ok(rows.iter().map(read).collect())
}

impl Locked {
    /// When it was locked, by the store's clock.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Whether somebody has paused it.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// After how long a run that is about to wait goes on by itself: at once, if what wakes it has come meanwhile.
    pub fn due_in_us(&self, waiting: &Waiting) -> i64 {
        let is_held = self.paused || waiting.parked.is_some();
        let due = match waiting.wake_at() {
            _ if is_held => NEVER,
            Some(number) if number <= self.mail => self.now,
            _ => waiting.waits.until.unwrap_or(NEVER),
        };
        (due.as_microsecond() - self.now.as_microsecond()).max(0)
    }
}

/// Notes what these runs, which are locked, wait for. Those of them that were `mailed` since, in this transaction, may
/// have what they wait for; answers the queues in which such ones go on.
pub(crate) async fn wait(
    conn: &Conn<'_>,
    now: Option<At>,
    waiting: &[(JobId, Token, &Waiting)],
    mailed: &HashSet<JobId>,
) -> Result<Vec<String>, Fault> {
    if waiting.is_empty() {
        return Ok(Vec::new());
    }
    let jobs: Vec<Uuid> = waiting.iter().map(|(job, ..)| job.0).collect();
    let wake_ats: Vec<Option<i64>> = waiting.iter().map(|(_, _, w)| w.wake_at()).collect();
    let waits: Vec<Option<String>> =
        waiting.iter().map(|(_, _, w)| serde_json::to_string(&w.waits).ok()).collect();
    let parked: Vec<Option<String>> = waiting
        .iter()
        .map(|(_, _, waiting)| waiting.parked.as_ref().map(written).transpose())
        .collect::<Result<_>>()
        .map_err(Fault::Refused)?;
    let tokens: Vec<i64> = waiting.iter().map(|(_, token, _)| token.0).collect();
    conn.query(&WAITS, &[&jobs, &wake_ats, &waits, &parked, &tokens]).await?;
    let mailed: Vec<Uuid> = jobs.into_iter().filter(|job| mailed.contains(&JobId(*job))).collect();
    if mailed.is_empty() {
        return Ok(Vec::new());
    }
    let rows = conn.query(&WAKE, &[&now, &mailed]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
