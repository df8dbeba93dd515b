//! How a store connects: with no more connections than it uses, and with no fewer wishes than the server allows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidemill_store::{OpenOptions, open};
use tidemill_testkit::databases::fresh_postgres_url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::kit::store;
use super::proxy::Proxy;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connections_that_see_who_answers_are_the_first_that_are_used() {
    let proxy = Proxy::start(&fresh_postgres_url()).await;
    let store = store(proxy.url()).await;
    assert_eq!(proxy.carried(), 2, "one beside another shows whether somebody shares them");
    let (one, other) = tokio::join!(store.now(), store.unfinished());
    assert!(one.is_ok() && other.is_ok());
    assert_eq!(proxy.carried(), 2);
    store.close().await;
}

/// A server that answers every connection with this error; answers where, and how many there were.
async fn refusing(code: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            let fields = format!("SFATAL\0C{code}\0Mno\0\0");
            let length = (fields.len() as u32 + 4).to_be_bytes();
            let answer = [b"E".as_slice(), &length, fields.as_bytes()].concat();
            let _ = client.read(&mut [0; 1024]).await;
            let _ = client.write_all(&answer).await;
        }
    });
    (format!("postgres://me@127.0.0.1:{port}/app?sslmode=disable"), refused)
}

/// Without its wishes it would be let in a moment later, and go without them until it ends.
#[tokio::test]
async fn who_cannot_take_anybody_now_is_not_taken_for_one_who_refuses_wishes() {
    for code in ["53300", "57P03"] {
        let (url, refused) = refusing(code).await;
        let error = open(&url, OpenOptions::default()).await.map(|_| ()).unwrap_err();
        assert!(error.is_temporary(), "{code}: {error:?}");
        let tried = refused.load(Ordering::Relaxed);
        assert!((1..=2).contains(&tried), "{code}: asked {tried} times");
    }
}
