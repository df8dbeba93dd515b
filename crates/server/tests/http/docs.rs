//! The page of the API: everything that is described is on it, and it needs nothing from elsewhere.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::Value;

use super::kit::Kit;

const CODES: &str = include_str!("../../../../docs/errors/README.md");

#[tokio::test]
async fn everything_that_is_described_is_on_the_page() {
    let kit = Kit::sqlite().await;
    let described = kit.get("/openapi.json").await.is(200).body;
    let page = kit.get("/docs").await.is(200).body;
    let page = page.as_str().unwrap();
    let mut operations = 0;
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            let begin = format!("<details id=\"{id}\"><summary><b class=\"{method}\">");
            let article = page.split_once(&begin).unwrap_or_else(|| panic!("{method} {path}")).1;
            let article = article.split_once("</details>").unwrap().0;
            for status in operation["responses"].as_object().unwrap().keys() {
                assert!(article.contains(&format!("<code>{status}</code>")), "{id} {status}");
            }
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let name = parameter["name"].as_str().unwrap();
                assert!(article.contains(&format!("<dt><code>{name}</code>")), "{id} {name}");
            }
            operations += 1;
        }
    }
    assert!(operations > 60);
    assert_eq!(page.matches("<details ").count(), operations);
    let codes = CODES.lines().filter_map(|row| row.strip_prefix("| [")?.split_once(']'));
    let codes: Vec<_> = codes.map(|(code, _)| code).collect();
    assert!(codes.len() > 100);
    for code in codes {
        assert!(page.contains(&format!("<div id=\"error-{code}\">")), "{code}");
    }
    kit.close().await;
}

#[tokio::test]
async fn the_page_needs_nothing_from_elsewhere_and_all_its_links_lead_somewhere() {
    let kit = Kit::sqlite().await.closed().await;
    let told = kit.get("/docs").await.is(200);
    assert_eq!(told.header("content-type"), "text/html; charset=utf-8");
    let page = told.body.as_str().unwrap();
    let policy = told.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    for unsafe_word in ["unsafe", "http:", "https:", "*"] {
        assert!(!policy.contains(unsafe_word), "{policy}");
    }
    for inline in ["style=", "<style", "onclick", "<script>", "src=\"http", "href=\"http"] {
        assert!(!page.contains(inline), "{inline}");
    }
    let named: Vec<_> = attributes(page, " id=\"").collect();
    let ids: BTreeSet<_> = named.iter().copied().collect();
    assert_eq!(named.len(), ids.len(), "an id stands twice");
    for link in attributes(page, " href=\"").chain(attributes(page, " src=\"")) {
        match link.strip_prefix('#') {
            Some(id) => assert!(ids.contains(id), "{link}"),
            None => drop(kit.get(link).await.is(200)),
        }
    }
    assert!(page.contains("authorization: Bearer $TIDEMILL_TOKEN"));
    assert!(page.len() < 600_000, "{}", page.len());
    kit.close().await;
}

#[tokio::test]
async fn the_bodies_it_shows_can_be_sent() {
    let kit = Kit::sqlite().await;
    let page = kit.get("/docs").await.is(200).body;
    let page =
        page.as_str().unwrap().replace("&quot;", "\"").replace("&gt;", ">").replace("&lt;", "<");
    assert!(!page.contains("TIDEMILL_TOKEN"), "nobody is asked for one");
    let mut bodies = 0;
    for line in page.split("<pre tabindex=\"0\"><code>curl -s").skip(1) {
        let line = line.split_once("</code>").unwrap().0.replace("&amp;", "&");
        let Some((head, body)) = line.split_once(" -d '") else { continue };
        let body = body.trim_end_matches('\'').replace(r"'\''", "'");
        let body: Value =
            serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {line}"));
        let path = head.split_once("</span>").unwrap().1.split('\'').next().unwrap();
        if path.starts_with("/v1/webhooks/") {
            // It would be sent to: the address is somebody's.
            continue;
        }
        let method =
            head.split_once("-X ").map_or("POST", |(_, rest)| rest.split(' ').next().unwrap());
        let told = kit.send(Method::from_bytes(method.as_bytes()).unwrap(), path, &[], body).await;
        assert_ne!(told.status, 400, "{line}: {told:?}");
        bodies += 1;
    }
    assert!(bodies > 20, "{bodies}");
    kit.close().await;
}

/// All values of an attribute.
fn attributes<'a>(page: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    page.split(name).skip(1).filter_map(|rest| rest.split('"').next())
}
