//! `cargo xtask torture`: the crash test, for as long as one likes.
//!
//! The ordinary run kills a worker and a server a few times. This runs the same test in release
//! mode for minutes or hours, which is how rare interleavings are found.
//!
//! It refuses to know what is tested: that is written in the crash test itself.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use tidemill_testkit::{Binaries, Cluster};

use crate::report::Report;
use crate::runner::Runner;

/// Starts a server and runs the crash test for `minutes`.
pub async fn torture(root: &Path, minutes: u32) -> Result<ExitCode> {
    let mut runner = Runner::new(root)?;
    let mut report = Report::default();
    let outcome = steps(minutes, &mut runner, &mut report).await;
    Ok(report.close(&outcome))
}

async fn steps(minutes: u32, runner: &mut Runner, report: &mut Report) -> Result<()> {
    let start = async {
        Binaries::find_or_install()?;
        Cluster::start()
    };
    let cluster = report.step("database server", start).await?;
    runner.set("TIDEMILL_TEST_POSTGRES", cluster.url("postgres"));
    runner.set("TIDEMILL_TORTURE_MINUTES", minutes.to_string());
    let crash = "test --release -p tidemill --all-features --test crash -- --nocapture";
    report.step("torture", runner.cargo(crash)).await
}
