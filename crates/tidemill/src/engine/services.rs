//! The services of the clockwork, a file each.

pub mod alert;
pub mod depth;
pub mod expire;
pub mod flows;
pub mod pulse;
pub mod redrive;
pub mod rescue;
pub mod retain;
pub mod runs;
pub mod schedule;
