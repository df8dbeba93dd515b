//! Every error code has a page.
//!
//! A code is what programs match and what people search for. So each code that a `fn code` of an
//! `error.rs`, or of `park.rs`, can return, and each that a `Refusal::new` names, has `docs/errors/CODE.md`, which says
//! what happened and what to do.
//!
//! It refuses to follow calls: codes are literals in the match of `fn code`, as rustfmt lays it out, or the second
//! thing that a refusal is made of.
//! Before the first page is written it asks for none.

use super::Violation;
use super::tree::Tree;

const RULE: &str = "a page per error code";
const PAGES: &str = "docs/errors";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    if tree.below(PAGES, ".md").next().is_none() {
        return found;
    }
    for (path, _, text) in tree.below("crates", ".rs") {
        if !path.contains("/src/") {
            continue;
        }
        let names_codes = path.ends_with("/error.rs") || path.ends_with("/park.rs");
        let named = if names_codes { codes(text) } else { Vec::new() };
        for (line, code) in named.into_iter().chain(refusals(text)) {
            let page = format!("{PAGES}/{code}.md");
            if !tree.files.contains_key(&page) {
                found.push(Violation::new(path, line, RULE, format!("write {page}")));
            }
        }
    }
    found
}

/// The codes in the bodies of `fn code`, with their lines.
fn codes(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut end = None;
    for (index, line) in text.lines().enumerate() {
        if line.contains("fn code(") {
            let indent = line.len() - line.trim_start().len();
            end = Some(format!("{}}}", &line[..indent]));
        } else if end.as_deref() == Some(line) {
            end = None;
        } else if end.is_some() {
            found.extend(code_in(line).map(|code| (index + 1, code)));
        }
    }
    found
}

/// The codes that refusals are made with, with their lines.
fn refusals(text: &str) -> Vec<(usize, &str)> {
    let made = text.match_indices("Refusal::new(");
    let code = |(at, _): (usize, &str)| {
        let (_, rest) = text[at..].split_once(',')?;
        let (code, _) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
        Some((text[..at].lines().count(), code))
    };
    made.filter_map(code).collect()
}

/// The literal that an arm ends in, on the arm's line or, where it was too long, on its own.
fn code_in(line: &str) -> Option<&str> {
    let value = line.split_once("=> ").map_or(line, |(_, value)| value).trim();
    value.trim_end_matches(',').strip_prefix('"')?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERROR: &str = "\
impl Error {
    fn code(&self) -> &'static str {
        match self {
            Self::Full { .. } => \"queue_full\",
            Self::One | Self::Two => {
                \"lease_lost\"
            }
            Self::Core(error) => error.code(),
        }
    }

    fn name(&self) -> &str {
        match self {
            _ => \"other\",
        }
    }
}
";

    fn lines(files: &[(&str, &str)]) -> Vec<usize> {
        check(&Tree::of(files)).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn code_without_a_page_is_found() {
        let other = ("docs/errors/other.md", "# x");
        for path in ["crates/core/src/error.rs", "crates/tidemill/src/engine/error.rs"] {
            assert_eq!(lines(&[(path, ERROR), other]), [4, 6], "{path}");
        }
    }

    #[test]
    fn refusal_without_a_page_is_found() {
        let text = "\
fn f() {
    Refusal::new(
        StatusCode::GONE,
        \"gone\",
        detail,
    )
}
fn g() { Refusal::new(status, code, detail) }
";
        let (path, other) =
            ("crates/server/src/routes/journal.rs", ("docs/errors/other.md", "# x"));
        assert_eq!(lines(&[(path, text), other]), [2]);
        assert!(lines(&[(path, text), ("docs/errors/gone.md", "# x")]).is_empty());
    }

    #[test]
    fn no_page_is_asked_for_before_there_are_pages() {
        assert!(lines(&[("crates/core/src/error.rs", ERROR)]).is_empty());
    }

    #[test]
    fn code_with_a_page_passes() {
        let files = [
            ("crates/core/src/error.rs", ERROR),
            ("docs/errors/queue_full.md", "# x"),
            ("docs/errors/lease_lost.md", "# x"),
        ];
        assert!(lines(&files).is_empty());
    }
}
