//! Claims that stand: they found nothing, and wait at the writer for what others bring.
//!
//! When an operation brings jobs for a claim that stands, it runs in the same transaction: one commit
//! brings a job from its enqueue to its worker, and nobody need be woken to ask for it. It is the claim
//! that it would be at any other moment. If it finds nothing, it stands on.
//!
//! Refuses to make those wait who bring much: a claim of many jobs runs in the transaction after theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rusqlite::Connection;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::request::{Claim, ClaimRequest, Seen};
use crate::sqlite::claim::claim;
use crate::sqlite::group::{Book, not_run};
use crate::sqlite::news::{Listeners, News, Ready};
use crate::sqlite::unheard::Unheard;
use crate::sqlite::writer::{Distant, closed};

/// So many jobs are claimed in the transaction that brings them: each costs whoever brings it 20 µs.
const JOBS_MAX: usize = 8;

const STANDS: u8 = 0;
const RUNS: u8 = 1;
const WITHDRAWN: u8 = 2;

/// Where a claim is: only while it stands can it be withdrawn on the spot.
#[derive(Debug, Default)]
struct Post(AtomicU8);

impl Post {
    /// `false`: it runs just now, and is answered whatever it finds.
    fn withdraw(&self) -> bool {
        self.0.swap(WITHDRAWN, Ordering::AcqRel) == STANDS
    }

    fn step(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// A claim that stands.
pub(super) struct Standing {
    ask: ClaimRequest,
    since: Seen,
    post: Arc<Post>,
    made: Option<Result<Claim>>,
    news: News,
    reply: oneshot::Sender<Result<(Unheard, Claim)>>,
    writer: Distant,
}

/// Where the answer to a claim that stands is heard.
pub(super) struct Answer {
    post: Arc<Post>,
    answer: oneshot::Receiver<Result<(Unheard, Claim)>>,
}

impl Standing {
    pub fn new(ask: ClaimRequest, since: Seen, writer: Distant) -> (Self, Answer) {
        let (post, (reply, answer)) = (Arc::new(Post::default()), oneshot::channel());
        let waits = Answer { post: Arc::clone(&post), answer };
        (Self { ask, since, post, made: None, news: News::default(), reply, writer }, waits)
    }

    /// Whether the claim before it has seen everything that came.
    pub fn is_up_to_date(&self, book: &Book) -> bool {
        self.since.brought == book.brought
    }

    /// Takes it up, unless nobody waits for it any more.
    pub fn take_up(self) -> Option<Self> {
        (!self.reply.is_closed() && self.post.step(STANDS, RUNS)).then_some(self)
    }

    /// Runs it, as any claim. May be called again after a rollback.
    pub fn run(&mut self, conn: &Connection, now: i64, book: &mut Book) -> Result<()> {
        self.news = News::default();
        let made = claim(&mut book.turn(conn, now, &mut self.news), &self.ask);
        let ran = made.as_ref().map(|_| ()).map_err(Clone::clone);
        self.made = Some(made);
        ran
    }

    /// It ran, but what it did was taken back.
    pub fn fail(&mut self, error: Error) {
        self.made = Some(Err(error));
    }

    /// Answers, after the commit or its failure; `Some` when it stands on.
    pub fn answer(mut self, committed: Result<()>, listeners: &Listeners) -> Option<Self> {
        let made = self.made.take();
        let made = committed.and_then(|()| made.unwrap_or_else(|| Err(not_run())));
        if made.as_ref().is_ok_and(|claim| self.is_nothing(claim)) && self.post.step(RUNS, STANDS) {
            return Some(self);
        }
        let writer = self.writer.reach();
        let answer = match (made, writer) {
            (Ok(claim), Some(writer)) => {
                listeners.tell(self.news);
                Ok((Unheard::new(claim.token, writer), claim))
            }
            // The store is gone, and whoever asked with it.
            (Ok(_), None) => return None,
            (Err(error), _) => Err(error),
        };
        // One that nobody hears is undone by its drop.
        drop(self.reply.send(answer));
        None
    }

    /// Whether there is no job and no earlier alarm for whoever asked.
    fn is_nothing(&self, claim: &Claim) -> bool {
        let is_sooner = |due| self.since.next_due.is_none_or(|known| due < known);
        claim.jobs.is_empty() && !claim.next_due.is_some_and(is_sooner)
    }

    fn is_for(&self, ready: &Ready) -> bool {
        let is_ready = |queue| ready.get(queue).is_some_and(|jobs| *jobs > 0);
        self.ask.lanes.iter().any(|lane| is_ready(&lane.queue))
    }

    /// What there is for others besides what it took.
    fn leave(&self, ready: &mut Ready) {
        for taken in self.made.iter().flatten().flat_map(|claim| &claim.jobs) {
            if let Some(jobs) = ready.get_mut(&taken.job.queue) {
                *jobs = jobs.saturating_sub(1);
            }
        }
    }
}

impl Answer {
    /// Waits for the answer; `None` when it is withdrawn before there is any.
    pub async fn hear(mut self, until: CancellationToken) -> Result<Option<Claim>> {
        let answer = tokio::select! {
            biased;
            answer = &mut self.answer => answer,
            () = until.cancelled() => {
                if self.post.withdraw() {
                    return Ok(None);
                }
                self.answer.await
            }
        };
        let (unheard, claim) = answer.map_err(|_| closed())??;
        unheard.hear();
        Ok(Some(claim))
    }
}

/// Claims that stand, first come, first served.
#[derive(Default)]
pub(super) struct Line(Vec<Standing>);

impl Line {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One more stands.
    pub fn add(&mut self, one: Standing) {
        self.0.retain(|other| !other.reply.is_closed());
        self.0.push(one);
    }

    /// The first of those for whom there may be something.
    pub fn call(&mut self, ready: &Ready) -> Option<Standing> {
        loop {
            let at = self.0.iter().position(|one| one.is_for(ready))?;
            if let Some(one) = self.0.remove(at).take_up() {
                return Some(one);
            }
        }
    }

    /// Runs those for whom there may be something, and adds them to the `called`. `false`: it is too much
    /// to be done on the way.
    pub fn serve(
        &mut self,
        mut ready: Ready,
        called: &mut Vec<Standing>,
        mut run: impl FnMut(&mut Standing) -> Result<()>,
    ) -> Result<bool> {
        if ready.values().fold(0_usize, |sum, jobs| sum.saturating_add(*jobs)) > JOBS_MAX {
            return Ok(false);
        }
        while let Some(mut one) = self.call(&ready) {
            let ran = run(&mut one);
            one.leave(&mut ready);
            called.push(one);
            ran?;
        }
        Ok(true)
    }
}
