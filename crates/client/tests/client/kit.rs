//! What every test here stands on: a fresh database, a server on a free port, and a client.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tidemill::{Fail, JobId, JobView, Payload, Running, Tidemill, Worker};
use tidemill_client::Client;
use tidemill_server::{Server, Settings};
use tidemill_testkit::databases::{fresh_postgres_url, fresh_sqlite_url};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

/// How long anything here may take.
pub const SOON: Duration = Duration::from_secs(30);

/// A server on a database of its own, and a client of it.
pub struct Kit {
    pub mill: Tidemill,
    pub server: Server,
    pub client: Client,
    /// Where its store is.
    pub url: String,
    /// Gone with it.
    folder: Option<TempDir>,
}

/// Makes a test for SQLite and one for Postgres of each function over a `Kit`.
macro_rules! over_both_stores {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::client::kit::Kit::sqlite().await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::client::kit::Kit::postgres().await).await;
            })*
        }
    };
}

/// Who is there instead of the server, and answers nothing.
pub struct Away(TcpListener);

impl Away {
    /// Waits until this was asked for, in vain.
    pub async fn asked(&self, verb: &str) {
        let asked = async {
            loop {
                let (mut stream, _) = self.0.accept().await.unwrap();
                let mut head = [0; 256];
                let bytes = stream.read(&mut head).await.unwrap_or_default();
                if String::from_utf8_lossy(&head[..bytes]).contains(verb) {
                    return;
                }
            }
        };
        tokio::time::timeout(SOON, asked).await.unwrap();
    }
}

/// Whom the workers of a test work for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boss {
    /// The engine, without the server.
    Here,
    /// The server.
    Elsewhere,
}

/// Makes four tests of each function over a `Kit` and a `Boss`: the same handlers, on both stores, for either boss.
macro_rules! over_both_bosses {
    ($($name:ident),* $(,)?) => {
        over_both_bosses!(@ here Here $($name)*);
        over_both_bosses!(@ elsewhere Elsewhere $($name)*);
    };
    (@ $of:ident $boss:ident $($name:ident)*) => {
        mod $of {
            use $crate::client::kit::{Boss, Kit};

            mod sqlite {
                $(#[tokio::test]
                async fn $name() {
                    super::super::$name(super::Kit::sqlite().await, super::Boss::$boss).await;
                })*
            }
            mod postgres {
                $(#[tokio::test]
                async fn $name() {
                    super::super::$name(super::Kit::postgres().await, super::Boss::$boss).await;
                })*
            }
        }
    };
}

impl Kit {
    pub async fn sqlite() -> Self {
        let (folder, url) = fresh_sqlite_url();
        Self::on(&url, Some(folder)).await
    }

    pub async fn postgres() -> Self {
        Self::on(&fresh_postgres_url(), None).await
    }

    async fn on(url: &str, folder: Option<TempDir>) -> Self {
        let mill = Tidemill::open(url).await.unwrap();
        let server = serve(&mill, 0).await;
        let client = Client::new(&format!("http://{}", server.address())).unwrap();
        Self { mill, server, client, url: url.to_owned(), folder }
    }

    /// A worker that has no handlers yet.
    pub fn worker(&self, boss: Boss) -> Worker {
        match boss {
            Boss::Here => self.mill.worker(),
            Boss::Elsewhere => self.client.worker(),
        }
    }

    /// The same with another server in the place of the first, which was away meanwhile.
    pub async fn restart(self, meanwhile: impl AsyncFnOnce(&Tidemill, &Away)) -> Self {
        let Self { mill, server, client, url, folder } = self;
        let (port, began) = (server.address().port(), Instant::now());
        server.stop().await;
        assert!(began.elapsed() < Settings::default().drain, "it waits for nobody who waits");
        let away = Away(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.unwrap());
        meanwhile(&mill, &away).await;
        drop(away);
        let server = serve(&mill, port).await;
        Self { mill, server, client, url, folder }
    }

    /// Waits for the end of a job.
    pub async fn end(&self, id: JobId) -> JobView {
        self.mill.wait(id, SOON).await.unwrap()
    }

    /// What a job that is done returned.
    pub async fn output<T: DeserializeOwned>(&self, id: JobId) -> T {
        let view = self.end(id).await;
        let output = view.output.unwrap_or_else(|| panic!("{:?}: {:?}", view.state, view.error));
        output.read().unwrap()
    }

    /// An embedded worker for the kinds `echo`, which answers its payload, and `fail`, which is dead at once.
    pub async fn work(&self) -> Running {
        let settings = tidemill::Settings::default;
        let echo = |payload: Payload, _| async { Ok(payload) };
        let fail = |_: Payload, _| async { Err::<Payload, _>(Fail::permanent("no such thing")) };
        let worker = self.mill.worker().handle_raw("echo", settings(), echo);
        worker.handle_raw("fail", settings(), fail).start().await.unwrap()
    }

    pub async fn close(self) {
        self.server.stop().await;
        self.mill.close().await;
    }
}

async fn serve(mill: &Tidemill, port: u16) -> Server {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let settings = Settings { listen, ..Settings::default() };
    Server::start(mill.clone(), settings).await.unwrap()
}
