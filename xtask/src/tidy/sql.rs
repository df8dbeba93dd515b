//! All SQL lives in the store.
//!
//! A statement elsewhere knows about tables that only the store may know, exists in one dialect
//! only, and escapes the rules about guards and limits. Tests, the testkit, benchmarks and examples
//! may speak SQL: they stand outside, as users do.
//!
//! It refuses to guess at prose: a lower-case word counts only where the rest reads like a statement.

use super::tree::{Tree, is_test};
use super::{Violation, has_word};

const RULE: &str = "sql only in the store";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, source) in tree.rust.iter().filter(|(path, _)| !may_speak_sql(path)) {
        for literal in &source.literals {
            if is_sql(&literal.text) && !source.is_in_tests(literal.line) {
                let message = "move this statement to a file in crates/store";
                found.push(Violation::new(path, literal.line, RULE, message));
            }
        }
    }
    found
}

fn may_speak_sql(path: &str) -> bool {
    path.starts_with("crates/store/")
        || path.starts_with("crates/testkit/")
        || path.starts_with("examples/")
        || path.contains("/examples/")
        || is_test(path)
}

fn is_sql(text: &str) -> bool {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let has = |one: &str, two: &str| words.windows(2).any(|pair| pair[0] == one && pair[1] == two);
    let sets = words.windows(3).any(|three| three[0] == "update" && three[2] == "set");
    let begins = |word: &str| words.first().is_some_and(|first| first == word);
    has_word(text, "SELECT") && words.len() > 1
        || has("insert", "into")
        || sets && text.contains('=')
        || has_word(text, "DELETE") && has("delete", "from")
        || begins("delete") && has("delete", "from")
        || begins("select") && (words.iter().any(|word| word == "from") || text.contains('('))
}

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::*;

    const OUTSIDE: &str = "crates/tidemill/src/engine.rs";

    #[test]
    fn statement_outside_the_store_is_found() {
        for statement in [
            "SELECT 1",
            "select id from job",
            "Select now()",
            "insert  into job values (1)",
            "WITH x AS (y) UPDATE job\n SET state = 1",
            "update job set state = 1",
            "DELETE FROM job",
            "delete from job",
        ] {
            let text = format!("//! x\nfn f() {{ run(\"{statement}\") }}\n");
            assert_eq!(lines(check, OUTSIDE, &text), [2], "{statement}");
        }
    }

    #[test]
    fn prose_comments_and_tests_pass() {
        for text in [
            "f(\"select a queue\")",
            "f(\"update the set of queues\")",
            "f(\"nothing to delete from here\")",
            "// f(\"SELECT 1\")",
            "#[cfg(test)]\nmod tests {\n f(\"SELECT 1\")\n}",
        ] {
            assert!(lines(check, OUTSIDE, text).is_empty(), "{text}");
        }
        for path in ["crates/store/src/a.rs", "crates/x/tests/a.rs", "crates/x/examples/a.rs"] {
            assert!(lines(check, path, "f(\"SELECT 1\")").is_empty(), "{path}");
        }
    }
}
