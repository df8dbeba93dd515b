//! The description of the API.

use serde_json::Value;
use tidemill_server::Server;

use super::kit::Kit;

const KEPT: &str = include_str!("../../openapi.json");

#[test]
fn the_description_is_the_one_that_was_looked_at() {
    assert!(
        Server::description().trim() == KEPT.trim(),
        "the API has changed; look at what `tidemill serve --describe > crates/server/openapi.json` changes"
    );
}

#[tokio::test]
async fn it_is_served_and_every_refusal_in_it_is_a_problem() {
    let kit = Kit::sqlite().await;
    let served = kit.get("/openapi.json").await.is(200).body;
    let kept: Value = serde_json::from_str(KEPT).unwrap();
    assert!(served == kept, "what is served is not crates/server/openapi.json");
    assert_eq!(served["openapi"], "3.1.0");
    let mut refusals = 0;
    for (path, methods) in served["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            assert!(operation["operationId"].is_string(), "{method} {path}");
            for (status, response) in operation["responses"].as_object().unwrap() {
                let says = response["description"].as_str().unwrap_or_default();
                assert!(!says.is_empty(), "{method} {path} {status} is not described");
                if status.as_str() >= "400" {
                    let content = &response["content"]["application/problem+json"];
                    assert!(content.is_object(), "{method} {path} {status}");
                    refusals += 1;
                }
            }
        }
    }
    assert!(refusals > 20);
    kit.close().await;
}

/// Where two types have one name, the description has one of them, and is wrong about the other.
#[test]
fn no_two_types_are_described_under_one_name() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut names = std::collections::BTreeMap::new();
    for part in ["core", "store", "tidemill", "server"] {
        let mut folders = vec![root.join(part).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                match entry.extension() {
                    Some(kind) if kind == "rs" => described_in(&entry, &mut names),
                    _ if entry.is_dir() => folders.push(entry),
                    _ => {}
                }
            }
        }
    }
    assert!(names.len() > 100, "{}", names.len());
}

type Names = std::collections::BTreeMap<String, std::path::PathBuf>;

fn described_in(file: &std::path::Path, names: &mut Names) {
    let text = std::fs::read_to_string(file).unwrap();
    let mut is_next = false;
    for line in text.lines() {
        is_next |= line.contains("utoipa::ToSchema") && line.contains("derive");
        let line = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub ")).unwrap_or(line);
        let item = line.strip_prefix("struct ").or(line.strip_prefix("enum "));
        let Some(rest) = item else { continue };
        if std::mem::take(&mut is_next) {
            let name = rest.split(|letter: char| !letter.is_alphanumeric()).next().unwrap();
            let other = names.insert(name.to_owned(), file.to_owned());
            assert_eq!(other, None, "{name} is also in {}", file.display());
        }
    }
}
