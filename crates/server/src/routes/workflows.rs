//! Runs of workflows: list, look, export, ask for an answer, and help one that is stuck. A run is a job, and is reached
//! as its job is; signals are sent to the job.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use tidemill::{CancelAnswer, ForkAs, ObjectKey, RunActView, RunFilter, RunView, Signal};
use tidemill_core::access::Act;
use tidemill_core::span::Span;
use tidemill_core::{JobId, State as JobState};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::access::Caller;
use crate::api::App;
use crate::audit::{Detail, detail};
use crate::cursor;
use crate::extract::{Body, Named, Params};
use crate::hidden::Whole;
use crate::prefer::Patience;
use crate::problem::{Answer, Problem, Refusal};
use crate::routes::journal;

const LIST: &str = "runs";

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(history))
        .routes(routes!(acts, act))
        .routes(routes!(update))
        .routes(routes!(object))
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Filter {
    kind: Option<String>,
    /// Those whose code differs from their journal.
    #[serde(default)]
    parked: bool,
    /// Those that have not finished.
    #[serde(default)]
    unfinished: bool,
    /// The `next` of the page before.
    cursor: Option<String>,
    /// At most this many, 50 unless given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// A run, and where its job stands.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Run {
    #[serde(flatten)]
    view: RunView,
    kind: String,
    job_state: JobState,
}

/// A page of runs, newest first.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct RunPage {
    runs: Vec<Run>,
    /// What to give as `cursor` for what follows, also where this page is not full; absent when nothing follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Runs of workflows, newest first.
#[utoipa::path(get, path = "/v1/workflows", operation_id = "list_runs", tag = "workflows", params(Filter),
    responses((status = 200, body = RunPage)))]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(Filter { kind, parked, unfinished, cursor, limit }): Params<Filter>,
) -> Answer<Json<RunPage>> {
    let limit = cursor::rows(limit)?;
    let before = cursor::read_id(LIST, cursor.as_deref())?;
    let found = app.mill.runs(&RunFilter { kind, parked, unfinished, before, limit }).await?;
    let last = found.last().filter(|_| found.len() == limit);
    let next = last.map(|last| cursor::write(LIST, &last.job.to_string()));
    let mut runs = Vec::with_capacity(found.len());
    for run in found {
        let view = app.mill.job(run.job).await?.filter(|view| caller.sees(view));
        runs.extend(view.map(|job| Run { view: run, kind: job.job.kind, job_state: job.state }));
    }
    Ok(Json(RunPage { runs, next }))
}

/// A run: what it waits for, what it shows of itself, and why it does not go on.
#[utoipa::path(get, path = "/v1/workflows/{id}", operation_id = "show_run", tag = "workflows",
    params(("id" = JobId, Path)), responses((status = 200, body = Run)))]
async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<JobId>,
) -> Answer<Json<Run>> {
    let job = app.mill.job(id).await?.filter(|view| caller.sees(view));
    let job = job.ok_or(tidemill::Error::JobUnknown { id })?;
    let view = app.mill.run(id).await?.ok_or(tidemill::Error::RunUnknown { id })?;
    Ok(Json(Run { view, kind: job.job.kind, job_state: job.state }))
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Export {
    /// With what this server hides, for a replay: only for those who may work, unless nothing is hidden.
    #[serde(default)]
    whole: bool,
}

/// Everything that the code of a run saw, in order: its journal and its mail. A fixture for tests of the workflow.
#[utoipa::path(get, path = "/v1/workflows/{id}/history", operation_id = "run_history", tag = "workflows",
    params(("id" = JobId, Path), Export), responses((status = 200, body = serde_json::Value)))]
async fn history(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<JobId>,
    Params(Export { whole }): Params<Export>,
) -> Answer<(Option<Extension<Whole>>, Json<tidemill::History>)> {
    caller.check_job(&app, id).await?;
    // Code that is led along a history with a mark in it would be said to differ from what it follows.
    if whole && !app.mill.hidden().is_empty() {
        caller.check_act(Act::Work)?;
    }
    let mut history = app.mill.history(id).await?;
    if let Some(place) = &history.job.options.flow {
        journal::show_inputs(&app, &caller, place.id, &mut history.inputs).await?;
    }
    let entries = history.journal.iter_mut().map(|recorded| &mut recorded.entry).collect();
    journal::show_entries(&app, &caller, entries).await?;
    let mail = history.mail.iter_mut().map(|mail| &mut mail.content).collect();
    journal::show_mail(&app, &caller, mail).await?;
    Ok((whole.then_some(Extension(Whole)), Json(history)))
}

/// What was done with a run from outside, in order: who, when, why.
#[utoipa::path(get, path = "/v1/workflows/{id}/acts", operation_id = "list_run_acts", tag = "workflows",
    params(("id" = JobId, Path)), responses((status = 200, body = Vec<RunActView>)))]
async fn acts(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<JobId>,
) -> Answer<Json<Vec<RunActView>>> {
    caller.check_job(&app, id).await?;
    app.mill.run(id).await?.ok_or(tidemill::Error::RunUnknown { id })?;
    Ok(Json(app.mill.run_acts(id).await?))
}

/// What may be done with a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
enum Word {
    /// It goes no further than where it waits next.
    Pause,
    /// It goes on, whether it was paused or parked; with `journal_entries_max` its journal may be longer from now on.
    Resume,
    /// It forgets what it did from `step` on, and goes on from there.
    Reset,
    /// A new run goes on from `step` of it; with `instead` it is called off itself.
    Fork,
    /// A step that is stuck is to have returned `output`; a signal that was taken is passed over.
    Skip,
    /// A step that is stuck is to have failed for good, with `message`.
    Fail,
    /// A step that has ended is to have returned `output`, or a signal that was taken to carry it; what came after is
    /// forgotten.
    Edit,
    /// It is called off, and what it did is undone.
    Cancel,
}

impl Word {
    fn word(self) -> &'static str {
        ["pause", "resume", "reset", "fork", "skip", "fail", "edit", "cancel"][self as usize]
    }
}

/// What is given is given, also if it is null.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

/// An act on a run, with who wants it and why kept.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct RunAct {
    act: Word,
    /// Which step, by its key.
    #[serde(default)]
    step: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    output: Option<Box<RawValue>>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    instead: bool,
    /// How many entries the journal may have from now on.
    #[serde(default)]
    #[schema(minimum = 100_000, maximum = 1_000_000)]
    journal_entries_max: Option<u32>,
    /// Why; kept with the act.
    #[serde(default)]
    why: String,
}

impl RunAct {
    fn step(&self) -> Answer<&str> {
        let missing = || Refusal::request("this act is on a step; give `step`");
        self.step.as_deref().ok_or_else(missing)
    }

    fn output(&self) -> Answer<&RawValue> {
        let missing = "this act says what a step returned; give `output`, also if it is null";
        self.output.as_deref().ok_or_else(|| Refusal::request(missing))
    }

    /// What the record says of it.
    fn words(&self) -> String {
        let step = self.step.as_ref().map(|step| format!(" {step:?}")).unwrap_or_default();
        let why = if self.why.is_empty() { String::new() } else { format!(": {}", self.why) };
        format!("{}{step}{why}", self.act.word())
    }
}

/// What came of an act on a run.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct RunActed {
    /// The new run of a fork.
    #[serde(skip_serializing_if = "Option::is_none")]
    fork: Option<JobId>,
    /// What became of a cancel.
    #[serde(skip_serializing_if = "Option::is_none")]
    cancel: Option<CancelAnswer>,
}

/// Acts on a run: pause, resume, reset, fork, skip, fail, edit or cancel.
#[utoipa::path(post, path = "/v1/workflows/{id}/acts", operation_id = "act_on_run", tag = "workflows",
    params(("id" = JobId, Path)), request_body = RunAct, responses(
        (status = 200, body = RunActed),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It cannot now"),
    ))]
async fn act(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<JobId>,
    Body(act): Body<RunAct>,
) -> Answer<(Extension<Detail>, Json<RunActed>)> {
    caller.check_job(&app, id).await?;
    let (mill, by, why) = (&app.mill, caller.name(), act.why.as_str());
    let (mut fork, mut cancel) = (None, None);
    match act.act {
        Word::Pause => mill.pause_run(id, by, why).await?,
        Word::Resume => match act.journal_entries_max {
            Some(entries) => mill.resume_run_with_journal(id, entries, by, why).await?,
            None => mill.resume_run(id, by, why).await?,
        },
        Word::Reset => mill.reset_run(id, act.step()?, by, why).await?,
        Word::Fork => {
            let kept = if act.instead { ForkAs::Instead } else { ForkAs::Beside };
            fork = Some(mill.fork_run(id, act.step()?, kept, by, why).await?);
        }
        Word::Skip => mill.skip_step(id, act.step()?, &act.output, by, why).await?,
        Word::Fail => {
            let message = act.message.as_deref().unwrap_or("failed by an operator");
            mill.fail_step(id, act.step()?, message, by, why).await?;
        }
        Word::Edit => mill.edit_step(id, act.step()?, act.output()?, by, why).await?,
        Word::Cancel => cancel = Some(mill.cancel_run(id, by, why).await?),
    }
    Ok((detail(act.words()), Json(RunActed { fork, cancel })))
}

/// A message to a run that asks for an answer.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Question {
    /// What the run offers.
    name: String,
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// Sent again under the same id, it is heard once, and the answer is the same. Without one, each request is an
    /// update of its own: one that is sent again after a lost answer is done twice.
    #[serde(default)]
    id: Option<String>,
    /// How long to wait for the answer, `30s` unless given.
    #[serde(default)]
    timeout: Option<Span>,
}

/// What a run answered.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct RunReply {
    #[schema(value_type = serde_json::Value)]
    answer: Box<RawValue>,
}

/// Sends a message to a run, and waits for what it answers.
///
/// Give it an `id`: then it can be sent again when no answer came, and is done once.
#[utoipa::path(post, path = "/v1/workflows/{id}/update", operation_id = "update_run", tag = "workflows",
    params(("id" = JobId, Path)), request_body = Question, responses(
        (status = 200, body = RunReply),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It has finished"),
        (status = 422, body = Problem, content_type = "application/problem+json", description = "It refused"),
        (status = 429, body = Problem, content_type = "application/problem+json",
            description = "It has not taken those it was sent before"),
        (status = 504, body = Problem, content_type = "application/problem+json", description = "It took too long"),
    ))]
async fn update(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(run): Named<JobId>,
    Body(Question { name, payload, id, timeout }): Body<Question>,
) -> Answer<Json<RunReply>> {
    caller.check_job(&app, run).await?;
    // It may be asked twice below, and is one update.
    let id = id.unwrap_or_else(|| Uuid::now_v7().to_string());
    let signal = Signal::new(name, &payload).id(id.clone());
    let timeout = Patience { timeout }.time(&app.settings);
    let ask = |timeout| app.mill.update(run, signal.clone(), timeout);
    match app.patiently(Some(Span(timeout)), ask).await {
        Ok(answer) => Ok(Json(RunReply { answer })),
        Err(error @ tidemill::Error::UpdateRefused { .. }) => {
            let (status, code) = (StatusCode::UNPROCESSABLE_ENTITY, "update_refused");
            Err(Refusal::new(status, code, error.to_string()).about(run))
        }
        Err(error @ tidemill::Error::WaitTimeout { .. }) => {
            let detail = format!(
                "the run has not answered in time, and will find the update in its mailbox; send it again under the id \
                 {id:?} to have the answer"
            );
            let refusal = Refusal::new(StatusCode::GATEWAY_TIMEOUT, error.code(), detail);
            Err(refusal.about(run).may_be_done())
        }
        // It may be sent by then.
        Err(error) => Err(Refusal::from(error).after_write()),
    }
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct OfKey {
    /// The key of the object.
    key: String,
    /// The tenant of its jobs. By default that of the credential, or none.
    tenant: Option<String>,
}

/// What an object is.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Object {
    #[schema(value_type = serde_json::Value)]
    state: Box<RawValue>,
}

/// What an object is: what jobs of one name (their queue), tenant and key keep between them.
#[utoipa::path(get, path = "/v1/objects/{name}", operation_id = "show_object", tag = "workflows",
    params(("name" = String, Path), OfKey), responses(
        (status = 200, body = Object),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is none"),
    ))]
async fn object(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
    Params(OfKey { key, mut tenant }): Params<OfKey>,
) -> Answer<Json<Object>> {
    caller.check_queue(&name)?;
    caller.check_tenant(&mut tenant)?;
    let meant = ObjectKey::new(&key).tenant(tenant.as_deref());
    let state = app.mill.object(&name, meant).await?.ok_or_else(|| {
        let detail = format!("there is no object {name}/{key}");
        Refusal::new(StatusCode::NOT_FOUND, "object_unknown", detail)
    })?;
    Ok(Json(Object { state }))
}
