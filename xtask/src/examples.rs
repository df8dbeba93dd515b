//! Runs the library's examples and compares what they print with what they promise.
//!
//! An example that no longer runs, or prints something else, teaches a mistake. So beside each
//! `NAME.rs` lies `NAME.out`, its standard output to the letter, and this compares the two. Each
//! example runs in an empty folder of its own: the database it makes is new.
//!
//! It refuses an example without an `.out` file, and one that runs for more than two minutes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::runner::{Runner, built};

const RUN_MAX: Duration = Duration::from_mins(2);

/// Builds and runs every example of the crate `tidemill`.
pub async fn check(root: &Path, runner: &mut Runner) -> Result<()> {
    let folder = root.join("crates/tidemill/examples");
    let names = names(&folder)?;
    if names.is_empty() {
        println!("no examples yet");
        return Ok(());
    }
    runner.cargo("build --workspace --all-features --examples").await?;
    for name in names {
        check_one(&folder, &name, runner).await.with_context(|| format!("example `{name}`"))?;
        println!("{name}: as promised");
    }
    Ok(())
}

async fn check_one(folder: &Path, name: &str, runner: &mut Runner) -> Result<()> {
    let promise = folder.join(format!("{name}.out"));
    let expected = fs::read_to_string(&promise).with_context(|| {
        format!("there is no {name}.out\nhint: write what it prints to {name}.out beside it")
    })?;
    let place = tempfile::tempdir()?;
    let output =
        runner.capture(&built(&format!("examples/{name}"))?, place.path(), RUN_MAX).await?;
    ensure!(output.status.success(), "it failed ({})", output.status);
    compare(&expected, &String::from_utf8_lossy(&output.stdout))
}

/// The names of the examples in `folder`, in order.
fn names(folder: &Path) -> Result<Vec<String>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

fn compare(expected: &str, printed: &str) -> Result<()> {
    if expected == printed {
        return Ok(());
    }
    let (mut promised, mut got) = (expected.lines(), printed.lines());
    for number in 1.. {
        let pair = (promised.next(), got.next());
        if pair == (None, None) {
            break;
        }
        if pair.0 != pair.1 {
            let shown = |line: Option<&str>| line.unwrap_or("(the end)").to_owned();
            bail!(
                "line {number} differs\n  promised: {}\n  printed:  {}",
                shown(pair.0),
                shown(pair.1)
            );
        }
    }
    bail!("only the line ends differ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_difference_is_named() {
        assert!(compare("a\nb\n", "a\nb\n").is_ok());
        for (expected, printed, message) in [
            ("a\nb\n", "a\nc\n", "line 2 differs\n  promised: b\n  printed:  c"),
            ("a\n", "a\nb\n", "line 2 differs\n  promised: (the end)\n  printed:  b"),
            ("a\n", "a", "only the line ends differ"),
        ] {
            assert_eq!(compare(expected, printed).unwrap_err().to_string(), message);
        }
    }
}
