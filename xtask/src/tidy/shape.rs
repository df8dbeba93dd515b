//! How a file looks from outside: its opening, its length, its width.
//!
//! A reader meets a file at its top: there it says what it does, why it exists and what it refuses.
//! Giants are where codebases lose their beauty, so none may grow past 600 lines. rustfmt keeps
//! lines at 100 columns except where it gives up; 120 is the end. A statement's file opens with the
//! guarantee it gives.
//!
//! It refuses to judge the words of an opening; it only asks for one.

use super::Violation;
use super::tree::{Tree, ending};

const LINES_MAX: usize = 600;
const COLUMNS_MAX: usize = 120;

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in &tree.files {
        if ending(path) == "sql" && !text.starts_with("--") {
            let message = "the first line is a `--` comment that states the guarantee";
            found.push(Violation::new(path, 1, "opening", message));
        }
        if ending(path) == "rs" {
            check_rust(path, text, &mut found);
        }
    }
    found
}

fn check_rust(path: &str, text: &str, found: &mut Vec<Violation>) {
    if path.contains("src/") && !text.starts_with("//!") {
        let message = "the file opens with `//!`: what it does, why, what it refuses";
        found.push(Violation::new(path, 1, "opening", message));
    }
    let length = text.lines().count();
    if length > LINES_MAX {
        let message = format!("{length} lines are more than {LINES_MAX}: split the file");
        found.push(Violation::new(path, LINES_MAX + 1, "file length", message));
    }
    for (index, line) in text.lines().enumerate() {
        let width = line.chars().count();
        if width > COLUMNS_MAX {
            let message = format!("{width} columns are more than {COLUMNS_MAX}");
            found.push(Violation::new(path, index + 1, "line width", message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::*;

    #[test]
    fn file_without_an_opening_is_found() {
        assert_eq!(lines(check, "crates/core/src/a.rs", "fn a() {}"), [1]);
        assert_eq!(lines(check, "xtask/src/main.rs", "// x\n"), [1]);
        assert_eq!(lines(check, "crates/store/src/sqlite/sql/a.sql", "\n-- x"), [1]);
        assert!(lines(check, "crates/core/tests/a.rs", "fn a() {}").is_empty());
        assert!(lines(check, "crates/core/src/a.rs", "//! x\n").is_empty());
        assert!(lines(check, "crates/store/src/sqlite/sql/a.sql", "-- x\n").is_empty());
    }

    #[test]
    fn long_files_and_wide_lines_are_found() {
        let long = format!("//! x\n{}", "\n".repeat(LINES_MAX));
        assert_eq!(lines(check, "crates/core/src/a.rs", &long), [LINES_MAX + 1]);
        let wide = format!("//! x\n// {}", "é".repeat(COLUMNS_MAX - 2));
        assert_eq!(lines(check, "crates/core/src/a.rs", &wide), [2]);
        let fits = format!("//! x\n// {}", "é".repeat(COLUMNS_MAX - 3));
        assert!(lines(check, "crates/core/src/a.rs", &fits).is_empty());
    }
}
