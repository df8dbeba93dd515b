//! `cargo xtask soak`: the soak test of the server, with as many idle streams as one likes.
//!
//! The ordinary run opens a few hundred. This runs the same test in release mode with ten thousand, against SQLite and
//! PostgreSQL, and shows what they cost.
//!
//! It refuses to know what is tested: that is written in the soak test itself.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use tidemill_testkit::{Binaries, Cluster};

use crate::report::Report;
use crate::runner::Runner;

/// Starts a database server and runs the soak test with so many streams.
pub async fn soak(root: &Path, streams: u32) -> Result<ExitCode> {
    let mut runner = Runner::new(root)?;
    let mut report = Report::default();
    let outcome = steps(streams, &mut runner, &mut report).await;
    Ok(report.close(&outcome))
}

async fn steps(streams: u32, runner: &mut Runner, report: &mut Report) -> Result<()> {
    let start = async {
        Binaries::find_or_install()?;
        Cluster::start()
    };
    let cluster = report.step("database server", start).await?;
    runner.set("TIDEMILL_TEST_POSTGRES", cluster.url("postgres"));
    runner.set("TIDEMILL_SOAK_STREAMS", streams.to_string());
    let soak = "test --release -p tidemill-server --test soak -- --nocapture --test-threads=1";
    report.step("soak", runner.cargo(soak)).await
}
