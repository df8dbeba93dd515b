//! A gate as it is seen: what it remembers, who is inside, and what it says to a job.

use jiff::Timestamp;

use super::{Counts, QueueLimit, describe};
use crate::id::WorkerId;
use crate::why::Gate;

/// What a gate remembers, and who is inside.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GateView {
    /// Its name.
    pub name: String,
    /// Jobs inside, by worker.
    pub inside: Vec<(WorkerId, u64)>,
    /// When its rate has caught up.
    pub tat: Option<Timestamp>,
    /// Nobody passes before.
    pub shut_until: Option<Timestamp>,
    /// Whether it was shut because too much failed.
    pub is_broken: bool,
    /// How many gates are so: of a limit by tenant or key that is asked for as a whole, any number.
    pub broken: u64,
    /// Whether the probe that decides about that is out.
    pub is_probed: bool,
    /// Retries that are paid for.
    pub credit: Option<f64>,
    /// Jobs that are held at it, counted up to 100,000.
    pub held: u64,
}

impl GateView {
    /// What it says to a job that its limit means, unless it lets it pass.
    pub fn holds(&self, limit: &QueueLimit, now: Timestamp) -> Option<Gate> {
        let inside: u64 = self.inside.iter().map(|(_, jobs)| jobs).sum();
        let next_cell = limit
            .rate
            .zip(self.tat)
            .and_then(|(rate, tat)| tat.checked_sub(rate.after(u64::from(rate.burst) - 1)).ok());
        let opens_at = self.shut_until.into_iter().chain(next_cell).max().filter(|at| *at > now);
        let is_full = limit.concurrency.is_some_and(|most| inside >= u64::from(most));
        let is_unpaid = matches!(limit.counts, Counts::Retry { .. })
            && self.credit.is_some_and(|credit| credit < 1.0);
        let is_probed = self.is_probed && limit.breaker.is_some();
        let is_shut = is_full || is_unpaid || is_probed || opens_at.is_some();
        is_shut.then(|| Gate::Limit {
            limit: describe(&self.name),
            inside,
            most: limit.concurrency,
            workers: self.inside.iter().map(|(worker, _)| *worker).collect(),
            is_broken: self.is_broken,
            opens_at,
        })
    }

    /// When a job starts that so many go before at this gate, if only the clock is in their way.
    pub fn starts_at(&self, limit: &QueueLimit, ahead: u64) -> Option<Timestamp> {
        let shut = self.shut_until;
        let Some((rate, tat)) = limit.rate.zip(self.tat) else {
            return shut.filter(|_| ahead == 0);
        };
        let first = tat.max(shut.unwrap_or(tat)).checked_sub(rate.after(u64::from(rate.burst) - 1));
        let at = first.and_then(|first| first.checked_add(rate.after(ahead))).ok()?;
        Some(at.max(shut.unwrap_or(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rate;
    use super::super::tests::limit;
    use super::*;

    #[test]
    fn a_start_is_expected_by_what_goes_before() {
        let at = |ms: i64| Timestamp::from_millisecond(ms).unwrap();
        let rated =
            |burst| QueueLimit { rate: Some(Rate { jobs: 10, per_ms: 1000, burst }), ..limit() };
        let gate = |tat, shut_until| GateView { tat, shut_until, ..GateView::default() };
        for (burst, tat, shut, ahead, expected) in [
            (1, Some(at(5000)), None, 0, Some(at(5000))),
            (1, Some(at(5000)), None, 7, Some(at(5700))),
            (3, Some(at(5000)), None, 0, Some(at(4800))),
            (3, Some(at(5000)), None, 2, Some(at(5000))),
            (3, Some(at(5000)), Some(at(9000)), 2, Some(at(9000))),
            (3, Some(at(5000)), Some(at(9000)), 3, Some(at(9100))),
            (1, None, Some(at(9000)), 0, Some(at(9000))),
            (1, None, Some(at(9000)), 1, None),
        ] {
            let found = gate(tat, shut).starts_at(&rated(burst), ahead);
            assert_eq!(found, expected, "burst {burst}, {tat:?} {shut:?} {ahead}");
        }
    }
}
