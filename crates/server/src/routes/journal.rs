//! What a worker reads and writes for a run of a workflow, and for a step of a flow: journal, mail, inputs.
//!
//! `docs/protocol.md` says how a worker in any language runs a workflow with these.

mod others;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidemill::Payload;
use tidemill::store::run::{Append, Keep, Renewal, RunWrites};
use tidemill::store::stream::{StreamAnswer, StreamItem};
use tidemill_core::flow::StepState;
use tidemill_core::span::Span;
use tidemill_core::wire::run::{
    AppendBody, KeepBody, MailAnswer, NumberedEntry, NumberedValue, RenewalBody, RunBody,
    SaidAnswer, SaidAnswers, SaidBody, SaidItem,
};
use tidemill_core::workflow::{Began, Content, Entry};
use tidemill_core::{FlowId, JobId, Limits, WorkerId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::access::Caller;
use crate::api::App;
use crate::cursor::{self, PAGE_MAX};
use crate::extract::{Body, Named, Names, Params};
use crate::problem::{Answer, Problem, Refusal};
use crate::routes::work::{enqueues, made};

use others::{has_whole, reached, show_beside, show_texts};
pub(crate) use others::{show_entries, show_inputs, show_mail};

/// Outputs of one page.
const PAGE_OUTPUTS: usize = 1000;
/// Objects and lists of an entry around what it carries: at most `{"joined":{"ends":[{"output":…}]}}`.
const ENTRY_DEPTH: usize = 4;

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(append))
        .routes(routes!(say))
        .routes(routes!(read))
        .routes(routes!(value))
        .routes(routes!(mail))
        .routes(routes!(inputs))
        .routes(routes!(outputs))
}

/// What the engine is to write for the run of this job.
pub(crate) async fn writes(
    body: RunBody,
    app: &App,
    caller: &Caller,
    job: JobId,
) -> Answer<RunWrites> {
    check_numbers("entry", body.entries.iter().map(|entry| entry.number))?;
    check_numbers("value", body.values.iter().map(|value| value.number))?;
    check_children(&body, app, caller, job).await?;
    let mut entries = Vec::with_capacity(body.entries.len());
    for NumberedEntry { number, entry } in body.entries {
        let about = |refusal: Refusal| refusal.within(&format!("entry {number}"));
        let entry = checked(entry, app, caller).await.and_then(|entry| text(&entry));
        entries.push((number, entry.map_err(about)?));
    }
    let values = body.values.into_iter();
    let values = values.map(|NumberedValue { number, value }| Ok((number, made(&value)?)));
    let answers =
        body.answers.into_iter().map(|MailAnswer { number, ending }| Ok((number, text(&ending)?)));
    let renewal = body.renewal.map(|RenewalBody { payload: anew, version, taken }| {
        let payload = Payload::parse(anew.get(), &Limits::default())?;
        Answer::Ok(Renewal { payload, version, taken })
    });
    let object = body.object.map(|keep| {
        Answer::Ok(match keep {
            KeepBody::This(state) => Keep::This(made(&state)?),
            KeepBody::Nothing => Keep::Nothing,
        })
    });
    let work = app.mill.work();
    let mut children = work.adopt(job, enqueues(caller, body.children.all()?)?)?;
    children.extend(work.check(enqueues(caller, body.starts.all()?)?)?);
    Ok(RunWrites {
        begins: body.begins,
        entries,
        values: values.collect::<Answer<_>>()?,
        forget: body.forget,
        state: body.state.map(|state| made(&state)).transpose()?,
        owes: body.owes,
        children,
        cancel: body.cancel,
        answers: answers.collect::<Answer<_>>()?,
        renewal: renewal.transpose()?,
        object: object.transpose()?,
    })
}

/// An entry or an ending as it is kept. What it carries is bounded as a payload is: whoever reads it goes as deep.
fn text(written: &impl Serialize) -> Answer<String> {
    let text = serde_json::to_string(written);
    let text = text.map_err(|e| Refusal::request(format!("an entry cannot be written: {e}")))?;
    Payload::check_depth(&text, Limits::default().payload_depth_max + ENTRY_DEPTH)?;
    Ok(text)
}

/// An entry as it may be written. The undo of a step becomes a job when nobody is there who could be told that it may
/// not be: so it is checked like one now.
async fn checked(mut entry: Entry, app: &App, caller: &Caller) -> Answer<Entry> {
    if let Entry::Began(Began { undo: Some(undo), .. }) = &mut entry {
        caller.check_queue(&undo.queue)?;
        caller.check_tenant(&mut undo.tenant)?;
        app.mill.work().check_undo(undo).await?;
    }
    Ok(entry)
}

/// Refuses to call off, now or when the run ends, what is neither the caller's nor a child of the run. What is not
/// there yet is started with this, or behind it.
async fn check_children(body: &RunBody, app: &App, caller: &Caller, run: JobId) -> Answer<()> {
    if !caller.is_limited() {
        return Ok(());
    }
    let mut named = body.cancel.clone();
    for NumberedEntry { entry, .. } in &body.entries {
        if let Entry::Started { ids, .. } = entry {
            named.extend(ids);
        }
    }
    for id in named {
        let view = app.mill.job(id).await?;
        if view.is_some_and(|view| !caller.sees(&view) && view.job.options.parent != Some(run)) {
            return Err(tidemill::Error::JobUnknown { id }.into());
        }
    }
    Ok(())
}

/// Refuses numbers of which a store could not say what stands under them, and when it comes.
fn check_numbers(what: &str, numbers: impl Iterator<Item = u32>) -> Answer<()> {
    let mut seen = BTreeSet::new();
    for number in numbers {
        if i32::try_from(number).is_err() {
            let most = i32::MAX;
            return Err(Refusal::request(format!("{what} {number}: numbers end at {most}")));
        }
        if !seen.insert(number) {
            return Err(Refusal::request(format!("{what} {number} is given twice")));
        }
    }
    Ok(())
}

/// Writes to the journal of a run, if the token still holds. Entries that are sent again are kept once.
#[utoipa::path(post, path = "/v1/workers/{id}/journal", operation_id = "append_journal", tag = "work",
    params(("id" = WorkerId, Path)), request_body = AppendBody,
    responses(
        (status = 204, description = "It is durable"),
        (status = 404, body = Problem, content_type = "application/problem+json",
            description = "There is no such job, or no webhook of the name that a child asks to be told"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "The lease is lost"),
    ))]
async fn append(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(worker): Named<WorkerId>,
    Body(AppendBody { id, token, writes }): Body<AppendBody>,
) -> Answer<StatusCode> {
    caller.check_worker(worker)?;
    caller.check_job(&app, id).await?;
    if writes.renewal.is_some() || writes.object.is_some() {
        return Err(Refusal::request("a renewal and an object are written with a settle alone"));
    }
    let writes = self::writes(writes, &app, &caller, id).await?;
    if app.mill.work().append(worker, Append { job: id, token, writes }).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Refusal::from(tidemill::Error::LeaseLost { id }).about(id))
}

/// Adds to the streams of jobs that a worker runs, each under its token, all in one transaction.
#[utoipa::path(post, path = "/v1/workers/{id}/stream", operation_id = "append_stream", tag = "work",
    params(("id" = WorkerId, Path)), request_body = SaidBody,
    responses(
        (status = 200, body = SaidAnswers),
        (status = 404, body = Problem, content_type = "application/problem+json",
            description = "A job is not there, or not the caller's"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "All leases are lost"),
    ))]
async fn say(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(worker): Named<WorkerId>,
    Body(SaidBody { items }): Body<SaidBody>,
) -> Answer<Json<SaidAnswers>> {
    if items.is_empty() || items.len() > tidemill::work::REPORTS_MAX {
        let most = tidemill::work::REPORTS_MAX;
        return Err(Refusal::request(format!("between 1 and {most} items are sent at once")));
    }
    caller.check_worker(worker)?;
    let first = items[0].id;
    for (index, item) in items.iter().enumerate() {
        caller.check_job(&app, item.id).await.map_err(|refusal| refusal.at(index))?;
    }
    let items = items.into_iter().map(|SaidItem { id, token, sent, said, ephemeral }| {
        let sent = sent.unwrap_or_else(Uuid::now_v7);
        StreamItem { job: id, token, sent, said, ephemeral }
    });
    let answers = app.mill.append_stream(worker, items.collect()).await?;
    let answer = |answer: StreamAnswer| match answer {
        StreamAnswer::Kept { .. } => SaidAnswer::Written,
        StreamAnswer::Stale => SaidAnswer::Stale,
        StreamAnswer::Full { .. } => SaidAnswer::Full,
    };
    let answers: Vec<_> = answers.into_iter().map(answer).collect();
    if answers.iter().all(|answer| *answer == SaidAnswer::Stale) {
        return Err(Refusal::from(tidemill::Error::LeaseLost { id: first }).about(first));
    }
    Ok(Json(SaidAnswers { answers }))
}

/// The journal of a run.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Journal {
    /// In order.
    entries: Vec<JournalEntry>,
    /// What else is kept of it: version, what it waits for, what it shows of itself.
    #[schema(value_type = Option<Object>)]
    run: Option<tidemill::RunView>,
}

/// An entry of a journal, as it was written.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct JournalEntry {
    number: u32,
    at: Timestamp,
    #[schema(value_type = Object)]
    entry: Payload,
}

/// The journal of a run, in order; empty for a job that is none.
#[utoipa::path(get, path = "/v1/jobs/{id}/journal", operation_id = "read_journal", tag = "work",
    params(("id" = JobId, Path)), responses((status = 200, body = Journal)))]
async fn read(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<JobId>,
) -> Answer<Json<Journal>> {
    known(&app, &caller, id).await?;
    let (mut rows, run) = app.mill.store().journal(id).await.map_err(tidemill::Error::from)?;
    let texts = rows.iter_mut().map(|row| &mut row.entry).collect();
    show_texts(&app, &caller, texts).await?;
    let entries = rows.into_iter().map(|row| JournalEntry {
        number: row.number,
        at: row.at,
        entry: Payload::trusted(row.entry),
    });
    Ok(Json(Journal { entries: entries.collect(), run }))
}

/// Refuses a job that is not there, or not the caller's.
async fn known(app: &App, caller: &Caller, id: JobId) -> Answer<tidemill::JobView> {
    let view = app.mill.job(id).await?.filter(|view| caller.sees(view));
    view.ok_or_else(|| tidemill::Error::JobUnknown { id }.into())
}

/// What stands beside an entry: the large result of a step.
#[utoipa::path(get, path = "/v1/jobs/{id}/journal/{number}", operation_id = "read_value", tag = "work",
    params(("id" = JobId, Path), ("number" = u32, Path)), responses((status = 200, body = serde_json::Value)))]
async fn value(
    State(app): State<Arc<App>>,
    caller: Caller,
    Names((id, number)): Names<(JobId, u32)>,
) -> Answer<Json<Payload>> {
    known(&app, &caller, id).await?;
    let value = app.mill.store().value(id, number).await.map_err(tidemill::Error::from)?;
    let missing = || {
        let detail = format!("nothing stands beside entry {number} of job {id}");
        Refusal::new(StatusCode::NOT_FOUND, "value_unknown", detail).about(id)
    };
    let value = value.ok_or_else(missing)?;
    Ok(Json(show_beside(&app, &caller, value).await?))
}

/// From where on mail is read.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Since {
    /// Only mail with larger numbers: the `next` of the page before.
    #[serde(default)]
    after: i64,
    /// At most this many, 1,000 unless given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// How long to wait until there is some; not at all when not given.
    #[param(value_type = Option<String>, example = "10s")]
    wait: Option<Span>,
}

/// A piece of mail: a signal, an update, or the end of a child.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Piece {
    number: i64,
    at: Timestamp,
    #[schema(value_type = Object)]
    content: Content,
}

/// A page of the mail of a run, in order.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Mailbox {
    mail: Vec<Piece>,
    /// What to ask for as `after` for what follows; without it nothing follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<i64>,
}

/// A page of the mail of a run after a number, in order: at once, or as soon as there is some within the wait.
#[utoipa::path(get, path = "/v1/jobs/{id}/mail", operation_id = "read_mail", tag = "work",
    params(("id" = JobId, Path), Since), responses((status = 200, body = Mailbox)))]
async fn mail(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<JobId>,
    Params(Since { after, limit, wait }): Params<Since>,
) -> Answer<Json<Mailbox>> {
    known(&app, &caller, id).await?;
    let (work, limit) = (app.mill.work(), cursor::rows(limit.or(Some(PAGE_MAX)))?);
    let mut page = app.patiently(wait, |wait| work.mail(id, after, limit, wait)).await?;
    let came = page.mail.iter_mut().map(|mail| &mut mail.content).collect();
    show_mail(&app, &caller, came).await?;
    let piece = |mail: tidemill_core::workflow::Mail| Piece {
        number: mail.number,
        at: mail.at,
        content: mail.content,
    };
    let (mail, next) = (page.mail.into_iter().map(piece).collect(), page.next);
    Ok(Json(Mailbox { mail, next }))
}

/// What the steps returned that the job's step comes after.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Inputs {
    inputs: Vec<InputBody>,
}

/// A step that the job's step comes after.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct InputBody {
    /// Its name.
    step: String,
    /// Its number in the flow.
    number: u32,
    /// Where it stands.
    state: StepState,
    /// How many jobs it has.
    jobs: u64,
    /// How many are done.
    done: u64,
    /// How many are dead or were called off.
    failed: u64,
    /// What its only job returned, if that is small; else read its outputs. Not what is out of the credential's reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    output: Option<Payload>,
}

/// What the steps returned that this job's step comes after; none outside of flows.
#[utoipa::path(get, path = "/v1/jobs/{id}/inputs", operation_id = "read_inputs", tag = "work",
    params(("id" = JobId, Path)), responses((status = 200, body = Inputs)))]
async fn inputs(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<JobId>,
) -> Answer<Json<Inputs>> {
    let (_, inputs) = inputs_of(&app, &caller, id).await?;
    let input = |input: tidemill::Input| InputBody {
        step: input.step,
        number: input.number,
        state: input.state,
        jobs: input.jobs,
        done: input.done,
        failed: input.failed,
        output: input.output,
    };
    Ok(Json(Inputs { inputs: inputs.into_iter().map(input).collect() }))
}

/// The flow of a job, and what its step comes after.
async fn inputs_of(
    app: &App,
    caller: &Caller,
    id: JobId,
) -> Answer<(Option<FlowId>, Vec<tidemill::Input>)> {
    let view = known(app, caller, id).await?;
    let place = view.job.options.flow.as_deref();
    let Some(joins) = place.filter(|place| place.joins) else {
        return Ok((place.map(|place| place.id), Vec::new()));
    };
    let store = app.mill.store();
    let inputs = store.inputs(&[(joins.id, joins.step)]).await.map_err(tidemill::Error::from)?;
    let mut inputs = inputs.into_iter().next().unwrap_or_default();
    show_inputs(app, caller, joins.id, &mut inputs).await?;
    Ok((Some(joins.id), inputs))
}

/// From where on outputs are read.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AfterJob {
    /// The last one of the page before.
    after: Option<JobId>,
}

/// A page of what the jobs of a step returned.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Outputs {
    /// By id, at most 1,000.
    outputs: Vec<OutputBody>,
}

/// What one job returned.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct OutputBody {
    id: JobId,
    /// None when it is dead or was called off, and when it is out of the credential's reach.
    #[schema(value_type = Option<serde_json::Value>)]
    output: Option<Payload>,
}

/// What the jobs of a step returned that this job's step comes after.
#[utoipa::path(get, path = "/v1/jobs/{id}/inputs/{step}", operation_id = "read_outputs", tag = "work",
    params(("id" = JobId, Path), ("step" = String, Path), AfterJob), responses((status = 200, body = Outputs)))]
async fn outputs(
    State(app): State<Arc<App>>,
    caller: Caller,
    Names((id, step)): Names<(JobId, String)>,
    Params(AfterJob { after }): Params<AfterJob>,
) -> Answer<Json<Outputs>> {
    let (flow, inputs) = inputs_of(&app, &caller, id).await?;
    let found = inputs.iter().find(|input| input.step == step);
    let (Some(flow), Some(input)) = (flow, found) else {
        let detail = format!("the job {id} does not come after a step {step:?}");
        return Err(Refusal::new(StatusCode::NOT_FOUND, "step_unknown", detail).about(id));
    };
    let store = app.mill.store();
    let outputs = store.outputs(flow, input.number, after, PAGE_OUTPUTS).await;
    let mut outputs = outputs.map_err(tidemill::Error::from)?;
    if !has_whole(&app, &caller, flow).await? {
        let ids = outputs.iter().map(|one| one.id).collect();
        let reached = reached(&app, &caller, ids).await?;
        for one in outputs.iter_mut().filter(|one| !reached.contains(&one.id)) {
            one.output = None;
        }
    }
    let output = |one: tidemill::Output| OutputBody { id: one.id, output: one.output };
    Ok(Json(Outputs { outputs: outputs.into_iter().map(output).collect() }))
}
