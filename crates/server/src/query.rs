//! What may stand behind the question mark: what the description of an operation names, and nothing else.
//!
//! One place for all operations, also for those that take nothing: a filter that is misspelt, or that another list has,
//! must not pass for one that holds. It refuses nothing outside of `/v1`: scrapes and probes add words of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{MatchedPath, Query, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::Uri;
use percent_encoding::percent_decode_str;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::{OpenApi, RefOr};

use crate::extract::without_body;
use crate::problem::{Answer, Refusal};

/// What every operation takes, by path and method.
pub(crate) struct Known(BTreeMap<String, BTreeMap<&'static str, Takes>>);

/// What an operation takes beside its path.
struct Takes {
    parameters: Vec<String>,
    has_body: bool,
}

impl Known {
    /// Those that the API describes.
    pub(crate) fn of(description: &OpenApi) -> Self {
        let paths = description.paths.paths.iter().filter(|(path, _)| path.starts_with("/v1/"));
        let known = paths.map(|(path, item)| {
            let operations = [
                ("GET", &item.get),
                ("PUT", &item.put),
                ("POST", &item.post),
                ("PATCH", &item.patch),
                ("DELETE", &item.delete),
            ];
            let described = operations.into_iter().filter_map(|(method, operation)| {
                operation.as_ref().map(|operation| (method, takes(operation)))
            });
            (path.clone(), described.collect())
        });
        Self(known.collect())
    }

    fn find(&self, method: &str, path: &str) -> Option<&Takes> {
        // Whoever may ask for something may ask for its head.
        let method = if method == "HEAD" { "GET" } else { method };
        self.0.get(path).and_then(|methods| methods.get(method))
    }
}

impl Takes {
    fn check(&self, uri: &Uri) -> Answer<()> {
        let known = &self.parameters;
        // What cannot be read is told by whoever reads it.
        let given = Query::<Vec<(String, String)>>::try_from_uri(uri);
        let Ok(Query(given)) = given else { return Ok(()) };
        match given.into_iter().find(|(name, _)| !known.contains(name)) {
            None => Ok(()),
            Some((unknown, _)) if known.is_empty() => {
                Err(Refusal::request(format!("there is no parameter {unknown:?} here, nor any")))
            }
            Some((unknown, _)) => {
                let known = known.join(", ");
                Err(Refusal::request(format!(
                    "there is no parameter {unknown:?} here, only {known}"
                )))
            }
        }
    }
}

fn takes(operation: &Operation) -> Takes {
    let query = |parameter: &RefOr<Parameter>| match parameter {
        RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => {
            Some(parameter.name.clone())
        }
        _ => None,
    };
    let parameters = operation.parameters.iter().flatten().filter_map(query).collect();
    Takes { parameters, has_body: operation.request_body.is_some() }
}

/// Whether what was asked is text once `%XX` are bytes; whoever reads it would put another character in their place.
fn is_text(query: &str) -> bool {
    percent_decode_str(query).decode_utf8().is_ok()
}

/// Lets a request through that has no other parameters than its operation, and those as text, and a body only where it
/// is read: a wish that nobody hears must not pass for granted.
pub(crate) async fn check(
    State(known): State<Arc<Known>>,
    path: Option<MatchedPath>,
    mut request: Request,
    next: Next,
) -> Answer<Response> {
    if !request.uri().query().is_none_or(is_text) {
        return Err(Refusal::request("the query is not UTF-8 where it has %"));
    }
    let method = request.method();
    let takes = path.and_then(|path| known.find(method.as_str(), path.as_str()));
    if let Some(takes) = takes {
        takes.check(request.uri())?;
        // The body of a GET means nothing anywhere.
        if !takes.has_body && !method.is_safe() {
            request = without_body(request).await?;
        }
    }
    Ok(next.run(request).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_found() {
        for (query, text) in [
            ("a=b&c=%C3%A9", true),
            ("a=100%&b=%zz%4", true),
            ("a=%+1", true),
            ("a=%ff", false),
            ("a=%C3&b=%A9", false),
            ("%c3=1", false),
        ] {
            assert_eq!(is_text(query), text, "{query}");
        }
    }
}
