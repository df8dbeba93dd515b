//! Many dead letters replayed at a pace, behind canaries: one goes first, then ten, then the rest; when one dies of the
//! same fingerprint again, the rest is left.
//!
//! It asks for three things alone, so that it goes the same way over a store and over a server that has one.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill_core::dead::{DeadFilter, DeadPlace, Triage};
use tidemill_core::{By, JobId, State};
use tidemill_store::DeadLetter;
use tokio::time::Instant;

use crate::engine::dead::Dead;
use crate::error::Error;

/// How fast dead letters are replayed, and what stops it.
#[derive(Debug, Clone)]
pub struct ReplayPace {
    /// At most this many a second. Defaults to 50.
    pub jobs_per_second: u32,
    /// Replay one, wait for it, then ten, then the rest; stop if one dies of the same fingerprint
    /// again. Defaults to true.
    pub canary: bool,
    /// How long to wait for a canary to finish. Defaults to 60 s.
    pub canary_wait: Duration,
}

impl Default for ReplayPace {
    fn default() -> Self {
        Self { jobs_per_second: 50, canary: true, canary_wait: Duration::from_mins(1) }
    }
}

/// What a replay came to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReplayReport {
    /// Sent on their way again.
    pub replayed: u64,
    /// Left as they were, because the replay stopped.
    pub left: u64,
    /// The canary that died of the same fingerprint, if one did.
    pub stopped_by: Option<JobId>,
    /// The canary that had not finished in time, if one had not.
    pub unfinished_canary: Option<JobId>,
}

/// What a replay asks of whoever has the dead letters.
pub trait Replaying {
    /// Why it cannot.
    type Error;

    /// Dead letters, latest death first; those behind a place, if one is given.
    fn letters(
        &self,
        filter: &DeadFilter,
        before: Option<DeadPlace>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<DeadLetter>, Self::Error>> + Send;

    /// Sends these on their way again; answers those that were dead.
    fn send(
        &self,
        ids: &[JobId],
        by: By<'_>,
    ) -> impl Future<Output = Result<Vec<JobId>, Self::Error>> + Send;

    /// How a job has ended; `None`: it has not in this time.
    fn ended(
        &self,
        id: JobId,
        wait: Duration,
    ) -> impl Future<Output = Result<Option<State>, Self::Error>> + Send;
}

impl Replaying for Dead<'_> {
    type Error = Error;

    async fn letters(
        &self,
        filter: &DeadFilter,
        before: Option<DeadPlace>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, Error> {
        self.list(filter, before, limit).await
    }

    async fn send(&self, ids: &[JobId], by: By<'_>) -> Result<Vec<JobId>, Error> {
        self.replay_these(ids, by).await
    }

    async fn ended(&self, id: JobId, wait: Duration) -> Result<Option<State>, Error> {
        match self.0.wait(id, wait).await {
            Ok(view) => Ok(Some(view.state)),
            Err(Error::WaitTimeout { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A dead letter that is to be replayed, and its fingerprint.
type Letter = (JobId, String);

/// Replays all that match, at a pace. `progress` is told how many went and how many there are.
pub async fn replay<R: Replaying>(
    dead: &R,
    filter: &DeadFilter,
    by: By<'_>,
    pace: &ReplayPace,
    mut progress: impl FnMut(u64, u64),
) -> Result<ReplayReport, R::Error> {
    let all = matching(dead, filter).await?;
    let mut report = ReplayReport { left: all.len() as u64, ..ReplayReport::default() };
    let mut rest = &all[..];
    let mut wave = if pace.canary { 1 } else { all.len().max(1) };
    let mut ticks = Ticks::new(pace.jobs_per_second);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(wave.min(rest.len()));
        rest = later;
        let sent = send(dead, now, by, &mut ticks, &mut report, &mut progress).await?;
        // Of those that were refused nothing is learnt: the next go in their place.
        if pace.canary && sent.is_empty() {
            continue;
        }
        if pace.canary && !rest.is_empty() && !canaries_live(dead, &sent, pace, &mut report).await?
        {
            break;
        }
        wave = if wave == 1 { 10 } else { all.len() };
    }
    Ok(report)
}

/// The matching dead letters that are not on their way already.
async fn matching<R: Replaying>(dead: &R, filter: &DeadFilter) -> Result<Vec<Letter>, R::Error> {
    const PAGE: usize = 1000;
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let letters = dead.letters(filter, before, PAGE).await?;
        before = letters.last().filter(|_| letters.len() == PAGE).map(DeadLetter::place);
        let waiting = letters.into_iter().filter(|letter| letter.triage != Triage::Retrying);
        all.extend(waiting.map(|letter| (letter.id, letter.fingerprint)));
        if before.is_none() {
            return Ok(all);
        }
    }
}

/// When how many may go, over all waves.
struct Ticks {
    /// How many go together.
    jobs: usize,
    /// Until one more may go.
    pause: Duration,
    next: Instant,
}

impl Ticks {
    fn new(jobs_per_second: u32) -> Self {
        let pause = Duration::from_secs(1) / jobs_per_second.max(1);
        Self { jobs: (jobs_per_second / 10).max(1) as usize, pause, next: Instant::now() }
    }

    /// Waits until so many may go.
    async fn tick(&mut self, jobs: usize) {
        tokio::time::sleep_until(self.next).await;
        self.next = self.next.max(Instant::now()) + self.pause * jobs as u32;
    }
}

async fn send<R: Replaying>(
    dead: &R,
    letters: &[Letter],
    by: By<'_>,
    ticks: &mut Ticks,
    report: &mut ReplayReport,
    progress: &mut impl FnMut(u64, u64),
) -> Result<Vec<Letter>, R::Error> {
    let mut sent = Vec::new();
    for chunk in letters.chunks(ticks.jobs) {
        ticks.tick(chunk.len()).await;
        let ids: Vec<_> = chunk.iter().map(|(id, _)| *id).collect();
        let gone = dead.send(&ids, by).await?;
        report.left -= ids.len() as u64;
        report.replayed += gone.len() as u64;
        sent.extend(chunk.iter().filter(|(id, _)| gone.contains(id)).cloned());
        progress(report.replayed, report.replayed + report.left);
    }
    Ok(sent)
}

/// Waits for a wave to finish; says whether the next one may go.
async fn canaries_live<R: Replaying>(
    dead: &R,
    sent: &[Letter],
    pace: &ReplayPace,
    report: &mut ReplayReport,
) -> Result<bool, R::Error> {
    for (id, fingerprint) in sent {
        match dead.ended(*id, pace.canary_wait).await? {
            Some(State::Dead) => {
                let filter = DeadFilter { ids: vec![*id], ..DeadFilter::default() };
                let again = dead.letters(&filter, None, 1).await?;
                if again.iter().any(|letter| letter.fingerprint == *fingerprint) {
                    report.stopped_by = Some(*id);
                    return Ok(false);
                }
            }
            Some(_) => {}
            None => {
                report.unfinished_canary = Some(*id);
                return Ok(false);
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use jiff::Timestamp;
    use tidemill_core::ErrorClass;

    use super::*;

    /// Somebody with so many dead letters, who sends none of them.
    struct Refuses(usize);

    impl Replaying for Refuses {
        type Error = Infallible;

        async fn letters(
            &self,
            _: &DeadFilter,
            _: Option<DeadPlace>,
            _: usize,
        ) -> Result<Vec<DeadLetter>, Infallible> {
            let letter = |_| DeadLetter {
                id: JobId::new(),
                kind: "k".to_owned(),
                queue: "q".to_owned(),
                tenant: None,
                class: ErrorClass::Permanent,
                error: "no".to_owned(),
                fingerprint: "f".to_owned(),
                attempt: 1,
                died_at: Timestamp::UNIX_EPOCH,
                triage: Triage::New,
                redrives: 0,
                archived: false,
                dead: true,
                recovered: false,
                notes: Vec::new(),
            };
            Ok((0..self.0).map(letter).collect())
        }

        async fn send(&self, _: &[JobId], _: By<'_>) -> Result<Vec<JobId>, Infallible> {
            Ok(Vec::new())
        }

        async fn ended(&self, _: JobId, _: Duration) -> Result<Option<State>, Infallible> {
            Ok(None)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn canaries_that_are_refused_keep_to_the_pace() {
        let pace = ReplayPace { jobs_per_second: 50, ..ReplayPace::default() };
        let began = Instant::now();
        let by = By::from("me");
        let replayed = replay(&Refuses(101), &DeadFilter::default(), by, &pace, |_, _| {}).await;
        assert_eq!(replayed, Ok(ReplayReport::default()));
        assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    }
}
