//! Holds the store against the oracle: its gates after each operation, its jobs at the end.

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::test_runner::TestCaseError;
use proptest::{prop_assert, prop_assert_eq};
use tidemill_core::State;

use super::oracle::{Place, horizon};
use super::play::Play;
use crate::games::{Verdict, fine};

impl Play {
    /// Those are inside of gates who run, and no others; rates are where they should be.
    pub(super) async fn compare_gates(&self) -> Verdict {
        let names: Vec<String> = self.oracle.gates.iter().cloned().collect();
        let views = fine(self.stores[0].gates(&names).await)?;
        let views: BTreeMap<_, _> =
            views.into_iter().map(|view| (view.name.clone(), view)).collect();
        for name in names {
            let view = views.get(&name).cloned().unwrap_or_default();
            let inside: BTreeMap<_, _> =
                view.inside.into_iter().filter(|(_, jobs)| *jobs > 0).collect();
            prop_assert_eq!(inside, self.oracle.inside(&name), "inside of {:?}", name);
            // What is past is as good as forgotten, and a pause that no limit heeds is none.
            let ahead = |at: &Timestamp| *at > self.oracle.now;
            let tat = self.oracle.tats.get(&name).copied().filter(ahead);
            prop_assert_eq!(view.tat.filter(ahead), tat, "rate of {:?}", name);
            if horizon(&self.books[1], &name).pause.is_some() {
                let shut = self.oracle.shut.get(&name).copied().filter(ahead);
                let found = view.shut_until.filter(ahead);
                prop_assert_eq!(found, shut, "until when {:?} is shut", name);
            }
        }
        Ok(())
    }

    /// Everything has ended as it should, and nobody is left at any gate.
    pub(super) async fn compare_jobs(&self) -> Verdict {
        for (id, job) in &self.oracle.jobs {
            let Some(view) = fine(self.stores[1].job(*id).await)? else {
                return Err(TestCaseError::fail(format!("{id} is lost")));
            };
            let expected = match job.place {
                Place::Finished(state) => state,
                Place::Running { .. } => State::Running,
                Place::Waiting { due } if due > self.oracle.now => State::Scheduled,
                Place::Waiting { .. } => State::Ready,
            };
            prop_assert_eq!(view.state, expected, "{}", id);
            prop_assert_eq!((view.attempt, view.lost), (job.attempt, job.lost), "{}", id);
        }
        let names: Vec<String> = self.oracle.gates.iter().cloned().collect();
        for view in fine(self.stores[0].gates(&names).await)? {
            prop_assert!(view.held == 0, "{:?} holds {} at the end", view.name, view.held);
        }
        Ok(())
    }
}
