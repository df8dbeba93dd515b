//! `tidemill queues set`: the rules that were given on the command line. `none` takes one back.

use tidemill::{Per, QueueRules, Rate, Retry};
use tidemill_core::BandWeights;
use tidemill_core::retention::Retention;
use tidemill_core::retry::text::BackoffText;

use super::depth::Depth;
use crate::commands::limits;
use crate::duration::Span;

/// A value, or that there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrNone<T>(pub Option<T>);

/// Reads `none`, or what `read` does.
pub fn or_none<T, E: ToString>(
    read: impl Fn(&str) -> Result<T, E> + Clone,
) -> impl Fn(&str) -> Result<OrNone<T>, String> + Clone {
    move |text| match text {
        "none" => Ok(OrNone(None)),
        text => read(text).map(|value| OrNone(Some(value))).map_err(|error| error.to_string()),
    }
}

/// Reads a number from 1 on, or `none`.
pub fn some_or_none<N: TryFrom<u64>>(text: &str) -> Result<OrNone<N>, String> {
    let number = |text: &str| match text.parse() {
        Ok(0) => Err("give at least 1, or none"),
        Ok(number) => N::try_from(number).map_err(|_| "that is too many; give fewer, or none"),
        Err(_) => Err("give a number, or none"),
    };
    or_none(number)(text)
}

fn span_or_none(text: &str) -> Result<OrNone<Span>, String> {
    or_none(str::parse)(text)
}

/// The rules that were given.
#[derive(Debug, clap::Args)]
pub struct Set {
    /// The queue, or a pattern such as 'mail:*'
    pub queue: String,
    /// How urgent, high, normal and low work share the queue [default: 8:4:2:1]
    #[arg(long, value_name = "U:H:N:L", value_parser = weights)]
    weights: Option<BandWeights>,
    /// Give a tenant another share than 1; may be given more than once
    #[arg(long, value_name = "TENANT=WEIGHT", value_parser = tenant_weight)]
    tenant_weight: Vec<(String, u32)>,
    /// How many of its jobs may run at once, in the whole cluster; to stop a queue, `queues pause` it
    #[arg(long, value_name = "JOBS", value_parser = some_or_none::<u32>)]
    concurrency: Option<OrNone<u32>>,
    /// How often one of its jobs may start, such as 100/s or 30/m
    #[arg(long, value_name = "JOBS/TIME", value_parser = or_none(limits::rate))]
    rate: Option<OrNone<Rate>>,
    /// How many may start at once after a pause [default: 1]
    #[arg(long, value_name = "JOBS", requires = "rate")]
    burst: Option<u32>,
    /// Who waits when a handler was told to come back later: all, tenant, key or none
    #[arg(long, value_name = "WHO", value_parser = or_none(limits::per))]
    hold: Option<OrNone<Per>>,
    /// How many retries a hundred first attempts pay for
    #[arg(long, value_name = "PERCENT", value_parser = some_or_none::<u32>)]
    retry_percent: Option<OrNone<u32>>,
    /// Attempts of jobs whose kind does not say how often [default: 20]
    #[arg(long, value_name = "ATTEMPTS", value_parser = some_or_none::<u16>)]
    attempts: Option<OrNone<u16>>,
    /// The delay between their attempts: 5s, exponential:1s..1h, decorrelated:1s..1h or custom:1s,10s,1m
    #[arg(long, value_name = "BACKOFF", value_parser = or_none(str::parse::<BackoffText>))]
    backoff: Option<OrNone<BackoffText>>,
    /// How long an attempt may run where neither the job nor its kind says
    #[arg(long, value_name = "DURATION", value_parser = span_or_none)]
    run_timeout: Option<OrNone<Span>>,
    /// How long its jobs may wait for their first start where the job does not say
    #[arg(long, value_name = "DURATION", value_parser = span_or_none)]
    start_within: Option<OrNone<Span>>,
    /// How long its jobs may take in all where the job does not say
    #[arg(long, value_name = "DURATION", value_parser = span_or_none)]
    finish_within: Option<OrNone<Span>>,
    /// Keep done and cancelled jobs this long [default: 3d]
    #[arg(long, value_name = "DURATION", value_parser = span_or_none)]
    retain: Option<OrNone<Span>>,
    /// Keep at most this many done and cancelled jobs [default: no bound]
    #[arg(long, value_name = "JOBS", value_parser = some_or_none::<u64>)]
    retain_max: Option<OrNone<u64>>,
    /// Keep dead letters this long [default: 90d]
    #[arg(long, value_name = "DURATION", value_parser = span_or_none)]
    retain_dead: Option<OrNone<Span>>,
    /// Keep at most this many bytes of dead letters, the newest [default: no bound]
    #[arg(long, value_name = "BYTES", value_parser = some_or_none::<u64>)]
    retain_dead_bytes: Option<OrNone<u64>>,
    #[command(flatten)]
    depth: Depth,
}

impl Set {
    /// Whether nothing was given.
    pub fn is_empty(&self) -> bool {
        let times = [&self.run_timeout, &self.start_within, &self.finish_within];
        let kept = [&self.retain, &self.retain_dead];
        let numbers = [&self.concurrency, &self.retry_percent];
        let bounds = [&self.retain_max, &self.retain_dead_bytes];
        let is_given = times.into_iter().chain(kept).any(Option::is_some)
            || numbers.into_iter().any(Option::is_some)
            || bounds.into_iter().any(Option::is_some)
            || self.attempts.is_some()
            || self.weights.is_some()
            || !self.tenant_weight.is_empty()
            || self.rate.is_some()
            || self.hold.is_some()
            || self.backoff.is_some()
            || !self.depth.is_empty();
        !is_given
    }

    /// Changes what was given; all else stays.
    pub fn apply(&self, rules: &mut QueueRules) {
        rules.weights = self.weights.unwrap_or(rules.weights);
        for (tenant, weight) in &self.tenant_weight {
            if *weight == 1 {
                rules.tenant_weights.remove(tenant);
            } else {
                rules.tenant_weights.insert(tenant.clone(), *weight);
            }
        }
        change(&mut rules.concurrency, self.concurrency);
        // A burst that is not named stays.
        let burst = self.burst.or(rules.rate.map(|rate| rate.burst));
        let rate = self.rate.map(|OrNone(rate)| {
            OrNone(rate.map(|rate| Rate { burst: burst.unwrap_or(rate.burst), ..rate }))
        });
        change(&mut rules.rate, rate);
        change(&mut rules.hold, self.hold);
        change(&mut rules.retry_percent, self.retry_percent);
        self.retry(rules);
        self.depth.apply(rules);
        change(&mut rules.run_timeout_ms, self.run_timeout.map(ms));
        change(&mut rules.start_within_ms, self.start_within.map(ms));
        change(&mut rules.finish_within_ms, self.finish_within.map(ms));
        let (retention, usual) = (&mut rules.retention, Retention::default());
        if let Some(OrNone(kept)) = self.retain.map(ms) {
            retention.finished_ms = kept.unwrap_or(usual.finished_ms);
        }
        if let Some(OrNone(kept)) = self.retain_dead.map(ms) {
            retention.dead_ms = kept.unwrap_or(usual.dead_ms);
        }
        change(&mut retention.finished_max, self.retain_max);
        change(&mut retention.dead_bytes_max, self.retain_dead_bytes);
    }

    /// What goes although it was not named, in words.
    pub fn lost(&self, before: &QueueRules) -> Vec<String> {
        self.depth.lost(before)
    }

    /// How jobs are retried; the usual is not kept as a rule.
    fn retry(&self, rules: &mut QueueRules) {
        let (had, usual) = (rules.retry.is_some(), Retry::default());
        let mut retry = rules.retry.take().unwrap_or_default();
        if let Some(OrNone(attempts)) = self.attempts {
            retry.attempts_max = attempts.unwrap_or(usual.attempts_max);
        }
        if let Some(OrNone(backoff)) = &self.backoff {
            retry.backoff = backoff.clone().map_or(usual.backoff.clone(), |BackoffText(own)| own);
        }
        let is_given = self.attempts.is_some() || self.backoff.is_some();
        rules.retry =
            (had || is_given).then_some(retry).filter(|retry| *retry != usual || !is_given);
    }
}

/// Changes a rule that was given.
pub fn change<T>(rule: &mut Option<T>, given: Option<OrNone<T>>) {
    if let Some(OrNone(value)) = given {
        *rule = value;
    }
}

fn ms(OrNone(span): OrNone<Span>) -> OrNone<u64> {
    OrNone(span.map(|Span(span)| u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
}

fn weights(text: &str) -> Result<BandWeights, String> {
    let numbers: Vec<u32> = text.split(':').filter_map(|number| number.parse().ok()).collect();
    match numbers.as_slice() {
        [urgent, high, normal, low] if text.split(':').count() == 4 => {
            Ok(BandWeights { urgent: *urgent, high: *high, normal: *normal, low: *low })
        }
        _ => Err("four numbers for urgent, high, normal and low, such as 8:4:2:1".to_owned()),
    }
}

fn tenant_weight(text: &str) -> Result<(String, u32), String> {
    let wrong = || "a tenant and its weight, such as acme=3".to_owned();
    let (tenant, weight) = text.rsplit_once('=').ok_or_else(wrong)?;
    Ok((tenant.to_owned(), weight.parse().map_err(|_| wrong())?))
}
