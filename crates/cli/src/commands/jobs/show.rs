//! `tidemill jobs show ID`: everything that is kept of a job.

use std::time::Duration;

use comfy_table::Cell;
use serde::Serialize;
use tidemill::{JobId, JobView, Progress, Timestamp};
use tidemill_store::view::AttemptView;

use crate::app::App;
use crate::duration::{relative, short};
use crate::exit::{Exit, Outcome};
use crate::mill::Mill;
use crate::output::{self, Paint, line};
use crate::pretty::pretty;

/// Shows the job.
pub async fn run(app: &App, id: JobId) -> Outcome {
    let mill = app.open_existing().await?;
    let (view, attempts) = find(&mill, id).await?;
    let now = mill.now().await?;
    mill.close().await;
    if app.json {
        output::json(&Shown { job: &view, attempts: &attempts });
    } else {
        facts(&view, now);
        sections(&view, &attempts);
    }
    Ok(Exit::Ok)
}

/// Everything in one document, written straight so that large numbers stay exact.
#[derive(Serialize)]
struct Shown<'a> {
    job: &'a JobView,
    attempts: &'a [AttemptView],
}

/// The job and its attempts.
pub async fn find(mill: &Mill, id: JobId) -> Outcome<(JobView, Vec<AttemptView>)> {
    let view = mill.job(id).await?.ok_or(tidemill::Error::JobUnknown { id })?;
    Ok((view, mill.attempts(id).await?))
}

/// What is known of the job, a fact on each line, only those that are there.
fn facts(view: &JobView, now: Timestamp) {
    let job = &view.job;
    let moment = |at: Timestamp| format!("{at:.3}  ({})", relative(at, now));
    let span = |ms: u64| short(Duration::from_millis(ms)).to_string();
    let options = &job.options;
    let state = match (view.cancel_requested, view.state.is_final()) {
        (true, false) => format!("{}, called off", view.state.word()),
        _ => view.state.word().to_owned(),
    };
    let facts = [
        ("id", Some(job.id.to_string())),
        ("kind", Some(job.kind.clone())),
        ("queue", Some(job.queue.clone())),
        ("priority", Some(job.priority.word().to_owned())),
        ("state", Some(state)),
        ("attempts", Some(view.attempt.to_string())),
        ("progress", view.progress.as_ref().map(progress)),
        ("lost workers", (view.lost > 0).then(|| view.lost.to_string())),
        ("created", Some(moment(job.created_at))),
        ("due", view.due_at.map(moment)),
        ("finished", view.finished_at.map(moment)),
        ("kept", view.bare.then(|| "its result alone, while its unique key is held".to_owned())),
        ("tenant", job.tenant.clone()),
        ("flow", options.flow.as_ref().map(|place| format!("{}, step {}", place.id, place.name))),
        ("key", job.key.clone()),
        ("unique key", job.shown_unique_key()),
        ("tags", (!options.tags.is_empty()).then(|| options.tags.join(" "))),
        ("retry", options.retry.as_ref().and_then(|retry| serde_json::to_string(retry).ok())),
        ("run timeout", options.run_timeout_ms.map(span)),
        ("start within", options.start_within_ms.map(span)),
        ("finish within", options.finish_within_ms.map(span)),
        ("retain", options.retain_ms.map(span)),
        ("trace", options.trace.clone()),
        ("worker", view.worker.map(|worker| worker.to_string())),
        ("token", view.token.map(|token| token.to_string())),
    ];
    for (name, value) in facts {
        if let Some(value) = value {
            line(format!("{} {value}", Paint::stdout().dim(&format!("{name:<13}"))));
        }
    }
}

/// `3/10 searching web page 3`
pub fn progress(progress: &Progress) -> String {
    let steps = progress.step.map(|step| match progress.total {
        Some(total) => format!("{step}/{total}"),
        None => step.to_string(),
    });
    let words = [&progress.status, &progress.tool, &progress.message].into_iter();
    let words = steps.as_deref().into_iter().chain(words.filter_map(|word| word.as_deref()));
    words.collect::<Vec<_>>().join(" ")
}

/// Payload, output, error and attempts.
pub fn sections(view: &JobView, attempts: &[AttemptView]) {
    section("payload", &pretty(&output::shown(view.job.payload.as_str())));
    if let Some(output) = &view.output {
        section("output", &pretty(&output::shown(output.as_str())));
    }
    if let Some(error) = &view.error {
        section("error", error.trim_end());
    }
    if attempts.is_empty() {
        return;
    }
    section("attempts", "");
    let mut table = output::table(&["#", "TOKEN", "STARTED", "RAN", "CLASS", "WHAT IT SAID"]);
    for attempt in attempts {
        table.add_row(row(view, attempt));
    }
    output::show(&table);
}

/// A title and its text.
pub fn section(title: &str, text: &str) {
    line("");
    line(Paint::stdout().bold(title));
    if !text.is_empty() {
        line(text);
    }
}

fn row(view: &JobView, attempt: &AttemptView) -> [Cell; 6] {
    // An attempt without an error was the last one, or was put off and will be made again.
    let is_last = view.finished_at == Some(attempt.ended_at);
    let how = if is_last { view.state.word() } else { "put off" };
    let started = attempt.started_at.map(|at| format!("{at:.3}")).unwrap_or_default();
    let ran = attempt.started_at.map(|at| attempt.ended_at.duration_since(at));
    let ran = ran.and_then(|ran| Duration::try_from(ran).ok()).map(|ran| short(ran).to_string());
    [
        output::number(u64::from(attempt.attempt)),
        output::right(attempt.token),
        Cell::new(started),
        output::right(ran.unwrap_or_default()),
        Cell::new(attempt.class.map_or(how, tidemill::ErrorClass::word)),
        Cell::new(output::first_line(attempt.error.as_deref().unwrap_or_default(), 80)),
    ]
}
