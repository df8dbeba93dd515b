//! What an idle worker holds in memory, with an empty store and with a backlog it may not take.

use tidemill::{Settings, Tidemill};

use crate::Res;
use crate::load::fill;

pub async fn measure(mill: &Tidemill, jobs: u64) -> Res<()> {
    let idle = |_, _| async { Ok(tidemill::Payload::null()) };
    let worker = mill
        .worker()
        .queues(["default"])
        .handle_raw("another kind", Settings::default(), idle)
        .start()
        .await?;
    println!("idle worker: {:.1} MiB", resident_mib()?);
    fill(mill, jobs).await?;
    println!("after enqueueing {jobs} jobs that wait: {:.1} MiB", resident_mib()?);
    worker.stop().await;
    Ok(())
}

fn resident_mib() -> Res<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    let kib: f64 = line.split_whitespace().nth(1).unwrap_or("0").parse()?;
    Ok(kib / 1024.0)
}
