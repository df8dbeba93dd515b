//! The character U+0000: refused wherever a request names or says something.
//!
//! PostgreSQL cannot hold it in text and SQLite can, so one store would fail where the other does as it is told. It
//! refuses to look at what is a job's own: payloads have a code of their own for it, and what a handler says is kept
//! with another character in its place, since its job has to end all the same.

use std::borrow::Cow;
use std::fmt;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::problem::{Answer, Refusal};

/// Fields whose values are looked at elsewhere: what jobs are given and make, and what handlers say.
const THEIRS: [&str; 13] = [
    "payload",
    "output",
    "value",
    "state",
    "entry",
    "this",
    "ending",
    "failed",
    "cancel",
    "parked",
    "differs",
    "said",
    "ephemeral",
];

/// Lets a request through that has none in its path or its query.
pub(crate) async fn check(request: Request, next: Next) -> Answer<Response> {
    // There is one way to write it there: it cannot stand in a request line as it is.
    if request.uri().path_and_query().is_some_and(|asked| asked.as_str().contains("%00")) {
        return Err(Refusal::request("the path or the query has the character U+0000 (%00)"));
    }
    Ok(next.run(request).await)
}

/// Whether a text of JSON may have one: it can only be written in one way, but that may be a part of something else.
pub(crate) fn may_be_in(bytes: &[u8]) -> bool {
    str::from_utf8(bytes).is_ok_and(|text| text.contains("\\u0000"))
}

/// Any JSON that has none, besides in what is a job's own.
pub(crate) struct Without;

impl<'de> Deserialize<'de> for Without {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Without {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without the character U+0000")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self, E> {
        if text.contains('\0') {
            return Err(E::custom("text has the character U+0000"));
        }
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self, A::Error> {
        while all.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self, A::Error> {
        while let Some(name) = fields.next_key::<Cow<'de, str>>()? {
            if name.contains('\0') {
                return Err(A::Error::custom("a name has the character U+0000"));
            }
            if THEIRS.contains(&&*name) {
                fields.next_value::<IgnoredAny>()?;
            } else {
                fields.next_value::<Self>()?;
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_found_in_names_and_words_and_left_to_others_in_what_is_a_jobs_own() {
        for (text, is_without) in [
            (r#"{"a":["b\u0000"]}"#, false),
            (r#"{"a\u0000":1}"#, false),
            (r#"{"a":"\\u0000","b":[1,-1,1.5,true,null]}"#, true),
            (r#"{"payload":"\u0000","jobs":[{"payload":{"a":1e999,"b":"\u0000"}}]}"#, true),
        ] {
            assert!(may_be_in(text.as_bytes()));
            assert_eq!(serde_json::from_str::<Without>(text).is_ok(), is_without, "{text}");
        }
        assert!(!may_be_in(br#"{"a":"b"}"#));
    }
}
