//! What the tests of every crate stand on: real servers, real processes, and patience.
//!
//! Tests here run against real PostgreSQL and real SQLite, kill real processes, and wait for facts
//! instead of sleeping. This crate makes that cheap: a throwaway [`cluster`], a [`pgbouncer`] in
//! front of it, a child [`process`] to kill, and [`eventually`] to wait with. With the feature
//! `databases` it also hands out fresh, empty databases.
//!
//! It refuses to mock anything, and it refuses to leave anything behind: a server started here dies
//! with the process that started it, however that process ends.

mod account;
mod binaries;
#[cfg(feature = "databases")]
pub mod certificate;
pub mod cluster;
#[cfg(feature = "databases")]
pub mod databases;
pub mod eventually;
mod guard;
mod install;
pub mod pgbouncer;
mod port;
pub mod process;
mod server_url;
pub mod venv;

pub use binaries::Binaries;
pub use cluster::Cluster;
pub use pgbouncer::Pgbouncer;
pub use process::Process;
pub use venv::Venv;
