//! What the demo shows of gates: a limit that binds, a queue that is paused, and what `why` says of both.

use serde::Serialize;
use tidemill::core::why::Gate;
use tidemill::{Enqueue, JobId, Limit, OnDuplicate, Per, Unique};

use super::handlers::{EXPORTS, Plan};
use super::kinds::{Export, Person};
use crate::exit::Outcome;
use crate::mill::Mill;

const LIMIT: &str = "exports";
const PAUSED: &str = "newsletter";

/// What was asked, and what was answered.
#[derive(Debug, Clone, Serialize)]
pub struct Answer {
    /// Of which job.
    pub id: JobId,
    /// Its kind.
    pub kind: &'static str,
    /// Why it did not run.
    pub why: String,
}

/// The gates of the demo.
#[derive(Debug)]
pub struct Gates {
    exports: Vec<JobId>,
    /// What `why` said, so far.
    pub answers: Vec<Answer>,
}

impl Gates {
    /// Sets the limit and the pause, and enqueues what they hold back.
    pub async fn set(mill: &Mill, plan: &Plan) -> Outcome<Self> {
        let limit = Limit {
            kind: Some("export".to_owned()),
            per: Per::Tenant,
            concurrency: Some(1),
            ..Limit::default()
        };
        mill.set_limit("*", LIMIT, Some(limit)).await?;
        mill.pause(PAUSED).await?;
        let export = |_| {
            let person = Person::of_number(&plan.run, 0);
            let tenant = person.tenant.clone();
            Enqueue::new(&Export(person)).tenant(tenant).tag(plan.run.clone())
        };
        let receipts = mill.enqueue_many((0..EXPORTS).map(export).collect()).await?;
        // One is enough, however often the demo runs.
        let once = Unique::by_key("demo").on_duplicate(OnDuplicate::Join);
        let letter = Enqueue::raw("newsletter", r#"{"issue":1}"#).queue(PAUSED).unique(once);
        let id = mill.enqueue(letter).await?.id();
        let why = mill.why(id).await?.to_string();
        let exports = receipts.iter().map(tidemill::Receipt::id).collect();
        Ok(Self { exports, answers: vec![Answer { id, kind: "newsletter", why }] })
    }

    /// Asks why an export does not run, until one is held by the limit.
    pub async fn ask(&mut self, mill: &Mill) -> Outcome<()> {
        if self.answers.len() > 1 {
            return Ok(());
        }
        for id in &self.exports {
            let why = mill.why(*id).await?;
            if why.gates.iter().any(|gate| matches!(gate, Gate::Limit { .. })) {
                self.answers.push(Answer { id: *id, kind: "export", why: why.to_string() });
                break;
            }
        }
        Ok(())
    }

    /// Takes the limit away again; the pause stays, to be looked at.
    pub async fn end(&self, mill: &Mill) -> Outcome<()> {
        Ok(mill.set_limit("*", LIMIT, None).await?)
    }
}
