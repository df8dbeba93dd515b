//! The server as its clients see it: real requests, over both stores.

#![expect(clippy::unwrap_used, reason = "a test has no use for the error")]

mod http {
    #[macro_use]
    pub mod kit;

    mod access;
    mod alerts;
    mod audit;
    mod bad;
    mod crash;
    mod dead;
    mod described;
    mod docs;
    mod flows;
    mod hidden;
    mod jobs;
    mod journal;
    mod keys;
    mod limits;
    mod live;
    mod metrics;
    mod nul;
    mod ops;
    mod origins;
    mod outage;
    mod parts;
    mod plans;
    mod queues;
    mod reach;
    mod schedules;
    mod shapes;
    mod stop;
    mod streams;
    mod taken;
    mod times;
    mod tls;
    mod webhooks;
    mod work;
    mod workflows;
}
