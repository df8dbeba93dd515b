//! What is measured, as Prometheus reads it, after work of every sort.

#![expect(clippy::float_cmp, reason = "counts are whole numbers, and exact")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tidemill::{
    Backoff, Breaker, Enqueue, Fail, Flow, Limit, METRICS, Payload, QueueRules, Retry, Running,
    Schedule, Tidemill,
};
use tidemill_testkit::eventually::eventually;

use super::kit::Kit;

over_both_stores!(
    every_metric_is_shown_after_work_of_every_sort,
    counts_are_those_of_what_was_done,
    names_of_queues_are_bounded,
);

const SOON: Duration = Duration::from_secs(30);

/// A page, by name and labels.
#[derive(Debug)]
pub struct Scraped {
    pub types: BTreeMap<String, String>,
    samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

impl Scraped {
    pub async fn of(kit: &Kit) -> Self {
        let told = kit.get("/metrics").await.is(200);
        assert!(told.header("content-type").starts_with("text/plain; version=0.0.4"), "{told:?}");
        Self::read(told.body.as_str().unwrap())
    }

    /// Reads a page, and refuses what Prometheus would refuse.
    fn read(text: &str) -> Self {
        let (mut types, mut samples) = (BTreeMap::new(), Vec::new());
        let (mut current, mut seen) = (String::new(), BTreeSet::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, form) = rest.split_once(' ').unwrap();
                assert!(types.insert(name.to_owned(), form.to_owned()).is_none(), "twice: {line}");
                name.clone_into(&mut current);
            } else if !line.starts_with("# HELP ") {
                let (series, value) = line.rsplit_once(' ').unwrap();
                assert!(seen.insert(series.to_owned()), "twice: {line}");
                let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
                assert!(name.starts_with(&current), "{line} under {current}");
                let labels = labels.strip_suffix('}').unwrap();
                let labels = labels.split("\",").filter(|label| !label.is_empty()).map(|label| {
                    let (name, value) = label.split_once("=\"").unwrap();
                    (name.to_owned(), value.trim_end_matches('"').to_owned())
                });
                samples.push((name.to_owned(), labels.collect(), value.parse().unwrap()));
            }
        }
        Self { types, samples }
    }

    /// The labels that a metric is shown with.
    pub fn labels(&self, metric: &str) -> BTreeSet<String> {
        let of_metric = |name: &str| {
            let end = name.strip_prefix(metric);
            end.is_some_and(|end| ["", "_bucket", "_sum", "_count"].contains(&end))
        };
        let samples = self.samples.iter().filter(|(name, ..)| of_metric(name));
        samples.flat_map(|(_, labels, _)| labels.keys().cloned()).collect()
    }

    /// All samples of this very name that have these labels, added up; `None` when there are none.
    fn find(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |own: &BTreeMap<String, String>| {
            labels.iter().all(|(label, value)| own.get(*label).is_some_and(|own| own == value))
        };
        let found = self.samples.iter().filter(|(own, labels, _)| own == name && has(labels));
        found.map(|(.., value)| *value).reduce(|sum, value| sum + value)
    }

    #[track_caller]
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.find(name, labels).unwrap_or_else(|| panic!("no {name} {labels:?}"))
    }
}

/// A worker for kinds that go well, fail once, die, wait, and are undone.
async fn work(mill: &Tidemill) -> Running {
    let settings = tidemill::Settings::default;
    let once = tidemill::Settings {
        retry: Retry::attempts(2).backoff(Backoff::Fixed { delay_ms: 1 }),
        ..settings()
    };
    let worker = mill.worker().queues(["*"]);
    let worker = worker.handle_raw("echo", settings(), |payload: Payload, _| async { Ok(payload) });
    let worker = worker.handle_raw("fail", settings(), |_: Payload, _| async {
        Err::<Payload, _>(Fail::permanent("no such thing"))
    });
    let worker = worker.handle_raw("flaky", once, |payload: Payload, cx| async move {
        if cx.attempt() == 1 { Err(Fail::transient("not yet")) } else { Ok(payload) }
    });
    let worker = worker.handle_raw("later", settings(), |payload: Payload, cx| async move {
        if cx.job().options.tags.is_empty() {
            return Err(Fail::snooze(Duration::from_hours(1)));
        }
        Ok(payload)
    });
    worker.start().await.unwrap()
}

/// Lets work of every sort happen; answers the worker.
async fn every_sort(kit: &Kit) -> Running {
    let mill = &kit.mill;
    let breaker = Limit { breaker: Some(Breaker::default()), ..Limit::default() };
    mill.set_limit("mail", "stripe", Some(Limit { concurrency: Some(5), ..breaker }))
        .await
        .unwrap();
    let full = QueueRules { depth_max: Some(1), ..QueueRules::default() };
    mill.set_queue("full", Some(full)).await.unwrap();
    let worker = work(mill).await;
    let wishes = [
        json!({ "kind": "echo", "queue": "mail" }),
        json!({ "kind": "echo", "queue": "mail" }),
        json!({ "kind": "flaky", "queue": "mail" }),
        json!({ "kind": "fail", "queue": "mail" }),
        json!({ "kind": "echo", "unique_key": "k", "delay": "1h" }),
        json!({ "kind": "later" }),
        json!({ "kind": "nobody", "queue": "full", "delay": "1h" }),
    ];
    let mut ids = Vec::new();
    for wish in wishes {
        ids.push(kit.enqueue(wish).await);
    }
    kit.post("/v1/jobs", json!({ "kind": "echo", "unique_key": "k" })).await.is(409);
    kit.post("/v1/jobs", json!({ "kind": "nobody", "queue": "full" })).await.is(429);
    for id in &ids[..4] {
        kit.finished(id).await;
    }
    let saga = Flow::saga("trip")
        .step("book", Enqueue::raw("echo", "1"))
        .undo(Enqueue::raw("echo", "2"))
        .then("pay", Enqueue::raw("echo", "3"))
        .nothing_to_undo();
    let flow = mill.start(saga).await.unwrap();
    mill.wait_flow(flow, SOON).await.unwrap();
    mill.schedules()
        .set(Schedule::every("tick", Duration::from_secs(1), Enqueue::raw("echo", "4")))
        .await
        .unwrap();
    worker
}

async fn every_metric_is_shown_after_work_of_every_sort(kit: Kit) {
    let worker = every_sort(&kit).await;
    let other = if kit.mill.store().backend() == "sqlite" { "_postgres_" } else { "_sqlite_" };
    let of_sqlite = ["tidemill_commit_seconds"];
    let of_postgres = ["tidemill_pool_connections"];
    let is_here = |name: &str| {
        let elsewhere: &[&str] = if other == "_sqlite_" { &of_sqlite } else { &of_postgres };
        !name.contains(other) && !elsewhere.contains(&name)
    };
    let page = eventually("a slot to be fired and counted", SOON, async || {
        let page = Scraped::of(&kit).await;
        let fired = page.find("tidemill_schedule_lag_seconds_count", &[])?;
        // The last of what there is to see of the store.
        page.find("tidemill_circuit", &[])?;
        page.find("tidemill_queue_in_total", &[("queue", "mail")])?;
        page.find("tidemill_queue_depth_max", &[])?;
        (fired > 0.0).then_some(page)
    })
    .await;
    let shown: BTreeSet<&str> = page.types.keys().map(String::as_str).collect();
    let all = METRICS.iter().map(|metric| metric.name).filter(|name| is_here(name)).collect();
    assert_eq!(shown, all);
    for metric in METRICS.iter().filter(|metric| is_here(metric.name)) {
        assert_eq!(page.types[metric.name], metric.form.word());
        let mut labels: BTreeSet<String> = metric.labels.iter().map(ToString::to_string).collect();
        if metric.form.word() == "histogram" {
            labels.insert("le".to_owned());
        }
        assert_eq!(page.labels(metric.name), labels, "{}", metric.name);
    }
    worker.stop().await;
    kit.close().await;
}

async fn counts_are_those_of_what_was_done(kit: Kit) {
    let worker = every_sort(&kit).await;
    let page = eventually("the store to be looked at anew", SOON, async || {
        let page = Scraped::of(&kit).await;
        let put_off = page.find("tidemill_jobs_put_off_total", &[("kind", "later")])?;
        let dead = page.find("tidemill_queue_jobs", &[("queue", "mail"), ("state", "dead")])?;
        let done = page.find("tidemill_sagas", &[("state", "done")])?;
        let woken = page.sum("tidemill_runtime_lag_seconds_count", &[]) > 0.0;
        (woken && (put_off, dead, done) == (1.0, 1.0, 1.0)).then_some(page)
    })
    .await;
    let mail = |kind| [("queue", "mail"), ("kind", kind)];
    for (metric, kind, expected) in [
        ("jobs_enqueued_total", "echo", 2.0),
        ("jobs_done_total", "echo", 2.0),
        ("jobs_claimed_total", "flaky", 2.0),
        ("jobs_done_total", "flaky", 1.0),
        ("attempts_failed_total", "flaky", 1.0),
        ("jobs_retried_total", "flaky", 1.0),
        ("jobs_dead_total", "flaky", 0.0),
        ("attempts_failed_total", "fail", 1.0),
        ("jobs_dead_total", "fail", 1.0),
        ("job_run_seconds_count", "flaky", 2.0),
        ("job_start_seconds_count", "echo", 2.0),
        ("settles_refused_total", "echo", 0.0),
    ] {
        let name = format!("tidemill_{metric}");
        assert_eq!(page.sum(&name, &mail(kind)), expected, "{metric} of {kind}");
    }
    let own = [("queue", "default"), ("kind", "echo")];
    assert_eq!(page.sum("tidemill_jobs_duplicate_total", &own), 1.0);
    assert_eq!(page.sum("tidemill_jobs_refused_total", &[("queue", "full")]), 1.0);
    let state = |queue, state| [("queue", queue), ("state", state)];
    assert_eq!(page.sum("tidemill_queue_jobs", &state("full", "scheduled")), 1.0);
    assert!(page.sum("tidemill_queue_oldest_seconds", &state("mail", "dead")) > 0.0);
    assert_eq!(page.sum("tidemill_queue_depth_max", &[("queue", "full")]), 1.0);
    assert!(page.sum("tidemill_queue_in_total", &[("queue", "mail")]) >= 5.0);
    assert!(page.sum("tidemill_queue_out_total", &[("queue", "mail")]) >= 5.0);
    let stripe = [("queue", "mail"), ("limit", "stripe")];
    assert_eq!(page.sum("tidemill_limit_concurrency_max", &stripe), 5.0);
    let closed = [("queue", "mail"), ("limit", "stripe"), ("state", "closed")];
    assert_eq!(page.sum("tidemill_circuit", &closed), 1.0);
    assert_eq!(page.sum("tidemill_workers", &[]), 1.0);
    assert!(page.sum("tidemill_commit_batch_operations_count", &[]) > 0.0);
    assert!(page.sum("tidemill_store_wait_seconds_count", &[]) > 0.0);
    assert!(page.sum("tidemill_settle_batch_jobs_count", &[]) > 0.0);
    let health = match kit.mill.store().backend() {
        "sqlite" => "tidemill_sqlite_pages",
        _ => "tidemill_postgres_wal_bytes_total",
    };
    assert!(page.sum(health, &[]) > 0.0);
    worker.stop().await;
    kit.close().await;
}

async fn names_of_queues_are_bounded(kit: Kit) {
    let job = |n: usize| json!({ "kind": format!("k{n}"), "queue": format!("q{n}") });
    let jobs: Vec<Value> = (0..300).map(job).collect();
    // What the others had is counted from the first look on.
    eventually("the store to be looked at", SOON, async || {
        Scraped::of(&kit).await.find("tidemill_look_age_seconds", &[])
    })
    .await;
    kit.post("/v1/jobs/batch", json!({ "jobs": jobs })).await.is(201);
    let page = eventually("the store to be looked at anew", SOON, async || {
        let page = Scraped::of(&kit).await;
        let all = page.find("tidemill_queue_jobs", &[("state", "ready")])?;
        (all == 300.0).then_some(page)
    })
    .await;
    let waiting = page
        .samples
        .iter()
        .filter(|(name, labels, _)| name == "tidemill_queue_jobs" && labels["state"] == "ready");
    assert_eq!(waiting.count(), 201);
    assert_eq!(page.sum("tidemill_queue_jobs", &[("queue", "other"), ("state", "ready")]), 100.0);
    assert_eq!(page.sum("tidemill_jobs_enqueued_total", &[]), 300.0);
    assert_eq!(page.sum("tidemill_jobs_enqueued_total", &[("queue", "other")]), 100.0);
    // One of the others is the deepest of all now, and still one of them: what they came to never goes down.
    let came = |page: &Scraped| page.sum("tidemill_queue_in_total", &[("queue", "other")]);
    assert_eq!(came(&page), 100.0);
    let is_other = |n: &usize| {
        let queue = format!("q{n}");
        page.find("tidemill_queue_in_total", &[("queue", &queue)]).is_none()
    };
    let other = (0..300).find(is_other).unwrap();
    let jobs: Vec<Value> = (0..50).map(|_| job(other)).collect();
    kit.post("/v1/jobs/batch", json!({ "jobs": jobs })).await.is(201);
    eventually("the store to be looked at anew", SOON, async || {
        let page = Scraped::of(&kit).await;
        let all = page.find("tidemill_queue_jobs", &[("state", "ready")])?;
        (all == 350.0 && came(&page) == 150.0).then_some(())
    })
    .await;
    kit.close().await;
}
