//! The house's own commands: `cargo xtask test`, `cargo xtask torture`, `cargo xtask soak`, `cargo xtask contract`,
//! `cargo xtask tidy`.
//!
//! Everything that decides whether a change is good is one command that runs the same on a laptop
//! and in CI, and that gets its own database servers. No shell scripts, no service containers.
//!
//! It refuses to skip: what cannot be checked here fails, and says what is missing.

mod contract;
mod examples;
mod report;
mod runner;
mod soak;
mod test;
mod tidy;
mod torture;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

/// The commands for people who work on Tidemill.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything CI checks: formatting, tidy, lints, tests, documentation, examples.
    Test,
    /// Kill workers and servers again and again, and count what was lost.
    Torture {
        /// For how many minutes.
        #[arg(long, default_value_t = 5)]
        minutes: u32,
    },
    /// Open many idle streams at a server, and hold its API against its description for long.
    Soak {
        /// How many streams.
        #[arg(long, default_value_t = 10_000)]
        streams: u32,
        /// For how many minutes requests are made up, per store.
        #[arg(long, default_value_t = 10)]
        minutes: u32,
    },
    /// Hold the API of a running server against its description: one step of `test`.
    Contract,
    /// The house rules that no compiler knows.
    Tidy,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run().await.unwrap_or_else(|error| {
        eprintln!("{error:#}");
        ExitCode::FAILURE
    })
}

async fn run() -> Result<ExitCode> {
    let root = root()?;
    match Arguments::parse().command {
        Command::Test => test::test(&root).await,
        Command::Torture { minutes } => torture::torture(&root, minutes).await,
        Command::Soak { streams, minutes } => soak::soak(&root, streams, minutes).await,
        Command::Contract => contract::contract(&root).await,
        Command::Tidy => {
            tidy::tidy(&root)?;
            println!("tidy");
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The folder of the workspace: the parent of ours, as cargo tells it.
fn root() -> Result<PathBuf> {
    let ours = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let ours = ours.context("xtask does not know where it is\nhint: run it as `cargo xtask`")?;
    Ok(ours.parent().context("xtask is not inside a workspace")?.to_owned())
}
