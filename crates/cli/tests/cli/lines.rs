//! Many jobs from JSON lines.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::mill::{Mill, feed};

fn lines(n: usize) -> String {
    let lines: Vec<_> = (0..n).map(|n| format!("{{\"kind\":\"k\",\"payload\":{n}}}\n")).collect();
    lines.concat()
}

fn in_bulk(mill: &Mill) {
    mill.run_with(&["enqueue", "--lines"], &lines(2500)).ok().says("2,500 enqueued");
    let counts = mill.rows(&["queues", "--json"]);
    assert_eq!(counts[0]["ready"]["normal"], 2500);
}

#[test]
fn lines_are_enqueued_in_bulk_on_sqlite() {
    in_bulk(&Mill::sqlite());
}

#[test]
fn lines_are_enqueued_in_bulk_on_postgres() {
    in_bulk(&Mill::postgres());
}

#[test]
fn a_bad_line_is_named_and_nothing_of_its_batch_is_written() {
    let mill = Mill::sqlite();
    for (bad, code) in [
        ("{\"kind\":\"k\",\"dealy\":\"5m\"}", "line_invalid"),
        ("{\"kind\":\"\"}", "name_empty"),
        ("{\"kind\":\"k\",\"payload\":\"\\u0000\"}", "payload_nul"),
        ("not json", "line_invalid"),
    ] {
        let text = format!("{}\n{bad}\n{}", lines(1200), lines(5));
        let ended = mill.run_with(&["enqueue", "-"], &text).code(2);
        ended.says(code).says("line 1202").says("1,000 jobs were enqueued before");
    }
    assert_eq!(mill.rows(&["queues", "--json"])[0]["ready"]["normal"], 4000);
    let ended = mill.run_with(&["enqueue", "-"], &format!("{}no\n", lines(3))).code(2);
    ended.says("line 4").says("nothing was enqueued; mend the line and send all lines again");
}

#[test]
fn duplicates_in_lines_are_counted() {
    let mill = Mill::sqlite();
    let line = "{\"kind\":\"k\",\"unique_key\":\"u\"}\n".repeat(3);
    mill.run_with(&["enqueue", "--lines"], &line).code(5).says("1 enqueued, 2 rejected");
    let joining = "{\"kind\":\"k\",\"unique_key\":\"u\",\"on_duplicate\":\"join\"}\n";
    mill.run_with(&["enqueue", "--lines", "--json"], joining).ok().says(r#"{"joined":1}"#);
}

/// A server that says this to the first who asks, once it has heard all of it.
fn answering(status: u16, body: &str) -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let lines = format!("HTTP/1.1 {status} so\r\ncontent-length: {}\r\n\r\n", body.len());
    let answer = lines + body;
    let answered = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut heard, mut part) = (Vec::new(), [0; 4096]);
        while !heard.ends_with(b"]}") {
            let bytes = stream.read(&mut part).unwrap();
            assert!(bytes > 0, "{}", String::from_utf8_lossy(&heard));
            heard.extend_from_slice(&part[..bytes]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
    });
    (url, answered)
}

#[test]
fn a_batch_that_may_be_enqueued_is_told_so() {
    let mill = Mill::sqlite();
    let problem = |rest| {
        let known = r#""type":"t","title":"t","status":503,"detail":"lost""#;
        format!(r#"{{{known},"code":"store_unavailable"{rest}}}"#)
    };
    let unknown = "whether this batch was is unknown";
    for (status, body, says) in [
        (200, "<html>", unknown),
        (500, "<html>", unknown),
        (503, &problem(r#","unknown":true"#), unknown),
        (503, &problem(""), "nothing of this batch"),
    ] {
        let (url, answered) = answering(status, body);
        let mut command = mill.command(&["--server", &url, "enqueue", "--lines"]);
        command.env_remove("TIDEMILL_STORE");
        feed(command, &lines(2)).code(6).says(says);
        answered.join().unwrap();
    }
}
