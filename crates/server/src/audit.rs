//! The record of who did what, written at the one place that knows the caller, the operation and the answer.
//!
//! Whatever needs the right to operate or to administer, and is no mere look, is written down before it is done and
//! completed before it is answered; so no route can forget to. What cannot be written down is not done.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use axum::extract::{MatchedPath, RawPathParams, Request};
use axum::response::Response;
use axum::{Extension, RequestExt};
use http::{Method, header};
use tidemill::audit::{AuditEnd, NewAudit};
use tidemill_core::access::Act;
use tidemill_core::{AuditId, JobId};

use crate::access::{Caller, Need};
use crate::api::{App, description};
use crate::problem::{Answer, Code, Refusal};

/// Letters that a record names.
const NAMED_MAX: usize = 20;

/// What a route adds to the record of what it did: a few words, never a payload.
#[derive(Debug, Clone)]
pub(crate) struct Detail {
    words: String,
    /// The one job that it was about, where the path does not say so.
    about: Option<JobId>,
}

/// A few words for the record, beside an answer.
pub(crate) fn detail(words: impl Into<String>) -> Extension<Detail> {
    Extension(Detail { words: words.into(), about: None })
}

/// The same about these dead letters.
pub(crate) fn detail_of(words: impl Into<String>, ids: &[JobId]) -> Extension<Detail> {
    let about = if let [id] = ids { Some(*id) } else { None };
    Extension(Detail { words: words.into(), about })
}

/// So many dead letters, and which, as far as there is room for their names.
pub(crate) fn letters(number: u64, ids: &[JobId]) -> String {
    let noun = if number == 1 { "letter" } else { "letters" };
    let names: Vec<String> = ids.iter().take(NAMED_MAX).map(JobId::to_string).collect();
    let more = ids.len() - names.len();
    match (names.len(), more) {
        (0, _) => format!("{number} {noun}"),
        (_, 0) => format!("{number} {noun}: {}", names.join(", ")),
        (_, more) => format!("{number} {noun}: {} and {more} more", names.join(", ")),
    }
}

/// The names of all operations, by method and path.
static NAMES: LazyLock<HashMap<(String, String), String>> = LazyLock::new(|| {
    let mut names = HashMap::new();
    for (path, item) in description().paths.paths {
        let all = [
            ("PUT", item.put),
            ("POST", item.post),
            ("PATCH", item.patch),
            ("DELETE", item.delete),
        ];
        for (method, operation) in all {
            if let Some(name) = operation.and_then(|operation| operation.operation_id) {
                names.insert((method.to_owned(), path.clone()), name);
            }
        }
    }
    names
});

/// Whether an operation is written down: all that operators and admins do, but not what they look at.
pub(crate) fn is_audited(method: &Method, need: Option<Need>) -> bool {
    let is_act = matches!(need, Some(Need::Act(Act::Operate | Act::Administer)));
    is_act && !method.is_safe()
}

/// An act that was begun.
pub(crate) struct Begun(AuditId);

impl Begun {
    /// Writes down what a request is about to do.
    pub(crate) async fn request(
        app: &App,
        caller: &Caller,
        request: &mut Request,
        path: &MatchedPath,
    ) -> Answer<Self> {
        Self::new(app, asked(caller, request, path).await).await
    }

    /// Writes down what a message about a job is about to do.
    pub(crate) async fn message(app: &App, caller: &Caller, act: &str, job: JobId) -> Answer<Self> {
        Self::new(app, act_of(caller, act, "job", job.to_string(), "live".to_owned())).await
    }

    async fn new(app: &App, new: NewAudit) -> Answer<Self> {
        let id = new.id;
        app.mill.audit().begin(new).await?;
        Ok(Self(id))
    }

    /// Completes it.
    pub(crate) async fn end(self, app: &App, end: AuditEnd) {
        let result = end.result.clone();
        // It is done, and written down that somebody was about to: the answer tells the truth about that.
        if let Err(error) = app.mill.audit().end(self.0, end).await {
            tracing::error!(id = %self.0, result, %error, "the record of an act could not be completed");
        }
    }
}

/// Writes down a request that is refused before anything of it is done. That goes on when the caller does not wait for
/// it: an act without a result counts as done, and whoever may do nothing could fill the record with those.
pub(crate) async fn refused(
    app: &Arc<App>,
    caller: &Caller,
    (request, path): (&mut Request, &MatchedPath),
    end: AuditEnd,
) -> Answer<()> {
    let (app, new) = (Arc::clone(app), asked(caller, request, path).await);
    let written = tokio::spawn(async move {
        Begun::new(&app, new).await?.end(&app, end).await;
        Ok(())
    });
    written.await.map_err(|error| Refusal::internal(&error))?
}

/// What a request asks for, as the record has it.
async fn asked(caller: &Caller, request: &mut Request, path: &MatchedPath) -> NewAudit {
    let method = request.method().as_str().to_owned();
    let name = NAMES.get(&(method.clone(), path.as_str().to_owned())).cloned();
    let act = name.unwrap_or_else(|| format!("{method} {}", path.as_str()));
    let values = request.extract_parts::<RawPathParams>().await.ok();
    let value = values.as_ref().and_then(|values| values.iter().next());
    let target = value.map(|(_, value)| value.to_owned()).unwrap_or_default();
    let detail = request.uri().query().unwrap_or_default().to_owned();
    act_of(caller, &act, kind_of(path.as_str()), target, detail)
}

fn act_of(caller: &Caller, act: &str, kind: &str, target: String, detail: String) -> NewAudit {
    let (who, credential) = caller.identity();
    let (who, act, target_kind) = (who.to_owned(), act.to_owned(), kind.to_owned());
    NewAudit { id: AuditId::new(), who, credential, act, target_kind, target, detail }
}

/// What became of an act, by what is answered.
pub(crate) fn answered(response: &Response) -> AuditEnd {
    let extensions = response.extensions();
    let (detail, about) = match extensions.get::<Detail>() {
        Some(Detail { words, about }) => (words.clone(), *about),
        None => (String::new(), None),
    };
    let result = match extensions.get::<Code>() {
        Some(Code(code)) => code,
        None if response.status().is_server_error() => "internal",
        None if response.status().is_client_error() => "refused",
        None => "ok",
    };
    let place = response.headers().get(header::LOCATION).and_then(|place| place.to_str().ok());
    let target = place.and_then(|place| {
        let (path, id) = place.rsplit_once('/')?;
        Some((kind_of(&format!("{path}/{{id}}")).to_owned(), id.to_owned()))
    });
    let target = target.or_else(|| about.map(|id| ("dead".to_owned(), id.to_string())));
    AuditEnd { result: result.to_owned(), target, detail }
}

/// What kind of thing a path is about: what stands before its first parameter, or its first word.
fn kind_of(path: &str) -> &str {
    let words: Vec<&str> = path.split('/').skip(2).collect();
    let at = words.iter().position(|word| word.starts_with('{')).unwrap_or(1);
    let word = at.checked_sub(1).and_then(|at| words.get(at)).copied().unwrap_or_default();
    // Owners are known by their schedules alone, and those are meant.
    if word == "owners" { "schedule" } else { word.strip_suffix('s').unwrap_or(word) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_say_what_they_are_about() {
        for (path, kind) in [
            ("/v1/jobs/{id}/cancel", "job"),
            ("/v1/dead/notes", "dead"),
            ("/v1/dead/plans/{id}/apply", "plan"),
            ("/v1/queues/{name}/rules", "queue"),
            ("/v1/owners/{owner}/schedules", "schedule"),
            ("/metrics", ""),
        ] {
            assert_eq!(kind_of(path), kind, "{path}");
        }
    }

    #[test]
    fn every_act_has_the_name_of_its_operation() {
        assert_eq!(NAMES[&("POST".into(), "/v1/jobs/{id}/cancel".into())], "cancel_job");
    }
}
