//! Every metric there is: its name, what sort it is, its labels and what it says.
//!
//! One table, from which pages are written and against which the documentation, the alert rules and the Grafana board
//! are checked. Labels are queues, kinds, limits and states; never ids, tenants or keys.

use tidemill_core::measure::page::{Form, Metric};

macro_rules! metrics {
    ($($constant:ident = $form:ident $name:literal $labels:tt $help:literal;)*) => {
        $(pub(crate) const $constant: Metric =
            Metric { name: $name, form: Form::$form, help: $help, labels: &$labels };)*
        /// All metrics.
        pub const METRICS: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    INFO = Gauge "tidemill_info" ["backend", "version"]
        "Always 1; its labels say which store and which version.";
    ENQUEUED = Counter "tidemill_jobs_enqueued_total" ["queue", "kind"]
        "Jobs enqueued by callers and schedules of this process, duplicates not counted, nor what webhooks make.";
    DUPLICATES = Counter "tidemill_jobs_duplicate_total" ["queue", "kind"]
        "Jobs for which an existing one stood.";
    REFUSED = Counter "tidemill_jobs_refused_total" ["queue", "kind"]
        "Jobs that a full queue refused.";
    CLAIMED = Counter "tidemill_jobs_claimed_total" ["queue", "kind"]
        "Jobs that workers of this process claimed.";
    DONE = Counter "tidemill_jobs_done_total" ["queue", "kind"]
        "Jobs that workers of this process finished.";
    FAILED = Counter "tidemill_attempts_failed_total" ["queue", "kind"]
        "Attempts that failed, whether they are tried again or not.";
    RETRIED = Counter "tidemill_jobs_retried_total" ["queue", "kind"]
        "Jobs that failed and are tried again.";
    PUT_OFF = Counter "tidemill_jobs_put_off_total" ["queue", "kind"]
        "Jobs that were put off, given back or wait for something, without a failure.";
    DEAD = Counter "tidemill_jobs_dead_total" ["queue", "kind"]
        "Jobs that gave up and are dead letters.";
    CANCELLED = Counter "tidemill_jobs_cancelled_total" ["queue", "kind"]
        "Jobs that were called off while they ran or were about to.";
    STALE = Counter "tidemill_settles_refused_total" ["queue", "kind"]
        "Settles that were refused because the lease was lost.";
    STARTS = Histogram "tidemill_job_start_seconds" ["queue", "kind"]
        "From when a job was enqueued, or due if later, to the start of its attempt.";
    RUNS = Histogram "tidemill_job_run_seconds" ["queue", "kind"]
        "How long an attempt ran.";
    RESCUED = Counter "tidemill_jobs_rescued_total" []
        "Jobs of lost workers that this process made ready again.";
    POISONED = Counter "tidemill_jobs_poisoned_total" []
        "Jobs that lost their worker too often and are dead.";
    LOST = Counter "tidemill_workers_lost_total" []
        "Workers that this process gave up.";
    PURGED = Counter "tidemill_jobs_purged_total" []
        "Finished jobs that this process forgot after their retention.";
    STREAMS_STALE = Counter "tidemill_stream_writes_refused_total" []
        "Writes to streams that were refused because the lease was lost.";
    STREAMS = Gauge "tidemill_stream_subscribers" []
        "Who follows streams of jobs in this process.";
    WEBHOOKS = Counter "tidemill_webhook_deliveries_total" ["result"]
        "Tries to deliver webhooks in this process: taken, turned_down, failed, refused.";
    WEBHOOK_TIMES = Histogram "tidemill_webhook_seconds" []
        "How long endpoints of webhooks took to answer.";
    SETTLES = Histogram "tidemill_settle_batch_jobs" []
        "How many attempts were settled in one transaction.";
    BATCHES = Histogram "tidemill_commit_batch_operations" ["what"]
        "How many operations went with one commit: natural batching.";
    COMMITS = Histogram "tidemill_commit_seconds" []
        "How long a commit of the SQLite writer took, from its beginning to the disk.";
    WAITS = Histogram "tidemill_store_wait_seconds" ["what"]
        "How long was waited for a connection of the pool, the writer or a reader.";
    CONNECTIONS = Gauge "tidemill_pool_connections" ["state"]
        "Connections of the Postgres pool: idle, used and max.";
    SLOTS_LATE = Histogram "tidemill_schedule_lag_seconds" []
        "How long after its time a slot of a schedule was fired.";
    WAKES_LATE = Histogram "tidemill_runtime_lag_seconds" []
        "How late the runtime woke a task that slept.";
    LOOK_AGE = Gauge "tidemill_look_age_seconds" []
        "How old the figures of the store below are; absent when none could be had.";
    LOOK_FAILURES = Counter "tidemill_look_failures_total" []
        "Looks at the store for this page that failed.";
    QUEUE_JOBS = Gauge "tidemill_queue_jobs" ["queue", "state"]
        "Jobs in a queue: ready, scheduled, running, dead (letters, until they have recovered or are archived).";
    QUEUE_OLDEST = Gauge "tidemill_queue_oldest_seconds" ["queue", "state"]
        "How long the oldest waits since it could start, runs, or is dead.";
    QUEUE_IN = Counter "tidemill_queue_in_total" ["queue"]
        "Jobs that came to wait in a queue, in the whole store; those that came back included.";
    QUEUE_OUT = Counter "tidemill_queue_out_total" ["queue"]
        "Jobs that left a queue: claimed, cancelled, dropped or moved, in the whole store.";
    QUEUE_PAUSED = Gauge "tidemill_queue_paused" ["queue"]
        "1 while a queue is paused.";
    QUEUE_DEPTH_MAX = Gauge "tidemill_queue_depth_max" ["queue"]
        "How deep a queue may get, if it has a bound.";
    QUEUE_ORPHANS = Gauge "tidemill_queue_kinds_without_worker" ["queue"]
        "Kinds that wait in a queue and that no live worker knows.";
    LIMIT_MAX = Gauge "tidemill_limit_concurrency_max" ["queue", "limit"]
        "How many jobs a limit lets run at once.";
    LIMIT_INSIDE = Gauge "tidemill_limit_running_jobs" ["queue", "limit"]
        "Jobs that run inside of a limit.";
    LIMIT_HELD = Gauge "tidemill_limit_held_jobs" ["queue", "limit"]
        "Jobs that a limit holds back, counted up to 100,000.";
    CIRCUIT = Gauge "tidemill_circuit" ["queue", "limit", "state"]
        "Circuits of a limit that are closed, open or half_open; of one by tenant or key, those that spare somebody.";
    WORKERS = Gauge "tidemill_workers" []
        "Workers that are alive, in every process.";
    SLOTS = Gauge "tidemill_worker_slots" []
        "Jobs that they can run at once.";
    FLOWS = Gauge "tidemill_flows" ["state"]
        "Flows that are kept, sagas included, by state.";
    SAGAS = Gauge "tidemill_sagas" ["state"]
        "Sagas that are kept: running, done, failed, cancelled, undoing, undone, stuck.";
    SCHEDULE_OVERDUE = Gauge "tidemill_schedule_overdue_seconds" []
        "How long the next slot of all schedules is overdue.";
    ALERTS = Gauge "tidemill_alerts" ["alert"]
        "How many built-in alerts of each sort hold, as this process has watched them.";
    SQLITE_WAL = Gauge "tidemill_sqlite_wal_bytes" []
        "The size of the write-ahead log of SQLite.";
    SQLITE_PAGES = Gauge "tidemill_sqlite_pages" []
        "Pages of the SQLite file.";
    SQLITE_FREE_PAGES = Gauge "tidemill_sqlite_free_pages" []
        "Pages of the SQLite file that are free.";
    SQLITE_PAGE_BYTES = Gauge "tidemill_sqlite_page_bytes" []
        "The size of a page.";
    POSTGRES_TRANSACTION = Gauge "tidemill_postgres_oldest_transaction_seconds" []
        "How long the oldest transaction that holds vacuum back is open.";
    POSTGRES_DEAD_ROWS = Gauge "tidemill_postgres_dead_rows" ["table"]
        "Rows of a table that vacuum has still to remove.";
    POSTGRES_LIVE_ROWS = Gauge "tidemill_postgres_live_rows" ["table"]
        "Rows of a table that are alive, as the server estimates.";
    POSTGRES_WAL = Counter "tidemill_postgres_wal_bytes_total" []
        "What the server has logged, by everybody; divided by jobs it is the log per job.";
    POSTGRES_SIZE = Gauge "tidemill_postgres_database_bytes" []
        "The size of the database.";
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENTED: &str = include_str!("../../../../../docs/metrics.md");

    #[test]
    fn every_metric_has_its_row_in_the_documentation_and_no_other_has() {
        for Metric { name, form, help, labels } in METRICS {
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let row = format!("| `{name}` | {} | {} | {help} |", form.word(), labels.join(", "));
            assert!(DOCUMENTED.contains(&row), "docs/metrics.md lacks {row}");
        }
        let rows = DOCUMENTED.lines().filter(|line| line.starts_with("| `tidemill_")).count();
        assert_eq!(rows, METRICS.len());
    }

    #[test]
    fn names_say_their_unit_and_whether_they_grow() {
        for Metric { name, form, labels, .. } in METRICS {
            assert_eq!(*form == Form::Counter, name.ends_with("_total"), "{name}");
            let forbidden = ["id", "job", "tenant", "key", "worker"];
            assert!(labels.iter().all(|label| !forbidden.contains(label)), "{name}");
        }
    }
}
