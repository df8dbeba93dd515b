//! Why a job is not running: looks at every gate there is, and names those that hold it.

mod queue;

use jiff::Timestamp;
use tidemill_core::flow::StepState;
use tidemill_core::gate::{Counts, GateView};
use tidemill_core::job::deadline::Deadlines;
use tidemill_core::queue::RuleBook;
use tidemill_core::why::{COUNTED_MAX, Deadline, Gate, KeyHolder, LaneView, Why};
use tidemill_core::workflow::is_never;
use tidemill_core::{Due, JobId, QueueLimit, State};
use tidemill_store::flow::Input;
use tidemill_store::{Crowd, JobView, LineView, Store, WorkerView};

use crate::engine::Tidemill;
use crate::error::{Error, Result};

impl Tidemill {
    /// Why this job is not running: every gate that holds it, and when it will start, where that can
    /// be known. It looks at the store as it is now, and counts no further than it says.
    pub async fn why(&self, id: JobId) -> Result<Why> {
        let store = &self.0.store;
        let view = store.job(id).await?.ok_or(Error::JobUnknown { id })?;
        let mut gates: Vec<Gate> = standing(&view).into_iter().collect();
        if view.state == State::Blocked
            && let Some(line) = store.line(id).await?
        {
            let LineView { key, ahead, head, dead } = line;
            gates = vec![Gate::Line { key, ahead, head: Some(head), dead }];
        }
        if gates == [KEPT]
            && let Some(gate) = in_flow(store.as_ref(), &view).await?
        {
            gates = vec![gate];
        }
        if matches!(view.state, State::Blocked | State::Scheduled)
            && let Some(gate) = of_run(store.as_ref(), id).await?
        {
            gates.retain(|gate| *gate != KEPT);
            gates.push(gate);
        }
        if let Some(gate) = gates.iter_mut().find(|gate| **gate == KEPT) {
            *gate = Gate::Blocked { holder: holder(store.as_ref(), id).await? };
        }
        if view.state == State::Blocked {
            gates.extend(own_time(store.as_ref(), &view).await?);
        }
        let mut expected_at = None;
        if matches!(view.state, State::Scheduled | State::Ready | State::Blocked) {
            let book = store.queue_rules().await?;
            let workers = self.live_workers().await?;
            gates.extend(paused(&book, &view));
            gates.extend(unserved(&workers, &view));
            let limits = limited(store.as_ref(), &book, &view).await?;
            gates.extend(limits.iter().map(|held| held.gate.clone()));
            let lane = match view.state {
                State::Ready => store.lane(id).await?.unwrap_or_default(),
                _ => LaneView::default(),
            };
            expected_at = expected(&gates, &limits, &lane, &view);
            if expected_at.is_some() && !limits.is_empty() {
                let crowd = store.crowd(&view.job.queue).await?;
                expected_at = expected_at.filter(|_| has_slot(&workers, &crowd, &view));
            }
            let is_only_turn = gates.is_empty();
            gates.extend(turns(&book, &lane, &view));
            gates.extend(is_only_turn.then(|| slot(&workers, &view)));
            let has_begun = view.attempt > 0 || store.begun_of(vec![id]).await?.contains(&id);
            let then = expected_at.max(Some(self.now().await?));
            if let Some(late) = late(&book, &view, has_begun, then) {
                gates.push(late);
                expected_at = None;
            }
        }
        Ok(Why { id, state: view.state, gates, expected_at })
    }
}

/// What a job that is blocked waits for, until something else is known.
const KEPT: Gate = Gate::Blocked { holder: None };

/// The job that one is kept for after.
async fn holder(store: &dyn Store, id: JobId) -> Result<Option<KeyHolder>> {
    let Some(id) = store.key_holder(id).await? else { return Ok(None) };
    let view = store.job(id).await?;
    Ok(view.map(|view| KeyHolder { id, state: view.state }))
}

/// The time that a job which is blocked has of its own, if that has not come.
async fn own_time(store: &dyn Store, view: &JobView) -> Result<Option<Gate>> {
    let now = store.now().await?;
    let at = match view.job.options.flow.as_deref().and_then(|place| place.due) {
        Some(Due::In(delay)) => {
            return Ok(Some(Gate::Delay { delay_ms: delay.as_millis() as u64 }));
        }
        Some(Due::At(at)) => Some(at),
        _ => store.blocked_due(view.job.id).await?,
    };
    Ok(at
        .filter(|at| *at > now && !is_never(*at))
        .map(|at| Gate::Due { at, attempt: view.attempt }))
}

/// Whose turn it is, by band and by tenant.
fn turns(book: &RuleBook, lane: &LaneView, view: &JobView) -> impl Iterator<Item = Gate> {
    let rules = book.of(&view.job.queue);
    let weights = rules.map(|rules| rules.weights).unwrap_or_default();
    let tenants = rules.map(|rules| rules.tenant_weights.clone()).unwrap_or_default();
    let tenant = view.job.tenant.as_deref().unwrap_or_default();
    let band = lane.band(view.job.priority, &weights);
    band.into_iter().chain(lane.tenant(tenant, &tenants))
}

/// The deadline that is over by then.
fn late(book: &RuleBook, view: &JobView, has_begun: bool, then: Option<Timestamp>) -> Option<Gate> {
    let job = &view.job;
    let deadlines = Deadlines::of(job, book.of(&job.queue));
    // How long it may wait for its first start counts from when it is due, which of one that is blocked nobody knows.
    let due_at = view.due_at.filter(|_| !has_begun);
    let start = due_at.and_then(|due_at| deadlines.start_by(due_at));
    let finish = deadlines.finish_by();
    let all = [(Deadline::Start, start), (Deadline::Finish, finish)];
    let (to, at) = all.into_iter().find(|(_, at)| at.is_some_and(|at| Some(at) <= then))?;
    Some(Gate::Late { to, at: at? })
}

/// When it starts, if the clock alone is in its way: it is due then, or a limit lets so many pass in a time.
fn expected(gates: &[Gate], limits: &[Held], lane: &LaneView, view: &JobView) -> Option<Timestamp> {
    let held = match (gates, limits) {
        ([Gate::Due { at, .. }], []) => return Some(*at),
        ([Gate::Due { at, .. }, Gate::Run { parked: None, paused: false, .. }], []) => {
            return Some(*at);
        }
        // What asked for a pause lets all pass when that is over.
        (
            [Gate::Due { at, .. }, Gate::Limit { opens_at: Some(opens_at), is_broken: false, .. }],
            [held],
        ) if held.limit.rate.is_none() && held.limit.concurrency.is_none() => {
            return Some(*at.max(opens_at));
        }
        ([Gate::Limit { opens_at: Some(_), is_broken: false, .. }], [held]) => held,
        _ => return None,
    };
    let is_shared = !lane.others.is_empty() || lane.turns.len() > 1;
    let ahead = match (held.limit.is_wide(), &view.gate) {
        (true, _) if !is_shared => lane.ahead,
        (false, Some(gate)) if *gate == held.view.name => lane.ahead_at_gate,
        _ if lane.ahead == 0 && !is_shared => 0,
        _ => return None,
    };
    // Who is inside of it leaves when nobody knows.
    let inside: u64 = held.view.inside.iter().map(|(_, jobs)| jobs).sum();
    if held.limit.concurrency.is_some_and(|most| inside + ahead >= u64::from(most)) {
        return None;
    }
    held.view.starts_at(&held.limit, ahead).filter(|_| ahead < COUNTED_MAX)
}

/// What its run waits for, or why that does not go on.
async fn of_run(store: &dyn Store, id: JobId) -> Result<Option<Gate>> {
    let (_, Some(run)) = store.journal(id).await? else { return Ok(None) };
    let waits_for = run.waits.map(|waits| waits.what).unwrap_or_default();
    let gate = Gate::Run { waits_for, parked: run.parked, paused: run.paused };
    let says = !matches!(&gate, Gate::Run { waits_for, parked: None, paused: false } if waits_for.is_empty());
    Ok(says.then_some(gate))
}

/// What its flow waits for.
async fn in_flow(store: &dyn Store, view: &JobView) -> Result<Option<Gate>> {
    let Some(place) = view.job.options.flow.as_deref() else { return Ok(None) };
    let Some(flow) = store.flow(place.id).await? else { return Ok(None) };
    let inputs = store.inputs(&[(place.id, place.step)]).await?;
    let holds = |input: &&Input| !matches!(input.state, StepState::Done | StepState::Skipped);
    let left = |input: &Input| (input.step.clone(), input.jobs - input.done - input.failed);
    Ok(Some(Gate::Flow {
        flow: place.id,
        step: place.name.clone(),
        state: flow.head.state,
        waits_for: inputs.iter().flatten().filter(holds).map(left).collect(),
        at_once: flow.head.at_once,
    }))
}

/// A limit that holds a job.
struct Held {
    gate: Gate,
    limit: QueueLimit,
    view: GateView,
}

/// The limits that let it not pass.
async fn limited(store: &dyn Store, book: &RuleBook, view: &JobView) -> Result<Vec<Held>> {
    let job = &view.job;
    let (tenant, key) = (job.tenant.as_deref(), job.key.as_deref());
    let (tenant, key, is_retry) =
        (tenant.unwrap_or_default(), key.unwrap_or_default(), view.attempt > 0);
    let through =
        |limit: QueueLimit| Some((limit.gate_of(&job.kind, tenant, key, is_retry)?, limit));
    let (names, limits): (Vec<_>, Vec<_>) =
        book.limits(&job.queue).into_iter().filter_map(through).unzip();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let now = store.now().await?;
    let gates = store.gates(&names).await?.into_iter().zip(limits);
    let held = |(gate, limit): (GateView, QueueLimit)| {
        // A slot that nobody else wants is free for retries, whatever is paid for: only a claim knows.
        let is_free = matches!(limit.counts, Counts::Retry { .. })
            && view.gate.as_deref() != Some(gate.name.as_str());
        let holds = gate.holds(&limit, now).filter(|_| !is_free)?;
        Some(Held { gate: holds, limit, view: gate })
    };
    Ok(gates.filter_map(held).collect())
}

/// What its state alone says.
fn standing(view: &JobView) -> Option<Gate> {
    match view.state {
        State::Ready => None,
        State::Blocked => Some(KEPT),
        State::Scheduled => {
            let at = view.due_at?;
            Some(Gate::Due { at, attempt: view.attempt })
        }
        State::Running => {
            let (worker, called_off) = (view.worker, view.cancel_requested);
            Some(Gate::Running { worker, called_off })
        }
        state @ (State::Done | State::Cancelled | State::Dead) => {
            Some(Gate::Finished { state, at: view.finished_at })
        }
    }
}

fn paused(book: &RuleBook, view: &JobView) -> Option<Gate> {
    let queue = &view.job.queue;
    let rule = book.paused_by(queue)?.to_owned();
    Some(Gate::Paused { queue: queue.clone(), rule })
}

fn unserved(workers: &[WorkerView], view: &JobView) -> Option<Gate> {
    let taking: Vec<_> = workers.iter().filter(|worker| takes(worker, view)).collect();
    if taking.is_empty() {
        return Some(Gate::NoWorker { queue: view.job.queue.clone() });
    }
    let is_known = taking.iter().any(|worker| knows(worker, view));
    let kind = view.job.kind.clone();
    (!is_known).then_some(Gate::KindUnknown { kind, workers: taking.len() })
}

fn slot(workers: &[WorkerView], view: &JobView) -> Gate {
    let serving = || workers.iter().filter(|worker| takes(worker, view) && knows(worker, view));
    let slots = serving().map(|worker| u64::from(worker.slots_for(&view.job.queue))).sum();
    Gate::Slot { workers: serving().count(), slots }
}

/// Whether a worker that would run it has a slot for it now. When one becomes free nobody knows.
fn has_slot(workers: &[WorkerView], crowd: &Crowd, view: &JobView) -> bool {
    let mut serving = workers.iter().filter(|worker| takes(worker, view) && knows(worker, view));
    serving.any(|worker| !queue::is_full(worker, crowd, &view.job.queue))
}

fn takes(worker: &WorkerView, view: &JobView) -> bool {
    worker.queues.iter().any(|own| tidemill_core::queue::takes(own, &view.job.queue))
}

fn knows(worker: &WorkerView, view: &JobView) -> bool {
    worker.kinds.is_empty() || worker.kinds.contains(&view.job.kind)
}
