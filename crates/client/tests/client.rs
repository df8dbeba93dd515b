//! The client against a real server, on both stores.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod client {
    #[macro_use]
    pub mod kit;

    mod away;
    mod dead;
    mod doorman;
    mod flows;
    mod jobs;
    mod keys;
    mod queues;
    mod refused;
    mod replay;
    mod runs;
    mod schedules;
    mod streams;
    mod tls;
    mod work;
    mod worker;
}
