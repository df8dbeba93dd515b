//! Steps: pieces of a handler's work that are done once.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_core::workflow::{
    Answer, Ask, ENTRY_BYTES_MAX, Ending, ParkCode, StepUndo, VALUE_BYTES_MAX, hash, whole_key,
};
use tidemill_core::{ErrorClass, Limits, Payload, Retry};

use tracing::Instrument;

use super::transaction::{Told, ask_journal};
use super::wakes::Own;
use super::{Op, Polled, Trouble};
use crate::engine::trace;
use crate::worker::context::Context;
use crate::worker::fail::{Fail, StepFail};
use crate::worker::job::Enqueue;

/// A retry this soon is made at once, in the same attempt.
const SOON: Duration = Duration::from_secs(1);

/// A step on its way: [`run`](Self::run) runs it. Its key is its scope, its name and its occurrence, given when this
/// is made.
#[must_use = "a step does nothing until it is run and awaited"]
pub struct Step {
    pub(super) cx: Context,
    pub(super) key: String,
    pub(super) hash: Option<String>,
    /// It is written that it begins.
    pub(super) announced: bool,
    /// As it was asked for; else as is usual.
    retry: Option<Retry>,
    timeout: Option<Duration>,
    once: bool,
    undo: Option<StepUndo>,
    wrong: Option<String>,
}

/// What the body of a step came to that has not failed.
pub(super) enum Came<T> {
    /// It returned this.
    Value(T),
    /// It recorded, by a transaction of its own, what the step comes to. The journal knows whether that was committed.
    Recorded,
}

/// What the body of a step knows. It has nothing durable: a step is the smallest piece.
///
/// ```
/// # use tidemill::{Context, Fail};
/// async fn book(cx: Context) -> Result<String, Fail> {
///     cx.step("book").run(|s| async move { Ok(format!("{} {}", s.idempotency_key(), s.attempt())) }).await
/// }
/// ```
///
/// A step within a step does not compile:
///
/// ```compile_fail,E0599
/// # use tidemill::{Context, Fail};
/// async fn book(cx: Context) -> Result<u32, Fail> {
///     cx.step("book").run(|s| async move { s.step("pay").run(|_| async { Ok(1) }).await }).await
/// }
/// ```
///
/// Nor does a sleep:
///
/// ```compile_fail,E0599
/// # use tidemill::{Context, Fail};
/// # use std::time::Duration;
/// async fn book(cx: Context) -> Result<(), Fail> {
///     cx.step("book").run(|s| async move { s.sleep(Duration::from_secs(1)).await }).await
/// }
/// ```
///
/// Nor does a wait for a signal:
///
/// ```compile_fail,E0599
/// # use tidemill::{Context, Fail};
/// async fn book(cx: Context) -> Result<bool, Fail> {
///     cx.step("book").run(|s| async move { s.signal::<bool>("go").await }).await
/// }
/// ```
///
/// Nor does a child:
///
/// ```compile_fail,E0599
/// # use serde::{Deserialize, Serialize};
/// # use tidemill::{Context, Fail, Job};
/// # #[derive(Serialize, Deserialize)] struct Pay;
/// # impl Job for Pay { const KIND: &'static str = "pay"; type Output = (); }
/// async fn book(cx: Context) -> Result<(), Fail> {
///     cx.step("book").run(|s| async move { s.child(Pay).await }).await
/// }
/// ```
#[derive(Debug, Clone)]
pub struct StepContext {
    key: String,
    tries: u16,
}

impl StepContext {
    /// The same whenever this step of this turn of this job is tried, and no other's: hand it to services that take an
    /// idempotency key.
    pub fn idempotency_key(&self) -> &str {
        &self.key
    }

    /// The number of this try; the first is 1.
    pub fn attempt(&self) -> u16 {
        self.tries
    }
}

impl Context {
    /// A step of this name: run once, and what it returned is returned again when the handler is run anew.
    ///
    /// ```
    /// # use tidemill::{Context, Fail};
    /// # async fn reserve(key: &str, seats: u32) -> Result<String, Fail> { Ok(format!("{key}:{seats}")) }
    /// async fn book(seats: u32, cx: Context) -> Result<String, Fail> {
    ///     cx.step("reserve").run(|s| async move { reserve(s.idempotency_key(), seats).await }).await
    /// }
    /// ```
    pub fn step(&self, name: &str) -> Step {
        self.step_at(self.next_key(name))
    }

    /// A step under this key.
    pub(super) fn step_at(&self, key: String) -> Step {
        Step {
            cx: self.clone(),
            key,
            hash: None,
            announced: false,
            retry: None,
            timeout: None,
            once: false,
            undo: None,
            wrong: None,
        }
    }
}

impl Step {
    /// What it is given. Its hash is kept: code that gives it something else when it is run anew is found out.
    pub fn input<T: Serialize + ?Sized>(mut self, input: &T) -> Self {
        match serde_json::to_vec(input) {
            Ok(text) => self.hash = Some(hash(&text)),
            Err(error) => self.wrong = Some(format!("its input cannot be written: {error}")),
        }
        self
    }

    /// How it is tried again when it fails. Defaults to 20 tries, with full jitter up to an hour; one that runs
    /// [at most once](Self::at_most_once) is not tried again unless this is given.
    pub fn retry(self, retry: Retry) -> Self {
        Self { retry: Some(retry), ..self }
    }

    /// How long one try may take.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// It runs at most once: if nobody knows what became of it (its process died, it ran too long, it returned an
    /// ambiguous failure), it has failed. Without this it runs at least once.
    ///
    /// A body that returns any other failure says that nothing was done; it is run again only if
    /// [`retry`](Self::retry) asks for that, or if it has [snoozed](Fail::snooze) itself.
    pub fn at_most_once(self) -> Self {
        Self { once: true, ..self }
    }

    /// The job that undoes it, kept before it begins. It runs if the workflow fails or is called off, and gets an
    /// [`Undo`](crate::Undo) with what became of the step.
    pub fn undo(mut self, job: impl Into<Enqueue>) -> Self {
        match self.cx.boss().checked(job.into()) {
            Ok(job) => self.undo = Some(Box::new(job.into())),
            Err(error) => self.wrong = Some(format!("its undo cannot be: {error}")),
        }
        self
    }

    /// Runs it, unless it ended before.
    pub async fn run<T, F, Fut>(self, mut body: F) -> Result<T, Fail>
    where
        T: Serialize + DeserializeOwned,
        F: FnMut(StepContext) -> Fut,
        Fut: Future<Output = Result<T, Fail>>,
    {
        self.run_to(move |told| {
            let body = body(told);
            async move { body.await.map(Came::Value) }
        })
        .await
    }

    /// The same for a body that may record what it comes to instead of returning it.
    pub(super) async fn run_to<T, F, Fut>(self, mut body: F) -> Result<T, Fail>
    where
        T: Serialize + DeserializeOwned,
        F: FnMut(StepContext) -> Fut,
        Fut: Future<Output = Result<Came<T>, Fail>>,
    {
        let Self { cx, key, hash, announced, retry, timeout, once, undo, wrong } = self;
        let owes = undo.is_some();
        let ask = Ask::Step { hash: hash.clone(), once, announced, undo };
        let mut op = Op::new(&cx, key.clone(), ask);
        if let Some(wrong) = wrong {
            let why = format!("the step {key:?}: {wrong}");
            return op.stop(Trouble::park(ParkCode::StepInvalid, why)).await;
        }
        if owes {
            cx.run().told().owes = true;
        }
        let idempotency_key = whole_key(cx.id(), cx.job().options.turn, &key);
        loop {
            let mut tries = match op.answer().await {
                Answer::Ended(ending) => return read(&op, ending).await,
                Answer::Go { tries } => tries,
                other => {
                    let why = format!("{key:?} was answered {other:?}");
                    return op.stop(Trouble::park(ParkCode::Differs, why)).await;
                }
            };
            loop {
                tries += 1;
                let told = StepContext { key: idempotency_key.clone(), tries };
                let began = Instant::now();
                let span = trace::step(&key, tries);
                let body = span.in_scope(|| body(told));
                let came = try_once(&cx, timeout, body).instrument(span.clone()).await;
                let took_ms = began.elapsed().as_millis() as u64;
                let fail = match came {
                    Ok(Came::Value(value)) => return end(op, hash, tries, took_ms, value).await,
                    Ok(Came::Recorded) => uncommitted(),
                    Err(fail) => {
                        trace::failed(&span, &cx.shown_text(fail.to_string()));
                        fail
                    }
                };
                match ask_journal(&cx, &key).await {
                    Told::Recorded(output) => {
                        let ending = Ending::Ok(output);
                        op.is_over = true;
                        op.with(|r, key| r.ended(key, hash, tries, took_ms, ending.clone()));
                        return read(&op, ending).await;
                    }
                    Told::Trouble(trouble) => return op.stop(trouble).await,
                    Told::Nothing => {}
                }
                match judge(&cx, retry.as_ref(), once, tries, fail) {
                    Verdict::Over(fail) => return op.stop(Trouble::Fail(fail)).await,
                    Verdict::Failed { class, message } => {
                        let ending = Ending::Err { class, message: message.clone() };
                        op.is_over = true;
                        op.with(|replay, key| replay.ended(key, hash.clone(), tries, 0, ending));
                        return Err(Fail::permanent(message).of(&key));
                    }
                    Verdict::Again { delay, spent, .. } if !once && is_soon(&cx, delay) => {
                        tries = spent;
                        tokio::time::sleep(delay).await;
                    }
                    Verdict::Again { delay, spent, message } => {
                        let again_at = cx.present().checked_add(delay).unwrap_or(Timestamp::MAX);
                        op.with(|replay, key| replay.failed(key, spent, &message, again_at));
                        break;
                    }
                }
            }
        }
    }
}

/// What a step has come to that says it recorded something, if the journal knows nothing of it.
fn uncommitted() -> Fail {
    Fail::permanent("the transaction that recorded it was not committed")
}

fn is_soon(cx: &Context, delay: Duration) -> bool {
    delay <= SOON && cx.boss().clock().manual().is_none()
}

/// Runs the body once. Nothing durable may be asked for meanwhile.
async fn try_once<T>(
    cx: &Context,
    timeout: Option<Duration>,
    body: impl Future<Output = Result<T, Fail>>,
) -> Result<T, Fail> {
    let (mut body, own) = (pin!(body), Arc::new(Own::default()));
    let body = std::future::poll_fn(|task| {
        cx.run().told().polled = Polled::Body;
        let (polled, again) = own.poll(task, |task| body.as_mut().poll(task));
        let mut told = cx.run().told();
        told.polled = Polled::Handler;
        told.put_off.extend(again);
        polled
    });
    match timeout {
        None => body.await,
        Some(limit) => tokio::time::timeout(limit, body).await.unwrap_or_else(|_| {
            Err(Fail::ambiguous(format!("it ran longer than its limit of {limit:?}")))
        }),
    }
}

enum Verdict {
    /// The attempt ends with it.
    Over(Fail),
    Failed {
        class: ErrorClass,
        message: String,
    },
    Again {
        delay: Duration,
        spent: u16,
        message: String,
    },
}

fn judge(cx: &Context, asked: Option<&Retry>, once: bool, tries: u16, fail: Fail) -> Verdict {
    let retry = asked.cloned().unwrap_or_default();
    match fail.of_step() {
        StepFail::Later(delay) => {
            Verdict::Again { delay, spent: tries - 1, message: "put off".to_owned() }
        }
        StepFail::Cancel(fail) => Verdict::Over(fail),
        StepFail::Error { class, message, retry_after } => {
            let tries_max = match class {
                // Nobody knows, or nobody asked for more.
                ErrorClass::Ambiguous if once => 0,
                _ if once && asked.is_none() => 0,
                ErrorClass::Transient => retry.attempts_max,
                ErrorClass::Ambiguous => retry.ambiguous_max.min(retry.attempts_max),
                ErrorClass::RateLimited => u16::MAX,
                _ => 0,
            };
            let message = cx.shown_text(message);
            if tries >= tries_max {
                return Verdict::Failed { class, message };
            }
            let backoff = || retry.backoff.delay(cx.id(), tries, fastrand::f64());
            let spent = if class == ErrorClass::RateLimited { tries - 1 } else { tries };
            Verdict::Again { delay: retry_after.unwrap_or_else(backoff), spent, message }
        }
    }
}

/// Writes down what a step returned.
async fn end<T: Serialize + DeserializeOwned>(
    mut op: Op,
    hash: Option<String>,
    tries: u16,
    took_ms: u64,
    value: T,
) -> Result<T, Fail> {
    let written = write_large(&value);
    match written {
        Ok(payload) => {
            op.is_over = true;
            op.with(|replay, key| replay.ended(key, hash, tries, took_ms, Ending::Ok(payload)));
            Ok(value)
        }
        Err(why) => {
            let why = format!("what {:?} returned cannot be kept: {why}", op.key);
            op.stop(Trouble::park(ParkCode::ValueRefused, why)).await
        }
    }
}

/// A value as an entry keeps it.
pub(super) fn write<T: Serialize + ?Sized>(value: &T) -> Result<Payload, String> {
    let limits = Limits { payload_bytes_max: ENTRY_BYTES_MAX, ..Limits::default() };
    Payload::of(value, &limits).map_err(|e| e.to_string())
}

/// A value as it stands beside an entry, if it is too large for one.
pub(super) fn write_large<T: Serialize + DeserializeOwned>(value: &T) -> Result<Payload, String> {
    let limits = Limits { payload_bytes_max: VALUE_BYTES_MAX, ..Limits::default() };
    let payload = Payload::of(value, &limits).map_err(|e| e.to_string())?;
    // What JSON has no word for is written as null, and would be found out at the next replay only.
    if payload.as_str().contains("null")
        && let Err(e) = payload.read::<T>()
    {
        return Err(format!("what is written of it cannot be read, as of NaN and infinity: {e}"));
    }
    Ok(payload)
}

/// Reads what the journal has.
pub(super) async fn read<T: DeserializeOwned>(op: &Op, ending: Ending) -> Result<T, Fail> {
    let payload = match ending {
        Ending::Ok(payload) => payload,
        Ending::Aside { .. } => {
            let why = format!("what {:?} returned is not in the journal any more", op.key);
            return op.stop(Trouble::park(ParkCode::JournalUnreadable, why)).await;
        }
        Ending::Err { message, .. } => return Err(Fail::permanent(message).of(&op.key)),
    };
    match payload.read() {
        Ok(value) => Ok(value),
        Err(e) => {
            let why = format!("what the journal has under {:?} cannot be read: {e}", op.key);
            op.stop(Trouble::park(ParkCode::ValueUnreadable, why)).await
        }
    }
}
