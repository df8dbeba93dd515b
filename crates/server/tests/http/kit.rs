//! What every test here stands on: a fresh database, a server on a free port, and a client.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;
use tempfile::TempDir;
use tidemill::{Fail, Grant, Keyring, Payload, Reach, Redaction, Running, Tidemill};
use tidemill_server::{Access, Server, Settings};
use tidemill_testkit::databases::{fresh_postgres_url, fresh_sqlite_url};

/// A server on a database of its own.
pub struct Kit {
    pub mill: Tidemill,
    pub server: Server,
    url: String,
    client: reqwest::Client,
    _folder: Option<TempDir>,
}

/// Makes a test for SQLite and one for Postgres of each function over a `Kit`.
macro_rules! over_both_stores {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::http::kit::Kit::sqlite().await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::http::kit::Kit::postgres().await).await;
            })*
        }
    };
}

pub fn settings() -> Settings {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Settings { listen, body_bytes_max: 100_000, ..Settings::default() }
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
        let server = Server::start(mill.clone(), settings()).await.unwrap();
        let url = url.to_owned();
        Self { mill, server, url, client: reqwest::Client::new(), _folder: folder }
    }

    /// Where its store is, for another process.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Another node on the same database.
    pub async fn twin(&self) -> Self {
        Self::on(&self.url, None).await
    }

    /// The same, with another server that lets in only who shows a credential.
    pub async fn closed(mut self) -> Self {
        let closed = Settings { access: Access::Credentials, ..settings() };
        let server = Server::start(self.mill.clone(), closed).await.unwrap();
        std::mem::replace(&mut self.server, server).stop().await;
        self
    }

    /// The same, with another server that hides these fields.
    pub async fn hiding(mut self, rules: &[&str]) -> Self {
        let hidden = Redaction::parse(rules.iter().copied()).unwrap();
        let mill = Tidemill::builder().hide(hidden).open(&self.url).await.unwrap();
        let server = Server::start(mill.clone(), settings()).await.unwrap();
        std::mem::replace(&mut self.server, server).stop().await;
        std::mem::replace(&mut self.mill, mill).close().await;
        self
    }

    /// The same, with another server that has these keys, and goes so far at a time when it changes them.
    pub async fn keyed(mut self, lines: &[&str], reach: Reach) -> Self {
        let keys = Keyring::parse(&lines.join("\n")).unwrap();
        let mill = Tidemill::builder().keys(keys).open(&self.url).await.unwrap();
        let reaching = Settings { reach, ..settings() };
        let server = Server::start(mill.clone(), reaching).await.unwrap();
        std::mem::replace(&mut self.server, server).stop().await;
        std::mem::replace(&mut self.mill, mill).close().await;
        self
    }

    /// Another node on the same database, that lets in only who shows a credential and hides these fields.
    pub async fn twin_hiding(&self, rules: &[&str]) -> Self {
        Self::on(&self.url, None).await.hiding(rules).await.closed().await
    }

    /// A credential with this grant; answers its secret.
    pub async fn credential(&self, name: &str, grant: Grant) -> String {
        let (_, secret) = self.mill.credentials().create(name, grant, None).await.unwrap();
        secret.reveal().to_owned()
    }

    /// Asks as the holder of a secret.
    pub async fn ask(&self, secret: &str, method: Method, path: &str, body: Value) -> Told {
        let bearer = format!("Bearer {secret}");
        self.send(method, path, &[("authorization", &bearer)], body).await
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.server.address()))
    }

    pub async fn get(&self, path: &str) -> Told {
        Told::of(self.request(Method::GET, path).send().await.unwrap()).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Told {
        self.send(Method::POST, path, &[], body).await
    }

    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Told {
        let request = self.request(method, path).json(&body);
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        Told::of(request.send().await.unwrap()).await
    }

    /// Enqueues a job and answers its id.
    pub async fn enqueue(&self, wish: Value) -> String {
        let told = self.post("/v1/jobs", wish).await.is(201);
        told.body["id"].as_str().unwrap().to_owned()
    }

    /// A worker for the kinds `echo`, which answers its payload, and `fail`, which is dead at once.
    pub async fn work(&self) -> Running {
        let settings = tidemill::Settings::default;
        let echo = |payload: Payload, _| async { Ok(payload) };
        let fail = |_: Payload, _| async { Err::<Payload, _>(Fail::permanent("no such thing")) };
        let worker = self.mill.worker().handle_raw("echo", settings(), echo);
        worker.handle_raw("fail", settings(), fail).start().await.unwrap()
    }

    /// Waits until a job has finished, by the API.
    pub async fn finished(&self, id: &str) -> Value {
        self.get(&format!("/v1/jobs/{id}/wait?timeout=30s")).await.is(200).body
    }

    pub async fn close(self) {
        self.server.stop().await;
        self.mill.close().await;
    }
}

/// What a request was answered.
#[derive(Debug)]
pub struct Told {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Told {
    pub async fn of(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = tokio::time::timeout(Duration::from_mins(1), response.text()).await;
        let text = text.unwrap().unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Self { status, headers, body }
    }

    /// Of this status.
    #[track_caller]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    /// Taken or refused, and no fault of the server's.
    #[track_caller]
    pub fn below(self, status: u16) -> Self {
        assert!(self.status < status, "{self:?}");
        self
    }

    /// A problem document of this status and code, whose detail says this.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str, says: &str) -> Self {
        let told = self.is(status);
        assert_eq!(told.header("content-type"), "application/problem+json", "{told:?}");
        assert_eq!(told.body["code"], code, "{told:?}");
        assert_eq!(told.body["status"], status, "{told:?}");
        let detail = told.body["detail"].as_str().unwrap();
        assert!(detail.contains(says), "{detail:?} does not say {says:?}");
        told
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}
