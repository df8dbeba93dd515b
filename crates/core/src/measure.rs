//! Measuring: counts and histograms that cost a few additions, and pages of them for Prometheus.
//!
//! Whoever measures holds the very thing it adds to; nothing is looked up by name, locked or allocated. Units are
//! whole numbers (microseconds, jobs) and become base units only when a page is written.

pub mod page;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Bounds for times, in microseconds: from a millisecond to an hour.
pub const TIMES_US: &[u64] = &[
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    3_600_000_000,
];
/// Bounds for short times, in microseconds: from ten microseconds to a second.
pub const SHORT_TIMES_US: &[u64] = &[
    10, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000,
];
/// Bounds for how many go together.
pub const SIZES: &[u64] = &[1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000];

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// So many more.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// How many there were.
    pub fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// How often values were how large.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One for each bound, and one for what is larger than all.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// An empty one with these bounds, which grow.
    pub fn new(bounds: &'static [u64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, sum: AtomicU64::new(0) }
    }

    /// A value was seen.
    pub fn see(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Relaxed);
        }
        self.sum.fetch_add(value, Relaxed);
    }

    /// A time was seen, in a histogram of microseconds.
    pub fn see_time(&self, time: Duration) {
        self.see(time.as_micros() as u64);
    }

    /// What was seen until now.
    pub fn read(&self) -> Seen {
        Seen {
            bounds: self.bounds,
            counts: self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect(),
            sum: self.sum.load(Relaxed),
        }
    }
}

/// What a histogram has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The bounds.
    pub bounds: &'static [u64],
    /// How many were at most as large as each bound and larger than the one before; the last: larger than all.
    pub counts: Vec<u64>,
    /// All values together.
    pub sum: u64,
}

impl Seen {
    /// How many values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// What was seen since this, which is an earlier look at the same histogram.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let counts = self.counts.iter().zip(&before.counts).map(|(now, then)| now - then.min(now));
        let counts = counts.collect();
        Self { bounds: self.bounds, counts, sum: self.sum.saturating_sub(before.sum) }
    }

    /// A bound that this share of all values does not exceed; `None` when nothing was seen, or it lies beyond all.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let wanted = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut below = 0;
        let mut buckets = self.bounds.iter().zip(&self.counts);
        buckets.find_map(|(bound, count)| {
            below += count;
            (below >= wanted).then_some(*bound)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_under_the_first_bound_that_it_does_not_exceed() {
        let histogram = Histogram::new(SIZES);
        for value in [0, 1, 2, 3, 5, 6, 10_000, 10_001, 999_999] {
            histogram.see(value);
        }
        let seen = histogram.read();
        assert_eq!(seen.counts, [2, 1, 2, 1, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!((seen.count(), seen.sum), (9, 1_020_017));
    }

    #[test]
    fn a_share_of_values_lies_below_a_bound() {
        let histogram = Histogram::new(SIZES);
        assert_eq!(histogram.read().quantile(0.5), None);
        (0..100).for_each(|value| histogram.see(value));
        let seen = histogram.read();
        assert_eq!((seen.quantile(0.0), seen.quantile(0.5)), (Some(1), Some(50)));
        assert_eq!((seen.quantile(0.95), seen.quantile(1.0)), (Some(100), Some(100)));
        histogram.see(20_000);
        assert_eq!(histogram.read().quantile(1.0), None, "beyond all bounds");
    }

    #[test]
    fn what_was_seen_since_leaves_out_what_was_seen_before() {
        let histogram = Histogram::new(SIZES);
        histogram.see(7);
        let before = histogram.read();
        histogram.see(100);
        let since = histogram.read().since(&before);
        assert_eq!((since.count(), since.sum, since.quantile(0.5)), (1, 100, Some(100)));
    }
}
