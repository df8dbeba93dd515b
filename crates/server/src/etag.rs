//! Entity tags: whoever changes what he has read says which version that was, and is refused when it is no more.
//!
//! As RFC 9110 has it: `If-Match` names one tag or several, of which one is enough, or `*` for whatever is there. Tags
//! are compared strongly, so a weak one never matches.
//!
//! The tag of a job is a print of all that may be changed of it, so whoever is not shown all of it could find the rest
//! by trying. Where something is hidden, the tag is made under a key that nobody has.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::LazyLock;

use http::{HeaderMap, HeaderName, StatusCode, header};
use tidemill::JobView;

use crate::api::App;
use crate::problem::{Answer, Refusal};

/// Under which tags of jobs are made of which something is hidden. It is of this process: elsewhere such a tag is of no
/// job, and refused as one that is too old.
static KEY: LazyLock<Result<[u8; 32], getrandom::Error>> = LazyLock::new(|| {
    let mut key = [0; 32];
    getrandom::fill(&mut key)?;
    Ok(key)
});

/// Looks at what others keep changing, before it is given up.
const LOOKS_MAX: usize = 20;

/// The header that names a version.
pub(crate) type Tag = [(HeaderName, String); 1];

/// The header for this version.
pub(crate) fn of(version: &impl Display) -> Tag {
    [(header::ETAG, format!("\"{version}\""))]
}

/// A job as it was seen: by which tag, and by which print the store knows it.
#[derive(Debug)]
pub(crate) struct JobSeen {
    tag: String,
    pub print: String,
}

impl JobSeen {
    pub(crate) fn of(app: &App, view: &JobView) -> Answer<Self> {
        let print = view.job.print();
        let text = serde_json::to_string(view).map_err(|error| Refusal::internal(&error))?;
        if matches!(app.mill.hidden().document(&text), Cow::Borrowed(_)) {
            return Ok(Self { tag: print.clone(), print });
        }
        let key = KEY.as_ref().map_err(|error| Refusal::internal(error))?;
        Ok(Self { tag: view.job.print_under(key), print })
    }
}

impl Display for JobSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tag)
    }
}

/// Which versions a request is for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// It does not say; also if there is nothing.
    Any,
    /// Whatever is there, if something is.
    There,
    /// One of these. Weak tags are left out, so there may be none.
    OneOf(Vec<String>),
}

/// What the headers of a request say of that.
pub(crate) fn wanted(headers: &HeaderMap) -> Answer<Wanted> {
    let mut lines = Vec::new();
    for value in headers.get_all(header::IF_MATCH) {
        lines.push(value.to_str().map_err(|_| unknown("(no text)"))?.trim());
    }
    if lines.is_empty() {
        return Ok(Wanted::Any);
    }
    let text = lines.join(",");
    if text == "*" {
        return Ok(Wanted::There);
    }
    read(&text).map(Wanted::OneOf).ok_or_else(|| unknown(&text))
}

/// The strong tags of a list; nothing, if it is none. Commas may stand in tags, too.
fn read(text: &str) -> Option<Vec<String>> {
    let (mut rest, mut strong, mut tags) = (text, Vec::new(), 0);
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.is_empty() {
            return (tags > 0).then_some(strong);
        }
        let weak = rest.strip_prefix("W/");
        let (tag, after) = weak.unwrap_or(rest).strip_prefix('"')?.split_once('"')?;
        let after = after.trim_start_matches([' ', '\t']);
        if tag.contains([' ', '\t']) || !(after.is_empty() || after.starts_with(',')) {
            return None;
        }
        if weak.is_none() {
            strong.push(tag.to_owned());
        }
        (rest, tags) = (after, tags + 1);
    }
}

impl Wanted {
    /// Acts on the version that is meant; `None`: on whatever there is. Refused as `changed` if that is another than
    /// the present one. An act is itself refused (412) when it comes too late for the version that it is given.
    pub(crate) async fn met<V, T, Present, Act>(
        self,
        present: impl Fn() -> Present,
        changed: impl Fn() -> Refusal,
        act: impl Fn(Option<V>) -> Act,
    ) -> Answer<T>
    where
        V: FromStr + Display,
        Present: Future<Output = Answer<Option<V>>>,
        Act: Future<Output = Answer<T>>,
    {
        if let Self::OneOf(tags) = &self
            && let [tag] = &tags[..]
        {
            return act(Some(tag.parse().map_err(|_| changed())?)).await;
        }
        self.met_by_look(present, changed, act).await
    }

    /// The same where a tag does not say all of its version.
    pub(crate) async fn met_by_look<V, T, Present, Act>(
        self,
        present: impl Fn() -> Present,
        changed: impl Fn() -> Refusal,
        act: impl Fn(Option<V>) -> Act,
    ) -> Answer<T>
    where
        V: Display,
        Present: Future<Output = Answer<Option<V>>>,
        Act: Future<Output = Answer<T>>,
    {
        if self == Self::Any {
            return act(None).await;
        }
        for _ in 0..LOOKS_MAX {
            let Some(version) = present().await?.filter(|version| self.means(version)) else {
                return Err(changed());
            };
            match act(Some(version)).await {
                Err(refusal) if refusal.is(StatusCode::PRECONDITION_FAILED) => {}
                done => return done,
            }
        }
        Err(changed())
    }

    fn means(&self, version: &impl Display) -> bool {
        match self {
            Self::Any | Self::There => true,
            Self::OneOf(tags) => tags.contains(&version.to_string()),
        }
    }
}

fn unknown(text: &str) -> Refusal {
    Refusal::request(format!("If-Match {text:?} is no ETag that was given"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn tags_are_read_as_the_standard_has_them() {
        let of = |tags: &[&str]| Some(Wanted::OneOf(tags.iter().map(|&tag| tag.into()).collect()));
        for (lines, expected) in [
            (&[][..], Some(Wanted::Any)),
            (&["*"], Some(Wanted::There)),
            (&[" \"3\" "], of(&["3"])),
            (&["\"2\", \"3\""], of(&["2", "3"])),
            (&["\"2\"", "\"3\""], of(&["2", "3"])),
            (&[", \"a,b\" ,, W/\"3\""], of(&["a,b"])),
            (&["W/\"3\""], of(&[])),
            (&["\"\""], of(&[""])),
            (&["3"], None),
            (&[""], None),
            (&["\"3"], None),
            (&["w/\"3\""], None),
            (&["\"2\" \"3\""], None),
            (&["*, \"3\""], None),
            (&["\"a b\""], None),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::IF_MATCH, HeaderValue::from_static(line));
            }
            assert_eq!(wanted(&headers).ok(), expected, "{lines:?}");
        }
    }
}
