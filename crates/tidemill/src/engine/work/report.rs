//! Reports of how attempts ended, and what is settled for them.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::flow::plan::{self, Growth};
use tidemill_core::job::outcome::Waiting;
use tidemill_core::job::settle::Ended;
use tidemill_core::workflow::{ObjectKey, Parked, Waits};
use tidemill_core::{
    Error as Invalid, ErrorClass, Job, JobId, NewJob, Options, Payload, Retry, Settlement, Token,
    WorkerId, name,
};
use tidemill_store::run::RunWrites;
use tidemill_store::{ClaimedJob, SettleItem, Settled};

use super::hands::Given;
use super::{REPORTS_MAX, Work};
use crate::engine::heard::Heard;
use crate::engine::judge::{come_out, gates_of, judge, pause_asked, waiting_without_secrets};
use crate::engine::rules::renew;
use crate::engine::settle;
use crate::error::{Error, Result};
use crate::worker::execute::unstarted;
use crate::worker::job::Enqueue;

/// A step that a job adds to its flow.
#[derive(Debug, Clone)]
pub struct AddedStep {
    /// Its name; if it is taken, it gets a number.
    pub name: String,
    /// What it is made of.
    pub jobs: Vec<Enqueue>,
    /// They leave nothing behind that would have to be undone: needed in a saga before its point of no return.
    pub nothing_to_undo: bool,
}

/// What a handler says.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It is done.
    Done {
        /// What it returned.
        output: Payload,
        /// Jobs that are enqueued in the same transaction.
        follow_ups: Vec<Enqueue>,
        /// Steps that are added to the job's flow in the same transaction.
        steps: Vec<AddedStep>,
    },
    /// It failed. The class decides, with the policy in force, whether the job runs again.
    Failed {
        /// What kind of failure.
        class: ErrorClass,
        /// What happened, for people.
        message: String,
        /// When to try again, before the policy's delay.
        retry_after: Option<Duration>,
    },
    /// It wants to be called again later; no attempt is spent.
    Snooze(Duration),
    /// It is called off, for this reason.
    Cancel(String),
    /// It was not begun, or, where the report says when it started, is given back: ready again, no attempt spent.
    GiveBack,
    /// Its run waits.
    Wait {
        /// For what.
        waits: Waits,
        /// The number of the last piece of mail it has read.
        read: i64,
        /// Why it does not go on by itself, if so.
        parked: Option<Parked>,
        /// It continues anew: earlier attempts do not count.
        anew: bool,
    },
}

/// How one attempt ended.
#[derive(Debug, Clone)]
pub struct Report {
    /// The job.
    pub id: JobId,
    /// The token of its claim.
    pub token: Token,
    /// What its handler says.
    pub outcome: Outcome,
    /// The policy of its kind: it holds where the job has none, and goes before that of its queue.
    pub retry: Retry,
    /// When it started, by the worker's clock; for the history only.
    pub started_at: Option<Timestamp>,
    /// What its run wants written with it.
    pub run: Option<Box<RunWrites>>,
}

impl Report {
    /// One that says nothing more.
    pub fn new(id: JobId, token: Token, outcome: Outcome) -> Self {
        Self { id, token, outcome, retry: Retry::default(), started_at: None, run: None }
    }
}

/// The wishes of the jobs that come with a settle.
fn brought(item: &SettleItem) -> impl Iterator<Item = &Options> {
    let follow_ups = match &item.settlement {
        Settlement::Done { follow_ups, .. } => follow_ups.as_slice(),
        _ => &[],
    };
    let children = item.run.iter().flat_map(|run| &run.children);
    follow_ups.iter().chain(children).map(|job| &job.options)
}

impl Work<'_> {
    /// Settles attempts by what a worker reports, in one transaction; answers in their order. A report whose lease is
    /// lost is answered `Stale` and changes nothing; sent again, one is answered as before. So is one of a job that
    /// whoever reports does not reach. Two reports of one attempt are refused, and all others with them: which of them
    /// would count?
    pub async fn settle(
        &self,
        worker: WorkerId,
        reports: Vec<Report>,
        reaches: impl Fn(&Job) -> bool,
    ) -> Result<Vec<Settled>> {
        if reports.len() > REPORTS_MAX {
            return Err(
                Invalid::BatchTooLarge { jobs: reports.len(), jobs_max: REPORTS_MAX }.into()
            );
        }
        let mut seen = HashSet::with_capacity(reports.len());
        let twice = reports.iter().position(|report| !seen.insert((report.token, report.id)));
        if let Some(at) = twice {
            let id = reports[at].id;
            let reason = format!("the job {id} is reported twice; an attempt ends once");
            return Err(Error::from(Invalid::WorkInvalid { reason }).in_batch(at));
        }
        let (mill, mut answers) = (self.0, vec![Settled::Stale; reports.len()]);
        let (held, heard) = self.held(worker, &reports).await?;
        let (mut items, mut places) = (Vec::with_capacity(reports.len()), Vec::new());
        for (at, (report, given)) in reports.into_iter().zip(held).enumerate() {
            if let Some(given) = given.filter(|given| reaches(&given.claimed.job)) {
                items.push(self.item(report, given, heard).map_err(|error| error.in_batch(at))?);
                places.push(at);
            }
        }
        let hearers = mill.hearers(items.iter().flat_map(brought)).await?;
        for (item, at) in items.iter().zip(&places) {
            let checked = brought(item).try_for_each(|options| hearers.check(options));
            checked.map_err(|error| error.in_batch(*at))?;
        }
        let keys: Vec<_> = items.iter().map(|item| (item.token, item.job.id)).collect();
        let settled = settle::settle(mill, worker, &items).await?;
        mill.0.hands.settled(worker, keys.into_iter());
        for (place, answer) in places.into_iter().zip(settled) {
            if let Some(slot) = answers.get_mut(place) {
                *slot = answer;
            }
        }
        Ok(answers)
    }

    /// The jobs that are reported on: as they are remembered, else as the store has them. And the store's present,
    /// where one is not remembered, nor when it was given: the clock of this machine judges no deadline.
    async fn held(
        &self,
        worker: WorkerId,
        reports: &[Report],
    ) -> Result<(Vec<Option<Given>>, Option<Heard>)> {
        let asked = || reports.iter().map(|report| (report.token, report.id));
        let mut held = self.0.0.hands.given(worker, asked());
        let missing: Vec<_> =
            asked().zip(&held).filter(|(_, held)| held.is_none()).map(|(key, _)| key).collect();
        if missing.is_empty() {
            return Ok((held, None));
        }
        let found = self.0.0.store.held(worker, &missing).await?;
        let is_found = found.iter().any(Option::is_some);
        let heard = if is_found { Some(Heard::now(self.0.0.store.now().await?)) } else { None };
        if found.iter().flatten().any(|claimed| !claimed.gates.is_empty()) {
            // Which gates it went through is told by the rules; this process may never have claimed by them.
            renew(self.0).await?;
        }
        let (mut found, known) = (found.into_iter(), self.0.0.rules.known());
        for place in held.iter_mut().filter(|held| held.is_none()) {
            *place = found.next().flatten().map(|claimed| {
                let gates = gates_of(&known.book, &claimed);
                Given { claimed: ClaimedJob { gates, ..claimed }, at: None }
            });
        }
        Ok((held, heard))
    }

    fn item(self, report: Report, given: Given, heard: Option<Heard>) -> Result<SettleItem> {
        let mill = self.0;
        let Given { claimed, at } = given;
        let Report { id, token, outcome, retry, started_at, run } = report;
        if run.as_ref().is_some_and(|run| run.renewal.is_some()) {
            name::check_own("kind", &claimed.job.kind)?;
        }
        if run.as_ref().is_some_and(|run| run.object.is_some())
            && ObjectKey::of(&claimed.job).is_none()
        {
            let reason =
                format!("the job {id} has no key, and an object is known by its queue and its key");
            return Err(Invalid::WorkInvalid { reason }.into());
        }
        // Whoever has begun it says when, or what came of it.
        let is_unstarted =
            matches!(outcome, Outcome::GiveBack) && started_at.is_none() && run.is_none();
        let known = at.or(heard);
        let present =
            known.map_or_else(|| mill.0.clock.now(), |known| known.present(&mill.0.clock));
        let started_at = self.started(at.map(Heard::at), started_at);
        let ended = match outcome {
            Outcome::Wait { waits, read, parked, anew } => {
                let settlement = self.waiting(&claimed, waits, read, parked, anew);
                return Ok(self.settled(claimed, token, started_at, settlement, None, run));
            }
            Outcome::Done { output, follow_ups, steps } => {
                let follow_ups = self.follow_ups(&claimed.job, follow_ups, steps)?;
                Ended::Done { output, follow_ups }
            }
            Outcome::Failed { class, message, retry_after } => {
                Ended::Failed { class, message, retry_after }
            }
            Outcome::Snooze(delay) => Ended::Snoozed(delay),
            Outcome::Cancel(reason) => Ended::Cancelled(reason),
            Outcome::GiveBack => Ended::GivenBack,
        };
        let asked = pause_asked(&ended);
        let settlement = judge(mill, &claimed, &retry, ended, present);
        if is_unstarted {
            let mut item = unstarted(mill, claimed, token, settlement);
            if at.is_none() {
                // Which rates it went through is known only to who remembers the claim.
                item.gates.iter_mut().for_each(|end| end.unused = None);
            }
            return Ok(item);
        }
        Ok(self.settled(claimed, token, started_at, settlement, asked, run))
    }

    /// When an attempt started: as the worker says, whose clock may be wrong, but not before it was given the job nor
    /// after now; else when it was given it.
    fn started(self, given_at: Option<Timestamp>, said: Option<Timestamp>) -> Option<Timestamp> {
        let now = self.0.0.clock.now();
        let earliest = given_at.map_or(Timestamp::MIN, |at| at.min(now));
        said.map(|said| said.clamp(earliest, now)).or(given_at)
    }

    fn settled(
        self,
        claimed: ClaimedJob,
        token: Token,
        started_at: Option<Timestamp>,
        settlement: Settlement,
        asked: Option<Duration>,
        run: Option<Box<RunWrites>>,
    ) -> SettleItem {
        let ClaimedJob { job, attempt, lost, gates, .. } = claimed;
        if let Some(started_at) = started_at {
            let ran = self.0.0.clock.now().duration_since(started_at);
            let series = self.0.0.measures.series.of(&job.queue, &job.kind);
            series.runs.see_time(Duration::try_from(ran).unwrap_or_default());
        }
        let gates = come_out(&self.0.0.rules.known().book, &job, gates, &settlement, asked);
        let started_at = started_at.unwrap_or_else(|| self.0.0.clock.now());
        SettleItem { job, token, attempt, lost, started_at, gates, settlement, decided: false, run }
    }

    fn waiting(
        self,
        claimed: &ClaimedJob,
        mut waits: Waits,
        read: i64,
        parked: Option<Parked>,
        anew: bool,
    ) -> Settlement {
        // Whatever it waits for, its deadline finds it.
        let deadline = self.0.0.rules.known().deadlines(&claimed.job).finish_by();
        waits.until = waits.until.into_iter().chain(deadline).min();
        let spent = if anew { 0 } else { claimed.attempt.saturating_sub(1) };
        let mut waiting = Waiting { waits, read, spent, parked };
        waiting_without_secrets(self.0, &claimed.job, &mut waiting);
        Settlement::Wait(Box::new(waiting))
    }

    fn follow_ups(
        self,
        job: &Job,
        jobs: Vec<Enqueue>,
        steps: Vec<AddedStep>,
    ) -> Result<Vec<NewJob>> {
        let mut all: Vec<NewJob> =
            jobs.into_iter().map(|job| self.0.checked(job)).collect::<Result<_>>()?;
        for AddedStep { name: step, jobs, nothing_to_undo } in steps {
            let Some(place) = job.options.flow.as_deref() else {
                let reason = "this job is in no flow; start one, or let jobs follow up".to_owned();
                return Err(Invalid::FlowInvalid { step, reason }.into());
            };
            for job in self.0.checked_jobs(&step, jobs)? {
                let growth = Growth { behind: place, name: &step, nothing_to_undo };
                all.push(plan::grow(job, growth)?);
            }
        }
        Ok(all)
    }
}
