//! A page of measurements in the text form of Prometheus (0.0.4).
//!
//! Everything of one name stands together, under its help and its type, as the form asks for. It refuses nothing:
//! values that are no numbers are written as Prometheus writes them.

use std::fmt::Write;

use super::Seen;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The whole name, with its unit.
    pub name: &'static str,
    /// Whether it only grows, goes up and down, or is a histogram.
    pub form: Form,
    /// What it says, in a sentence.
    pub help: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
}

/// What sort of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How often values were how large.
    Histogram,
}

impl Form {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A page while it is written.
#[derive(Debug, Default)]
pub struct Page(String);

impl Page {
    /// Begins a metric; what follows is of it.
    pub fn begin(&mut self, metric: &Metric) {
        let Metric { name, form, help, .. } = metric;
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {}", form.word());
    }

    /// A value under these labels, whose values stand in the order of their names.
    pub fn value(&mut self, metric: &Metric, labels: &[&str], value: f64) {
        self.sample(metric, "", labels, None, value);
    }

    /// A histogram, of which `per_unit` make one of the base unit: seconds are seen in millionths.
    pub fn histogram(&mut self, metric: &Metric, labels: &[&str], seen: &Seen, per_unit: f64) {
        let mut below = 0;
        for (bound, count) in seen.bounds.iter().zip(&seen.counts) {
            below += count;
            let bound = (*bound as f64 / per_unit).to_string();
            self.sample(metric, "_bucket", labels, Some(&bound), below as f64);
        }
        let all = seen.count() as f64;
        self.sample(metric, "_bucket", labels, Some("+Inf"), all);
        self.sample(metric, "_sum", labels, None, seen.sum as f64 / per_unit);
        self.sample(metric, "_count", labels, None, all);
    }

    /// What was written.
    pub fn into_text(self) -> String {
        self.0
    }

    fn sample(
        &mut self,
        metric: &Metric,
        end: &str,
        labels: &[&str],
        le: Option<&str>,
        value: f64,
    ) {
        let text = &mut self.0;
        text.push_str(metric.name);
        text.push_str(end);
        let named = metric.labels.iter().copied().zip(labels.iter().copied());
        let mut sign = '{';
        for (name, value) in named.chain(le.map(|le| ("le", le))) {
            text.push(sign);
            sign = ',';
            let _ = write!(text, "{name}=\"");
            escape(text, value);
            text.push('"');
        }
        if sign == ',' {
            text.push('}');
        }
        let _ = if value.is_infinite() {
            writeln!(text, " {}Inf", if value > 0.0 { '+' } else { '-' })
        } else {
            writeln!(text, " {value}")
        };
    }
}

fn escape(text: &mut String, value: &str) {
    for sign in value.chars() {
        match sign {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Histogram;

    const JOBS: Metric = Metric {
        name: "jobs_total",
        form: Form::Counter,
        help: "Jobs.",
        labels: &["queue", "kind"],
    };
    const TIME: Metric =
        Metric { name: "time_seconds", form: Form::Histogram, help: "Time.", labels: &[] };

    #[test]
    fn a_page_is_as_prometheus_reads_it() {
        let mut page = Page::default();
        page.begin(&JOBS);
        page.value(&JOBS, &["a\"b", "c\\d\ne"], 3.0);
        page.begin(&TIME);
        let histogram = Histogram::new(&[1_000, 2_500_000]);
        for us in [1_000, 2_000_000, 3_000_000] {
            histogram.see(us);
        }
        page.histogram(&TIME, &[], &histogram.read(), 1e6);
        assert_eq!(
            page.into_text(),
            "# HELP jobs_total Jobs.\n# TYPE jobs_total counter\n\
             jobs_total{queue=\"a\\\"b\",kind=\"c\\\\d\\ne\"} 3\n\
             # HELP time_seconds Time.\n# TYPE time_seconds histogram\n\
             time_seconds_bucket{le=\"0.001\"} 1\ntime_seconds_bucket{le=\"2.5\"} 2\n\
             time_seconds_bucket{le=\"+Inf\"} 3\ntime_seconds_sum 5.001\ntime_seconds_count 3\n"
        );
    }
}
