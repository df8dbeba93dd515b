//! A flow as JSON: the same shape wherever one is sent as text.
//!
//! It refuses words it does not know: a misspelt `aftre` must not start a step at once.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidemill_core::flow::{After, FlowOptions, Join};
use tidemill_core::{
    Error as Invalid, FlowId, JobId, Limits, OnDead, OwnRetry, Priority, Wish, moment,
};

use super::new::{Draft, DraftUndo, DraftWork, Flow};
use crate::Timestamp;
use crate::error::{Error, Result};
use crate::worker::job::Enqueue;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowIn {
    id: Option<FlowId>,
    name: String,
    steps: Vec<Box<RawValue>>,
    finish_within_ms: Option<u64>,
    retain_ms: Option<u64>,
    at_once: Option<u32>,
    #[serde(default)]
    saga: bool,
    #[serde(default)]
    building: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepIn {
    name: String,
    #[serde(default)]
    after: Vec<AfterIn>,
    #[serde(default)]
    join: Join,
    /// A step that is a flow.
    steps: Option<Vec<Box<RawValue>>>,
    /// A step with these jobs, each with its own wishes.
    jobs: Option<Vec<Wish>>,
    kind: Option<String>,
    payload: Option<Box<RawValue>>,
    /// A step with a job for each of these.
    payloads: Option<Vec<Box<RawValue>>>,
    id: Option<JobId>,
    queue: Option<String>,
    priority: Option<Priority>,
    delay_ms: Option<u64>,
    #[serde(default, deserialize_with = "moment::read_option")]
    run_at: Option<Timestamp>,
    tenant: Option<String>,
    key: Option<String>,
    ordered: Option<OnDead>,
    retry: Option<OwnRetry>,
    run_timeout_ms: Option<u64>,
    start_within_ms: Option<u64>,
    finish_within_ms: Option<u64>,
    #[serde(default)]
    tags: Vec<String>,
    trace: Option<String>,
    undo: Option<UndoIn>,
    /// The same, with every wish of a job.
    undo_job: Option<Wish>,
    #[serde(default)]
    nothing_to_undo: bool,
    #[serde(default)]
    pivot: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UndoIn {
    kind: String,
    payload: Option<Box<RawValue>>,
    queue: Option<String>,
    retry: Option<OwnRetry>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum AfterIn {
    Name(String),
    Edge(After),
}

impl Flow {
    /// Reads a flow from JSON.
    ///
    /// ```
    /// let flow = tidemill::Flow::from_json(r#"{
    ///     "name": "signup",
    ///     "steps": [
    ///         {"name": "account", "kind": "create_account", "payload": {"user": 42}},
    ///         {"name": "mails", "kind": "mail", "payloads": [1, 2, 3], "after": ["account"]},
    ///         {"name": "report", "kind": "report", "after": [{"step": "mails", "on": "either"}],
    ///          "join": {"need": {"quorum": {"jobs": 2}}, "within_ms": 60000}}
    ///     ]
    /// }"#)?;
    /// # tidemill::Result::Ok(())
    /// ```
    pub fn from_json(text: &str) -> Result<Self> {
        let given: FlowIn = serde_json::from_str(text).map_err(|e| Invalid::FlowWholeInvalid {
            flow: name_of(text).unwrap_or_default(),
            reason: format!("its JSON is not understood: {e}"),
        })?;
        let options = FlowOptions {
            finish_within_ms: given.finish_within_ms,
            retain_ms: given.retain_ms,
            at_once: given.at_once,
            saga: given.saga,
            building: given.building,
        };
        let steps = drafts("", &given.steps)?;
        let (id, is_chosen) = (given.id.unwrap_or_else(FlowId::new), given.id.is_some());
        Ok(Self { id, is_chosen, name: given.name, steps, options, astray: None })
    }
}

#[derive(Serialize)]
struct FlowOut<'a> {
    id: FlowId,
    name: &'a str,
    steps: Vec<StepOut<'a>>,
    finish_within_ms: Option<u64>,
    retain_ms: Option<u64>,
    at_once: Option<u32>,
    saga: bool,
    building: bool,
}

#[derive(Serialize)]
struct StepOut<'a> {
    name: &'a str,
    after: &'a [After],
    join: Join,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Vec<StepOut<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jobs: Option<Vec<Wish>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    undo_job: Option<Wish>,
    nothing_to_undo: bool,
    pivot: bool,
}

impl Flow {
    /// The JSON from which [`from_json`](Self::from_json) reads this very flow, for those who send it to an engine
    /// elsewhere. Its jobs are checked.
    pub fn to_json(&self, limits: &Limits, now: Timestamp) -> Result<String> {
        self.refuse_astray()?;
        let check = |job: &Enqueue| Ok(Wish::from(&job.clone().check(limits, now)?));
        let out = FlowOut {
            id: self.id,
            name: &self.name,
            steps: steps_out("", &self.steps, &check)?,
            finish_within_ms: self.options.finish_within_ms,
            retain_ms: self.options.retain_ms,
            at_once: self.options.at_once,
            saga: self.options.saga,
            building: self.options.building,
        };
        let written = serde_json::to_string(&out);
        Ok(written.map_err(|e| Invalid::PayloadNotJson { reason: e.to_string() })?)
    }
}

fn steps_out<'a>(
    outer: &str,
    steps: &'a [Draft],
    check: &impl Fn(&Enqueue) -> Result<Wish>,
) -> Result<Vec<StepOut<'a>>> {
    let out = |step: &'a Draft| {
        let named = format!("{outer}{}", step.name);
        let (steps, jobs) = match &step.work {
            DraftWork::Flow(steps) => (Some(steps_out(&format!("{named}/"), steps, check)?), None),
            DraftWork::Jobs(jobs) => {
                let jobs = jobs.iter().map(check).collect::<Result<_>>();
                (None, Some(jobs.map_err(|error| error.in_step(&named))?))
            }
        };
        let undo_job = match &step.undo {
            DraftUndo::Job(job) => Some(check(job).map_err(|error| error.in_undo(&named))?),
            DraftUndo::Missing | DraftUndo::Nothing => None,
        };
        Ok(StepOut {
            name: &step.name,
            after: &step.after,
            join: step.join,
            steps,
            jobs,
            undo_job,
            nothing_to_undo: matches!(step.undo, DraftUndo::Nothing),
            pivot: step.pivot,
        })
    };
    steps.iter().map(out).collect()
}

/// What calls itself so, if it does.
fn name_of(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    serde_json::from_str(text).ok().map(|Named { name }| name)
}

/// The steps of a flow, or of one within another: `outer` is what their names begin with.
fn drafts(outer: &str, steps: &[Box<RawValue>]) -> Result<Vec<Draft>> {
    let read = |(raw, number): (&RawValue, u32)| {
        let step: StepIn = serde_json::from_str(raw.get()).map_err(|e| {
            let name = name_of(raw.get()).unwrap_or_else(|| format!("number {number}"));
            let reason = format!("its JSON is not understood: {e}");
            Invalid::FlowInvalid { step: format!("{outer}{name}"), reason }
        })?;
        draft(outer, step)
    };
    steps.iter().map(AsRef::as_ref).zip(1..).map(read).collect()
}

fn draft(outer: &str, mut step: StepIn) -> Result<Draft> {
    let after = std::mem::take(&mut step.after).into_iter().map(|after| match after {
        AfterIn::Name(name) => After::success(name),
        AfterIn::Edge(edge) => edge,
    });
    let (name, after, join) = (step.name.clone(), after.collect(), step.join);
    let named = format!("{outer}{name}");
    let refuse = |reason: &str| {
        let reason = reason.to_owned();
        Err(Invalid::FlowInvalid { step: named.clone(), reason }.into())
    };
    let is_of_jobs = step.kind.is_some();
    if let Some(wish) = wish_of(&step).filter(|_| !is_of_jobs) {
        let reason =
            format!("it has a {wish}, which is a wish of one job; give it to those within");
        return refuse(&reason);
    }
    let work = match (step.steps.take(), step.kind.take(), step.jobs.take()) {
        (Some(_), Some(_), _) => {
            return refuse("it has both a kind and steps: it is one or the other");
        }
        (Some(_), _, Some(_)) | (_, Some(_), Some(_)) => {
            return refuse("it has jobs, and a kind or steps: it is one of them");
        }
        (None, None, None) => return refuse("it has neither a kind nor steps"),
        (None, None, Some(jobs)) => {
            let jobs = jobs.into_iter().map(Enqueue::try_from).collect::<Result<_>>();
            DraftWork::Jobs(jobs.map_err(|error| error.in_step(&named))?)
        }
        (Some(steps), None, None) => DraftWork::Flow(drafts(&format!("{named}/"), &steps)?),
        (None, Some(kind), None) => {
            let payloads = match (step.payload.take(), step.payloads.take()) {
                (Some(_), Some(_)) => return refuse("it has both a payload and payloads"),
                (None, Some(many)) if step.id.is_some() && many.len() != 1 => {
                    return refuse("it has one id for several jobs");
                }
                (None, Some(many)) => many.into_iter().map(|raw| raw.get().to_owned()).collect(),
                (one, None) => vec![one.map_or_else(|| "null".to_owned(), |raw| raw.get().into())],
            };
            DraftWork::Jobs(payloads.into_iter().map(|text| job(&step, &kind, text)).collect())
        }
    };
    let undo = match (step.undo.take().map(undo_job), step.undo_job.take()) {
        (Some(_), Some(_)) => return refuse("it has an undo and an undo_job: it is one of them"),
        (undo, None) => undo,
        (None, Some(wish)) => {
            Some(Enqueue::try_from(wish).map_err(|error: Error| error.in_undo(&named))?)
        }
    };
    let undo = match (undo, step.nothing_to_undo) {
        (Some(_), true) => return refuse("it has an undo, and says that there is nothing to undo"),
        (Some(undo), false) => DraftUndo::Job(Box::new(undo)),
        (None, true) => DraftUndo::Nothing,
        (None, false) => DraftUndo::Missing,
    };
    Ok(Draft { name, work, after, join, undo, pivot: step.pivot })
}

/// A wish for the jobs of a step that has a kind, if there is one.
fn wish_of(step: &StepIn) -> Option<&'static str> {
    let wishes = [
        ("payload", step.payload.is_some()),
        ("payloads", step.payloads.is_some()),
        ("id", step.id.is_some()),
        ("queue", step.queue.is_some()),
        ("priority", step.priority.is_some()),
        ("delay_ms", step.delay_ms.is_some()),
        ("run_at", step.run_at.is_some()),
        ("tenant", step.tenant.is_some()),
        ("key", step.key.is_some()),
        ("ordered", step.ordered.is_some()),
        ("retry", step.retry.is_some()),
        ("run_timeout_ms", step.run_timeout_ms.is_some()),
        ("start_within_ms", step.start_within_ms.is_some()),
        ("finish_within_ms", step.finish_within_ms.is_some()),
        ("tags", !step.tags.is_empty()),
        ("trace", step.trace.is_some()),
    ];
    wishes.into_iter().find(|(_, is_there)| *is_there).map(|(name, _)| name)
}

fn undo_job(undo: UndoIn) -> Enqueue {
    let payload = undo.payload.map_or_else(|| "null".to_owned(), |raw| raw.get().to_owned());
    let mut job = Enqueue::raw(undo.kind, payload);
    if let Some(queue) = undo.queue {
        job = job.queue(queue);
    }
    match undo.retry {
        Some(retry) => job.retry(retry),
        None => job,
    }
}

fn job(step: &StepIn, kind: &str, payload: String) -> Enqueue {
    let mut job = Enqueue::raw(kind, payload);
    macro_rules! wish {
        ($($value:expr => $method:ident),* $(,)?) => {
            $(if let Some(value) = $value { job = job.$method(value); })*
        };
    }
    wish! {
        step.id => id,
        step.queue.clone() => queue,
        step.priority => priority,
        step.delay_ms.map(Duration::from_millis) => delay,
        step.run_at => run_at,
        step.tenant.clone() => tenant,
        step.key.clone() => key,
        step.ordered => ordered,
        step.retry.clone() => retry,
        step.run_timeout_ms.map(Duration::from_millis) => run_timeout,
        step.start_within_ms.map(Duration::from_millis) => start_within,
        step.finish_within_ms.map(Duration::from_millis) => finish_within,
        step.trace.clone() => trace,
    }
    step.tags.iter().cloned().fold(job, Enqueue::tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_for_jobs_are_refused_where_there_is_no_one_job() {
        for wish in [
            r#""payload": 1"#,
            r#""queue": "slow""#,
            r#""retry": {"attempts_max": 3}"#,
            r#""run_timeout_ms": 5"#,
            r#""tags": ["a"]"#,
        ] {
            for work in [r#""steps": [{"name": "b", "kind": "k"}]"#, r#""jobs": [{"kind": "k"}]"#] {
                let of =
                    |wish: &str| format!(r#"{{"name":"f","steps":[{{"name":"a",{work}{wish}}}]}}"#);
                assert!(Flow::from_json(&of("")).is_ok(), "{work}");
                let refused = Flow::from_json(&of(&format!(",{wish}"))).unwrap_err().to_string();
                let word = wish.split('"').nth(1).unwrap();
                assert!(refused.contains(word), "{wish}: {refused}");
            }
            let kind = format!(r#"{{"name":"f","steps":[{{"name":"a","kind":"k",{wish}}}]}}"#);
            assert!(Flow::from_json(&kind).is_ok(), "{wish}");
        }
    }
}
