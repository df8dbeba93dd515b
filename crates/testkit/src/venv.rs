//! A private set of Python programs, made where nobody installed anything by hand.
//!
//! Some checks are best done by a program that somebody else keeps well and that is written in Python. It goes into a
//! folder of its own, with every version pinned, and is asked for by name alone: where packages come from is a matter
//! of the machine.
//!
//! It refuses to touch the Python of the system, and to use a folder that was left half made.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::binaries::find_on_path;
use crate::install;

/// Written last: what is in the folder, and that it is whole.
const MARK: &str = "pinned.txt";
const HINT: &str = "install Python 3.10 or later with its `venv` module";

/// A folder of Python programs.
#[derive(Debug, Clone)]
pub struct Venv {
    folder: PathBuf,
}

impl Venv {
    /// The programs in `folder`, made first where they are missing or others than those `pinned`, one `name==version`
    /// in a line.
    pub fn find_or_make(folder: &Path, pinned: &str) -> Result<Self> {
        let venv = Self { folder: folder.to_owned() };
        if fs::read_to_string(folder.join(MARK)).is_ok_and(|made| made == pinned) {
            return Ok(venv);
        }
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error)
                    .with_context(|| format!("cannot make {} anew", folder.display()));
            }
            _ => {}
        }
        if find_on_path("python3").is_none() {
            install::install("python3-venv", "Python", HINT)?;
        }
        let make = |python: &str| run(Command::new(python).args(["-m", "venv"]).arg(folder));
        if make("python3").is_err() {
            // Debian has the interpreter and this part of it in two packages.
            install::install("python3-venv", "Python's `venv`", HINT)?;
            make("/usr/bin/python3")?;
        }
        let wanted = folder.join("wanted.txt");
        fs::write(&wanted, pinned)?;
        let mut pip = Command::new(venv.program("pip"));
        run(pip.args(["install", "--quiet", "--disable-pip-version-check", "-r"]).arg(&wanted))?;
        fs::rename(&wanted, folder.join(MARK))?;
        Ok(venv)
    }

    /// Where the program `name` is.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?} failed ({status})\nhint: see its output above");
    Ok(())
}
