//! What only the SQLite backend has: its statements, its file and who else may have it open, and a
//! disk that refuses.
//!
//! What both stores promise is tested in `conformance.rs`.

#![expect(clippy::unwrap_used, reason = "a test has no use for the error")]

mod sqlite {
    pub mod kit;

    mod checkpoint;
    mod flows;
    mod full;
    mod locked;
    mod neighbours;
    mod refused;
    mod standing;
    mod statement;
    mod view;
}

/// Not a test of its own: what the processes run that the others start.
#[test]
fn role() {
    sqlite::kit::play();
}
