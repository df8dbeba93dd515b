//! A child process that a test can freeze, kill and listen to.
//!
//! What happens to a job when its worker is killed, frozen or asked to leave can only be tested on
//! a real process. This one gives its standard output line by line, so that a test waits for what
//! the child says instead of for time to pass; its standard error goes to ours.
//!
//! It refuses to outlive the value: dropping it kills it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::eventually::until;

/// A running child process.
///
/// ```
/// use std::process::Command;
/// use std::time::Duration;
/// use tidemill_testkit::Process;
///
/// let mut child = Process::spawn(Command::new("sh").args(["-c", "echo ready; exec sleep 60"]))?;
/// child.wait_for_line("ready", Duration::from_secs(5))?;
/// child.kill_9()?;
/// assert!(!child.wait(Duration::from_secs(5))?.success());
/// # anyhow::Ok(())
/// ```
#[derive(Debug)]
pub struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    /// Starts `command` with its standard output piped to us and nothing to read.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let stdout = child.stdout.take().context("the child has no standard output")?;
        let (sender, lines) = mpsc::channel();
        // A thread of its own, so that the child never blocks on a full pipe that no test reads.
        thread::spawn(move || {
            let whole = BufReader::new(stdout).lines().map_while(Result::ok);
            whole.map(|line| sender.send(line)).find(Result::is_err)
        });
        Ok(Self { child, lines })
    }

    /// The child's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line of output, or `None` when none came `within` that time or the output ended.
    pub fn next_line(&self, within: Duration) -> Option<String> {
        self.lines.recv_timeout(within).ok()
    }

    /// Reads on to the first line that contains `part`, and returns it.
    pub fn wait_for_line(&self, part: &str, within: Duration) -> Result<String> {
        let deadline = Instant::now() + within;
        let mut last = String::from("nothing");
        while let Some(line) = self.next_line(deadline.saturating_duration_since(Instant::now())) {
            if line.contains(part) {
                return Ok(line);
            }
            last = line;
        }
        bail!("the child did not print `{part}` within {within:?}; the last it said was: {last}")
    }

    /// Kills it at once: it cannot clean up.
    pub fn kill_9(&mut self) -> Result<()> {
        self.send(Signal::SIGKILL)
    }

    /// Freezes it, as a long pause of the machine would.
    pub fn stop(&mut self) -> Result<()> {
        self.send(Signal::SIGSTOP)
    }

    /// Lets a frozen one go on.
    pub fn cont(&mut self) -> Result<()> {
        self.send(Signal::SIGCONT)
    }

    /// Asks it to leave, as a deployment does.
    pub fn term(&mut self) -> Result<()> {
        self.send(Signal::SIGTERM)
    }

    /// Waits for its end.
    pub fn wait(&mut self, within: Duration) -> Result<ExitStatus> {
        let ended = until(within, || self.child.try_wait().transpose());
        Ok(ended.with_context(|| format!("the child still runs after {within:?}"))??)
    }

    fn send(&mut self, signal: Signal) -> Result<()> {
        // A child that was waited for has given its id away; never signal a stranger.
        if let Some(status) = self.child.try_wait()? {
            bail!("the child has already ended: {status}");
        }
        kill(Pid::from_raw(i32::try_from(self.id())?), signal)
            .with_context(|| format!("cannot send {signal} to the child"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The children of `parent`, by the kernel's own list.
pub(crate) fn children_of(parent: Pid) -> Result<Vec<Pid>> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot list processes: no /proc")?.flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let id = Pid::from_raw(id);
        if state(id).is_some_and(|(_, its_parent)| its_parent == parent) {
            children.push(id);
        }
    }
    Ok(children)
}

/// Whether the process is frozen.
pub(crate) fn is_stopped(id: Pid) -> bool {
    state(id).is_some_and(|(letter, _)| letter == 'T')
}

/// Whether the process has ended, even if nobody has collected its status yet.
pub(crate) fn is_gone(id: Pid) -> bool {
    state(id).is_none_or(|(letter, _)| letter == 'Z' || letter == 'X')
}

/// The state letter and the parent of a process: what follows its name, in brackets, in `stat`.
fn state(id: Pid) -> Option<(char, Pid)> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let letter = fields.next()?.chars().next()?;
    Some((letter, Pid::from_raw(fields.next()?.parse().ok()?)))
}
