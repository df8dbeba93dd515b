//! Runs the binary on a store of its own.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tidemill_testkit::{Process, databases};

pub const PATIENCE: Duration = Duration::from_secs(30);

/// A store and the binary that is told to use it.
pub struct Mill {
    url: String,
    folder: TempDir,
}

/// What a command came to.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Mill {
    pub fn sqlite() -> Self {
        let (folder, url) = databases::fresh_sqlite_url();
        Self { url, folder }
    }

    pub fn postgres() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { url: databases::fresh_postgres_url(), folder }
    }

    /// One that nobody has migrated.
    pub fn empty_postgres() -> Self {
        Self { url: databases::empty_postgres_url(), ..Self::sqlite() }
    }

    /// One whose database is somewhere else.
    pub fn at(url: String) -> Self {
        Self { url, ..Self::sqlite() }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where commands run.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// A file beside the store, for commands to leave traces in.
    pub fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
        command.args(args).env("TIDEMILL_STORE", &self.url).env("NO_COLOR", "1");
        command.env("TIDEMILL_LOG", "error").current_dir(self.folder.path());
        command
    }

    pub fn run(&self, args: &[&str]) -> Ended {
        self.run_with(args, "")
    }

    pub fn run_with(&self, args: &[&str], stdin: &str) -> Ended {
        feed(self.command(args), stdin)
    }

    /// Runs a command that must work, and reads its one document.
    pub fn json(&self, args: &[&str]) -> Value {
        let ended = self.run(args).ok();
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
    }

    /// Runs a list that must work, and reads its JSON lines.
    pub fn rows(&self, args: &[&str]) -> Vec<Value> {
        let ended = self.run(args).ok();
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Enqueues a job that must be new; answers its id.
    pub fn enqueue(&self, args: &[&str]) -> String {
        let ended = self.run(&[&["enqueue"], args].concat()).ok();
        ended.stdout.trim().to_owned()
    }

    pub fn state(&self, id: &str) -> Value {
        self.json(&["jobs", "show", id, "--json"])["job"].clone()
    }

    /// Starts a worker that says on stdout what it does.
    pub fn work(&self, args: &[&str]) -> Process {
        Process::spawn(&mut self.command(&[&["work", "--json"], args].concat())).unwrap()
    }

    /// Starts a server with these options; answers where it is.
    pub fn serve(&self, args: &[&str]) -> (Process, String) {
        let serve = ["--json", "serve", "--listen", "127.0.0.1:0"];
        let server = Process::spawn(&mut self.command(&[&serve, args].concat())).unwrap();
        let line = server.next_line(PATIENCE).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        (server, told["url"].as_str().unwrap().to_owned())
    }

    /// Runs a command on that server.
    pub fn ask(&self, server: &str, args: &[&str]) -> Ended {
        let mut command = self.command(args);
        command.env_remove("TIDEMILL_STORE").env("TIDEMILL_SERVER", server);
        feed(command, "")
    }
}

/// Runs a command to its end, with this on its stdin.
pub fn feed(mut command: Command, stdin: &str) -> Ended {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let text = stdin.to_owned();
    // A command may end before it has read all.
    let feeder = std::thread::spawn(move || pipe.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = feeder.join().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap_or(-1);
    Ended { code, stdout: text(output.stdout), stderr: text(output.stderr) }
}

impl Ended {
    #[track_caller]
    pub fn ok(self) -> Self {
        self.code(0)
    }

    #[track_caller]
    pub fn code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    #[track_caller]
    pub fn says(self, part: &str) -> Self {
        let all = format!("{}{}", self.stdout, self.stderr);
        assert!(all.contains(part), "no {part:?} in {self:?}");
        self
    }
}

/// Asks a worker to leave, and waits until it has.
#[track_caller]
pub fn stop(mut worker: Process) {
    worker.term().unwrap();
    assert!(worker.wait(PATIENCE).unwrap().success());
}
