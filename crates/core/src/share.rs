//! Fair division: free slots among the bands, queues and tenants that have work.
//!
//! Two questions, two answers. Within one claim, [`allot`] divides the slots by weight among those that
//! have work. From claim to claim, [`Turns`] remembers who has had least for its weight and lets it go
//! first, so that also a worker with a single free slot keeps to the weights. Of tenants there may be ten thousand:
//! they go round by name, and all that is remembered is [`Served`], who was last, and what is left of its turn.

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

/// All lanes of one queue weigh this much together, where there are several queues.
const QUEUE_WEIGHT: u64 = 1_000_000;

/// The weights of lanes of these queues, one queue for each weight, so that every queue weighs as much as any other,
/// whichever of its lanes have work. Those of a single queue stay as they are.
pub fn alike(queues: &[&str], weights: &[u32]) -> Vec<u32> {
    if queues.windows(2).all(|pair| pair[0] == pair[1]) {
        return weights.to_vec();
    }
    let mut sums: HashMap<&str, u64> = HashMap::new();
    for (queue, weight) in queues.iter().zip(weights) {
        *sums.entry(queue).or_default() += u64::from(*weight);
    }
    let of_queue = |(queue, weight): (&&str, &u32)| match sums[queue] {
        0 => 0,
        sum => (u64::from(*weight) * QUEUE_WEIGHT / sum) as u32,
    };
    queues.iter().zip(weights).map(of_queue).collect()
}

/// Divides slots by turns, each of as many as the weight, `left` of the first one's if that is not 0. Turns are whole
/// but for the last one; what is left of the slots when all have had as many goes round again.
pub fn turns(slots: usize, weights: &[u32], left: u32) -> Vec<usize> {
    let sum: usize = weights.iter().map(|weight| *weight as usize).sum();
    if left == 0 && slots >= sum {
        let rounds = slots / sum.max(1);
        return weights.iter().map(|weight| *weight as usize * rounds).collect();
    }
    let mut free = slots;
    let turn = |(at, weight): (usize, &u32)| {
        let turn = if at == 0 && left > 0 { left } else { *weight } as usize;
        let share = turn.min(free);
        free -= share;
        share
    };
    weights.iter().enumerate().map(turn).collect()
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

/// The tenant of a lane that was served last, and how many more jobs of it may start before it is the next one's turn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Served {
    tenant: String,
    left: u32,
}

impl Served {
    /// One whose turn is over.
    pub fn whole(tenant: impl Into<String>) -> Self {
        Self { tenant: tenant.into(), left: 0 }
    }

    /// So many jobs of this tenant, whose weight is this, were taken. As many as its weight are a turn.
    pub fn took(&mut self, tenant: &str, weight: u32, jobs: usize) {
        let weight = u64::from(weight.max(1));
        let mut jobs = jobs as u64;
        if self.tenant == tenant {
            let of_turn = jobs.min(u64::from(self.left));
            self.left -= of_turn as u32;
            jobs -= of_turn;
        } else {
            tenant.clone_into(&mut self.tenant);
            self.left = 0;
        }
        if jobs > 0 {
            self.left = ((weight - jobs % weight) % weight) as u32;
        }
    }

    /// How much of its turn this tenant has left, if it is the one whose turn it is.
    pub fn left_of(&self, tenant: &str) -> u32 {
        if self.tenant == tenant { self.left } else { 0 }
    }

    /// Who it is, and what is left of its turn.
    pub fn turn(&self) -> (&str, u32) {
        (&self.tenant, self.left)
    }

    /// Behind which name to go on: behind its own, or just before that while its turn lasts.
    pub fn behind(&self) -> String {
        let mut name = self.tenant.clone();
        if self.left > 0
            && let Some(last) = name.pop()
            && let Some(before) = ('\0'..last).next_back().filter(|before| *before != '\0')
        {
            name.push(before);
            name.push(char::MAX);
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_weigh_alike_whatever_lanes_have_work() {
        for (queues, weights, jobs, expected) in [
            (vec!["a", "b"], vec![448, 56], 10, vec![5, 5]),
            (vec!["a", "a", "b"], vec![448, 56, 56], 18, vec![8, 1, 9]),
            (vec!["a", "a"], vec![8, 1], 9, vec![8, 1]),
            (vec!["a", "b"], vec![0, 56], 10, vec![0, 10]),
            (vec![], vec![], 10, vec![]),
        ] {
            assert_eq!(allot(jobs, &alike(&queues, &weights)), expected, "{queues:?} {weights:?}");
        }
    }

    #[test]
    fn turns_are_whole_but_for_the_last() {
        for (slots, weights, left, expected) in [
            (10, vec![8, 1, 1], 0, vec![8, 1, 1]),
            (25, vec![8, 1, 1], 0, vec![16, 2, 2]),
            (2, vec![1, 8, 1], 0, vec![1, 1, 0]),
            (2, vec![8, 1, 1], 1, vec![1, 1, 0]),
            (12, vec![8, 1, 1], 3, vec![3, 1, 1]),
            (3, vec![1, 1], 0, vec![1, 1]),
            (0, vec![1], 0, vec![0]),
            (5, vec![], 0, vec![]),
        ] {
            assert_eq!(turns(slots, &weights, left), expected, "{slots} {weights:?} {left}");
        }
    }

    #[test]
    fn a_turn_lasts_for_as_many_jobs_as_the_weight() {
        let mut served = Served::whole("a");
        let mut places = Vec::new();
        for (tenant, weight, jobs) in
            [("b", 9, 3), ("b", 9, 5), ("b", 9, 1), ("a", 1, 1), ("b", 9, 9), ("a", 1, 4)]
        {
            served.took(tenant, weight, jobs);
            places.push((served.tenant.clone(), served.left));
        }
        let expected = [("b", 6), ("b", 1), ("b", 0), ("a", 0), ("b", 0), ("a", 0)];
        assert_eq!(places, expected.map(|(tenant, left)| (tenant.to_owned(), left)));
        served.took("b", 9, 12);
        assert_eq!(served.left, 6, "a turn and a third");
        served.took("b", 9, 8);
        assert_eq!(served.left, 7, "what was left, and two of the next");
    }

    #[test]
    fn while_its_turn_lasts_a_tenant_is_the_next_one() {
        let names = ["", "a", "ab", "b", "b\u{1}", "b\u{1}c", "bé", "c"];
        for tenant in names {
            let mut served = Served::whole("somebody");
            served.took(tenant, 1, 1);
            assert_eq!(served.behind(), tenant, "its turn is over");
            served.took(tenant, 2, 1);
            let behind = served.behind();
            let next = names.iter().find(|name| **name > behind.as_str());
            assert!(tenant.is_empty() || next == Some(&tenant), "{tenant:?} behind {behind:?}");
        }
    }

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
