//! Traces to a collector: `--otlp URL` sends spans of attempts and steps by OTLP over HTTP.
//!
//! Spans are gathered and sent by a thread of their own, so that no job waits for a collector; one that is away loses
//! spans, never jobs, and is named in the log. It refuses nothing at the start but a URL that is none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanData};

use crate::exit::{Exit, Failure, Outcome};

const PATH: &str = "/v1/traces";
const SEND_MAX: Duration = Duration::from_secs(5);

/// Where spans go, until the program ends.
#[derive(Debug)]
pub struct Otlp(SdkTracerProvider);

impl Otlp {
    /// Sends to the collector at this URL. Not to be called where tasks run: the sender has a runtime of its own.
    pub fn start(url: &str) -> Outcome<Self> {
        let refused = |reason: String| {
            let message = format!("{url:?} cannot be sent traces to: {reason}");
            Failure::new(Exit::Usage, "otlp_url_invalid", message)
                .hint("write it as http://HOST:4318; TLS is the business of a collector beside it")
        };
        if !url.starts_with("http://") {
            return Err(refused("it does not begin with http://".to_owned()));
        }
        let base = url.trim_end_matches('/');
        let base = base.strip_suffix(PATH).unwrap_or(base);
        let url = format!("{base}{PATH}");
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(&url)
            .with_timeout(SEND_MAX)
            .build()
            .map_err(|error| refused(error.to_string()))?;
        let mut resource = Resource::builder();
        if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name("tidemill");
        }
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(Watched { exporter, url, is_away: AtomicBool::new(false) })
            .with_resource(resource.build())
            .build();
        Ok(Self(provider))
    }

    /// Who makes spans.
    pub fn tracer(&self) -> SdkTracer {
        self.0.tracer("tidemill")
    }

    /// Sends what is left.
    pub fn stop(self) {
        if let Err(error) = self.0.shutdown_with_timeout(SEND_MAX) {
            tracing::warn!(%error, "some spans could not be sent");
        }
    }
}

/// Says in the log when spans cannot be sent, once until they can be again.
#[derive(Debug)]
struct Watched {
    exporter: SpanExporter,
    url: String,
    is_away: AtomicBool,
}

impl opentelemetry_sdk::trace::SpanExporter for Watched {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let (url, spans) = (&self.url, batch.len());
        let sent = self.exporter.export(batch).await;
        match (&sent, self.is_away.swap(sent.is_err(), Ordering::Relaxed)) {
            (Err(error), false) => {
                tracing::warn!(url, spans, %error, "spans cannot be sent and are lost; jobs go on");
            }
            (Ok(()), true) => tracing::info!(url, "spans are sent again"),
            _ => {}
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
