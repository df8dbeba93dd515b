//! How much of a flow is made while it is read.
//!
//! It refuses what is too much for any flow before it is there: a small text may ask for a great deal, and how much
//! that is would be known only when all of it is made.

use serde::de::{DeserializeOwned, DeserializeSeed};
use serde_json::value::RawValue;
use tidemill_core::Error as Invalid;
use tidemill_core::bounded::AtMost;
use tidemill_core::flow::{EDGES_MAX, STEPS_MAX};

use crate::error::Result;
use crate::worker::job::Enqueue;

/// What a flow has so far, of what it may have.
pub(super) struct Room<'a> {
    jobs_max: usize,
    jobs: usize,
    steps: usize,
    edges: usize,
    /// Refuses a job as it is refused when the flow starts.
    check: &'a dyn Fn(&Enqueue) -> Result<()>,
}

impl<'a> Room<'a> {
    pub(super) fn new(jobs_max: usize, check: &'a dyn Fn(&Enqueue) -> Result<()>) -> Self {
        Self { jobs_max, jobs: 0, steps: 0, edges: 0, check }
    }

    pub(super) fn steps(
        &mut self,
        text: &RawValue,
        wrong: impl Fn(serde_json::Error) -> Invalid,
    ) -> Result<Vec<Box<RawValue>>> {
        let steps = list(text, &mut self.steps, STEPS_MAX).map_err(wrong)?;
        let (what, number, max) = ("steps", self.steps, STEPS_MAX);
        Ok(steps.ok_or(Invalid::FlowTooLarge { what, number, max })?)
    }

    /// The steps of a step, which is none itself: those within are.
    pub(super) fn steps_of_one(
        &mut self,
        text: &RawValue,
        wrong: impl Fn(serde_json::Error) -> Invalid,
    ) -> Result<Vec<Box<RawValue>>> {
        self.steps = self.steps.saturating_sub(1);
        self.steps(text, wrong)
    }

    pub(super) fn edges<T: DeserializeOwned>(
        &mut self,
        text: &RawValue,
        wrong: impl Fn(serde_json::Error) -> Invalid,
    ) -> Result<Vec<T>> {
        let edges = list(text, &mut self.edges, EDGES_MAX).map_err(wrong)?;
        let (what, number, max) = ("edges", self.edges, EDGES_MAX);
        Ok(edges.ok_or(Invalid::FlowTooLarge { what, number, max })?)
    }

    pub(super) fn jobs<T: DeserializeOwned>(
        &mut self,
        text: &RawValue,
        wrong: impl Fn(serde_json::Error) -> Invalid,
    ) -> Result<Vec<T>> {
        let jobs = list(text, &mut self.jobs, self.jobs_max).map_err(wrong)?;
        Ok(jobs.ok_or(Invalid::BatchTooLarge { jobs: self.jobs, jobs_max: self.jobs_max })?)
    }

    /// One more, that was not read of a list.
    pub(super) fn job(&mut self) {
        self.jobs += 1;
    }

    pub(super) fn check(&self, job: &Enqueue) -> Result<()> {
        (self.check)(job)
    }
}

/// The elements of a list, if they fit into the room beside what is in it already.
fn list<T: DeserializeOwned>(
    text: &RawValue,
    used: &mut usize,
    max: usize,
) -> serde_json::Result<Option<Vec<T>>> {
    let left = max.saturating_sub(*used);
    let mut reader = serde_json::Deserializer::from_str(text.get());
    let (kept, count) = AtMost::new(left).deserialize(&mut reader)?;
    *used = used.saturating_add(count);
    Ok((count <= left).then_some(kept))
}

#[cfg(test)]
mod tests {
    use tidemill_core::flow::NESTING_MAX;

    use crate::{Flow, Tidemill};

    async fn refused(step: &str) -> &'static str {
        let mill = Tidemill::open("sqlite::memory:").await.unwrap();
        let text = format!(r#"{{"name":"f","steps":[{step}]}}"#);
        let refused = mill.read_flow(&text).unwrap_err();
        mill.close().await;
        refused.code()
    }

    #[tokio::test]
    async fn of_a_flow_that_is_too_large_no_more_is_made_than_it_may_have() {
        let many = |most: usize, one: &str| format!("[{}7]", format!("{one},").repeat(most));
        let payloads = many(10_000, "1");
        let step = |word: &str, list: &str| format!(r#"{{"name":"a","kind":"k","{word}":{list}}}"#);
        assert_eq!(refused(&step("payloads", &payloads)).await, "batch_too_large");
        let half = step("payloads", &many(5_000, "1"));
        assert_eq!(refused(&format!("{half},{half}")).await, "batch_too_large", "together");
        let within = |word: &str, list: &str| format!(r#"{{"name":"a","{word}":{list}}}"#);
        let jobs = many(10_000, r#"{"kind":"k"}"#);
        assert_eq!(refused(&within("jobs", &jobs)).await, "batch_too_large");
        assert_eq!(refused(&within("steps", &payloads)).await, "flow_too_large");
        assert_eq!(refused(&step("after", &many(100_000, r#""b""#))).await, "flow_too_large");
        let mill = Tidemill::open("sqlite::memory:").await.unwrap();
        let text = format!(r#"{{"name":"f","steps":{payloads}}}"#);
        assert_eq!(mill.read_flow(&text).unwrap_err().code(), "flow_too_large");
        mill.close().await;
    }

    #[tokio::test]
    async fn however_deep_a_text_is_it_is_refused() {
        let nested = |depth: usize| {
            let (open, inner) = (r#"{"name":"a","steps":["#, r#"{"name":"a","kind":"k"}"#);
            format!("{}{inner}{}", open.repeat(depth), "]}".repeat(depth))
        };
        let flow = |depth| format!(r#"{{"name":"f","steps":[{}]}}"#, nested(depth));
        assert!(Flow::from_json(&flow(NESTING_MAX)).is_ok());
        let refused = Flow::from_json(&flow(NESTING_MAX + 1)).unwrap_err();
        assert_eq!(refused.code(), "flow_too_large");
        assert_eq!(Flow::from_json(&flow(20_000)).unwrap_err().code(), "flow_too_large");
    }

    #[tokio::test]
    async fn what_jobs_have_in_common_is_checked_before_each_has_a_copy() {
        let long = "x".repeat(100_000);
        for word in ["queue", "tenant", "key"] {
            let step = format!(r#"{{"name":"a","kind":"k","{word}":"{long}","payloads":[1,2]}}"#);
            assert_eq!(refused(&step).await, "name_too_long", "{word}");
        }
        let kind = format!(r#"{{"name":"a","kind":"{long}","payloads":[1,2]}}"#);
        assert_eq!(refused(&kind).await, "name_too_long");
        let name = format!(r#"{{"name":"{long}","steps":[{{"name":"a","kind":"k"}}]}}"#);
        assert_eq!(refused(&name).await, "name_too_long");
    }
}
