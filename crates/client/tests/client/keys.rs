//! Keys are counted and changed over the wire as in the engine, in as many parts as the server makes of it.

use std::net::{Ipv4Addr, SocketAddr};

use tidemill::{Enqueue, Keyring, Reach, Rotated, Tidemill};
use tidemill_client::Client;
use tidemill_server::{Server, Settings};

use super::kit::Kit;

over_both_stores!(all_parts_of_the_way_are_gone_and_added_up);

const OLD: &str = "old AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
const NEW: &str = "new HxwdHhsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA";

async fn all_parts_of_the_way_are_gone_and_added_up(kit: Kit) {
    let open = async |lines: &[&str]| {
        let keys = Keyring::parse(&lines.join("\n")).unwrap();
        Tidemill::builder().keys(keys).open(&kit.url).await.unwrap()
    };
    let old = open(&[OLD]).await;
    let jobs: Vec<_> = (0..7).map(|n| Enqueue::raw("k", n.to_string())).collect();
    old.enqueue_many(jobs).await.unwrap();
    old.close().await;
    let error = kit.client.rotate_keys(|_| {}).await.unwrap_err();
    assert_eq!((error.code(), error.status()), ("encryption_off", Some(409)));

    let both = open(&[NEW, OLD]).await;
    let reach = Reach { rows_max: 2, ..Reach::default() };
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let settings = Settings { listen, reach, ..Settings::default() };
    let server = Server::start(both.clone(), settings).await.unwrap();
    let client = Client::new(&format!("http://{}", server.address())).unwrap();
    let counts = client.key_counts().await.unwrap();
    assert_eq!(counts, both.key_counts().await.unwrap());
    assert_eq!((counts[1].key.as_str(), counts[1].rows), ("old", 7));
    let mut told = Vec::new();
    let rotated = client.rotate_keys(|so_far| told.push(so_far)).await.unwrap();
    assert_eq!(rotated, Rotated { seen: 7, rotated: 7, changed: 0, unreadable: 0 });
    assert!(told.len() > 3 && told.is_sorted_by_key(|so_far| so_far.seen), "{told:?}");
    assert_eq!(told.last(), Some(&rotated));
    assert_eq!(client.key_counts().await.unwrap()[1].rows, 0);
    server.stop().await;
    both.close().await;
    kit.close().await;
}
