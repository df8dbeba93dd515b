//! Who is inside of a gate without having gone through it: what ran already when a limit was set.
//!
//! A limit counts who goes in. When it is set for the first time, or again, or begins to count what runs at once, some
//! run that it means and never saw. A change of rules looks for them, so that they count from its moment on.
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

/// The gates that those who run are inside of, by these rules, if they count how many that are. Who went in by one has
/// a permit there; the others are stowaways.
pub fn inside(book: &RuleBook, running: &[Running]) -> Vec<Inside> {
    let mut limits: HashMap<&str, Vec<QueueLimit>> = HashMap::new();
    let mut all = Vec::new();
    for Running { token, id, queue, kind, tenant, key } in running {
        let of_queue = limits.entry(queue).or_insert_with(|| book.limits(queue));
        for limit in of_queue.iter().filter(|limit| limit.concurrency.is_some()) {
            if let Some(gate) = limit.gate_of(kind, tenant, key, false) {
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
        let found = inside(&book, &running);
        let gates: Vec<_> = found.iter().map(|one| (one.gate.as_str(), one.id)).collect();
        let of_key = "*/\u{1c}at_once\u{1d}key\u{1d}a\u{1f}k";
        assert_eq!(gates, [(of_key, running[0].id), ("r/\u{1c}", running[3].id)]);
        assert_eq!(found[0].base, "*/\u{1c}at_once\u{1d}key\u{1d}a");
        assert!(book.counts() && !RuleBook::default().counts());
    }
}
