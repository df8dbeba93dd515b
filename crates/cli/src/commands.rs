//! The commands, a file each. `run` parses nothing and prints everything.

pub mod alerts;
pub mod audit;
pub mod bench;
pub mod completions;
pub mod config;
pub mod dead;
pub mod demo;
pub mod doctor;
pub mod enqueue;
pub mod flows;
pub mod jobs;
pub mod keys;
pub mod limits;
pub mod migrate;
pub mod queues;
pub mod schedules;
pub mod serve;
pub mod token;
pub mod top;
pub mod webhooks;
pub mod work;
pub mod workers;
pub mod workflows;
