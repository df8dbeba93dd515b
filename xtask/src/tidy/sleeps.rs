//! Tests do not sleep.
//!
//! A sleep in a test is a guess about somebody else's speed: too short on a busy machine, too long
//! everywhere else. Tests wait for facts with `eventually`, which alone may sleep.
//!
//! It refuses sleeps of threads and of tasks alike, also when they are imported first.

use super::tree::{Tree, is_test};
use super::{Violation, has_word};

const RULE: &str = "no sleeps in tests";
const TESTKIT: &str = "crates/testkit/src/";
const EVENTUALLY: &str = "crates/testkit/src/eventually.rs";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, source) in tree.rust.iter().filter(|(path, _)| *path != EVENTUALLY) {
        let is_test_file = path.starts_with(TESTKIT) || is_test(path);
        for (number, line) in source.numbered() {
            if (is_test_file || line.in_tests) && sleeps(&line.code) {
                let message = "wait for the fact with `tidemill_testkit::eventually`";
                found.push(Violation::new(path, number, RULE, message));
            }
        }
    }
    found
}

fn sleeps(code: &str) -> bool {
    (code.contains("thread::") || code.contains("time::"))
        && (has_word(code, "sleep") || has_word(code, "sleep_until"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::*;

    #[test]
    fn sleeping_tests_are_found() {
        for text in [
            "\nthread::sleep(SECOND);",
            "\ntokio::time::sleep(SECOND).await;",
            "\nuse tokio::time::{Instant, sleep};",
        ] {
            assert_eq!(lines(check, "crates/store/tests/a.rs", text), [2], "{text}");
            assert_eq!(lines(check, "crates/testkit/src/a.rs", text), [2], "{text}");
            let inside = format!("//! x\n#[cfg(test)]\nmod tests {{{text}\n}}");
            assert_eq!(lines(check, "crates/store/src/a.rs", &inside), [4], "{text}");
        }
    }

    #[test]
    fn eventually_and_the_product_may_sleep() {
        let text = "tokio::time::sleep(PAUSE).await;";
        assert!(lines(check, EVENTUALLY, text).is_empty());
        assert!(lines(check, "crates/tidemill/src/worker.rs", text).is_empty());
        assert!(lines(check, "crates/store/tests/a.rs", "// thread::sleep").is_empty());
    }
}
