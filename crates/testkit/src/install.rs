//! Installs a missing server with the system's package manager.
//!
//! `cargo xtask test` promises that a bare machine is enough. This keeps the promise where it can:
//! on Debian and Ubuntu, as root. Anywhere else it says what is missing and what to do about it.
//!
//! It refuses to ask for a password, to add package sources, and to fall back to skipping tests.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;

/// Installs `package`; `what` and `hint` tell people what to do when we cannot.
pub(crate) fn install(package: &str, what: &str, hint: &str) -> Result<()> {
    let apt_get = Path::new("/usr/bin/apt-get");
    if !apt_get.exists() {
        bail!("{what} was not found, and there is no apt-get to install it\nhint: {hint}");
    }
    if !Uid::effective().is_root() {
        bail!(
            "{what} was not found, and only root can install it\n\
             hint: sudo apt-get install {package}; or {hint}"
        );
    }
    eprintln!("{what} was not found: installing the package `{package}`");
    run(apt_get, &["update"], what)?;
    run(apt_get, &["install", "-y", "--no-install-recommends", package], what)
}

fn run(apt_get: &Path, args: &[&str], what: &str) -> Result<()> {
    let shown = format!("apt-get {}", args.join(" "));
    let status = Command::new(apt_get)
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .status()
        .with_context(|| format!("cannot run `{shown}`"))?;
    if !status.success() {
        bail!("{what} is missing and `{shown}` failed ({status})\nhint: see its output above");
    }
    Ok(())
}
