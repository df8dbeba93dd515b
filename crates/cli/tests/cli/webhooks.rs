//! `tidemill webhooks` and `tidemill serve`: a secret is shown once, and an endpoint is told of ended jobs.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::mill::{Mill, PATIENCE, stop};

/// Takes one request, answers 204, and says what it was.
fn take(endpoint: &TcpListener) -> String {
    let (mut stream, _) = endpoint.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut told = Vec::new();
    let mut piece = [0; 4096];
    // The body is an object with an object at its end.
    while !told.ends_with(b"}}") {
        let number = stream.read(&mut piece).unwrap();
        assert!(number > 0, "{}", String::from_utf8_lossy(&told));
        told.extend_from_slice(&piece[..number]);
    }
    stream.write_all(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n").unwrap();
    String::from_utf8(told).unwrap()
}

fn delivers(mill: &Mill) {
    let endpoint = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/in?who=me", endpoint.local_addr().unwrap());
    let made =
        mill.run(&["webhooks", "set", "orders", &url, "--queue", "*", "--event", "done"]).ok();
    let secret = made.stdout.trim().to_owned();
    assert!(secret.starts_with("whsec_"), "{made:?}");
    mill.run(&["webhooks", "set", "orders", &url, "--queue", "*"]).ok().says("as before");
    let listed = mill.run(&["webhooks", "--json"]).ok();
    assert!(listed.stdout.contains("orders") && !listed.stdout.contains("whsec_"), "{listed:?}");

    let (server, _) = mill.serve(&["--webhook-allow", "127.0.0.1"]);
    mill.run(&["enqueue", "greet"]).ok();
    let id = mill.rows(&["jobs", "list", "--json"])[0]["id"].as_str().unwrap().to_owned();
    mill.run(&["jobs", "cancel", &id]).ok();
    let told = take(&endpoint);
    assert!(told.starts_with("POST /in?who=me HTTP/1.1\r\n"), "{told}");
    for part in
        ["webhook-id: msg_", "webhook-timestamp: ", "webhook-signature: v1,", "job.cancelled"]
    {
        assert!(told.contains(part), "{part:?} is not in {told}");
    }
    let began = Instant::now();
    let delivered = loop {
        let rows = mill.rows(&["webhooks", "deliveries", "orders", "--json"]);
        if rows[0]["state"] == "done" || began.elapsed() > PATIENCE {
            break rows[0].clone();
        }
    };
    assert_eq!(delivered["status"], 204, "{delivered}");
    let id = delivered["id"].as_str().unwrap();
    mill.run(&["webhooks", "redeliver", "orders", id]).ok();
    let header =
        |told: &str| told.lines().find(|line| line.starts_with("webhook-id")).map(str::to_owned);
    assert_eq!(header(&take(&endpoint)), header(&told));
    stop(server);
    mill.run(&["webhooks", "rotate", "orders", "--overlap", "0s"]).ok().says("shown this once");
    mill.run(&["webhooks", "delete", "orders"]).ok();
    mill.run(&["webhooks", "deliveries", "orders"]).code(3).says("webhook_unknown");
}

#[test]
fn an_endpoint_is_told_on_sqlite() {
    delivers(&Mill::sqlite());
}

#[test]
fn an_endpoint_is_told_on_postgres() {
    delivers(&Mill::postgres());
}

#[test]
fn what_cannot_be_is_refused() {
    let mill = Mill::sqlite();
    mill.run(&["webhooks", "set", "w", "ftp://example.com"]).code(2).says("webhook_invalid");
    mill.run(&["webhooks", "set", "w", "https://example.com", "--event", "x"]).code(2).says("done");
    mill.run(&["serve", "--webhook-allow", "10.0.0.0/99"]).code(2).says("--webhook-allow");
}

#[test]
fn deliveries_are_found_behind_many_newer_jobs() {
    let mill = Mill::sqlite();
    mill.run(&["webhooks", "set", "w", "https://example.com", "--queue", "*"]).ok();
    mill.run(&["enqueue", "greet"]).ok();
    let id = mill.rows(&["jobs", "list", "--json"])[0]["id"].as_str().unwrap().to_owned();
    mill.run(&["jobs", "cancel", &id]).ok();
    let newer = "{\"kind\":\"k\"}\n".repeat(20_001);
    mill.run_with(&["enqueue", "--lines"], &newer).ok();
    assert_eq!(mill.rows(&["webhooks", "deliveries", "w", "--json"]).len(), 1);
}
