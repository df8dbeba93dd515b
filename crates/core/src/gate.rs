//! Limits: how much may run at once, how often something may start, and what is spared while it is unwell.
//!
//! A limit is a rule, set with the rules of a queue or pattern. Its *gate* is where jobs pass or wait:
//! one for all of them, or one for each tenant or key. A limit is written down in jobs and time, so
//! that it can be checked before it is set, and explained when it holds somebody.

mod view;

pub use view::GateView;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::limit::NAME_BYTES_MAX;
use crate::name;

/// The most jobs that a limit may let run at once, or start at once.
pub const JOBS_MAX: u32 = 1_000_000;
/// Between the name of a limit and the tenant or key in the name of a gate.
pub const PART: char = '\u{1f}';
/// Between a queue or pattern and the name of its limit. Names may have slashes, and no control characters: this shows
/// where the one ends and the other begins.
const OF: &str = "/\u{1c}";
/// Between the name of a limit and what it counts by, and the kind that it means.
const MEANING: char = '\u{1d}';

/// What a limit counts by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Per {
    /// One gate for all jobs it means.
    #[default]
    All,
    /// One gate for each tenant. What becomes of jobs without one, [`Lacking`] says.
    Tenant,
    /// One gate for each key. What becomes of jobs without one, [`Lacking`] says.
    Key,
}

impl Per {
    /// What it counts by, for people: `tenant` or `key`; nothing when it counts all together.
    pub fn by(self) -> Option<&'static str> {
        match self {
            Self::All => None,
            Self::Tenant => Some("tenant"),
            Self::Key => Some("key"),
        }
    }
}

/// What becomes of a job that lacks the tenant or key that a limit counts by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Lacking {
    /// It is refused when it is enqueued; and the limit is, when it is set while such jobs have not finished.
    #[default]
    Refuse,
    /// The limit does not mean it.
    Pass,
}

/// How often something may start, in the whole cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Rate {
    /// So many…
    pub jobs: u32,
    /// …in so many milliseconds, evenly.
    pub per_ms: u64,
    /// How many may start at once after a pause; 1 when not given.
    #[serde(default = "one")]
    pub burst: u32,
}

fn one() -> u32 {
    1
}

impl Rate {
    /// The time from one start to the next, in microseconds.
    pub fn every_us(&self) -> u64 {
        (self.per_ms * 1000 / u64::from(self.jobs.max(1))).max(1)
    }

    /// How long so many starts take.
    fn after(&self, starts: u64) -> Duration {
        Duration::from_micros(self.every_us().saturating_mul(starts))
    }

    /// What to give in place of more jobs than can be counted.
    fn shorter(&self) -> String {
        let jobs = (u64::from(self.jobs) * 1000 / self.per_ms.max(1)).max(1) as u32;
        let same = Self { jobs, per_ms: 1000, ..*self };
        format!("more than {JOBS_MAX} jobs; give those of a shorter time, such as {same}")
    }

    fn check(&self) -> Result<()> {
        let shorter = self.shorter();
        let reason = if self.jobs == 0 || self.per_ms == 0 {
            "0 would let nothing start; pause the queue instead, or give at least 1 job per day"
        } else if self.burst == 0 {
            "a burst of 0 would let nothing start; give at least 1"
        } else if self.per_ms > 86_400_000 {
            "it counts over more than a day; give the jobs of a day"
        } else if self.per_ms.saturating_mul(1000) < u64::from(self.jobs) {
            "more than one job in a microsecond is no limit; leave it away"
        } else if self.burst > JOBS_MAX {
            "its burst is more than 1000000; give at most that"
        } else if self.jobs > JOBS_MAX {
            &shorter
        } else {
            return Ok(());
        };
        Err(Error::RuleInvalid { rule: "the rate", reason: format!("{self}: {reason}") })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = match self.per_ms {
            1000 => "s".to_owned(),
            60_000 => "m".to_owned(),
            3_600_000 => "h".to_owned(),
            86_400_000 => "d".to_owned(),
            ms => format!("{ms}ms"),
        };
        write!(f, "{}/{per}", self.jobs)?;
        if self.burst > 1 { write!(f, " burst {}", self.burst) } else { Ok(()) }
    }
}

/// When to spare the other side: after too many failures the gate is shut for a while; then one job
/// goes ahead as a probe, and its end decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Breaker {
    /// It opens when at least this many per cent of the attempts in the window failed; 50.
    pub failures_percent: u32,
    /// The window; 10 s.
    pub window_ms: u64,
    /// Fewer attempts than this in the window say nothing; 10.
    pub attempts_min: u32,
    /// How long it spares the other side before it probes; 30 s.
    pub open_ms: u64,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { failures_percent: 50, window_ms: 10_000, attempts_min: 10, open_ms: 30_000 }
    }
}

impl Breaker {
    fn check(&self) -> Result<()> {
        let reason = if !(1..=100).contains(&self.failures_percent) {
            format!("{} per cent is not between 1 and 100", self.failures_percent)
        } else if self.window_ms == 0 || self.open_ms == 0 || self.attempts_min == 0 {
            "a window, a pause or a least number of 0 means nothing; give at least 1".to_owned()
        } else if self.window_ms > 86_400_000 || self.open_ms > 86_400_000 {
            "give a window and a pause of a day at most".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::RuleInvalid { rule: "the breaker", reason })
    }
}

/// A limit with a name, as set with the rules of a queue or pattern. It means all jobs of the queues
/// of that name or pattern, together, or those of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Limit {
    /// Only jobs of this kind.
    pub kind: Option<String>,
    /// What it counts by.
    pub per: Per,
    /// What becomes of a job that lacks what it counts by.
    pub lacking: Lacking,
    /// How many may run at once.
    pub concurrency: Option<u32>,
    /// How often one may start.
    pub rate: Option<Rate>,
    /// Whether a handler that was told to come back later shuts the gate for everyone until then.
    pub hold: bool,
    /// When to spare the other side.
    pub breaker: Option<Breaker>,
}

impl Limit {
    /// The name of its gates, without tenant or key. It says what goes through them: a limit that means something else
    /// by the same name has other gates, and a place inside of one is never taken for a place inside of another.
    pub fn gate(&self, rule: &str, name: &str) -> String {
        let by = match self.per {
            Per::All if self.kind.is_none() => return base(rule, name),
            Per::All => "",
            Per::Tenant => "tenant",
            Per::Key => "key",
        };
        let kind = self.kind.as_deref().unwrap_or_default();
        format!("{}{MEANING}{by}{MEANING}{kind}", base(rule, name))
    }

    /// What a job must have to be counted by it, unless those that lack it pass.
    pub fn demands(&self) -> Option<&'static str> {
        self.per.by().filter(|_| self.lacking == Lacking::Refuse)
    }

    /// Whether jobs that it refuses for what they lack passed, or did not matter, under the one set before.
    pub fn demands_more_than(&self, before: Option<&Self>) -> bool {
        let same = |before: &Self| before.demands() == self.demands() && before.kind == self.kind;
        self.demands().is_some() && !before.is_some_and(same)
    }

    /// Refuses a limit that means nothing, or lets nothing through.
    pub fn check(&self, name: &str) -> Result<()> {
        name::check("limit", name, NAME_BYTES_MAX)?;
        if ["retries", "hold"].contains(&name) {
            return Err(Error::RuleInvalid {
                rule: "the limit",
                reason: format!(
                    "{name:?} is a name that every queue uses for itself; choose another"
                ),
            });
        }
        if let Some(kind) = &self.kind {
            name::check("kind", kind, NAME_BYTES_MAX)?;
        }
        if self.lacking == Lacking::Pass && self.per.by().is_none() {
            return Err(Error::RuleInvalid {
                rule: "the limit",
                reason: format!(
                    "{name:?} lets those pass that lack something, and counts by none; count by tenant or key, or \
                     leave it out"
                ),
            });
        }
        check_concurrency(self.concurrency)?;
        self.rate.iter().try_for_each(Rate::check)?;
        self.breaker.iter().try_for_each(Breaker::check)?;
        if self.concurrency.is_none() && self.rate.is_none() && self.breaker.is_none() && !self.hold
        {
            return Err(Error::RuleInvalid {
                rule: "the limit",
                reason: format!(
                    "{name:?} limits nothing; give a concurrency, a rate, a breaker or hold"
                ),
            });
        }
        Ok(())
    }
}

impl Limit {
    /// It, as claims follow it on the jobs of a queue; it is kept by this name with the rules of a queue or pattern.
    pub fn on(&self, queue: &str, rule: &str, name: &str) -> QueueLimit {
        QueueLimit {
            queue: queue.to_owned(),
            gate: self.gate(rule, name),
            kind: self.kind.clone(),
            counts: Counts::Per(self.per),
            concurrency: self.concurrency,
            rate: self.rate,
            hold: self.hold,
            breaker: self.breaker,
        }
    }
}

pub(crate) fn check_concurrency(concurrency: Option<u32>) -> Result<()> {
    let refused = |reason| Err(Error::RuleInvalid { rule: "the concurrency", reason });
    match concurrency {
        Some(0) => {
            refused("0 would let nothing run; give at least 1, or pause the queue".to_owned())
        }
        Some(jobs) if jobs > JOBS_MAX => refused(format!(
            "{jobs} is more than {JOBS_MAX}; give at most {JOBS_MAX}, or leave it away where nothing is to be limited"
        )),
        _ => Ok(()),
    }
}

pub(crate) fn check_rate(rate: Option<&Rate>) -> Result<()> {
    rate.map_or(Ok(()), Rate::check)
}

/// What a job counts as, to a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// By all, tenant or key.
    Per(Per),
    /// Only as a retry: first attempts pay for retries.
    Retry {
        /// How many retries a hundred first attempts pay for.
        percent: u32,
    },
}

/// A limit on the jobs of one queue, as a claim follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueLimit {
    /// The queue.
    pub queue: String,
    /// The name of its gate, without tenant or key.
    pub gate: String,
    /// Only jobs of this kind.
    pub kind: Option<String>,
    /// What it counts by.
    pub counts: Counts,
    /// How many may run at once.
    pub concurrency: Option<u32>,
    /// How often one may start.
    pub rate: Option<Rate>,
    /// Whether a handler that was told to come back later shuts the gate.
    pub hold: bool,
    /// When to spare the other side.
    pub breaker: Option<Breaker>,
}

/// The longest pause a handler can ask for: one that is told to come back next year must not shut a gate till then.
pub const PAUSE_MAX: Duration = Duration::from_hours(24);

/// How far ahead of the present a gate of a limit may remember anything. What is further ahead is of other rules, or
/// of a clock that was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Horizon {
    /// How long its rate takes for a burst, if it has one.
    pub rate: Option<Duration>,
    /// How long a pause lasts at most, if one can be asked for.
    pub pause: Option<Duration>,
    /// How long the other side is spared, if it ever is.
    pub open: Option<Duration>,
    /// How far back its breaker counts, if it has one.
    pub window: Option<Duration>,
}

/// Retries that are free of charge before any first attempt has paid.
pub const RETRY_CREDIT: u32 = 10;

impl QueueLimit {
    /// Whether it means every job of its queue alike: then nothing of the queue need be looked at
    /// while it lets nothing through.
    pub fn is_wide(&self) -> bool {
        self.kind.is_none() && self.counts == Counts::Per(Per::All)
    }

    /// From the finest to the coarsest: whoever is held by his own key should not count for all.
    pub fn order(&self) -> u8 {
        match self.counts {
            Counts::Per(Per::Key) => 0,
            Counts::Per(Per::Tenant) => 1,
            Counts::Retry { .. } => 2,
            Counts::Per(Per::All) => 3 + u8::from(self.kind.is_none()),
        }
    }

    /// The gate that a job goes through; `None` when the limit does not mean it.
    pub fn gate_of(&self, kind: &str, tenant: &str, key: &str, is_retry: bool) -> Option<String> {
        if self.kind.as_ref().is_some_and(|own| own != kind) {
            return None;
        }
        let by = |part: &str| (!part.is_empty()).then(|| format!("{}{PART}{part}", self.gate));
        match self.counts {
            Counts::Per(Per::All) => Some(self.gate.clone()),
            Counts::Per(Per::Tenant) => by(tenant),
            Counts::Per(Per::Key) => by(key),
            Counts::Retry { .. } => is_retry.then(|| self.gate.clone()),
        }
    }

    /// Whether it counts how many run at once, and workers that together may hold so many jobs cannot exceed it.
    pub fn is_out_of_reach(&self, reach: u64) -> bool {
        self.concurrency.is_some_and(|most| u64::from(most) >= reach)
    }

    /// Whether it asks nothing of anybody as long as it is out of reach: its gates have nothing else to remember.
    pub fn only_counts(&self) -> bool {
        self.concurrency.is_some() && self.rate.is_none() && self.breaker.is_none() && !self.hold
    }

    /// How far ahead its gates may remember anything.
    pub fn horizon(&self) -> Horizon {
        let burst = |rate: Rate| Duration::from_micros(rate.every_us() * u64::from(rate.burst));
        Horizon {
            rate: self.rate.map(burst),
            pause: self.hold.then_some(PAUSE_MAX),
            open: self.open(),
            window: self.breaker.map(|breaker| Duration::from_millis(breaker.window_ms)),
        }
    }

    /// How long the other side is spared.
    pub fn open(&self) -> Option<Duration> {
        self.breaker.map(|breaker| Duration::from_millis(breaker.open_ms))
    }
}

/// The queue or pattern of a gate, and the name of its limit, which is empty for a queue's own.
pub fn parts(gate: &str) -> (&str, &str) {
    let base = gate.split([PART, MEANING]).next().unwrap_or_default();
    base.split_once(OF).unwrap_or((base, ""))
}

/// The name of the gate of a limit that means all jobs of a queue or pattern. Those that a queue has of its own are
/// named `""`, `retries` and `hold`.
pub(crate) fn base(rule: &str, name: &str) -> String {
    format!("{rule}{OF}{name}")
}

/// What the names of all gates begin with that the rules of a queue or pattern may mean.
pub fn prefix(rule: &str) -> String {
    rule.strip_suffix('*').map_or_else(|| format!("{rule}/"), str::to_owned)
}

/// The name of a gate for people: `stripe of mail:* for acme`.
pub fn describe(gate: &str) -> String {
    let (base, part) =
        gate.split_once(PART).map_or((gate, None), |(base, part)| (base, Some(part)));
    let base = base.split(MEANING).next().unwrap_or_default();
    let of = match base.split_once(OF) {
        Some((queue, "")) => format!("the limit of queue {queue}"),
        Some((queue, "retries")) => format!("the retry budget of queue {queue}"),
        Some((queue, "hold")) => format!("the pause asked of queue {queue}"),
        Some((rule, name)) => format!("limit {name} of {rule}"),
        None => format!("limit {base}"),
    };
    part.map_or(of.clone(), |part| format!("{of} for {part}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn limit() -> QueueLimit {
        QueueLimit {
            queue: "q".into(),
            gate: "*/stripe".into(),
            kind: Some("charge".into()),
            counts: Counts::Per(Per::Key),
            concurrency: Some(1),
            rate: None,
            hold: false,
            breaker: None,
        }
    }

    #[test]
    fn a_gate_is_named_by_what_it_counts() {
        let per = |counts| QueueLimit { counts, ..limit() };
        let of = |limit: &QueueLimit, kind, key| limit.gate_of(kind, "acme", key, false);
        assert_eq!(of(&limit(), "charge", "42"), Some("*/stripe\u{1f}42".into()));
        assert_eq!(of(&limit(), "charge", ""), None, "it has no key");
        assert_eq!(of(&limit(), "mail", "42"), None, "another kind");
        let tenant = per(Counts::Per(Per::Tenant));
        assert_eq!(of(&tenant, "charge", ""), Some("*/stripe\u{1f}acme".into()));
        assert_eq!(of(&per(Counts::Per(Per::All)), "charge", ""), Some("*/stripe".into()));
        let retry = per(Counts::Retry { percent: 20 });
        assert_eq!(retry.gate_of("charge", "", "", false), None);
        assert_eq!(retry.gate_of("charge", "", "", true), Some("*/stripe".into()));
    }

    #[test]
    fn a_limit_is_out_of_reach_of_workers_that_hold_no_more() {
        for (most, reach, expected) in
            [(Some(20), 20, true), (Some(20), 21, false), (Some(1), 0, true), (None, 0, false)]
        {
            let limit = QueueLimit { concurrency: most, ..limit() };
            assert_eq!(limit.is_out_of_reach(reach), expected, "{most:?} at {reach}");
            assert_eq!(limit.only_counts(), most.is_some());
            assert!(!QueueLimit { hold: true, ..limit }.only_counts());
        }
    }

    #[test]
    fn a_limit_that_means_something_else_has_other_gates() {
        let limit = |kind: Option<&str>, per| {
            let limit = Limit { kind: kind.map(Into::into), per, ..Limit::default() };
            limit.gate("q", "x")
        };
        assert_eq!(limit(None, Per::All), "q/\u{1c}x");
        let all = [None, Some("key"), Some("tenant")]
            .map(|kind| [Per::All, Per::Tenant, Per::Key].map(|per| limit(kind, per)));
        let different: std::collections::BTreeSet<_> = all.into_iter().flatten().collect();
        assert_eq!(different.len(), 9);
        assert!(different.iter().all(|gate| describe(gate) == "limit x of q"));
        assert!(different.iter().all(|gate| parts(gate) == ("q", "x")));
        assert_eq!(parts("mail/\u{1c}\u{1f}42"), ("mail", ""));
    }

    #[test]
    fn limits_of_queues_with_slashes_have_gates_of_their_own() {
        let gate = |rule: &str, name: &str| Limit::default().gate(rule, name);
        let (one, other) = (gate("a", "b/c"), gate("a/b", "c"));
        assert_ne!(one, other);
        assert_eq!((parts(&one), parts(&other)), (("a", "b/c"), ("a/b", "c")));
        assert_eq!(
            (describe(&one), describe(&other)),
            ("limit b/c of a".into(), "limit c of a/b".into())
        );
        assert_ne!(gate("a", "b/retries"), base("a/b", "retries"));
        for (rule, queue) in [("a", "a"), ("a/b", "a/b"), ("a/*", "a/b"), ("*", "a"), ("a*", "a*")]
        {
            assert!(base(queue, "retries").starts_with(&prefix(rule)), "{rule} {queue}");
        }
        assert!(!base("ab", "").starts_with(&prefix("a")));
        assert_eq!(describe(&base("a/b", "hold")), "the pause asked of queue a/b");
    }

    #[test]
    fn gates_are_described_to_people() {
        for (gate, expected) in [
            ("mail/\u{1c}", "the limit of queue mail"),
            ("mail/\u{1c}\u{1f}42", "the limit of queue mail for 42"),
            ("mail:*/\u{1c}stripe\u{1f}acme", "limit stripe of mail:* for acme"),
            (
                "mail:*/\u{1c}stripe\u{1d}tenant\u{1d}a/b\u{1f}acme",
                "limit stripe of mail:* for acme",
            ),
            ("mail/\u{1c}retries", "the retry budget of queue mail"),
        ] {
            assert_eq!(describe(gate), expected);
        }
    }

    #[test]
    fn limits_that_cannot_be_followed_are_refused() {
        let rate = |jobs, per_ms, burst| Some(Rate { jobs, per_ms, burst });
        let breaker = |breaker| Limit { breaker: Some(breaker), ..Limit::default() };
        for limit in [
            Limit::default(),
            Limit { concurrency: Some(0), ..Limit::default() },
            Limit { concurrency: Some(1), lacking: Lacking::Pass, ..Limit::default() },
            Limit { concurrency: Some(JOBS_MAX + 1), ..Limit::default() },
            Limit { rate: rate(0, 1000, 1), ..Limit::default() },
            Limit { rate: rate(1, 0, 1), ..Limit::default() },
            Limit { rate: rate(1, 1000, 0), ..Limit::default() },
            Limit { rate: rate(2000, 1, 1), ..Limit::default() },
            breaker(Breaker { failures_percent: 0, ..Breaker::default() }),
            breaker(Breaker { open_ms: 0, ..Breaker::default() }),
            breaker(Breaker { open_ms: u64::MAX, ..Breaker::default() }),
        ] {
            assert_eq!(limit.check("stripe").unwrap_err().code(), "rule_invalid", "{limit:?}");
        }
        for (limit, said) in [
            (Limit { concurrency: Some(5_000_000), ..Limit::default() }, "give at most 1000000"),
            (Limit { rate: rate(5_000_000, 3_600_000, 1), ..Limit::default() }, "such as 1388/s"),
            (Limit { rate: rate(5, 1000, 5_000_000), ..Limit::default() }, "burst is more than"),
            (Limit { rate: rate(5, 86_400_001, 1), ..Limit::default() }, "the jobs of a day"),
        ] {
            let error = limit.check("stripe").unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        assert!(Limit { rate: rate(100, 1000, 5), ..Limit::default() }.check("stripe").is_ok());
        assert!(breaker(Breaker::default()).check("").is_err(), "a limit has a name");
    }

    #[test]
    fn a_rate_is_a_time_between_starts() {
        let rate = Rate { jobs: 100, per_ms: 1000, burst: 5 };
        assert_eq!(rate.every_us(), 10_000);
        assert_eq!(rate.to_string(), "100/s burst 5");
    }
}
