//! Why a job is not running, or a queue so deep: all that holds them, in a sentence and as a structure.

mod lane;
mod queue;

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::flow::FlowState;
use crate::id::{FlowId, JobId, WorkerId};
use crate::job::Priority;
use crate::job::state::State;
use crate::span::Span;
use crate::workflow::Parked;
pub use lane::{COUNTED_MAX, LaneView, TENANTS_MAX};
pub use queue::{Holder, LINES_MAX, QueueWhy, TenantDepth, Trend, drains_at_most, drains_in_ms};

/// What to do with a run that is parked.
const PARKED_NEXT: &str = "`tidemill workflows diff` shows both sides; mend the code and `workflows resume` it, or \
    `workflows reset` it to a step before, or `workflows skip` a step that is stuck";

/// What to do with a job that is dead.
const DEAD_NEXT: &str =
    "`tidemill dead show` says what it died of, `tidemill dead replay` lets it run again";

/// Something that keeps a job from running now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "gate", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
    Blocked {
        /// That job; nothing when it has just finished.
        holder: Option<KeyHolder>,
    },
    /// It waits for its turn among the jobs of its queue, tenant and key.
    Line {
        /// Its key.
        key: String,
        /// How many are before it, counted up to 100,000.
        ahead: u64,
        /// The first of them; nothing where it is not the asker's to know.
        head: Option<JobId>,
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
    /// It is a run of a workflow that waits, or is held.
    Run {
        /// What it waits for, in words.
        waits_for: Vec<String>,
        /// Why it does not go on by itself.
        parked: Option<Parked>,
        /// Somebody paused it.
        paused: bool,
    },
    /// It waits for the clock.
    Due {
        /// Until when.
        at: Timestamp,
        /// How many attempts are behind it: more than none is the pause before a retry.
        attempt: u16,
    },
    /// Once its step of a flow has let it go, it waits this long.
    Delay {
        /// How long, in ms.
        delay_ms: u64,
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
    /// It is too late for it, or will be before it can start: whoever would take it then calls it dead.
    Late {
        /// What it had to do by then.
        to: Deadline,
        /// By when.
        at: Timestamp,
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
    /// Its band shares the work of the queue with others, and jobs go before it. Jobs are counted up to
    /// [`COUNTED_MAX`] of each band.
    Band {
        /// Its band.
        band: Priority,
        /// It gets so many…
        weight: u32,
        /// …of this many starts, by the weights of the bands that have work.
        weights: u32,
        /// Jobs that are due in bands which go before it.
        higher: u64,
        /// Jobs of its own band that have been due longer, whosever they are.
        equal: u64,
    },
    /// The tenants of its band take turns, and several have work. They are counted up to [`TENANTS_MAX`].
    Tenant {
        /// Whose it is; jobs without a tenant count as one.
        tenant: Option<String>,
        /// Its tenant gets so many…
        weight: u32,
        /// …of this many starts of its band, by the weights of the tenants that have work.
        weights: u32,
        /// Whose turn it is: 1 is next. Each process takes its own turns; this is of the one that was asked.
        place: u64,
        /// Tenants that have work, its own included.
        tenants: u64,
        /// Jobs of its own tenant and band that have been due longer.
        ahead: u64,
    },
    /// It is due, and nothing but its turn and a free slot is missing.
    Slot {
        /// Workers that would run it.
        workers: usize,
        /// How many jobs they run at once, all their queues together.
        slots: u64,
    },
}

/// What a job has to do in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Deadline {
    /// To start, by its `start_within`.
    Start,
    /// To finish, by its `finish_within`.
    Finish,
}

/// The job that holds a unique key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyHolder {
    /// Which job.
    pub id: JobId,
    /// Where it stands.
    pub state: State,
}

/// Why a job is not running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
            Self::Finished { state, at } => {
                write!(f, "it is {}", state.word())?;
                if let Some(at) = at {
                    write!(f, " since {at}")?;
                }
                if *state == State::Dead { write!(f, "; {DEAD_NEXT}") } else { Ok(()) }
            }
            Self::Running { called_off: true, .. } => {
                write!(f, "it runs, and was called off: its handler is being told")
            }
            Self::Running { worker: Some(worker), .. } => write!(f, "it runs, at worker {worker}"),
            Self::Running { .. } => write!(f, "it runs"),
            Self::Blocked { holder: Some(KeyHolder { id, state }) } => {
                let state = state.word();
                write!(
                    f,
                    "it is kept until {id}, which holds its unique key and is {state}, has finished"
                )
            }
            Self::Blocked { holder: None } => {
                write!(f, "it is kept until the job that holds its unique key has finished")
            }
            Self::Line { key, ahead, head, dead } => {
                let number = ahead.saturating_add(1);
                write!(f, "it is number {number} of the line of key {key}; first is ")?;
                match head {
                    Some(head) => write!(f, "{head}, ")?,
                    None => write!(f, "another, ")?,
                }
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
                    Some(1) => write!(f, ", one job at a time"),
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
            Self::Run { parked: Some(parked), .. } => {
                let (why, code) = (&parked.why, parked.code.code());
                write!(f, "it is parked until somebody resumes it: {why} ({code}). {PARKED_NEXT}")
            }
            Self::Run { paused: true, .. } => write!(f, "it is paused until somebody resumes it"),
            Self::Run { waits_for, .. } => write!(f, "it waits for {}", waits_for.join(", ")),
            Self::Due { at, attempt: 0 } => write!(f, "it is not due before {at}"),
            Self::Due { at, attempt } => {
                write!(
                    f,
                    "its attempt {attempt} failed or was put off, and the next is due at {at}"
                )
            }
            Self::Delay { delay_ms } => {
                let delay = Span(Duration::from_millis(*delay_ms));
                write!(f, "once it is let go, it is to wait {delay}")
            }
            Self::Paused { queue, rule } if queue == rule => {
                write!(f, "its queue {queue} is paused")
            }
            Self::Paused { queue, rule } => {
                write!(f, "its queue {queue} is paused by the rules of {rule}")
            }
            Self::NoWorker { queue } => write!(f, "no live worker takes from its queue {queue}"),
            Self::KindUnknown { kind, workers: 1 } => {
                write!(f, "the one worker of its queue does not know the kind {kind}")
            }
            Self::KindUnknown { kind, workers } => {
                write!(f, "none of the {workers} workers of its queue knows the kind {kind}")
            }
            Self::Late { to, at } => {
                let to = match to {
                    Deadline::Start => "start",
                    Deadline::Finish => "finish",
                };
                write!(f, "it had to {to} by {at}: whoever would take it after that calls it dead")
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
            Self::Limit { limit, inside, most, workers, opens_at, .. } => {
                let full = most.filter(|most| opens_at.is_none() || *inside >= u64::from(*most));
                match (full, opens_at) {
                    (None, None) => return write!(f, "it waits at {limit}"),
                    (None, Some(at)) => return write!(f, "{limit} lets nobody pass before {at}"),
                    (Some(most), _) => write!(f, "{limit} is full: {inside} of {most} run")?,
                }
                match workers.as_slice() {
                    [] => {}
                    [one] => write!(f, ", at worker {one}")?,
                    [one, _] => write!(f, ", at worker {one} and another")?,
                    [one, rest @ ..] => write!(f, ", at worker {one} and {} others", rest.len())?,
                }
                opens_at.map_or(Ok(()), |at| write!(f, "; and it lets nobody pass before {at}"))
            }
            Self::Band { band, weight, weights, higher, equal } => {
                match (weight, weights) {
                    (0, _) => write!(f, "its band {} has what others leave", band.word())?,
                    (own, all) if own == all => write!(f, "its band is {}", band.word())?,
                    _ => write!(f, "its band {} gets {weight} of {weights} starts", band.word())?,
                }
                match (higher, equal) {
                    (0, equal) => write!(f, "; before it: {} of it", jobs(*equal)),
                    (higher, 0) => write!(f, "; before it: {} of other bands", jobs(*higher)),
                    (higher, equal) => {
                        let (higher, equal) = (jobs(*higher), jobs(*equal));
                        write!(f, "; before it: {higher} of other bands, {equal} of its own")
                    }
                }
            }
            Self::Tenant { tenant, weight, weights, place, tenants, ahead } => {
                match tenant {
                    Some(tenant) => write!(f, "its tenant {tenant}")?,
                    None => write!(f, "jobs without a tenant")?,
                }
                let more = if *tenants > TENANTS_MAX as u64 { " or more" } else { "" };
                let verb = if tenant.is_some() { "is" } else { "are" };
                write!(f, " {verb} number {place} of {tenants}{more} in turn, with {weight} of ")?;
                write!(
                    f,
                    "{weights}{more} starts of its band; before it: {} of its own",
                    jobs(*ahead)
                )
            }
            Self::Slot { workers: 1, slots: 1 } => {
                write!(f, "it waits for the slot of the one worker")
            }
            Self::Slot { workers: 1, slots } => {
                write!(f, "it waits for one of {slots} slots of the one worker")
            }
            Self::Slot { workers, slots } => {
                write!(f, "it waits for one of {slots} slots of {workers} workers")
            }
        }
    }
}

/// A number of jobs that was counted up to a bound.
fn jobs(number: u64) -> String {
    match number {
        1 => "1 job".to_owned(),
        COUNTED_MAX.. => format!("{COUNTED_MAX} or more jobs"),
        _ => format!("{number} jobs"),
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
        let line = |dead| {
            let (key, head) = ("order:42".into(), Some(head));
            Gate::Line { key, ahead: 2, head, dead }.to_string()
        };
        let place = format!("it is number 3 of the line of key order:42; first is {head}");
        assert_eq!(line(false), format!("{place}, which has not finished"));
        assert!(line(true).starts_with(&format!("{place}, which is dead and blocks")));
    }

    #[test]
    fn a_dead_job_and_a_kept_one_say_what_comes_next() {
        let at = Some(Timestamp::UNIX_EPOCH);
        let finished = |state| Gate::Finished { state, at }.to_string();
        assert_eq!(finished(State::Done), "it is done since 1970-01-01T00:00:00Z");
        let dead = finished(State::Dead);
        assert!(dead.starts_with("it is dead since 1970-01-01T00:00:00Z; `tidemill dead show`"));
        assert!(dead.contains("`tidemill dead replay` lets it run again"), "{dead}");
        let id = JobId::new();
        let blocked = |holder| Gate::Blocked { holder }.to_string();
        let expected = format!(
            "it is kept until {id}, which holds its unique key and is running, has finished"
        );
        assert_eq!(blocked(Some(KeyHolder { id, state: State::Running })), expected);
        assert!(blocked(None).contains("until the job that holds its unique key has finished"));
    }

    #[test]
    fn a_turn_is_explained_by_band_and_tenant() {
        let band = |weight, weights, higher, equal| {
            Gate::Band { band: Priority::Low, weight, weights, higher, equal }.to_string()
        };
        for (gate, expected) in [
            (band(1, 1, 0, 3), "its band is low; before it: 3 jobs of it"),
            (band(1, 9, 9, 0), "its band low gets 1 of 9 starts; before it: 9 jobs of other bands"),
            (
                band(1, 9, COUNTED_MAX, 1),
                "its band low gets 1 of 9 starts; before it: 10000 or more jobs of other bands, 1 job of its own",
            ),
            (
                band(0, 8, 2, 0),
                "its band low has what others leave; before it: 2 jobs of other bands",
            ),
        ] {
            assert_eq!(gate, expected);
        }
        let tenant = |tenant: Option<&str>, tenants| {
            let (tenant, weight, weights) = (tenant.map(str::to_owned), 3, 19);
            Gate::Tenant { tenant, weight, weights, place: 2, tenants, ahead: 4 }.to_string()
        };
        assert_eq!(
            tenant(Some("acme"), 17),
            "its tenant acme is number 2 of 17 in turn, with 3 of 19 starts of its band; \
             before it: 4 jobs of its own"
        );
        let many = tenant(None, TENANTS_MAX as u64 + 1);
        assert!(many.starts_with("jobs without a tenant are number 2 of 1001 or more in turn"));
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
