//! Runs the programs of a step, and takes them along when we are told to end.
//!
//! A test run is a tree of processes: cargo, test binaries, the workers they start. Each program
//! gets a process group of its own, so that Ctrl-C or a `kill` of xtask ends the whole tree, and
//! our own destructors (which stop the database servers) still run.
//!
//! It refuses to go through a shell, and to read from the terminal.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal as Unix, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

const LEAVE_MAX: Duration = Duration::from_secs(5);

/// Runs programs in the workspace's folder, with the environment of this run.
#[derive(Debug)]
pub struct Runner {
    root: PathBuf,
    variables: Vec<(&'static str, String)>,
    interrupt: Signal,
    terminate: Signal,
}

impl Runner {
    /// From here on Ctrl-C and SIGTERM end the running program, then us.
    pub fn new(root: &Path) -> Result<Self> {
        Ok(Self {
            root: root.to_owned(),
            variables: Vec::new(),
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Another one like it, for what runs beside its programs.
    pub fn twin(&self) -> Result<Self> {
        Ok(Self { variables: self.variables.clone(), ..Self::new(&self.root)? })
    }

    /// Sets an environment variable for all programs run from now on.
    pub fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.variables.push((name, value.into()));
    }

    /// Runs cargo; what it prints goes to the terminal.
    pub async fn cargo(&mut self, arguments: &str) -> Result<()> {
        println!("cargo {arguments}");
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = self.command(cargo);
        command.args(arguments.split(' '));
        let mut child = command.spawn().context("cannot run cargo")?;
        let group = group_of(&child)?;
        let status = self.finish(group, child.wait()).await??;
        ensure!(status.success(), "`cargo {arguments}` failed ({status})");
        Ok(())
    }

    /// Runs a program in `folder` to its end; what it prints goes to the terminal, or to `log`.
    pub async fn watch(
        &mut self,
        program: &Path,
        folder: &Path,
        arguments: &[&str],
        variables: &[(&str, String)],
        log: Option<&File>,
    ) -> Result<()> {
        let mut command = self.command(program);
        command
            .current_dir(folder)
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)));
        if let Some(log) = log {
            command.stdout(log.try_clone()?).stderr(log.try_clone()?);
        }
        let shown = program.display();
        let mut child = command.spawn().with_context(|| format!("cannot run {shown}"))?;
        let group = group_of(&child)?;
        let status = self.finish(group, child.wait()).await??;
        ensure!(status.success(), "{shown} failed ({status})");
        Ok(())
    }

    /// Runs a program in `folder` and returns what it printed; its talk goes to the terminal.
    pub async fn capture(
        &mut self,
        program: &Path,
        folder: &Path,
        within: Duration,
    ) -> Result<Output> {
        let mut command = self.command(program);
        command.current_dir(folder).stdout(Stdio::piped());
        let shown = program.display();
        let child = command.spawn().with_context(|| format!("cannot run {shown}"))?;
        let group = group_of(&child)?;
        let ended = self.finish(group, timeout(within, child.wait_with_output())).await?;
        if let Ok(output) = ended {
            return output.with_context(|| format!("cannot read what {shown} printed"));
        }
        let _ = killpg(group, Unix::SIGKILL);
        bail!("{shown} still ran after {within:?}")
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.root)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .process_group(0);
        command
    }

    /// Waits for the end of a program; on a signal to us, ends its group, gently and then not.
    async fn finish<T>(&mut self, group: Pid, ended: impl Future<Output = T>) -> Result<T> {
        let mut ended = pin!(ended);
        tokio::select! {
            value = &mut ended => return Ok(value),
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        eprintln!("\ninterrupted: ending what runs");
        let _ = killpg(group, Unix::SIGTERM);
        let _ = timeout(LEAVE_MAX, ended).await;
        let _ = killpg(group, Unix::SIGKILL);
        bail!("interrupted")
    }
}

/// Where cargo put a program of the workspace: beside us, in the folder of the `dev` profile.
pub fn built(name: &str) -> Result<PathBuf> {
    let ours = env::current_exe()?;
    let target = ours.ancestors().nth(2).context("xtask does not run from cargo's folder")?;
    Ok(target.join("debug").join(name))
}

fn group_of(child: &Child) -> Result<Pid> {
    let id = child.id().context("the program ended before it began")?;
    Ok(Pid::from_raw(i32::try_from(id)?))
}
