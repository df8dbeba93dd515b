//! From how an attempt ended to what is settled for it, by the rules as this process knows them.
//!
//! The same for workers of this process and for those that report from elsewhere.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::gate::{PART, PAUSE_MAX};
use tidemill_core::job::outcome::Waiting;
use tidemill_core::job::settle::{Attempt, Ended, settle};
use tidemill_core::queue::RuleBook;
use tidemill_core::workflow::{Diff, Parked};
use tidemill_core::{ErrorClass, Job, JobId, Retry, Settlement};
use tidemill_store::ClaimedJob;
use tidemill_store::request::GateEnd;

use crate::engine::Tidemill;

/// Until the store is asked again whether jobs have begun, when it could not say.
const AGAIN: Duration = Duration::from_millis(200);
/// It is asked this often when it refuses to say, rather than being away.
const REFUSED_MAX: u32 = 5;

/// Those of these jobs, claimed at `now`, that must not start, and what is settled for them. Whether one has begun that
/// has spent nothing is looked up where that decides. While the store cannot say, it is asked again, `until` there is
/// no time for that any more; then the job is put off. No sooner: its deadline to start counts anew from there.
pub(crate) async fn too_late(
    mill: &Tidemill,
    claimed: impl IntoIterator<Item = &ClaimedJob>,
    now: Timestamp,
    until: impl Future<Output = ()>,
) -> HashMap<JobId, Settlement> {
    let known = mill.0.rules.known();
    let (mut late, mut doubtful) = (HashMap::new(), Vec::new());
    for claimed in claimed {
        let ClaimedJob { job, attempt, due_at, .. } = claimed;
        let deadlines = known.deadlines(job);
        let expired = |has_begun| deadlines.expired(&job.kind, has_begun, *due_at, now);
        let Some(failure) = expired(*attempt > 1) else { continue };
        if expired(true).is_none() {
            doubtful.push(job.id);
        }
        late.insert(job.id, Settlement::Dead { failure });
    }
    if doubtful.is_empty() {
        return late;
    }
    let begun = tokio::select! {
        biased;
        begun = begun_of(mill, &doubtful) => begun,
        () = until => None,
    };
    if let Some(begun) = begun {
        late.retain(|id, _| !begun.contains(id));
    } else {
        let later = || Settlement::Again { delay: AGAIN, spent: 0, failure: None };
        late.extend(doubtful.into_iter().map(|id| (id, later())));
    }
    late
}

/// Of which of these jobs an attempt has begun; `None` when the store refuses to say.
async fn begun_of(mill: &Tidemill, ids: &[JobId]) -> Option<HashSet<JobId>> {
    let (mut is_first, mut refused) = (true, 0);
    loop {
        let error = match mill.0.store.begun_of(ids.to_vec()).await {
            Ok(begun) => return Some(begun),
            Err(error) => error,
        };
        if std::mem::take(&mut is_first) {
            tracing::warn!(%error, "whether jobs have begun is not known; asking again");
        }
        refused += u32::from(!error.is_temporary());
        if refused == REFUSED_MAX {
            return None;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// What is settled for an attempt that ended so, at this moment of the store's clock. Each part of the policy is the
/// job's own, else that of its kind, else that of its queue.
pub(crate) fn judge(
    mill: &Tidemill,
    claimed: &ClaimedJob,
    of_kind: &Retry,
    ended: Ended,
    present: Timestamp,
) -> Settlement {
    let job = &claimed.job;
    let ended = without_secrets(mill, job, ended);
    let known = mill.0.rules.known();
    let of_queue = known.book.of(&job.queue).and_then(|rules| rules.retry.as_ref());
    let retry = &Retry::in_force(job.options.retry.as_ref(), of_kind, of_queue);
    let (number, deadlines) = (claimed.attempt, known.deadlines(job));
    settle(Attempt { job, number, retry, deadlines }, ended, present, fastrand::f64())
}

/// What a handler says of its failure may have in it what is not to be seen.
fn without_secrets(mill: &Tidemill, job: &Job, mut ended: Ended) -> Ended {
    if let Ended::Failed { message: text, .. } | Ended::Cancelled(text) = &mut ended
        && !mill.0.hidden.is_empty()
    {
        mill.0.hidden.secrets(job.payload.as_str()).hide_in(text);
    }
    ended
}

/// The same for what a run waits for, and why it is parked.
pub(crate) fn waiting_without_secrets(mill: &Tidemill, job: &Job, waiting: &mut Waiting) {
    if mill.0.hidden.is_empty() {
        return;
    }
    let secrets = mill.0.hidden.secrets(job.payload.as_str());
    waiting.waits.what.iter_mut().for_each(|what| secrets.hide_in(what));
    if let Some(Parked { why, diff, .. }) = &mut waiting.parked {
        secrets.hide_in(why);
        if let Some(Diff { journal, code }) = diff {
            secrets.hide_in(journal);
            secrets.hide_in(code);
        }
    }
}

/// For how long the other side asked to be left alone, whatever becomes of the job.
pub(crate) fn pause_asked(ended: &Ended) -> Option<Duration> {
    match ended {
        Ended::Failed { class: ErrorClass::RateLimited, retry_after, .. } => *retry_after,
        _ => None,
    }
}

/// What is to be said at the gates, by the limits as they are now. A job that is not tried again, because it has no
/// time left, says all the same what pause was `asked` of it.
pub(crate) fn come_out(
    book: &RuleBook,
    job: &Job,
    gates: Vec<Arc<str>>,
    settlement: &Settlement,
    asked: Option<Duration>,
) -> Vec<GateEnd> {
    if gates.is_empty() {
        return Vec::new();
    }
    let asked_to_wait = match settlement {
        Settlement::Again { delay, failure: Some(failure), .. } => {
            (failure.class == ErrorClass::RateLimited).then_some(*delay)
        }
        _ => asked,
    };
    let asked_to_wait = asked_to_wait.map(|delay| delay.min(PAUSE_MAX));
    let limits = book.limits(&job.queue);
    let end = |gate: Arc<str>| {
        let base = gate.split(PART).next().unwrap_or_default();
        let limit = limits.iter().find(|limit| limit.gate == base);
        GateEnd {
            shut_for: asked_to_wait.filter(|_| limit.is_some_and(|limit| limit.hold)),
            breaker: limit.and_then(|limit| limit.breaker),
            unused: None,
            gate,
        }
    };
    gates.into_iter().map(end).collect()
}

/// The same for a job that was not started: what rates let pass for it, they let pass for somebody else.
pub(crate) fn turn_back(
    book: &RuleBook,
    job: &Job,
    gates: Vec<Arc<str>>,
    settlement: &Settlement,
) -> Vec<GateEnd> {
    let limits = book.limits(&job.queue);
    let mut ends = come_out(book, job, gates, settlement, None);
    for end in &mut ends {
        let base = end.gate.split(PART).next().unwrap_or_default();
        let rate = limits.iter().find(|limit| limit.gate == base).and_then(|limit| limit.rate);
        end.unused = rate.map(|rate| Duration::from_micros(rate.every_us()));
    }
    ends
}

/// The gates that a job is inside of, if its whole claim is inside of these: a lease does not say which job went
/// through which.
pub(crate) fn gates_of(book: &RuleBook, claimed: &ClaimedJob) -> Vec<Arc<str>> {
    let job = &claimed.job;
    let (tenant, key) =
        (job.tenant.as_deref().unwrap_or_default(), job.key.as_deref().unwrap_or_default());
    let limits = book.limits(&job.queue);
    let of_limits = limits.iter().filter_map(|limit| {
        let gate = limit.gate_of(&job.kind, tenant, key, claimed.attempt > 1)?;
        let is_inside = claimed.gates.iter().any(|held| **held == *gate);
        // Only those that count who is inside are written down with the lease.
        (is_inside || limit.concurrency.is_none()).then(|| Arc::from(gate))
    });
    of_limits.collect()
}
