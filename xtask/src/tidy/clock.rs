//! Time comes from one place.
//!
//! A rule that reads the clock itself cannot be tested at midnight, and two clocks in one decision
//! disagree. So the wall clock is read in `core`'s `clock` only, and handed on. Programs and tests
//! stand at the edge and may look. The monotonic clock measures how long something took, which is
//! harmless, except in `core`, where nothing may depend on when it runs.
//!
//! It refuses aliases only as far as it sees them: `Type::now` on one line.

use super::Violation;
use super::tree::{Tree, is_test};

const RULE: &str = "one clock";
const CLOCK: &str = "crates/core/src/clock.rs";
const WALL: [&str; 3] = ["SystemTime::now", "Timestamp::now", "Zoned::now"];
const MONOTONIC: &str = "Instant::now";
const EDGES: [&str; 4] = ["crates/cli/", "crates/testkit/", "xtask/", "examples/"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, source) in tree.rust.iter().filter(|(path, _)| !may_look(path)) {
        for (number, line) in source.numbered().filter(|(_, line)| !line.in_tests) {
            let is_core = path.starts_with("crates/core/");
            let monotonic = is_core && line.code.contains(MONOTONIC);
            if monotonic || WALL.iter().any(|call| line.code.contains(call)) {
                let message = format!("take the time from the clock ({CLOCK})");
                found.push(Violation::new(path, number, RULE, message));
            }
        }
    }
    found
}

fn may_look(path: &str) -> bool {
    path == CLOCK
        || is_test(path)
        || path.contains("/examples/")
        || EDGES.iter().any(|edge| path.starts_with(edge))
}

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::*;

    #[test]
    fn wall_clock_outside_the_clock_is_found() {
        for path in ["crates/core/src/job.rs", "crates/store/src/a.rs", "crates/tidemill/src/a.rs"]
        {
            for call in WALL {
                assert_eq!(lines(check, path, &format!("\nlet now = {call}();")), [2], "{path}");
            }
        }
        assert_eq!(lines(check, "crates/core/src/job.rs", "let t = Instant::now();"), [1]);
    }

    #[test]
    fn edges_and_measurements_may_look() {
        for (path, text) in [
            (CLOCK, "SystemTime::now()"),
            ("crates/cli/src/main.rs", "Timestamp::now()"),
            ("crates/store/tests/a.rs", "Timestamp::now()"),
            ("crates/tidemill/src/a.rs", "Instant::now()"),
            ("crates/tidemill/src/a.rs", "// Timestamp::now()"),
            ("crates/core/src/a.rs", "#[cfg(test)]\nmod tests {\nTimestamp::now()\n}"),
        ] {
            assert!(lines(check, path, text).is_empty(), "{path}: {text}");
        }
    }
}
