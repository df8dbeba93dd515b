//! What is measured of the jobs of one queue and kind, for as many of them as there is room.
//!
//! Names of queues and kinds come from outside, so their number is bounded: those that come when there is no room any
//! more share one series, `other`. A series that is found is held, not looked up again.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use tidemill_core::Settlement;
use tidemill_core::measure::{Count, Histogram, TIMES_US};
use tidemill_store::Settled;

/// Pairs of a queue and a kind that have series of their own.
pub const SERIES_MAX: usize = 200;
/// The queue and the kind of those that have none.
pub const OTHER: &str = "other";

/// What is measured of jobs of one queue and kind.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) enqueued: Count,
    pub(crate) duplicates: Count,
    pub(crate) refused: Count,
    pub(crate) claimed: Count,
    pub(crate) done: Count,
    /// Attempts that failed, whether they are tried again or not.
    pub(crate) failed: Count,
    pub(crate) retried: Count,
    /// Put off, given back, or waiting for something: no failure.
    pub(crate) put_off: Count,
    pub(crate) dead: Count,
    pub(crate) cancelled: Count,
    /// Settles that were refused, for the lease was lost.
    pub(crate) stale: Count,
    /// From when a job could start to when it did, in microseconds.
    pub(crate) starts: Histogram,
    /// How long attempts ran, in microseconds.
    pub(crate) runs: Histogram,
}

impl Default for Series {
    fn default() -> Self {
        Self {
            enqueued: Count::default(),
            duplicates: Count::default(),
            refused: Count::default(),
            claimed: Count::default(),
            done: Count::default(),
            failed: Count::default(),
            retried: Count::default(),
            put_off: Count::default(),
            dead: Count::default(),
            cancelled: Count::default(),
            stale: Count::default(),
            starts: Histogram::new(TIMES_US),
            runs: Histogram::new(TIMES_US),
        }
    }
}

impl Series {
    /// An attempt was settled so, and this was answered.
    pub(crate) fn settled(&self, answer: Settled, settlement: &Settlement) {
        match (answer, settlement) {
            (Settled::Stale, _) => self.stale.add(1),
            (Settled::Cancelled, _) | (_, Settlement::Cancelled { .. }) => self.cancelled.add(1),
            (Settled::Accepted, Settlement::Done { .. }) => self.done.add(1),
            (Settled::Accepted, Settlement::Again { failure: Some(_), .. }) => {
                self.failed.add(1);
                self.retried.add(1);
            }
            (Settled::Accepted, Settlement::Again { .. } | Settlement::Wait(_)) => {
                self.put_off.add(1);
            }
            (Settled::Accepted, Settlement::Dead { .. }) => {
                self.failed.add(1);
                self.dead.add(1);
            }
        }
    }
}

type Map = HashMap<String, HashMap<String, Arc<Series>>>;

/// All series, by queue and kind.
#[derive(Debug, Default)]
pub(crate) struct AllSeries(RwLock<Held>);

#[derive(Debug, Default)]
struct Held {
    map: Map,
    pairs: usize,
    other: Option<Arc<Series>>,
}

impl Held {
    fn find(&self, queue: &str, kind: &str) -> Option<Arc<Series>> {
        let own = self.map.get(queue).and_then(|kinds| kinds.get(kind));
        own.or(self.other.as_ref()).cloned()
    }
}

impl AllSeries {
    /// The series of this queue and kind.
    pub(crate) fn of(&self, queue: &str, kind: &str) -> Arc<Series> {
        let found = self.0.read().unwrap_or_else(PoisonError::into_inner).find(queue, kind);
        found.unwrap_or_else(|| self.add(queue, kind))
    }

    fn add(&self, queue: &str, kind: &str) -> Arc<Series> {
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = held.find(queue, kind) {
            return found;
        }
        let new = Arc::<Series>::default();
        let is_full = held.pairs >= SERIES_MAX;
        let (queue, kind) = if is_full { (OTHER, OTHER) } else { (queue, kind) };
        let kinds = held.map.entry(queue.to_owned()).or_default();
        let series = Arc::clone(kinds.entry(kind.to_owned()).or_insert(new));
        held.pairs += 1;
        if is_full {
            held.other = Some(Arc::clone(&series));
        }
        series
    }

    /// The series of jobs, of which those that are alike and stand together are looked up once.
    pub(crate) fn sorts<'a>(&self, jobs: impl Iterator<Item = (&'a str, &'a str)>) -> Sorts {
        let mut sorts = Vec::new();
        let mut last = None;
        for job in jobs {
            match sorts.last_mut() {
                Some((_, jobs)) if last == Some(job) => *jobs += 1,
                _ => sorts.push((self.of(job.0, job.1), 1)),
            }
            last = Some(job);
        }
        Sorts(sorts)
    }

    /// All of them, by queue and kind, in order.
    pub(crate) fn all(&self) -> Vec<(String, String, Arc<Series>)> {
        let held = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = held
            .map
            .iter()
            .flat_map(|(queue, kinds)| kinds.iter().map(move |kind| (queue, kind)))
            .map(|(queue, (kind, series))| (queue.clone(), kind.clone(), Arc::clone(series)))
            .collect();
        all.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
        all
    }
}

/// The series of a batch: how many jobs of each stand together.
#[derive(Debug)]
pub(crate) struct Sorts(Vec<(Arc<Series>, usize)>);

impl Sorts {
    /// What belongs to the jobs, in pieces of one series.
    pub(crate) fn parts<'a, T>(
        &'a self,
        mut of_jobs: &'a [T],
    ) -> impl Iterator<Item = (&'a Series, &'a [T])> {
        self.0.iter().map(move |(series, jobs)| {
            let (part, rest) = of_jobs.split_at((*jobs).min(of_jobs.len()));
            of_jobs = rest;
            (&**series, part)
        })
    }

    /// The series of each job.
    pub(crate) fn each(&self) -> impl Iterator<Item = &Arc<Series>> {
        self.0.iter().flat_map(|(series, jobs)| std::iter::repeat_n(series, *jobs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_bound_share_one_series() {
        let all = AllSeries::default();
        for n in 0..SERIES_MAX {
            all.of("q", &format!("kind-{n}")).done.add(1);
        }
        for n in 0..10_000 {
            all.of(&format!("queue-{n}"), "k").done.add(1);
        }
        all.of("q", "kind-7").done.add(1);
        let series = all.all();
        assert_eq!(series.len(), SERIES_MAX + 1);
        let of = |queue: &str, kind: &str| {
            series.iter().find(|(q, k, _)| q == queue && k == kind).map(|(.., s)| s.done.read())
        };
        assert_eq!((of(OTHER, OTHER), of("q", "kind-7")), (Some(10_000), Some(2)));
    }

    #[test]
    fn a_queue_that_is_called_other_is_no_second_other() {
        let all = AllSeries::default();
        all.of(OTHER, OTHER).done.add(1);
        (0..=SERIES_MAX).for_each(|n| all.of("q", &n.to_string()).done.add(1));
        let others = all.all().into_iter().filter(|(queue, ..)| queue == OTHER);
        assert_eq!(others.map(|(.., series)| series.done.read()).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_batch_finds_its_series_in_pieces() {
        let all = AllSeries::default();
        let sorts = all.sorts([("q", "a"), ("q", "a"), ("q", "b"), ("q", "a")].into_iter());
        let parts: Vec<_> = sorts.parts(&[1, 2, 3, 4]).map(|(_, part)| part.to_vec()).collect();
        assert_eq!(parts, [vec![1, 2], vec![3], vec![4]]);
        assert_eq!(sorts.each().count(), 4);
        assert_eq!(all.all().len(), 2);
    }
}
