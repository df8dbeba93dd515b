//! The account that servers run under.
//!
//! PostgreSQL and PgBouncer refuse to run as root, and containers and CI run everything as root.
//! So a command that starts one of them goes through `setpriv` when we are root, as the user
//! `postgres` or, where that does not exist, `nobody`. When we are not root nothing changes.
//!
//! It refuses to gain rights: it only ever gives them up.

use std::ffi::OsStr;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::unistd::{Uid, User};

/// Whose rights a server gets: ours, or those of an unprivileged user when we are root.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    lowered: Option<User>,
}

impl Account {
    /// Ours when we are not root; otherwise `postgres`, or else `nobody`.
    pub(crate) fn for_servers() -> Result<Self> {
        if !Uid::effective().is_root() {
            return Ok(Self { lowered: None });
        }
        for name in ["postgres", "nobody"] {
            if let Some(user) = User::from_name(name).context("cannot read the list of users")? {
                return Ok(Self { lowered: Some(user) });
            }
        }
        bail!(
            "database servers refuse to run as root, and there is no user `postgres` or `nobody`\n\
             hint: run this as an ordinary user, or add one of the two"
        )
    }

    /// A command that runs `program` under this account.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let Some(user) = &self.lowered else {
            return Command::new(program);
        };
        let mut command = Command::new("setpriv");
        command
            .arg(format!("--reuid={}", user.uid))
            .arg(format!("--regid={}", user.gid))
            .arg("--clear-groups")
            .arg(program);
        command
    }

    /// Gives a file or folder to this account.
    pub(crate) fn own(&self, path: &Path) -> Result<()> {
        let Some(user) = &self.lowered else { return Ok(()) };
        chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
            .with_context(|| format!("cannot give {} to user {}", path.display(), user.name))
    }
}
