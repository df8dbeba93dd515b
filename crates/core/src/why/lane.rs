//! Whose turn it is: what stands before a job in its queue, and what bands and tenants make of that.
//!
//! Counts are bounded, because people ask while a million jobs wait: beyond the bound they say so.

use std::collections::BTreeMap;

use crate::job::Priority;
use crate::share::BandWeights;
use crate::why::Gate;

/// Jobs are counted up to this number.
pub const COUNTED_MAX: u64 = 10_000;
/// Tenants are looked at up to this number.
pub const TENANTS_MAX: usize = 1000;

/// What is before a job that is due, in its queue. Jobs that are held at gates are in nobody's way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaneView {
    /// Jobs of its own band that have been due longer, whosever they are.
    pub ahead: u64,
    /// Those of them that are its own tenant's.
    pub ahead_of_tenant: u64,
    /// Jobs that its gate holds and will let through before it; [`COUNTED_MAX`], if those of other queues are
    /// held there, too.
    pub ahead_at_gate: u64,
    /// Jobs that are due, by band; its own band is not among them.
    pub others: BTreeMap<Priority, u64>,
    /// The tenants of its band that have something due, in turn, beginning with whom the process that was
    /// asked would serve next. '' is who has none.
    pub turns: Vec<String>,
}

impl LaneView {
    /// How its band shares the work with others, unless the job is the first of those that come before all.
    pub fn band(&self, band: Priority, weights: &BandWeights) -> Option<Gate> {
        let own = weights.of(band);
        let due = || self.others.iter().filter(|(_, jobs)| **jobs > 0);
        // A band of weight 0 is served when nothing else waits.
        let goes_before = |other: Priority| match (own, weights.of(other)) {
            (0, 1..) => true,
            (1.., 0) => false,
            _ => other.band() < band.band(),
        };
        let higher = due().filter(|(other, _)| goes_before(**other)).map(|(_, jobs)| jobs).sum();
        let gate = Gate::Band {
            band,
            weight: own,
            weights: own + due().map(|(other, _)| weights.of(*other)).sum::<u32>(),
            higher,
            equal: self.ahead,
        };
        (higher > 0 || self.ahead > 0).then_some(gate)
    }

    /// How its tenant shares the work of its band with others, if there are any.
    pub fn tenant(&self, tenant: &str, weights: &BTreeMap<String, u32>) -> Option<Gate> {
        let weight = |name: &str| weights.get(name).copied().unwrap_or(1);
        let others = || self.turns.iter().filter(|other| *other != tenant);
        let before = self.turns.iter().position(|other| other == tenant);
        let gate = Gate::Tenant {
            tenant: (!tenant.is_empty()).then(|| tenant.to_owned()),
            weight: weight(tenant),
            weights: weight(tenant) + others().map(|other| weight(other)).sum::<u32>(),
            place: before.unwrap_or(self.turns.len()) as u64 + 1,
            tenants: others().count() as u64 + 1,
            ahead: self.ahead_of_tenant,
        };
        others().next().is_some().then_some(gate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(ahead: u64, others: &[(Priority, u64)]) -> LaneView {
        LaneView { ahead, others: others.iter().copied().collect(), ..LaneView::default() }
    }

    fn weights(text: [u32; 4]) -> BandWeights {
        let [urgent, high, normal, low] = text;
        BandWeights { urgent, high, normal, low }
    }

    fn band(lane: &LaneView, band: Priority, of: [u32; 4]) -> Option<(u32, u32, u64, u64)> {
        match lane.band(band, &weights(of))? {
            Gate::Band { weight, weights, higher, equal, .. } => {
                Some((weight, weights, higher, equal))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_band_shares_with_those_that_have_work() {
        use Priority::{High, Low, Normal, Urgent};
        let usual = [8, 4, 2, 1];
        for (ahead, others, own, of, expected) in [
            (0, vec![], Normal, usual, None),
            (3, vec![], Normal, usual, Some((2, 2, 0, 3))),
            (0, vec![(Urgent, 9)], Low, usual, Some((1, 9, 9, 0))),
            (1, vec![(Urgent, 9), (High, 2), (Normal, 0)], Low, usual, Some((1, 13, 11, 1))),
            (0, vec![(Low, 9)], Normal, usual, None),
            (2, vec![(Low, 9)], Normal, usual, Some((2, 3, 0, 2))),
            (0, vec![(Low, 9)], Normal, [1, 1, 0, 1], Some((0, 1, 9, 0))),
            (0, vec![(Urgent, 9)], Normal, [0, 1, 1, 1], None),
            (0, vec![(Urgent, 9)], Normal, [0, 1, 0, 1], Some((0, 0, 9, 0))),
        ] {
            let found = band(&lane(ahead, &others), own, of);
            assert_eq!(found, expected, "{ahead} {others:?} {own:?} {of:?}");
        }
    }

    #[test]
    fn a_tenant_has_its_share_and_its_place_in_turn() {
        let turns = |names: &[&str]| LaneView {
            ahead_of_tenant: 4,
            turns: names.iter().map(|name| (*name).to_owned()).collect(),
            ..LaneView::default()
        };
        let heavy = BTreeMap::from([("b".to_owned(), 3)]);
        assert_eq!(turns(&["b"]).tenant("b", &heavy), None, "it is alone");
        assert_eq!(turns(&[]).tenant("", &heavy), None);
        let gate = |tenant: Option<&str>, weight, weights, place, tenants| Gate::Tenant {
            tenant: tenant.map(str::to_owned),
            weight,
            weights,
            place,
            tenants,
            ahead: 4,
        };
        let three = turns(&["c", "", "b"]);
        assert_eq!(three.tenant("b", &heavy), Some(gate(Some("b"), 3, 5, 3, 3)));
        assert_eq!(three.tenant("", &heavy), Some(gate(None, 1, 5, 2, 3)));
        assert_eq!(three.tenant("z", &heavy), Some(gate(Some("z"), 1, 6, 4, 4)), "held elsewhere");
    }
}
