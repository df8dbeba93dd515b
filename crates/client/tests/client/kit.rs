//! What every test here stands on: a fresh database, a server on a free port, and a client.

use std::net::{Ipv4Addr, SocketAddr};

use tempfile::TempDir;
use tidemill::{Fail, Payload, Running, Tidemill};
use tidemill_client::Client;
use tidemill_server::{Server, Settings};
use tidemill_testkit::databases::{fresh_postgres_url, fresh_sqlite_url};

/// A server on a database of its own, and a client of it.
pub struct Kit {
    pub mill: Tidemill,
    pub server: Server,
    pub client: Client,
    _folder: Option<TempDir>,
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
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let settings = Settings { listen, ..Settings::default() };
        let server = Server::start(mill.clone(), settings).await.unwrap();
        let client = Client::new(&format!("http://{}", server.address())).unwrap();
        Self { mill, server, client, _folder: folder }
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
