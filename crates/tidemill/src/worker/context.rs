//! What a handler knows of its attempt, and what it can ask for.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidemill_core::{Job as Body, JobId, NewJob, Token};
use tokio_util::sync::CancellationToken;

use crate::engine::Tidemill;
use crate::error::Result;
use crate::worker::fail::Fail;
use crate::worker::job::Enqueue;
use crate::worker::slots::Slot;

/// Shared application state, by type.
pub(crate) type States = Arc<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>;

/// One attempt of one job. Cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    mill: Tidemill,
    job: Arc<Body>,
    attempt: u16,
    token: Token,
    cancel: CancellationToken,
    states: States,
    follow_ups: Mutex<Vec<NewJob>>,
    /// Held until the last clone is gone, so that a thread that cannot be stopped keeps its slot.
    _slot: Slot,
}

impl Context {
    pub(crate) fn new(
        mill: Tidemill,
        job: Arc<Body>,
        attempt: u16,
        token: Token,
        cancel: CancellationToken,
        states: States,
        slot: Slot,
    ) -> Self {
        let follow_ups = Mutex::default();
        Self(Arc::new(Inner { mill, job, attempt, token, cancel, states, follow_ups, _slot: slot }))
    }

    /// The job's id.
    pub fn id(&self) -> JobId {
        self.0.job.id
    }

    /// The job as it was enqueued.
    pub fn job(&self) -> &Body {
        &self.0.job
    }

    /// The number of this attempt; the first is 1.
    pub fn attempt(&self) -> u16 {
        self.0.attempt
    }

    /// The number that proves this attempt's lease; larger at every claim. Hand it to systems that
    /// can refuse an older one.
    pub fn token(&self) -> Token {
        self.0.token
    }

    /// The same for all attempts of this job: hand it to services that take an idempotency key.
    pub fn idempotency_key(&self) -> String {
        self.0.job.id.to_string()
    }

    /// The library, to enqueue at once, whatever becomes of this attempt.
    pub fn mill(&self) -> &Tidemill {
        &self.0.mill
    }

    /// State that was given to the worker with `state`.
    pub fn state<T: Send + Sync + 'static>(&self) -> std::result::Result<Arc<T>, Fail> {
        let found = self.0.states.get(&TypeId::of::<T>()).cloned();
        found.and_then(|any| any.downcast().ok()).ok_or_else(|| {
            let name = std::any::type_name::<T>();
            Fail::transient(format!("the worker has no state of type {name}; give it with state()"))
        })
    }

    /// Enqueues a job together with this attempt's success: both commit, or neither.
    pub fn follow_up(&self, job: impl Into<Enqueue>) -> Result<JobId> {
        let job = self.0.mill.checked(job.into())?;
        let id = job.id;
        self.0.follow_ups.lock().unwrap_or_else(PoisonError::into_inner).push(job);
        Ok(id)
    }

    /// Whether the job was called off, timed out, or the worker stops.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancel.is_cancelled()
    }

    /// Completes when the job was called off, timed out, or the worker stops.
    pub async fn cancelled(&self) {
        self.0.cancel.cancelled().await;
    }

    pub(crate) fn take_follow_ups(&self) -> Vec<NewJob> {
        std::mem::take(&mut self.0.follow_ups.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("id", &self.id())
            .field("kind", &self.0.job.kind)
            .field("attempt", &self.0.attempt)
            .field("token", &self.0.token)
            .finish_non_exhaustive()
    }
}
