//! What the steps before a job returned, as a file for its command.
//!
//! A job of a flow that comes after others gets the path of a JSON file in `TIDEMILL_INPUTS`: an object by the names of
//! those steps. It refuses to write the outputs of a step with more than ten thousand jobs: such a file would not help.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use tidemill::{Context, Fail, Input, JobId, Output, Payload};

const OUTPUTS_MAX: u64 = 10_000;

/// What is told of one step.
#[derive(Serialize)]
struct Told {
    state: &'static str,
    jobs: u64,
    done: u64,
    failed: u64,
    /// What its only job returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Payload>,
    /// What each of its jobs returned, by id.
    #[serde(skip_serializing_if = "Option::is_none")]
    outputs: Option<Vec<Output>>,
}

/// Writes the file, if the job comes after anything; `true` if it does.
pub async fn write(cx: &Context, file: &Path) -> Result<bool, Fail> {
    let inputs = cx.inputs().await?;
    if inputs.is_empty() {
        return Ok(false);
    }
    // Written as it came: no digit of an output changes.
    let mut told: BTreeMap<&str, Told> = BTreeMap::new();
    for input in inputs {
        told.insert(&input.step, tell(cx, input).await?);
    }
    std::fs::write(file, serde_json::to_vec(&told)?)?;
    Ok(true)
}

async fn tell(cx: &Context, input: &Input) -> Result<Told, Fail> {
    let Input { state, jobs, done, failed, .. } = *input;
    let mut told = Told { state: state.word(), jobs, done, failed, output: None, outputs: None };
    if jobs == 1 {
        told.output = match &input.output {
            Some(output) => Some(output.clone()),
            None => outputs(cx, &input.step).await?.into_iter().find_map(|one| one.output),
        };
    } else if jobs <= OUTPUTS_MAX {
        told.outputs = Some(outputs(cx, &input.step).await?);
    }
    Ok(told)
}

async fn outputs(cx: &Context, step: &str) -> Result<Vec<Output>, Fail> {
    let (mut all, mut after): (Vec<Output>, Option<JobId>) = (Vec::new(), None);
    loop {
        let page = cx.outputs_of(step, after).await?;
        let Some(last) = page.last() else { return Ok(all) };
        after = Some(last.id);
        all.extend(page);
    }
}
