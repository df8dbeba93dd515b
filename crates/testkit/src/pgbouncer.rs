//! A PgBouncer in transaction mode, in front of a test server.
//!
//! Many production databases sit behind one, and it breaks whatever relies on a session: prepared
//! statements by name, `SET`, `LISTEN`, advisory locks. Tidemill promises to work behind it, so the
//! promise is tested with the real thing.
//!
//! It refuses session mode, which would hide exactly those mistakes, and it refuses to outlive us.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::account::Account;
use crate::binaries::find_on_path;
use crate::eventually::until;
use crate::guard::Guard;
use crate::server_url::ServerUrl;
use crate::{install, port};

/// Names the program to use; `cargo xtask test` sets it.
pub const BIN_VARIABLE: &str = "TIDEMILL_TEST_PGBOUNCER_BIN";

const HINT: &str = "install PgBouncer, or name its program in TIDEMILL_TEST_PGBOUNCER_BIN";
const START_MAX: Duration = Duration::from_secs(20);
const CLEANUP: &str = r#"kill -KILL "$(cat -- "$1/pid")"; rm -rf -- "$1""#;

/// A running PgBouncer.
#[derive(Debug)]
pub struct Pgbouncer {
    port: u16,
    server: Child,
    guard: Option<Guard>,
}

impl Pgbouncer {
    /// The program on this machine, or `None`.
    pub fn find() -> Option<PathBuf> {
        let named = env::var_os(BIN_VARIABLE).map(PathBuf::from);
        named
            .or_else(|| find_on_path("pgbouncer"))
            .or_else(|| Some(PathBuf::from("/usr/sbin/pgbouncer")))
            .filter(|program| program.is_file())
    }

    /// The program on this machine, installed first when it is missing and we may.
    pub fn find_or_install() -> Result<PathBuf> {
        if let Some(found) = Self::find() {
            return Ok(found);
        }
        install::install("pgbouncer", "PgBouncer", HINT)?;
        Self::require()
    }

    /// Starts one in front of the server that `server_url` names (any database of it).
    pub fn start(server_url: &str) -> Result<Self> {
        let program = Self::require()?;
        let server_url = ServerUrl::parse(server_url)?;
        let account = Account::for_servers()?;
        let folder = tempfile::Builder::new().prefix("tidemill-bouncer-").tempdir()?;
        let port = port::free()?;
        account.own(folder.path())?;
        write_settings(folder.path(), &account, port, &server_url)?;
        let guard = Guard::arm(CLEANUP, [folder.path()])?;
        let folder = folder.keep();
        let server = account
            .command(program)
            .arg("--quiet")
            .arg(folder.join("settings.ini"))
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run `pgbouncer`")?;
        let mut bouncer = Self { port, server, guard: Some(guard) };
        let log = folder.join("log");
        bouncer.await_ready().with_context(|| fs::read_to_string(&log).unwrap_or_default())?;
        Ok(bouncer)
    }

    /// Where to reach through it the database that `url` reaches directly.
    pub fn through(&self, url: &str) -> Result<String> {
        let direct = ServerUrl::parse(url)?;
        let through = ServerUrl { host: "127.0.0.1", port: self.port, ..direct };
        Ok(through.with_database(through.database))
    }

    fn require() -> Result<PathBuf> {
        Self::find().with_context(|| format!("PgBouncer was not found\nhint: {HINT}"))
    }

    fn await_ready(&mut self) -> Result<()> {
        let ready = until(START_MAX, || match self.server.try_wait() {
            Ok(None) => TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok().map(|_| true),
            _ => Some(false),
        });
        match ready {
            Some(true) => Ok(()),
            Some(false) => bail!("PgBouncer ended at once"),
            None => bail!("PgBouncer did not listen within {START_MAX:?}"),
        }
    }
}

impl Drop for Pgbouncer {
    fn drop(&mut self) {
        drop(self.guard.take());
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn write_settings(
    folder: &Path,
    account: &Account,
    port: u16,
    server: &ServerUrl<'_>,
) -> Result<()> {
    let settings = format!(
        "[databases]\n\
         * = host={host} port={server_port}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = trust\n\
         auth_file = {users}\n\
         pool_mode = transaction\n\
         default_pool_size = 20\n\
         max_client_conn = 500\n\
         pidfile = {pid}\n\
         logfile = {log}\n",
        host = server.host,
        server_port = server.port,
        users = folder.join("users").display(),
        pid = folder.join("pid").display(),
        log = folder.join("log").display(),
    );
    let users = format!("\"{}\" \"{}\"\n", server.user, server.password);
    for (name, text) in [("settings.ini", settings), ("users", users)] {
        let file = folder.join(name);
        fs::write(&file, text)?;
        account.own(&file)?;
    }
    Ok(())
}
