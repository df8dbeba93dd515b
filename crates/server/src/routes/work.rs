//! What a worker in any language does: register, beat, claim, settle, sign off.
//!
//! A token proves a lease. What carries one that holds no more changes nothing, and is told so.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidemill::work::{Demand, Given, Hand, Outcome, Report};
use tidemill::{Enqueue, Payload};
use tidemill_core::retry::text::BackoffText;
use tidemill_core::span::Span;
use tidemill_core::workflow::{Parked, Waits};
use tidemill_core::{ErrorClass, Job, JobId, Limits, Retry, Token, Wish, WorkerId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::api::App;
use crate::extract::{Body, Named};
use crate::problem::{Answer, Problem, Refusal};
use crate::routes::journal::RunBody;

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(register))
        .routes(routes!(sign_off))
        .routes(routes!(beat))
        .routes(routes!(claim))
        .routes(routes!(settle))
}

/// A worker, as it introduces itself.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Card {
    /// For people: host and process.
    name: String,
    /// The queues it will take from, by name or pattern (`mail:*`).
    queues: Vec<String>,
    /// The kinds it knows; none means all.
    #[serde(default)]
    kinds: Vec<String>,
    /// How many jobs it runs at once.
    #[serde(default = "one")]
    slots: u32,
    /// How long after its last beat it is given up: between 1s and 1h, 6s when not given.
    #[serde(default)]
    lease: Option<Span>,
}

fn one() -> u32 {
    1
}

/// A worker that is registered.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Registered {
    /// This run of it. A worker that was given up registers anew, and is another one.
    id: WorkerId,
}

/// Registers a worker. From now on it beats, at least three times within its lease, or its jobs go to others.
#[utoipa::path(post, path = "/v1/workers", operation_id = "register_worker", tag = "work", request_body = Card,
    responses((status = 201, body = Registered)))]
async fn register(
    State(app): State<Arc<App>>,
    caller: Caller,
    Body(card): Body<Card>,
) -> Answer<(StatusCode, Json<Registered>)> {
    let Card { name, queues, kinds, slots, lease } = card;
    check_reach(&caller, &queues)?;
    let lease_ttl = lease.map(|Span(lease)| lease);
    let id = app.mill.work().register(Hand { name, queues, kinds, slots, lease_ttl }).await?;
    Ok((StatusCode::CREATED, Json(Registered { id })))
}

/// Workers serve all tenants of a queue.
fn check_reach(caller: &Caller, queues: &[String]) -> Answer<()> {
    caller.check_all_tenants()?;
    queues.iter().try_for_each(|queue| caller.check_queue(queue))
}

/// How many jobs were given back.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct SignedOff {
    given_back: u64,
}

/// Signs a worker off. Jobs it still has are ready again at once, no attempt spent.
#[utoipa::path(delete, path = "/v1/workers/{id}", operation_id = "sign_off_worker", tag = "work",
    params(("id" = WorkerId, Path)), responses((status = 200, body = SignedOff)))]
async fn sign_off(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<WorkerId>,
) -> Answer<Json<SignedOff>> {
    caller.check_all_tenants()?;
    let rescued = app.mill.work().sign_off(id).await?;
    Ok(Json(SignedOff { given_back: rescued.ready }))
}

/// A heartbeat.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Pulse {
    /// It beats after this time, or as soon as a job of it is called off; at once when not given.
    #[serde(default)]
    wait: Option<Span>,
    /// All tokens it has. What was claimed for it a minute ago under others was lost on its way, and is given back.
    #[serde(default)]
    tokens: Option<Vec<Token>>,
}

/// What a heartbeat brings back.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Beaten {
    /// Jobs it runs that were called off: end them and settle.
    cancelled: Vec<JobId>,
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
    caller.check_all_tenants()?;
    let wait = wait.map_or(Duration::ZERO, |Span(wait)| wait.min(app.settings.wait_max));
    let cancelled = app.mill.work().beat(id, wait, tokens.as_deref()).await?;
    Ok(Json(Beaten { cancelled }))
}

/// A wish for work.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Ask {
    /// The queues to take from, by name or pattern (`mail:*`).
    queues: Vec<String>,
    /// Only these kinds; none means all.
    #[serde(default)]
    kinds: Vec<String>,
    /// At most this many: the free slots. 1 when not given, at most 500.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 500)]
    jobs_max: u32,
    /// How long to wait for something; not at all when not given.
    #[serde(default)]
    wait: Option<Span>,
}

/// Jobs that a worker has from now on.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Work {
    /// Proves the lease on all of them; none when there are no jobs.
    token: Option<Token>,
    /// The store's present.
    now: Timestamp,
    jobs: Vec<Assigned>,
}

/// A job to run.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Assigned {
    #[serde(flatten)]
    job: Job,
    /// The number of this attempt; the first is 1.
    attempt: u16,
    /// How often it lost its worker.
    lost: u16,
    /// How long the attempt may run, if the job or its queue says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_timeout_ms: Option<u64>,
    /// A journal or mail is kept for it: read that before you run it.
    has_run: bool,
}

impl From<Given> for Assigned {
    fn from(Given { claimed, run_timeout }: Given) -> Self {
        let run_timeout_ms = run_timeout.map(|time| time.as_millis() as u64);
        let (attempt, lost, has_run) = (claimed.attempt, claimed.lost, claimed.has_run);
        let job = Arc::unwrap_or_clone(claimed.job);
        Self { job, attempt, lost, run_timeout_ms, has_run }
    }
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
    check_reach(&caller, &queues)?;
    let jobs_max = usize::try_from(jobs_max).unwrap_or(usize::MAX);
    if !(1..=tidemill::work::CLAIM_JOBS_MAX).contains(&jobs_max) {
        let most = tidemill::work::CLAIM_JOBS_MAX;
        return Err(Refusal::request(format!("a claim takes between 1 and {most} jobs")));
    }
    let wait = wait.map_or(Duration::ZERO, |Span(wait)| wait.min(app.settings.wait_max));
    let claim = app.mill.work().claim(id, Demand { queues, kinds, jobs_max, wait }).await?;
    let (token, now) = (claim.token, claim.now);
    let jobs: Vec<_> = claim.hand_over().into_iter().map(Assigned::from).collect();
    Ok(Json(Work { token: token.filter(|_| !jobs.is_empty()), now, jobs }))
}

/// How attempts ended.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Reports {
    /// At most 1,000.
    reports: Vec<ReportBody>,
}

/// How one attempt ended.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct ReportBody {
    id: JobId,
    /// The token of its claim.
    token: Token,
    outcome: OutcomeBody,
    /// When it started, by the worker's clock; for the history only.
    #[serde(default)]
    started_at: Option<Timestamp>,
    /// Attempts in all, where neither the job nor its queue says.
    #[serde(default)]
    attempts: Option<u16>,
    /// The delay between attempts, where neither the job nor its queue says.
    #[serde(default)]
    backoff: Option<BackoffText>,
    /// What its run wants written with it.
    #[serde(default)]
    run: Option<RunBody>,
}

/// What a handler says.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum OutcomeBody {
    /// It is done.
    Done {
        /// What it returned; `null` when not given.
        #[serde(default)]
        #[schema(value_type = Option<serde_json::Value>)]
        output: Option<Box<RawValue>>,
        /// Jobs that are enqueued in the same transaction.
        #[serde(default)]
        follow_ups: Vec<Wish>,
        /// Steps that are added to the job's flow in the same transaction.
        #[serde(default)]
        steps: Vec<Step>,
    },
    /// It failed; the class decides whether it runs again.
    Failed {
        /// `transient` when not given.
        #[serde(default = "transient")]
        class: ErrorClass,
        message: String,
        /// When to try again, before the policy's delay.
        #[serde(default)]
        retry_after: Option<Span>,
    },
    /// It wants to be called again later; no attempt is spent.
    Snooze { delay: Span },
    /// It is called off.
    Cancel { reason: String },
    /// It was not begun, or cannot go on here: ready again, no attempt spent.
    GiveBack {},
    /// Its run waits: for the clock, or for mail.
    Wait {
        /// The first moment at which something is due.
        #[serde(default)]
        until: Option<Timestamp>,
        /// New mail is of use from so many pieces on; 0: mail is of no use.
        #[serde(default)]
        mail_min: u32,
        /// What is waited for, in words.
        #[serde(default)]
        what: Vec<String>,
        /// The number of the last piece of mail it has read.
        #[serde(default)]
        read: i64,
        /// Why it does not go on by itself: its code differs from its journal.
        #[serde(default)]
        parked: Option<String>,
        /// It continues anew, with an empty journal.
        #[serde(default)]
        anew: bool,
    },
}

fn transient() -> ErrorClass {
    ErrorClass::Transient
}

/// Jobs that are added to a flow.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Step {
    /// Its name; if it is taken, it gets a number.
    name: String,
    jobs: Vec<Wish>,
}

impl ReportBody {
    fn of(self, app: &App, caller: &Caller) -> Answer<Report> {
        let Self { id, token, outcome, started_at, attempts, backoff, run } = self;
        let run = run.map(|run| run.of(app, caller, id)).transpose()?.map(Box::new);
        let retry = attempts.map_or_else(Retry::default, Retry::attempts);
        let retry = backoff.map_or(retry.clone(), |BackoffText(backoff)| retry.backoff(backoff));
        Ok(Report { id, token, outcome: outcome.of(caller)?, retry, started_at, run })
    }
}

impl OutcomeBody {
    fn of(self, caller: &Caller) -> Answer<Outcome> {
        Ok(match self {
            Self::Done { output, follow_ups, steps } => Outcome::Done {
                output: payload(output)?,
                follow_ups: enqueues(caller, follow_ups)?,
                steps: steps
                    .into_iter()
                    .map(|step| Ok((step.name, enqueues(caller, step.jobs)?)))
                    .collect::<Answer<_>>()?,
            },
            Self::Failed { class, message, retry_after } => {
                if matches!(class, ErrorClass::Lost | ErrorClass::Poison | ErrorClass::Expired) {
                    let word = class.word();
                    return Err(Refusal::request(format!(
                        "{word:?} is for the store to say; a handler's failure is transient, permanent, ambiguous or \
                         rate_limited"
                    )));
                }
                Outcome::Failed {
                    class,
                    message,
                    retry_after: retry_after.map(|Span(after)| after),
                }
            }
            Self::Snooze { delay: Span(delay) } => Outcome::Snooze(delay),
            Self::Cancel { reason } => Outcome::Cancel(reason),
            Self::GiveBack {} => Outcome::GiveBack,
            Self::Wait { until, mail_min, what, read, parked, anew } => {
                let waits = Waits { until, mail_min: mail_min as usize, what };
                Outcome::Wait { waits, read, parked: parked.map(Parked::from), anew }
            }
        })
    }
}

/// A value that was given, or `null`.
pub(crate) fn payload(value: Option<Box<RawValue>>) -> Answer<Payload> {
    Ok(match value {
        Some(value) => Payload::parse(value.get(), &Limits::default())?,
        None => Payload::null(),
    })
}

/// Jobs that a worker brings.
pub(crate) fn enqueues(caller: &Caller, wishes: Vec<Wish>) -> Answer<Vec<Enqueue>> {
    let checked = wishes.into_iter().map(|mut wish| {
        caller.check_wish(&mut wish)?;
        Ok(Enqueue::try_from(wish)?)
    });
    checked.collect()
}

/// What became of the reports, in their order.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Answers {
    answers: Vec<SettledBody>,
}

/// What became of one report.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
enum SettledBody {
    /// It is durable; also when it was settled by the same token before.
    Accepted,
    /// It would have run again, but was called off meanwhile.
    Cancelled,
    /// The lease was lost: nothing was written.
    Stale,
}

impl From<tidemill::store::Settled> for SettledBody {
    fn from(settled: tidemill::store::Settled) -> Self {
        use tidemill::store::Settled;
        match settled {
            Settled::Accepted => Self::Accepted,
            Settled::Cancelled => Self::Cancelled,
            Settled::Stale => Self::Stale,
        }
    }
}

/// Settles attempts, with all their consequences, in one transaction. Send it again when its answer was lost.
///
/// A report whose lease is lost is answered `stale` and changes nothing; if all are, the answer is 409.
#[utoipa::path(post, path = "/v1/workers/{id}/settle", operation_id = "settle_jobs", tag = "work",
    params(("id" = WorkerId, Path)), request_body = Reports,
    responses(
        (status = 200, body = Answers),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "All leases are lost"),
    ))]
async fn settle(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(worker): Named<WorkerId>,
    Body(Reports { reports }): Body<Reports>,
) -> Answer<Json<Answers>> {
    caller.check_all_tenants()?;
    let first = reports.first().map(|report| report.id);
    let reports = reports.into_iter().enumerate().map(|(index, report)| {
        let report = report.of(&app, &caller);
        report.map_err(|refusal| refusal.at(index))
    });
    let reports: Vec<Report> = reports.collect::<Answer<_>>()?;
    let reaches = |job: &Job| caller.reaches(&job.queue);
    let settled = app.mill.work().settle(worker, reports, reaches).await?;
    if let Some(id) = first
        && settled.iter().all(|one| *one == tidemill::store::Settled::Stale)
    {
        return Err(Refusal::from(tidemill::Error::LeaseLost { id }).about(id));
    }
    Ok(Json(Answers { answers: settled.into_iter().map(SettledBody::from).collect() }))
}
