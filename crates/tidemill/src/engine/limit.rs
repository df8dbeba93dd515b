//! Limits with a name: set, changed and taken away while everything runs.
//!
//! A limit is kept with the rules of the queue or pattern whose jobs it means, so it is set, versioned and
//! followed as they are: in every process, from the moment it is set.

use tidemill_core::Error as Invalid;
use tidemill_core::gate::Limit;
use tidemill_core::queue::QueueRules;
use tidemill_store::view::Lacks;

use crate::engine::Tidemill;
use crate::error::Result;

/// A limit and whose jobs it means.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct NamedLimit {
    /// Its name.
    pub name: String,
    /// The queue or pattern whose jobs it means; `*` for all.
    pub queue: String,
    /// What it lets pass.
    #[serde(flatten)]
    pub limit: Limit,
}

impl Tidemill {
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
        self.change_queue(queue, |rules| {
            match limit.clone() {
                Some(limit) => rules.limits.insert(name.to_owned(), limit),
                None => rules.limits.remove(name),
            };
        })
        .await
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
                if let Some(one) = self.0.store.lacking(&lacks).await? {
                    let by = limit.per.by().unwrap_or_default();
                    let reason = format!(
                        "{name:?} counts by {by}, and there are jobs of kind {} in queue {} without a {by}, {} for \
                         one; give them a {by} or let them finish, count by {}, mean another kind or queue, or let \
                         those pass that lack it (`--lacking pass`)",
                        one.kind,
                        one.queue,
                        one.id,
                        if by == "key" { "tenant or all" } else { "key or all" },
                    );
                    return Err(Invalid::RuleInvalid { rule: "the limit", reason }.into());
                }
            }
        }
        Ok(())
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
