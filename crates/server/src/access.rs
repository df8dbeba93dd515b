//! Who may call what: one table, and whoever is not in it may not.
//!
//! A request shows a credential as `Authorization: Bearer tdm_…`. What its grant does not reach is refused, or is not
//! there: whether a job of another tenant exists is none of its business. A server that asks for no credentials
//! listens on this machine alone, and lets everybody do everything.

use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tidemill::{CredentialId, Enqueue, JobView, Verified};
use tidemill_core::access::Act;
use tidemill_core::access::secret::PREFIX;
use tidemill_core::job::DEFAULT_QUEUE;
use tidemill_core::{JobId, Wish, WorkerId};

use crate::api::App;
use crate::audit;
use crate::hidden;
use crate::problem::{Answer, Refusal};
use crate::settings::Access;

/// What a caller must be allowed to do, by method and path. Paths that are not here are closed.
const TABLE: &[(&str, &str, Need)] = &[
    ("GET", "/livez", Need::Nothing),
    ("GET", "/startupz", Need::Nothing),
    ("GET", "/readyz", Need::Nothing),
    ("GET", "/openapi.json", Need::Nothing),
    ("GET", "/docs", Need::Nothing),
    ("GET", "/docs/page.css", Need::Nothing),
    ("GET", "/docs/page.js", Need::Nothing),
    ("GET", "/metrics", Need::Act(Act::Look)),
    ("GET", "/v1/now", Need::Act(Act::Look)),
    ("GET", "/v1/overview", Need::Act(Act::Look)),
    ("GET", "/v1/doctor", Need::Act(Act::Operate)),
    ("GET", "/v1/tokens", Need::Act(Act::Administer)),
    ("POST", "/v1/tokens", Need::Act(Act::Administer)),
    ("POST", "/v1/tokens/find", Need::Act(Act::Administer)),
    ("DELETE", "/v1/tokens/{id}", Need::Act(Act::Administer)),
    ("POST", "/v1/jobs", Need::Act(Act::Enqueue)),
    ("POST", "/v1/jobs/batch", Need::Act(Act::Enqueue)),
    ("GET", "/v1/jobs", Need::Act(Act::Look)),
    ("GET", "/v1/jobs/{id}", Need::Act(Act::Look)),
    ("GET", "/v1/jobs/{id}/wait", Need::Act(Act::Look)),
    ("GET", "/v1/jobs/{id}/why", Need::Act(Act::Look)),
    ("GET", "/v1/jobs/{id}/attempts", Need::Act(Act::Look)),
    ("PATCH", "/v1/jobs/{id}", Need::Act(Act::Operate)),
    ("GET", "/v1/jobs/{id}/stream", Need::Act(Act::Look)),
    // To listen; each message needs what the operation does that it stands for.
    ("GET", "/v1/jobs/{id}/live", Need::Act(Act::Look)),
    ("POST", "/v1/jobs/{id}/signal", Need::Act(Act::Enqueue)),
    ("POST", "/v1/jobs/{id}/cancel", Need::Act(Act::Operate)),
    ("POST", "/v1/jobs/{id}/retry", Need::Act(Act::Operate)),
    ("GET", "/v1/dead", Need::Act(Act::Look)),
    ("GET", "/v1/dead/groups", Need::Act(Act::Look)),
    ("GET", "/v1/dead/sample", Need::Act(Act::Look)),
    ("POST", "/v1/dead/replay", Need::Act(Act::Operate)),
    ("GET", "/v1/dead/rules", Need::Act(Act::Look)),
    ("PUT", "/v1/dead/rules/{name}", Need::Act(Act::Operate)),
    ("DELETE", "/v1/dead/rules/{name}", Need::Act(Act::Operate)),
    ("POST", "/v1/dead/notes", Need::Act(Act::Operate)),
    ("POST", "/v1/dead/plans", Need::Act(Act::Operate)),
    ("GET", "/v1/dead/plans", Need::Act(Act::Look)),
    ("GET", "/v1/dead/plans/{id}", Need::Act(Act::Look)),
    ("POST", "/v1/dead/plans/{id}/apply", Need::Act(Act::Operate)),
    ("POST", "/v1/dead/plans/{id}/undo", Need::Act(Act::Operate)),
    ("GET", "/v1/queues", Need::Act(Act::Look)),
    ("GET", "/v1/queues/{name}/rules", Need::Act(Act::Look)),
    ("GET", "/v1/queues/{name}/why", Need::Act(Act::Look)),
    ("GET", "/v1/queues/{name}/depth", Need::Act(Act::Look)),
    ("GET", "/v1/queues/{name}/wait", Need::Act(Act::Look)),
    ("PUT", "/v1/queues/{name}/rules", Need::Act(Act::Operate)),
    ("DELETE", "/v1/queues/{name}/rules", Need::Act(Act::Operate)),
    ("POST", "/v1/queues/{name}/pause", Need::Act(Act::Operate)),
    ("POST", "/v1/queues/{name}/resume", Need::Act(Act::Operate)),
    ("GET", "/v1/schedules", Need::Act(Act::Look)),
    ("GET", "/v1/schedules/{name}", Need::Act(Act::Look)),
    ("PUT", "/v1/schedules/{name}", Need::Act(Act::Operate)),
    ("DELETE", "/v1/schedules/{name}", Need::Act(Act::Operate)),
    ("PUT", "/v1/owners/{owner}/schedules", Need::Act(Act::Operate)),
    ("POST", "/v1/schedules/{name}/pause", Need::Act(Act::Operate)),
    ("POST", "/v1/schedules/{name}/resume", Need::Act(Act::Operate)),
    ("POST", "/v1/schedules/{name}/run", Need::Act(Act::Operate)),
    ("POST", "/v1/schedules/{name}/backfill", Need::Act(Act::Operate)),
    ("GET", "/v1/schedules/{name}/history", Need::Act(Act::Look)),
    ("GET", "/v1/schedules/{name}/preview", Need::Act(Act::Look)),
    ("POST", "/v1/schedule-preview", Need::Act(Act::Look)),
    ("POST", "/v1/flows", Need::Act(Act::Enqueue)),
    ("GET", "/v1/flows", Need::Act(Act::Look)),
    ("GET", "/v1/flows/{id}", Need::Act(Act::Look)),
    ("POST", "/v1/flows/{id}/jobs", Need::Act(Act::Enqueue)),
    ("POST", "/v1/flows/{id}/begin", Need::Act(Act::Enqueue)),
    ("POST", "/v1/flows/{id}/discard", Need::Act(Act::Enqueue)),
    ("GET", "/v1/flows/{id}/outputs", Need::Act(Act::Look)),
    ("POST", "/v1/flows/{id}/cancel", Need::Act(Act::Operate)),
    ("POST", "/v1/flows/{id}/retry", Need::Act(Act::Operate)),
    ("POST", "/v1/flows/{id}/rerun", Need::Act(Act::Operate)),
    ("POST", "/v1/flows/{id}/resolve", Need::Act(Act::Operate)),
    ("GET", "/v1/workflows", Need::Act(Act::Look)),
    ("GET", "/v1/workflows/{id}", Need::Act(Act::Look)),
    ("GET", "/v1/workflows/{id}/history", Need::Act(Act::Look)),
    ("GET", "/v1/workflows/{id}/acts", Need::Act(Act::Look)),
    ("POST", "/v1/workflows/{id}/acts", Need::Act(Act::Operate)),
    ("POST", "/v1/workflows/{id}/update", Need::Act(Act::Enqueue)),
    ("GET", "/v1/objects/{name}", Need::Act(Act::Look)),
    ("GET", "/v1/limits", Need::Act(Act::Look)),
    ("PUT", "/v1/limits/{name}", Need::Act(Act::Operate)),
    ("DELETE", "/v1/limits/{name}", Need::Act(Act::Operate)),
    ("GET", "/v1/webhooks", Need::Act(Act::Look)),
    ("GET", "/v1/webhooks/{name}", Need::Act(Act::Look)),
    ("PUT", "/v1/webhooks/{name}", Need::Act(Act::Operate)),
    ("DELETE", "/v1/webhooks/{name}", Need::Act(Act::Operate)),
    ("POST", "/v1/webhooks/{name}/rotate", Need::Act(Act::Operate)),
    ("GET", "/v1/webhooks/{name}/deliveries", Need::Act(Act::Look)),
    ("POST", "/v1/webhooks/{name}/redeliver", Need::Act(Act::Operate)),
    ("GET", "/v1/workers", Need::Act(Act::Look)),
    ("GET", "/v1/alerts", Need::Act(Act::Look)),
    ("GET", "/v1/audit", Need::Act(Act::Administer)),
    ("GET", "/v1/keys", Need::Act(Act::Administer)),
    ("POST", "/v1/keys/rotate", Need::Act(Act::Administer)),
    ("POST", "/v1/workers", Need::Act(Act::Work)),
    ("DELETE", "/v1/workers/{id}", Need::Act(Act::Work)),
    ("POST", "/v1/workers/{id}/beat", Need::Act(Act::Work)),
    ("POST", "/v1/workers/{id}/claim", Need::Act(Act::Work)),
    ("POST", "/v1/workers/{id}/settle", Need::Act(Act::Work)),
    ("POST", "/v1/workers/{id}/journal", Need::Act(Act::Work)),
    ("POST", "/v1/workers/{id}/stream", Need::Act(Act::Work)),
    ("GET", "/v1/jobs/{id}/journal", Need::Act(Act::Look)),
    ("GET", "/v1/jobs/{id}/journal/{number}", Need::Act(Act::Look)),
    ("GET", "/v1/jobs/{id}/mail", Need::Act(Act::Look)),
    ("GET", "/v1/jobs/{id}/inputs", Need::Act(Act::Look)),
    ("GET", "/v1/jobs/{id}/inputs/{step}", Need::Act(Act::Look)),
];

/// What is needed to be let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: everybody may ask.
    Nothing,
    /// A credential that may do this.
    Act(Act),
}

/// What an operation needs; `None`: it is closed.
pub(crate) fn need(method: &str, path: &str) -> Option<Need> {
    // Whoever may ask for something may ask for its head.
    let method = if method == "HEAD" { "GET" } else { method };
    TABLE.iter().find(|(m, p, _)| *m == method && *p == path).map(|(.., need)| *need)
}

/// Who asks. Without a name: anybody, of a server that asks for no credentials.
#[derive(Debug, Clone)]
pub(crate) struct Caller(Option<Arc<Verified>>);

/// Finds out who asks, and whether they may; what operators and admins do is written down.
pub(crate) async fn admit(
    State(app): State<Arc<App>>,
    path: Option<MatchedPath>,
    mut request: Request,
    next: Next,
) -> Response {
    // What is not there is told to everybody; it says nothing.
    let Some(path) = path else { return next.run(request).await };
    let need = need(request.method().as_str(), path.as_str());
    let (caller, refusal) = match (need, app.settings.access) {
        (Some(Need::Nothing), _) => (Caller(None), None),
        // Who shows a token is who it says, also where none is asked for: what it does there it does elsewhere.
        (_, Access::Open) if !has_secret(request.headers()) => (Caller(None), None),
        (None, _) => return closed(&app, request, next).await,
        (Some(Need::Act(act)), _) => match verified(&app, request.headers()).await {
            Ok(caller) => {
                let refusal = (!caller.grant.may(act)).then(|| role_refused(&caller, act));
                (Caller(Some(caller)), refusal)
            }
            Err(refusal) => return challenged(refusal),
        },
    };
    request.extensions_mut().insert(caller.clone());
    let is_audited = audit::is_audited(request.method(), need);
    if let Some(refusal) = refusal {
        let response = refusal.into_response();
        if is_audited {
            let end = audit::answered(&response);
            let written = audit::refused(&app, &caller, (&mut request, &path), end).await;
            if let Err(refusal) = written {
                return refusal.into_response();
            }
        }
        return response;
    }
    let begun = if is_audited {
        match audit::Begun::request(&app, &caller, &mut request, &path).await {
            Ok(begun) => Some(begun),
            // What cannot be written down is not done.
            Err(refusal) => return refusal.into_response(),
        }
    } else {
        None
    };
    let response = next.run(request).await;
    if let Some(begun) = begun {
        let end = audit::answered(&response);
        begun.end(&app, end).await;
    }
    hidden::shown(&app, &caller, (path.as_str(), need), response).await
}

/// A path without a place in the table: a method that it does not answer is told as everywhere, all else is closed.
async fn closed(app: &App, request: Request, next: Next) -> Response {
    if let Err(refusal) = verified(app, request.headers()).await {
        return challenged(refusal);
    }
    let response = next.run(request).await;
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        return response;
    }
    Refusal::new(StatusCode::FORBIDDEN, "role_refused", "nobody may do that").into_response()
}

/// What stands where a secret is shown.
fn shown(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, secret) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

/// Whether a secret of ours is shown; what others put there for a proxy is not meant for us.
fn has_secret(headers: &HeaderMap) -> bool {
    shown(headers).is_some_and(|secret| secret.starts_with(PREFIX))
}

async fn verified(app: &App, headers: &HeaderMap) -> Answer<Arc<Verified>> {
    let Some(secret) = shown(headers) else {
        let detail = "this server wants to know who asks: Authorization: Bearer tdm_…; `tidemill token create` makes \
                      one";
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, "credential_missing", detail));
    };
    app.mill.credentials().verify(secret).await?.map_err(credential_refused)
}

fn credential_refused(refused: tidemill::Refusal) -> Refusal {
    tracing::info!(?refused, "a credential was not accepted");
    Refusal::new(StatusCode::UNAUTHORIZED, "credential_refused", refused.to_string())
}

fn challenged(refusal: Refusal) -> Response {
    let mut response = refusal.into_response();
    if response.status() == StatusCode::UNAUTHORIZED {
        let bearer = HeaderValue::from_static("Bearer realm=\"tidemill\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
    }
    response
}

fn role_refused(caller: &Verified, act: Act) -> Refusal {
    let (name, role) = (&caller.name, caller.grant.role.word());
    let roles =
        tidemill_core::access::Role::ALL.into_iter().filter(|role| role.acts().contains(&act));
    let roles: Vec<_> = roles.map(tidemill_core::access::Role::word).collect();
    let detail = format!("{name:?} is a {role}; only {} may do that", roles.join(", "));
    Refusal::new(StatusCode::FORBIDDEN, "role_refused", detail)
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Self> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| Refusal::internal(&"a route without a caller"))
    }
}

impl Caller {
    /// Whose act it is, for notes that are kept.
    pub(crate) fn name(&self) -> &str {
        self.0.as_ref().map_or("http", |caller| caller.name.as_str())
    }

    /// Who it is, for the record of who did what: a name, and the credential that was shown.
    pub(crate) fn identity(&self) -> (&str, Option<CredentialId>) {
        let known = self.0.as_ref().map(|caller| (caller.name.as_str(), Some(caller.id)));
        known.unwrap_or(("anonymous", None))
    }

    /// The one tenant that the caller reaches, if there is one.
    pub(crate) fn tenant(&self) -> Option<&str> {
        self.0.as_ref()?.grant.tenant.as_deref()
    }

    /// The same caller, if the credential is still good: for who stays longer than a request.
    pub(crate) async fn again(&self, app: &App) -> Answer<Self> {
        let Some(caller) = &self.0 else { return Ok(Self(None)) };
        let verified = app.mill.credentials().verify_again(caller).await?;
        Ok(Self(Some(verified.map_err(credential_refused)?)))
    }

    /// Refuses what the role of the caller is not for.
    pub(crate) fn check_act(&self, act: Act) -> Answer<()> {
        match &self.0 {
            Some(caller) if !caller.grant.may(act) => Err(role_refused(caller, act)),
            _ => Ok(()),
        }
    }

    /// Whether there is anything that the caller does not reach.
    pub(crate) fn is_limited(&self) -> bool {
        let grant = self.0.as_ref().map(|caller| &caller.grant);
        grant.is_some_and(|grant| !grant.queues.is_empty() || grant.tenant.is_some())
    }

    /// Whether the caller reaches a queue, or all that a pattern means.
    pub(crate) fn reaches(&self, queue: &str) -> bool {
        self.0.as_ref().is_none_or(|caller| caller.grant.may_queue(queue))
    }

    /// Refuses a queue that is not the caller's.
    pub(crate) fn check_queue(&self, queue: &str) -> Answer<()> {
        if self.reaches(queue) {
            return Ok(());
        }
        let detail = format!("{:?} does not reach the queue {queue:?}", self.name());
        Err(Refusal::new(StatusCode::FORBIDDEN, "queue_refused", detail))
    }

    /// Refuses to act for a worker that another credential has registered. An admin may: to sign off what hangs, say.
    pub(crate) fn check_worker(&self, worker: WorkerId) -> Answer<()> {
        self.check_all_tenants()?;
        let is_own =
            |caller: &Arc<Verified>| worker.is_of(caller.id) || caller.grant.may(Act::Administer);
        if self.0.as_ref().is_none_or(is_own) {
            return Ok(());
        }
        let detail = format!(
            "{:?} has not registered the worker {worker}; who works registers a worker of its own",
            self.name()
        );
        Err(Refusal::new(StatusCode::FORBIDDEN, "worker_refused", detail))
    }

    /// Refuses what is of all tenants together to a caller who is of one.
    pub(crate) fn check_all_tenants(&self) -> Answer<()> {
        let Some(tenant) = self.tenant() else { return Ok(()) };
        let detail = format!("{:?} is of the tenant {tenant:?}, and this is of all", self.name());
        Err(Refusal::new(StatusCode::FORBIDDEN, "tenant_refused", detail))
    }

    /// Refuses a tenant that is not the caller's; one who names none is of its own.
    pub(crate) fn check_tenant(&self, named: &mut Option<String>) -> Answer<()> {
        let Some(tenant) = self.tenant() else { return Ok(()) };
        match named {
            None => *named = Some(tenant.to_owned()),
            Some(named) if named == tenant => {}
            Some(named) => {
                let detail = format!("{:?} does not reach the tenant {named:?}", self.name());
                return Err(Refusal::new(StatusCode::FORBIDDEN, "tenant_refused", detail));
            }
        }
        Ok(())
    }

    /// Refuses a job that the caller may not bring, and makes it of the caller's tenant.
    pub(crate) fn check_wish(&self, wish: &mut Wish) -> Answer<()> {
        self.check_queue(wish.queue.as_deref().unwrap_or(DEFAULT_QUEUE))?;
        self.check_tenant(&mut wish.tenant)
    }

    /// The queues, by name or pattern, that the caller reaches; none means all.
    pub(crate) fn queues(&self) -> &[String] {
        self.0.as_ref().map_or(&[], |caller| &caller.grant.queues)
    }

    /// A job of the caller's. What holds its unique key must be theirs, too, which the store judges where it writes:
    /// else nothing is changed.
    pub(crate) fn bound(&self, job: Enqueue) -> Enqueue {
        job.within(self.queues())
    }

    /// The same for one that is answered. What a full queue has sent elsewhere may stand for it: whether that one is
    /// the same job is seen by the answer.
    pub(crate) async fn bound_or_diverted(&self, app: &App, job: Enqueue) -> Enqueue {
        let is_told = job.uniqueness().is_some_and(|unique| !unique.changes_holder());
        if self.queues().is_empty() || !is_told {
            return self.bound(job);
        }
        let overflow = app.mill.diverts_to(job.queue_name()).await;
        job.within(self.queues().iter().cloned().chain(overflow))
    }

    /// Whether the caller may know of a job.
    pub(crate) fn sees(&self, view: &JobView) -> bool {
        self.sees_place(&view.job.queue, view.job.tenant.as_deref())
    }

    /// Whether the caller may know of jobs of this queue and tenant.
    pub(crate) fn sees_place(&self, queue: &str, tenant: Option<&str>) -> bool {
        let Some(caller) = &self.0 else { return true };
        caller.grant.may_queue(queue) && caller.grant.may_tenant(tenant)
    }

    /// Refuses a job that is not the caller's, as one that is not there.
    pub(crate) async fn check_job(&self, app: &App, id: JobId) -> Answer<()> {
        if !self.is_limited() {
            return Ok(());
        }
        let view = app.mill.job(id).await?;
        let unknown = || tidemill::Error::JobUnknown { id }.into();
        view.filter(|view| self.sees(view)).map(drop).ok_or_else(unknown)
    }
}
