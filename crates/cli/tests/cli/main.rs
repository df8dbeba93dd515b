//! The binary as a user meets it: real processes, real stores, exit codes and what is printed.

#![expect(clippy::unwrap_used, reason = "a test has no use for the error")]

mod alerts;
mod audit;
mod config;
mod curl;
mod dead;
mod demo;
mod enqueue;
mod flows;
mod follow;
mod full;
mod hide;
mod jobs;
mod keys;
mod limits;
mod lines;
mod mill;
mod otlp;
mod program;
mod queues;
mod remote;
mod schedules;
mod serve;
mod stdout;
mod stores;
mod token;
mod told;
mod top;
mod webhooks;
mod work;
mod workflows;
