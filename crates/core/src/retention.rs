//! How long finished jobs are kept, and which of a page of them may go.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::JobId;
use crate::job::state::State;
use crate::limit::SPAN_MS_MAX;

/// How long and how many finished jobs a queue keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Retention {
    /// Done and cancelled jobs go after this many milliseconds. Defaults to 3 days.
    pub finished_ms: u64,
    /// At most this many done and cancelled jobs are kept. Defaults to no bound.
    pub finished_max: Option<u64>,
    /// Dead letters go after this many milliseconds. Defaults to 90 days.
    pub dead_ms: u64,
    /// At most this many bytes of dead letters are kept, payloads and errors as they are stored;
    /// the oldest jobs go first. Defaults to no bound.
    pub dead_bytes_max: Option<u64>,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY_MS: u64 = 24 * 60 * 60 * 1000;
        Self {
            finished_ms: 3 * DAY_MS,
            finished_max: None,
            dead_ms: 90 * DAY_MS,
            dead_bytes_max: None,
        }
    }
}

impl Retention {
    /// The same with spans that a database can reckon with: longer is for ever.
    pub(crate) fn bounded(self) -> Self {
        let (finished_ms, dead_ms) =
            (self.finished_ms.min(SPAN_MS_MAX), self.dead_ms.min(SPAN_MS_MAX));
        Self { finished_ms, dead_ms, ..self }
    }
}

/// What the sweep needs to know of a finished job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Which job.
    pub id: JobId,
    /// Its queue.
    pub queue: String,
    /// Done, cancelled or dead.
    pub state: State,
    /// When it finished.
    pub finished_at: Timestamp,
    /// The job's own retention in milliseconds, before its queue's.
    pub retain_ms: Option<u64>,
    /// What a dead letter takes, payload and error, as it is stored; 0 of a job that is not dead.
    pub dead_bytes: u64,
}

impl Finished {
    /// Whether its time is over.
    pub fn is_over(&self, rules: &Retention, now: Timestamp) -> bool {
        let by_queue = if self.state == State::Dead { rules.dead_ms } else { rules.finished_ms };
        let kept = Duration::from_millis(self.retain_ms.unwrap_or(by_queue));
        now.duration_since(self.finished_at).unsigned_abs() >= kept && now >= self.finished_at
    }
}

/// Walks all finished jobs, oldest first, a page at a time, and says which may go.
///
/// Age is judged at once. A bound on the number, or on the bytes, needs a sum: one round counts, the
/// next lets the surplus go, oldest first. So no index and no counter burdens the hot path, and the
/// bound holds within two rounds.
#[derive(Debug, Default)]
pub struct Sweep {
    counted: HashMap<Sum, u64>,
    surplus: HashMap<Sum, u64>,
}

/// What is summed up: in this queue, the bytes of dead letters, or else the number of the others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Sum {
    queue: String,
    of_dead: bool,
}

impl Sum {
    fn bound(&self, rules: &Retention) -> Option<u64> {
        if self.of_dead { rules.dead_bytes_max } else { rules.finished_max }
    }
}

impl Sweep {
    /// Which jobs of this page go.
    pub fn page(
        &mut self,
        page: &[Finished],
        rules: impl Fn(&str) -> Retention,
        now: Timestamp,
    ) -> Vec<JobId> {
        let goes = |job: &&Finished| {
            let rules = rules(&job.queue);
            job.is_over(&rules, now) || self.is_surplus(job, &rules)
        };
        page.iter().filter(goes).map(|job| job.id).collect()
    }

    /// Whether the last round found too much for this job to stay; if not, it is counted.
    fn is_surplus(&mut self, job: &Finished, rules: &Retention) -> bool {
        let of_dead = job.state == State::Dead;
        let sum = Sum { queue: job.queue.clone(), of_dead };
        if sum.bound(rules).is_none() {
            return false;
        }
        let size = if of_dead { job.dead_bytes } else { 1 };
        match self.surplus.get_mut(&sum) {
            Some(left) if *left > 0 => {
                *left = left.saturating_sub(size);
                true
            }
            _ => {
                *self.counted.entry(sum).or_default() += size;
                false
            }
        }
    }

    /// Ends a round: what was counted decides what the next one lets go.
    pub fn end_round(&mut self, rules: impl Fn(&str) -> Retention) {
        self.surplus = std::mem::take(&mut self.counted)
            .into_iter()
            .filter_map(|(sum, kept)| {
                let over = kept.saturating_sub(sum.bound(&rules(&sum.queue))?);
                (over > 0).then_some((sum, over))
            })
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(minutes_ago: i64, state: State, retain_ms: Option<u64>) -> Finished {
        let finished_at = Timestamp::UNIX_EPOCH - jiff::SignedDuration::from_mins(minutes_ago);
        let dead_bytes = if state == State::Dead { 100 } else { 0 };
        Finished { id: JobId::new(), queue: "q".into(), state, finished_at, retain_ms, dead_bytes }
    }

    #[test]
    fn age_is_judged_by_the_job_then_the_queue() {
        let hour = Retention { finished_ms: 3_600_000, ..Retention::default() };
        let now = Timestamp::UNIX_EPOCH;
        for (job, over) in [
            (finished(59, State::Done, None), false),
            (finished(60, State::Done, None), true),
            (finished(60, State::Cancelled, None), true),
            (finished(60, State::Dead, None), false),
            (finished(60, State::Done, Some(7_200_000)), false),
            (finished(1, State::Done, Some(0)), true),
            (finished(-5, State::Done, None), false),
        ] {
            assert_eq!(job.is_over(&hour, now), over, "{job:?}");
        }
    }

    #[test]
    fn a_bound_on_the_number_lets_the_oldest_go_within_two_rounds() {
        let rules = |_: &str| Retention { finished_max: Some(3), ..Retention::default() };
        let mut jobs: Vec<_> = (0..10).map(|_| finished(0, State::Done, None)).collect();
        let oldest: Vec<_> = jobs[..7].iter().map(|j| j.id).collect();
        let mut sweep = Sweep::default();
        assert!(sweep.page(&jobs, rules, Timestamp::UNIX_EPOCH).is_empty());
        sweep.end_round(rules);
        assert_eq!(sweep.page(&jobs, rules, Timestamp::UNIX_EPOCH), oldest);
        jobs.drain(..7);
        sweep.end_round(rules);
        assert!(sweep.page(&jobs, rules, Timestamp::UNIX_EPOCH).is_empty());
    }

    #[test]
    fn a_bound_on_bytes_lets_the_oldest_dead_letters_go_and_nothing_else() {
        let rules = |_: &str| Retention { dead_bytes_max: Some(250), ..Retention::default() };
        let mut jobs: Vec<_> = (0..5).map(|_| finished(0, State::Dead, None)).collect();
        jobs.insert(0, finished(0, State::Done, None));
        let oldest: Vec<_> = jobs[1..4].iter().map(|j| j.id).collect();
        let mut sweep = Sweep::default();
        assert!(sweep.page(&jobs, rules, Timestamp::UNIX_EPOCH).is_empty());
        sweep.end_round(rules);
        assert_eq!(sweep.page(&jobs, rules, Timestamp::UNIX_EPOCH), oldest, "two fit, three not");
        jobs.drain(1..4);
        sweep.end_round(rules);
        assert!(sweep.page(&jobs, rules, Timestamp::UNIX_EPOCH).is_empty());
    }
}
