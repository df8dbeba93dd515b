//! The verdict: what the store says, held against what the processes wrote down.

use std::collections::BTreeMap;

use tidemill::{JobFilter, JobId, JobView, State, Tidemill, Timestamp, Token};

use super::check::{Books, all_jobs};
use super::field::Field;
use super::history::History;
use super::nemesis::Tally;
use super::transaction::Ledger;

const SHOWN_MAX: usize = 20;

/// Finished jobs that were seen on the way: they must stay as they were.
#[derive(Debug, Default)]
pub struct Remembered(BTreeMap<JobId, Ending>);

impl Remembered {
    /// Looks at the latest finished jobs. While the database is away there is nothing to see.
    pub async fn look(&mut self, mill: &Tidemill) {
        for state in [State::Done, State::Dead] {
            let filter = JobFilter { state: Some(state), limit: 1000, ..JobFilter::default() };
            let wrong = self.see(&mill.jobs(&filter).await.unwrap_or_default());
            assert!(wrong.is_empty(), "{wrong:?}");
        }
    }

    /// Holds jobs against what was seen of them before, and remembers those that are new.
    pub fn see(&mut self, jobs: &[JobView]) -> Vec<String> {
        let finished = jobs.iter().filter(|view| view.state.is_final());
        let changed = finished.filter_map(|view| {
            let seen = ending(view);
            let before = *self.0.entry(view.job.id).or_insert(seen);
            (before != seen).then(|| changed(view.job.id, &before, Some(&seen)))
        });
        changed.collect()
    }

    /// Those that are not as they were, or not there any more.
    pub fn changed(&self, jobs: &BTreeMap<JobId, JobView>) -> Vec<String> {
        let gone = self.0.iter().filter_map(|(id, before)| {
            let now = jobs.get(id).map(ending);
            (now != Some(*before)).then(|| changed(*id, before, now.as_ref()))
        });
        gone.collect()
    }
}

/// How a job ended, which is for ever.
type Ending = (State, Option<Token>, Option<Timestamp>);

fn ending(view: &JobView) -> Ending {
    (view.state, view.token, view.finished_at)
}

fn changed(id: JobId, before: &Ending, now: Option<&Ending>) -> String {
    format!("{id} left its final state: it was {before:?} and is {now:?}")
}

pub struct Verdict;

impl Verdict {
    /// Prints what happened, and fails if any of it should not have.
    pub async fn reach(field: &Field, remembered: &Remembered, tally: &Tally) {
        let history = History::read(&field.folder);
        let jobs =
            all_jobs(&field.mill).await.into_iter().map(|view| (view.job.id, view)).collect();
        let ledger = Ledger::rows(&field.database.url).await.unwrap();
        let ledger = ledger.iter().map(|id| id.parse().unwrap()).collect();
        let books =
            Books { history: &history, jobs: &jobs, ledger: &ledger, frozen: &field.frozen };
        let mut wrong = books.audit();
        wrong.extend(Self::left_over(field).await);
        wrong.extend(remembered.changed(&jobs));
        if history.stale == 0 {
            wrong.push("no stale write was ever refused: no zombie was put to the test".into());
        }
        wrong.extend(tally.iter().filter(|(_, n)| **n == 0).map(|(n, _)| format!("never: {n}")));
        print(field, &history, &books, tally, remembered.0.len());
        let shown: Vec<_> = wrong.iter().take(SHOWN_MAX).map(String::as_str).collect();
        assert!(wrong.is_empty(), "{} violations:\n{}", wrong.len(), shown.join("\n"));
    }

    /// What should be gone when everything has finished and everybody has left.
    async fn left_over(field: &Field) -> Vec<String> {
        let mut wrong = Vec::new();
        for worker in field.mill.workers().await.unwrap() {
            wrong.push(format!("worker {} is still registered", worker.name));
        }
        for queue in field.mill.queues().await.unwrap() {
            let ready: u64 = queue.ready.values().sum();
            if ready + queue.scheduled + queue.running > 0 {
                wrong.push(format!("queue {} is not empty: {queue:?}", queue.name));
            }
        }
        wrong
    }
}

fn print(field: &Field, history: &History, books: &Books<'_>, tally: &Tally, remembered: usize) {
    let mut rows: Vec<(String, usize)> =
        tally.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
    let unknown = history.intents.keys().filter(|id| !history.acks.contains_key(id));
    let recovered = unknown.clone().filter(|id| books.jobs.contains_key(id)).count();
    rows.extend([
        ("jobs asked for".to_owned(), history.intents.len()),
        ("acknowledged".to_owned(), history.acks.len()),
        ("of unknown fate".to_owned(), unknown.count()),
        ("of these, there after all".to_owned(), recovered),
        ("jobs in the store".to_owned(), books.jobs.len()),
        ("effects".to_owned(), history.effects_in_all),
        ("stale writes refused".to_owned(), usize::try_from(history.stale).unwrap()),
        ("finished jobs seen twice".to_owned(), remembered),
    ]);
    println!("{}: crash test", field.database.name());
    for (name, n) in rows {
        println!("  {name:<28} {n:>8}");
    }
}
