//! Who may ask at all: requests for a host that this is not, and from pages of other origins, are refused.
//!
//! A page of a stranger can make a browser send requests to an address of this machine, also under a name that points
//! there (rebinding). Such requests name another host, or an origin.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, StatusCode, header};

use crate::api::App;
use crate::problem::Refusal;

/// Lets a request through, or not.
pub(crate) async fn guard(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let uri_host = request.uri().host().map(str::to_owned);
    check_host(&app, request.headers(), uri_host.as_deref())?;
    check_origin(&app, request.headers())?;
    Ok(next.run(request).await)
}

fn check_host(app: &App, headers: &HeaderMap, uri_host: Option<&str>) -> Result<(), Refusal> {
    let named = headers.get(header::HOST).and_then(|host| host.to_str().ok()).or(uri_host);
    let host = named.map(without_port).unwrap_or_default();
    let is_ours = ["localhost", "127.0.0.1", "[::1]"].contains(&host)
        || host == app.settings.listen.ip().to_string()
        || app.settings.hosts.iter().any(|own| own.eq_ignore_ascii_case(host));
    if is_ours {
        return Ok(());
    }
    let detail =
        format!("this server is not {host:?}; name the host when it is started to allow it");
    Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, "host_refused", detail))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn check_origin(app: &App, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let is_own = origin == format!("http://{host}") || origin == format!("https://{host}");
    if is_own || app.settings.origins.iter().any(|allowed| allowed == origin) {
        return Ok(());
    }
    let detail = format!("pages of {origin:?} may not call this server");
    Err(Refusal::new(StatusCode::FORBIDDEN, "origin_refused", detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_no_part_of_a_host() {
        for (host, name) in [
            ("localhost:8384", "localhost"),
            ("localhost", "localhost"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
        ] {
            assert_eq!(without_port(host), name);
        }
    }
}
