//! The rules of queues: data, set for a queue or for all whose names match a pattern.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::depth::Overflow;
use crate::error::{Error, Result};
use crate::gate::{self, Counts, Horizon, Limit, Per, QueueLimit, Rate};
use crate::limit::NAME_BYTES_MAX;
use crate::name;
use crate::retention::Retention;
use crate::retry::Retry;
use crate::share::{BandWeights, WEIGHT_MAX};

/// Named limits in the rules of one queue or pattern.
pub const LIMITS_MAX: usize = 20;
/// Tenants of one queue with a weight of their own.
pub const TENANT_WEIGHTS_MAX: usize = 1000;

/// The rules of a queue, as stored. What may start is decided by the latest in every process; the rest of them holds
/// within a second.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueRules {
    /// It grows whenever they are set, also after they were taken away. Set with the version that was read, they are
    /// refused when somebody else has set them meanwhile; 0 sets them whatever is there.
    pub version: u64,
    /// No job of it starts. Those that run go on.
    pub paused: bool,
    /// How its bands share its work.
    pub weights: BandWeights,
    /// Tenants whose share is not that of all others, which is 1.
    pub tenant_weights: BTreeMap<String, u32>,
    /// How its jobs are retried, where neither the job nor its kind says so.
    pub retry: Option<Retry>,
    /// How long an attempt may run, where neither the job nor its kind says so.
    pub run_timeout_ms: Option<u64>,
    /// How long its jobs may wait for their first start, where the job does not say so.
    pub start_within_ms: Option<u64>,
    /// How long its jobs may take in all, where the job does not say so.
    pub finish_within_ms: Option<u64>,
    /// How many of its jobs may run at once, in the whole cluster.
    pub concurrency: Option<u32>,
    /// How often one of its jobs may start, in the whole cluster.
    pub rate: Option<Rate>,
    /// Who waits when a handler was told to come back later: the whole queue (`all`), the tenant or the
    /// key. Nobody but the job, when not given.
    pub hold: Option<Per>,
    /// How many retries a hundred first attempts pay for. A slot that no first attempt wants is free.
    pub retry_percent: Option<u32>,
    /// Limits with a name, for all jobs of the queues that these rules mean, together.
    pub limits: BTreeMap<String, Limit>,
    /// How long and how many finished jobs it keeps.
    pub retention: Retention,
    /// Nothing but the pause is its own: the rest is what its pattern said when it was paused, and goes with the pause.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pause_only: bool,
    /// How many jobs may wait in it, for a slot or the clock. A pattern gives it to each of its queues.
    pub depth_max: Option<u64>,
    /// What becomes of a job for which there is no room.
    pub overflow: Overflow,
    /// The depth at which producers should pause. Defaults to 80 % of `depth_max`.
    pub high_water: Option<u64>,
    /// The depth at which they may go on. Defaults to five eighths of the high one.
    pub low_water: Option<u64>,
}

impl QueueRules {
    /// Refuses rules that cannot be followed.
    pub fn check(&self) -> Result<()> {
        self.weights.check()?;
        if self.tenant_weights.len() > TENANT_WEIGHTS_MAX {
            return refused("tenant weights", || {
                let number = self.tenant_weights.len();
                format!(
                    "{number} tenants are more than {TENANT_WEIGHTS_MAX}; give weights only to those that differ"
                )
            });
        }
        for (tenant, weight) in &self.tenant_weights {
            name::check("tenant", tenant, NAME_BYTES_MAX)?;
            if !(1..=WEIGHT_MAX).contains(weight) {
                return refused("tenant weights", || {
                    format!("the weight {weight} of {tenant:?} is not between 1 and {WEIGHT_MAX}")
                });
            }
        }
        if self.run_timeout_ms == Some(0) {
            return refused("the run timeout", || {
                "0 would end every attempt before it begins; give at least 1 ms".to_owned()
            });
        }
        if [self.start_within_ms, self.finish_within_ms].contains(&Some(0)) {
            return refused("the deadline", || {
                "0 would end every job before it begins; give at least 1 ms".to_owned()
            });
        }
        if let (Some(start), Some(finish)) = (self.start_within_ms, self.finish_within_ms)
            && start > finish
        {
            return refused("the deadline", || {
                format!("a job that may start after {start} ms cannot finish within {finish} ms")
            });
        }
        self.retry.as_ref().map_or(Ok(()), Retry::check)?;
        gate::check_concurrency(self.concurrency)?;
        gate::check_rate(self.rate.as_ref())?;
        if self.retry_percent.is_some_and(|percent| !(1..=100).contains(&percent)) {
            return refused("the retry budget", || {
                "give between 1 and 100 per cent; to have no retries, set the attempts to 1"
                    .to_owned()
            });
        }
        if self.limits.len() > LIMITS_MAX {
            return refused("the limits", || {
                format!("more than {LIMITS_MAX} slow every claim down")
            });
        }
        self.limits.iter().try_for_each(|(name, limit)| limit.check(name))?;
        self.check_depth()
    }

    /// Refuses rules that this queue, or the queues of this pattern, cannot follow.
    pub fn check_for(&self, queue: &str) -> Result<()> {
        if queue.strip_suffix('*').unwrap_or(queue).contains('*') {
            return refused("the pattern", || {
                format!("{queue:?} has a * elsewhere than once at its end, as in mail:*")
            });
        }
        self.check()?;
        self.check_divert(queue)
    }

    /// How long an attempt may run.
    pub fn run_timeout(&self) -> Option<Duration> {
        self.run_timeout_ms.map(Duration::from_millis)
    }
}

fn refused(rule: &'static str, reason: impl FnOnce() -> String) -> Result<()> {
    Err(Error::RuleInvalid { rule, reason: reason() })
}

/// Whether a queue is meant by a name or by a pattern, which ends in `*`: `mail:*`.
pub fn matches(pattern: &str, queue: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => queue.starts_with(prefix),
        None => pattern == queue,
    }
}

/// Whether who works on a name or a pattern takes jobs of this queue. Those of ours only who means them: what a `*`
/// takes of them, for everybody who works on all queues, would be lost to us.
pub fn takes(own: &str, queue: &str) -> bool {
    matches(own, queue) && (!name::is_own(queue) || name::is_own(own))
}

/// Whether this is a pattern, not a name.
pub fn is_pattern(name: &str) -> bool {
    name.ends_with('*')
}

/// Which rule book it is: each change of rules makes the next one. Before the first it is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Edition(pub u64);

/// All rules that were set.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RuleBook {
    edition: Edition,
    rules: BTreeMap<String, QueueRules>,
}

impl RuleBook {
    /// The rules of these names and patterns, as they were in this edition.
    pub fn new(edition: Edition, rules: impl IntoIterator<Item = (String, QueueRules)>) -> Self {
        Self { edition, rules: rules.into_iter().collect() }
    }

    /// Which one it is.
    pub fn edition(&self) -> Edition {
        self.edition
    }

    /// The rules that were set, by name or pattern.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &QueueRules)> {
        self.rules.iter().map(|(name, rules)| (name.as_str(), rules))
    }

    /// The rules that were set for this very name or pattern.
    pub fn set_for(&self, name: &str) -> Option<&QueueRules> {
        self.rules.get(name)
    }

    /// The rules of a queue: those of its name, or else of the longest pattern that means it.
    pub fn of(&self, queue: &str) -> Option<&QueueRules> {
        self.rules.get(queue).or_else(|| self.meant(queue))
    }

    /// What a queue has while nothing is set for its name: the rules of the longest pattern that means it, or the
    /// default ones. Limits that have a name are not among them, nor is a pause: those of a pattern hold beside
    /// whatever a queue says of itself.
    pub fn inherited(&self, queue: &str) -> QueueRules {
        let rules = self.meant(queue).cloned().unwrap_or_default();
        let (limits, paused, pause_only) = (BTreeMap::new(), false, false);
        QueueRules { limits, paused, pause_only, version: 0, ..rules }
    }

    /// Whether a pattern means it.
    pub fn has_pattern(&self, queue: &str) -> bool {
        self.meant(queue).is_some()
    }

    fn meant(&self, queue: &str) -> Option<&QueueRules> {
        let means = |name: &str| is_pattern(name) && name != queue && matches(name, queue);
        let patterns = self.rules.iter().filter(|(name, _)| means(name));
        patterns.max_by_key(|(name, _)| name.len()).map(|(_, rules)| rules)
    }

    /// Whether any rule limits how many run at once.
    pub fn counts(&self) -> bool {
        self.mosts().next().is_some()
    }

    /// Whether workers that together may hold so many jobs could exceed any limit on how many run at once.
    pub fn is_within(&self, reach: u64) -> bool {
        self.mosts().any(|most| most < reach)
    }

    /// Whether they could exceed one that they could not when they might hold fewer.
    pub fn comes_within(&self, before: u64, reach: u64) -> bool {
        self.mosts().any(|most| (before..reach).contains(&most))
    }

    /// The limits, by the names of their gates without tenant or key, that these gates are of and that workers which
    /// together may hold so many jobs cannot exceed.
    pub fn out_of_reach(&self, gates: &[String], reach: u64) -> Vec<String> {
        // A name without its tenant or key means all gates of a limit: nobody is inside of that.
        let named = gates.iter().filter(|gate| !gate.ends_with(gate::PART));
        let bases: BTreeSet<&str> =
            named.filter_map(|gate| gate.split(gate::PART).next()).collect();
        let is_wide = |base: &str| {
            let (rule, _) = gate::parts(base);
            let limits = self.limits(rule);
            limits.iter().any(|limit| limit.gate == base && limit.is_out_of_reach(reach))
        };
        bases.into_iter().filter(|base| is_wide(base)).map(str::to_owned).collect()
    }

    /// How many each limit lets run at once.
    fn mosts(&self) -> impl Iterator<Item = u64> {
        let of = |rules: &'_ QueueRules| {
            let named = rules.limits.values().map(|limit| limit.concurrency);
            named.chain([rules.concurrency]).flatten().map(u64::from).collect::<Vec<_>>()
        };
        self.rules.values().flat_map(of)
    }

    /// Whether any rule limits anything.
    pub fn has_limits(&self) -> bool {
        let limits = |rules: &QueueRules| {
            let QueueRules { concurrency, rate, hold, retry_percent, limits, .. } = rules;
            concurrency.is_some()
                || rate.is_some()
                || hold.is_some()
                || retry_percent.is_some()
                || !limits.is_empty()
        };
        self.rules.values().any(limits)
    }

    /// All limits that mean jobs of a queue, from the finest to the coarsest: its own, and those with a
    /// name of every rule that means it.
    pub fn limits(&self, queue: &str) -> Vec<QueueLimit> {
        let mut limits = Vec::new();
        if let Some(rules) = self.of(queue) {
            limits.extend(own_limits(queue, rules));
        }
        for (rule, rules) in self.rules.iter().filter(|(name, _)| matches(name, queue)) {
            limits.extend(rules.limits.iter().map(|(name, limit)| limit.on(queue, rule, name)));
        }
        limits.sort_by_key(QueueLimit::order);
        limits
    }

    /// How far ahead the gates of this name, without tenant or key, may remember anything; `None` where no limit has
    /// such gates.
    pub fn horizon(&self, gate: &str) -> Option<Horizon> {
        let (rule, _) = gate::parts(gate);
        let limits = self.limits(rule);
        limits.iter().find(|limit| limit.gate == gate).map(QueueLimit::horizon)
    }

    /// Every limit that has a name, by the name of its gates, without tenant or key.
    pub fn named_limits(&self) -> impl Iterator<Item = (String, &Limit)> {
        self.rules.iter().flat_map(|(rule, rules)| {
            rules.limits.iter().map(move |(name, limit)| (limit.gate(rule, name), limit))
        })
    }

    /// Refuses a job that lacks what a limit on it counts by, unless that limit lets such jobs pass.
    pub fn check_counted(
        &self,
        queue: &str,
        kind: &str,
        tenant: Option<&str>,
        key: Option<&str>,
    ) -> Result<()> {
        let lacks = |limit: &Limit| {
            let means = limit.kind.as_ref().is_none_or(|own| own == kind);
            limit.demands().filter(|_| means).filter(|by| match *by {
                "tenant" => tenant.is_none(),
                _ => key.is_none(),
            })
        };
        for (rule, rules) in self.rules.iter().filter(|(name, _)| matches(name, queue)) {
            for (name, limit) in &rules.limits {
                if let Some(by) = lacks(limit) {
                    return Err(Error::CountedByMissing {
                        by,
                        kind: kind.to_owned(),
                        limit: name.clone(),
                        rule: rule.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// The name or pattern by whose rules a queue is paused. Any that means the queue is enough: who
    /// pauses `mail:*` must not find some of it running, because another rule was set for a part.
    pub fn paused_by(&self, queue: &str) -> Option<&str> {
        let pausing = |(name, rules): &(&String, &QueueRules)| rules.paused && matches(name, queue);
        self.rules.iter().find(pausing).map(|(name, _)| name.as_str())
    }
}

fn own_limits(queue: &str, rules: &QueueRules) -> Vec<QueueLimit> {
    let own = |gate: &str, counts| QueueLimit {
        queue: queue.to_owned(),
        gate: gate::base(queue, gate),
        kind: None,
        counts,
        concurrency: None,
        rate: None,
        hold: false,
        breaker: None,
    };
    let mut limits = Vec::new();
    if rules.concurrency.is_some() || rules.rate.is_some() || rules.hold == Some(Per::All) {
        limits.push(QueueLimit {
            concurrency: rules.concurrency,
            rate: rules.rate,
            hold: rules.hold == Some(Per::All),
            ..own("", Counts::Per(Per::All))
        });
    }
    if let Some(per @ (Per::Tenant | Per::Key)) = rules.hold {
        limits.push(QueueLimit { hold: true, ..own("hold", Counts::Per(per)) });
    }
    if let Some(percent) = rules.retry_percent {
        limits.push(own("retries", Counts::Retry { percent }));
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Lacking;

    fn paused() -> QueueRules {
        QueueRules { paused: true, ..QueueRules::default() }
    }

    #[test]
    fn the_name_goes_before_the_longest_pattern() {
        let long = QueueRules { version: 7, ..QueueRules::default() };
        let book = RuleBook::new(
            Edition::default(),
            [
                ("mail:*".to_owned(), QueueRules::default()),
                ("mail:bulk:*".to_owned(), long.clone()),
                ("mail:bulk:eu".to_owned(), paused()),
            ],
        );
        assert_eq!(book.of("mail:bulk:eu"), Some(&paused()));
        assert_eq!(book.of("mail:bulk:us"), Some(&long));
        assert_eq!(book.of("mail:one"), Some(&QueueRules::default()));
        assert_eq!(book.of("mail"), None);
    }

    #[test]
    fn rules_that_contradict_themselves_are_refused() {
        let rules = QueueRules::default;
        for (queue, rules) in [
            ("q", QueueRules { retry: Some(Retry::attempts(0)), ..rules() }),
            ("q", QueueRules { start_within_ms: Some(2), finish_within_ms: Some(1), ..rules() }),
            ("ma*il", rules()),
            ("mail**", rules()),
        ] {
            let refused = rules.check_for(queue).map_err(|error| error.code());
            assert_eq!(refused, Err("rule_invalid"), "{queue} {rules:?}");
        }
        let times = QueueRules { start_within_ms: Some(1), finish_within_ms: Some(1), ..rules() };
        assert!(times.check_for("mail:*").is_ok() && times.check_for("*").is_ok());
    }

    #[test]
    fn any_rule_that_means_a_queue_pauses_it() {
        let book = RuleBook::new(
            Edition::default(),
            [
                ("mail:*".to_owned(), paused()),
                ("mail:eu".to_owned(), QueueRules::default()),
                ("post".to_owned(), QueueRules::default()),
            ],
        );
        assert_eq!(book.paused_by("mail:eu"), Some("mail:*"));
        assert_eq!(book.paused_by("post"), None);
    }

    #[test]
    fn limits_of_every_rule_that_means_a_queue_apply_to_it_finest_first() {
        let limit = |per| Limit { per, concurrency: Some(1), ..Limit::default() };
        let named = |name: &str, per| BTreeMap::from([(name.to_owned(), limit(per))]);
        let book = RuleBook::new(
            Edition::default(),
            [
                (
                    "*".to_owned(),
                    QueueRules { limits: named("all", Per::All), ..QueueRules::default() },
                ),
                (
                    "mail:*".to_owned(),
                    QueueRules {
                        concurrency: Some(5),
                        hold: Some(Per::Tenant),
                        retry_percent: Some(20),
                        limits: named("one", Per::Key),
                        ..QueueRules::default()
                    },
                ),
            ],
        );
        let gates =
            |queue| book.limits(queue).into_iter().map(|limit| limit.gate).collect::<Vec<_>>();
        assert_eq!(
            gates("mail:eu"),
            [
                "mail:*/\u{1c}one\u{1d}key\u{1d}",
                "mail:eu/\u{1c}hold",
                "mail:eu/\u{1c}retries",
                "mail:eu/\u{1c}",
                "*/\u{1c}all"
            ]
        );
        let named: Vec<_> = book.named_limits().map(|(gate, _)| gate).collect();
        assert_eq!(named, ["*/\u{1c}all", "mail:*/\u{1c}one\u{1d}key\u{1d}"]);
        assert_eq!(gates("post"), ["*/\u{1c}all"]);
    }

    #[test]
    fn a_job_that_lacks_what_a_limit_counts_by_is_refused_unless_such_pass() {
        let limit = |per, lacking, kind: Option<&str>| Limit {
            per,
            lacking,
            kind: kind.map(Into::into),
            concurrency: Some(1),
            ..Limit::default()
        };
        let rules = |name: &str, limit| {
            let limits = BTreeMap::from([(name.to_owned(), limit)]);
            (format!("{name}:*"), QueueRules { limits, ..QueueRules::default() })
        };
        let book = RuleBook::new(
            Edition::default(),
            [
                rules("a", limit(Per::Key, Lacking::Refuse, Some("charge"))),
                rules("b", limit(Per::Tenant, Lacking::Refuse, None)),
                rules("c", limit(Per::Key, Lacking::Pass, None)),
                rules("d", limit(Per::All, Lacking::Refuse, None)),
            ],
        );
        for (queue, kind, tenant, key, lacks) in [
            ("a:1", "charge", None, None, Some("key")),
            ("a:1", "charge", Some("acme"), None, Some("key")),
            ("a:1", "charge", None, Some("42"), None),
            ("a:1", "other", None, None, None),
            ("b:1", "charge", None, Some("42"), Some("tenant")),
            ("b:1", "charge", Some("acme"), None, None),
            ("c:1", "charge", None, None, None),
            ("d:1", "charge", None, None, None),
            ("elsewhere", "charge", None, None, None),
        ] {
            let found = match book.check_counted(queue, kind, tenant, key) {
                Err(Error::CountedByMissing { by, .. }) => Some(by),
                _ => None,
            };
            assert_eq!(found, lacks, "{queue} {kind} {tenant:?} {key:?}");
        }
        let refusing = limit(Per::Key, Lacking::Refuse, None);
        assert!(refusing.demands_more_than(None));
        assert!(refusing.demands_more_than(Some(&limit(Per::Key, Lacking::Pass, None))));
        assert!(refusing.demands_more_than(Some(&limit(Per::Key, Lacking::Refuse, Some("k")))));
        assert!(!refusing.demands_more_than(Some(&Limit { rate: None, ..refusing.clone() })));
        assert!(!limit(Per::All, Lacking::Refuse, None).demands_more_than(None));
    }

    #[test]
    fn a_pattern_is_a_prefix_and_a_star() {
        for (pattern, queue, expected) in [
            ("mail", "mail", true),
            ("mail", "mail:eu", false),
            ("mail:*", "mail:eu", true),
            ("mail:*", "mail", false),
            ("*", "anything", true),
        ] {
            assert_eq!(matches(pattern, queue), expected, "{pattern} {queue}");
        }
    }

    #[test]
    fn rules_that_cannot_be_followed_are_refused() {
        let none = BandWeights { urgent: 0, high: 0, normal: 0, low: 0 };
        let heavy = BTreeMap::from([("acme".to_owned(), WEIGHT_MAX + 1)]);
        let weightless = BTreeMap::from([("acme".to_owned(), 0)]);
        for rules in [
            QueueRules { weights: none, ..QueueRules::default() },
            QueueRules { tenant_weights: heavy, ..QueueRules::default() },
            QueueRules { tenant_weights: weightless, ..QueueRules::default() },
            QueueRules { run_timeout_ms: Some(0), ..QueueRules::default() },
            QueueRules { start_within_ms: Some(0), ..QueueRules::default() },
            QueueRules { finish_within_ms: Some(0), ..QueueRules::default() },
            QueueRules { concurrency: Some(0), ..QueueRules::default() },
            QueueRules {
                rate: Some(Rate { jobs: 0, per_ms: 1, burst: 1 }),
                ..QueueRules::default()
            },
            QueueRules { retry_percent: Some(0), ..QueueRules::default() },
            QueueRules {
                limits: BTreeMap::from([("x".to_owned(), Limit::default())]),
                ..QueueRules::default()
            },
        ] {
            assert_eq!(rules.check().unwrap_err().code(), "rule_invalid", "{rules:?}");
        }
        assert!(paused().check().is_ok());
    }

    #[test]
    fn rules_of_before_are_read() {
        let old: QueueRules = serde_json::from_str(r#"{"retention":{"finished_ms":5}}"#).unwrap();
        assert_eq!((old.retention.finished_ms, old.weights), (5, BandWeights::default()));
    }
}
