//! Which crate may depend on which.
//!
//! The arrows are the architecture: rules below, memory above them, hands on top. One that points
//! the wrong way is easy to add and hard to remove, so the whole list is here and the manifests are
//! held against it. Tests may use the testkit from anywhere.
//!
//! It refuses crates that are not in the list: a new crate is a decision.

use super::Violation;
use super::tree::Tree;

const RULE: &str = "arrows";
const TESTKIT: &str = "tidemill-testkit";

/// Each crate with all that it may depend on.
const ARROWS: [(&str, &[&str]); 9] = [
    ("tidemill-core", &[]),
    ("tidemill-store", &["tidemill-core"]),
    ("tidemill", &["tidemill-core", "tidemill-store"]),
    ("tidemill-relay", &["tidemill-core", "tidemill"]),
    ("tidemill-client", &["tidemill-core", "tidemill"]),
    ("tidemill-server", &["tidemill-core", "tidemill"]),
    (
        "tidemill-cli",
        &[
            "tidemill-core",
            "tidemill-store",
            "tidemill",
            "tidemill-relay",
            "tidemill-client",
            "tidemill-server",
        ],
    ),
    (TESTKIT, &["tidemill-core", "tidemill-store"]),
    ("xtask", &[TESTKIT]),
];

/// What tests alone may use besides: a client is tried against the server that it is for.
const TEST_ARROWS: [(&str, &str); 1] = [("tidemill-client", "tidemill-server")];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let manifests = tree.files.iter().filter(|(path, _)| is_manifest(path));
    manifests.flat_map(|(path, text)| check_manifest(path, text)).collect()
}

fn is_manifest(path: &str) -> bool {
    let folder = path.strip_suffix("/Cargo.toml");
    let krate = folder.and_then(|folder| folder.strip_prefix("crates/"));
    folder == Some("xtask") || krate.is_some_and(|name| !name.contains('/'))
}

fn check_manifest(path: &str, text: &str) -> Vec<Violation> {
    let name = text.lines().find_map(|line| quoted_after(line, "name = ")).unwrap_or_default();
    let Some((_, allowed)) = ARROWS.iter().find(|(krate, _)| *krate == name) else {
        let message = format!("crate `{name}` is not in the list of arrows");
        return vec![Violation::new(path, 1, RULE, message)];
    };
    let forbidden = dependencies(text).into_iter().filter(|dependency| {
        let is_known = TEST_ARROWS.contains(&(name, dependency.name));
        let is_test = dependency.is_dev && (dependency.name == TESTKIT || is_known);
        dependency.is_ours() && !is_test && !allowed.contains(&dependency.name)
    });
    forbidden
        .map(|dependency| {
            let message = format!("`{name}` may not depend on `{}`", dependency.name);
            Violation::new(path, dependency.line, RULE, message)
        })
        .collect()
}

#[derive(Debug)]
struct Dependency<'a> {
    line: usize,
    name: &'a str,
    is_dev: bool,
}

impl Dependency<'_> {
    fn is_ours(&self) -> bool {
        self.name == "tidemill" || self.name == "xtask" || self.name.starts_with("tidemill-")
    }
}

/// The dependencies of a manifest: `name = …`, `name.workspace = true` and `[dependencies.name]`.
fn dependencies(text: &str) -> Vec<Dependency<'_>> {
    let mut found = Vec::new();
    let mut section = "";
    for (index, line) in text.lines().enumerate() {
        let mut add = |name| {
            let is_dev = section_of(line, section).contains("dev-dependencies");
            found.push(Dependency { line: index + 1, name, is_dev });
        };
        if let Some(header) = line.trim().strip_prefix('[') {
            if let Some((_, name)) = header.split_once("dependencies.") {
                add(name.trim_end_matches(']'));
            }
            section = header.trim_end_matches(']');
        } else if section.ends_with("dependencies") && !line.trim_start().starts_with('#') {
            let key = line.split(['.', ' ', '=']).next().unwrap_or_default();
            add(quoted_after(line, "package = ").unwrap_or(key));
        } else if section.contains("dependencies.") {
            quoted_after(line, "package = ").into_iter().for_each(add);
        }
    }
    found
}

/// The section that decides about a line: its own when it is a header.
fn section_of<'a>(line: &'a str, section: &'a str) -> &'a str {
    if line.trim_start().starts_with('[') { line } else { section }
}

/// The text between the quotes that follow `mark`.
fn quoted_after<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    line.split_once(mark)?.1.strip_prefix('"')?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::*;

    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n{rest}\n")
    }

    #[test]
    fn arrow_in_the_wrong_direction_is_found() {
        for (name, rest) in [
            ("tidemill-core", "[dependencies]\ntidemill-store.workspace = true"),
            ("tidemill-store", "[dependencies]\ntidemill = { workspace = true }"),
            ("tidemill-server", "[dependencies]\ntidemill-store = \"1\""),
            ("tidemill", "[dependencies]\nt = { package = \"tidemill-cli\" }"),
            ("tidemill", "[dependencies]\ntidemill-testkit.workspace = true"),
            ("tidemill-core", "[dev-dependencies]\ntidemill-store.workspace = true"),
            ("tidemill-core", "[target.'cfg(unix)'.dependencies]\ntidemill = \"1\""),
        ] {
            let text = manifest(name, rest);
            assert_eq!(lines(check, "crates/x/Cargo.toml", &text), [4], "{text}");
        }
        let text = manifest("tidemill-core", "[dependencies.tidemill-store]\nversion = \"1\"");
        assert_eq!(lines(check, "crates/x/Cargo.toml", &text), [3]);
    }

    #[test]
    fn allowed_arrows_and_dev_testkit_pass() {
        for (name, rest) in [
            ("tidemill-store", "[dependencies]\ntidemill-core.workspace = true\nserde = \"1\""),
            ("tidemill-cli", "[dependencies]\ntidemill-server = \"1\"\ntidemill = \"1\""),
            ("tidemill-core", "[dev-dependencies]\ntidemill-testkit.workspace = true"),
            ("tidemill-core", "[dev-dependencies.tidemill-testkit]\nworkspace = true"),
            ("tidemill-core", "[features]\ntidemill-store = []"),
        ] {
            let text = manifest(name, rest);
            assert!(lines(check, "crates/x/Cargo.toml", &text).is_empty(), "{text}");
        }
    }

    #[test]
    fn unknown_crate_is_found() {
        let text = manifest("tidemill-utils", "");
        assert_eq!(lines(check, "crates/utils/Cargo.toml", &text), [1]);
        assert!(lines(check, "benches/peers/one/Cargo.toml", &text).is_empty());
    }
}
