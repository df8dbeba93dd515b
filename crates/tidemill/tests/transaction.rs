//! Enqueueing in the caller's own transaction, in every way there is: the same meaning for all.
//!
//! Commit and the job is there, roll back and it never was. A duplicate is an answer and does not
//! abort the transaction. Killing the process right after its commit is in the crash test.

#![expect(clippy::unwrap_used, reason = "a test has no use for the error")]

mod transaction {
    pub mod ask;
    #[cfg(all(feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
    mod flow;
    #[cfg(all(feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
    mod ledger;
    mod meaning;
    #[cfg(all(feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
    mod once;
    #[cfg(feature = "postgres")]
    mod postgres;
    #[cfg(feature = "sqlite")]
    mod sqlite;
    #[cfg(feature = "sqlx-postgres")]
    mod sqlx_postgres;
    #[cfg(feature = "sqlx-sqlite")]
    mod sqlx_sqlite;
    #[cfg(all(feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
    mod steps;
}
