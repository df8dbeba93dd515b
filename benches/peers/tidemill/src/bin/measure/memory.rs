//! What an idle worker holds in memory, with an empty store and with a backlog that another process made.

use std::time::Duration;

use tidemill::{Settings, Tidemill};

use crate::Res;
use crate::load::rest;

pub async fn measure(mill: &Tidemill, url: &str, jobs: u64) -> Res<()> {
    let idle = |_, _| async { Ok(tidemill::Payload::null()) };
    let worker = mill
        .worker()
        .queues(["default"])
        .handle_raw("another kind", Settings::default(), idle)
        .start()
        .await?;
    rest(Duration::from_secs(2)).await;
    println!("idle worker: {:.1} MiB", resident_mib()?);
    let jobs_text = jobs.to_string();
    let fill = ["fill", "--store", url, "--jobs", &jobs_text];
    // Blocking is fine: the worker has threads of its own.
    let filled = std::process::Command::new(std::env::current_exe()?).args(fill).status()?;
    if !filled.success() {
        return Err("the backlog could not be made".into());
    }
    rest(Duration::from_secs(2)).await;
    println!("with {jobs} jobs waiting: {:.1} MiB", resident_mib()?);
    worker.stop().await;
    Ok(())
}

pub fn resident_mib() -> Res<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    let kib: f64 = line.split_whitespace().nth(1).unwrap_or("0").parse()?;
    Ok(kib / 1024.0)
}
