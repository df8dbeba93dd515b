//! Credit: how many jobs a worker may ask for beyond its free slots.
//!
//! A slot that becomes free is idle until a claim has answered, unless a job is there already. How many
//! that takes is what the slots finish during one claim, by what was measured of both. Refuses to
//! take anything in advance when jobs are long beside a claim: there the gain is small, and a job that
//! waits at a busy worker is one that an idle worker could have.

use std::time::Duration;

/// Jobs that take longer than this many claims are not taken in advance.
pub const CLAIMS_MAX: u32 = 10;
/// A job taken in advance is given back after as many claims, but not before this.
const PATIENCE_MIN: Duration = Duration::from_millis(20);
const PATIENCE_MAX: Duration = Duration::from_secs(1);
/// Nothing is taken in advance before so many jobs were measured.
const JOBS_MIN: u32 = 8;
/// The part of a new measurement in a moving average.
const PART: f64 = 0.2;

/// What was measured of claims and of jobs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Credit {
    claim_secs: Option<f64>,
    job_secs: Option<f64>,
    jobs: u32,
}

impl Credit {
    /// A claim that brought jobs took so long.
    pub fn claimed(&mut self, took: Duration) {
        self.claim_secs = Some(average(self.claim_secs, took));
    }

    /// A job held its slot for so long.
    pub fn ran(&mut self, took: Duration) {
        self.job_secs = Some(average(self.job_secs, took));
        self.jobs = self.jobs.saturating_add(1);
    }

    /// A job that was taken in advance has waited in vain: jobs take longer than they did. They are
    /// measured anew.
    pub fn stalled(&mut self) {
        (self.job_secs, self.jobs) = (None, 0);
    }

    /// How many jobs to have at hand, besides those that run in all of these slots.
    pub fn in_advance(&self, slots: usize) -> usize {
        let (Some(claim), Some(job)) = (self.claim_secs, self.job_secs) else { return 0 };
        if self.jobs < JOBS_MIN || job > claim * f64::from(CLAIMS_MAX) {
            return 0;
        }
        let ends = slots as f64 * claim / job.max(1e-9);
        (ends.ceil() as usize).min(slots)
    }

    /// How long a job may wait that was taken in advance.
    pub fn patience(&self) -> Duration {
        let claim = Duration::from_secs_f64(self.claim_secs.unwrap_or_default().min(60.0));
        (claim * CLAIMS_MAX).clamp(PATIENCE_MIN, PATIENCE_MAX)
    }
}

fn average(before: Option<f64>, took: Duration) -> f64 {
    let took = took.as_secs_f64();
    before.map_or(took, |before| before + PART * (took - before))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credit(claim_us: u64, job_us: u64) -> Credit {
        let mut credit = Credit::default();
        credit.claimed(Duration::from_micros(claim_us));
        for _ in 0..JOBS_MIN {
            credit.ran(Duration::from_micros(job_us));
        }
        credit
    }

    #[test]
    fn as_much_as_ends_during_a_claim_is_at_hand() {
        for (claim_us, job_us, slots, expected) in [
            (1000, 1, 4, 4),       // never more than the slots
            (1000, 0, 4, 4),       // no time at all
            (1000, 1000, 16, 16),  // each slot ends one
            (1000, 4000, 16, 4),   // a quarter of them does
            (1000, 5000, 1, 1),    // one in five claims: it may come
            (1000, 10_000, 16, 2), // the longest that is taken in advance
            (1000, 10_001, 16, 0), // long jobs are not
            (1000, 60_000_000, 1000, 0),
        ] {
            let found = credit(claim_us, job_us).in_advance(slots);
            assert_eq!(found, expected, "{claim_us} {job_us} {slots}");
        }
    }

    #[test]
    fn nothing_is_taken_in_advance_before_both_are_measured() {
        let mut credit = Credit::default();
        assert_eq!(credit.in_advance(9), 0);
        credit.claimed(Duration::from_millis(1));
        for _ in 0..JOBS_MIN {
            assert_eq!(credit.in_advance(9), 0);
            credit.ran(Duration::from_millis(1));
        }
        assert_eq!(credit.in_advance(9), 9);
        credit.stalled();
        assert_eq!(credit.in_advance(9), 0, "measured anew");
    }

    #[test]
    fn jobs_that_become_longer_are_noticed() {
        let mut credit = credit(1000, 100);
        for _ in 0..10 {
            credit.ran(Duration::from_secs(1));
        }
        assert_eq!(credit.in_advance(100), 0);
    }

    #[test]
    fn patience_has_bounds() {
        assert_eq!(credit(100, 1).patience(), PATIENCE_MIN);
        assert_eq!(credit(5000, 1).patience(), Duration::from_millis(50));
        assert_eq!(credit(900_000_000, 1).patience(), PATIENCE_MAX);
    }
}
