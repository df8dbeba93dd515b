//! A Tidemill server, from Rust: the verbs of the engine over HTTP.
//!
//! A [`Client`] has the verbs that `tidemill::Tidemill` has, with the same names and answers, where a credential lets
//! it. What the server refuses keeps its stable code ([`Error::code`]). It refuses to guess: nothing is sent twice
//! unless the server makes one thing of it.

mod error;
mod http;
mod jobs;
mod work;

pub use error::{Error, Result};
pub use http::{Builder, Client};
pub use tidemill_core::wire;
pub use work::Work;
