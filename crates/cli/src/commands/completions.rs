//! `tidemill completions SHELL`: what a shell needs to complete our commands.

use clap::CommandFactory;
use clap_complete::Shell;

/// Which shell.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: tidemill completions bash > ~/.local/share/bash-completion/completions/tidemill"
)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Prints them.
pub fn run(args: &Args) {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "tidemill", &mut script);
    crate::output::line(String::from_utf8_lossy(&script).trim_end());
}
