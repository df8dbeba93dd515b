//! The queue without a store: for work that may be lost with its process.
//!
//! To throttle an API client or to cap connections needs no durability, and should not cost any. So
//! this part has no database, no retries and no leases: a task is a future, its answer goes to the
//! caller. `queue.rs` is what people call; `state.rs` decides, under one lock; `runner.rs` acts.
//!
//! It refuses to keep a task beyond its process. What must survive is a job: [`crate::Tidemill`].
#![doc = ""]
#![doc = include_str!("../../../docs/local.md")]

mod bands;
mod builder;
mod cell;
mod counts;
mod entry;
mod error;
mod handle;
mod page;
mod queue;
mod runner;
mod shared;
mod state;
mod task;
mod watch;
mod window;

pub use builder::{Builder, OnDrop, PER_MINUTE, PER_SECOND};
pub use counts::Counts;
pub use error::Error;
pub use handle::Handle;
pub use page::metrics;
pub use queue::Queue;
pub use task::Task;
