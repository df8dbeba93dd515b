//! Queues and their rules, limits, and who works.

use std::time::Duration;

use http::header::IF_MATCH;
use http::{Method, StatusCode};
use tidemill::core::why::QueueWhy;
use tidemill::store::{DepthView, QueueView, WorkerView};
use tidemill::{Limit, LimitState, NamedLimit, QueueRules};
use tokio::time::Instant;

use crate::error::Result;
use crate::http::{Client, WAIT_MAX, path};

impl Client {
    /// All queues that have jobs, dead letters or rules.
    pub async fn queues(&self) -> Result<Vec<QueueView>> {
        self.get(&path(["queues"]), &()).await
    }

    /// The rules that were set for a queue or pattern, or the default ones.
    pub async fn queue_rules(&self, queue: &str) -> Result<QueueRules> {
        self.get(&path(["queues", queue, "rules"]), &()).await
    }

    /// Sets the rules of a queue or pattern, or takes them away.
    ///
    /// Rules that were read with [`queue_rules`](Self::queue_rules) carry their version, and are refused
    /// (`rule_changed`) when somebody else has set them meanwhile.
    pub async fn set_queue(&self, queue: &str, rules: Option<QueueRules>) -> Result<()> {
        let was = rules.as_ref().map(|rules| rules.version).filter(|version| *version > 0);
        self.change_rules(queue, was, rules).await
    }

    /// The same over rules of this version alone, as [`queue_rules`](Self::queue_rules) told it; 0: there were none.
    /// Refused (`rule_changed`) when others are there by now.
    pub async fn replace_queue(
        &self,
        queue: &str,
        was: u64,
        rules: Option<QueueRules>,
    ) -> Result<()> {
        self.change_rules(queue, Some(was), rules).await
    }

    async fn change_rules(
        &self,
        queue: &str,
        was: Option<u64>,
        rules: Option<QueueRules>,
    ) -> Result<()> {
        let place = path(["queues", queue, "rules"]);
        let request = match rules {
            Some(rules) => self.request(Method::PUT, &place).json(&rules),
            None => self.request(Method::DELETE, &place),
        };
        let request = match was {
            Some(was) => request.header(IF_MATCH, &format!("\"{was}\"")),
            None => request,
        };
        self.told(request).await
    }

    /// Lets no job of a queue start any more; those that run go on.
    pub async fn pause(&self, queue: &str) -> Result<()> {
        self.told(self.request(Method::POST, &path(["queues", queue, "pause"]))).await
    }

    /// Lets the jobs of a queue start again.
    pub async fn resume(&self, queue: &str) -> Result<()> {
        self.told(self.request(Method::POST, &path(["queues", queue, "resume"]))).await
    }

    /// Changes the rules of a queue and nothing else of them, whoever else changes some.
    pub async fn change_queue(&self, queue: &str, change: impl Fn(&mut QueueRules)) -> Result<()> {
        loop {
            let mut rules = self.queue_rules(queue).await?;
            let was = rules.version;
            change(&mut rules);
            match self.replace_queue(queue, was, Some(rules)).await {
                Err(error) if error.code() == "rule_changed" => {}
                answer => return answer,
            }
        }
    }

    /// Why a queue is as deep as it is, and when it will be empty.
    pub async fn why_queue(&self, queue: &str) -> Result<QueueWhy> {
        self.get(&path(["queues", queue, "why"]), &()).await
    }

    /// What a queue has counted: how many jobs wait in it, how many came and went, whose they are.
    pub async fn depth(&self, queue: &str) -> Result<DepthView> {
        self.get(&path(["queues", queue, "depth"]), &()).await
    }

    /// Whether a queue has reached its high watermark and has not been down at the low one since: producers should
    /// pause.
    pub async fn is_above(&self, queue: &str) -> Result<bool> {
        Ok(self.depth(queue).await?.above_since.is_some())
    }

    /// Waits until a queue is down at its low watermark, at once when it is not above. `false` when that takes longer
    /// than `timeout`.
    pub async fn until_below(&self, queue: &str, timeout: Duration) -> Result<bool> {
        let began = Instant::now();
        loop {
            let turn = timeout.saturating_sub(began.elapsed()).min(WAIT_MAX);
            let request = self.patient(Method::GET, &path(["queues", queue, "wait"]), turn);
            let request = request.query(&[("timeout", format!("{}ms", turn.as_millis()))]);
            let is_below = self.answer(request).await?.status() != StatusCode::ACCEPTED;
            if is_below || began.elapsed() >= timeout {
                return Ok(is_below);
            }
        }
    }

    /// All limits that have a name, and how they stand.
    pub async fn limit_states(&self) -> Result<Vec<LimitState>> {
        self.get(&path(["limits"]), &()).await
    }

    /// All limits that have a name.
    pub async fn limits(&self) -> Result<Vec<NamedLimit>> {
        Ok(self.limit_states().await?.into_iter().map(|state| state.limit).collect())
    }

    /// Sets a limit on the jobs of a queue or pattern, or takes it away.
    pub async fn set_limit(&self, queue: &str, name: &str, limit: Option<Limit>) -> Result<()> {
        let Some(limit) = limit else {
            return match self.delete_limit(queue, name).await {
                Err(error) if error.code() == "limit_unknown" => Ok(()),
                deleted => deleted,
            };
        };
        let request = self.request(Method::PUT, &path(["limits", name]));
        self.told(request.query(&[("queue", queue)]).json(&limit)).await
    }

    /// Takes a limit away.
    pub async fn delete_limit(&self, queue: &str, name: &str) -> Result<()> {
        let request = self.request(Method::DELETE, &path(["limits", name]));
        self.told(request.query(&[("queue", queue)])).await
    }

    /// All workers that beat.
    pub async fn workers(&self) -> Result<Vec<WorkerView>> {
        self.get(&path(["workers"]), &()).await
    }
}
