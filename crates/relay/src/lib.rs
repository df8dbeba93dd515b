//! What carries events to others: today webhooks, over HTTP.
//!
//! A delivery is a job, so this is a set of handlers: retries, limits, dead letters and metrics are the engine's.
//! `tidemill serve` runs them; a program of one's own does with [`webhook::start`].

pub mod webhook;
