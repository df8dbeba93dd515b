//! Who is inside of a gate without having gone through it: what ran already when its limit began to count.
//!
//! A limit counts who goes in. When it is set for the first time, or again, or begins to count what runs at once, some
//! run that it means and never saw; and it saw nobody as long as all workers together could not have exceeded it.
//! Whoever changes rules, or lets workers hold more, looks for them, so that they count from that moment on.
//! Refuses to say who went in: that is written down at each gate.

use std::collections::HashMap;

use crate::gate::QueueLimit;
use crate::id::{JobId, Token};
use crate::queue::RuleBook;

/// A job that runs, as far as limits look at it. Who has no tenant or key has an empty one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// The lease that it runs under.
    pub token: Token,
    /// The job.
    pub id: JobId,
    /// Its queue.
    pub queue: String,
    /// Its kind.
    pub kind: String,
    /// Its tenant.
    pub tenant: String,
    /// Its key.
    pub key: String,
}

/// A job that runs and is inside of a gate which counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inside {
    /// The limit, by the name of its gates without tenant or key.
    pub base: String,
    /// The gate.
    pub gate: String,
    /// The lease that it runs under.
    pub token: Token,
    /// The job.
    pub id: JobId,
}

/// The gates that those who run are inside of, by the limits of these rules that are meant, if those count how many
/// that are. Who went in by one has a permit there; the others have none.
pub fn inside(
    book: &RuleBook,
    running: &[Running],
    is_meant: impl Fn(&QueueLimit) -> bool,
) -> Vec<Inside> {
    let mut limits: HashMap<&str, Vec<QueueLimit>> = HashMap::new();
    let mut all = Vec::new();
    for Running { token, id, queue, kind, tenant, key } in running {
        let of_queue = limits.entry(queue).or_insert_with(|| book.limits(queue));
        for limit in of_queue.iter().filter(|limit| limit.concurrency.is_some()) {
            let gate = limit.gate_of(kind, tenant, key, false);
            if let Some(gate) = gate.filter(|_| is_meant(limit)) {
                all.push(Inside { base: limit.gate.clone(), gate, token: *token, id: *id });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{Limit, Per, Rate};
    use crate::queue::{Edition, QueueRules};

    #[test]
    fn those_are_inside_whom_a_limit_at_once_means() {
        let limit = |kind: &str, per, concurrency| Limit {
            kind: Some(kind.into()),
            per,
            concurrency,
            rate: Some(Rate { jobs: 1, per_ms: 1000, burst: 1 }),
            ..Limit::default()
        };
        let rules = QueueRules {
            limits: [
                ("at_once".into(), limit("a", Per::Key, Some(1))),
                ("often".into(), limit("a", Per::All, None)),
            ]
            .into(),
            ..QueueRules::default()
        };
        let wide = QueueRules { concurrency: Some(5), ..QueueRules::default() };
        let book = RuleBook::new(Edition(1), [("*".into(), rules), ("r".into(), wide)]);
        let runs = |queue: &str, kind: &str, key: &str| Running {
            token: Token(7),
            id: JobId::new(),
            queue: queue.into(),
            kind: kind.into(),
            tenant: "acme".into(),
            key: key.into(),
        };
        let running =
            [runs("q", "a", "k"), runs("q", "a", ""), runs("q", "b", "k"), runs("r", "b", "")];
        let found = inside(&book, &running, |_| true);
        let gates: Vec<_> = found.iter().map(|one| (one.gate.as_str(), one.id)).collect();
        let of_key = "*/\u{1c}at_once\u{1d}key\u{1d}a\u{1f}k";
        assert_eq!(gates, [(of_key, running[0].id), ("r/\u{1c}", running[3].id)]);
        assert_eq!(found[0].base, "*/\u{1c}at_once\u{1d}key\u{1d}a");
        let wide = inside(&book, &running, |limit| limit.is_out_of_reach(2));
        assert_eq!(wide, found[1..], "those alone that are meant");
        assert!(book.counts() && !RuleBook::default().counts());
        assert!(book.is_within(2) && !book.is_within(1));
        for (before, reach, expected) in [(0, 1, false), (1, 2, true), (2, 5, false), (5, 6, true)]
        {
            assert_eq!(book.comes_within(before, reach), expected, "{before} to {reach}");
        }
    }
}
