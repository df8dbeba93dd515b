//! Numbered, timed steps, and the summary after them.
//!
//! Whoever reads a failed run wants three things: which step, why, and how long the rest took. So
//! each step has a heading before its output, the first failure ends the run, and the last line
//! always counts the steps.
//!
//! It refuses to go on after a failure: later steps would only bury the cause.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The steps so far.
#[derive(Debug, Default)]
pub struct Report {
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    name: &'static str,
    took: Duration,
    passed: bool,
}

impl Report {
    /// Runs one step under its heading.
    pub async fn step<T>(
        &mut self,
        name: &'static str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        println!("\n== {}. {name}", self.steps.len() + 1);
        let (result, took) = timed(work).await;
        self.steps.push(Step { name, took, passed: result.is_ok() });
        result
    }

    /// Runs two steps at once, each to its end: what one leaves idle the other uses. The first failure counts.
    pub async fn both(
        &mut self,
        (one, work): (&'static str, impl Future<Output = Result<()>>),
        (other, beside): (&'static str, impl Future<Output = Result<()>>),
    ) -> Result<()> {
        let number = self.steps.len() + 1;
        println!("\n== {number}. {one}\n== {}. {other}", number + 1);
        let ((first, took), (second, took_beside)) = tokio::join!(timed(work), timed(beside));
        self.steps.push(Step { name: one, took, passed: first.is_ok() });
        self.steps.push(Step { name: other, took: took_beside, passed: second.is_ok() });
        first.context(one).and(second.context(other))
    }

    /// Prints the failure, if any, and the summary; its last line counts the steps.
    pub fn close(self, outcome: &Result<()>) -> ExitCode {
        if let Err(error) = outcome {
            let failed = self.steps.iter().filter(|step| !step.passed).map(|step| step.name);
            eprintln!("\nfailed: {}\n{error:#}", failed.collect::<Vec<_>>().join(", "));
        }
        println!("\n{}", self.summary());
        if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn summary(&self) -> String {
        let rows = self.steps.iter().enumerate().map(|(index, step)| {
            let mark = if step.passed { "passed" } else { "FAILED" };
            let seconds = step.took.as_secs_f64();
            format!("{:>2}. {:<24} {mark} {seconds:>7.1} s", index + 1, step.name)
        });
        let table = rows.collect::<Vec<_>>().join("\n");
        let passed = self.steps.iter().filter(|step| step.passed).count();
        format!("{table}\n\n{passed} passed, {} failed", self.steps.len() - passed)
    }
}

async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let started = Instant::now();
    (work.await, started.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    #[tokio::test]
    async fn summary_ends_with_the_count_of_steps() {
        let mut report = Report::default();
        report.step("first", async { Ok(()) }).await.unwrap();
        assert!(report.summary().ends_with("\n1 passed, 0 failed"));
        let failed: Result<()> = report.step("second", async { bail!("no") }).await;
        assert!(failed.is_err());
        assert!(report.summary().contains("second                   FAILED"));
        assert!(report.summary().ends_with("\n1 passed, 1 failed"));
    }

    #[tokio::test]
    async fn both_of_two_steps_run_to_their_end() {
        let mut report = Report::default();
        let (ended, mut heard) = tokio::sync::oneshot::channel();
        let late = async {
            tokio::task::yield_now().await;
            ended.send(()).map_err(|()| anyhow::anyhow!("nobody listens"))
        };
        let failed = report.both(("one", async { bail!("no") }), ("other", late)).await;
        assert_eq!(format!("{:#}", failed.unwrap_err()), "one: no");
        assert!(heard.try_recv().is_ok());
        assert!(report.summary().ends_with("\n1 passed, 1 failed"));
    }
}
