//! Who may ask at all: requests for a host that this is not, and from pages of other origins, are refused.
//!
//! A page of a stranger can make a browser send requests to an address of this machine, also under a name that points
//! there (rebinding). Such requests name another host, or an origin.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::uri::Authority;
use http::{StatusCode, header};

use crate::api::App;
use crate::problem::{Answer, Refusal};

/// Lets a request through, or not.
pub(crate) async fn guard(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    check_host(&app, &request)?;
    check_origin(&app, &request)?;
    Ok(next.run(request).await)
}

/// The host that a request names, with its port: HTTP/2 has a field of its own for it.
fn named(request: &Request) -> &str {
    let header = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    header.or(request.uri().authority().map(Authority::as_str)).unwrap_or_default()
}

/// Refuses what is for another host.
pub(crate) fn check_host(app: &App, request: &Request) -> Answer<()> {
    // Somebody on the way may have gone by the other one.
    if request.headers().get_all(header::HOST).iter().count() > 1 {
        return Err(Refusal::request("the request has several Host headers; send one"));
    }
    let (host, _) = apart(named(request));
    let host = plain(host);
    // What an address leads to is no stranger's to say, as it is with a name; probes and scrapers ask by it.
    let is_ours = host == "localhost"
        || address(&host).is_some()
        || app.settings.hosts.iter().any(|own| plain(own) == host);
    if is_ours {
        return Ok(());
    }
    let detail =
        format!("this server is not {host:?}; name the host when it is started to allow it");
    Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, "host_refused", detail))
}

/// A host and its port, with the colon.
fn apart(host: &str) -> (&str, &str) {
    match host.rfind(':').map(|at| host.split_at(at)) {
        Some((name, port)) if port[1..].bytes().all(|byte| byte.is_ascii_digit()) => (name, port),
        _ => (host, ""),
    }
}

/// A host as it is compared: case does not matter, and a dot at its end says only that it is whole.
fn plain(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// The address that a host is, if it is one; those of IPv6 stand in brackets.
fn address(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    }
}

/// An origin as it is compared: the port that a scheme has anyway is left out.
fn origin(text: &str) -> Option<(String, String, &str)> {
    let (scheme, host) = text.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let (host, port) = apart(host.strip_suffix('/').unwrap_or(host));
    let is_usual = [("http", ":80"), ("https", ":443")].contains(&(scheme.as_str(), port));
    Some((scheme, plain(host), if is_usual { "" } else { port }))
}

/// Whether pages of this origin may call the server, though they are not its own.
pub(crate) fn is_shared(app: &App, given: &str) -> bool {
    let given = origin(given);
    given.is_some() && app.settings.origins.iter().any(|allowed| origin(allowed) == given)
}

fn check_origin(app: &App, request: &Request) -> Answer<()> {
    let Some(given) = request.headers().get(header::ORIGIN) else { return Ok(()) };
    let given = given.to_str().unwrap_or_default();
    let host = named(request);
    let mut own = ["http", "https"].into_iter().map(|scheme| format!("{scheme}://{host}"));
    let is_own = own.any(|own| origin(given).is_some_and(|given| origin(&own) == Some(given)));
    if is_own || is_shared(app, given) {
        return Ok(());
    }
    let detail = format!("pages of {given:?} may not call this server");
    Err(Refusal::new(StatusCode::FORBIDDEN, "origin_refused", detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_no_part_of_a_host() {
        for (host, name, port) in [
            ("localhost:8384", "localhost", ":8384"),
            ("localhost", "localhost", ""),
            ("[::1]:80", "[::1]", ":80"),
            ("[::1]", "[::1]", ""),
        ] {
            assert_eq!(apart(host), (name, port));
        }
    }

    #[test]
    fn one_place_has_many_spellings() {
        for (one, other) in [
            ("http://Mill.Example", "http://mill.example."),
            ("https://mill.example:443", "https://mill.example/"),
            ("http://[FE80::1]:8384", "http://[fe80::1]:8384"),
        ] {
            assert_eq!(origin(one), origin(other));
        }
        assert_ne!(origin("http://mill.example:443"), origin("http://mill.example"));
        assert_ne!(origin("http://mill.example"), origin("https://mill.example"));
        assert_eq!(origin("null"), None);
        assert_eq!(address("[0:0:0:0:0:0:0:1]"), Some(std::net::Ipv6Addr::LOCALHOST.into()));
        assert_eq!((address("::1"), address("[127.0.0.1]")), (None, None));
    }
}
