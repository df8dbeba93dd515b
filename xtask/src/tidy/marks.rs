//! Nothing half-done is left behind.
//!
//! A mark that promises later work is a debt that nobody is asked to pay, and an ignored test is a
//! promise nobody checks. Finish it, or write down in `docs/decisions/` why it is not done.
//!
//! It refuses the marks in comments and code alike, in every language of the house; prose documents
//! and string literals may mention them.

use super::tree::{Tree, ending};
use super::{Violation, has_word};

const RULE: &str = "no unfinished work";
const MARKS: [&str; 4] = ["TODO", "FIXME", "XXX", "HACK"];
const MACROS: [&str; 2] = ["todo!", "unimplemented!"];
const SKIP: &str = "#[ignore";
const OTHERS: [&str; 6] = ["sql", "toml", "py", "ts", "js", "sh"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, source) in &tree.rust {
        for (number, line) in source.numbered() {
            let in_code = MACROS.into_iter().chain([SKIP]).find(|mark| line.code.contains(mark));
            let mark = in_code.or_else(|| mark_in(&line.comment));
            found.extend(mark.map(|mark| violation(path, number, mark)));
        }
    }
    let others = tree.files.iter().filter(|(path, _)| OTHERS.contains(&ending(path)));
    for (path, text) in others {
        for (index, line) in text.lines().enumerate() {
            found.extend(mark_in(line).map(|mark| violation(path, index + 1, mark)));
        }
    }
    found
}

fn mark_in(text: &str) -> Option<&'static str> {
    MARKS.into_iter().find(|mark| has_word(text, mark))
}

fn violation(path: &str, line: usize, mark: &str) -> Violation {
    Violation::new(path, line, RULE, format!("`{mark}`: finish it, or decide not to"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::*;

    #[test]
    fn unfinished_work_is_found() {
        for text in [
            "\n// TODO: later",
            "\n/* FIXME */ f();",
            "\nf(); // XXX",
            "\nlet x = todo!();",
            "\nunimplemented!(\"x\")",
            "\n#[ignore]",
            "\n#[ignore = \"slow\"]",
        ] {
            assert_eq!(lines(check, "crates/core/src/a.rs", text), [2], "{text}");
        }
        assert_eq!(lines(check, "crates/store/src/a.sql", "-- x\n-- HACK"), [2]);
    }

    #[test]
    fn words_that_only_look_alike_pass() {
        for text in ["// mktemp XXXXXX", "f(\"TODO\")", "// the to-do list, HACKED"] {
            assert!(lines(check, "crates/core/src/a.rs", text).is_empty(), "{text}");
        }
        assert!(lines(check, "CONTRIBUTING.md", "no TODO").is_empty());
    }
}
