//! The routes, a file for each thing they are about. Each parses, calls one verb of the engine, and answers.

pub(crate) mod alerts;
pub(crate) mod audit;
pub(crate) mod dead;
pub(crate) mod doctor;
pub(crate) mod flows;
pub(crate) mod health;
pub(crate) mod jobs;
pub(crate) mod journal;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod metrics;
pub(crate) mod overview;
pub(crate) mod plans;
pub(crate) mod queues;
pub(crate) mod rules;
pub(crate) mod schedules;
pub(crate) mod streams;
pub(crate) mod tokens;
pub(crate) mod webhooks;
pub(crate) mod work;
pub(crate) mod workers;
pub(crate) mod workflows;
