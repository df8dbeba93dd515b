//! The page that Prometheus reads, of queues in this process.
//!
//! A queue does not know its name, and a page has room for many: whoever shows them names them.

use tidemill_core::measure::Seen;
use tidemill_core::measure::page::{Form, Metric, Page};

use crate::local::counts::Counts;
use crate::local::queue::Queue;

/// Times are seen in microseconds and shown in seconds.
const MICROS: f64 = 1e6;

/// A queue at one moment, with all that it measures.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) counts: Counts,
    pub(super) waits: Seen,
    pub(super) runs: Seen,
}

const fn metric(name: &'static str, form: Form, help: &'static str) -> Metric {
    Metric { name, form, help, labels: &["queue"] }
}

type OfCounts = (Metric, fn(&Counts) -> u64);
type OfTimes = (Metric, fn(&Measured) -> &Seen);

const COUNTS: &[OfCounts] = &[
    (metric("tidemill_local_tasks_queued", Form::Gauge, "Tasks that wait."), |c| c.queued as u64),
    (metric("tidemill_local_tasks_running", Form::Gauge, "Tasks that run."), |c| c.running as u64),
    (metric("tidemill_local_tasks_enqueued_total", Form::Counter, "Tasks that were taken."), |c| {
        c.enqueued
    }),
    (metric("tidemill_local_tasks_started_total", Form::Counter, "Tasks that started."), |c| {
        c.started
    }),
    (
        metric(
            "tidemill_local_tasks_rejected_total",
            Form::Counter,
            "Tasks that were not taken: the queue was full or closed.",
        ),
        |c| c.rejected,
    ),
    (
        metric("tidemill_local_tasks_done_total", Form::Counter, "Tasks that ran to their end."),
        |c| c.done,
    ),
    (
        metric(
            "tidemill_local_tasks_failed_total",
            Form::Counter,
            "Tasks that panicked or returned an error.",
        ),
        |c| c.failed,
    ),
    (
        metric(
            "tidemill_local_tasks_cancelled_total",
            Form::Counter,
            "Tasks that were called off.",
        ),
        |c| c.cancelled,
    ),
    (
        metric(
            "tidemill_local_tasks_timed_out_total",
            Form::Counter,
            "Tasks that ran longer than they may.",
        ),
        |c| c.timed_out,
    ),
];

const TIMES: &[OfTimes] = &[
    (
        metric(
            "tidemill_local_task_wait_seconds",
            Form::Histogram,
            "How long tasks had waited when they started.",
        ),
        |measured| &measured.waits,
    ),
    (
        metric(
            "tidemill_local_task_run_seconds",
            Form::Histogram,
            "How long tasks that ended had run.",
        ),
        |measured| &measured.runs,
    ),
];

/// What these queues have measured, each under its name, in the text form of Prometheus
/// (`text/plain; version=0.0.4`). The names must differ. It can stand on one page with
/// [`Tidemill::metrics`](crate::Tidemill::metrics).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tidemill::local::Error> {
/// use tidemill::local::{self, Queue};
/// let api = Queue::builder().concurrency(8).build()?;
/// api.run(async {}).await?;
/// let page = local::metrics([("api", &api)]);
/// assert!(page.contains(r#"tidemill_local_tasks_done_total{queue="api"} 1"#));
/// # Ok(()) }
/// ```
pub fn metrics<'a>(queues: impl IntoIterator<Item = (&'a str, &'a Queue)>) -> String {
    let queues: Vec<(&str, Measured)> =
        queues.into_iter().map(|(name, queue)| (name, queue.measured())).collect();
    let mut page = Page::default();
    for (metric, count) in COUNTS {
        page.begin(metric);
        for (name, measured) in &queues {
            page.value(metric, &[name], count(&measured.counts) as f64);
        }
    }
    for (metric, times) in TIMES {
        page.begin(metric);
        for (name, measured) in &queues {
            page.histogram(metric, &[name], times(measured), MICROS);
        }
    }
    page.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::PER_SECOND;

    #[tokio::test(start_paused = true)]
    async fn a_page_says_what_the_counts_say() {
        let queue = Queue::builder().concurrency(1).depth_max(2).build().unwrap();
        let other = Queue::builder().build().unwrap();
        let long = tokio::time::timeout(PER_SECOND * 2, std::future::pending::<()>());
        let first = queue.push(long).await.unwrap();
        let second = queue.push(async {}).await.unwrap();
        let third = queue.push(std::future::pending::<()>()).await.unwrap();
        assert!(queue.try_push(async {}).is_err(), "two wait");
        let says = |line: &str| {
            let page = metrics([("a", &queue), ("b", &other)]);
            assert!(page.lines().any(|said| said == line), "no {line:?} in {page}");
        };
        says(r#"tidemill_local_tasks_queued{queue="a"} 2"#);
        assert!(first.await.unwrap().is_err(), "it took its time");
        second.await.unwrap();
        third.cancel();
        queue.on_idle().await;
        says("# TYPE tidemill_local_task_run_seconds histogram");
        says(r#"tidemill_local_tasks_enqueued_total{queue="a"} 3"#);
        says(r#"tidemill_local_tasks_rejected_total{queue="a"} 1"#);
        says(r#"tidemill_local_tasks_done_total{queue="a"} 2"#);
        says(r#"tidemill_local_tasks_cancelled_total{queue="a"} 1"#);
        says(r#"tidemill_local_tasks_done_total{queue="b"} 0"#);
        // The second waited for the first, for two seconds; so did the third, if it started before it was called off.
        says(r#"tidemill_local_task_wait_seconds_bucket{queue="a",le="1"} 1"#);
        says(r#"tidemill_local_task_run_seconds_bucket{queue="a",le="2.5"} 3"#);
    }
}
