//! Dead letters: look, group, note, replay at a pace, and stop when the same trouble returns.

mod plan;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill_core::dead::{DeadFilter, DeadPlace, RedriveRule, Triage};
use tidemill_core::{JobId, Payload, State, limit, name};
use tidemill_store::{DeadGroup, DeadLetter};

use crate::engine::Tidemill;
use crate::engine::telemetry::verb;
use crate::error::Result;

/// How fast dead letters are replayed, and what stops it.
#[derive(Debug, Clone)]
pub struct ReplayPace {
    /// At most this many a second. Defaults to 50.
    pub jobs_per_second: u32,
    /// Replay one, wait for it, then ten, then the rest; stop if one dies of the same fingerprint
    /// again. Defaults to true.
    pub canary: bool,
    /// How long to wait for a canary to finish. Defaults to 60 s.
    pub canary_wait: Duration,
}

impl Default for ReplayPace {
    fn default() -> Self {
        Self { jobs_per_second: 50, canary: true, canary_wait: Duration::from_mins(1) }
    }
}

/// What a replay came to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReplayReport {
    /// Sent on their way again.
    pub replayed: u64,
    /// Left as they were, because the replay stopped.
    pub left: u64,
    /// The canary that died of the same fingerprint, if one did.
    pub stopped_by: Option<JobId>,
    /// The canary that had not finished in time, if one had not.
    pub unfinished_canary: Option<JobId>,
}

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
        Ok(self.0.0.store.dead(filter, before, limit).await?)
    }

    /// How many there are of each fingerprint, most numerous first.
    pub async fn groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>> {
        Ok(self.0.0.store.dead_groups(filter).await?)
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
        Ok(self.0.0.store.dead_note(ids, by, text, None, None).await?)
    }

    /// Sets the triage of dead letters, with the reason.
    pub async fn triage(&self, ids: &[JobId], to: Triage, by: &str, why: &str) -> Result<u64> {
        let text = format!("{}: {why}", to.word());
        Ok(self.0.0.store.dead_note(ids, by, &text, Some(to), None).await?)
    }

    /// Puts dead letters aside: kept, but out of the way.
    pub async fn archive(&self, ids: &[JobId], by: &str, why: &str) -> Result<u64> {
        let text = format!("archived: {why}");
        Ok(self.0.0.store.dead_note(ids, by, &text, None, Some(true)).await?)
    }

    /// Replays one dead letter, with another payload if given. `false` when it was not dead.
    pub async fn replay_one(&self, id: JobId, by: &str, payload: Option<&str>) -> Result<bool> {
        let limits = &self.0.0.limits;
        let payload = payload.map(|text| Payload::parse(text, limits)).transpose()?;
        let replayed = verb("replay", 1, self.0.0.store.dead_replay(&[id], by, payload)).await?;
        Ok(!replayed.is_empty())
    }

    /// Replays all that match, at a pace. `progress` is told how many went and how many there are.
    pub async fn replay(
        &self,
        filter: &DeadFilter,
        by: &str,
        pace: &ReplayPace,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<ReplayReport> {
        let all = self.matching(filter).await?;
        let mut report = ReplayReport { left: all.len() as u64, ..ReplayReport::default() };
        let mut rest = &all[..];
        let mut wave = if pace.canary { 1 } else { all.len().max(1) };
        while !rest.is_empty() {
            let (now, later) = rest.split_at(wave.min(rest.len()));
            rest = later;
            let sent = self.replay_paced(now, by, pace, &mut report, &mut progress).await?;
            if pace.canary
                && !rest.is_empty()
                && !self.canaries_live(&sent, pace, &mut report).await?
            {
                break;
            }
            wave = if wave == 1 { 10 } else { all.len() };
        }
        Ok(report)
    }

    /// The matching dead letters that are not on their way already: id and fingerprint.
    async fn matching(&self, filter: &DeadFilter) -> Result<Vec<(JobId, String)>> {
        const PAGE: usize = 1000;
        let (mut all, mut before) = (Vec::new(), None);
        loop {
            let letters = self.list(filter, before, PAGE).await?;
            before = letters.last().filter(|_| letters.len() == PAGE).map(DeadLetter::place);
            let waiting = letters.into_iter().filter(|l| l.triage != Triage::Retrying);
            all.extend(waiting.map(|l| (l.id, l.fingerprint)));
            if before.is_none() {
                return Ok(all);
            }
        }
    }

    async fn replay_paced(
        &self,
        letters: &[(JobId, String)],
        by: &str,
        pace: &ReplayPace,
        report: &mut ReplayReport,
        progress: &mut impl FnMut(u64, u64),
    ) -> Result<Vec<(JobId, String)>> {
        let per_tick = (pace.jobs_per_second / 10).max(1) as usize;
        let tick =
            Duration::from_secs_f64(per_tick as f64 / f64::from(pace.jobs_per_second.max(1)));
        let mut ticks = tokio::time::interval(tick);
        let mut sent = Vec::new();
        for chunk in letters.chunks(per_tick) {
            ticks.tick().await;
            let ids: Vec<_> = chunk.iter().map(|(id, _)| *id).collect();
            let gone =
                verb("replay", ids.len(), self.0.0.store.dead_replay(&ids, by, None)).await?;
            report.left -= ids.len() as u64;
            report.replayed += gone.len() as u64;
            sent.extend(chunk.iter().filter(|(id, _)| gone.contains(id)).cloned());
            progress(report.replayed, report.replayed + report.left);
        }
        Ok(sent)
    }

    /// Waits for a wave to finish; says whether the next one may go.
    async fn canaries_live(
        &self,
        sent: &[(JobId, String)],
        pace: &ReplayPace,
        report: &mut ReplayReport,
    ) -> Result<bool> {
        for (id, fingerprint) in sent {
            match self.0.wait(*id, pace.canary_wait).await {
                Ok(view) if view.state == State::Dead => {
                    let filter = DeadFilter { ids: vec![*id], ..DeadFilter::default() };
                    let again = self.list(&filter, None, 1).await?;
                    if again.iter().any(|l| l.fingerprint == *fingerprint) {
                        report.stopped_by = Some(*id);
                        return Ok(false);
                    }
                }
                Ok(_) => {}
                Err(crate::Error::WaitTimeout { .. }) => {
                    report.unfinished_canary = Some(*id);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The rules that redrive by themselves.
    pub async fn rules(&self) -> Result<Vec<RedriveRule>> {
        Ok(self.0.0.store.redrive_rules().await?)
    }

    /// Sets a rule: dead letters that match it are replayed by any worker, as often as it allows.
    pub async fn set_rule(&self, rule: RedriveRule) -> Result<()> {
        name::check("rule", &rule.name, limit::NAME_BYTES_MAX)?;
        let name = rule.name.clone();
        Ok(self.0.0.store.set_redrive_rule(&name, Some(rule)).await?)
    }

    /// Takes a rule away.
    pub async fn remove_rule(&self, name: &str) -> Result<()> {
        Ok(self.0.0.store.set_redrive_rule(name, None).await?)
    }
}
