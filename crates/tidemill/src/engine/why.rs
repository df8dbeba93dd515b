//! Why a job is not running: looks at every gate there is, and names those that hold it.

use tidemill_core::flow::StepState;
use tidemill_core::queue::{RuleBook, matches};
use tidemill_core::why::{Gate, Why};
use tidemill_core::{JobId, QueueLimit, State};
use tidemill_store::flow::Input;
use tidemill_store::{JobView, LineView, QueueView, Store, WorkerView};

use crate::engine::Tidemill;
use crate::error::{Error, Result};

impl Tidemill {
    /// Why this job is not running: every gate that holds it, and when it will start, where that can
    /// be known. It looks at the store as it is now; its cost grows with what waits.
    pub async fn why(&self, id: JobId) -> Result<Why> {
        let store = &self.0.store;
        let view = store.job(id).await?.ok_or(Error::JobUnknown { id })?;
        let mut gates: Vec<Gate> = standing(&view).into_iter().collect();
        if view.state == State::Blocked
            && let Some(line) = store.line(id).await?
        {
            let LineView { key, ahead, head, dead } = line;
            gates = vec![Gate::Line { key, ahead, head, dead }];
        }
        if gates == [Gate::Blocked]
            && let Some(gate) = in_flow(store.as_ref(), &view).await?
        {
            gates = vec![gate];
        }
        if matches!(view.state, State::Scheduled | State::Ready | State::Blocked) {
            let book = RuleBook::new(store.queue_rules().await?);
            let workers = store.workers().await?;
            gates.extend(paused(&book, &view));
            gates.extend(unserved(&workers, &view));
            gates.extend(limited(store.as_ref(), &book, &view).await?);
            if gates.is_empty() {
                gates.push(slot(&workers, &store.queues().await?, &view));
            }
        }
        let expected_at = match gates.as_slice() {
            [Gate::Due { at, .. } | Gate::Limit { opens_at: Some(at), is_broken: false, .. }] => {
                Some(*at)
            }
            _ => None,
        };
        Ok(Why { id, state: view.state, gates, expected_at })
    }
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

/// The limits that let it not pass.
async fn limited(store: &dyn Store, book: &RuleBook, view: &JobView) -> Result<Vec<Gate>> {
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
    let gates = store.gates(&names).await?;
    Ok(gates.iter().zip(&limits).filter_map(|(gate, limit)| gate.holds(limit, now)).collect())
}

/// What its state alone says.
fn standing(view: &JobView) -> Option<Gate> {
    match view.state {
        State::Ready => None,
        State::Blocked => Some(Gate::Blocked),
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

fn slot(workers: &[WorkerView], queues: &[QueueView], view: &JobView) -> Gate {
    let serving = || workers.iter().filter(|worker| takes(worker, view) && knows(worker, view));
    let queue = queues.iter().find(|queue| queue.name == view.job.queue);
    Gate::Slot {
        workers: serving().count(),
        slots: serving().map(|worker| u64::from(worker.slots)).sum(),
        ready: queue.map_or(0, |queue| queue.ready.values().sum()),
    }
}

fn takes(worker: &WorkerView, view: &JobView) -> bool {
    worker.queues.iter().any(|own| matches(own, &view.job.queue))
}

fn knows(worker: &WorkerView, view: &JobView) -> bool {
    worker.kinds.is_empty() || worker.kinds.contains(&view.job.kind)
}
