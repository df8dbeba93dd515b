//! Which handler runs which kind.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tidemill_core::{ErrorClass, Limits, Payload};

use crate::error::{Error, Result};
use crate::worker::context::Context;
use crate::worker::fail::Fail;
use crate::worker::job::{Job, Settings};
use crate::worker::middleware::Attempted;

type Attempting = Pin<Box<dyn Future<Output = Attempted> + Send>>;

/// A handler without its types.
#[derive(Clone)]
pub struct Handler {
    pub(crate) settings: Settings,
    pub(crate) run: Arc<dyn Fn(Context) -> Attempting + Send + Sync>,
}

/// The handlers of a worker.
#[derive(Clone, Default)]
pub(crate) struct Registry(HashMap<String, Handler>);

impl Registry {
    pub(crate) fn add(&mut self, kind: &str, handler: Handler) -> Result<()> {
        match self.0.insert(kind.to_owned(), handler) {
            None => Ok(()),
            Some(_) => Err(Error::KindTwice { kind: kind.to_owned() }),
        }
    }

    pub(crate) fn get(&self, kind: &str) -> Option<&Handler> {
        self.0.get(kind)
    }

    /// The queues its kinds use by default.
    pub(crate) fn queues(&self) -> Vec<String> {
        let queues = self.0.values().map(|handler| handler.settings.queue.clone());
        let sorted: std::collections::BTreeSet<_> = queues.collect();
        sorted.into_iter().collect()
    }

    pub(crate) fn kinds(&self) -> Vec<String> {
        let mut kinds: Vec<_> = self.0.keys().cloned().collect();
        kinds.sort();
        kinds
    }
}

/// A handler of a typed kind, run on the runtime.
pub(crate) fn typed<J, F, Fut>(handle: F) -> Handler
where
    J: Job,
    F: Fn(J, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = std::result::Result<J::Output, Fail>> + Send + 'static,
{
    let handle = Arc::new(handle);
    let run = move |cx: Context| -> Attempting {
        let handle = Arc::clone(&handle);
        Box::pin(async move {
            let job = read::<J>(&cx)?;
            let output = handle(job, cx.clone()).await?;
            write(&cx, &output)
        })
    };
    Handler { settings: J::settings(), run: Arc::new(run) }
}

/// A handler of a typed kind that keeps a thread busy: it gets one where that hurts nobody.
pub(crate) fn blocking<J, F>(handle: F) -> Handler
where
    J: Job,
    F: Fn(J, Context) -> std::result::Result<J::Output, Fail> + Send + Sync + 'static,
{
    let handle = Arc::new(handle);
    let run = move |cx: Context| -> Attempting {
        let handle = Arc::clone(&handle);
        Box::pin(async move {
            let job = read::<J>(&cx)?;
            let attempt = tokio::task::spawn_blocking(move || {
                let output = handle(job, cx.clone())?;
                write(&cx, &output)
            });
            match attempt.await {
                Ok(attempted) => attempted,
                Err(error) => Err(Fail::ambiguous(panic_text(error))),
            }
        })
    };
    Handler { settings: J::settings(), run: Arc::new(run) }
}

/// A handler of JSON text.
pub(crate) fn raw<F, Fut>(settings: Settings, handle: F) -> Handler
where
    F: Fn(Payload, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Attempted> + Send + 'static,
{
    let run = move |cx: Context| -> Attempting { Box::pin(handle(cx.job().payload.clone(), cx)) };
    Handler { settings, run: Arc::new(run) }
}

/// A payload that the handler's type cannot read will not get better by waiting.
fn read<J: Job>(cx: &Context) -> std::result::Result<J, Fail> {
    cx.job()
        .payload
        .read()
        .map_err(|e| Fail::permanent(format!("the payload cannot be read as {}: {e}", J::KIND)))
}

/// An output that cannot be kept is the end of a job of which nobody knows what it did; a run is parked.
fn write<T: serde::Serialize>(cx: &Context, output: &T) -> Attempted {
    Payload::of(output, &Limits::default()).map_err(|e| {
        let why = format!("the output cannot be kept: {e}");
        cx.run().refuse(why.clone());
        Fail::in_doubt(why)
    })
}

fn panic_text(error: tokio::task::JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => panic_message(panic.as_ref()),
        Err(error) => error.to_string(),
    }
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let said = panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    format!("the handler panicked: {}", said.unwrap_or_else(|| "without a message".to_owned()))
}

/// The class of a panic: nobody knows how far it came.
pub(crate) const PANIC_CLASS: ErrorClass = ErrorClass::Ambiguous;
