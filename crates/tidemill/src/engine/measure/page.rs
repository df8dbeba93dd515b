//! The page that Prometheus reads: what this process measured, and an overview of the store.
//!
//! Labels are bounded: queues beyond the deepest 200 are added up under `other`, as are series beyond the first 200
//! pairs of queue and kind.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::AlertKind;
use tidemill_core::flow::FlowState;
use tidemill_core::measure::page::{Metric, Page};
use tidemill_core::measure::{Count, Histogram};
use tidemill_store::QueueView;

use super::names::{self as n, METRICS};
use super::overview::{Known, Overview};
use super::passing::{Passing, Way};
use super::series::{OTHER, Series};
use crate::engine::Tidemill;
use crate::engine::webhook::Sent;
use crate::worker::shop::locked;

/// Queues that are shown by themselves.
const QUEUES_MAX: usize = 200;
/// Times are seen in microseconds and shown in seconds.
const MICROS: f64 = 1e6;

/// A metric, and where its values are.
type OfSeries<T> = (&'static Metric, fn(&Series) -> &T);
type OfQueue = (&'static Metric, fn(&Shown) -> Option<f64>);

impl Tidemill {
    /// What this process has measured, and an [overview](Self::overview) of the store, in the text form of
    /// Prometheus (`text/plain; version=0.0.4`). Serve it where it can be scraped; `tidemill serve` does so at
    /// `/metrics`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidemill::Result<()> {
    /// let mill = tidemill::Tidemill::open("sqlite::memory:").await?;
    /// mill.enqueue(tidemill::Enqueue::raw("greet", "{}")).await?;
    /// let page = mill.metrics().await;
    /// assert!(page.contains(r#"tidemill_jobs_enqueued_total{queue="default",kind="greet"} 1"#));
    /// # mill.close().await; Ok(()) }
    /// ```
    pub async fn metrics(&self) -> String {
        let known = self.known().await;
        let mut page = Page::default();
        let backend = self.0.store.backend();
        one(&mut page, &n::INFO, &[backend, env!("CARGO_PKG_VERSION")], 1.0);
        self.of_process(&mut page);
        page.begin(&n::ALERTS);
        let alerts = self.watch_alerts().borrow().clone();
        for sort in AlertKind::ALL {
            let holding = alerts.iter().filter(|alert| alert.alert == sort).count();
            page.value(&n::ALERTS, &[sort.word()], holding as f64);
        }
        let Known { overview, age, failures } = known;
        one(&mut page, &n::LOOK_FAILURES, &[], failures as f64);
        if let Some(overview) = overview {
            one(&mut page, &n::LOOK_AGE, &[], age.as_secs_f64());
            let mut passing = locked(&self.0.measures.passing);
            passing.look(overview.now, &overview.passed, QUEUES_MAX);
            of_store(&mut page, &overview, backend, &passing);
        }
        page.into_text()
    }

    fn of_process(&self, page: &mut Page) {
        let measures = &self.0.measures;
        let all = measures.series.all();
        let counters: [OfSeries<Count>; 11] = [
            (&n::ENQUEUED, |s| &s.enqueued),
            (&n::DUPLICATES, |s| &s.duplicates),
            (&n::REFUSED, |s| &s.refused),
            (&n::CLAIMED, |s| &s.claimed),
            (&n::DONE, |s| &s.done),
            (&n::FAILED, |s| &s.failed),
            (&n::RETRIED, |s| &s.retried),
            (&n::PUT_OFF, |s| &s.put_off),
            (&n::DEAD, |s| &s.dead),
            (&n::CANCELLED, |s| &s.cancelled),
            (&n::STALE, |s| &s.stale),
        ];
        for (metric, count) in counters {
            page.begin(metric);
            for (queue, kind, series) in &all {
                page.value(metric, &[queue, kind], count(series).read() as f64);
            }
        }
        let histograms: [OfSeries<Histogram>; 2] =
            [(&n::STARTS, |s| &s.starts), (&n::RUNS, |s| &s.runs)];
        for (metric, histogram) in histograms {
            page.begin(metric);
            for (queue, kind, series) in &all {
                page.histogram(metric, &[queue, kind], &histogram(series).read(), MICROS);
            }
        }
        for (metric, count) in [
            (&n::RESCUED, &measures.rescued),
            (&n::POISONED, &measures.poisoned),
            (&n::LOST, &measures.lost),
            (&n::STREAMS_STALE, &measures.streams_stale),
            (&n::PURGED, &measures.purged),
        ] {
            one(page, metric, &[], count.read() as f64);
        }
        one(page, &n::STREAMS, &[], self.0.hub.seats() as f64);
        page.begin(&n::WEBHOOKS);
        for (sent, count) in Sent::ALL.iter().zip(&measures.webhooks) {
            page.value(&n::WEBHOOKS, &[sent.word()], count.read() as f64);
        }
        for (metric, histogram, unit) in [
            (&n::WEBHOOK_TIMES, &measures.webhook_times, MICROS),
            (&n::SETTLES, &measures.settles, 1.0),
            (&n::SLOTS_LATE, &measures.slots_late, MICROS),
            (&n::WAKES_LATE, &measures.wakes_late, MICROS),
        ] {
            page.begin(metric);
            page.histogram(metric, &[], &histogram.read(), unit);
        }
        self.of_way(page);
    }

    fn of_way(&self, page: &mut Page) {
        let way = self.0.store.way();
        for (metric, all, unit) in
            [(&n::BATCHES, &way.batches, 1.0), (&n::WAITS, &way.waits, MICROS)]
        {
            page.begin(metric);
            for (what, seen) in all {
                page.histogram(metric, &[what], seen, unit);
            }
        }
        if let Some(commits) = &way.commits {
            page.begin(&n::COMMITS);
            page.histogram(&n::COMMITS, &[], commits, MICROS);
        }
        if !way.connections.is_empty() {
            page.begin(&n::CONNECTIONS);
            for (state, connections) in &way.connections {
                page.value(&n::CONNECTIONS, &[state], *connections as f64);
            }
        }
    }
}

fn one(page: &mut Page, metric: &Metric, labels: &[&str], value: f64) {
    page.begin(metric);
    page.value(metric, labels, value);
}

fn of_store(page: &mut Page, overview: &Overview, backend: &str, passing: &Passing) {
    of_queues(page, overview, passing);
    of_limits(page, overview);
    one(page, &n::WORKERS, &[], overview.workers.len() as f64);
    let slots: u64 = overview.workers.iter().map(|worker| u64::from(worker.slots)).sum();
    one(page, &n::SLOTS, &[], slots as f64);
    for (metric, sagas_alone) in [(&n::FLOWS, false), (&n::SAGAS, true)] {
        page.begin(metric);
        for state in FlowState::ALL {
            let of_state =
                overview.flows.iter().filter(|f| f.state == state && (f.is_saga || !sagas_alone));
            page.value(metric, &[state.word()], of_state.map(|f| f.flows).sum::<u64>() as f64);
        }
    }
    one(page, &n::SCHEDULE_OVERDUE, &[], overview.overdue.as_secs_f64());
    for metric in METRICS {
        let Some(name) = metric
            .name
            .strip_prefix("tidemill_")
            .and_then(|name| name.strip_prefix(backend).and_then(|name| name.strip_prefix('_')))
        else {
            continue;
        };
        let mut figures = overview.figures.iter().filter(|figure| figure.name == name).peekable();
        if figures.peek().is_some() {
            page.begin(metric);
        }
        for figure in figures {
            page.value(metric, figure.table.as_slice(), figure.value);
        }
    }
}

/// What is shown of a queue, or of many together.
#[derive(Default)]
struct Shown {
    jobs: [u64; 4],
    oldest: [Option<Duration>; 3],
    paused: bool,
    depth_max: Option<u64>,
    orphans: usize,
}

const STATES: [&str; 4] = ["ready", "scheduled", "running", "dead"];
/// Those that have an age.
const AGED: [&str; 3] = ["ready", "running", "dead"];

impl Shown {
    fn add(&mut self, queue: &QueueView, now: Timestamp) {
        let ready: u64 = queue.ready.values().sum();
        for (sum, jobs) in
            self.jobs.iter_mut().zip([ready, queue.scheduled, queue.running, queue.dead])
        {
            *sum += jobs;
        }
        let since = [queue.oldest_due_at, queue.oldest_running_at, queue.oldest_dead_at];
        for (oldest, since) in self.oldest.iter_mut().zip(since) {
            let age =
                since.map(|at| Duration::try_from(now.duration_since(at)).unwrap_or_default());
            *oldest = (*oldest).max(age);
        }
        let rules = queue.rules.as_ref();
        self.paused |= rules.is_some_and(|rules| rules.paused);
        self.depth_max = self.depth_max.max(rules.and_then(|rules| rules.depth_max));
        self.orphans += queue.orphan_kinds.len();
    }
}

/// The queues by name; those that are least deep go together, where there are too many.
fn shown(overview: &Overview) -> BTreeMap<&str, Shown> {
    let mut names: Vec<(u64, &str)> =
        overview.queues.iter().map(|queue| (queue.depth + queue.running, &*queue.name)).collect();
    names.sort_by(|one, other| other.cmp(one));
    let mut own: Vec<&str> = Vec::new();
    for (_, name) in names {
        if own.len() < QUEUES_MAX && !own.contains(&name) {
            own.push(name);
        }
    }
    let label = |name: &str| own.iter().copied().find(|own| *own == name).unwrap_or(OTHER);
    let mut shown: BTreeMap<&str, Shown> = BTreeMap::new();
    for queue in &overview.queues {
        shown.entry(label(&queue.name)).or_default().add(queue, overview.now);
    }
    shown
}

fn of_queues(page: &mut Page, overview: &Overview, passing: &Passing) {
    let shown = shown(overview);
    page.begin(&n::QUEUE_JOBS);
    for (queue, seen) in &shown {
        for (state, jobs) in STATES.iter().zip(seen.jobs) {
            page.value(&n::QUEUE_JOBS, &[queue, state], jobs as f64);
        }
    }
    page.begin(&n::QUEUE_OLDEST);
    for (queue, seen) in &shown {
        for (state, age) in AGED.iter().zip(seen.oldest) {
            let age = age.unwrap_or_default().as_secs_f64();
            page.value(&n::QUEUE_OLDEST, &[queue, state], age);
        }
    }
    page.begin(&n::QUEUE_IN);
    for (queue, Way { came, .. }) in passing.shown() {
        page.value(&n::QUEUE_IN, &[queue], came as f64);
    }
    page.begin(&n::QUEUE_OUT);
    for (queue, Way { went, .. }) in passing.shown() {
        page.value(&n::QUEUE_OUT, &[queue], went as f64);
    }
    let plain: [OfQueue; 3] = [
        (&n::QUEUE_PAUSED, |seen| Some(f64::from(u8::from(seen.paused)))),
        (&n::QUEUE_DEPTH_MAX, |seen| seen.depth_max.map(|most| most as f64)),
        (&n::QUEUE_ORPHANS, |seen| Some(seen.orphans as f64)),
    ];
    for (metric, value) in plain {
        page.begin(metric);
        for (queue, seen) in &shown {
            if let Some(value) = value(seen) {
                page.value(metric, &[queue], value);
            }
        }
    }
}

fn of_limits(page: &mut Page, overview: &Overview) {
    page.begin(&n::LIMIT_MAX);
    for view in &overview.limits {
        if let Some(most) = view.limit.concurrency {
            page.value(&n::LIMIT_MAX, &[&view.queue, &view.name], f64::from(most));
        }
    }
    page.begin(&n::LIMIT_INSIDE);
    for view in &overview.limits {
        let inside: u64 = view.gate.inside.iter().map(|(_, jobs)| jobs).sum();
        page.value(&n::LIMIT_INSIDE, &[&view.queue, &view.name], inside as f64);
    }
    page.begin(&n::LIMIT_HELD);
    for view in &overview.limits {
        page.value(&n::LIMIT_HELD, &[&view.queue, &view.name], view.gate.held as f64);
    }
    page.begin(&n::CIRCUIT);
    for view in &overview.limits {
        let Some(circuits) = view.circuits(overview.now) else { continue };
        for (state, number) in ["closed", "open", "half_open"].iter().zip(circuits) {
            page.value(&n::CIRCUIT, &[&view.queue, &view.name, state], number as f64);
        }
    }
}
