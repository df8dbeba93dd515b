//! Over TLS as without it: whom the client trusts it speaks to, and to nobody else; connections are used again.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tempfile::TempDir;
use tidemill::{Enqueue, State, Tidemill};
use tidemill_client::Client;
use tidemill_server::{Server, Settings, TlsFiles};
use tidemill_testkit::certificate::Authority;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

/// A server that shows a certificate of an authority of its own.
struct Secure {
    mill: Tidemill,
    server: Server,
    authority: Authority,
    _folder: TempDir,
}

impl Secure {
    async fn start(name: &str) -> Self {
        let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new().unwrap());
        let signed = authority.sign(name).unwrap();
        let file = |name: &str| folder.path().join(name);
        let files = TlsFiles { certificate: file("server.crt"), key: file("server.key") };
        std::fs::write(&files.certificate, signed.certificate).unwrap();
        std::fs::write(&files.key, signed.key).unwrap();
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let settings = Settings { listen, tls: Some(files), ..Settings::default() };
        let mill = Tidemill::open("sqlite::memory:").await.unwrap();
        let server = Server::start(mill.clone(), settings).await.unwrap();
        Self { mill, server, authority, _folder: folder }
    }

    fn client(&self, address: SocketAddr) -> Client {
        let builder = Client::builder(&format!("https://{address}"));
        builder.trust(&*self.authority.certificate).build().unwrap()
    }

    async fn close(self) {
        self.server.stop().await;
        self.mill.close().await;
    }
}

/// Passes connections on to a server, and counts them.
async fn counted(server: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            counter.fetch_add(1, SeqCst);
            tokio::spawn(async move {
                let mut far = TcpStream::connect(server).await.unwrap();
                copy_bidirectional(&mut near, &mut far).await
            });
        }
    });
    (address, count)
}

#[tokio::test]
async fn one_connection_serves_one_after_another() {
    let secure = Secure::start("127.0.0.1").await;
    let (address, connections) = counted(secure.server.address()).await;
    let client = secure.client(address);
    let later = || Enqueue::raw("k", "[1.50]").delay(Duration::from_hours(1));
    for _ in 0..10 {
        let id = client.enqueue(later()).await.unwrap().id();
        let view = client.job(id).await.unwrap().unwrap();
        assert_eq!((view.state, view.job.payload.as_str()), (State::Scheduled, "[1.50]"));
    }
    assert_eq!(connections.load(SeqCst), 1);
    secure.close().await;
}

#[tokio::test]
async fn who_is_not_trusted_is_told_nothing() {
    let secure = Secure::start("127.0.0.1").await;
    let address = secure.server.address();
    let stranger = Client::builder(&format!("https://{address}")).token("tm_secret");
    let stranger = stranger.trust(Authority::new().unwrap().certificate).build().unwrap();
    let unsecured = Client::new(&format!("http://{address}")).unwrap();
    for (client, reason) in [(stranger, "--ca-file"), (unsecured, "")] {
        let error = client.enqueue(Enqueue::raw("k", "1")).await.unwrap_err();
        assert_eq!(error.code(), "server_unreachable");
        assert!(error.to_string().contains(reason), "{error}");
    }
    assert!(secure.mill.queues().await.unwrap().is_empty());
    secure.close().await;
}

#[tokio::test]
async fn a_certificate_of_another_name_is_not_trusted() {
    let secure = Secure::start("elsewhere.example").await;
    let client = secure.client(secure.server.address());
    let error = client.enqueue(Enqueue::raw("k", "1")).await.unwrap_err();
    assert_eq!(error.code(), "server_unreachable");
    assert!(error.to_string().contains("certificate"), "{error}");
    assert!(secure.mill.queues().await.unwrap().is_empty());
    secure.close().await;
}
