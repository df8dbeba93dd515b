//! How long all processors together have worked. Beside others who use the machine it tells more than a clock on the
//! wall: what they take is not in it, but for who works beside in this system.

use std::time::Duration;

/// Since the system began, without what it gave to others. Zero where that cannot be read.
pub fn busy() -> Duration {
    const TICKS_PER_SEC: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let words = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    // For programs, for those that step back, and in the kernel.
    let ticks: u64 = words.take(3).filter_map(|word| word.parse::<u64>().ok()).sum();
    Duration::from_secs_f64(ticks as f64 / TICKS_PER_SEC)
}

/// How long they worked for each of so many jobs, since `before`: in millionths of a second.
pub fn per_job(before: Duration, jobs: u64) -> f64 {
    busy().saturating_sub(before).as_secs_f64() * 1e6 / jobs as f64
}
