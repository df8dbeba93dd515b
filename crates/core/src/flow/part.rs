//! Flows that are built in parts: what is known of such a flow only when its last part is there.
//!
//! Steps, edges and names are checked when the flow is written; how many jobs its steps have, when it begins. A flow
//! that is sent whole is checked by the same rule at once.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::flow::board::Board;
use crate::flow::state::{FlowState, StepRow, StepState};
use crate::flow::{Edge, Need, plan};
use crate::job::NewJob;
use crate::limit::NAME_BYTES_MAX;
use crate::name;

/// What names a part, so that one that is sent twice is added once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its key: unique in its flow, chosen by whoever sends it.
    pub key: String,
    /// What it is told by when its key comes again.
    pub print: String,
}

impl Part {
    /// The part of this key that gives a step these jobs. It goes by their kinds, queues, tenants and payloads, as an
    /// `Idempotency-Key` does: their ids may be made anew when it is sent again.
    pub fn new(key: &str, step: &str, jobs: &[NewJob]) -> Result<Self> {
        name::check("part", key, NAME_BYTES_MAX)?;
        let mut print = blake3::Hasher::new();
        let mut see = |text: &str| {
            print.update(&(text.len() as u64).to_le_bytes());
            print.update(text.as_bytes());
        };
        see(step);
        for job in jobs {
            // The payload may have been written with other spaces, or its fields in another order.
            let payload: serde_json::Value =
                job.payload.read().map_err(|e| Error::PayloadNotJson { reason: e.to_string() })?;
            let tenant = job.tenant.as_deref().unwrap_or_default();
            [&job.kind, &job.queue, tenant, &payload.to_string()].into_iter().for_each(&mut see);
        }
        let print = print.finalize().to_hex().as_str()[..32].to_owned();
        Ok(Self { key: key.to_owned(), print })
    }
}

/// Which way a flow goes when something fails that a job of it adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Way {
    /// It is no saga.
    #[default]
    Plain,
    /// It turns back: what is added says that there is nothing to undo.
    Back,
    /// It is past its point of no return: what is added is retried until it works.
    Forward,
}

impl Way {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    pub(super) fn is_plain(&self) -> bool {
        *self == Self::Plain
    }
}

/// Refuses more jobs than a step can ever have.
fn check_undo(step: &StepRow, jobs: u64) -> Result<()> {
    if step.undo.is_some() && jobs != 1 {
        return Err(plan::invalid(&step.name, "it has an undo, and not exactly one job"));
    }
    Ok(())
}

/// Refuses steps that could never work for the number of jobs there are, or not as they say: a quorum of more than it
/// comes after, more failures than there can be, an undo of other than one job.
pub(super) fn check_numbers<'r>(
    steps: impl Iterator<Item = &'r StepRow> + Clone,
    edges: impl Iterator<Item = &'r Edge>,
) -> Result<()> {
    let jobs: HashMap<u32, u64> = steps.clone().map(|step| (step.number, step.jobs)).collect();
    let mut before: HashMap<u32, u64> = HashMap::new();
    let mut failures: HashMap<u32, u64> = HashMap::new();
    for edge in edges {
        let there = jobs.get(&edge.from).copied().unwrap_or(0);
        *before.entry(edge.to).or_default() += there;
        *failures.entry(edge.to).or_default() += there.max(1);
    }
    for step in steps {
        if let Need::Quorum { jobs: wanted } = step.join.need {
            let there = before.get(&step.number).copied().unwrap_or(0);
            if u64::from(wanted) > there {
                let why = format!(
                    "its quorum is {wanted}, but it comes after {there} jobs; give {there} at most"
                );
                return Err(plan::invalid(&step.name, why));
            }
        }
        if let Need::All { failures_max } = step.join.need
            && failures_max > 0
        {
            // One of no jobs that is lost is a failure, too.
            let there = failures.get(&step.number).copied().unwrap_or(0);
            if u64::from(failures_max) > there {
                let why = format!(
                    "its failures_max is {failures_max}, but it comes after {there} jobs; give {there} at most, or \
                     wait for all to be finished"
                );
                return Err(plan::invalid(&step.name, why));
            }
        }
        check_undo(step, step.jobs)?;
    }
    Ok(())
}

impl Board {
    /// Why a flow whose parts are all there cannot begin, if so. The board must know the whole flow.
    pub fn check_whole(&self) -> Result<()> {
        check_numbers(self.steps.values(), self.leaving.values().flatten())
    }

    /// Whether anything of it was ever let go. One that was called off before it began has nothing but skipped steps.
    /// The board must know the whole flow.
    pub fn has_begun(&self) -> bool {
        let is_idle = |step: &StepRow| {
            matches!(step.state, StepState::Waiting | StepState::Skipped) && !step.superseded
        };
        self.flow.state == FlowState::Running || !self.steps().all(is_idle)
    }

    /// Why a flow takes no more parts, if so.
    pub fn may_not_be_built(&self) -> Option<String> {
        match self.flow.state {
            FlowState::Building => None,
            FlowState::Running => Some("it has begun".to_owned()),
            state => Some(format!("it is {}", state.word())),
        }
    }

    /// Whether a step can be given so many more jobs. The board must know it, if the flow is a saga.
    pub fn check_added(&self, step: u32, jobs: u64) -> Result<()> {
        match self.step(step) {
            Some(step) if jobs > 0 => check_undo(step, step.jobs + jobs),
            _ => Ok(()),
        }
    }

    /// Which way it goes when something fails that jobs of this step add. The board must know the whole flow, if it is
    /// a saga.
    pub fn way_of(&self, step: u32) -> Way {
        match (self.flow.saga, self.is_from_return(step)) {
            (false, _) => Way::Plain,
            (true, false) => Way::Back,
            (true, true) => Way::Forward,
        }
    }

    /// Whether a step is retried until it works: it comes after the point of no return.
    pub fn is_forward(&self, step: u32) -> bool {
        let is_pivot = self.step(step).is_some_and(|step| step.pivot);
        self.flow.saga && !is_pivot && self.is_from_return(step)
    }

    /// Whether a step is the point of no return, or cannot run unless that is done.
    fn is_from_return(&self, step: u32) -> bool {
        let edges: Vec<Edge> = self.leaving.values().flatten().cloned().collect();
        plan::beyond(self.steps(), &edges).contains(&step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limits;
    use crate::payload::Payload;

    fn job(kind: &str, payload: &str) -> NewJob {
        NewJob::new(kind, Payload::parse(payload, &Limits::default()).unwrap())
    }

    #[test]
    fn a_part_is_told_by_what_its_jobs_do_and_not_by_their_ids() {
        let print = |step: &str, jobs: &[NewJob]| Part::new("1", step, jobs).unwrap().print;
        let mails = [job("mail", r#"{"a":1, "b":2}"#), job("mail", "2")];
        let first = print("mails", &mails);
        let again = [job("mail", r#"{"b":2,"a":1}"#), job("mail", "2")];
        assert_eq!(print("mails", &again), first);
        let moved = NewJob { queue: "slow".into(), ..job("mail", "2") };
        let theirs = NewJob { tenant: Some("acme".into()), ..job("mail", "2") };
        for other in [
            vec![job("mail", r#"{"a":1,"b":2}"#)],
            vec![job("mail", "2"), job("mail", r#"{"a":1,"b":2}"#)],
            vec![again[0].clone(), job("sms", "2")],
            vec![again[0].clone(), moved],
            vec![again[0].clone(), theirs],
        ] {
            assert_ne!(print("mails", &other), first, "{other:?}");
        }
        assert_ne!(print("others", &mails), first);
        assert!(Part::new("", "mails", &mails).is_err());
        assert!(Part::new(&"x".repeat(NAME_BYTES_MAX + 1), "mails", &mails).is_err());
    }
}
