//! Queues: what is in them, and their rules.

use tidemill_core::queue::QueueRules;
use tidemill_core::{Error as Invalid, limit, name};
use tidemill_store::QueueView;

use crate::engine::Tidemill;
use crate::error::{Error, Result};

impl Tidemill {
    /// All queues that have jobs, dead letters or rules.
    pub async fn queues(&self) -> Result<Vec<QueueView>> {
        Ok(self.0.store.queues().await?)
    }

    /// The rules that were set for this very name or pattern or, as version 0, those that hold without: of the longest
    /// pattern that means it, or the default ones.
    pub async fn queue_rules(&self, queue: &str) -> Result<QueueRules> {
        let book = self.0.store.queue_rules().await?;
        Ok(book.set_for(queue).cloned().unwrap_or_else(|| book.inherited(queue)))
    }

    /// Sets the rules of a queue, or of all queues that a pattern such as `mail:*` means and that
    /// have none of their own; `None` takes them away. Once it answers, no job starts in any process that they
    /// would not let start; what else they say is followed by every process within a second.
    ///
    /// Rules that were read with [`queue_rules`](Self::queue_rules) carry their version, and are
    /// refused (`rule_changed`) when somebody else has set them meanwhile. Those of version 0 are set
    /// whatever is there; [`replace_queue`](Self::replace_queue) is for who has read that there are none.
    pub async fn set_queue(&self, queue: &str, rules: Option<QueueRules>) -> Result<()> {
        name::check("queue", queue, limit::NAME_BYTES_MAX)?;
        let rules = rules.map(owned);
        if let Some(rules) = &rules {
            self.check_rules(queue, rules).await?;
        }
        let is_set = self.0.store.set_queue(queue, rules).await?;
        self.once_set(queue, is_set).await
    }

    /// The same over rules of this version alone, as [`queue_rules`](Self::queue_rules) told it; 0: there were none.
    /// Refused (`rule_changed`) when others are there by now.
    pub async fn replace_queue(
        &self,
        queue: &str,
        was: u64,
        rules: Option<QueueRules>,
    ) -> Result<()> {
        self.replace(queue, was, rules.map(owned)).await
    }

    async fn replace(&self, queue: &str, was: u64, rules: Option<QueueRules>) -> Result<()> {
        name::check("queue", queue, limit::NAME_BYTES_MAX)?;
        if let Some(rules) = &rules {
            self.check_rules(queue, rules).await?;
        }
        let is_set = self.0.store.replace_queue(queue, was, rules).await?;
        self.once_set(queue, is_set).await
    }

    async fn check_rules(&self, queue: &str, rules: &QueueRules) -> Result<()> {
        rules.check_for(queue)?;
        self.check_counted(queue, rules).await
    }

    /// Rules that were set are known here at once; those that were not had changed meanwhile.
    async fn once_set(&self, queue: &str, is_set: bool) -> Result<()> {
        if is_set {
            self.learn_rules().await;
            return Ok(());
        }
        Err(Error::Invalid(Invalid::RuleChanged { queue: queue.to_owned() }))
    }

    /// Lets no job of a queue start any more; those that run go on.
    pub async fn pause(&self, queue: &str) -> Result<()> {
        self.change(queue, |rules, _| {
            rules.pause_only |= rules.version == 0;
            rules.paused = true;
            true
        })
        .await
    }

    /// Lets the jobs of a queue start again. One that has no rules but its pause follows its pattern again, as that is
    /// by now.
    pub async fn resume(&self, queue: &str) -> Result<()> {
        self.change(queue, |rules, inherited| {
            let is_only = std::mem::take(&mut rules.pause_only);
            rules.paused = false;
            !is_only && differs(rules, inherited)
        })
        .await
    }

    /// Changes the rules of a queue and nothing else of them, whoever else changes some. What is set for a queue for
    /// the first time begins as what its pattern gave it, so that it keeps the rest of that.
    pub async fn change_queue(&self, queue: &str, change: impl Fn(&mut QueueRules)) -> Result<()> {
        self.change(queue, |rules, _| {
            change(rules);
            rules.pause_only = false;
            true
        })
        .await
    }

    /// The same for what takes something back: if nothing is left by which the queue differs from others of its
    /// pattern, it has no rules of its own any more, and follows that of the pattern again.
    pub(crate) async fn change_back(
        &self,
        queue: &str,
        change: impl Fn(&mut QueueRules),
    ) -> Result<()> {
        self.change(queue, |rules, inherited| {
            change(rules);
            rules.pause_only = false;
            differs(rules, inherited)
        })
        .await
    }

    /// Changes rules as long as others do; `change` answers whether they are to be kept.
    async fn change(
        &self,
        queue: &str,
        change: impl Fn(&mut QueueRules, &QueueRules) -> bool,
    ) -> Result<()> {
        loop {
            let book = self.0.store.queue_rules().await?;
            let inherited = book.inherited(queue);
            let mut rules = book.set_for(queue).unwrap_or(&inherited).clone();
            let was = rules.version;
            // Without a pattern, rules that say nothing are still set: somebody wanted them so.
            let is_kept = change(&mut rules, &inherited) || !book.has_pattern(queue);
            match self.replace(queue, was, is_kept.then_some(rules)).await {
                Err(Error::Invalid(Invalid::RuleChanged { .. })) => {}
                answer => return answer,
            }
        }
    }
}

/// Rules that somebody gives are their own, whatever they were read as.
fn owned(rules: QueueRules) -> QueueRules {
    QueueRules { pause_only: false, ..rules }
}

fn differs(rules: &QueueRules, inherited: &QueueRules) -> bool {
    QueueRules { version: 0, ..rules.clone() } != *inherited
}
