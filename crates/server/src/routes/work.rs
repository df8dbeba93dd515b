//! What a worker in any language does: register, beat, claim, settle, sign off.
//!
//! A token proves a lease. What carries one that holds no more changes nothing, and is told so.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidemill::store::Settled;
use tidemill::work::{AddedStep, Demand, Given, Hand, Outcome, REPORTS_MAX, Report};
use tidemill::{Enqueue, Payload};
use tidemill_core::bounded::Bounded;
use tidemill_core::retry::text::BackoffText;
use tidemill_core::span::Span;
use tidemill_core::wire::run::RunBody;
use tidemill_core::wire::work::{
    Answers, Ask, Assigned, Beaten, Card, OutcomeBody, Pulse, Registered, ReportBody, Reports,
    SettledBody, SignedOff, Step, Work,
};
use tidemill_core::workflow::{Parked, Waits};
use tidemill_core::{ErrorClass, Job, Limits, Retry, Wish, WorkerId, name};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::api::App;
use crate::extract::{Body, Named};
use crate::problem::{Answer, Problem, Refusal};
use crate::routes::journal;

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(register))
        .routes(routes!(sign_off))
        .routes(routes!(beat))
        .routes(routes!(claim))
        .routes(routes!(settle))
}

/// Registers a worker. From now on it beats, at least three times within its lease, or its jobs go to others.
#[utoipa::path(post, path = "/v1/workers", operation_id = "register_worker", tag = "work", request_body = Card,
    responses((status = 201, body = Registered)))]
async fn register(
    State(app): State<Arc<App>>,
    caller: Caller,
    Body(card): Body<Card>,
) -> Answer<(StatusCode, Json<Registered>)> {
    let Card { name, queues, kinds, slots, slots_of, lease } = card;
    check_reach(&caller, &queues)?;
    let lease_ttl = lease.map(|Span(lease)| lease);
    let (_, owner) = caller.identity();
    let hand = Hand { name, queues, kinds, slots, slots_of, lease_ttl, owner };
    let id = app.mill.work().register(hand).await?;
    Ok((StatusCode::CREATED, Json(Registered { id })))
}

/// Workers serve all tenants of a queue.
fn check_reach(caller: &Caller, queues: &[String]) -> Answer<()> {
    caller.check_all_tenants()?;
    for queue in queues {
        // Who had a delivery in hand could keep it from whom it is for.
        name::check_own("queue", queue).map_err(tidemill::Error::from)?;
        caller.check_queue(queue)?;
    }
    Ok(())
}

/// Signs a worker off. Jobs it still has are ready again at once, no attempt spent.
#[utoipa::path(delete, path = "/v1/workers/{id}", operation_id = "sign_off_worker", tag = "work",
    params(("id" = WorkerId, Path)), responses((status = 200, body = SignedOff)))]
async fn sign_off(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<WorkerId>,
) -> Answer<Json<SignedOff>> {
    caller.check_worker(id)?;
    let rescued = app.mill.work().sign_off(id).await?;
    Ok(Json(SignedOff { given_back: rescued.ready }))
}

/// Says that a worker lives.
#[utoipa::path(post, path = "/v1/workers/{id}/beat", operation_id = "beat_worker", tag = "work",
    params(("id" = WorkerId, Path)), request_body = Pulse,
    responses(
        (status = 200, body = Beaten),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It was given up"),
    ))]
async fn beat(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<WorkerId>,
    Body(Pulse { wait, tokens }): Body<Pulse>,
) -> Answer<Json<Beaten>> {
    caller.check_worker(id)?;
    let (work, tokens) = (app.mill.work(), tokens.as_deref());
    let beaten = app.patiently(wait, |wait| work.beat(id, wait, tokens)).await?;
    let waited_ms = beaten.waited.as_millis() as u64;
    Ok(Json(Beaten { cancelled: beaten.cancelled, waited_ms }))
}

fn assigned(Given { claimed, run_timeout, finish_by }: Given) -> Assigned {
    let run_timeout_ms = run_timeout.map(|time| time.as_millis() as u64);
    let (attempt, lost, has_run) = (claimed.attempt, claimed.lost, claimed.has_run);
    let job = Arc::unwrap_or_clone(claimed.job);
    Assigned { job, attempt, lost, run_timeout_ms, finish_by, has_run }
}

/// Claims jobs: answered as soon as there are some, or empty when the wait is over. Claim once at a time.
#[utoipa::path(post, path = "/v1/workers/{id}/claim", operation_id = "claim_jobs", tag = "work",
    params(("id" = WorkerId, Path)), request_body = Ask,
    responses(
        (status = 200, body = Work),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It was given up"),
    ))]
async fn claim(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<WorkerId>,
    Body(Ask { queues, kinds, jobs_max, wait }): Body<Ask>,
) -> Answer<Json<Work>> {
    caller.check_worker(id)?;
    check_reach(&caller, &queues)?;
    let jobs_max = usize::try_from(jobs_max).unwrap_or(usize::MAX);
    if !(1..=tidemill::work::CLAIM_JOBS_MAX).contains(&jobs_max) {
        let most = tidemill::work::CLAIM_JOBS_MAX;
        return Err(Refusal::request(format!("a claim takes between 1 and {most} jobs")));
    }
    let demand = Demand { queues, kinds, jobs_max, wait: Duration::ZERO };
    let work = app.mill.work();
    let claim = app.patiently(wait, |wait| work.claim(id, Demand { wait, ..demand.clone() }));
    let claim = claim.await?;
    let (token, now) = (claim.token, claim.now);
    let jobs: Vec<_> = claim.hand_over().into_iter().map(assigned).collect();
    Ok(Json(Work { token: token.filter(|_| !jobs.is_empty()), now, jobs }))
}

async fn report(body: ReportBody, app: &App, caller: &Caller) -> Answer<Report> {
    let ReportBody { id, token, outcome, started_at, attempts, ambiguous_attempts, .. } = body;
    let (backoff, run) = (body.backoff, body.run);
    check_kept(&outcome, run.as_ref())?;
    let run = match run {
        Some(run) => Some(Box::new(journal::writes(run, app, caller, id).await?)),
        None => None,
    };
    let retry = attempts.map_or_else(Retry::default, Retry::attempts);
    let ambiguous_max = ambiguous_attempts.unwrap_or(retry.ambiguous_max);
    let backoff = backoff.map_or(retry.backoff, |BackoffText(backoff)| backoff);
    let retry = Retry { attempts_max: retry.attempts_max, ambiguous_max, backoff };
    Ok(Report { id, token, outcome: outcome_of(outcome, caller)?, retry, started_at, run })
}

/// Refuses what is kept of a run with an outcome that it does not go with.
fn check_kept(outcome: &OutcomeBody, run: Option<&RunBody>) -> Answer<()> {
    let Some(run) = run else { return Ok(()) };
    if run.renewal.is_some() && !matches!(outcome, OutcomeBody::Wait { .. }) {
        return Err(Refusal::request("a `renewal` goes with the outcome `wait` alone"));
    }
    if run.object.is_some() && !matches!(outcome, OutcomeBody::Done { .. }) {
        return Err(Refusal::request("an `object` goes with the outcome `done` alone"));
    }
    Ok(())
}

fn outcome_of(body: OutcomeBody, caller: &Caller) -> Answer<Outcome> {
    Ok(match body {
        OutcomeBody::Done { output, follow_ups, steps } => Outcome::Done {
            output: output.map_or_else(|| Ok(Payload::null()), |output| made(&output))?,
            follow_ups: enqueues(caller, follow_ups.all()?)?,
            steps: steps
                .into_iter()
                .map(|Step { name, jobs, nothing_to_undo }| {
                    Ok(AddedStep { name, jobs: enqueues(caller, jobs.all()?)?, nothing_to_undo })
                })
                .collect::<Answer<_>>()?,
        },
        OutcomeBody::Failed { class, message, retry_after } => {
            if matches!(class, ErrorClass::Lost | ErrorClass::Poison | ErrorClass::Expired) {
                let word = class.word();
                return Err(Refusal::request(format!(
                    "{word:?} is for the store to say; a handler's failure is transient, permanent, ambiguous, \
                         in_doubt or rate_limited"
                )));
            }
            Outcome::Failed { class, message, retry_after: retry_after.map(|Span(after)| after) }
        }
        OutcomeBody::Snooze { delay: Span(delay) } => Outcome::Snooze(delay),
        OutcomeBody::Cancel { reason } => Outcome::Cancel(reason),
        OutcomeBody::GiveBack {} => Outcome::GiveBack,
        OutcomeBody::Wait { until, mail_min, what, read, parked, parked_code, differs, anew } => {
            let waits = Waits { until, mail_min: mail_min as usize, what };
            let parked = Parked::told(parked_code, parked, differs);
            Outcome::Wait { waits, read, parked, anew }
        }
    })
}

/// What a handler made. Only the body bounds it: for a worker that has the store, nothing but its own choice does.
pub(crate) fn made(value: &RawValue) -> Answer<Payload> {
    let limits = Limits { payload_bytes_max: usize::MAX, ..Limits::default() };
    Ok(Payload::parse(value.get(), &limits)?)
}

/// Jobs that a worker brings.
pub(crate) fn enqueues(caller: &Caller, wishes: Vec<Wish>) -> Answer<Vec<Enqueue>> {
    let check = |mut wish: Wish| {
        caller.check_wish(&mut wish)?;
        Ok(caller.bound(Enqueue::try_from(wish)?))
    };
    let checked = wishes.into_iter().enumerate();
    checked.map(|(index, wish)| check(wish).map_err(|refusal: Refusal| refusal.at(index))).collect()
}

fn told(settled: Settled) -> SettledBody {
    match settled {
        Settled::Accepted => SettledBody::Accepted,
        Settled::Cancelled => SettledBody::Cancelled,
        Settled::Stale => SettledBody::Stale,
    }
}

/// How attempts ended, as it is read: [`Reports`], of which no more is kept than may be sent at once.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BoundedReports {
    reports: Bounded<ReportBody, REPORTS_MAX>,
}

/// Settles attempts, with all their consequences, in one transaction. Send it again when its answer was lost.
///
/// A report whose lease is lost is answered `stale` and changes nothing; if all are, the answer is 409.
#[utoipa::path(post, path = "/v1/workers/{id}/settle", operation_id = "settle_jobs", tag = "work",
    params(("id" = WorkerId, Path)), request_body = Reports,
    responses(
        (status = 200, body = Answers),
        (status = 404, body = Problem, content_type = "application/problem+json",
            description = "There is no webhook of the name that a job which comes with them asks to be told"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "All leases are lost"),
    ))]
async fn settle(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(worker): Named<WorkerId>,
    Body(BoundedReports { reports }): Body<BoundedReports>,
) -> Answer<Json<Answers>> {
    caller.check_worker(worker)?;
    let reports = reports.all()?;
    let first = reports.first().map(|report| report.id);
    let mut checked = Vec::with_capacity(reports.len());
    for (index, body) in reports.into_iter().enumerate() {
        let report = report(body, &app, &caller).await;
        checked.push(report.map_err(|refusal| refusal.at(index))?);
    }
    let reaches = |job: &Job| caller.reaches(&job.queue);
    let settled = app.mill.work().settle(worker, checked, reaches).await?;
    if let Some(id) = first
        && settled.iter().all(|one| *one == Settled::Stale)
    {
        return Err(Refusal::from(tidemill::Error::LeaseLost { id }).about(id));
    }
    Ok(Json(Answers { answers: settled.into_iter().map(told).collect() }))
}
