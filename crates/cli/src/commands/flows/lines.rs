//! Flows of any size from JSON lines: the flow on the first, then its jobs, which are added part by part.
//!
//! Nothing of the flow runs before the last line is there. Parts are numbered, so the same lines sent again under
//! the same id of the flow go on where they were stopped. It refuses to go on behind a bad line, and names it.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use tidemill::core::Wish;
use tidemill::{Enqueue, Flow, FlowId, Limits};
use tokio::io::AsyncBufRead;

use crate::exit::{Exit, Failure, Outcome};
use crate::lines::{Lines, WISHES_BYTES_MAX};
use crate::mill::{Building, Mill};
use crate::output::count;
use crate::progress::Late;

/// Jobs that are added at a time.
const PART_JOBS: usize = 1000;
/// And bytes of their lines: a server takes bodies of 16 MiB, unless it was told otherwise.
const PART_BYTES: usize = 8 * 1024 * 1024;
/// A line that is larger holds no flow that would be taken.
const FLOW_BYTES_MAX: usize = 1 << 28;

/// The flow that stands on the first line.
pub async fn flow<R: AsyncBufRead + Unpin>(lines: &mut Lines<R>) -> Outcome<Flow> {
    let Some(first) = lines.next(FLOW_BYTES_MAX).await? else {
        return Err(Failure::usage("there is no line; the first has the flow, with its steps"));
    };
    let text = String::from_utf8_lossy(&first);
    Flow::from_json(&text).map_err(|error| Failure::from(error).at(lines.place()))
}

/// Writes the flow and adds its jobs. Answers it, and how many jobs were added.
pub async fn build<R: AsyncBufRead + Unpin>(
    mill: &Mill,
    flow: Flow,
    lines: &mut Lines<R>,
) -> Outcome<(Building, u64)> {
    let building = mill.build(flow).await?;
    let id = building.id();
    let added = add(mill, &building, "", lines).await;
    added.map(|jobs| (building, jobs)).map_err(|stopped| stopped.of_flow(id))
}

/// Why no more jobs were added.
pub struct Stopped {
    failure: Failure,
    /// How many were before.
    jobs: u64,
    /// Whether a line is to be mended.
    is_line: bool,
}

impl Stopped {
    /// What to do with a flow that is not whole. What was added is known by its place among the lines.
    fn of_flow(self, id: FlowId) -> Failure {
        let before = count(self.jobs, "job was", "jobs were");
        let again = self.again();
        self.failure.hint(format!(
            "{before} added to the flow {id}, which has not begun: {again} with \"id\": \"{id}\" in the first, or \
             throw it away with `tidemill flows discard {id}`"
        ))
    }

    /// The same, of lines that have a name.
    pub fn of_part(self) -> Failure {
        let before = count(self.jobs, "job was", "jobs were");
        let again = self.again();
        self.failure.hint(format!(
            "{before} added before; {again} under the same --part: they are added once"
        ))
    }

    fn again(&self) -> &'static str {
        if self.is_line {
            "mend this line, leave those before it as they are, and send all of them again"
        } else {
            "send the same lines again"
        }
    }
}

/// Adds the jobs of all lines to their steps; parts are named by `name` and a number.
pub async fn add<R: AsyncBufRead + Unpin>(
    mill: &Mill,
    building: &Building,
    name: &str,
    lines: &mut Lines<R>,
) -> Result<u64, Stopped> {
    let mut bar = Late::new("adding", None);
    let (mut number, mut jobs) = (0_u64, 0);
    loop {
        let (parts, is_last) = match parts(mill, lines).await {
            Ok(parts) => parts,
            Err(failure) => return Err(Stopped { failure, jobs, is_line: true }),
        };
        for (step, part) in parts {
            number += 1;
            let key = format!("{name}{number}");
            match building.add_once(&key, &step, part).await {
                Ok(added) => jobs += added,
                Err(error) => {
                    let place = format!("the lines up to {}", lines.number());
                    let failure = Failure::from(error).at(place);
                    return Err(Stopped { failure, jobs, is_line: false });
                }
            }
            bar.set(jobs);
        }
        if is_last {
            return Ok(jobs);
        }
    }
}

/// The next jobs, by their steps, and whether they were the last.
async fn parts<R: AsyncBufRead + Unpin>(
    mill: &Mill,
    lines: &mut Lines<R>,
) -> Outcome<(BTreeMap<String, Vec<Enqueue>>, bool)> {
    let mut parts: BTreeMap<String, Vec<Enqueue>> = BTreeMap::new();
    let (mut jobs, mut bytes) = (0, 0);
    let bytes_max = Limits::default().payload_bytes_max + WISHES_BYTES_MAX;
    while jobs < PART_JOBS && bytes < PART_BYTES {
        let Some(line) = lines.next(bytes_max).await? else { return Ok((parts, true)) };
        let parsed = parse(&line).and_then(|(step, job)| {
            mill.check(&job)?;
            Ok((step, job))
        });
        let (step, job) = parsed.map_err(|failure| failure.at(lines.place()))?;
        parts.entry(step).or_default().push(job);
        (jobs, bytes) = (jobs + 1, bytes + line.len());
    }
    Ok((parts, false))
}

/// A line: a job, and the step it is of.
fn parse(line: &[u8]) -> Outcome<(String, Enqueue)> {
    let odd = |reason: String| {
        Failure::new(Exit::Usage, "line_invalid", format!("it is not a job of a step: {reason}"))
    };
    let mut fields: BTreeMap<String, Box<RawValue>> =
        serde_json::from_slice(line).map_err(|error| odd(error.to_string()))?;
    let step = fields.remove("step").ok_or_else(|| odd("it names no step".to_owned()))?;
    let step: String = serde_json::from_str(step.get()).map_err(|error| odd(error.to_string()))?;
    let wish = serde_json::to_string(&fields).map_err(|error| odd(error.to_string()))?;
    let wish: Wish = serde_json::from_str(&wish).map_err(|error| odd(error.to_string()))?;
    Ok((step, Enqueue::try_from(wish)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_job_and_names_its_step() {
        let line = br#"{"kind":"mail","step":"mails","payload":{"n":9007199254740993},"queue":"slow","delay":"5m"}"#;
        let (step, job) = parse(line).unwrap();
        assert_eq!((step.as_str(), job.queue_name()), ("mails", "slow"));
        for line in [
            "",
            "[]",
            r#"{"kind":"mail"}"#,
            r#"{"step":"mails"}"#,
            r#"{"step":7,"kind":"mail"}"#,
            r#"{"step":"mails","kind":"mail","dealy":"5m"}"#,
        ] {
            let refused = parse(line.as_bytes()).unwrap_err();
            assert_eq!(refused.code(), "line_invalid", "{line}");
        }
    }
}
