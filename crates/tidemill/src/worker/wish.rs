//! What a group of slots asks for: its queues by their rules, those first that have had least.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tidemill_core::queue::{is_pattern, matches};
use tidemill_core::share::Turns;
use tidemill_core::{BandWeights, Priority, QueueLimit};
use tidemill_store::{Claim, Lane, Share};

use crate::engine::rules::Known;

/// Bands of one queue share this much, so that every queue has the same, whatever its weights.
const QUEUE_WEIGHT: u32 = 840;

/// The lanes of the next claim, with their weights.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Lanes {
    pub(crate) lanes: Vec<Lane>,
    weights: Vec<u32>,
}

impl Lanes {
    /// The lanes of these queues and patterns that may be served, by who has had least.
    pub(crate) fn of(queues: &[String], known: &Known, turns: &Turns<Lane>) -> Self {
        let mut lanes: Vec<(f64, Lane, u32)> = Vec::new();
        for queue in names(queues, known) {
            if known.book.paused_by(queue).is_some() {
                continue;
            }
            let weights = known.book.of(queue).map(|rules| rules.weights).unwrap_or_default();
            for priority in Priority::ALL {
                let lane = Lane { queue: queue.to_owned(), priority };
                let weight = of_queue(&weights, priority);
                // What is only served when nothing else waits comes last.
                let had = if weight == 0 { f64::INFINITY } else { turns.had(&lane) };
                lanes.push((had, lane, weight));
            }
        }
        lanes.sort_by(|(one, a, _), (other, b, _)| {
            one.total_cmp(other).then(a.priority.band().cmp(&b.priority.band()))
        });
        let (lanes, weights) = lanes.into_iter().map(|(_, lane, weight)| (lane, weight)).unzip();
        Self { lanes, weights }
    }

    /// How they share a claim.
    pub(crate) fn share(&self, known: &Known) -> Share {
        Share { weights: self.weights.clone(), tenants: known.tenants.clone() }
    }

    /// The limits of their queues.
    pub(crate) fn limits(&self, known: &Known) -> Arc<Vec<QueueLimit>> {
        if !known.book.has_limits() {
            return Arc::default();
        }
        let queues: BTreeSet<&str> = self.lanes.iter().map(|lane| lane.queue.as_str()).collect();
        let mut limits: Vec<_> =
            queues.into_iter().flat_map(|queue| known.book.limits(queue)).collect();
        limits.sort_by_key(QueueLimit::order);
        Arc::new(limits)
    }

    /// Remembers who got what.
    pub(crate) fn took(&self, claim: &Claim, turns: &mut Turns<Lane>) {
        let mut jobs: HashMap<(&str, Priority), usize> = HashMap::new();
        for taken in &claim.jobs {
            *jobs.entry((&taken.job.queue, taken.job.priority)).or_default() += 1;
        }
        let number = |lane: &Lane| jobs.get(&(&*lane.queue, lane.priority)).copied().unwrap_or(0);
        let all = self.lanes.iter().zip(&self.weights);
        turns.got(all.map(|(lane, weight)| (lane.clone(), *weight, number(lane))));
    }
}

/// The queues that are meant, each once.
fn names<'a>(queues: &'a [String], known: &'a Known) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for queue in queues {
        let found = known.names.iter().filter(|name| is_pattern(queue) && matches(queue, name));
        let own = (!is_pattern(queue)).then_some(queue);
        for name in own.into_iter().chain(found) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    names
}

fn of_queue(weights: &BandWeights, band: Priority) -> u32 {
    let sum: u32 = Priority::ALL.map(|band| weights.of(band)).iter().sum();
    match weights.of(band) {
        0 => 0,
        weight => (weight * QUEUE_WEIGHT / sum.max(1)).max(1),
    }
}

#[cfg(test)]
mod tests {
    use tidemill_core::{Edition, QueueRules, RuleBook};

    use super::*;

    fn known(rules: Vec<(&str, QueueRules)>, names: &[&str]) -> Known {
        Known {
            book: RuleBook::new(
                Edition::default(),
                rules.into_iter().map(|(name, rules)| (name.to_owned(), rules)),
            ),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Known::default()
        }
    }

    fn queues(lanes: &Lanes) -> Vec<&str> {
        let mut queues: Vec<&str> = lanes.lanes.iter().map(|lane| &*lane.queue).collect();
        queues.sort_unstable();
        queues.dedup();
        queues
    }

    #[test]
    fn patterns_mean_the_queues_that_are_there_and_paused_ones_are_left_out() {
        let paused = QueueRules { paused: true, ..QueueRules::default() };
        let known = known(vec![("mail:b*", paused)], &["mail:a", "mail:bulk", "other"]);
        let asked = ["mail:*".to_owned(), "mail:a".to_owned(), "unseen".to_owned()];
        let lanes = Lanes::of(&asked, &known, &Turns::default());
        assert_eq!(queues(&lanes), ["mail:a", "unseen"]);
        assert_eq!(lanes.lanes.len(), 8, "each band of each, once");
    }

    #[test]
    fn urgent_work_goes_first_until_others_have_had_less() {
        let (known, mut turns) = (known(vec![], &[]), Turns::default());
        let asked = ["q".to_owned()];
        let first = |turns: &Turns<Lane>| Lanes::of(&asked, &known, turns).lanes[0].clone();
        assert_eq!(first(&turns).priority, Priority::Urgent);
        let urgent = first(&turns);
        turns.got([(urgent.clone(), 448, 1)]);
        assert_eq!(first(&turns).priority, Priority::High);
    }

    #[test]
    fn a_band_without_weight_comes_last() {
        let weights = BandWeights { urgent: 0, ..BandWeights::default() };
        let rules = QueueRules { weights, ..QueueRules::default() };
        let lanes =
            Lanes::of(&["q".to_owned()], &known(vec![("q", rules)], &[]), &Turns::default());
        assert_eq!(lanes.lanes.last().map(|lane| lane.priority), Some(Priority::Urgent));
        assert_eq!(lanes.weights, [480, 240, 120, 0]);
    }
}
