//! `tidemill serve` as a process: it listens, tells systemd, answers, and stops when it is told.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use tidemill_testkit::Process;
use tidemill_testkit::certificate::Authority;

use super::mill::{Mill, stop};

fn serves(mill: &Mill) {
    let socket = mill.file("notify");
    let systemd = UnixDatagram::bind(&socket).unwrap();
    systemd.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let hears = || {
        let mut text = [0; 64];
        let length = systemd.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let mut command = mill.command(&["--json", "serve", "--listen", "127.0.0.1:0"]);
    let server = Process::spawn(command.env("NOTIFY_SOCKET", &socket)).unwrap();
    let line = server.next_line(Duration::from_secs(30)).unwrap();
    let url: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = url["url"].as_str().unwrap().strip_prefix("http://").unwrap();
    assert_eq!(hears(), "READY=1");

    let body = r#"{"kind":"greet","payload":{"name":"Ada"}}"#;
    let length = body.len();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /v1/jobs HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 Created"), "{answer}");
    assert_eq!(mill.rows(&["jobs", "list", "--json"])[0]["kind"], "greet");

    stop(server);
    assert_eq!(hears(), "STOPPING=1");
}

#[test]
fn a_server_answers_and_stops_on_sqlite() {
    serves(&Mill::sqlite());
}

#[test]
fn a_server_answers_and_stops_on_postgres() {
    serves(&Mill::postgres());
}

#[test]
fn an_address_that_others_reach_is_refused() {
    let mill = Mill::sqlite();
    mill.run(&["serve", "--listen", "0.0.0.0:0"]).code(2).says("bind_refused");
    mill.run(&["serve", "--listen", "here"]).code(2).says("--listen");
    mill.run(&["serve", "--tls-cert", "a.crt"]).code(2).says("--tls-key");
    let named = ["serve", "--listen", "127.0.0.1:0", "--tls-cert", "a.crt", "--tls-key", "a.key"];
    mill.run(&named).code(2).says("tls_invalid").says("a.crt");
    let described = mill.run(&["serve", "--describe"]).ok().stdout;
    assert_eq!(described.trim(), include_str!("../../../server/openapi.json").trim());
}

#[test]
fn a_server_with_a_certificate_says_that_it_speaks_tls() {
    let mill = Mill::sqlite();
    let signed = Authority::new().unwrap().sign("localhost").unwrap();
    let (certificate, key) = (mill.file("mill.crt"), mill.file("mill.key"));
    std::fs::write(&certificate, signed.certificate).unwrap();
    std::fs::write(&key, signed.key).unwrap();
    let mut command = mill.command(&["--json", "serve", "--listen", "127.0.0.1:0"]);
    command.env("TIDEMILL_TLS_CERT", certificate).env("TIDEMILL_TLS_KEY", key);
    let server = Process::spawn(&mut command).unwrap();
    let line = server.next_line(Duration::from_secs(30)).unwrap();
    let address = line.split_once("https://").unwrap().1.split('"').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _closed_or_reset = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "plain words are not answered");
    stop(server);
}
