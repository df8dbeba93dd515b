//! When somebody should look: signs of trouble, and the thresholds beyond which they are alerts.
//!
//! A rule of signs and thresholds, without a clock: who gathers the signs says of when they are.

pub mod book;

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::depth::{RATE_WINDOW, Rates};

/// What sort of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum AlertKind {
    /// More comes into a queue than goes out of it.
    DepthGrowing,
    /// The oldest job that could start waits for too long.
    OldestWaits,
    /// Many jobs died lately.
    DeadLetters,
    /// A saga can neither go on nor back: somebody has to act.
    SagaStuck,
    /// A kind waits that no live worker knows.
    NoWorker,
    /// A queue has reached its high watermark, and has not been down at the low one since: producers should pause.
    AboveWatermark,
}

impl AlertKind {
    /// All sorts.
    pub const ALL: [Self; 6] = [
        Self::DepthGrowing,
        Self::OldestWaits,
        Self::DeadLetters,
        Self::SagaStuck,
        Self::NoWorker,
        Self::AboveWatermark,
    ];

    /// Its word.
    pub fn word(self) -> &'static str {
        [
            "depth_growing",
            "oldest_waits",
            "dead_letters",
            "saga_stuck",
            "no_worker",
            "above_watermark",
        ][self as usize]
    }

    /// Whether it has to hold for a while before anybody is told. Two watermarks have their gap for that.
    pub fn must_hold(self) -> bool {
        self != Self::AboveWatermark
    }
}

/// Beyond what something is an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// A queue that became so much deeper within a minute, and is at least so deep. Defaults to 1,000 jobs.
    pub growth_jobs: u64,
    /// A job that could start and has waited for so long. Defaults to five minutes.
    pub oldest_wait: Duration,
    /// So many dead letters… Defaults to 10.
    pub dead_letters: u64,
    /// …within so long. Defaults to five minutes.
    pub dead_within: Duration,
    /// So many sagas that are stuck. Defaults to 1.
    pub sagas_stuck: u64,
    /// It must have held for so long before anybody is told: a worker that is started anew is no alert. Defaults to 15
    /// seconds.
    pub hold: Duration,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            growth_jobs: 1000,
            oldest_wait: Duration::from_mins(5),
            dead_letters: 10,
            dead_within: Duration::from_mins(5),
            sagas_stuck: 1,
            hold: Duration::from_secs(15),
        }
    }
}

/// What is seen of a queue.
#[derive(Debug, Clone, Default)]
pub struct QueueSigns {
    /// Which queue.
    pub queue: String,
    /// Jobs that wait in it.
    pub depth: u64,
    /// How fast it fills and drains, if that is known.
    pub rates: Option<Rates>,
    /// How long the oldest that could start has waited.
    pub oldest_wait: Option<Duration>,
    /// Kinds that wait in it and that no live worker knows.
    pub orphan_kinds: Vec<String>,
    /// Somebody has paused it: what waits there is meant to.
    pub is_paused: bool,
    /// Since when it is above its high watermark, and which that is.
    pub above: Option<(Timestamp, u64)>,
}

/// What is seen of the whole store.
#[derive(Debug, Clone, Default)]
pub struct Signs {
    /// Of its queues.
    pub queues: Vec<QueueSigns>,
    /// Jobs that died lately; at least so many.
    pub dead: u64,
    /// Sagas that are stuck.
    pub sagas_stuck: u64,
}

/// Something that somebody should look at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Alert {
    /// What sort.
    pub alert: AlertKind,
    /// In which queue, if it is of one.
    pub queue: Option<String>,
    /// Of which kind of job, if it is of one.
    pub kind: Option<String>,
    /// How much there is: jobs, seconds, sagas.
    pub value: f64,
    /// From where on it is an alert.
    pub threshold: f64,
    /// Since when it holds, as far as this process has seen.
    pub since: Option<Timestamp>,
}

impl Alert {
    /// What makes two of them the same alert at two moments.
    pub fn key(&self) -> (AlertKind, Option<&str>, Option<&str>) {
        (self.alert, self.queue.as_deref(), self.kind.as_deref())
    }
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, kind, value, threshold, .. } = self;
        let queue = queue.as_deref().unwrap_or_default();
        match self.alert {
            AlertKind::DepthGrowing => {
                write!(f, "queue {queue} grew by {} within a minute", number(*value, "job"))
            }
            AlertKind::OldestWaits => {
                write!(
                    f,
                    "a job in queue {queue} has waited for {value:.0} s, longer than {threshold:.0} s"
                )
            }
            AlertKind::DeadLetters => {
                write!(
                    f,
                    "at least {} died lately; `tidemill dead groups` says of what",
                    number(*value, "job")
                )
            }
            AlertKind::SagaStuck => {
                write!(
                    f,
                    "{} stuck; `tidemill flows list --state stuck` names them",
                    if *value < 1.5 {
                        "1 saga is".to_owned()
                    } else {
                        format!("{value:.0} sagas are")
                    }
                )
            }
            AlertKind::NoWorker => {
                let kind = kind.as_deref().unwrap_or_default();
                write!(f, "no live worker knows the kind {kind}, which waits in queue {queue}")
            }
            AlertKind::AboveWatermark => {
                write!(
                    f,
                    "queue {queue} has reached its high watermark of {} and has {value:.0}; producers should pause",
                    number(*threshold, "job")
                )
            }
        }
    }
}

/// So many of something, for people.
fn number(of: f64, noun: &str) -> String {
    let number = format!("{of:.0}");
    if number == "1" { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// The alerts that these signs are, in order of sort, queue and kind.
pub fn alerts(signs: &Signs, thresholds: &Thresholds) -> Vec<Alert> {
    let mut alerts = Vec::new();
    for queue in &signs.queues {
        of_queue(queue, thresholds, &mut alerts);
    }
    let mut whole = |alert, value: u64, threshold: u64| {
        if threshold > 0 && value >= threshold {
            alerts.push(new(alert, None, value as f64, threshold as f64));
        }
    };
    whole(AlertKind::DeadLetters, signs.dead, thresholds.dead_letters);
    whole(AlertKind::SagaStuck, signs.sagas_stuck, thresholds.sagas_stuck);
    alerts.sort_by(|one, other| one.key().cmp(&other.key()));
    alerts
}

fn of_queue(queue: &QueueSigns, thresholds: &Thresholds, alerts: &mut Vec<Alert>) {
    let name = || Some(queue.queue.clone());
    for kind in &queue.orphan_kinds {
        let alert = new(AlertKind::NoWorker, name(), 1.0, 1.0);
        alerts.push(Alert { kind: Some(kind.clone()), ..alert });
    }
    if let Some((since, high)) = queue.above {
        let alert = new(AlertKind::AboveWatermark, name(), queue.depth as f64, high as f64);
        alerts.push(Alert { since: Some(since), ..alert });
    }
    if queue.is_paused {
        return;
    }
    let growth = queue
        .rates
        .map_or(0.0, |rates| (rates.in_per_s - rates.out_per_s) * RATE_WINDOW.as_secs_f64());
    let most = thresholds.growth_jobs as f64;
    if growth >= most && queue.depth >= thresholds.growth_jobs {
        alerts.push(new(AlertKind::DepthGrowing, name(), growth, most));
    }
    if let Some(wait) = queue.oldest_wait.filter(|wait| *wait >= thresholds.oldest_wait) {
        let most = thresholds.oldest_wait.as_secs_f64();
        alerts.push(new(AlertKind::OldestWaits, name(), wait.as_secs_f64(), most));
    }
}

fn new(alert: AlertKind, queue: Option<String>, value: f64, threshold: f64) -> Alert {
    Alert { alert, queue, kind: None, value, threshold, since: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(signs: &Signs) -> Vec<&'static str> {
        let thresholds = Thresholds { growth_jobs: 60, ..Thresholds::default() };
        alerts(signs, &thresholds).iter().map(|alert| alert.alert.word()).collect()
    }

    fn of(queue: QueueSigns) -> Signs {
        Signs { queues: vec![QueueSigns { queue: "q".into(), ..queue }], ..Signs::default() }
    }

    #[test]
    fn signs_beyond_a_threshold_are_alerts() {
        let rates = |in_per_s, out_per_s| Some(Rates { in_per_s, out_per_s });
        let oldest =
            |s| QueueSigns { oldest_wait: Some(Duration::from_secs(s)), ..QueueSigns::default() };
        let orphan = || QueueSigns { orphan_kinds: vec!["k".into()], ..QueueSigns::default() };
        let above =
            || QueueSigns { above: Some((Timestamp::UNIX_EPOCH, 9)), ..QueueSigns::default() };
        let growing = |in_per_s, depth| QueueSigns {
            rates: rates(in_per_s, 1.0),
            depth,
            ..QueueSigns::default()
        };
        for (signs, expected) in [
            (Signs::default(), vec![]),
            (of(growing(2.0, 60)), vec!["depth_growing"]),
            (of(growing(2.0, 59)), vec![]),
            (of(growing(1.9, 1000)), vec![]),
            (of(QueueSigns { is_paused: true, ..growing(9.0, 1000) }), vec![]),
            (of(oldest(299)), vec![]),
            (of(oldest(300)), vec!["oldest_waits"]),
            (of(QueueSigns { is_paused: true, ..oldest(300) }), vec![]),
            (of(orphan()), vec!["no_worker"]),
            (of(QueueSigns { is_paused: true, ..orphan() }), vec!["no_worker"]),
            (of(above()), vec!["above_watermark"]),
            (of(QueueSigns { is_paused: true, ..above() }), vec!["above_watermark"]),
            (Signs { dead: 9, ..Signs::default() }, vec![]),
            (
                Signs { dead: 10, sagas_stuck: 1, ..Signs::default() },
                vec!["dead_letters", "saga_stuck"],
            ),
        ] {
            assert_eq!(words(&signs), expected, "{signs:?}");
        }
    }

    #[test]
    fn an_alert_says_what_and_where() {
        let signs = of(QueueSigns { orphan_kinds: vec!["resize".into()], ..QueueSigns::default() });
        let said = alerts(&signs, &Thresholds::default())[0].to_string();
        assert!(said.contains("resize") && said.contains("queue q"), "{said}");
    }
}
