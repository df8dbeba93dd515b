//! Why a job is not running, or a queue so deep: all that holds them, in a sentence and as a structure.

mod queue;

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::flow::FlowState;
use crate::id::{FlowId, JobId, WorkerId};
use crate::job::state::State;
pub use queue::{Holder, QueueWhy, TenantDepth, Trend, drains_in_ms};

/// Something that keeps a job from running now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "gate", rename_all = "snake_case")]
pub enum Gate {
    /// It has finished.
    Finished {
        /// Done, cancelled or dead.
        state: State,
        /// When.
        at: Option<Timestamp>,
    },
    /// It runs already.
    Running {
        /// Who has it.
        worker: Option<WorkerId>,
        /// Whether it was called off meanwhile.
        called_off: bool,
    },
    /// It is kept until the job that holds its unique key has finished.
    Blocked,
    /// It waits for its turn among the jobs of its queue and key.
    Line {
        /// Its key.
        key: String,
        /// How many are before it.
        ahead: u64,
        /// The first of them.
        head: JobId,
        /// Whether that one is dead and blocks the others.
        dead: bool,
    },
    /// Its step of a flow has not been let go.
    Flow {
        /// Which flow.
        flow: FlowId,
        /// Its step.
        step: String,
        /// Where the flow stands.
        state: FlowState,
        /// What its step comes after and has not ended, or holds it; with how many jobs of it have not ended.
        waits_for: Vec<(String, u64)>,
        /// At most so many jobs of the flow are under way at once.
        at_once: Option<u32>,
    },
    /// It waits for the clock.
    Due {
        /// Until when.
        at: Timestamp,
        /// How many attempts are behind it: more than none is the pause before a retry.
        attempt: u16,
    },
    /// Its queue is paused.
    Paused {
        /// Its queue.
        queue: String,
        /// The name or pattern whose rules say so.
        rule: String,
    },
    /// No live worker takes from its queue.
    NoWorker {
        /// Its queue.
        queue: String,
    },
    /// Workers take from its queue, but none of them knows its kind.
    KindUnknown {
        /// Its kind.
        kind: String,
        /// How many workers take from its queue.
        workers: usize,
    },
    /// A limit lets nobody like it pass.
    Limit {
        /// The name of the gate.
        limit: String,
        /// Jobs inside of it now.
        inside: u64,
        /// How many may be, if that is limited.
        most: Option<u32>,
        /// Workers that run them.
        workers: Vec<WorkerId>,
        /// Whether too many attempts failed there: it spares the other side, and then probes.
        is_broken: bool,
        /// When the clock opens it, if that is what it waits for.
        opens_at: Option<Timestamp>,
    },
    /// It is due, and waits for its turn and a free slot.
    Slot {
        /// Workers that would run it.
        workers: usize,
        /// How many jobs they run at once, all their queues together.
        slots: u64,
        /// Jobs of its queue that could start now, this one included, of all bands and tenants.
        ready: u64,
    },
}

/// Why a job is not running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// Which job.
    pub id: JobId,
    /// Where it stands.
    pub state: State,
    /// Everything that holds it; each must open before it starts.
    pub gates: Vec<Gate>,
    /// When it will start, where that can be known.
    pub expected_at: Option<Timestamp>,
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished { state, at: Some(at) } => {
                write!(f, "it is {} since {at}", state.word())
            }
            Self::Finished { state, at: None } => write!(f, "it is {}", state.word()),
            Self::Running { called_off: true, .. } => {
                write!(f, "it runs, and was called off: its handler is being told")
            }
            Self::Running { worker: Some(worker), .. } => write!(f, "it runs, at worker {worker}"),
            Self::Running { .. } => write!(f, "it runs"),
            Self::Blocked => {
                write!(f, "it is kept until the job that holds its unique key has finished")
            }
            Self::Line { key, ahead, head, dead } => {
                let number = ahead.saturating_add(1);
                write!(f, "it is number {number} of the line of key {key}; first is {head}, ")?;
                if *dead {
                    write!(
                        f,
                        "which is dead and blocks the others until it is replayed or given up"
                    )
                } else {
                    write!(f, "which has not finished")
                }
            }
            Self::Flow { flow, state: FlowState::Building, .. } => {
                write!(f, "its flow {flow} is still being built")
            }
            Self::Flow { flow, step, waits_for, at_once, .. } if waits_for.is_empty() => {
                write!(f, "its step {step} of the flow {flow} is being opened")?;
                match at_once {
                    Some(at_once) => write!(f, ", {at_once} jobs at once"),
                    None => Ok(()),
                }
            }
            Self::Flow { flow, step, waits_for, .. } => {
                write!(f, "its step {step} of the flow {flow} waits for ")?;
                for (number, (parent, left)) in waits_for.iter().enumerate() {
                    write!(f, "{}{parent}", if number > 0 { ", " } else { "" })?;
                    match left {
                        0 => write!(f, " (dead)")?,
                        1 => {}
                        left => write!(f, " ({left} jobs)")?,
                    }
                }
                Ok(())
            }
            Self::Due { at, attempt: 0 } => write!(f, "it is not due before {at}"),
            Self::Due { at, attempt } => {
                write!(
                    f,
                    "its attempt {attempt} failed or was put off, and the next is due at {at}"
                )
            }
            Self::Paused { queue, rule } if queue == rule => {
                write!(f, "its queue {queue} is paused")
            }
            Self::Paused { queue, rule } => {
                write!(f, "its queue {queue} is paused by the rules of {rule}")
            }
            Self::NoWorker { queue } => write!(f, "no live worker takes from its queue {queue}"),
            Self::KindUnknown { kind, workers } => {
                write!(f, "none of the {workers} workers of its queue knows the kind {kind}")
            }
            Self::Limit { limit, is_broken: true, opens_at: Some(at), .. } => {
                write!(
                    f,
                    "too much failed at {limit}: it is spared until {at}, then one job probes it"
                )
            }
            Self::Limit { limit, is_broken: true, .. } => {
                write!(f, "too much failed at {limit}: a probe decides")
            }
            Self::Limit { limit, opens_at: Some(at), .. } => {
                write!(f, "{limit} lets nobody pass before {at}")
            }
            Self::Limit { limit, inside, most: Some(most), workers, .. } => {
                write!(f, "{limit} is full: {inside} of {most} run")?;
                match workers.as_slice() {
                    [] => Ok(()),
                    [one] => write!(f, ", at worker {one}"),
                    [one, rest @ ..] => write!(f, ", at worker {one} and {} others", rest.len()),
                }
            }
            Self::Limit { limit, .. } => write!(f, "it waits at {limit}"),
            Self::Slot { workers, slots, ready } => write!(
                f,
                "it waits for its turn: {ready} jobs of its queue could start, \
                 for {slots} slots of {workers} workers"
            ),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, gate) in self.gates.iter().enumerate() {
            write!(f, "{}{gate}", if number > 0 { "; " } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_line_says_who_is_first() {
        let head = JobId::new();
        let line = |dead| Gate::Line { key: "order:42".into(), ahead: 2, head, dead }.to_string();
        let place = format!("it is number 3 of the line of key order:42; first is {head}");
        assert_eq!(line(false), format!("{place}, which has not finished"));
        assert!(line(true).starts_with(&format!("{place}, which is dead and blocks")));
    }

    #[test]
    fn several_gates_are_one_sentence() {
        let (queue, rule) = ("mail:eu".to_owned(), "mail:*".to_owned());
        let gates = vec![
            Gate::Due { at: Timestamp::UNIX_EPOCH, attempt: 2 },
            Gate::Paused { queue: queue.clone(), rule },
            Gate::NoWorker { queue },
        ];
        let why = Why { id: JobId::new(), state: State::Scheduled, gates, expected_at: None };
        assert_eq!(
            why.to_string(),
            "its attempt 2 failed or was put off, and the next is due at 1970-01-01T00:00:00Z; \
             its queue mail:eu is paused by the rules of mail:*; \
             no live worker takes from its queue mail:eu"
        );
    }
}
