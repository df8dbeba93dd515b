//! Runs the games: many short ones on SQLite in memory, fewer on one Postgres database.

use tidemill_core::ManualClock;
use tokio::runtime::Runtime;

use super::ops::{Op, sequences};
use super::play::Play;
use crate::games::{Verdict, lines, play_all, play_on_postgres, store_at};

async fn game(url: &str, ops: Vec<Op>) -> Verdict {
    let clock = ManualClock::default();
    let store = store_at(url, &clock).await?;
    let verdict = moves(Play::new(store.clone(), clock), ops).await;
    store.close().await;
    verdict
}

async fn moves(mut play: Play, ops: Vec<Op>) -> Verdict {
    for op in ops {
        play.step(op).await?;
    }
    play.compare_and_drain().await
}

fn show(ops: &[Op]) -> String {
    lines(ops, |op| format!("{op:?}"))
}

#[test]
fn sqlite_plays_as_the_model_does() {
    let runtime = Runtime::new().unwrap();
    play_all(
        200,
        &sequences(),
        |ops| show(ops),
        |ops| runtime.block_on(game("sqlite::memory:", ops)),
    );
}

#[test]
fn postgres_plays_as_the_model_does() {
    play_on_postgres(40, &sequences(), |ops| show(ops), game);
}
