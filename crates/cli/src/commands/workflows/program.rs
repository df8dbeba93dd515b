//! Starts a program of somebody's and lets its workers replay: they look at runs and say what their code makes of them.
//!
//! The program gets `TIDEMILL_REPLAY`, and the store or the server, in its environment. Whatever else it prints is
//! passed on to stderr. One that does not answer in time is ended; it refuses to call silence an answer.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use nix::unistd::Pid;
use tidemill::{ReplayLine, RunReplay};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio_util::task::TaskTracker;

use super::place;
use crate::app::{App, interrupted};
use crate::commands::work::group::Group;
use crate::exit::{Exit, Failure, Outcome};

/// How long a program has to leave when it is asked to.
const GRACE: Duration = Duration::from_secs(3);

/// What a program said.
#[derive(Debug, Default)]
pub struct Said {
    /// What it makes of the runs it knows.
    pub replays: Vec<RunReplay>,
    /// The kinds it knows.
    pub kinds: BTreeSet<String>,
    /// Its workers that have looked at everything.
    workers: usize,
}

impl Said {
    fn hear(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(ReplayLine::TidemillReplay(replay)) => self.replays.push(replay),
            Ok(ReplayLine::TidemillReplayed { kinds }) => {
                self.kinds.extend(kinds);
                self.workers += 1;
            }
            Err(_) => eprintln!("{line}"),
        }
    }
}

/// Runs the program and listens to its end. `which` is what `TIDEMILL_REPLAY` says.
pub async fn replay(app: &App, program: &str, which: &str, limit: Duration) -> Outcome<Said> {
    let mut child = start(app, program, which)?;
    let leader = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let ending = TaskTracker::new();
    let group = leader.map(|leader| Group::new(leader, GRACE, ending.clone(), None));
    let stop = interrupted();
    let ended = tokio::select! {
        ended = listen(app, &mut child) => ended,
        () = tokio::time::sleep(limit) => {
            let message = format!("the program had not ended after {limit:?}, and was made to");
            Err(Failure::new(Exit::Timeout, "replay_timeout", message)
                .hint("a program that was built without replays would have begun to work: look what it did"))
        }
        () = stop => Err(Failure::new(Exit::Failed, "interrupted", "interrupted")),
    };
    if let Some(mut group) = group {
        match ended {
            Ok(_) => group.leader_ended(),
            Err(_) => group.end().await,
        }
    }
    ended
}

fn start(app: &App, program: &str, which: &str) -> Outcome<Child> {
    let mut command = Command::new("sh");
    command.arg("-c").arg(program).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
    command.env("TIDEMILL_REPLAY", which);
    place::tell(app, &mut command)?;
    let failed =
        |e| Failure::new(Exit::Failed, "io", format!("the program cannot be started: {e}"));
    command.spawn().map_err(failed)
}

async fn listen(app: &App, child: &mut Child) -> Outcome<Said> {
    let mut said = Said::default();
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::new(stdout).lines();
        while let Some(line) = lines.next_line().await? {
            said.hear(&line);
        }
    }
    let status = child.wait().await?;
    if said.workers == 0 {
        let message =
            format!("the program ended ({status}) and no worker of it has looked at runs");
        return Err(Failure::new(Exit::Failed, "replay_silent", message).hint(place::advice(app)));
    }
    Ok(said)
}
