//! A process group that ends when its value does.
//!
//! An attempt that is over its time is dropped by the library, wherever it stands; so the kill is
//! in `Drop`, and nothing the command started survives: SIGTERM to the whole group, and SIGKILL
//! after a grace. It refuses to follow a process that left the group with setsid.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio_util::task::TaskTracker;

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A process group and the folder it works in.
#[derive(Debug)]
pub struct Group {
    leader: Pid,
    grace: Duration,
    ending: TaskTracker,
    /// Removed when the group is gone.
    folder: Option<TempDir>,
    over: bool,
}

impl Group {
    /// The group of a leader that was started in a group of its own.
    pub fn new(leader: Pid, grace: Duration, ending: TaskTracker, folder: Option<TempDir>) -> Self {
        Self { leader, grace, ending, folder, over: false }
    }

    /// The leader has ended by itself: whoever it left behind ends now.
    pub fn leader_ended(&mut self) {
        let _ = killpg(self.leader, Signal::SIGKILL);
        self.over = true;
    }

    /// Asks the group to end, waits for a grace, and makes it.
    pub async fn end(mut self) {
        end(self.leader, self.grace).await;
        // Only now: whoever drops this wait must not keep the group alive.
        self.over = true;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        // At once, and not first in the task: the task may start late.
        let _ = killpg(self.leader, Signal::SIGTERM);
        let (leader, grace, folder) = (self.leader, self.grace, self.folder.take());
        self.ending.spawn(async move {
            end(leader, grace).await;
            drop(folder);
        });
    }
}

async fn end(leader: Pid, grace: Duration) {
    let deadline = Instant::now() + grace;
    let _ = killpg(leader, Signal::SIGTERM);
    // A stopped process hears SIGTERM only when it goes on.
    let _ = killpg(leader, Signal::SIGCONT);
    while Instant::now() < deadline {
        if killpg(leader, None) == Err(Errno::ESRCH) {
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let _ = killpg(leader, Signal::SIGKILL);
}
