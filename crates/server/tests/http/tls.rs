//! TLS as a client sees it: both protocols, a certificate that is renewed while it serves, files that do not fit, and
//! clients that dawdle.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tidemill::Tidemill;
use tidemill_server::{Error, Server, Settings, TlsFiles};
use tidemill_testkit::certificate::{Authority, Certificate};
use tidemill_testkit::eventually::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::kit::settings;

const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than anybody waits for a single answer here.
const NEVER: Duration = Duration::from_hours(1);

/// An authority that the client trusts, and the folder of the files it signed.
struct Office {
    folder: TempDir,
    authority: Authority,
    mill: Tidemill,
}

type Shown = Vec<u8>;

impl Office {
    async fn new() -> Self {
        let office = Self {
            folder: tempfile::tempdir().unwrap(),
            authority: Authority::new().unwrap(),
            mill: Tidemill::open("sqlite::memory:").await.unwrap(),
        };
        office.put(&office.sign());
        office
    }

    fn sign(&self) -> Certificate {
        self.authority.sign("localhost").unwrap()
    }

    fn files(&self) -> TlsFiles {
        let file = |name: &str| self.folder.path().join(name);
        TlsFiles { certificate: file("server.crt"), key: file("server.key") }
    }

    fn put(&self, Certificate { certificate, key }: &Certificate) {
        let files = self.files();
        std::fs::write(files.certificate, certificate).unwrap();
        std::fs::write(files.key, key).unwrap();
    }

    fn settings(&self) -> Settings {
        let tls_look = Duration::from_millis(5);
        Settings { tls: Some(self.files()), tls_look, ..settings() }
    }

    async fn serve(&self, settings: Settings) -> Server {
        Server::start(self.mill.clone(), settings).await.unwrap()
    }

    /// Shakes hands as one who speaks these protocols.
    async fn connect(&self, to: SocketAddr, protocols: &[&str]) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(der(&self.authority.certificate)).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(to).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    }

    /// The certificate that a new connection is shown.
    async fn shown(&self, to: SocketAddr) -> Shown {
        let stream = self.connect(to, &["http/1.1"]).await;
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    }

    /// The value of a metric of the server.
    async fn measured(&self, to: SocketAddr, name: &str) -> f64 {
        let page = ask(&mut self.connect(to, &[]).await, "/metrics", "close").await;
        let line = page.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {page}"))
            .rsplit(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    }

    async fn measures(&self, to: SocketAddr, name: &str, value: f64) {
        eventually(name, PATIENCE, async || (self.measured(to, name).await >= value).then_some(()))
            .await;
    }
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// Asks in HTTP/1.1; `connection: close` reads until the server closes, otherwise one read has the small answer.
async fn ask(stream: &mut TlsStream<TcpStream>, path: &str, connection: &str) -> String {
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: {connection}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4096];
    if connection == "close" {
        answer.clear();
        stream.read_to_end(&mut answer).await.unwrap();
    } else {
        let length = stream.read(&mut answer).await.unwrap();
        answer.truncate(length);
    }
    String::from_utf8(answer).unwrap()
}

/// Completes when the other side has closed; a connection that stays open is a failure.
async fn closed(stream: &mut TcpStream) {
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await;
    let _closed_or_reset = read.expect("the connection stays open");
}

#[tokio::test]
async fn both_protocols_are_spoken_inside() {
    let office = Office::new().await;
    let server = office.serve(office.settings()).await;
    let mut stream = office.connect(server.address(), &["http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert!(ask(&mut stream, "/livez", "close").await.starts_with("HTTP/1.1 200"));

    let stream = office.connect(server.address(), &["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::builder().method(Method::GET).uri("https://localhost/livez");
    let (answer, _) =
        sender.ready().await.unwrap().send_request(request.body(()).unwrap(), true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 200);
    drop(connection);
    server.stop().await;
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_new_connections_and_old_ones_stay() {
    let office = Office::new().await;
    let server = office.serve(office.settings()).await;
    let at = server.address();
    let mut old = office.connect(at, &["http/1.1"]).await;
    assert!(ask(&mut old, "/livez", "keep-alive").await.contains("200 OK"));

    let renewed = office.sign();
    office.put(&renewed);
    let expected = der(&renewed.certificate).to_vec();
    let seen = async || (office.shown(at).await == expected).then_some(());
    eventually("the renewed certificate", PATIENCE, seen).await;
    office.measures(at, "tidemill_tls_reloads_total", 1.0).await;
    assert!(ask(&mut old, "/livez", "keep-alive").await.contains("200 OK"), "the old one stays");
    server.stop().await;
}

#[tokio::test]
async fn files_that_break_while_it_serves_keep_the_certificate_and_are_told() {
    let office = Office::new().await;
    let server = office.serve(office.settings()).await;
    let at = server.address();
    let first = office.shown(at).await;
    let other = office.sign();
    let breaks: [&dyn Fn(); 4] = [
        &|| {
            std::fs::write(office.files().certificate, "-----BEGIN CERTIFICATE-----\nbroken")
                .unwrap();
        },
        &|| std::fs::write(office.files().certificate, &other.certificate).unwrap(),
        &|| std::fs::remove_file(office.files().certificate).unwrap(),
        &|| std::fs::remove_file(office.files().key).unwrap(),
    ];
    for break_it in breaks {
        break_it();
        office.measures(at, "tidemill_tls_files_refused", 1.0).await;
        assert_eq!(office.shown(at).await, first);
    }
    office.put(&other);
    let expected = der(&other.certificate).to_vec();
    let seen = async || (office.shown(at).await == expected).then_some(());
    eventually("the certificate that fits again", PATIENCE, seen).await;
    let healed =
        async || (office.measured(at, "tidemill_tls_files_refused").await == 0.0).then_some(());
    eventually("that nothing is refused any more", PATIENCE, healed).await;
    server.stop().await;
}

#[tokio::test]
async fn files_that_do_not_fit_are_named_before_it_listens() {
    let office = Office::new().await;
    let good = office.sign();
    let refused = async |certificate: Option<&str>,
                         key: Option<&str>,
                         file: &PathBuf,
                         says: &str| {
        for (file, text) in [(office.files().certificate, certificate), (office.files().key, key)] {
            match text {
                Some(text) => std::fs::write(file, text).unwrap(),
                None => drop(std::fs::remove_file(file)),
            }
        }
        let error = Server::start(office.mill.clone(), office.settings()).await.unwrap_err();
        assert!(matches!(error, Error::TlsInvalid(_)) && error.code() == "tls_invalid", "{error}");
        let text = error.to_string();
        assert!(text.contains(&*file.to_string_lossy()) && text.contains(says), "{text}");
    };
    let TlsFiles { certificate, key } = office.files();
    let (a_certificate, a_key) = (Some(&*good.certificate), Some(&*good.key));
    let another = office.sign();
    let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    refused(None, a_key, &certificate, "correct the path").await;
    refused(a_certificate, None, &key, "correct the path").await;
    refused(Some("hello"), a_key, &certificate, "no certificate in it").await;
    refused(a_key, a_key, &certificate, "no certificate in it").await;
    refused(Some(damaged), a_key, &certificate, "get it anew").await;
    let no_pem = damaged.replace("AAAA", "?");
    refused(Some(&no_pem), a_key, &certificate, "name one with -----BEGIN CERTIFICATE").await;
    let no_key = damaged.replace("CERTIFICATE", "PRIVATE KEY");
    refused(a_certificate, Some(&no_key), &key, "make one of RSA, ECDSA or Ed25519").await;
    refused(a_certificate, a_certificate, &key, "no private key in it").await;
    refused(a_certificate, Some(&another.key), &key, "not the key of the certificate in").await;
}

#[tokio::test]
async fn clients_that_say_nothing_lose_their_connection_with_tls_and_without() {
    let office = Office::new().await;
    let head_timeout = Duration::from_millis(200);
    for tls in [None, Some(office.files())] {
        let is_tls = tls.is_some();
        let server = office.serve(Settings { tls, head_timeout, ..office.settings() }).await;
        for says in ["", "PRI * HTT", "GET / HT"] {
            let mut stream = TcpStream::connect(server.address()).await.unwrap();
            stream.write_all(says.as_bytes()).await.unwrap();
            closed(&mut stream).await;
        }
        if is_tls {
            for says in ["", "PRI * HTT", "GET / HT"] {
                let mut stream = office.connect(server.address(), &["h2", "http/1.1"]).await;
                stream.write_all(says.as_bytes()).await.unwrap();
                closed(&mut stream.into_inner().0).await;
            }
            office.measures(server.address(), "tidemill_tls_handshakes_failed_total", 3.0).await;
        }
        server.stop().await;
    }
}

#[tokio::test]
async fn a_connection_in_its_handshake_counts_and_a_stop_does_not_wait_for_it() {
    let office = Office::new().await;
    let (head_timeout, drain) = (NEVER, NEVER);
    let settings = Settings { head_timeout, drain, connections_max: 1, ..office.settings() };
    let server = office.serve(settings).await;
    let silent = TcpStream::connect(server.address()).await.unwrap();
    let mut second = Box::pin(office.shown(server.address()));
    let waits = tokio::time::timeout(Duration::from_millis(100), &mut second).await;
    assert!(waits.is_err(), "there was room for one alone");
    drop(silent);
    second.await;
    let mut silent = TcpStream::connect(server.address()).await.unwrap();
    tokio::time::timeout(PATIENCE, server.stop()).await.expect("a stop waits for a handshake");
    closed(&mut silent).await;
}
