//! Tidemill over HTTP: for every language, what the library offers to Rust.
//!
//! A route parses, calls one verb of the engine and answers; the rules are the engine's. Errors are problem documents
//! (RFC 9457) with the engine's stable codes. The description of the API is made from the code (`/openapi.json`).
//!
//! It refuses to listen beyond this machine unless callers must show who they are: whoever can reach it could do
//! everything.

mod access;
mod api;
mod audit;
mod bare;
mod cors;
mod cursor;
mod docs;
mod door;
mod etag;
mod extract;
mod guard;
mod hidden;
mod idempotent;
mod named;
mod nul;
mod pace;
mod prefer;
mod problem;
mod query;
mod routes;
mod serve;
mod settings;
mod shape;
mod taken;
mod tls;
mod trace;

pub use door::Door;
pub use problem::Problem;
pub use serve::{Error, Server};
pub use settings::{Access, Settings};
pub use tls::{TlsFiles, TlsInvalid};
