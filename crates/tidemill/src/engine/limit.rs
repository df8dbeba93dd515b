//! Limits with a name: set, changed and taken away while everything runs.
//!
//! A limit is kept with the rules of the queue or pattern whose jobs it means, so it is set, versioned and
//! followed as they are: in every process, from the moment it is set.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidemill_core::Error as Invalid;
use tidemill_core::gate::{GateView, Limit, PART, Per};
use tidemill_core::queue::{QueueRules, matches};
use tidemill_core::schedule::Definition;
use tidemill_core::why::Gate;
use tidemill_store::schedule::Which;
use tidemill_store::view::Lacks;

use crate::engine::Tidemill;
use crate::error::{Error, Result};

/// So many jobs that are held back are counted.
const HELD_MAX: u64 = 100_000;

/// A limit and whose jobs it means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NamedLimit {
    /// Its name.
    pub name: String,
    /// The queue or pattern whose jobs it means; `*` for all.
    pub queue: String,
    /// What it lets pass.
    #[serde(flatten)]
    pub limit: Limit,
}

/// A limit, and how it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LimitState {
    /// The limit.
    #[serde(flatten)]
    pub limit: NamedLimit,
    /// Jobs that run under it; not said of one that counts by tenant or key.
    pub inside: Option<u64>,
    /// Jobs that it holds back, counted up to 100,000; at one that means whole queues and lets nobody pass, all in
    /// these queues that are due.
    pub held: u64,
    /// Whether as many run under it as may; not said of one that counts by tenant or key.
    #[serde(default)]
    pub is_full: bool,
    /// Nobody passes before: it is shut until then, or its rate used up. Not said of one that counts by tenant or
    /// key.
    #[serde(default)]
    pub opens_at: Option<Timestamp>,
    /// Nobody passes before, because a handler or the breaker said so.
    pub shut_until: Option<Timestamp>,
    /// Whether it was shut because too much failed; of a limit by tenant or key, whether any of its gates was.
    pub is_broken: bool,
    /// How many of its gates were.
    #[serde(default)]
    pub broken: u64,
}

impl Tidemill {
    /// All limits that have a name, and how they stand.
    pub async fn limit_states(&self) -> Result<Vec<LimitState>> {
        let limits = self.limits().await?;
        let of_all = |limit: &NamedLimit| limit.limit.per == Per::All;
        let gate = |limit: &NamedLimit| {
            let gate = limit.limit.gate(&limit.queue, &limit.name);
            // A limit by tenant or key has many gates; they are asked for together.
            if of_all(limit) { gate } else { format!("{gate}{PART}") }
        };
        let gates = self.0.store.gates(&limits.iter().map(gate).collect::<Vec<_>>()).await?;
        // What limits of whole queues hold back stays where it is, at no gate.
        let is_wide = |limit: &NamedLimit| of_all(limit) && limit.limit.kind.is_none();
        let has_wide = limits.iter().any(is_wide);
        let queues = if has_wide { self.0.store.queues().await? } else { Vec::new() };
        let due = |limit: &NamedLimit| -> u64 {
            let meant = queues.iter().filter(|queue| matches(&limit.queue, &queue.name));
            meant.flat_map(|queue| queue.ready.values()).sum()
        };
        let now = self.0.store.now().await?;
        let state = |(limit, gate): (NamedLimit, GateView)| {
            let inside = of_all(&limit).then(|| gate.inside.iter().map(|(_, jobs)| jobs).sum());
            let most = limit.limit.concurrency.map(u64::from);
            let on_queue = limit.limit.on(&limit.queue, &limit.queue, &limit.name);
            let holds = gate.holds(&on_queue, now).filter(|_| of_all(&limit));
            let due = if holds.is_some() && is_wide(&limit) { due(&limit) } else { 0 };
            LimitState {
                inside,
                held: gate.held.max(due).min(HELD_MAX),
                is_full: inside.zip(most).is_some_and(|(inside, most)| inside >= most),
                opens_at: match holds {
                    Some(Gate::Limit { opens_at, .. }) => opens_at,
                    _ => None,
                },
                shut_until: gate.shut_until,
                is_broken: gate.broken > 0,
                broken: gate.broken,
                limit,
            }
        };
        Ok(limits.into_iter().zip(gates).map(state).collect())
    }

    /// Takes a limit away that is there.
    pub async fn delete_limit(&self, queue: &str, name: &str) -> Result<()> {
        let known = self.limits().await?;
        if !known.iter().any(|limit| limit.name == name && limit.queue == queue) {
            let (name, queue) = (name.to_owned(), queue.to_owned());
            return Err(Error::LimitUnknown { name, queue });
        }
        self.set_limit(queue, name, None).await
    }

    /// Sets a limit on the jobs of a queue or pattern, all of them together; `None` takes it away.
    ///
    /// ```
    /// # use tidemill::{Limit, Per, Rate, Tidemill};
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// let mill = Tidemill::open("sqlite::memory:").await?;
    /// let stripe = Limit {
    ///     kind: Some("charge".into()),
    ///     per: Per::Tenant,
    ///     concurrency: Some(5),
    ///     rate: Some(Rate { jobs: 100, per_ms: 1000, burst: 10 }),
    ///     ..Limit::default()
    /// };
    /// mill.set_limit("*", "stripe", Some(stripe)).await?;
    /// assert_eq!(mill.limits().await?[0].name, "stripe");
    /// # mill.close().await;
    /// # anyhow::Ok(()) })?;
    /// # anyhow::Ok(())
    /// ```
    pub async fn set_limit(&self, queue: &str, name: &str, limit: Option<Limit>) -> Result<()> {
        if let Some(limit) = &limit {
            limit.check(name)?;
        }
        match limit {
            Some(limit) => {
                let set = |rules: &mut QueueRules| {
                    rules.limits.insert(name.to_owned(), limit.clone());
                };
                self.change_queue(queue, set).await
            }
            None => self.change_back(queue, |rules| drop(rules.limits.remove(name))).await,
        }
    }

    /// Refuses limits that would not count jobs which have not finished, for they lack the tenant or key. Only limits
    /// that are new, or mean something else than before: the others are so already, and what they met is there.
    pub(crate) async fn check_counted(&self, queue: &str, rules: &QueueRules) -> Result<()> {
        if rules.limits.values().all(|limit| limit.demands().is_none()) {
            return Ok(());
        }
        let book = self.0.store.queue_rules().await?;
        let before = |name: &String| book.set_for(queue).and_then(|rules| rules.limits.get(name));
        for (name, limit) in &rules.limits {
            if limit.demands_more_than(before(name)) {
                let lacks =
                    Lacks { queue: queue.to_owned(), kind: limit.kind.clone(), per: limit.per };
                let lacking = match self.0.store.lacking(&lacks).await? {
                    Some(one) => Some(format!(
                        "there are jobs of kind {} in queue {}, {} for one,",
                        one.kind, one.queue, one.id
                    )),
                    None => self.schedule_lacking(&lacks).await?,
                };
                if let Some(lacking) = lacking {
                    let by = limit.per.by().unwrap_or_default();
                    let reason = format!(
                        "{name:?} counts by {by}, and {lacking} without a {by}; give them a {by} or let them finish, \
                         count by {}, mean another kind or queue, or let those pass that lack it (`--lacking pass`)",
                        if by == "key" { "tenant or all" } else { "key or all" },
                    );
                    return Err(Invalid::RuleInvalid { rule: "the limit", reason }.into());
                }
            }
        }
        Ok(())
    }

    /// A schedule whose jobs would lack what a limit counts by: nobody would refuse them.
    async fn schedule_lacking(&self, lacks: &Lacks) -> Result<Option<String>> {
        for view in self.0.store.schedules(&Which::All).await? {
            let Definition { name, job, spread, .. } = view.definition;
            let has_keys = spread.is_some_and(|spread| !spread.keys.is_empty());
            let is_lacking = match lacks.per {
                Per::All => false,
                Per::Tenant => job.tenant.is_none(),
                Per::Key => job.key.is_none() && !has_keys,
            };
            let is_meant = lacks.kind.as_ref().is_none_or(|kind| *kind == job.kind);
            if is_lacking && is_meant && matches(&lacks.queue, &job.queue) {
                let (kind, queue) = (job.kind, job.queue);
                let said =
                    format!("the schedule {name:?} makes jobs of kind {kind} in queue {queue}");
                return Ok(Some(said));
            }
        }
        Ok(None)
    }

    /// All limits that have a name.
    pub async fn limits(&self) -> Result<Vec<NamedLimit>> {
        let book = self.0.store.queue_rules().await?;
        let mut limits = Vec::new();
        for (queue, rules) in book.iter() {
            limits.extend(rules.limits.iter().map(|(name, limit)| NamedLimit {
                name: name.clone(),
                queue: queue.to_owned(),
                limit: limit.clone(),
            }));
        }
        Ok(limits)
    }
}
