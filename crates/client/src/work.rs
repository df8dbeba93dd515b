//! Work for a worker elsewhere, as `docs/protocol.md` says: register, claim, settle, beat, sign off.
//!
//! What carries a token that holds no more changes nothing, and is told so.

use std::time::Duration;

use http::Method;
use tidemill_core::span::Span;
use tidemill_core::wire::run::{AppendBody, SaidAnswer, SaidAnswers, SaidBody, SaidItem};
use tidemill_core::wire::work::{
    self, Answers, Ask, Beaten, Card, Pulse, Registered, ReportBody, Reports, SettledBody,
    SignedOff,
};
use tidemill_core::{Token, WorkerId};

use crate::error::Result;
use crate::http::{Client, Path, path};

/// The verbs of those who work elsewhere.
#[derive(Debug, Clone, Copy)]
pub struct Work<'a>(&'a Client);

impl Client {
    /// Work for a worker of this process.
    pub fn work(&self) -> Work<'_> {
        Work(self)
    }
}

impl Work<'_> {
    /// Registers a worker. It beats from now on, at least three times within its lease, or its jobs go to others.
    pub async fn register(&self, card: &Card) -> Result<WorkerId> {
        let registered: Registered = self.0.post(&path(["workers"]), card).await?;
        Ok(registered.id)
    }

    /// Signs a worker off; answers how many jobs it had still, which are ready again, unspent.
    pub async fn sign_off(&self, worker: WorkerId) -> Result<u64> {
        let request = self.0.request(Method::DELETE, &path(["workers", &worker.to_string()]));
        let signed_off: SignedOff = self.0.value(request).await?;
        Ok(signed_off.given_back)
    }

    /// Beats once `wait` is over, or sooner if a job of the worker is called off; answers the jobs that are. With
    /// `tokens`, those it has: what was claimed for it a minute before and is under none of them is given back.
    pub async fn beat(
        &self,
        worker: WorkerId,
        wait: Duration,
        tokens: Option<Vec<Token>>,
    ) -> Result<Beaten> {
        let pulse = Pulse { wait: Some(Span(wait)), tokens };
        let request = self.0.patient(Method::POST, &of(worker, "beat"), wait).json(&pulse);
        self.0.value(request).await
    }

    /// Claims jobs: answers as soon as there are some, or none when the wait is over. Claim once at a time.
    pub async fn claim(&self, worker: WorkerId, ask: &Ask) -> Result<work::Work> {
        let wait = ask.wait.map_or(Duration::ZERO, |Span(wait)| wait);
        let request = self.0.patient(Method::POST, &of(worker, "claim"), wait).json(ask);
        self.0.value(request).await
    }

    /// Settles attempts, in one transaction; answers in their order. Send it again when its answer was lost.
    pub async fn settle(
        &self,
        worker: WorkerId,
        reports: Vec<ReportBody>,
    ) -> Result<Vec<SettledBody>> {
        let number = reports.len();
        match self.0.post::<Answers>(&of(worker, "settle"), &Reports { reports }).await {
            // All of them are: one answer stands for them.
            Err(error) if error.code() == "lease_lost" => Ok(vec![SettledBody::Stale; number]),
            answers => Ok(answers?.answers),
        }
    }

    /// Writes to the journal of a run; `lease_lost` if its token does not hold any more.
    pub async fn append(&self, worker: WorkerId, body: &AppendBody) -> Result<()> {
        let request = self.0.request(Method::POST, &of(worker, "journal")).json(body);
        self.0.answer(request).await.map(drop)
    }

    /// Adds to the streams of jobs that the worker runs; answers in their order.
    pub async fn say(&self, worker: WorkerId, items: Vec<SaidItem>) -> Result<Vec<SaidAnswer>> {
        let number = items.len();
        match self.0.post::<SaidAnswers>(&of(worker, "stream"), &SaidBody { items }).await {
            Err(error) if error.code() == "lease_lost" => Ok(vec![SaidAnswer::Stale; number]),
            answers => Ok(answers?.answers),
        }
    }
}

fn of(worker: WorkerId, verb: &str) -> Path {
    path(["workers", &worker.to_string(), verb])
}
