//! A Tidemill server, from Rust: the verbs of the engine over HTTP.
//!
//! A [`Client`] has the verbs that `tidemill::Tidemill` has, with the same names and answers, where a credential lets
//! it. What the server refuses keeps its stable code ([`Error::code`]). It refuses to guess: nothing is sent twice
//! unless the server makes one thing of it.

/// The page on clients, so that its code is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/client.md")]
struct ClientPage;

mod audit;
mod building;
mod credentials;
mod dead;
mod env;
mod error;
mod flows;
mod health;
mod http;
mod jobs;
mod keys;
mod queues;
mod schedules;
mod stream;
mod webhooks;
mod work;
mod worker;
mod workflows;

pub use audit::Audit;
pub use building::Building;
pub use credentials::Credentials;
pub use dead::Dead;
pub use error::{Error, Result};
pub use http::{Builder, Client};
pub use schedules::Schedules;
pub use stream::Follow;
pub use tidemill_core::wire;
pub use webhooks::Webhooks;
pub use work::Work;
