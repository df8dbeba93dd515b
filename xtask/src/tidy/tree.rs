//! The files that tidy looks at, read once.
//!
//! Rules are functions of this value, not of the disk, so that their tests can make up a tree. Paths
//! are relative to the workspace and written with `/`.
//!
//! It refuses to look into build output, hidden folders and installed packages.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::source::Source;

const SKIPPED: [&str; 4] = ["target", "node_modules", "__pycache__", "venv"];
const READ: [&str; 9] = ["rs", "sql", "toml", "md", "txt", "py", "ts", "js", "sh"];

/// The text of each file, and Rust files also taken apart.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) files: BTreeMap<String, String>,
    pub(super) rust: BTreeMap<String, Source>,
}

impl Tree {
    /// Reads the tree below `root`.
    pub(super) fn load(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.walk(root, "")?;
        Ok(tree)
    }

    /// A made-up tree.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            tree.add((*path).to_owned(), (*text).to_owned());
        }
        tree
    }

    /// The files below `folder` that end in `ending`: the rest of their path, and their text.
    pub(super) fn below(
        &self,
        folder: &str,
        ending: &str,
    ) -> impl Iterator<Item = (&str, &str, &str)> {
        self.files.iter().filter_map(move |(path, text)| {
            let rest = path.strip_prefix(folder)?.strip_prefix('/')?;
            path.ends_with(ending).then_some((path.as_str(), rest, text.as_str()))
        })
    }

    fn walk(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        let entries = fs::read_dir(folder);
        for entry in entries.with_context(|| format!("cannot list {}", folder.display()))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() && !name.starts_with('.') && !SKIPPED.contains(&name.as_str()) {
                self.walk(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file() && READ.contains(&ending(&name)) {
                let text = fs::read_to_string(entry.path());
                self.add(path.clone(), text.with_context(|| format!("cannot read {path}"))?);
            }
        }
        Ok(())
    }

    fn add(&mut self, path: String, text: String) {
        if ending(&path) == "rs" {
            self.rust.insert(path.clone(), Source::parse(&text));
        }
        self.files.insert(path, text);
    }
}

/// Whether a whole file is a test, a benchmark or a fuzz target.
pub(super) fn is_test(path: &str) -> bool {
    let parts = ["tests/", "benches/", "fuzz/"];
    path.ends_with("/tests.rs")
        || parts.iter().any(|part| path.starts_with(part) || path.contains(&format!("/{part}")))
}

/// What follows the last dot of a path; empty without one.
pub(super) fn ending(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, ending)| ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_and_built_files_are_not_read() {
        let root = tempfile::tempdir().unwrap();
        for path in ["a/b.rs", "a/target/c.rs", ".git/d.rs", "a/e.bin"] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let tree = Tree::load(root.path()).unwrap();
        assert_eq!(tree.files.keys().collect::<Vec<_>>(), ["a/b.rs"]);
    }

    #[test]
    fn tests_are_known_by_their_path() {
        for (path, expected) in [
            ("crates/store/tests/claim.rs", true),
            ("crates/store/src/claim/tests.rs", true),
            ("benches/peers/one/src/main.rs", true),
            ("crates/store/src/claim.rs", false),
            ("crates/store/src/contests/a.rs", false),
        ] {
            assert_eq!(is_test(path), expected, "{path}");
        }
    }
}
