//! Entity tags: whoever changes what he has read says which version that was, and is refused when it is no more.

use http::{HeaderMap, HeaderName, header};

use crate::problem::{Answer, Refusal};

/// The header that names a version.
pub(crate) type Tag = [(HeaderName, String); 1];

/// The header for this version.
pub(crate) fn of(version: &impl std::fmt::Display) -> Tag {
    [(header::ETAG, format!("\"{version}\""))]
}

/// The one version that a request is for; `None`: whatever is there.
pub(crate) fn wanted(headers: &HeaderMap) -> Answer<Option<String>> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let tag = text.trim_start_matches("W/").strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
    match tag.filter(|tag| !tag.is_empty() && !tag.contains('"')) {
        Some(tag) => Ok(Some(tag.to_owned())),
        None => Err(unknown(text)),
    }
}

/// The same, of what is versioned by numbers.
pub(crate) fn wanted_number(headers: &HeaderMap) -> Answer<Option<u64>> {
    let tag = wanted(headers)?;
    tag.map(|tag| tag.parse().map_err(|_| unknown(&tag))).transpose()
}

fn unknown(text: &str) -> Refusal {
    Refusal::request(format!("If-Match {text:?} is no ETag that was given"))
}
