//! A wire that can lose an answer: it carries a statement to the server, lets the server do it, and
//! breaks before the answer is back. It can also be slow.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A proxy in front of a server.
#[derive(Clone)]
pub struct Proxy {
    url: String,
    doomed: Arc<Mutex<Option<String>>>,
    carried: Arc<AtomicUsize>,
    is_slow: Arc<AtomicBool>,
}

/// How long a slow one takes for so many bytes to the server: 6.4 MB a second.
const SLOW: (Duration, usize) = (Duration::from_millis(10), 64_000);

impl Proxy {
    /// Starts one in front of the database that `url` names.
    pub async fn start(url: &str) -> Self {
        let (login, rest) = url.split_once('@').unwrap();
        let (server, database) = rest.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // Unnamed, so that every statement travels with its text.
        let url = format!("{login}@127.0.0.1:{port}/{database}?prepare=off");
        let proxy =
            Self { url, doomed: Arc::default(), carried: Arc::default(), is_slow: Arc::default() };
        let (carrier, server) = (proxy.clone(), server.to_owned());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                carrier.carried.fetch_add(1, Ordering::Relaxed);
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(carrier.clone().carry(client, server));
            }
        });
        proxy
    }

    /// Where to reach the database through it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How many connections were made through it.
    pub fn carried(&self) -> usize {
        self.carried.load(Ordering::Relaxed)
    }

    /// Loses the answer to the next message that contains this text.
    pub fn lose_answer_to(&self, text: &str) {
        *self.doomed.lock().unwrap() = Some(text.to_owned());
    }

    /// Connections that are made from now on are slow.
    pub fn slow_down(&self) {
        self.is_slow.store(true, Ordering::Relaxed);
    }

    /// Whether an answer is still to be lost.
    pub fn is_armed(&self) -> bool {
        self.doomed.lock().unwrap().is_some()
    }

    fn dooms(&self, message: &[u8]) -> bool {
        let mut doomed = self.doomed.lock().unwrap();
        let found = doomed
            .as_ref()
            .is_some_and(|text| message.windows(text.len()).any(|part| part == text.as_bytes()));
        if found {
            *doomed = None;
        }
        found
    }

    async fn carry(self, mut client: TcpStream, mut server: TcpStream) {
        let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
        let mut is_lost = false;
        let (tick, bytes) = SLOW;
        let mut slow = self.is_slow.load(Ordering::Relaxed).then(|| {
            up.truncate(bytes);
            tokio::time::interval(tick)
        });
        loop {
            tokio::select! {
                read = client.read(&mut up) => match read {
                    Ok(size @ 1..) => {
                        is_lost |= self.dooms(&up[..size]);
                        if let Some(slow) = &mut slow {
                            slow.tick().await;
                        }
                        if server.write_all(&up[..size]).await.is_err() {
                            return;
                        }
                    }
                    _ => return,
                },
                read = server.read(&mut down) => match read {
                    Ok(size @ 1..) if !is_lost => {
                        if client.write_all(&down[..size]).await.is_err() {
                            return;
                        }
                    }
                    // The server has answered, so it has done it; nobody will hear.
                    _ => return,
                },
            }
        }
    }
}
