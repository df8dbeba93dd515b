//! Finds PostgreSQL's own programs.
//!
//! Debian keeps them off the PATH, one folder per version; others put `initdb` on it. The PATH wins,
//! because whoever put it there meant it, and symbolic links are followed, because `initdb` finds its
//! neighbours by its real place.
//!
//! It refuses a folder that has only the client: all programs needed must be there.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::install;

const NEEDED: [&str; 3] = ["initdb", "postgres", "pg_ctl"];
const DEBIAN: &str = "/usr/lib/postgresql";
const HINT: &str = "install PostgreSQL 14 or later, and put the folder of `initdb` on the PATH";

/// The folder that holds PostgreSQL's programs.
#[derive(Debug, Clone)]
pub struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    /// The programs on this machine, or `None`.
    pub fn find() -> Option<Self> {
        let on_path = find_on_path("initdb").and_then(|found| Some(found.parent()?.to_owned()));
        on_path
            .into_iter()
            .chain(newest_first(Path::new(DEBIAN)))
            .find(|folder| NEEDED.iter().all(|name| folder.join(name).is_file()))
            .map(|folder| Self { folder })
    }

    /// The programs on this machine, installed first when they are missing and we may.
    pub fn find_or_install() -> Result<Self> {
        if let Some(found) = Self::find() {
            return Ok(found);
        }
        install::install("postgresql", "PostgreSQL", HINT)?;
        Self::require()
    }

    /// The programs on this machine, or an error that says what to do.
    pub(crate) fn require() -> Result<Self> {
        Self::find().with_context(|| format!("PostgreSQL was not found\nhint: {HINT}"))
    }

    /// Where the program `name` is.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// The real place of the program `name` on the PATH.
pub(crate) fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let found = env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    found?.canonicalize().ok()
}

/// Debian's `bin` folders below `root`, the largest version first.
fn newest_first(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort_unstable_by(|left, right| right.cmp(left));
    versions.into_iter().map(|(_, folder)| folder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_version_comes_first_by_number() {
        let root = tempfile::tempdir().unwrap();
        for version in ["9", "17", "15", "common"] {
            fs::create_dir(root.path().join(version)).unwrap();
        }
        let found = newest_first(root.path());
        let expected: Vec<_> =
            ["17", "15", "9"].map(|version| root.path().join(version).join("bin")).into();
        assert_eq!(found, expected);
    }
}
