//! `cargo xtask soak`: the tests of the server that are better the longer they run.
//!
//! The ordinary run opens a few hundred idle streams. This runs the same test in release mode with ten thousand,
//! against SQLite and PostgreSQL, and shows what they cost. Then requests are made up for as long as one likes, from
//! another seed each time.
//!
//! It refuses to know what is tested: that is written in the soak test itself.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use tidemill_testkit::{Binaries, Cluster};

use crate::contract::{self, Depth};
use crate::report::Report;
use crate::runner::Runner;

/// Starts a database server and runs the soak test with so many streams, then the check of the API.
pub async fn soak(root: &Path, streams: u32, minutes: u32) -> Result<ExitCode> {
    let mut runner = Runner::new(root)?;
    let mut report = Report::default();
    let outcome = steps(root, (streams, minutes), &mut runner, &mut report).await;
    Ok(report.close(&outcome))
}

async fn steps(
    root: &Path,
    (streams, minutes): (u32, u32),
    runner: &mut Runner,
    report: &mut Report,
) -> Result<()> {
    let start = async {
        Binaries::find_or_install()?;
        Cluster::start()
    };
    let cluster = report.step("database server", start).await?;
    runner.set("TIDEMILL_TEST_POSTGRES", cluster.url("postgres"));
    runner.set("TIDEMILL_SOAK_STREAMS", streams.to_string());
    let soak = "test --release -p tidemill-server --test soak -- --nocapture --test-threads=1";
    report.step("soak", runner.cargo(soak)).await?;
    report.step("build", runner.cargo(contract::BUILD)).await?;
    let (store, depth) = (cluster.url("postgres"), Depth::Soak { minutes });
    report.step("API as described", contract::check(root, runner, &store, depth)).await
}
