//! The processes that are killed: this test binary, started again with a role.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tidemill::Tidemill;
use tidemill_testkit::Process;
use tidemill_testkit::eventually::eventually;

use super::{producer, voyage, worker, zombie};

const ROLE: &str = "TIDEMILL_CRASH_ROLE";
const URL: &str = "TIDEMILL_CRASH_URL";
const FOLDER: &str = "TIDEMILL_CRASH_FOLDER";
const SEED: &str = "TIDEMILL_CRASH_SEED";

/// What a process of this run knows.
#[derive(Debug, Clone)]
pub struct Orders {
    pub url: String,
    pub folder: PathBuf,
    pub seed: u64,
}

/// Starts a process that plays `role`.
pub fn start(role: &str, url: &str, folder: &Path, seed: u64) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["role", "--exact", "--nocapture"]);
    command.env(ROLE, role).env(URL, url).env(FOLDER, folder).env(SEED, seed.to_string());
    Process::spawn(&mut command).unwrap()
}

/// Plays the role this process was started for; none when it was not.
pub fn run() {
    let Ok(role) = std::env::var(ROLE) else { return };
    // A test that is killed itself leaves nobody behind.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).unwrap();
    let orders = Orders {
        url: std::env::var(URL).unwrap(),
        folder: std::env::var(FOLDER).unwrap().into(),
        seed: std::env::var(SEED).unwrap().parse().unwrap(),
    };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        match role.as_str() {
            "worker" => worker::work(&orders, 1000).await,
            "short_lived_worker" => worker::work(&orders, 3).await,
            "voyages" => voyage::work(&orders).await,
            "zombie" => zombie::haunt(&orders).await,
            "producer" => producer::produce(&orders).await,
            _ => panic!("no such role: {role}"),
        }
    });
}

/// Opens the store, for as long as that takes while others are being killed.
pub async fn open(orders: &Orders) -> Tidemill {
    eventually("the store to open", Duration::from_mins(1), async || {
        let opened = Tidemill::builder().connections_max(4).open(&orders.url).await;
        opened.inspect_err(|error| eprintln!("pid {}: {error}", std::process::id())).ok()
    })
    .await
}
