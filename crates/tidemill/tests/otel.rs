//! Spans of attempts and steps, as an exporter of OpenTelemetry gets them, on both stores.
//!
//! A collector on the other side of HTTP is in the tests of the command line; here it is about what belongs to what.

#![expect(clippy::unwrap_used, reason = "a test has no use for the error")]

use std::time::Duration;

use opentelemetry::trace::{SpanKind, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tidemill::core::trace::TraceParent;
use tidemill::{Context, Enqueue, Fail, JobId, Payload, Schedule, Settings, Tidemill};
use tidemill_testkit::databases::{fresh_postgres_url, fresh_sqlite_url};
use tracing::Instrument;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

const SOON: Duration = Duration::from_secs(30);
const PRODUCER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Has a step that fails once, and enqueues another job out of its second try.
async fn outer(_: Payload, cx: Context) -> Result<JobId, Fail> {
    let mill = cx.mill()?.clone();
    let send = cx.step("send").run(move |step| {
        let mill = mill.clone();
        async move {
            if step.attempt() == 1 {
                return Err(Fail::transient("not yet").retry_after(Duration::ZERO));
            }
            let receipt = mill.enqueue(Enqueue::raw("inner", "{}")).await;
            receipt.map(|receipt| receipt.id()).map_err(Fail::transient)
        }
    });
    Box::pin(send).await
}

async fn spans_belong_together(url: &str, exporter: &InMemorySpanExporter) {
    let mill = Tidemill::open(url).await.unwrap();
    let id = mill.enqueue(Enqueue::raw("outer", "{}").trace(PRODUCER)).await.unwrap().id();
    let worker = mill
        .worker()
        .handle_raw("outer", Settings::default(), |payload, cx| async {
            let id = Box::pin(outer(payload, cx)).await?;
            Ok(Payload::parse(&format!("\"{id}\""), &tidemill::Limits::default()).unwrap())
        })
        .handle_raw("inner", Settings::default(), |payload: Payload, _| async { Ok(payload) })
        .start()
        .await
        .unwrap();
    let outer = mill.wait(id, SOON).await.unwrap();
    let inner: JobId = outer.output.unwrap().read().unwrap();
    let inner = mill.wait(inner, SOON).await.unwrap();
    worker.stop().await;
    mill.close().await;

    let spans = exporter.get_finished_spans().unwrap();
    let attempt = |id: JobId| {
        let is_of = |span: &&SpanData| {
            let named = |at: &opentelemetry::KeyValue| at.key.as_str() == "messaging.message.id";
            let found = span.attributes.iter().find(|at| named(at));
            found.is_some_and(|at| at.value.as_str() == id.to_string())
        };
        spans.iter().find(is_of).unwrap()
    };
    let first = attempt(id);
    assert_eq!((&*first.name, &first.span_kind), ("process default", &SpanKind::Consumer));
    assert_eq!(first.links.links[0].span_context.trace_id().to_string(), &PRODUCER[3..35]);
    let trace = first.span_context.trace_id();
    let of_trace = |span: &&SpanData| span.name == "step" && span.span_context.trace_id() == trace;
    let steps: Vec<_> = spans.iter().filter(of_trace).collect();
    assert_eq!(steps.len(), 2, "one for each try");
    assert!(steps.iter().all(|step| step.parent_span_id == first.span_context.span_id()));
    let failed =
        |step: &&&SpanData| matches!(step.status, opentelemetry::trace::Status::Error { .. });
    assert_eq!(steps.iter().filter(failed).count(), 1);

    let carried: TraceParent = inner.job.options.trace.as_deref().unwrap().parse().unwrap();
    assert_eq!(carried.trace.to_be_bytes(), trace.to_bytes(), "the chain of causes stays whole");
    let second = attempt(inner.job.id);
    assert_eq!(second.links.links[0].span_context.trace_id(), trace);
    assert_ne!(second.span_context.trace_id(), trace, "a trace of its own");
    exporter.reset();
}

/// Who sets a schedule is long gone when its jobs run.
async fn a_schedule_keeps_no_trace_of_who_set_it(url: &str) {
    let mill = Tidemill::open(url).await.unwrap();
    let every = |job| Schedule::every("s", Duration::from_hours(1), job);
    let set = async |schedule| {
        let schedules = mill.schedules();
        let setting = schedules.set(schedule).instrument(tracing::info_span!("deploy"));
        setting.await.unwrap().definition.job.options.trace
    };
    assert_eq!(set(every(Enqueue::raw("k", "{}"))).await, None);
    let version = mill.schedules().get("s").await.unwrap().version;
    set(every(Enqueue::raw("k", "{}"))).await;
    assert_eq!(mill.schedules().get("s").await.unwrap().version, version, "it is the same");
    let own = set(every(Enqueue::raw("k", "{}").trace(PRODUCER))).await;
    assert_eq!(own.as_deref(), Some(PRODUCER));
    mill.close().await;
}

#[tokio::test]
async fn attempts_and_steps_are_linked_to_who_asked_for_them() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    // Both stores share the one subscriber of the process, so they come one after the other.
    tracing_subscriber::registry().with(layer).init();
    let (_folder, url) = fresh_sqlite_url();
    spans_belong_together(&url, &exporter).await;
    spans_belong_together(&fresh_postgres_url(), &exporter).await;
    let (_folder, url) = fresh_sqlite_url();
    a_schedule_keeps_no_trace_of_who_set_it(&url).await;
}
