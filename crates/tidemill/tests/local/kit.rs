//! Tasks that end when they are let go, and a log of what started.

use std::future::Future;
use std::sync::{Arc, Mutex};

use tidemill::local::{Builder, Handle, Queue};
use tokio::sync::oneshot::{Sender, channel};
use tokio::time::Instant;

/// A queue, and what started in it, and when.
pub struct Lab {
    pub queue: Queue,
    log: Arc<Mutex<Vec<(usize, Instant)>>>,
}

impl Lab {
    pub fn new(builder: Builder) -> Self {
        Self { queue: builder.build().unwrap(), log: Arc::default() }
    }

    /// A task that notes its start and is done at once.
    pub fn quick(&self, name: usize) -> impl Future<Output = usize> + Send + 'static {
        let log = self.log.clone();
        async move {
            log.lock().unwrap().push((name, Instant::now()));
            name
        }
    }

    /// A task that notes its start and runs until it is let go.
    pub fn held(&self, name: usize) -> (impl Future<Output = usize> + Send + 'static, Sender<()>) {
        let (let_go, held) = channel();
        let start = self.quick(name);
        let task = async move {
            start.await;
            let _ = held.await;
            name
        };
        (task, let_go)
    }

    /// A held task in the queue.
    pub fn hold(&self, name: usize) -> (Handle<usize>, Sender<()>) {
        let (task, let_go) = self.held(name);
        (self.queue.try_push(task).unwrap(), let_go)
    }

    /// The names of what started, in order.
    pub fn started(&self) -> Vec<usize> {
        self.log.lock().unwrap().iter().map(|(name, _)| *name).collect()
    }

    /// When they started.
    pub fn starts(&self) -> Vec<Instant> {
        self.log.lock().unwrap().iter().map(|(_, at)| *at).collect()
    }
}

/// Lets everything happen that can happen now.
pub async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}
