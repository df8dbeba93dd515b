//! The rules a history must obey, each on its own; every violation is a sentence.

use std::collections::{BTreeMap, BTreeSet};

use tidemill::{JobFilter, JobId, JobView, Receipt, State, Tidemill, Token};

use super::history::{Effect, History, Intent, Way};
use super::work::{Plan, Work, child_of, parent_of};

/// All that is known when it is over.
#[derive(Debug)]
pub struct Books<'a> {
    pub history: &'a History,
    pub jobs: &'a BTreeMap<JobId, JobView>,
    /// What the producers' own transactions committed.
    pub ledger: &'a BTreeSet<JobId>,
    pub frozen: &'a BTreeSet<u32>,
}

/// All jobs of the store.
pub async fn all_jobs(mill: &Tidemill) -> Vec<JobView> {
    let mut all: Vec<JobView> = Vec::new();
    loop {
        let before = all.last().map(|view| view.job.id);
        let filter = JobFilter { before, limit: 1000, ..JobFilter::default() };
        let page = mill.jobs(&filter).await.unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

impl Books<'_> {
    /// Every violation.
    pub fn audit(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (id, receipt) in &self.history.acks {
            wrong.extend(self.lost(*id, receipt));
        }
        for view in self.jobs.values() {
            wrong.extend(self.unexpected(view));
            wrong.extend(self.misjudged(view));
            wrong.extend(self.childless(view));
        }
        for (id, effects) in &self.history.effects {
            wrong.extend(self.misdone(*id, effects));
        }
        for intent in self.history.intents.values() {
            wrong.extend(self.torn(intent));
        }
        for key in self.history.unique_keys() {
            wrong.extend(self.doubled(key));
        }
        for (line, ids) in self.history.lines() {
            wrong.extend(self.misordered(line, &ids));
        }
        wrong
    }

    /// What was acknowledged is there, and what was refused is not.
    fn lost(&self, id: JobId, receipt: &Receipt) -> Option<String> {
        let stands = self.jobs.contains_key(&receipt.id());
        let own = self.jobs.contains_key(&id);
        (!stands || own != receipt.is_new())
            .then(|| format!("lost: {id} was answered {receipt:?}; it is there: {own}"))
    }

    /// Nothing is there that nobody asked for.
    fn unexpected(&self, view: &JobView) -> Option<String> {
        let id = view.job.id;
        let is_child = self.plan(id) == Some(Plan::Child);
        let asked = match self.history.intents.get(&id) {
            Some(intent) => intent.way != Way::RolledBack,
            None => is_child && self.state(parent_of(id)) == Some(State::Done),
        };
        (!asked).then(|| format!("unexpected: {id} {:?}", view.job.payload))
    }

    /// Every job came to the one outcome its plan allows.
    fn misjudged(&self, view: &JobView) -> Option<String> {
        let (id, plan) = (view.job.id, self.plan(view.job.id)?);
        let expected = if plan == Plan::Fatal { State::Dead } else { State::Done };
        let tokens = || self.history.effects.get(&id).into_iter().flatten().map(|e| e.token);
        let output = view.output.as_ref().and_then(|output| output.read::<i64>().ok());
        if view.state != expected {
            return Some(format!("{id} ({plan:?}) is {:?}: {:?}", view.state, view.error));
        }
        if view.token.is_none() || tokens().max() != view.token {
            let all: Vec<_> = tokens().collect();
            return Some(format!("{id} was settled by {:?}, its attempts: {all:?}", view.token));
        }
        (expected == State::Done && output.map(Token) != view.token)
            .then(|| format!("{id} was settled by {:?} with the output of {output:?}", view.token))
    }

    /// Attempts are numbered as the plan demands: losses and stops spend none, failures one each.
    fn misdone(&self, id: JobId, effects: &[Effect]) -> Option<String> {
        let Some(plan) = self.plan(id) else { return Some(format!("unknown: an effect of {id}")) };
        let tokens: BTreeSet<Token> = effects.iter().map(|effect| effect.token).collect();
        if tokens.len() != effects.len() {
            return Some(format!("{id} ran twice under one token: {effects:?}"));
        }
        let late = effects.windows(2).find(|pair| pair[0].token > pair[1].token);
        if let Some(late) = late.filter(|pair| !self.frozen.contains(&pair[1].pid)) {
            return Some(format!("{id} ran twice at once, and nobody was frozen: {late:?}"));
        }
        let mut in_order: Vec<_> = effects.iter().map(|e| (e.token, e.attempt)).collect();
        in_order.sort_unstable();
        let numbers: Vec<u16> = in_order.iter().map(|(_, attempt)| *attempt).collect();
        let last = if let Plan::Flaky(failures) = plan { failures + 1 } else { 1 };
        let each: BTreeSet<u16> = numbers.iter().copied().collect();
        (!numbers.is_sorted() || each != (1..=last).collect())
            .then(|| format!("{id} ({plan:?}) has attempts {numbers:?}"))
    }

    /// A transaction of the caller's own has both, its row and its job, or neither.
    fn torn(&self, intent: &Intent) -> Option<String> {
        let id = intent.id;
        let (row, job) = (self.ledger.contains(&id), self.jobs.contains_key(&id));
        let whole = match intent.way {
            Way::Plainly => true,
            Way::RolledBack => !row && !job,
            Way::InTransaction => row == job,
        };
        (!whole).then(|| format!("torn: {intent:?} has its row: {row}, its job: {job}"))
    }

    /// A done parent has its child. The plan is the store's: a job that is kept for after another
    /// takes over the payload of later duplicates.
    fn childless(&self, view: &JobView) -> Option<String> {
        let id = view.job.id;
        let is_parent = view.state == State::Done && self.plan(id) == Some(Plan::Parent);
        (is_parent && !self.jobs.contains_key(&child_of(id))).then(|| format!("childless: {id}"))
    }

    /// Jobs of one key live one after another: the tokens of their attempts do not interleave.
    fn doubled(&self, key: &str) -> Vec<String> {
        let same = self.history.intents.values().filter(|i| i.unique.as_deref() == Some(key));
        let mut lives: Vec<_> = same.filter_map(|intent| self.life(intent.id)).collect();
        lives.sort_unstable();
        let overlapping = lives.windows(2).filter(|pair| pair[0].1 >= pair[1].0);
        overlapping.map(|pair| format!("two live jobs of {key:?}: {pair:?}")).collect()
    }

    /// Jobs of one line live one after another, in the order of their enqueue.
    fn misordered(&self, line: &str, ids: &[JobId]) -> Vec<String> {
        let lives: Vec<_> = ids.iter().filter_map(|id| self.life(*id)).collect();
        let wrong = lives.windows(2).filter(|pair| pair[0].1 >= pair[1].0);
        wrong.map(|pair| format!("out of order in {line:?}: {pair:?}")).collect()
    }

    /// The first and last token of a job's attempts.
    fn life(&self, id: JobId) -> Option<(Token, Token, JobId)> {
        let tokens = self.history.effects.get(&id)?.iter().map(|effect| effect.token);
        Some((tokens.clone().min()?, tokens.max()?, id))
    }

    fn plan(&self, id: JobId) -> Option<Plan> {
        self.jobs.get(&id)?.job.payload.read::<Work>().ok().map(|work| work.plan)
    }

    fn state(&self, id: JobId) -> Option<State> {
        Some(self.jobs.get(&id)?.state)
    }
}
