//! What a worker says to a broker, in the words of the wire: the opposite of what a server makes of them.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tidemill_core::flow::Way;
use tidemill_core::job::outcome::Waiting;
use tidemill_core::job::settle::Ended;
use tidemill_core::retry::text::BackoffText;
use tidemill_core::span::Span;
use tidemill_core::wire::Brought;
use tidemill_core::wire::run::{
    AppendBody, KeepBody, MailAnswer, NumberedEntry, NumberedValue, RenewalBody, RunBody,
    SaidAnswer, SaidItem,
};
use tidemill_core::wire::work::{Assigned, OutcomeBody, ReportBody, Step};
use tidemill_core::workflow::Parked;
use tidemill_core::{JobId, NewJob, Payload, Retry, Token, Wish};
use tidemill_store::run::{Append, Keep, Renewal, RunWrites};
use tidemill_store::stream::{StreamAnswer, StreamItem};
use tidemill_store::{ClaimedJob, Error, Result};

use crate::worker::execute::Told;

/// A job that was given, and what was told with it of its time.
pub(crate) fn given(assigned: Assigned, now: Timestamp) -> (ClaimedJob, Told) {
    let Assigned { job, attempt, lost, run_timeout_ms, finish_by, has_run } = assigned;
    let (job, gates) = (Arc::new(job), Vec::new());
    let claimed = ClaimedJob { job, attempt, lost, due_at: now, gates, has_run };
    let left = finish_by.map(|by| Duration::try_from(by.duration_since(now)).unwrap_or_default());
    (claimed, Told { run_timeout: run_timeout_ms.map(Duration::from_millis), left })
}

/// A report that says nothing but how the attempt ended.
pub(crate) fn report(id: JobId, token: Token, outcome: OutcomeBody) -> ReportBody {
    let (attempts, ambiguous_attempts, backoff) = (None, None, None);
    let (started_at, run) = (None, None);
    ReportBody { id, token, outcome, started_at, attempts, ambiguous_attempts, backoff, run }
}

/// The same with the policy of the kind, unless it is everybody's: then that of the queue comes first.
pub(crate) fn by_policy(report: ReportBody, retry: &Retry) -> ReportBody {
    if *retry == Retry::default() {
        return report;
    }
    ReportBody {
        attempts: Some(retry.attempts_max),
        ambiguous_attempts: Some(retry.ambiguous_max),
        backoff: Some(BackoffText(retry.backoff.clone())),
        ..report
    }
}

/// What the handler of an attempt said.
pub(crate) fn ended(ended: Ended) -> Result<OutcomeBody> {
    Ok(match ended {
        Ended::Done { output, follow_ups } => {
            let (steps, follow_ups) = apart(follow_ups);
            OutcomeBody::Done { output: Some(raw(&output)?), follow_ups, steps }
        }
        Ended::Failed { class, message, retry_after } => {
            OutcomeBody::Failed { class, message, retry_after: retry_after.map(Span) }
        }
        Ended::Snoozed(delay) => OutcomeBody::Snooze { delay: Span(delay) },
        Ended::Cancelled(reason) => OutcomeBody::Cancel { reason },
        Ended::GivenBack => OutcomeBody::GiveBack {},
    })
}

/// What a run waits for.
pub(crate) fn waits(waiting: Waiting, anew: bool) -> OutcomeBody {
    let Waiting { waits, read, parked, .. } = waiting;
    let (parked_code, differs, parked) = match parked {
        Some(Parked { diff: Some(diff), .. }) => (None, Some(diff), None),
        Some(Parked { code, why, .. }) => (Some(code), None, Some(why)),
        None => (None, None, None),
    };
    let mail_min = u32::try_from(waits.mail_min).unwrap_or(u32::MAX);
    let (until, what) = (waits.until, waits.what);
    OutcomeBody::Wait { until, mail_min, what, read, parked, parked_code, differs, anew }
}

/// Jobs that make new steps of a flow, by the names of these, and the others.
fn apart(jobs: Vec<NewJob>) -> (Vec<Step>, Brought) {
    let (mut steps, mut others): (Vec<Step>, _) = (Vec::new(), Brought::default());
    for job in jobs {
        let wish = Wish::from(&job);
        match (job.options.flow.filter(|place| place.grows), steps.last_mut()) {
            (None, _) => others.push(wish),
            (Some(place), Some(step)) if step.name == place.name => step.jobs.push(wish),
            (Some(place), _) => {
                // Else it would not have been let in.
                let nothing_to_undo = place.way == Way::Back;
                steps.push(Step { name: place.name, jobs: vec![wish].into(), nothing_to_undo });
            }
        }
    }
    (steps, others)
}

/// A write to the journal of a run.
pub(crate) fn append(item: Append) -> Result<AppendBody> {
    let Append { job: id, token, writes } = item;
    Ok(AppendBody { id, token, writes: run(writes)? })
}

/// What a run wants written.
pub(crate) fn run(writes: RunWrites) -> Result<RunBody> {
    let RunWrites { begins, entries, values, forget, state, owes, children, cancel, .. } = writes;
    let entry = |(number, text): (u32, String)| Ok(NumberedEntry { number, entry: read(&text)? });
    let value = |(number, value): (u32, Payload)| Ok(NumberedValue { number, value: raw(&value)? });
    let answer = |(number, text): (i64, String)| Ok(MailAnswer { number, ending: read(&text)? });
    let renewal = |Renewal { payload, version, taken }: Renewal| -> Result<_> {
        Ok(RenewalBody { payload: raw(&payload)?, version, taken })
    };
    let keep = |keep: Keep| -> Result<_> {
        Ok(match keep {
            Keep::This(state) => KeepBody::This(raw(&state)?),
            Keep::Nothing => KeepBody::Nothing,
        })
    };
    let (children, starts): (Vec<_>, Vec<_>) =
        children.into_iter().partition(|child| child.options.parent.is_some());
    let wishes = |jobs: Vec<NewJob>| jobs.iter().map(Wish::from).collect::<Vec<_>>().into();
    Ok(RunBody {
        begins,
        entries: entries.into_iter().map(entry).collect::<Result<_>>()?,
        values: values.into_iter().map(value).collect::<Result<_>>()?,
        forget,
        state: state.as_ref().map(raw).transpose()?,
        owes,
        children: wishes(children),
        starts: wishes(starts),
        cancel,
        answers: writes.answers.into_iter().map(answer).collect::<Result<_>>()?,
        renewal: writes.renewal.map(renewal).transpose()?,
        object: writes.object.map(keep).transpose()?,
    })
}

/// What an attempt says while it runs.
pub(crate) fn said(item: StreamItem) -> SaidItem {
    let StreamItem { job: id, token, sent, said, ephemeral } = item;
    SaidItem { id, token, sent: Some(sent), said, ephemeral }
}

/// What became of it. How much more a stream may have is not told: of what did not fit as a whole, nothing is kept.
pub(crate) fn heard(answer: SaidAnswer) -> StreamAnswer {
    match answer {
        SaidAnswer::Written => StreamAnswer::Kept { last: 0 },
        SaidAnswer::Stale => StreamAnswer::Stale,
        SaidAnswer::Full => StreamAnswer::Full { bytes_left: 0 },
    }
}

fn raw(payload: &Payload) -> Result<Box<RawValue>> {
    RawValue::from_string(payload.as_str().to_owned()).map_err(|error| unwritable(&error))
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| unwritable(&error))
}

fn unwritable(error: &serde_json::Error) -> Error {
    Error::Database { reason: format!("what a run wants written is no JSON: {error}") }
}
