//! Rules that replay known-recoverable dead letters by themselves.

use std::time::Duration;

use http::Method;
use serde::Serialize;
use tidemill::core::span::Span;
use tidemill::{ErrorClass, RedriveRule};
use tidemill_core::{limit, name};

use crate::dead::Dead;
use crate::error::Result;
use crate::http::path;

#[derive(Serialize)]
struct Wish<'a> {
    kind: Option<&'a str>,
    queue: Option<&'a str>,
    class: Option<ErrorClass>,
    error_contains: Option<&'a str>,
    delay: Span,
    redrives_max: u16,
}

impl Dead<'_> {
    /// The rules that redrive by themselves.
    pub async fn rules(&self) -> Result<Vec<RedriveRule>> {
        self.0.get(&path(["dead", "rules"]), &()).await
    }

    /// Sets a rule: dead letters that match it are replayed by any worker, as often as it allows.
    pub async fn set_rule(&self, rule: RedriveRule) -> Result<()> {
        // Without a name there is no place to send it to.
        name::check("rule", &rule.name, limit::NAME_BYTES_MAX).map_err(tidemill::Error::from)?;
        let wish = Wish {
            kind: rule.kind.as_deref(),
            queue: rule.queue.as_deref(),
            class: rule.class,
            error_contains: rule.error_contains.as_deref(),
            delay: Span(Duration::from_millis(rule.delay_ms)),
            redrives_max: rule.redrives_max,
        };
        let place = path(["dead", "rules", &rule.name]);
        self.0.told(self.0.request(Method::PUT, &place).json(&wish)).await
    }

    /// Takes a rule away.
    pub async fn delete_rule(&self, name: &str) -> Result<()> {
        self.0.told(self.0.request(Method::DELETE, &path(["dead", "rules", name]))).await
    }
}
