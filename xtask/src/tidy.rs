//! The house rules that no compiler and no linter knows.
//!
//! A rule that a test can say needs no reviewer. Each rule is a function from the file tree to its
//! violations, in a file of its own, with a test that feeds it something forbidden. `CONTRIBUTING.md`
//! lists them for people.
//!
//! Tidy refuses to repair anything: it names the file, the line and the rule.

mod arrows;
mod clock;
mod codes;
mod dialects;
mod marks;
mod shape;
mod sleeps;
mod source;
mod sql;
mod tree;

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

use tree::Tree;

type Rule = fn(&Tree) -> Vec<Violation>;

const RULES: [Rule; 8] = [
    arrows::check,
    clock::check,
    codes::check,
    dialects::check,
    marks::check,
    shape::check,
    sleeps::check,
    sql::check,
];

/// Checks the whole tree below `root`; the error lists all violations.
pub fn tidy(root: &Path) -> Result<()> {
    let tree = Tree::load(root)?;
    let mut found: Vec<Violation> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    if found.is_empty() {
        return Ok(());
    }
    found.sort();
    let list: Vec<String> = found.iter().map(Violation::to_string).collect();
    bail!("house rules broken: {} (see CONTRIBUTING.md)\n{}", list.len(), list.join("\n"))
}

/// One place that breaks one rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    line: usize,
    rule: &'static str,
    message: String,
}

impl Violation {
    fn new(path: &str, line: usize, rule: &'static str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.message)
    }
}

/// Whether `word` occurs in `text` as a whole word.
fn has_word(text: &str, word: &str) -> bool {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that `rule` reports in a tree of one file.
    pub(super) fn lines(rule: Rule, path: &str, text: &str) -> Vec<usize> {
        rule(&Tree::of(&[(path, text)])).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn violation_names_file_line_and_rule() {
        let violation = Violation::new("crates/core/src/id.rs", 7, "clock", "no");
        assert_eq!(violation.to_string(), "crates/core/src/id.rs:7: clock: no");
    }

    #[test]
    fn empty_tree_is_tidy() {
        let empty = Tree::of(&[]);
        assert!(RULES.iter().all(|rule| rule(&empty).is_empty()));
    }
}
