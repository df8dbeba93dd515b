//! Traces as a collector gets them: a real one, over HTTP, from a worker that is a process.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tidemill_core::trace::TraceParent;
use tidemill_testkit::eventually::eventually;

use crate::mill::{Mill, PATIENCE, stop};

const PRODUCER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A collector that keeps what it gets.
struct Collector {
    url: String,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    async fn start() -> Self {
        let spans = Arc::<Mutex<Vec<Span>>>::default();
        let got = Arc::clone(&spans);
        let take = move |body: Bytes| async move {
            let request = ExportTraceServiceRequest::decode(body).unwrap();
            let scopes = request.resource_spans.into_iter().flat_map(|all| all.scope_spans);
            got.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new().route("/v1/traces", post(take));
        tokio::spawn(async { axum::serve(listener, app).await });
        Self { url, spans }
    }

    /// The span of this job's attempt, once it was sent.
    async fn attempt_of(&self, job: &str) -> Span {
        eventually("the span of the attempt", PATIENCE, async || {
            let spans = self.spans.lock().unwrap();
            spans.iter().find(|span| text(span, "messaging.message.id") == job).cloned()
        })
        .await
    }
}

fn text(span: &Span, name: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key == name);
    match found.and_then(|found| found.value.clone()).and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        _ => String::new(),
    }
}

async fn sends(mill: Mill) {
    let collector = Collector::start().await;
    let job = mill.enqueue(&["greet", "{}", "--queue", "mail", "--trace", PRODUCER]);
    let failing = mill.enqueue(&["fail", "{}", "--queue", "mail", "--attempts", "1"]);
    let exec = "test $TIDEMILL_KIND = greet && cat";
    let args =
        ["--exec", exec, "--kind", "greet,fail", "--queue", "mail", "--otlp", &collector.url];
    let worker = mill.work(&args);
    mill.run(&["jobs", "wait", &job, "--timeout", "30s"]).ok();
    mill.run(&["jobs", "wait", &failing, "--timeout", "30s"]);
    // What is left is sent at the end.
    stop(worker);
    let span = collector.attempt_of(&job).await;
    assert_eq!((span.name.as_str(), span.kind), ("process mail", 5), "a consumer's");
    for (name, expected) in [
        ("messaging.system", "tidemill"),
        ("messaging.operation.type", "process"),
        ("messaging.destination.name", "mail"),
        ("tidemill.kind", "greet"),
        ("tidemill.attempt", "1"),
    ] {
        assert_eq!(text(&span, name), expected, "{name}");
    }
    assert_eq!(span.links.len(), 1);
    let (trace, parent) = (&span.links[0].trace_id[..], &span.links[0].span_id[..]);
    let producer: TraceParent = PRODUCER.parse().unwrap();
    assert_eq!(u128::from_be_bytes(trace.try_into().unwrap()), producer.trace);
    assert_eq!(u64::from_be_bytes(parent.try_into().unwrap()), producer.span);
    assert_ne!(span.trace_id, span.links[0].trace_id, "a trace of its own");
    let failed = collector.attempt_of(&failing).await;
    assert_eq!(failed.status.as_ref().unwrap().code, 2, "an error");
    assert!(!text(&failed, "error.type").is_empty());
    assert!(failed.links.is_empty(), "nobody is known who enqueued it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_sends_linked_spans_on_sqlite() {
    sends(Mill::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_sends_linked_spans_on_postgres() {
    sends(Mill::postgres()).await;
}

#[test]
fn a_url_that_is_none_is_refused() {
    let mill = Mill::sqlite();
    mill.run(&["serve", "--otlp", "collector:4317"]).code(2).says("otlp_url_invalid");
}

#[test]
fn a_collector_that_is_away_loses_no_job() {
    let mill = Mill::sqlite();
    let job = mill.enqueue(&["greet", "{}"]);
    let worker = mill.work(&["--exec", "cat", "--kind", "greet", "--otlp", "http://127.0.0.1:9/"]);
    mill.run(&["jobs", "wait", &job, "--timeout", "30s"]).ok();
    stop(worker);
}
