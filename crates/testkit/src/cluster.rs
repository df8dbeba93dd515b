//! A throwaway PostgreSQL server that can be killed and started again.
//!
//! Crash tests need a server of their own: one that may be killed at any moment without hurting
//! another test, keeps its port and its data over the crash, and writes as durably as in production
//! (`fsync` is on). It listens on 127.0.0.1 only and trusts whoever connects.
//!
//! It refuses to outlive us: a guard stops it and removes its folder however we end.

use std::fs::{self, File};
#[cfg(feature = "databases")]
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::account::Account;
use crate::binaries::Binaries;
use crate::eventually::until;
use crate::guard::Guard;
use crate::{port, process};

const SUPERUSER: &str = "tidemill";
const START_MAX: Duration = Duration::from_mins(1);
const DEATH_MAX: Duration = Duration::from_secs(10);
const PORT_TRIES: usize = 5;
/// The folder is gone at once; the files of a long run are too many to wait for.
const CLEANUP: &str =
    r#"folder=$1; shift; "$@"; mv -- "$folder" "$folder.gone" && { rm -rf -- "$folder.gone" & }"#;

/// A running (or crashed, or stopped) PostgreSQL server in a temporary folder.
#[derive(Debug)]
pub struct Cluster {
    folder: PathBuf,
    port: u16,
    binaries: Binaries,
    account: Account,
    server: Option<Child>,
    guard: Option<Guard>,
    is_tls: bool,
}

impl Cluster {
    /// Makes a new cluster and starts it; ready for connections when this returns.
    pub fn start() -> Result<Self> {
        Self::create(Binaries::require()?)?.on_a_free_port()
    }

    /// As `start`, for a server that takes connections over TLS only, and shows this certificate.
    #[cfg(feature = "databases")]
    pub fn start_tls(shown: &crate::certificate::Certificate) -> Result<Self> {
        let mut cluster = Self::create(Binaries::require()?)?;
        cluster.is_tls = true;
        cluster.keep("server.crt", &shown.certificate)?;
        cluster.keep("server.key", &shown.key)?;
        cluster.keep("pg_hba.conf", "hostssl all all all trust\n")?;
        cluster.on_a_free_port()
    }

    /// Writes a file that only the server may read.
    #[cfg(feature = "databases")]
    fn keep(&self, name: &str, text: &str) -> Result<()> {
        let file = self.data().join(name);
        fs::write(&file, text)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
        self.account.own(&file)
    }

    fn on_a_free_port(mut self) -> Result<Self> {
        let cluster = &mut self;
        for _ in 0..PORT_TRIES {
            cluster.port = port::free()?;
            match cluster.boot() {
                Err(error) if error.to_string().contains("Address already in use") => {}
                result => return result.map(|()| self),
            }
        }
        bail!("PostgreSQL found every one of {PORT_TRIES} ports taken\nhint: run this again")
    }

    /// Where to reach the database `name`; the one that always exists is `postgres`.
    pub fn url(&self, name: &str) -> String {
        format!("postgres://{SUPERUSER}@127.0.0.1:{}/{name}", self.port)
    }

    /// Kills the whole server as a power cut would; returns when no process of it is left.
    pub fn kill_9(&mut self) -> Result<()> {
        let mut server = self.server.take().context("the server is not running")?;
        let postmaster = Pid::from_raw(i32::try_from(server.id())?);
        // A stopped postmaster starts no more children, so that the list is complete.
        kill(postmaster, Signal::SIGSTOP)?;
        until(DEATH_MAX, || process::is_stopped(postmaster).then_some(()))
            .context("the postmaster did not stop for SIGSTOP")?;
        let children = process::children_of(postmaster)?;
        server.kill()?;
        server.wait()?;
        for child in &children {
            let _ = kill(*child, Signal::SIGKILL);
        }
        until(DEATH_MAX, || children.iter().all(|child| process::is_gone(*child)).then_some(()))
            .context("a backend survived the kill of its server")
    }

    /// Stops the server cleanly, cutting off its clients.
    pub fn stop(&mut self) -> Result<()> {
        let mut server = self.server.take().context("the server is not running")?;
        kill(Pid::from_raw(i32::try_from(server.id())?), Signal::SIGINT)?;
        let status = server.wait()?;
        ensure!(status.success(), "PostgreSQL did not stop cleanly: {status}\n{}", self.log_tail());
        Ok(())
    }

    /// Starts the server again on the same port, after a kill or a stop; stops it first if it runs.
    pub fn restart(&mut self) -> Result<()> {
        if self.server.is_some() {
            self.stop()?;
        }
        self.boot()
    }

    fn create(binaries: Binaries) -> Result<Self> {
        let account = Account::for_servers()?;
        let folder = tempfile::Builder::new().prefix("tidemill-pg-").tempdir()?;
        account.own(folder.path())?;
        let mut stop = account.command(binaries.program("pg_ctl"));
        stop.args(["stop", "--silent", "--wait", "--mode=immediate", "--pgdata"]);
        stop.arg(folder.path().join("data"));
        let cleanup = [folder.path().as_os_str(), stop.get_program()];
        let guard = Guard::arm(CLEANUP, cleanup.into_iter().chain(stop.get_args()))?;
        let folder = folder.keep();
        let (guard, is_tls) = (Some(guard), false);
        let cluster = Self { folder, port: 0, binaries, account, server: None, guard, is_tls };
        cluster.init()?;
        Ok(cluster)
    }

    fn init(&self) -> Result<()> {
        let made = self
            .command("initdb")
            .args(["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--pgdata"])
            .arg(self.data())
            .arg(format!("--username={SUPERUSER}"))
            .output()
            .context("cannot run `initdb`")?;
        let talk = String::from_utf8_lossy(&made.stderr);
        ensure!(made.status.success(), "`initdb` failed ({})\n{talk}", made.status);
        Ok(())
    }

    fn boot(&mut self) -> Result<()> {
        let log = File::create(self.log())?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data());
        for setting in [
            format!("port={}", self.port),
            format!("unix_socket_directories={}", self.folder.display()),
            "listen_addresses=127.0.0.1".into(),
            "max_connections=200".into(),
            "shared_buffers=128MB".into(),
            "fsync=on".into(),
            format!("ssl={}", if self.is_tls { "on" } else { "off" }),
        ] {
            command.arg("-c").arg(setting);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut server = command.spawn().context("cannot run `postgres`")?;
        let ended = until(START_MAX, || match server.try_wait() {
            Ok(None) => self.is_ready(server.id()).then_some(None),
            ended => Some(Some(ended)),
        });
        let Some(None) = ended else {
            let _ = server.kill();
            let _ = server.wait();
            bail!("PostgreSQL did not start. The end of its log:\n{}", self.log_tail());
        };
        self.server = Some(server);
        Ok(())
    }

    /// Whether the postmaster `id` says so in its pid file: its last line, once it takes connections.
    fn is_ready(&self, id: u32) -> bool {
        let text = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = text.lines();
        lines.next() == Some(&id.to_string()) && lines.last().map(str::trim) == Some("ready")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.account.command(self.binaries.program(program));
        command.current_dir(&self.folder);
        command
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.guard.take());
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
