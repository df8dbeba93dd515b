//! The page for newcomers with curl: its commands are run as they stand, and print what it says.

use std::process::Command;

use super::mill::{Mill, feed, stop};

const PAGE: &str = include_str!("../../../../docs/curl.md");

/// The blocks of a page in one language, or two, in their order.
fn blocks(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'))
}

fn works_as_written(mill: &Mill) {
    let (server, url) = mill.serve(&[]);
    let (mut script, mut said) = (vec!["set -eu"], Vec::new());
    for (language, text) in blocks(PAGE) {
        match language {
            "sh" => script.push(text),
            "text" => said.extend(text.lines()),
            other => panic!("a block of {other:?} is neither run nor compared"),
        }
    }
    let script = script.join("\n");
    assert!(script.contains("http://localhost:8384"), "the page says where the server is");
    let script = script.replace("http://localhost:8384", &url);
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(mill.folder());
    let ended = feed(shell, "").ok();
    assert_eq!(ended.stdout.lines().collect::<Vec<_>>(), said, "{}", ended.stderr);
    stop(server);
}

#[test]
fn a_newcomer_with_curl_gets_through_the_page_on_sqlite() {
    works_as_written(&Mill::sqlite());
}

#[test]
fn a_newcomer_with_curl_gets_through_the_page_on_postgres() {
    works_as_written(&Mill::postgres());
}
