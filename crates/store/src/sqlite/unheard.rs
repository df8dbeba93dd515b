//! A claim on its way to whoever asked for it.
//!
//! Whoever asked may be gone before the answer: its future was dropped. Nobody would then know of
//! the lease, and its worker would keep the jobs from all others for as long as it beats. So a
//! claim that is dropped on its way, at whichever end, is undone: its jobs wait again, unspent.
//!
//! It is made only of a claim that is committed: a token that was rolled back is another's next.

use tidemill_core::Token;

use crate::sqlite::rescue;
use crate::sqlite::writer::{Durability, Writer};

/// Goes along with a claim, and undoes it when it is dropped.
pub(super) struct Unheard {
    token: Option<Token>,
    writer: Writer,
}

impl Unheard {
    pub fn new(token: Option<Token>, writer: Writer) -> Self {
        Self { token, writer }
    }

    /// The claim has arrived.
    pub fn hear(mut self) {
        self.token = None;
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            self.writer.post(Durability::Lazy, move |turn| rescue::undo_claim(turn, token));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use tidemill_core::{NewJob, Payload, Priority, Settlement, State, WorkerId};

    use crate::request::{Claim, ClaimRequest, ClaimedJob, Lane, SettleItem, Share, WorkerCard};
    use crate::sqlite::Sqlite;
    use crate::{OpenOptions, Store};

    async fn store_with_a_job() -> crate::Result<(Sqlite, WorkerId, NewJob)> {
        let store = Sqlite::open(":memory:", OpenOptions::default()).await?;
        let worker = WorkerId::new();
        let (queues, kinds) = (vec!["default".to_owned()], Vec::new());
        store
            .register(WorkerCard {
                id: worker,
                name: "w".into(),
                queues,
                kinds,
                slots: 1,
                slots_of: std::collections::BTreeMap::new(),
                lease_ttl: None,
            })
            .await?;
        let job = NewJob::new("k", Payload::null());
        store.enqueue(vec![job.clone()]).await?;
        Ok((store, worker, job))
    }

    fn ask(worker: WorkerId) -> ClaimRequest {
        let lanes = vec![Lane { queue: "default".into(), priority: Priority::Normal }];
        ClaimRequest {
            worker,
            lanes,
            share: Share::default(),
            limits: std::sync::Arc::default(),
            edition: None,
            kinds: None,
            jobs_max: 1,
            stand: None,
        }
    }

    async fn give_back(store: &Sqlite, worker: WorkerId, claim: Claim) -> crate::Result<()> {
        let Some(token) = claim.token else { return Ok(()) };
        let item = |taken: ClaimedJob| SettleItem {
            job: taken.job,
            token,
            attempt: taken.attempt,
            lost: taken.lost,
            started_at: claim.now,
            gates: Vec::new(),
            settlement: Settlement::Again { delay: Duration::ZERO, spent: 0, failure: None },
            decided: false,
            run: None,
        };
        store.settle(worker, claim.jobs.into_iter().map(item).collect()).await?;
        Ok(())
    }

    #[tokio::test]
    async fn a_claim_whose_answer_nobody_takes_is_undone() -> crate::Result<()> {
        let (store, worker, job) = store_with_a_job().await?;
        let mut nobody = Context::from_waker(Waker::noop());
        let claiming = loop {
            let mut claiming = store.claim(ask(worker));
            match claiming.as_mut().poll(&mut nobody) {
                Poll::Pending => break claiming,
                // The writer was faster than we are.
                Poll::Ready(claim) => give_back(&store, worker, claim?).await?,
            }
        };
        // What the writer does after it: the claim is committed and its answer is on its way.
        store.beat(worker).await?;
        let state = async || store.job(job.id).await.map(|view| view.map(|view| view.state));
        assert_eq!(state().await?, Some(State::Running));
        drop(claiming);
        let claim = store.claim(ask(worker)).await?;
        assert_eq!(claim.jobs.len(), 1, "it waits again");
        assert_eq!((claim.jobs[0].attempt, claim.jobs[0].lost), (1, 0), "unspent");
        store.beat(worker).await?;
        assert_eq!(state().await?, Some(State::Running), "what arrived is not undone");
        store.close().await;
        Ok(())
    }

    #[tokio::test]
    async fn a_claim_whose_caller_is_gone_before_it_runs_leaves_no_lease() -> crate::Result<()> {
        let (store, worker, _) = store_with_a_job().await?;
        for _ in 0..200 {
            let mut claiming = store.claim(ask(worker));
            let mut nobody = Context::from_waker(Waker::noop());
            // The writer is anywhere between the message and the answer when this is dropped.
            let polled = claiming.as_mut().poll(&mut nobody);
            drop(claiming);
            // It may even have answered already: that one was heard, and is given back by hand.
            if let Poll::Ready(claim) = polled {
                give_back(&store, worker, claim?).await?;
            }
        }
        // Whatever undoes a claim stands in the writer's line before this is answered, and the look
        // at a database in memory stands behind it.
        store.beat(worker).await?;
        assert_eq!(store.unfinished().await?.running, 0);
        store.close().await;
        Ok(())
    }
}
