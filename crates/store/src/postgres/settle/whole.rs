//! Settle with all consequences, in one transaction: retries, ends, dead letters, follow-ups, keys, lines.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tidemill_core::job::outcome::Waiting;
use tidemill_core::workflow::ChildEnd;
use tidemill_core::{Job, JobId, Line, NewJob, Settlement, State, Token, WorkerId, webhook};
use uuid::Uuid;

use super::{decided, settled_before};
use crate::error::Result;
use crate::postgres::batch::delay_us;
use crate::postgres::connect::Conn;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::record::{Back, Body, End, Record, Told, lock_keys};
use crate::postgres::statement::{At, Statement, sql};
use crate::postgres::unique::Depth;
use crate::postgres::{Shared, enqueue, flows, lines, runs, unique, webhooks};
use crate::request::{SettleItem, Settled};
use crate::run::{RunWrites, turned_away};
use crate::wake::Hint;

const LEASE_LOCK: Statement = sql!("select_lease", INT8_ARRAY);
const LEASE_LOCK_ALONE: Statement = sql!("select_lease_alone", INT8_ARRAY);
const LEASE_LET_GO: Statement = sql!("update_lease", INT8_ARRAY, UUID_ARRAY);
const LEASE_CLOSE: Statement = sql!("delete_lease", INT8_ARRAY);
const PERMITS_FREE: Statement = sql!("free_permits", INT8_ARRAY, TEXT_ARRAY);
const GATES_GIVE_BACK: Statement = sql!("give_back_cells", TEXT_ARRAY, INT8_ARRAY);
const GATES_SHUT: Statement = sql!("shut_gates", TIMESTAMPTZ, TEXT_ARRAY, INT8_ARRAY);
const OUTCOME_KNOWN: Statement = sql!("select_outcome", UUID_ARRAY);

/// Settles items of every sort; answers in their order.
pub(super) async fn settle(
    shared: &Arc<Shared>,
    worker: WorkerId,
    items: &[SettleItem],
) -> Result<Vec<Settled>> {
    let mut tries = Tries::resend();
    let done = loop {
        match settle_once(shared, worker, items, tries.was_lost()).await {
            Ok(done) => break done,
            Err(fault) => tries.again(fault).await?,
        }
    };
    shared.leases.strike(items, &done.closed);
    shared.doors.came_out(shared, items, &done.answers);
    shared.arrivals.came(shared, done.flows);
    done.runs.tell(shared);
    done.beside.tell(shared);
    shared.finished(done.finished.into_iter());
    for queue in done.queues {
        shared.hint(Hint::Ready { queue });
    }
    Ok(done.answers)
}

/// What a settle came to.
struct Done {
    answers: Vec<Settled>,
    closed: Vec<Token>,
    finished: Vec<JobId>,
    queues: BTreeSet<String>,
    flows: Vec<Uuid>,
    runs: runs::News,
    beside: runs::Beside,
}

async fn settle_once(
    shared: &Shared,
    worker: WorkerId,
    items: &[SettleItem],
    was_lost: bool,
) -> Result<Done, Fault> {
    let conn = shared.db.begin().await?;
    let acted = write(shared, &conn, worker, items, was_lost).await;
    conn.end(acted).await
}

async fn write(
    shared: &Shared,
    conn: &Conn<'_>,
    worker: WorkerId,
    items: &[SettleItem],
    was_lost: bool,
) -> Result<Done, Fault> {
    let (items, decided) = decided::known(conn, items).await?;
    let growing: Vec<Uuid> = items.iter().flat_map(flows_of).collect();
    let mut growth = flows::Growth::lock(conn, &growing).await?;
    let items = growth.kept(items);
    let items: &[SettleItem] = &items;
    let now = shared.db.manual_now();
    let of_runs: Vec<Uuid> = items.iter().flat_map(runs_of).collect();
    let locked = runs::locked(conn, now, &of_runs).await?;
    let keys = items.iter().filter_map(|item| item.job.unique_key.clone()).collect();
    lock_keys(conn, &keys).await?;
    lines::lock(conn, &items.iter().flat_map(lines_of).collect()).await?;
    let how = if decided.is_any() || renews(items) { &LEASE_LOCK_ALONE } else { &LEASE_LOCK };
    let mut held = Held::lock(shared, conn, how, items).await?;
    decided.take(conn).await?;
    let mut sorted = Sorted::default();
    for (at, item) in items.iter().enumerate() {
        if held.take(item) {
            sorted.accept(at, item, worker, held.reason(item), &locked);
        } else {
            sorted.refused.push(at);
        }
    }
    let mut answers = vec![Settled::Stale; items.len()];
    for (at, answer) in &sorted.accepted {
        answers[*at] = *answer;
    }
    let refused: Vec<_> = sorted.refused.iter().map(|at| &items[*at]).collect();
    let before: HashMap<_, _> = settled_before(conn, &refused).await?.into_iter().collect();
    for at in &sorted.refused {
        if let Some(cancelled) = before.get(&items[*at].job.id.0) {
            // Ours, from a try whose answer was lost: it would have said the same.
            let again = was_lost && matches!(items[*at].settlement, Settlement::Again { .. });
            answers[*at] = if *cancelled && again { Settled::Cancelled } else { Settled::Accepted };
        }
    }
    let mut beside = runs::write_with(shared, conn, worker, &sorted.writes).await?;
    let Told { mut queues, flows, runs } = sorted.record.write(conn, now).await?;
    // Told of in this very transaction: what was locked does not say so.
    let mailed = items.iter().filter_map(|item| item.job.options.parent).collect();
    queues.extend(runs::wait(conn, now, &sorted.waiting, &mailed).await?);
    let (grown, follow_ups): (Vec<&NewJob>, Vec<&NewJob>) =
        sorted.follow_ups.iter().copied().partition(|job| job.options.flow.is_some());
    queues.extend(beside.turn_away(conn, now).await?);
    let deliveries = webhooks::tell(conn, &sorted.parked).await?;
    let follow_ups: Vec<&NewJob> = follow_ups.into_iter().chain(&deliveries).collect();
    queues.extend(follow_up(shared, conn, &follow_ups).await?.queues);
    queues.extend(growth.grow(shared, conn, &grown).await?);
    come_out(conn, now, items, &sorted).await?;
    let closed = held.let_go(conn, &sorted).await?;
    let finished = sorted.record.ends.iter().map(|end| JobId(end.body.id)).collect();
    Ok(Done { answers, closed, finished, queues, flows, runs, beside })
}

/// Whether a run continues anew: what its last turn still writes is waited for, or comes too late. An end sends again
/// what is under way, and meets it there; a renewal empties the journal, and would leave it behind.
fn renews(items: &[SettleItem]) -> bool {
    items.iter().any(|item| item.run.as_ref().is_some_and(|run| run.renewal.is_some()))
}

/// The lines that an item may change: its own, and those of what follows it.
fn lines_of(item: &SettleItem) -> impl Iterator<Item = Line<'_>> {
    let follow_ups = item.settlement.follow_ups().iter();
    item.job.line().into_iter().chain(follow_ups.filter_map(NewJob::line))
}

/// The flows that an item adds jobs to.
fn flows_of(item: &SettleItem) -> impl Iterator<Item = Uuid> {
    let places = item.settlement.follow_ups().iter().filter_map(|job| job.options.flow.as_ref());
    places.map(|place| place.id.0)
}

/// The runs that an item changes: its own, and the one that hears of its end.
fn runs_of(item: &SettleItem) -> impl Iterator<Item = Uuid> {
    let changes = matches!(item.settlement, Settlement::Wait(_))
        || item.run.as_ref().is_some_and(|run| run.changes_run() || run.may_clash());
    let own = changes.then_some(item.job.id);
    own.into_iter().chain(item.job.options.parent).map(|id| id.0)
}

/// Items by what is to be written for them.
#[derive(Default)]
struct Sorted<'a> {
    accepted: Vec<(usize, Settled)>,
    refused: Vec<usize>,
    record: Record,
    follow_ups: Vec<&'a NewJob>,
    waiting: Vec<(JobId, Token, &'a Waiting)>,
    /// What webhooks are told of those of them that do not go on by themselves.
    parked: Vec<webhook::Told<'a>>,
    writes: Vec<(&'a Job, Token, &'a RunWrites)>,
    /// Jobs that their leases must not name any more.
    gone: Vec<(i64, Uuid)>,
}

impl<'a> Sorted<'a> {
    /// `called_off` is why it must not run again, if so.
    fn accept(
        &mut self,
        at: usize,
        item: &'a SettleItem,
        worker: WorkerId,
        called_off: Option<String>,
        runs: &HashMap<Uuid, runs::Locked>,
    ) {
        let end = |state, attempt, error, failure| End {
            body: Body::of(&item.job),
            state,
            attempt,
            lost: item.lost as i16,
            token: Some(item.token.0),
            worker: Some(worker.0),
            started_at: Some(item.started_at),
            output: None,
            error,
            failure,
        };
        let attempt = item.attempt as i16;
        let mut answer = Settled::Accepted;
        match &item.settlement {
            Settlement::Done { output, follow_ups } => {
                let output = Some(output.as_str().to_owned());
                self.record.ends.push(End { output, ..end(State::Done, attempt, None, None) });
                self.follow_ups.extend(follow_ups);
            }
            Settlement::Again { spent, .. } if called_off.is_some() => {
                self.record.ends.push(end(State::Cancelled, *spent as i16, called_off, None));
                answer = Settled::Cancelled;
            }
            Settlement::Wait(waiting) if called_off.is_some() => {
                self.record.ends.push(end(
                    State::Cancelled,
                    waiting.spent as i16,
                    called_off,
                    None,
                ));
                answer = Settled::Cancelled;
            }
            Settlement::Again { delay, spent, failure } => self.record.backs.push(Back {
                class: failure.as_ref().map(|failure| failure.class.word()),
                error: failure.as_ref().map(|failure| failure.message.clone()),
                ..back(item, worker, *spent, delay_us(*delay))
            }),
            Settlement::Wait(waiting) => {
                let run = runs.get(&item.job.id.0).copied().unwrap_or_default();
                let due_in_us = run.due_in_us(waiting);
                // It came as far as this: what it lost before does not count against it.
                self.record
                    .backs
                    .push(Back { lost: 0, ..back(item, worker, waiting.spent, due_in_us) });
                self.waiting.push((item.job.id, item.token, waiting));
                let parked = waiting.parked.as_ref();
                self.parked.extend(parked.map(|parked| {
                    webhook::Told::parked(&item.job, item.attempt, parked, run.now())
                }));
            }
            Settlement::Cancelled { reason } => {
                // Whoever called it off from outside says why, not the handler that heard of it.
                let reason = called_off.unwrap_or_else(|| reason.clone());
                self.record.ends.push(end(State::Cancelled, attempt, Some(reason), None));
            }
            Settlement::Dead { failure } => {
                let message = Some(failure.message.clone());
                self.record.ends.push(end(State::Dead, attempt, message, Some(failure.clone())));
            }
        }
        if let Some(writes) = &item.run {
            self.writes.push((&item.job, item.token, writes));
        }
        if !matches!(item.settlement, Settlement::Done { .. }) {
            self.gone.push((item.token.0, item.job.id.0));
        }
        self.accepted.push((at, answer));
    }
}

/// An attempt that did not finish its job.
fn back(item: &SettleItem, worker: WorkerId, spent: u16, delay_us: i64) -> Back {
    Back {
        body: Body::of(&item.job),
        spent: spent as i16,
        lost: item.lost as i16,
        delay_us,
        attempt: item.attempt as i16,
        token: item.token.0,
        worker: worker.0,
        started_at: Some(item.started_at),
        class: None,
        error: None,
    }
}

/// The leases of the items, locked.
struct Held {
    /// What each lease still holds and has no outcome for, as far as that matters here.
    live: HashMap<i64, HashSet<Uuid>>,
    /// Whether a lease ends when these items are settled, where the book knows.
    last: HashMap<i64, Option<bool>>,
    reasons: HashMap<(i64, Uuid), String>,
}

impl Held {
    async fn lock(
        shared: &Shared,
        conn: &Conn<'_>,
        how: &Statement,
        items: &[SettleItem],
    ) -> Result<Self, Fault> {
        // By token: a stale item may name a job that another lease of this call holds.
        let mut settling: BTreeMap<Token, HashSet<JobId>> = BTreeMap::new();
        for item in items {
            settling.entry(item.token).or_default().insert(item.job.id);
        }
        let last =
            settling.iter().map(|(token, ids)| (token.0, shared.leases.is_last(*token, ids)));
        let mut held = Self { live: HashMap::new(), last: last.collect(), reasons: HashMap::new() };
        let tokens: Vec<i64> = settling.keys().map(|token| token.0).collect();
        let mut doubtful: HashSet<Uuid> = items.iter().map(|item| item.job.id.0).collect();
        for row in conn.query(how, &[&tokens]).await? {
            let (token, ids): (i64, Vec<Uuid>) = (row.get(0), row.get(1));
            if held.last.get(&token).copied().flatten().is_none() {
                doubtful.extend(&ids);
            }
            let called_off =
                row.get::<_, Vec<Uuid>>(2).into_iter().zip(row.get::<_, Vec<String>>(3));
            held.reasons.extend(called_off.map(|(id, reason)| ((token, id), reason)));
            held.live.insert(token, ids.into_iter().collect());
        }
        // Only now: a settle that held the lease before us is visible to this statement.
        let doubtful: Vec<Uuid> = doubtful.into_iter().collect();
        let finished = conn.query(&OUTCOME_KNOWN, &[&doubtful]).await?;
        let finished: HashSet<Uuid> = finished.iter().map(|row| row.get(0)).collect();
        for ids in held.live.values_mut() {
            ids.retain(|id| !finished.contains(id));
        }
        Ok(held)
    }

    /// Whether the item's lease holds it; it does so once.
    fn take(&mut self, item: &SettleItem) -> bool {
        self.live.get_mut(&item.token.0).is_some_and(|ids| ids.remove(&item.job.id.0))
    }

    fn reason(&self, item: &SettleItem) -> Option<String> {
        self.reasons.get(&(item.token.0, item.job.id.0)).cloned()
    }

    /// Ends leases that hold nothing any more; takes the jobs out of the others.
    async fn let_go(&self, conn: &Conn<'_>, sorted: &Sorted<'_>) -> Result<Vec<Token>, Fault> {
        let is_over = |(token, ids): &(&i64, &HashSet<Uuid>)| match self.last.get(*token) {
            Some(Some(last)) => *last,
            _ => ids.is_empty(),
        };
        let closed: Vec<i64> = self.live.iter().filter(is_over).map(|(token, _)| *token).collect();
        if !closed.is_empty() {
            conn.query(&LEASE_CLOSE, &[&closed]).await?;
        }
        let gone = sorted.gone.iter().filter(|(token, _)| !closed.contains(token)).copied();
        let (tokens, ids): (Vec<i64>, Vec<Uuid>) = gone.unzip();
        if !tokens.is_empty() {
            conn.query(&LEASE_LET_GO, &[&tokens, &ids]).await?;
        }
        Ok(closed.into_iter().map(Token).collect())
    }
}

/// Gives permits back, and what was not used of rates, and shuts gates that are to be shut.
async fn come_out(
    conn: &Conn<'_>,
    now: Option<At>,
    items: &[SettleItem],
    sorted: &Sorted<'_>,
) -> Result<(), Fault> {
    let accepted = || sorted.accepted.iter().map(|(at, _)| &items[*at]);
    let ends = accepted().flat_map(|item| item.gates.iter().map(|end| (item.token.0, end)));
    let (tokens, ends): (Vec<i64>, Vec<_>) = ends.unzip();
    if ends.is_empty() {
        return Ok(());
    }
    let gates: Vec<&str> = ends.iter().map(|end| &*end.gate).collect();
    conn.query(&PERMITS_FREE, &[&tokens, &gates]).await?;
    let unused = ends.iter().filter_map(|end| Some((&*end.gate, delay_us(end.unused?))));
    let (gates, cells): (Vec<&str>, Vec<i64>) = unused.unzip();
    if !gates.is_empty() {
        conn.query(&GATES_GIVE_BACK, &[&gates, &cells]).await?;
    }
    let shut = ends.iter().filter_map(|end| Some((&*end.gate, delay_us(end.shut_for?))));
    let (gates, delays): (Vec<&str>, Vec<i64>) = shut.unzip();
    if !gates.is_empty() {
        conn.query(&GATES_SHUT, &[&now, &gates, &delays]).await?;
    }
    Ok(())
}

/// What came of jobs that follow.
pub(crate) struct FollowUp {
    /// Where they wait.
    pub queues: Vec<String>,
    /// Children of runs that were not started: whose, and how they have ended.
    pub turned_away: Vec<(JobId, ChildEnd)>,
}

/// Enqueues what follows, in the same transaction; answers the queues.
pub(crate) async fn follow_up(
    shared: &Shared,
    conn: &Conn<'_>,
    jobs: &[&NewJob],
) -> Result<FollowUp, Fault> {
    let (plain, others): (Vec<&NewJob>, Vec<&NewJob>) =
        jobs.iter().copied().partition(|job| enqueue::is_plain(job));
    let mut away = Vec::new();
    if !plain.is_empty() {
        enqueue::write_new(conn, &shared.db, &plain, Depth::Free).await?;
    }
    if !others.is_empty() {
        let others: Vec<NewJob> = others.into_iter().cloned().collect();
        let text = unique::lines(&others).map_err(Fault::Refused)?;
        let mut receipts = unique::put(conn, shared.db.manual_now(), &text, Depth::Free).await?;
        runs::keep_for_after(shared, conn, &others, &mut receipts).await?;
        away = turned_away(&others, &receipts);
    }
    let queues = jobs.iter().map(|job| job.queue.clone()).collect();
    Ok(FollowUp { queues, turned_away: away })
}
