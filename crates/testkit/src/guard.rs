//! Cleans up after us, even when we are killed.
//!
//! A destructor does not run after `kill -9`, a static is never dropped, and a test binary ends
//! without asking. So each server gets a guard: a small shell that waits for the end of a pipe
//! whose other end only we hold. The kernel closes it when we end, for whatever reason, and the
//! shell then runs the cleanup. Dropping the guard closes the pipe too, so there is one way down.
//!
//! The parent-death signal was the alternative: it fires when the *thread* that started the server
//! ends, which for a test is much too early. The shell ignores Ctrl-C, and refuses to be interrupted.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Runs a cleanup when dropped, or when this process ends.
#[derive(Debug)]
pub(crate) struct Guard {
    shell: Child,
}

impl Guard {
    /// Arms a guard: `script` will run with `args` as `$1`, `$2`, …
    pub(crate) fn arm<A: AsRef<OsStr>>(
        script: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Result<Self> {
        let shell = Command::new("sh")
            .arg("-c")
            .arg(format!("trap '' INT HUP TERM QUIT; cat >/dev/null; {script}"))
            .arg("tidemill-testkit-guard")
            .args(args)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start `sh`, which cleans up after a test server")?;
        Ok(Self { shell })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_guard_has_run_its_cleanup() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        let guard = Guard::arm(r#"touch -- "$1""#, [&mark]).unwrap();
        assert!(!mark.exists());
        drop(guard);
        assert!(mark.exists());
    }
}
