//! The end of the demo: what became of every job, as the store tells it, and what to try next.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::Serialize;
use tidemill::{FlowFilter, FlowId, JobFilter, State};
use tidemill_core::flow::FlowState;

use super::gates::Answer;
use super::handlers::Plan;
use super::kinds::KINDS;
use super::signup;
use super::tally::Tally;
use crate::app::{App, program};
use crate::duration::short;
use crate::exit::Outcome;
use crate::mill::Mill;
use crate::output::{self, Paint, count, grouped, line};

const PAGE: usize = 1000;

/// What became of it all.
#[derive(Debug, Serialize)]
pub struct Summary {
    run: String,
    took_ms: u64,
    jobs: u64,
    jobs_per_second: u64,
    waiting: u64,
    duplicates_joined: u64,
    flows: Flows,
    kinds: Vec<OfKind>,
    answers: Vec<Answer>,
}

#[derive(Debug, Serialize)]
struct OfKind {
    kind: &'static str,
    done: u64,
    cancelled: u64,
    dead: u64,
    retried: u64,
    rate_limited: u64,
    wait_us: Quantiles,
    run_us: Quantiles,
}

/// What became of the sign-ups.
#[derive(Debug, Default, Serialize)]
struct Flows {
    done: u64,
    failed: u64,
    unfinished: u64,
    /// One that failed or, if there is none, any.
    example: Option<FlowId>,
}

#[derive(Debug, Default, Serialize)]
struct Quantiles {
    p50: u64,
    p99: u64,
}

impl Quantiles {
    fn of(mut durations: Vec<Duration>) -> Self {
        durations.sort_unstable();
        let at = |part: usize| {
            let at = (durations.len() * part / 100).min(durations.len().saturating_sub(1));
            durations.get(at).map_or(0, |duration| duration.as_micros() as u64)
        };
        Self { p50: at(50), p99: at(99) }
    }
}

impl Summary {
    /// Counts the run's jobs in the store, which is the truth; times come from the tally.
    pub async fn read(
        mill: &Mill,
        plan: &Plan,
        tally: &Tally,
        took: Duration,
        answers: Vec<Answer>,
    ) -> Outcome<Self> {
        let states = states(mill, &plan.run).await?;
        let of = |kind: &str, state| states.get(&(kind.to_owned(), state)).copied().unwrap_or(0);
        let kinds = KINDS.iter().map(|(kind, _)| {
            let counts = tally.of(kind);
            OfKind {
                kind,
                done: of(kind, State::Done),
                cancelled: of(kind, State::Cancelled),
                dead: of(kind, State::Dead),
                retried: counts.retried,
                rate_limited: counts.limited,
                wait_us: Quantiles::of(counts.waits),
                run_us: Quantiles::of(counts.runs),
            }
        });
        let finished =
            states.iter().filter(|((_, state), _)| state.is_final()).map(|(_, n)| n).sum();
        let all: u64 = states.values().sum();
        Ok(Self {
            run: plan.run.clone(),
            took_ms: took.as_millis() as u64,
            jobs: finished,
            jobs_per_second: (finished as f64 / took.as_secs_f64()) as u64,
            waiting: all - finished,
            duplicates_joined: tally.joined.load(Relaxed),
            flows: flows(mill, plan).await?,
            kinds: kinds.collect(),
            answers,
        })
    }

    /// Prints it.
    pub fn show(&self, app: &App) {
        if app.json {
            return output::json(self);
        }
        let mut table = output::table(&[
            "KIND",
            "DONE",
            "RETRIED",
            "RATE LIMITED",
            "CANCELLED",
            "DEAD",
            "WAIT P50",
            "P99",
            "RUN P50",
            "P99",
        ]);
        let us = |us| output::right(short(Duration::from_micros(us)));
        for kind in &self.kinds {
            table.add_row([
                comfy_table::Cell::new(kind.kind),
                output::number(kind.done),
                output::number(kind.retried),
                output::number(kind.rate_limited),
                output::number(kind.cancelled),
                output::bad_number(kind.dead),
                us(kind.wait_us.p50),
                us(kind.wait_us.p99),
                us(kind.run_us.p50),
                us(kind.run_us.p99),
            ]);
        }
        output::show(&table);
        self.conclude(app);
    }

    fn conclude(&self, app: &App) {
        let paint = Paint::stdout();
        let sum = |of: fn(&OfKind) -> u64| self.kinds.iter().map(of).sum::<u64>();
        let took = short(Duration::from_millis(self.took_ms));
        line("");
        line(paint.bold(&format!(
            "{} finished in {took}, {} a second",
            count(self.jobs, "job", "jobs"),
            grouped(self.jobs_per_second)
        )));
        line(format!(
            "{} were tried again, {} told to wait and lost no attempt, {} started one sign-up each.",
            count(sum(|kind| kind.retried), "attempt", "attempts"),
            grouped(sum(|kind| kind.rate_limited)),
            count(self.duplicates_joined, "double click", "double clicks"),
        ));
        line(format!(
            "{}: {} done, {} failed for want of the old CRM.",
            count(self.flows.all(), "sign-up was a flow", "sign-ups were flows"),
            grouped(self.flows.done),
            grouped(self.flows.failed),
        ));
        match self.waiting {
            0 => line(paint.green(
                "Nothing was lost: every job of a sign-up is done, cancelled or a dead letter.",
            )),
            n => line(format!(
                "{} for the next worker, safe in the store.",
                count(n, "job waits", "jobs wait")
            )),
        }
        line("\nWhy did these not run when they were asked?");
        for Answer { kind, why, .. } in &self.answers {
            line(format!("  {}: {why}", paint.bold(kind)));
        }
        let (program, store) = (program(), app.store_option());
        let example = self.flows.example.map(|id| format!("flows show {id}"));
        let commands = [
            ("flows list", "the sign-ups, newest first"),
            (example.as_deref().unwrap_or("flows"), "one that failed, drawn"),
            ("jobs list", "the jobs, newest first"),
            ("dead groups", "what died, and of what"),
            ("dead list", "every dead letter"),
            ("queues", "what waits, and where"),
            ("queues why newsletter", "why that one stands still"),
            ("queues resume newsletter", "let it go on"),
        ];
        let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
        line("\nNow look at what is left in the store:");
        for (command, what) in commands {
            let space = " ".repeat(width - command.len());
            let command = paint.cyan(&format!("{program} {command}{store}"));
            line(format!("  {command}{space}  {}", paint.dim(what)));
        }
    }
}

impl Flows {
    fn all(&self) -> u64 {
        self.done + self.failed + self.unfinished
    }
}

/// How the flows of this run ended: those that began since it did.
async fn flows(mill: &Mill, plan: &Plan) -> Outcome<Flows> {
    let mut flows = Flows::default();
    let mut before = None;
    loop {
        let name = Some(signup::NAME.to_owned());
        let filter = FlowFilter { name, before, limit: PAGE, ..FlowFilter::default() };
        let page = mill.flows(&filter).await?;
        for head in page.iter().filter(|head| head.created_at >= plan.began_at) {
            match head.state {
                FlowState::Done => flows.done += 1,
                FlowState::Failed => flows.failed += 1,
                _ => flows.unfinished += 1,
            }
            if head.state == FlowState::Failed || flows.example.is_none() {
                flows.example = Some(head.id);
            }
        }
        before = page.last().map(|head| head.id);
        let is_earlier = page.last().is_some_and(|head| head.created_at < plan.began_at);
        if is_earlier || page.len() < PAGE {
            return Ok(flows);
        }
    }
}

/// How many jobs of this run there are of each kind in each state.
async fn states(mill: &Mill, run: &str) -> Outcome<BTreeMap<(String, State), u64>> {
    let mut states = BTreeMap::new();
    let mut before = None;
    loop {
        let filter =
            JobFilter { tag: Some(run.to_owned()), before, limit: PAGE, ..JobFilter::default() };
        let page = mill.jobs_page(&filter).await?;
        for view in &page.jobs {
            *states.entry((view.job.kind.clone(), view.state)).or_default() += 1;
        }
        before = page.next;
        if before.is_none() {
            return Ok(states);
        }
    }
}
