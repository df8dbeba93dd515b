//! A hook around every attempt: before, after, or around it.

use std::sync::Arc;

use async_trait::async_trait;
use tidemill_core::Payload;

use crate::worker::context::Context;
use crate::worker::fail::Fail;
use crate::worker::registry::Handler;

/// What an attempt's handler came to: its output as JSON, or why not.
pub type Attempted = Result<Payload, Fail>;

/// A hook around every attempt of a worker. Implement the part you need.
///
/// ```
/// use tidemill::{Attempted, Context, Fail, Middleware};
///
/// struct OnlyWeekdays;
///
/// #[tidemill::async_trait]
/// impl Middleware for OnlyWeekdays {
///     async fn before(&self, cx: &Context) -> Result<(), Fail> {
///         if cx.job().tenant.as_deref() == Some("closed-on-sunday") {
///             return Err(Fail::snooze(std::time::Duration::from_secs(3600)));
///         }
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait Middleware: Send + Sync + 'static {
    /// Before the handler. An error takes the handler's place.
    async fn before(&self, _cx: &Context) -> Result<(), Fail> {
        Ok(())
    }

    /// After the handler; sees what it came to.
    async fn after(&self, _cx: &Context, _attempted: &Attempted) {}

    /// Around the handler. Calls `before`, the rest, and `after`, unless you say otherwise.
    async fn around(&self, cx: &Context, next: Next<'_>) -> Attempted {
        self.before(cx).await?;
        let attempted = next.run(cx).await;
        self.after(cx, &attempted).await;
        attempted
    }
}

/// The rest of the way: further hooks, then the handler.
pub struct Next<'a> {
    pub(crate) hooks: &'a [Arc<dyn Middleware>],
    pub(crate) handler: &'a Handler,
}

impl Next<'_> {
    /// Goes on.
    pub async fn run(self, cx: &Context) -> Attempted {
        match self.hooks.split_first() {
            Some((first, hooks)) => first.around(cx, Next { hooks, handler: self.handler }).await,
            None => (self.handler.run)(cx.clone()).await,
        }
    }
}
