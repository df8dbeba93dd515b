//! Children: jobs that a run starts and waits for, without holding a slot meanwhile.

use tidemill_core::workflow::{Answer, Ask, CHILDREN_MAX, ChildEnd};
use tidemill_core::{JobId, NewJob};

use super::{Op, Trouble};
use crate::worker::context::Context;
use crate::worker::fail::Fail;
use crate::worker::job::{Enqueue, Job};

impl Context {
    /// Starts a job and waits for what it returns. It is called off with this one.
    pub fn child<J: Job>(
        &self,
        job: J,
    ) -> impl Future<Output = Result<J::Output, Fail>> + Send + use<J> {
        let all = self.children([job]);
        async move {
            let mut ends = all.await?;
            ends.pop().unwrap_or_else(|| Err(Fail::permanent("it has no child")))
        }
    }

    /// Starts jobs, at most 10,000, and waits until all of them have ended. Answers stand in their order; one that did
    /// not end well is an error of its own.
    pub fn children<J: Job, I: IntoIterator<Item = J>>(
        &self,
        jobs: I,
    ) -> impl Future<Output = Result<Vec<Result<J::Output, Fail>>, Fail>> + Send + use<J, I> {
        let jobs: Vec<Enqueue> = jobs.into_iter().map(Enqueue::from).collect();
        let (cx, key) = (self.clone(), self.key_of("", J::KIND));
        async move {
            let ends = family(&cx, key, jobs).await?;
            Ok(ends.into_iter().map(read::<J>).collect())
        }
    }

    /// Starts a job that nobody waits for. It goes on whatever becomes of this one.
    pub async fn start(&self, job: impl Into<Enqueue>) -> Result<JobId, Fail> {
        let job = job.into();
        let key = self.key_of("start ", job.kind());
        let job = checked(self, job)?;
        let note = super::step::write(&job.id).map_err(Fail::permanent)?;
        let is_new = self.knows(&key).await.is_none();
        let mut op = Op::new(self, key, Ask::Note { value: note });
        let Answer::Value(value) = op.answer().await else { return std::future::pending().await };
        if is_new {
            let id = job.id;
            self.run().told().children.push(job);
            return Ok(id);
        }
        value.read().map_err(|e| Fail::permanent(format!("its journal cannot be read: {e}")))
    }
}

fn checked(cx: &Context, job: Enqueue) -> Result<NewJob, Fail> {
    cx.mill().checked(job).map_err(|e| Fail::permanent(format!("a child cannot be started: {e}")))
}

async fn family(cx: &Context, key: String, jobs: Vec<Enqueue>) -> Result<Vec<ChildEnd>, Fail> {
    if jobs.len() > CHILDREN_MAX {
        let number = jobs.len();
        return Err(Fail::permanent(format!(
            "{number} children are more than {CHILDREN_MAX}; split them"
        )));
    }
    let jobs: Vec<NewJob> =
        jobs.into_iter().map(|job| checked(cx, job)).collect::<Result<_, _>>()?;
    let Some(first) = jobs.first() else { return Ok(Vec::new()) };
    let (kind, ids) = (first.kind.clone(), jobs.iter().map(|job| job.id).collect());
    let is_new = cx.knows(&key).await.is_none();
    if is_new {
        let of = cx.id();
        let adopted = jobs.into_iter().map(|mut job| {
            job.options.parent = Some(of);
            job
        });
        let mut told = cx.run().told();
        told.children.extend(adopted);
        told.owes = true;
    }
    let mut op = Op::new(cx, key, Ask::Children { kind, ids });
    match op.answer().await {
        Answer::Children(ends) => Ok(ends),
        other => op.stop(Trouble::park(format!("its children were answered {other:?}"))).await,
    }
}

fn read<J: Job>(end: ChildEnd) -> Result<J::Output, Fail> {
    let ChildEnd { id, state, output, error } = end;
    let Some(output) = output else {
        let error = error.unwrap_or_default();
        return Err(Fail::permanent(format!("the child {id} is {}: {error}", state.word())));
    };
    output
        .read()
        .map_err(|e| Fail::permanent(format!("what the child {id} returned cannot be read: {e}")))
}
