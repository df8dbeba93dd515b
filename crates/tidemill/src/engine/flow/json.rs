//! A flow as JSON: the same shape wherever one is sent as text.
//!
//! It refuses words it does not know: a misspelt `aftre` must not start a step at once.

mod room;

use std::fmt;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use tidemill_core::flow::{After, FlowOptions, Join, NESTING_MAX};
use tidemill_core::limit::NAME_BYTES_MAX;
use tidemill_core::{
    Backoff, Error as Invalid, FlowId, JobId, Limits, OnDead, OwnRetry, Priority, Wish, moment,
    name,
};

use super::new::{Draft, DraftUndo, DraftWork, Flow};
use crate::Timestamp;
use crate::engine::Tidemill;
use crate::error::{Error, Result};
use crate::worker::job::Enqueue;
use room::Room;

/// A flow as JSON asks for it; [`Flow::from_json`] reads it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FlowWish {
    /// Its id, a UUID; the same id started twice is started once.
    id: Option<FlowId>,
    /// For people.
    name: String,
    /// What it is made of.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<StepWish>))]
    steps: Box<RawValue>,
    /// It is called off if it has not ended so many milliseconds after it began.
    #[cfg_attr(
        feature = "openapi",
        schema(format = "uint64", maximum = 18_446_744_073_709_551_615_u64)
    )]
    finish_within_ms: Option<u64>,
    /// It is kept so many milliseconds after it ended, with all its jobs.
    #[cfg_attr(
        feature = "openapi",
        schema(format = "uint64", maximum = 18_446_744_073_709_551_615_u64)
    )]
    retain_ms: Option<u64>,
    /// At most so many of its jobs are under way at once.
    #[cfg_attr(feature = "openapi", schema(format = Int64, minimum = 1, maximum = 4_294_967_295_i64))]
    at_once: Option<u32>,
    /// Its steps say how they are undone, and are if one of them fails.
    #[serde(default)]
    saga: bool,
    /// It does not begin yet: its steps are given more jobs first.
    #[serde(default)]
    building: bool,
}

/// A step of a flow: a kind with a payload, or several; or jobs; or steps of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
struct StepWish {
    /// Names it within its flow.
    name: String,
    /// What it waits for; a step that waits for nothing starts at once.
    #[serde(default, deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<AfterWish>))]
    after: Option<Box<RawValue>>,
    /// For how much of that.
    #[serde(default)]
    join: Join,
    /// It is a flow of these steps.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<StepWish>>, no_recursion))]
    steps: Option<Box<RawValue>>,
    /// It has these jobs, each with its own wishes.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<Wish>>))]
    jobs: Option<Box<RawValue>>,
    /// The kind of its job, or of all of them. What follows here are wishes of these.
    kind: Option<String>,
    /// What its job gets; `null` when not given.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    payload: Option<Box<RawValue>>,
    /// It has a job for each of these.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<serde_json::Value>>))]
    payloads: Option<Box<RawValue>>,
    /// The id of its only job, a UUID.
    id: Option<JobId>,
    /// Where they wait; `default` when not given.
    queue: Option<String>,
    /// In which band; `normal` when not given.
    priority: Option<Priority>,
    /// They may start so many milliseconds after what they come after.
    #[cfg_attr(
        feature = "openapi",
        schema(format = "uint64", maximum = 18_446_744_073_709_551_615_u64)
    )]
    delay_ms: Option<u64>,
    /// They may start at this time.
    #[serde(default, deserialize_with = "moment::read_option")]
    run_at: Option<Timestamp>,
    /// Whose jobs they are.
    tenant: Option<String>,
    /// What limits per key and ordering count by.
    key: Option<String>,
    /// They run one at a time with others of their queue, tenant and key; what a dead one does to those behind it.
    ordered: Option<OnDead>,
    /// How they are retried, as far as it is said here.
    retry: Option<RetryWish>,
    /// One attempt may run so many milliseconds.
    #[cfg_attr(
        feature = "openapi",
        schema(format = "uint64", maximum = 18_446_744_073_709_551_615_u64)
    )]
    run_timeout_ms: Option<u64>,
    /// They are dead if no attempt has started so many milliseconds after they were due.
    #[cfg_attr(
        feature = "openapi",
        schema(format = "uint64", maximum = 18_446_744_073_709_551_615_u64)
    )]
    start_within_ms: Option<u64>,
    /// They are dead if they have not finished after so many milliseconds.
    #[cfg_attr(
        feature = "openapi",
        schema(format = "uint64", maximum = 18_446_744_073_709_551_615_u64)
    )]
    finish_within_ms: Option<u64>,
    /// Words to search by.
    #[serde(default)]
    tags: Vec<String>,
    /// W3C trace context (`traceparent`) to carry along.
    trace: Option<String>,
    /// The job that undoes it.
    undo: Option<UndoWish>,
    /// The same, with every wish of a job.
    undo_job: Option<Wish>,
    /// It leaves nothing behind that would have to be undone.
    #[serde(default)]
    nothing_to_undo: bool,
    /// Once it is done, the saga goes forward only.
    #[serde(default)]
    pivot: bool,
}

/// The job that undoes a step; it gets the step's output beside its payload.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
struct UndoWish {
    /// The kind of the job.
    kind: String,
    /// Its payload; `null` when not given.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    payload: Option<Box<RawValue>>,
    /// Where it waits; `default` when not given.
    queue: Option<String>,
    /// How it is retried, as far as it is said here.
    retry: Option<RetryWish>,
}

/// How jobs are retried, as far as it is said here: what is not comes from their kind, else from their queue.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
struct RetryWish {
    /// Attempts in all, the first included.
    attempts_max: Option<u16>,
    /// Attempts after which an ambiguous failure (panic, timeout) is final.
    ambiguous_max: Option<u16>,
    /// The delay between attempts.
    backoff: Option<Backoff>,
}

impl From<RetryWish> for OwnRetry {
    fn from(RetryWish { attempts_max, ambiguous_max, backoff }: RetryWish) -> Self {
        Self { attempts_max, ambiguous_max, backoff }
    }
}

/// What a step waits for.
#[derive(Debug, Serialize)]
#[serde(untagged)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
enum AfterWish {
    /// The success of this step.
    Name(String),
    /// An edge that says more.
    Edge(After),
}

impl<'de> Deserialize<'de> for AfterWish {
    /// By hand: of an untagged one it would be told that it is none of them, and not which word is wrong.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Edge;

        impl<'de> Visitor<'de> for Edge {
            type Value = AfterWish;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"the name of a step, or an edge: {"step": …, "on": …, "when": …}"#)
            }

            fn visit_str<E: serde::de::Error>(
                self,
                name: &str,
            ) -> std::result::Result<AfterWish, E> {
                Ok(AfterWish::Name(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                map: A,
            ) -> std::result::Result<AfterWish, A::Error> {
                After::deserialize(MapAccessDeserializer::new(map)).map(AfterWish::Edge)
            }
        }

        deserializer.deserialize_any(Edge)
    }
}

/// What is given, whatever it is.
fn given<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

impl Tidemill {
    /// Reads a flow from JSON that somebody else sent: [`Flow::from_json`], but of more than this engine takes no more
    /// is made than it takes.
    pub fn read_flow(&self, text: &str) -> Result<Flow> {
        let check = |job: &Enqueue| self.checked_alone(job.clone()).map(drop);
        Flow::read(text, Room::new(self.0.limits.batch_jobs_max, &check))
    }
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
        Self::read(text, Room::new(usize::MAX, &|_| Ok(())))
    }

    fn read(text: &str, mut room: Room<'_>) -> Result<Self> {
        let not_understood = |e: &serde_json::Error| Invalid::FlowWholeInvalid {
            flow: name_of(text).unwrap_or_default(),
            reason: format!("its JSON is not understood: {e}"),
        };
        let given: FlowWish = serde_json::from_str(text).map_err(|e| not_understood(&e))?;
        let options = FlowOptions {
            finish_within_ms: given.finish_within_ms,
            retain_ms: given.retain_ms,
            at_once: given.at_once,
            saga: given.saga,
            building: given.building,
        };
        let steps = room.steps(&given.steps, |e| not_understood(&e))?;
        let steps = drafts("", &steps, 0, &mut room)?;
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

/// The steps of a flow, or of one within another, so deep: `outer` is what their names begin with.
fn drafts(
    outer: &str,
    steps: &[Box<RawValue>],
    depth: usize,
    room: &mut Room<'_>,
) -> Result<Vec<Draft>> {
    let read = |(raw, number): (&RawValue, u32)| {
        let step: StepWish = serde_json::from_str(raw.get()).map_err(|e| {
            let name = name_of(raw.get()).unwrap_or_else(|| format!("number {number}"));
            not_understood(&format!("{outer}{name}"), &e)
        })?;
        draft(outer, step, depth, room)
    };
    steps.iter().map(AsRef::as_ref).zip(1..).map(read).collect()
}

fn not_understood(step: &str, error: &serde_json::Error) -> Invalid {
    let reason = format!("its JSON is not understood: {error}");
    Invalid::FlowInvalid { step: step.to_owned(), reason }
}

fn draft(outer: &str, mut step: StepWish, depth: usize, room: &mut Room<'_>) -> Result<Draft> {
    // The names of all that is within begin with it.
    name::check("step", &step.name, NAME_BYTES_MAX)?;
    let (name, join) = (step.name.clone(), step.join);
    let named = format!("{outer}{name}");
    let wrong = |error: serde_json::Error| not_understood(&named, &error);
    let after = step.after.take().map(|text| room.edges::<AfterWish>(&text, wrong)).transpose()?;
    let after = after.into_iter().flatten().map(|after| match after {
        AfterWish::Name(name) => After::success(name),
        AfterWish::Edge(edge) => edge,
    });
    let after = after.collect();
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
            let jobs = room.jobs::<Wish>(&jobs, wrong).map_err(|error| error.in_step(&named))?;
            let jobs = jobs.into_iter().map(Enqueue::try_from).collect::<Result<_>>();
            DraftWork::Jobs(jobs.map_err(|error| error.in_step(&named))?)
        }
        (Some(_), None, None) if depth == NESTING_MAX => {
            let (number, max) = (depth + 1, NESTING_MAX);
            return Err(Invalid::FlowTooLarge { what: "levels", number, max }.into());
        }
        (Some(steps), None, None) => {
            let steps = room.steps_of_one(&steps, wrong)?;
            DraftWork::Flow(drafts(&format!("{named}/"), &steps, depth + 1, room)?)
        }
        (None, Some(kind), None) => {
            let payloads = match (step.payload.take(), step.payloads.take()) {
                (Some(_), Some(_)) => return refuse("it has both a payload and payloads"),
                (None, Some(many)) => {
                    let many = room.jobs::<Box<RawValue>>(&many, wrong);
                    let many = many.map_err(|error| error.in_step(&named))?;
                    if step.id.is_some() && many.len() != 1 {
                        return refuse("it has one id for several jobs");
                    }
                    many
                }
                (one, None) => {
                    room.job();
                    vec![one.unwrap_or_else(|| RawValue::NULL.to_owned())]
                }
            };
            if let [first, _, ..] = payloads.as_slice() {
                // All of them have a copy of what is said of all.
                let first = job(&step, &kind, first.get().to_owned());
                room.check(&first).map_err(|error| error.in_step(&named))?;
            }
            let job = |text: Box<RawValue>| job(&step, &kind, Box::<str>::from(text).into());
            DraftWork::Jobs(payloads.into_iter().map(job).collect())
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
fn wish_of(step: &StepWish) -> Option<&'static str> {
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

fn undo_job(undo: UndoWish) -> Enqueue {
    let payload = undo.payload.map_or_else(|| "null".to_owned(), |raw| raw.get().to_owned());
    let mut job = Enqueue::raw(undo.kind, payload);
    if let Some(queue) = undo.queue {
        job = job.queue(queue);
    }
    match undo.retry {
        Some(retry) => job.retry(OwnRetry::from(retry)),
        None => job,
    }
}

fn job(step: &StepWish, kind: &str, payload: String) -> Enqueue {
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
        step.retry.clone().map(OwnRetry::from) => retry,
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

    #[test]
    fn a_misspelt_word_is_named_wherever_it_stands() {
        for (wish, culprit) in [
            (r#""after": [{"step": "a", "onn": "failure"}]"#, "onn"),
            (r#""after": [{"step": "a", "whenn": "true"}]"#, "whenn"),
            (r#""after": [{"step": "a", "on": "sucess"}]"#, "sucess"),
            (r#""after": [5]"#, "the name of a step, or an edge"),
            (r#""join": {"need": {"all": {"failure_max": 1}}}"#, "failure_max"),
            (r#""join": {"need": {"quorum": {"jobs": 1, "x": 2}}}"#, "`x`"),
            (r#""retry": {"attempts": 3}"#, "attempts"),
            (r#""retry": {"backoff": {"type": "fixed", "delay_ms": 1, "zz": 1}}"#, "zz"),
            (r#""undo": {"kind": "u", "retry": {"attempts": 3}}"#, "attempts"),
        ] {
            let flow = format!(
                r#"{{"name":"f","steps":[{{"name":"a","kind":"k"}},{{"name":"b","kind":"k",{wish}}}]}}"#
            );
            let refused = Flow::from_json(&flow).map(|_| wish).unwrap_err().to_string();
            assert!(refused.contains(culprit), "{wish}: {refused}");
        }
    }
}
