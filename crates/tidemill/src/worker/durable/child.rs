//! Children: jobs that a run starts and waits for, without holding a slot meanwhile.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as Task, Poll};

use futures::future::BoxFuture;
use tidemill_core::workflow::{Answer, Ask, CHILDREN_MAX, ChildEnd, ParkCode};
use tidemill_core::{JobId, NewJob, Payload, State};

use super::{Op, Trouble};
use crate::worker::context::Context;
use crate::worker::fail::Fail;
use crate::worker::job::{Enqueue, Job};

/// A job on its way that the run starts and waits for, when it is awaited.
#[must_use = "a child does nothing until it is awaited or started"]
pub struct Child<J: Job>(Children<J>);

/// Jobs on their way that the run starts and waits for, when they are awaited.
#[must_use = "children do nothing until they are awaited"]
pub struct Children<J: Job> {
    cx: Context,
    key: String,
    jobs: Vec<Enqueue>,
    outlives: bool,
    waiting: Option<BoxFuture<'static, Result<Vec<ChildEnd>, Fail>>>,
    of: PhantomData<fn() -> J>,
}

/// A child that was started, and may be waited for.
#[derive(Debug, Clone)]
pub struct Started<J: Job> {
    cx: Context,
    id: JobId,
    of: PhantomData<fn() -> J>,
}

impl<J: Job> Child<J> {
    /// It goes on whatever becomes of this run: it is not called off with it, nor when nobody waits for it any more,
    /// as the loser of a race. Without this it is.
    pub fn outlives(self) -> Self {
        Self(self.0.outlives())
    }

    /// Starts it now; its result is waited for later, once or several times, or by nobody.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use serde::{Deserialize, Serialize};
    /// # use tidemill::{Context, Fail, First, Job};
    /// # #[derive(Serialize, Deserialize)] struct Report { month: u32 }
    /// # impl Job for Report { const KIND: &'static str = "report"; type Output = String; }
    /// async fn close_month(month: u32, cx: Context) -> Result<String, Fail> {
    ///     let report = cx.child(Report { month }).outlives().start().await?;
    ///     cx.step("close books").run(|_| async { Ok(()) }).await?;
    ///     match cx.race((report.result(), cx.sleep(Duration::from_hours(1)))).await? {
    ///         First::A(text) => Ok(text),
    ///         First::B(()) => Ok(format!("closed; the report {} comes later", report.id())),
    ///     }
    /// }
    /// ```
    pub async fn start(self) -> Result<Started<J>, Fail> {
        let Children { cx, key, jobs, outlives, .. } = self.0;
        let jobs = checked_all(&cx, jobs).await?;
        let Some((kind, ids)) = family_of(&jobs) else {
            return Err(Fail::permanent("it has no child"));
        };
        let mut op = Op::new(&cx, key, Ask::Start { kind, ids: ids.clone(), outlives });
        let started = match op.answer().await {
            Answer::Started(started) => started,
            other => astray(&op, &other).await,
        };
        // Those of the journal are others.
        if started == ids {
            adopt(&cx, jobs, outlives);
        }
        let id = started.first().copied().ok_or_else(|| Fail::permanent("it has no child"))?;
        Ok(Started { cx, id, of: PhantomData })
    }
}

impl<J: Job> Future for Child<J> {
    type Output = Result<J::Output, Fail>;

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let children = &mut self.get_mut().0;
        Pin::new(&mut *children).poll(task).map(|all| {
            let one = all?.pop();
            let one = one.unwrap_or_else(|| Err(Fail::permanent("it has no child")));
            one.map_err(|fail| fail.of(&children.key))
        })
    }
}

impl<J: Job> Children<J> {
    /// They go on whatever becomes of this run; see [`Child::outlives`].
    pub fn outlives(self) -> Self {
        Self { outlives: true, ..self }
    }
}

impl<J: Job> Future for Children<J> {
    type Output = Result<Vec<Result<J::Output, Fail>>, Fail>;

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let Self { cx, key, jobs, outlives, waiting, .. } = self.get_mut();
        let waiting = waiting.get_or_insert_with(|| {
            let (cx, key, outlives) = (cx.clone(), key.clone(), *outlives);
            Box::pin(family(cx, key, std::mem::take(jobs), outlives))
        });
        waiting.as_mut().poll(task).map(|ends| Ok(ends?.into_iter().map(read::<J>).collect()))
    }
}

impl<J: Job> Started<J> {
    /// Its id.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Waits for what it returns. Whoever does not wait any more, as the loser of a race, may do so again.
    pub fn result(&self) -> impl Future<Output = Result<J::Output, Fail>> + Send + use<J> {
        self.cx.result_of::<J>(self.id)
    }
}

impl Context {
    /// Starts a job and waits for what it returns. It is called off with this one, unless it
    /// [outlives](Child::outlives) it.
    pub fn child<J: Job>(&self, job: J) -> Child<J> {
        Child(self.children([job]))
    }

    /// Starts jobs, at most 10,000, and waits until all of them have ended. Answers stand in their order; one that did
    /// not end well is an error of its own.
    pub fn children<J: Job>(&self, jobs: impl IntoIterator<Item = J>) -> Children<J> {
        let jobs: Vec<Enqueue> = jobs.into_iter().map(Enqueue::from).collect();
        let (cx, key) = (self.clone(), self.key_of("", J::KIND));
        Children { cx, key, jobs, outlives: false, waiting: None, of: PhantomData }
    }

    /// Waits for what a child of this run returns that was [started](Child::start) before, by its id.
    pub fn result_of<J: Job>(
        &self,
        id: JobId,
    ) -> impl Future<Output = Result<J::Output, Fail>> + Send + use<J> {
        let (cx, key) = (self.clone(), self.key_of("result of ", J::KIND));
        async move {
            cx.knows(&key).await;
            let mut op = Op::new(&cx, key, Ask::Join { id });
            if op.with(|replay, _| replay.has_child(id)) != Some(true) {
                return Err(Fail::permanent(format!("this run has started no child {id}")));
            }
            match op.answer().await {
                Answer::Children(mut ends) if ends.len() == 1 => read::<J>(ends.remove(0)),
                other => astray(&op, &other).await,
            }
        }
    }

    /// Starts a job that nobody waits for. It goes on whatever becomes of this one. If another job holds its unique
    /// key, that is the one whose id is answered.
    pub async fn start(&self, job: impl Into<Enqueue>) -> Result<JobId, Fail> {
        let wish = job.into();
        let key = self.key_of("start ", wish.kind());
        let job = checked(self, wish.clone()).await?;
        if job.unique.is_some() {
            return self.start_keyed(key, wish.id(job.id), job.id).await;
        }
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

impl Context {
    /// Starts a job that another may stand for: under an id that is kept first, so that it is started once, and by a
    /// step, so that the code hears which one it is.
    async fn start_keyed(&self, key: String, wish: Enqueue, id: JobId) -> Result<JobId, Fail> {
        let id: JobId = self.noted(key.clone(), &id).await?;
        let enqueue = |_| {
            let (cx, wish) = (self.clone(), wish.clone().id(id));
            Box::pin(async move {
                // In a test without a store nothing is started.
                if cx.run().told().runner.as_ref().is_some_and(|runner| runner.is_inline) {
                    return Ok(id);
                }
                let receipt = cx.boss().enqueue(wish).await;
                receipt.map(|receipt| receipt.id()).map_err(Fail::transient)
            })
        };
        self.step_at(format!("{key} once")).run(enqueue).await
    }
}

/// A child as it is written. One whose payload cannot be parks the run.
async fn checked(cx: &Context, job: Enqueue) -> Result<NewJob, Fail> {
    match cx.boss().checked(job) {
        Ok(job) => Ok(job),
        Err(e) if e.code().starts_with("payload_") => {
            Err(cx.refuse(format!("what a child is given cannot be kept: {e}")).await)
        }
        Err(e) => Err(Fail::permanent(format!("a child cannot be started: {e}"))),
    }
}

async fn family(
    cx: Context,
    key: String,
    jobs: Vec<Enqueue>,
    outlives: bool,
) -> Result<Vec<ChildEnd>, Fail> {
    let jobs = checked_all(&cx, jobs).await?;
    let Some((kind, ids)) = family_of(&jobs) else {
        return Ok(Vec::new());
    };
    let mut jobs = Some(jobs);
    if cx.knows(&key).await.is_none() {
        adopt(&cx, jobs.take().unwrap_or_default(), outlives);
    }
    loop {
        let ask = Ask::Children { kind: kind.clone(), ids: ids.clone(), outlives };
        let mut op = Op::new(&cx, key.clone(), ask);
        match (op.answer().await, jobs.take()) {
            (Answer::Children(ends), _) => return Ok(ends),
            // The run died of the one that it had started before.
            (Answer::Started(_), Some(anew)) => adopt(&cx, anew, outlives),
            (other, _) => astray(&op, &other).await,
        }
    }
}

/// The journal has something else there.
async fn astray<T>(op: &Op, answer: &Answer) -> T {
    op.stop(Trouble::park(ParkCode::Differs, format!("its children were answered {answer:?}")))
        .await
}

async fn checked_all(cx: &Context, jobs: Vec<Enqueue>) -> Result<Vec<NewJob>, Fail> {
    if jobs.len() > CHILDREN_MAX {
        let number = jobs.len();
        return Err(Fail::permanent(format!(
            "{number} children are more than {CHILDREN_MAX}; split them"
        )));
    }
    let mut all = Vec::with_capacity(jobs.len());
    for job in jobs {
        all.push(checked(cx, job).await?);
    }
    Ok(all)
}

/// The kind of the first, and who they are.
fn family_of(jobs: &[NewJob]) -> Option<(String, Vec<JobId>)> {
    let kind = jobs.first()?.kind.clone();
    Some((kind, jobs.iter().map(|job| job.id).collect()))
}

/// Makes new jobs children of the run: they are started with what is written next.
fn adopt(cx: &Context, jobs: Vec<NewJob>, outlives: bool) {
    let of = cx.id();
    let adopted = jobs.into_iter().map(|mut job| {
        job.options.parent = Some(of);
        job
    });
    let mut told = cx.run().told();
    told.children.extend(adopted);
    told.owes |= !outlives;
}

fn read<J: Job>(end: ChildEnd) -> Result<J::Output, Fail> {
    let ChildEnd { id, state, output, error } = end;
    if state != State::Done {
        let error = error.unwrap_or_default();
        return Err(Fail::permanent(format!("the child {id} is {}: {error}", state.word())));
    }
    // In JSON nothing and null are the same.
    output
        .unwrap_or_else(Payload::null)
        .read()
        .map_err(|e| Fail::permanent(format!("what the child {id} returned cannot be read: {e}")))
}
