//! Cancel: once it answers, no further attempt starts.
//!
//! A waiting job is taken out of its sheaf, which changes the sheaf's row: a claim that saw the old
//! row looks again. A running one is marked in its lease, where its heartbeat and its settle find it.
//! A job that moves while it is looked for is looked for again.

use std::collections::{BTreeSet, HashMap, HashSet};

use tidemill_core::{Failure, JobId, State, WorkerId};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::postgres::Shared;
use crate::postgres::connect::Conn;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::record::{Body, End, Record, Told, lock_keys};
use crate::postgres::statement::{At, Statement, sql};
use crate::postgres::{lines, runs};
use crate::request::CancelAnswer;
use crate::wake::Hint;

const FIND: Statement = sql!("select_to_cancel", UUID_ARRAY);
const OUTCOME_KNOWN: Statement = sql!("select_outcome", UUID_ARRAY);
pub(crate) const SHEAF_LOCK: Statement = sql!("select_ready", INT8_ARRAY);
const SHEAF_DROP: Statement = sql!("delete_ready", INT8_ARRAY);
const SHEAF_TAKE: Statement = sql!("take_from_sheaves", INT8_ARRAY, UUID_ARRAY);
const KEY_UNKEEP: Statement = sql!("forget_next", TEXT_ARRAY, UUID_ARRAY);
const LEASE_FIND: Statement = sql!("select_leases_holding", UUID_ARRAY);
const LEASE_CANCEL: Statement = sql!("mark_lease_cancelled", INT8_ARRAY, UUID_ARRAY, TEXT);
const FLOWS_LOCK: Statement = sql!("lock_flows_of_blocked", UUID_ARRAY);
const BLOCKED: Statement = sql!("select_blocked", UUID_ARRAY);
const HOLD_PLACES: Statement = sql!("hold_places", UUID_ARRAY);
const RUN_NOW: Statement = sql!("run_now", TIMESTAMPTZ, UUID);

/// Looks before a job that keeps moving is given up.
const LOOKS_MAX: usize = 20;

/// Calls jobs off; answers in the order of the ids.
pub(crate) async fn cancel(
    shared: &Shared,
    ids: Vec<JobId>,
    reason: &str,
) -> Result<Vec<CancelAnswer>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut tries = Tries::resend();
    let search = loop {
        match cancel_once(shared, &ids, reason, tries.was_lost()).await {
            Ok(search) => break search,
            Err(fault) => tries.again(fault).await?,
        }
    };
    search.tell(shared);
    Ok(ids.iter().map(|id| search.answer(*id)).collect())
}

/// Calls jobs off in the caller's transaction. What it comes to is told once that is committed.
pub(crate) async fn cancel_in(
    shared: &Shared,
    conn: &Conn<'_>,
    ids: &[JobId],
    reason: &str,
) -> Result<Search, Fault> {
    let mut search = Search::default();
    if !ids.is_empty() {
        search.run(shared, conn, ids, reason).await?;
    }
    Ok(search)
}

async fn cancel_once(
    shared: &Shared,
    ids: &[JobId],
    reason: &str,
    was_lost: bool,
) -> Result<Search, Fault> {
    let conn = shared.db.begin().await?;
    let mut search = Search { was_lost, ..Search::default() };
    match search.run(shared, &conn, ids, reason).await {
        Ok(()) => conn.commit().await.map(|()| search),
        Err(fault) => {
            conn.rollback().await?;
            Err(fault)
        }
    }
}

/// Jobs, each with the sheaf it is in if it waits.
pub(crate) type Found = HashMap<Uuid, (Body, i64)>;

/// How a job that waits comes to be dead.
pub(crate) struct Fate {
    /// Attempts spent.
    pub attempt: i16,
    pub error: String,
    /// What its dead letter says; `None`: the letter is there.
    pub failure: Option<Failure>,
}

/// What was found so far.
#[derive(Default)]
pub(crate) struct Search {
    answers: HashMap<Uuid, CancelAnswer>,
    record: Record,
    told: Told,
    workers: HashSet<Uuid>,
    was_lost: bool,
}

impl Search {
    /// Lets jobs be dead that were found and still wait, as is said of each.
    pub async fn bury(
        conn: &Conn<'_>,
        now: Option<At>,
        found: &Found,
        fates: HashMap<Uuid, Fate>,
    ) -> Result<Self, Fault> {
        let mut search = Self::default();
        let ids: Vec<Uuid> = fates.keys().copied().collect();
        search.finished(conn, &ids, "").await?;
        search.waiting(conn, found, "").await?;
        let mut fates = fates;
        for end in &mut search.record.ends {
            if let Some(Fate { attempt, error, failure }) = fates.remove(&end.body.id) {
                (end.state, end.attempt) = (State::Dead, attempt);
                (end.error, end.failure) = (Some(error), failure);
            }
        }
        search.told = search.record.write(conn, now).await?;
        Ok(search)
    }

    /// The jobs that were ended.
    pub fn buried(&self) -> impl Iterator<Item = Uuid> {
        self.record.ends.iter().map(|end| end.body.id)
    }

    /// What became of one of the jobs.
    pub fn answer(&self, id: JobId) -> CancelAnswer {
        self.answers.get(&id.0).copied().unwrap_or(CancelAnswer::Unknown)
    }

    /// Tells those who wait for it what was committed.
    pub fn tell(&self, shared: &Shared) {
        shared.finished(self.record.ends.iter().map(|end| JobId(end.body.id)));
        shared.went(self.record.ends.iter().map(|end| end.body.queue.as_str()));
        if !self.told.flows.is_empty() {
            shared.hint(Hint::Flows);
        }
        self.told.runs.tell(shared);
        for queue in &self.told.queues {
            shared.hint(Hint::Ready { queue: queue.clone() });
        }
        for worker in &self.workers {
            shared.hint(Hint::Cancel { worker: WorkerId(*worker) });
        }
    }

    /// Finds the jobs and locks what they belong to: flows, unique keys, and then lines. A job that has a key
    /// may have gone to another line until its key was locked, so it is looked at once more.
    pub async fn lock(conn: &Conn<'_>, now: Option<At>, ids: &[Uuid]) -> Result<Found, Fault> {
        conn.query(&FLOWS_LOCK, &[&ids]).await?;
        let mut found = find(conn, ids).await?;
        let parents: Vec<Uuid> = found.values().filter_map(|(body, _)| body.parent).collect();
        runs::locked(conn, now, &parents).await?;
        let keys: BTreeSet<_> =
            found.values().filter_map(|(body, _)| body.unique_key.clone()).collect();
        lock_keys(conn, &keys).await?;
        if !keys.is_empty() && found.values().any(|(body, _)| body.line().is_some()) {
            found = find(conn, ids).await?;
        }
        lines::lock(conn, &found.values().filter_map(|(body, _)| body.line()).collect()).await?;
        Ok(found)
    }

    async fn run(
        &mut self,
        shared: &Shared,
        conn: &Conn<'_>,
        ids: &[JobId],
        reason: &str,
    ) -> Result<(), Fault> {
        let ids: BTreeSet<Uuid> = ids.iter().map(|id| id.0).collect();
        let mut left: Vec<Uuid> = ids.into_iter().collect();
        let now = shared.db.manual_now();
        for look in 0..LOOKS_MAX {
            let found = if look == 0 {
                Self::lock(conn, now, &left).await?
            } else {
                find(conn, &left).await?
            };
            self.finished(conn, &left, reason).await?;
            self.waiting(conn, &found, reason).await?;
            self.lined(conn, &found, reason).await?;
            self.kept(conn, &found, reason).await?;
            self.blocked(conn, &found, reason).await?;
            self.running(conn, &left, reason).await?;
            left.retain(|id| found.contains_key(id) && !self.answers.contains_key(id));
            if left.is_empty() {
                self.told = self.record.write(conn, now).await?;
                return Ok(());
            }
        }
        let reason = format!("{} jobs moved whenever they were looked for", left.len());
        Err(Fault::Refused(Error::Busy { reason }))
    }

    fn end(&mut self, body: &Body, attempt: i16, lost: i16, reason: &str) {
        self.answers.insert(body.id, CancelAnswer::Cancelled);
        self.record.ends.push(End {
            body: body.clone(),
            state: State::Cancelled,
            attempt,
            lost,
            token: None,
            worker: None,
            started_at: None,
            output: None,
            error: Some(reason.to_owned()),
            failure: None,
        });
    }

    /// Those that have finished. One that an earlier try of ours ended is not `finished already`.
    async fn finished(&mut self, conn: &Conn<'_>, ids: &[Uuid], reason: &str) -> Result<(), Fault> {
        for row in conn.query(&OUTCOME_KNOWN, &[&ids]).await? {
            let (id, state, error): (Uuid, i16, Option<String>) =
                (row.get(0), row.get(1), row.get(2));
            let is_ours = self.was_lost
                && state == State::Cancelled.number()
                && error.as_deref() == Some(reason);
            let answer = if is_ours { CancelAnswer::Cancelled } else { CancelAnswer::Finished };
            self.answers.entry(id).or_insert(answer);
        }
        Ok(())
    }

    /// Those that wait in a sheaf.
    async fn waiting(&mut self, conn: &Conn<'_>, found: &Found, reason: &str) -> Result<(), Fault> {
        let open = found.iter().filter(|(id, _)| !self.answers.contains_key(id));
        let sheaves: BTreeSet<i64> = open.map(|(_, (_, sheaf))| *sheaf).collect();
        let sheaves: Vec<i64> = sheaves.into_iter().collect();
        let (mut empty, mut changed, mut taken) = (Vec::new(), Vec::new(), Vec::<Uuid>::new());
        for row in conn.query(&SHEAF_LOCK, &[&sheaves]).await? {
            let (seq, ids, attempt, lost): (i64, Vec<Uuid>, i16, i16) =
                (row.get(0), row.get(1), row.get(2), row.get(3));
            let is_meant = |id: &Uuid| found.contains_key(id) && !self.answers.contains_key(id);
            let (meant, others): (Vec<Uuid>, Vec<Uuid>) = ids.into_iter().partition(is_meant);
            if others.is_empty() {
                empty.push(seq);
            } else if !meant.is_empty() {
                changed.push(seq);
                taken.extend(&meant);
            }
            for id in meant {
                self.end(&found[&id].0, attempt, lost, reason);
            }
        }
        if !empty.is_empty() {
            conn.query(&SHEAF_DROP, &[&empty]).await?;
        }
        if !changed.is_empty() {
            conn.query(&SHEAF_TAKE, &[&changed, &taken]).await?;
        }
        Ok(())
    }

    /// Those that wait behind others in a line, which is locked.
    async fn lined(&mut self, conn: &Conn<'_>, found: &Found, reason: &str) -> Result<(), Fault> {
        let open = found.iter().filter(|(id, _)| !self.answers.contains_key(id));
        let open = open.filter(|(_, (body, _))| body.line().is_some()).map(|(id, _)| *id);
        for id in lines::waiting(conn, &open.collect::<Vec<_>>()).await? {
            if let Some((body, _)) = found.get(&id) {
                self.end(body, 0, 0, reason);
            }
        }
        Ok(())
    }

    /// Those that are kept for after another.
    async fn kept(&mut self, conn: &Conn<'_>, found: &Found, reason: &str) -> Result<(), Fault> {
        let open = found.iter().filter(|(id, _)| !self.answers.contains_key(id));
        let keyed = open.filter_map(|(id, (body, _))| Some((body.unique_key.clone()?, *id)));
        let (keys, ids): (Vec<String>, Vec<Uuid>) = keyed.unzip();
        if keys.is_empty() {
            return Ok(());
        }
        for row in conn.query(&KEY_UNKEEP, &[&keys, &ids]).await? {
            if let Some((body, _)) = found.get(&row.get::<_, Uuid>(0)) {
                self.end(body, 0, 0, reason);
            }
        }
        Ok(())
    }

    /// Those whose step of a flow is not opened; the flow is locked.
    async fn blocked(&mut self, conn: &Conn<'_>, found: &Found, reason: &str) -> Result<(), Fault> {
        let open = found.keys().filter(|id| !self.answers.contains_key(id)).copied();
        let open: Vec<Uuid> = open.collect();
        if open.is_empty() {
            return Ok(());
        }
        let blocked = conn.query(&BLOCKED, &[&open]).await?;
        let blocked: Vec<Uuid> = blocked.iter().map(|row| row.get(0)).collect();
        if blocked.is_empty() {
            return Ok(());
        }
        conn.query(&HOLD_PLACES, &[&blocked]).await?;
        for (body, _) in blocked.iter().filter_map(|id| found.get(id)) {
            self.end(body, 0, 0, reason);
        }
        Ok(())
    }

    /// Those that run: their handlers will be told.
    async fn running(&mut self, conn: &Conn<'_>, ids: &[Uuid], reason: &str) -> Result<(), Fault> {
        let open: Vec<Uuid> =
            ids.iter().filter(|id| !self.answers.contains_key(id)).copied().collect();
        if open.is_empty() {
            return Ok(());
        }
        let leases = conn.query(&LEASE_FIND, &[&open]).await?;
        // Only now: a settle that held the lease before us is visible to this statement.
        self.finished(conn, &open, reason).await?;
        let (mut tokens, mut marked) = (Vec::new(), Vec::new());
        for lease in &leases {
            let (token, worker): (i64, Uuid) = (lease.get(0), lease.get(1));
            let before: HashSet<Uuid> = lease.get::<_, Vec<Uuid>>(3).into_iter().collect();
            for id in lease.get::<_, Vec<Uuid>>(2) {
                if self.answers.contains_key(&id) {
                    continue;
                }
                self.answers.insert(id, CancelAnswer::Requested);
                self.workers.insert(worker);
                if !before.contains(&id) {
                    tokens.push(token);
                    marked.push(id);
                }
            }
        }
        if !tokens.is_empty() {
            conn.query(&LEASE_CANCEL, &[&tokens, &marked, &reason]).await?;
        }
        Ok(())
    }
}

/// The bodies, as far as needed, and the sheaf that each is in if it waits.
async fn find(conn: &Conn<'_>, ids: &[Uuid]) -> Result<Found, Fault> {
    let rows = conn.query(&FIND, &[&ids]).await?;
    Ok(rows.iter().map(|row| (row.get(0), (Body::read(row, 0), row.get(10)))).collect())
}

/// Makes a job that waits for the clock due now.
pub(crate) async fn run_now(shared: &Shared, id: JobId) -> Result<bool> {
    let rows = shared.db.write(&RUN_NOW, &[&shared.db.manual_now(), &id.0]).await?;
    let queue: Option<String> = rows.first().and_then(|row| row.get(0));
    let Some(queue) = queue else { return Ok(false) };
    shared.hint(Hint::Ready { queue });
    Ok(true)
}
