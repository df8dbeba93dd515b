//! What a group of slots asks for: its queues by their rules, those first that have had least.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tidemill_core::queue::{is_pattern, takes};
use tidemill_core::share::Turns;
use tidemill_core::{BandWeights, Priority, QueueLimit};
use tidemill_store::{Claim, Lane, Share};

use crate::engine::rules::Known;

/// Bands of one queue share this much, so that every queue has the same, whatever its weights.
const QUEUE_WEIGHT: u32 = 840;

/// Who has had how much: queues alike, whatever bands their jobs are in, and the bands of each by weight.
#[derive(Debug, Default)]
pub(crate) struct Had {
    queues: Turns<String>,
    bands: HashMap<String, Turns<Priority>>,
}

/// The lanes of the next claim, with their weights.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Lanes {
    pub(crate) lanes: Vec<Lane>,
    weights: Vec<u32>,
}

impl Lanes {
    /// The lanes of these queues and patterns that may be served: those of the queue that has had least come first, and
    /// of these the band that has.
    pub(crate) fn of(queues: &[String], known: &Known, all: &Had) -> Self {
        let mut lanes: Vec<(f64, f64, Lane, u32)> = Vec::new();
        for queue in names(queues, known) {
            if known.book.paused_by(queue).is_some() {
                continue;
            }
            let weights = known.book.of(queue).map(|rules| rules.weights).unwrap_or_default();
            let of_queue_had = all.queues.had(&queue.to_owned());
            let bands = all.bands.get(queue);
            for priority in Priority::ALL {
                let lane = Lane { queue: queue.to_owned(), priority };
                let weight = of_queue(&weights, priority);
                // What is only served when nothing else waits comes last.
                let had = if weight == 0 { f64::INFINITY } else { of_queue_had };
                lanes.push((had, bands.map_or(0.0, |bands| bands.had(&priority)), lane, weight));
            }
        }
        // Queues that have had as much begin with what is most urgent in any.
        lanes.sort_by(|(one, band, a, _), (other, other_band, b, _)| {
            let by_band = || a.priority.band().cmp(&b.priority.band());
            one.total_cmp(other).then(band.total_cmp(other_band)).then_with(by_band)
        });
        let lanes = lanes.into_iter().map(|(_, _, lane, weight)| (lane, weight));
        let (lanes, weights) = lanes.unzip();
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
    pub(crate) fn took(&self, claim: &Claim, all: &mut Had) {
        let mut jobs: HashMap<(&str, Priority), usize> = HashMap::new();
        for taken in &claim.jobs {
            *jobs.entry((&taken.job.queue, taken.job.priority)).or_default() += 1;
        }
        let mut queues: HashMap<&str, usize> = HashMap::new();
        for ((queue, _), number) in &jobs {
            *queues.entry(queue).or_default() += number;
        }
        for queue in queues.keys() {
            let of_queue = self.lanes.iter().zip(&self.weights);
            let of_queue = of_queue.filter(|(lane, _)| lane.queue == **queue);
            let number = |band| jobs.get(&(*queue, band)).copied().unwrap_or(0);
            let got =
                of_queue.map(|(lane, weight)| (lane.priority, *weight, number(lane.priority)));
            all.bands.entry((*queue).to_owned()).or_default().got(got);
        }
        all.queues.got(queues.into_iter().map(|(queue, number)| (queue.to_owned(), 1, number)));
        if all.bands.len() > self.lanes.len() {
            all.bands.retain(|queue, _| self.lanes.iter().any(|lane| lane.queue == *queue));
        }
    }
}

/// The queues that are meant, each once.
fn names<'a>(queues: &'a [String], known: &'a Known) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for queue in queues {
        let found = known.names.iter().filter(|name| is_pattern(queue) && takes(queue, name));
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
        let lanes = Lanes::of(&asked, &known, &Had::default());
        assert_eq!(queues(&lanes), ["mail:a", "unseen"]);
        assert_eq!(lanes.lanes.len(), 8, "each band of each, once");
    }

    #[test]
    fn urgent_work_goes_first_until_others_have_had_less() {
        let (known, mut had) = (known(vec![], &[]), Had::default());
        let asked = ["q".to_owned()];
        let first = |had: &Had| Lanes::of(&asked, &known, had).lanes[0].priority;
        assert_eq!(first(&had), Priority::Urgent);
        had.queues.got([("q".to_owned(), 1, 1)]);
        had.bands.entry("q".to_owned()).or_default().got([(Priority::Urgent, 448, 1)]);
        assert_eq!(first(&had), Priority::High);
    }

    #[test]
    fn queues_take_turns_whatever_their_bands() {
        let (known, mut had) = (known(vec![], &[]), Had::default());
        let asked = ["a".to_owned(), "b".to_owned()];
        let order = |had: &Had| {
            let lanes = Lanes::of(&asked, &known, had).lanes;
            lanes.into_iter().map(|lane| (lane.queue, lane.priority)).collect::<Vec<_>>()
        };
        let first = order(&had);
        assert!(first[..2].iter().all(|(_, band)| *band == Priority::Urgent), "{first:?}");
        had.queues.got([("a".to_owned(), 1, 1)]);
        had.bands.entry("a".to_owned()).or_default().got([(Priority::Urgent, 448, 1)]);
        let then = order(&had);
        assert!(then[..4].iter().all(|(queue, _)| queue == "b"), "all of it goes first: {then:?}");
    }

    #[test]
    fn a_band_without_weight_comes_last() {
        let weights = BandWeights { urgent: 0, ..BandWeights::default() };
        let rules = QueueRules { weights, ..QueueRules::default() };
        let lanes = Lanes::of(&["q".to_owned()], &known(vec![("q", rules)], &[]), &Had::default());
        assert_eq!(lanes.lanes.last().map(|lane| lane.priority), Some(Priority::Urgent));
        assert_eq!(lanes.weights, [480, 240, 120, 0]);
    }
}
