//! Many jobs from JSON lines: a thousand at a time, each thousand wholly or not at all.
//!
//! It stops at the first bad line and names it. What was enqueued before stays enqueued, and the
//! message says how many that is, so that the rest can be sent after the line is mended.

use std::collections::BTreeMap;

use tidemill::core::Wish;
use tidemill::{Enqueue, Limits, Receipt};
use tokio::io::{AsyncBufRead, BufReader};

use crate::app::App;
use crate::exit::{Exit, Failure, Outcome};
use crate::lines::{Lines, WISHES_BYTES_MAX};
use crate::mill::Mill;
use crate::output::{self, count};
use crate::progress::Late;

const BATCH_JOBS: usize = 1000;

/// Enqueues what stdin has.
pub async fn run(app: &App, mill: &Mill, limits: &Limits) -> Outcome {
    let mut lines = Lines::new(BufReader::new(tokio::io::stdin()));
    let mut tally = Tally::default();
    let mut bar = Late::new("enqueueing", None);
    loop {
        let from = lines.number() + 1;
        let (batch, end) = match batch(&mut lines, mill, limits).await {
            Ok(batch) => batch,
            Err(failure) => return Err(tally.stopped(failure, from)),
        };
        let first = lines.number() - batch.len().min(lines.number());
        let receipts = match mill.enqueue_many(batch).await {
            Ok(receipts) => receipts,
            Err(error) => return Err(tally.interrupted(error, first, lines.number())),
        };
        tally.add(&receipts);
        bar.set(tally.all);
        if end {
            break;
        }
    }
    drop(bar);
    tally.show(app);
    Ok(if tally.words.contains_key("rejected") { Exit::Conflict } else { Exit::Ok })
}

/// What became of the jobs so far.
#[derive(Debug, Default)]
struct Tally {
    all: u64,
    words: BTreeMap<&'static str, u64>,
}

impl Tally {
    fn add(&mut self, receipts: &[Receipt]) {
        self.all += receipts.len() as u64;
        for receipt in receipts {
            *self.words.entry(super::word(receipt)).or_default() += 1;
        }
    }

    /// A line was bad; it stands in the batch that begins at `from`.
    fn stopped(&self, failure: Failure, from: usize) -> Failure {
        if self.all == 0 {
            return failure.hint("nothing was enqueued; mend the line and send all lines again");
        }
        let before = self.before();
        failure.hint(format!(
            "{before}, nothing from line {from} on; mend the line and send all from line {from} on"
        ))
    }

    /// The store could not take the lines after `first`, up to `last`.
    fn interrupted(&self, error: tidemill_client::Error, first: usize, last: usize) -> Failure {
        let is_unknown = error.is_unknown();
        let before = self.before();
        let hint = if error.code() == "queue_full" {
            format!(
                "{before}; the lines {} to {last} were refused together, and none after them was read: send them when \
                 there is room (`tidemill queues wait`), or fewer at once",
                first + 1
            )
        } else if is_unknown {
            format!(
                "{before}; whether this batch was is unknown: lines with an id can be sent again"
            )
        } else {
            format!("{before}, nothing of this batch; send the rest when the store is well again")
        };
        Failure::from(error).at(format!("the lines after {first}")).hint(hint)
    }

    fn before(&self) -> String {
        format!("{} enqueued before", count(self.all, "job was", "jobs were"))
    }

    fn show(&self, app: &App) {
        if app.json {
            return output::json(&self.words);
        }
        let words = self.words.iter().map(|(word, n)| format!("{} {word}", output::grouped(*n)));
        let words: Vec<_> = words.collect();
        output::line(if words.is_empty() { "0 enqueued".to_owned() } else { words.join(", ") });
    }
}

/// The next jobs, each checked, and whether they were the last.
async fn batch<R: AsyncBufRead + Unpin>(
    lines: &mut Lines<R>,
    mill: &Mill,
    limits: &Limits,
) -> Outcome<(Vec<Enqueue>, bool)> {
    let mut batch = Vec::with_capacity(BATCH_JOBS);
    while batch.len() < BATCH_JOBS {
        let line = lines.next(limits.payload_bytes_max + WISHES_BYTES_MAX).await?;
        let Some(line) = line else { return Ok((batch, true)) };
        let job = parse(&line).and_then(|job| {
            mill.check(&job)?;
            Ok(job)
        });
        batch.push(job.map_err(|failure| failure.at(lines.place()))?);
    }
    Ok((batch, false))
}

fn parse(line: &[u8]) -> Outcome<Enqueue> {
    let invalid = |reason: &dyn std::fmt::Display| {
        Failure::new(Exit::Usage, "line_invalid", format!("it is not a job: {reason}"))
    };
    // Serde would take a list for the fields in their order.
    if line.trim_ascii_start().first() == Some(&b'[') {
        return Err(invalid(&"it is a list, and not an object"));
    }
    let wish: Wish = serde_json::from_slice(line).map_err(|error| invalid(&error))?;
    Ok(Enqueue::try_from(wish)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_may_have_every_wish() {
        let line = br#"{"kind":"k","payload":{"n":9007199254740993},"queue":"mail",
            "priority":"high","delay":"5m","tenant":"t","key":"c:1","unique_key":"u",
            "unique_scope":"1d","on_duplicate":"join","attempts":3,"backoff":"fixed:1s",
            "run_timeout":"1m","start_within":"1h","finish_within":"2h","tags":["a"],
            "trace":"00-1","webhook":"orders","retain":"1d","id":"018f3a2e-7c11-7bbb-8000-5fd1e2a0c0de"}"#;
        assert!(parse(line).is_ok());
    }

    #[test]
    fn lines_that_are_no_jobs_are_refused() {
        for line in [
            "",
            "[]",
            r#"["k",{"a":1},"q"]"#,
            "{}",
            r#"{"kind":"k","dealy":"5m"}"#,
            r#"{"kind":"k","delay":"5"}"#,
            r#"{"kind":"k","on_duplicate":"join"}"#,
        ] {
            assert!(parse(line.as_bytes()).is_err(), "{line}");
        }
    }
}
