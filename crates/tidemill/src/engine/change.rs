//! Changes a job that waits, and lets one go that is dead or waits for the clock.

use serde::{Deserialize, Serialize};
use tidemill_core::flow::saga::told_anew;
use tidemill_core::job::edit::{Changes, Edit};
use tidemill_core::redact::HIDDEN;
use tidemill_core::{By, Error as Invalid, JobId, Payload, Priority, State, name};
use tidemill_store::EditAnswer;

use crate::engine::Tidemill;
use crate::engine::telemetry::verb;
use crate::error::{Error, Result};

/// What it took to let a job go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Retried {
    /// It was dead, and is on its way again with all attempts unspent.
    Replayed,
    /// It waited for the clock, and is due now.
    Due,
}

impl Tidemill {
    /// Lets a job wait in another band, wherever it waits: for a slot, at a gate, for the clock, in a line or for
    /// others. It keeps its due time. One that runs or has finished is refused ([`Error::JobNotNow`]).
    pub async fn set_priority(&self, id: JobId, priority: Priority) -> Result<()> {
        self.edited(id, &Edit::to(priority)).await
    }

    /// Changes a job that waits. With `of`, the [print](tidemill_core::Job::print) of the job that the change was made
    /// up for, it is refused if somebody has changed it since ([`Error::JobChanged`]).
    pub async fn edit(&self, id: JobId, changes: Changes, of: Option<String>) -> Result<()> {
        changes.payload.iter().try_for_each(|payload| self.check_whole(payload.get()))?;
        let mut edit = Edit::new(changes, &self.0.limits)?.only_of(of);
        if let Some(payload) = edit.payload_mut() {
            *payload = self.within_envelope(id, payload.clone()).await?;
        }
        self.edited(id, &edit).await
    }

    /// The payload that a job gets if it is given this one: what the undo of a step is told of that stays around it.
    /// Jobs of our own keep theirs: whoever could change what a webhook is told would have it signed by us.
    pub(crate) async fn within_envelope(&self, id: JobId, given: Payload) -> Result<Payload> {
        let Some(view) = self.job(id).await? else { return Ok(given) };
        name::check_own("kind", &view.job.kind)?;
        let Some(place) = &view.job.options.flow else { return Ok(given) };
        let undoes = self.flow(place.id).await?.and_then(|flow| flow.undoes(place.step));
        match undoes {
            Some(_) => Ok(told_anew(&place.name, &view.job.payload, given)?),
            None => Ok(given),
        }
    }

    /// Refuses a payload that was read where fields are hidden: what stood there would be lost.
    pub(crate) fn check_whole(&self, payload: &str) -> Result<()> {
        let is_whole = self.0.hidden.is_empty() || !payload.contains(HIDDEN);
        if is_whole { Ok(()) } else { Err(Invalid::PayloadHidden { hidden: HIDDEN }.into()) }
    }

    async fn edited(&self, id: JobId, edit: &Edit) -> Result<()> {
        match verb("edit", 1, self.0.store.edit(id, edit)).await? {
            EditAnswer::Edited => Ok(()),
            EditAnswer::Running => {
                let why = "is running; only a job that waits can be changed";
                Err(Error::JobNotNow { id, why })
            }
            EditAnswer::Finished => {
                let why = "has finished; a dead one can be let go again, with another payload";
                Err(Error::JobNotNow { id, why })
            }
            EditAnswer::Changed => Err(Error::JobChanged { id }),
            EditAnswer::Unknown => Err(Error::JobUnknown { id }),
        }
    }

    /// Lets a job start now: a dead one again, with another payload if given; one that waits for the clock without
    /// waiting. All others are refused ([`Error::JobNotNow`]). Of one that holds up a saga it must be said why.
    pub async fn retry<'b>(
        &self,
        id: JobId,
        by: impl Into<By<'b>>,
        payload: Option<&str>,
    ) -> Result<Retried> {
        let by = by.into();
        let view = self.job(id).await?.ok_or(Error::JobUnknown { id })?;
        let (is_done, retried) = match (view.state, payload) {
            (State::Dead, _) => (self.dead().replay_one(id, by, payload).await?, Retried::Replayed),
            (State::Scheduled, None) => (self.run_now(id).await?, Retried::Due),
            (state, _) => return Err(Error::JobNotNow { id, why: why_not(state) }),
        };
        let why = "has changed meanwhile, or its saga has turned back; look at it again";
        is_done.then_some(retried).ok_or(Error::JobNotNow { id, why })
    }
}

fn why_not(state: State) -> &'static str {
    match state {
        State::Blocked => "waits for another job or a signal; it goes on when that has come",
        State::Ready => "is ready already; it waits for a worker",
        State::Running => "is running; cancel it first, or wait",
        State::Done => "is done; enqueue the work again instead",
        State::Cancelled => "was cancelled; enqueue the work again instead",
        State::Dead => "is dead",
        State::Scheduled => "is not dead, so that its payload is changed by an edit",
    }
}
