//! Dead letters: look, group, note, replay at a pace, and stop when the same trouble returns.

mod plan;
pub mod replay;

use tidemill_core::dead::plan::Act;
use tidemill_core::dead::{DeadFilter, DeadPlace, RedriveRule, Triage};
use tidemill_core::flow::FlowState;
use tidemill_core::job::outcome::clean;
use tidemill_core::schedule::schedule_of_key;
use tidemill_core::{By, Error as Invalid, JobId, Payload, State, limit, name};
use tidemill_store::{DeadGroup, DeadLetter, JobView};

use crate::engine::Tidemill;
use crate::engine::dead::replay::{ReplayPace, ReplayReport};
use crate::engine::telemetry::verb;
use crate::error::{Error, Result};

/// The dead letters of a store; see [`Tidemill::dead`].
#[derive(Debug, Clone)]
pub struct Dead<'a>(&'a Tidemill);

impl Tidemill {
    /// The dead letters.
    pub fn dead(&self) -> Dead<'_> {
        Dead(self)
    }
}

impl Dead<'_> {
    /// Dead letters, latest death first, at most `limit`; those that stand behind a place, if one is given.
    pub async fn list(
        &self,
        filter: &DeadFilter,
        before: Option<DeadPlace>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>> {
        self.check_search(filter)?;
        Ok(self.0.0.store.dead(filter, before, limit).await?)
    }

    /// How many there are of each fingerprint, most numerous first.
    pub async fn groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>> {
        self.check_search(filter)?;
        Ok(self.0.0.store.dead_groups(filter).await?)
    }

    fn check_search(&self, filter: &DeadFilter) -> Result<()> {
        let field = filter.payload_field.as_ref();
        let searched = field.map(|(path, value)| self.0.hidden().check_search(path, value));
        Ok(searched.transpose().map(drop)?)
    }

    /// Some of them, drawn at random, to look at before deciding on all.
    pub async fn sample(&self, filter: &DeadFilter, n: usize) -> Result<Vec<DeadLetter>> {
        const POOL_MAX: usize = 10_000;
        let mut pool = self.list(filter, None, POOL_MAX).await?;
        fastrand::shuffle(&mut pool);
        pool.truncate(n);
        Ok(pool)
    }

    /// Notes something on dead letters. Answers how many there were.
    pub async fn note(&self, ids: &[JobId], by: &str, text: &str) -> Result<u64> {
        if text.trim().is_empty() {
            return Err(Invalid::NameEmpty { what: "note" }.into());
        }
        self.noted(ids, by, text.to_owned(), None, None).await
    }

    /// Sets the triage of dead letters, with the reason. If one of them is not dead any more, nothing is done
    /// ([`Error::JobNotNow`](crate::Error::JobNotNow)).
    pub async fn triage(&self, ids: &[JobId], to: Triage, by: &str, why: &str) -> Result<u64> {
        Act::Triage(to).check()?;
        self.check_dead(ids).await?;
        let text = format!("{}: {why}", to.word());
        self.noted(ids, by, text, Some(to), None).await
    }

    /// Puts dead letters aside: kept, but out of the way. If one of them is not dead any more, nothing is done
    /// ([`Error::JobNotNow`](crate::Error::JobNotNow)).
    pub async fn archive(&self, ids: &[JobId], by: &str, why: &str) -> Result<u64> {
        self.check_dead(ids).await?;
        let text = format!("archived: {why}");
        self.noted(ids, by, text, None, Some(true)).await
    }

    /// Refuses what is for the dead alone if one of these is on its way again, or has ended otherwise.
    async fn check_dead(&self, ids: &[JobId]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let named = DeadFilter { ids: ids.to_vec(), ..DeadFilter::default() };
        let letters = self.0.0.store.dead(&named, None, ids.len()).await?;
        let Some(letter) = letters.iter().find(|letter| !letter.dead) else { return Ok(()) };
        let state = self.0.job(letter.id).await?.map(|view| view.state);
        let why = match state {
            Some(State::Done) => "was replayed and has recovered; it is not dead any more",
            Some(State::Cancelled) => "was replayed and called off; it is not dead any more",
            _ => "was replayed and is on its way; if it dies again, this can be said of it",
        };
        Err(Error::JobNotNow { id: letter.id, why })
    }

    /// Notes what people say, as every store can keep it.
    async fn noted(
        &self,
        ids: &[JobId],
        by: &str,
        text: String,
        to: Option<Triage>,
        archived: Option<bool>,
    ) -> Result<u64> {
        let (by, text) = (clean(by.to_owned()), clean(text));
        Ok(self.0.0.store.dead_note(ids, &by, &text, to, archived).await?)
    }

    /// Replays one dead letter, with another payload if given. `false` when it was not dead. A run that is undone, or
    /// has something to be undone, is refused ([`Error::RunNotNow`](crate::Error::RunNotNow)), and so is a job of a
    /// schedule whose jobs do not run at once, while another has not finished
    /// ([`Error::ScheduleOverlap`](crate::Error::ScheduleOverlap)). Of one that holds up a saga it must be said why
    /// ([`By::because`]); that is noted on it.
    pub async fn replay_one<'b>(
        &self,
        id: JobId,
        by: impl Into<By<'b>>,
        payload: Option<&str>,
    ) -> Result<bool> {
        let by = by.into();
        let limits = &self.0.0.limits;
        payload.map_or(Ok(()), |payload| self.0.check_whole(payload))?;
        let payload = match payload.map(|text| Payload::parse(text, limits)).transpose()? {
            Some(payload) => Some(self.0.within_envelope(id, payload).await?),
            None => None,
        };
        let replayed = self.send_these(&[id], by, payload).await?;
        if replayed.is_empty() {
            let view = self.0.job(id).await?;
            if let Some(view) = view.filter(|view| view.state == State::Dead) {
                self.refuse(&view, by).await?;
            }
        }
        Ok(!replayed.is_empty())
    }

    /// Says why a dead job cannot go on: its saga is stuck and nobody said why it is to, another of its schedule runs,
    /// or what it did as a run is undone, or may be.
    async fn refuse(&self, view: &JobView, by: By<'_>) -> Result<()> {
        let id = view.job.id;
        if let Some(place) = view.job.options.flow.as_ref().filter(|_| by.why.is_none())
            && let Some(flow) = self.0.flow(place.id).await?
            && flow.head.state == FlowState::Stuck
            && (!flow.has_turned_back() || flow.undoes(place.step).is_some())
        {
            return Err(Error::WhyMissing { id: place.id });
        }
        let schedule = view.job.unique_key.as_deref().and_then(schedule_of_key);
        let overlap = |schedule: &str, holder| {
            let schedule = schedule.to_owned();
            Err(Error::ScheduleOverlap { id, schedule, holder })
        };
        if let Some(schedule) = schedule
            && let Some(holder) = self.0.0.store.key_holder(id).await?
        {
            return overlap(schedule, Some(holder));
        }
        if let Some(run) = self.0.run(id).await? {
            let why = if run.undone {
                "what it did is undone; enqueue it anew instead"
            } else {
                "what it did may have to be undone, and nobody has looked yet; ask again in a moment"
            };
            return Err(Error::RunNotNow { id, why: why.to_owned() });
        }
        // Whoever held it back has finished meanwhile.
        schedule.map_or(Ok(()), |schedule| overlap(schedule, None))
    }

    /// Replays these at once, at most a thousand; answers those that were dead. Runs that are undone, or have something
    /// to be undone, stay dead, and so do jobs of a schedule that would run beside another of it, and those that hold
    /// up a saga, unless it is said why.
    pub async fn replay_these<'b>(
        &self,
        ids: &[JobId],
        by: impl Into<By<'b>>,
    ) -> Result<Vec<JobId>> {
        self.send_these(ids, by.into(), None).await
    }

    async fn send_these(
        &self,
        ids: &[JobId],
        by: By<'_>,
        payload: Option<Payload>,
    ) -> Result<Vec<JobId>> {
        let (who, why) = (clean(by.who.to_owned()), by.why.map(|why| clean(why.to_owned())));
        let by = By { who: &who, why: why.as_deref() };
        Ok(verb("replay", ids.len(), self.0.0.store.dead_replay(ids, by, payload)).await?)
    }

    /// Replays all that match, at a pace. `progress` is told how many went and how many there are.
    pub async fn replay<'b>(
        &self,
        filter: &DeadFilter,
        by: impl Into<By<'b>>,
        pace: &ReplayPace,
        progress: impl FnMut(u64, u64),
    ) -> Result<ReplayReport> {
        replay::replay(self, filter, by.into(), pace, progress).await
    }

    /// The rules that redrive by themselves.
    pub async fn rules(&self) -> Result<Vec<RedriveRule>> {
        Ok(self.0.0.store.redrive_rules().await?)
    }

    /// Sets a rule: dead letters that match it are replayed by any worker, as often as it allows.
    pub async fn set_rule(&self, rule: RedriveRule) -> Result<()> {
        name::check("rule", &rule.name, limit::NAME_BYTES_MAX)?;
        for (what, named) in [("kind", &rule.kind), ("queue", &rule.queue)] {
            named.iter().try_for_each(|named| name::check(what, named, limit::NAME_BYTES_MAX))?;
        }
        let mut words = rule.error_contains.iter();
        words.try_for_each(|words| name::check_value("error", words, limit::NAME_BYTES_MAX))?;
        let name = rule.name.clone();
        let rule = RedriveRule { delay_ms: rule.delay_ms.min(limit::SPAN_MS_MAX), ..rule };
        Ok(self.0.0.store.set_redrive_rule(&name, Some(rule)).await?)
    }

    /// Takes a rule away.
    pub async fn delete_rule(&self, name: &str) -> Result<()> {
        Ok(self.0.0.store.set_redrive_rule(name, None).await?)
    }
}
