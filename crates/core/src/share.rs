//! Fair division: free slots among the bands, queues and tenants that have work.
//!
//! Two questions, two answers. Within one claim, [`allot`] divides the slots by weight among those that
//! have work. From claim to claim, [`Turns`] remembers who has had least for its weight and lets it go
//! first, so that also a worker with a single free slot keeps to the weights.

use std::collections::HashMap;
use std::hash::Hash;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::job::Priority;

/// The largest weight: beyond it a share is as good as everything.
pub const WEIGHT_MAX: u32 = 1000;

/// How much of the work each band gets while all have some. A band of weight 0 gets what is left.
///
/// A band of weight `w` gets `w` of every `W` starts, where `W` is the sum of the weights: by default the
/// oldest `low` job of a worker with one slot starts after at most 15 others, however many urgent ones
/// come. With more slots, what is taken at once comes on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BandWeights {
    /// Of `urgent`; 8.
    pub urgent: u32,
    /// Of `high`; 4.
    pub high: u32,
    /// Of `normal`; 2.
    pub normal: u32,
    /// Of `low`; 1.
    pub low: u32,
}

impl Default for BandWeights {
    fn default() -> Self {
        Self { urgent: 8, high: 4, normal: 2, low: 1 }
    }
}

impl BandWeights {
    /// The weight of a band.
    pub fn of(&self, band: Priority) -> u32 {
        match band {
            Priority::Urgent => self.urgent,
            Priority::High => self.high,
            Priority::Normal => self.normal,
            Priority::Low => self.low,
        }
    }

    /// Refuses weights that are too large, or all zero.
    pub fn check(&self) -> Result<()> {
        let all = Priority::ALL.map(|band| self.of(band));
        if let Some(&weight) = all.iter().find(|weight| **weight > WEIGHT_MAX) {
            return Err(Error::RuleInvalid {
                rule: "band weights",
                reason: format!("{weight} is more than {WEIGHT_MAX}"),
            });
        }
        if all.iter().all(|weight| *weight == 0) {
            return Err(Error::RuleInvalid {
                rule: "band weights",
                reason: "all are zero, so no band would be served; give one at least 1".into(),
            });
        }
        Ok(())
    }
}

/// Divides slots by weight. What cannot be divided goes, one by one, to the first ones. A weight of 0
/// gets nothing, unless all have it.
pub fn allot(slots: usize, weights: &[u32]) -> Vec<usize> {
    let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    let fair = |weight: u32| match sum {
        0 => slots / weights.len().max(1),
        _ => (slots as u64 * u64::from(weight) / sum) as usize,
    };
    let mut shares: Vec<usize> = weights.iter().map(|weight| fair(*weight)).collect();
    let mut left = slots - shares.iter().sum::<usize>();
    for (share, weight) in shares.iter_mut().zip(weights) {
        if left > 0 && (*weight > 0 || sum == 0) {
            *share += 1;
            left -= 1;
        }
    }
    shares
}

/// Who has had how much for its weight.
///
/// Somebody who had no work meanwhile has not saved anything up: it goes on where the others are.
#[derive(Debug)]
pub struct Turns<K> {
    now: f64,
    had: HashMap<K, f64>,
}

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self { now: 0.0, had: HashMap::new() }
    }
}

impl<K: Eq + Hash + Clone> Turns<K> {
    /// How much one has had, for comparing: least goes first.
    pub fn had(&self, one: &K) -> f64 {
        self.had.get(one).copied().unwrap_or(0.0).max(self.now)
    }

    /// Remembers who got how many in one claim, by weight.
    pub fn got(&mut self, all: impl IntoIterator<Item = (K, u32, usize)>) {
        let mut least = f64::INFINITY;
        let now = self.now;
        // Everybody who is not here is as if it had had `now`, and need not be remembered.
        self.had.retain(|_, had| *had > now);
        for (one, weight, jobs) in all.into_iter().filter(|(_, _, jobs)| *jobs > 0) {
            let had = self.had(&one);
            least = least.min(had);
            self.had.insert(one, had + jobs as f64 / f64::from(weight.max(1)));
        }
        if least.is_finite() {
            self.now = self.now.max(least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_divided_by_weight_and_the_rest_in_order() {
        for (slots, weights, expected) in [
            (15, vec![8, 4, 2, 1], vec![8, 4, 2, 1]),
            (1, vec![8, 1], vec![1, 0]),
            (3, vec![1, 1], vec![2, 1]),
            (4, vec![0, 1], vec![0, 4]),
            (3, vec![0, 0], vec![2, 1]),
            (0, vec![1], vec![0]),
            (500, vec![8, 4, 2, 1], vec![267, 134, 66, 33]),
        ] {
            assert_eq!(allot(slots, &weights), expected, "{slots} {weights:?}");
        }
    }

    /// Serves single slots while these bands have work; answers who was served.
    fn serve(turns: &mut Turns<Priority>, bands: &[Priority], slots: usize) -> Vec<Priority> {
        let weights = BandWeights::default();
        let mut served = Vec::new();
        for _ in 0..slots {
            let first = |a: &&Priority, b: &&Priority| turns.had(a).total_cmp(&turns.had(b));
            let next = *bands.iter().min_by(first).unwrap();
            turns.got([(next, weights.of(next), 1)]);
            served.push(next);
        }
        served
    }

    #[test]
    fn a_band_gets_its_part_of_every_fifteen_starts() {
        let served = serve(&mut Turns::default(), &Priority::ALL, 1500);
        let of = |part: &[Priority], band| part.iter().filter(|served| **served == band).count();
        for part in served.windows(16) {
            assert!(of(part, Priority::Low) >= 1, "{part:?}");
        }
        for (band, expected) in Priority::ALL.into_iter().zip([800, 400, 200, 100]) {
            assert!(of(&served, band).abs_diff(expected) <= 8, "{band:?} {}", of(&served, band));
        }
    }

    #[test]
    fn nobody_saves_up_turns_while_it_has_no_work() {
        let mut turns = Turns::default();
        serve(&mut turns, &[Priority::Urgent], 10_000);
        let served = serve(&mut turns, &[Priority::Urgent, Priority::Low], 90);
        let low = served.iter().filter(|band| **band == Priority::Low).count();
        assert!((9..=12).contains(&low), "{low} of 90");
    }

    #[test]
    fn weights_of_zero_everywhere_are_refused() {
        let none = BandWeights { urgent: 0, high: 0, normal: 0, low: 0 };
        assert_eq!(none.check().unwrap_err().code(), "rule_invalid");
        let large = BandWeights { low: WEIGHT_MAX + 1, ..BandWeights::default() };
        assert_eq!(large.check().unwrap_err().code(), "rule_invalid");
        assert!(BandWeights { low: 0, ..BandWeights::default() }.check().is_ok());
    }
}
