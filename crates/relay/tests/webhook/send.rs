//! One request: where it may go, whom it trusts, and for how long it waits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use axum::response::IntoResponse;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tidemill::core::webhook::target::Policy;
use tidemill_relay::webhook::send::{Resolve, Sender, Trouble};
use tidemill_testkit::certificate::Authority;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{Endpoint, local};

/// One that says something else each time it is asked.
struct Fickle(Vec<&'static str>, Arc<AtomicUsize>);

impl Resolve for Fickle {
    fn resolve<'a>(
        &'a self,
        _: &'a str,
        port: u16,
    ) -> std::pin::Pin<Box<dyn Future<Output = std::io::Result<Vec<SocketAddr>>> + Send + 'a>> {
        let asked = self.1.fetch_add(1, SeqCst).min(self.0.len() - 1);
        let addresses = self.0[asked].split(' ').filter(|text| !text.is_empty());
        let addresses =
            addresses.map(|text| SocketAddr::new(text.parse().unwrap(), port)).collect();
        Box::pin(async move { Ok(addresses) })
    }
}

#[tokio::test]
async fn a_name_that_means_this_network_is_not_called() {
    let (endpoint, address) = Endpoint::open().await;
    for addresses in [
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "93.184.216.34 127.0.0.1",
        "64:ff9b::7f00:1",
        "fd00::1",
        "100.64.0.1",
    ] {
        let asked = Arc::new(AtomicUsize::new(0));
        let sender =
            Sender::new(Policy::default()).resolver(Fickle(vec![addresses], Arc::clone(&asked)));
        let url = format!("https://innocent.example:{}/in", address.port());
        let refused = sender.send(&url, &[], "{}".into()).await;
        assert!(matches!(refused, Err(Trouble::Refused(_))), "{addresses}: {refused:?}");
        assert_eq!(asked.load(SeqCst), 1);
    }
    assert!(endpoint.told().is_empty());
}

/// The first answer is checked and called; what the name means a moment later is not asked for.
#[tokio::test]
async fn a_name_that_changes_its_meaning_is_called_where_it_was_checked() {
    let (allowed, address) = Endpoint::open().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let fickle = Fickle(vec!["127.0.0.1", "127.0.0.9"], Arc::clone(&asked));
    let sender = Sender::new(local()).resolver(fickle);
    let url = format!("http://innocent.example:{}/in", address.port());
    assert_eq!(sender.send(&url, &[], "{}".into()).await.unwrap().status, 204);
    assert_eq!((asked.load(SeqCst), allowed.told().len()), (1, 1));
    assert_eq!(
        allowed.told()[0].0["host"],
        format!("innocent.example:{}", address.port()).as_str()
    );
    assert!(matches!(sender.send(&url, &[], "{}".into()).await, Err(Trouble::Refused(_))));
}

#[tokio::test]
async fn one_that_never_answers_or_answers_without_end_keeps_nobody() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/in", silent.local_addr().unwrap());
    let sender = Sender::new(local()).timeout(Duration::from_millis(50));
    let failed = sender.send(&url, &[], "{}".into()).await.unwrap_err();
    assert!(matches!(&failed, Trouble::Failed { reason, .. } if reason == "no answer"), "{failed}");

    let (endpoint, address) = Endpoint::open().await;
    let url = format!("http://{address}/in");
    endpoint.answer([
        "x".repeat(50_000_000).into_response(),
        ([("x-long", "y".repeat(60_000))], "x").into_response(),
    ]);
    let sender = Sender::new(local());
    assert_eq!(sender.send(&url, &[], "{}".into()).await.unwrap().status, 200, "nobody reads it");
    let failed = sender.send(&url, &[], "{}".into()).await.unwrap_err();
    assert!(matches!(failed, Trouble::Failed { .. }), "its head is too long: {failed}");
    drop(silent);
}

/// A server of this name, by a certificate that the authority signed. Answers 204 to whatever is sent.
async fn secure(authority: &Authority, name: &str) -> SocketAddr {
    let shown = authority.sign(name).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(shown.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_no_client_auth()
    .with_single_cert(chain, key)
    .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut head = [0; 4096];
            let read = stream.read(&mut head).await.unwrap();
            assert!(head[..read].starts_with(b"POST /in HTTP/1.1"));
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    address
}

/// The connection goes to the address; the certificate is still asked for by the name.
#[tokio::test]
async fn a_certificate_must_be_of_the_name_and_of_somebody_who_is_trusted() {
    let authority = Authority::new().unwrap();
    let root = CertificateDer::from_pem_slice(authority.certificate.as_bytes()).unwrap();
    let address = secure(&authority, "hooks.example").await;
    let fickle = || Fickle(vec!["127.0.0.1"], Arc::default());
    let sender = Sender::trusting(local(), [root]).resolver(fickle());
    let url = |name: &str| format!("https://{name}:{}/in", address.port());
    assert_eq!(sender.send(&url("hooks.example"), &[], "{}".into()).await.unwrap().status, 204);
    let stranger = Sender::new(local()).resolver(fickle());
    for (sender, name) in [(&sender, "other.example"), (&stranger, "hooks.example")] {
        let failed = sender.send(&url(name), &[], "{}".into()).await.unwrap_err();
        assert!(failed.to_string().contains("TLS"), "{failed}");
    }
}
