//! Fresh, empty databases: one per test, so that tests run side by side and start from nothing.
//!
//! `cargo xtask test` starts one server for the whole run and names it in `TIDEMILL_TEST_POSTGRES`.
//! A test that is run alone finds the variable unset and starts a server for its own process, which
//! ends with that process.
//!
//! To bring a database to its schema takes longer than most tests. So `cargo xtask test` does it once, and names that
//! database in `TIDEMILL_TEST_TEMPLATE`: fresh ones are copies of it, and whoever opens one finds nothing to do. Tests
//! of how the schema comes about ask for an empty one.
//!
//! It refuses to drop databases: a failed test's data is evidence, and the server is thrown away.
//! Whoever points the variable at a server that stays must clean it up.

use std::env;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::thread;

use anyhow::{Context, Result, anyhow};
use tempfile::TempDir;
use tokio::runtime::Builder;
use tokio_postgres::NoTls;

use crate::cluster::Cluster;
use crate::server_url::ServerUrl;

/// Names the server to make databases on: the URL of its maintenance database.
pub const SERVER_VARIABLE: &str = "TIDEMILL_TEST_POSTGRES";

/// Names the database on that server that fresh ones are copies of; unset, they are empty.
pub const TEMPLATE_VARIABLE: &str = "TIDEMILL_TEST_TEMPLATE";

/// Has no sessions by design, so that parallel tests do not block each other.
const EMPTY: &str = "template0";

static OWN_SERVER: OnceLock<Result<Cluster, String>> = OnceLock::new();

/// The URL of a new PostgreSQL database with a random name, without any rows of ours. Its schema may be there already.
///
/// Blocks the calling thread, for as long as it takes to start a server the first time. It may be
/// called inside or outside a tokio runtime.
///
/// # Panics
///
/// When there is no PostgreSQL, or it refuses; a test has no use for that error.
pub fn fresh_postgres_url() -> String {
    let template = env::var(TEMPLATE_VARIABLE).unwrap_or_else(|_| EMPTY.to_owned());
    copy(template)
}

/// The URL of a new PostgreSQL database in which there is nothing.
///
/// # Panics
///
/// As [`fresh_postgres_url`] does.
pub fn empty_postgres_url() -> String {
    copy(EMPTY.to_owned())
}

fn copy(template: String) -> String {
    let name = format!("test_{:016x}", RandomState::new().hash_one("database"));
    let copying = move || create(&maintenance_url()?, &name, &template);
    // A thread and a runtime of our own: the caller may be inside a runtime, or have none.
    let made = thread::spawn(copying).join();
    made.expect("the thread that makes a database does not panic")
        .unwrap_or_else(|error| panic!("cannot make a test database: {error:#}"))
}

/// A new folder and the URL of a SQLite database in it that does not exist yet.
///
/// The folder is removed when the first value is dropped, so keep it for as long as the database.
///
/// # Panics
///
/// When the folder cannot be made.
///
/// ```
/// let (folder, url) = tidemill_testkit::databases::fresh_sqlite_url();
/// assert_eq!(url, format!("sqlite:{}/test.db", folder.path().display()));
/// ```
pub fn fresh_sqlite_url() -> (TempDir, String) {
    let folder = tempfile::Builder::new().prefix("tidemill-sqlite-").tempdir();
    let folder = folder.expect("a temporary folder can be made");
    let url = format!("sqlite:{}", folder.path().join("test.db").display());
    (folder, url)
}

fn create(server: &str, name: &str, template: &str) -> Result<String> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(server, NoTls).await?;
        let running = tokio::spawn(connection);
        client.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {template}")).await?;
        drop(client);
        running.await??;
        anyhow::Ok(())
    })?;
    Ok(ServerUrl::parse(server)?.with_database(name))
}

fn maintenance_url() -> Result<String> {
    match env::var(SERVER_VARIABLE) {
        Ok(url) => {
            ServerUrl::parse(&url).with_context(|| format!("{SERVER_VARIABLE} is not usable"))?;
            Ok(url)
        }
        Err(env::VarError::NotPresent) => own_server(),
        Err(error) => Err(anyhow!("{SERVER_VARIABLE}: {error}")),
    }
}

fn own_server() -> Result<String> {
    let server = OWN_SERVER.get_or_init(|| Cluster::start().map_err(|error| format!("{error:#}")));
    server.as_ref().map(|server| server.url("postgres")).map_err(|error| anyhow!(error.clone()))
}
