//! `cargo xtask test`: everything that must hold before a change is pushed.
//!
//! The order is by price: what fails in a second comes before what fails in minutes. The database
//! servers start once for the whole run, and end with it whether it passes, fails or is interrupted.
//!
//! The API is held against its description while the tests run, which leave a third of the processors idle.
//!
//! Fresh databases of tests are copies of one that has its schema: to make it takes longer than most tests.
//!
//! It refuses to run without PostgreSQL and PgBouncer: half of the promises are about them.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use tidemill_testkit::{Binaries, Cluster, Pgbouncer};

use crate::report::Report;
use crate::runner::{Runner, built};
use crate::{contract, examples, tidy};

/// Runs all steps and prints their summary.
pub async fn test(root: &Path) -> Result<ExitCode> {
    let mut runner = Runner::new(root)?;
    let mut report = Report::default();
    let outcome = steps(root, &mut runner, &mut report).await;
    Ok(report.close(&outcome))
}

async fn steps(root: &Path, runner: &mut Runner, report: &mut Report) -> Result<()> {
    report.step("formatting", runner.cargo("fmt --all --check")).await?;
    report.step("tidy", async { tidy::tidy(root) }).await?;
    let cluster = report.step("database servers", async { servers(runner) }).await?;
    let lint = "clippy --workspace --all-targets --all-features -- -D warnings";
    report.step("lints", runner.cargo(lint)).await?;
    // Not --all-targets: that would also run the benchmarks.
    let tests = "test --workspace --all-features --no-fail-fast --lib --bins --tests";
    report.step("build", runner.cargo(&format!("{tests} --no-run"))).await?;
    report.step("database to copy", template(root, runner, &cluster)).await?;
    runner.set("RUST_TEST_THREADS", test_threads()?);
    let (store, mut beside) = (cluster.url("postgres"), runner.twin()?);
    let contract = contract::check(root, &mut beside, &store, contract::Depth::Test);
    report.both(("tests", runner.cargo(tests)), ("API as described", contract)).await?;
    let doc_tests = "test --workspace --all-features --no-fail-fast --doc";
    report.step("documentation's examples", runner.cargo(doc_tests)).await?;
    runner.set("RUSTDOCFLAGS", "-D warnings");
    report.step("documentation", runner.cargo("doc --workspace --no-deps --all-features")).await?;
    report.step("examples", examples::check(root, runner)).await
}

/// Two for each processor: a test waits about as long as it works, for commits, for leases, for other processes.
fn test_threads() -> Result<String> {
    Ok((2 * std::thread::available_parallelism()?.get()).to_string())
}

/// Gives the server's own template our schema, for fresh databases to be copies of. Nobody connects to it after that.
async fn template(root: &Path, runner: &mut Runner, cluster: &Cluster) -> Result<()> {
    const NAME: &str = "template1";
    let migrate = ["--store", &cluster.url(NAME), "migrate"];
    runner.watch(&built("tidemill")?, root, &migrate, &[], None).await?;
    runner.set("TIDEMILL_TEST_TEMPLATE", NAME);
    Ok(())
}

/// Finds or installs the servers, starts PostgreSQL, and tells the tests where they are.
fn servers(runner: &mut Runner) -> Result<Cluster> {
    Binaries::find_or_install()?;
    let bouncer = Pgbouncer::find_or_install()?;
    let cluster = Cluster::start()?;
    let url = cluster.url("postgres");
    println!("PostgreSQL: {url}\nPgBouncer: {}", bouncer.display());
    runner.set("TIDEMILL_TEST_POSTGRES", url);
    runner.set(tidemill_testkit::pgbouncer::BIN_VARIABLE, bouncer.display().to_string());
    Ok(cluster)
}
