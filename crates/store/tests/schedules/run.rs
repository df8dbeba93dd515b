//! Runs the games: many on SQLite, fewer on one Postgres database.

use tidemill_core::ManualClock;
use tidemill_testkit::databases::fresh_sqlite_url;
use tokio::runtime::Runtime;

use super::ops::{Op, games};
use super::play::Play;
use crate::games::{Verdict, lines, play_all, play_on_postgres, store_at};

fn show(ops: &[Op]) -> String {
    lines(ops, |op| format!("{op:?}"))
}

async fn whole_game(url: &str, ops: Vec<Op>) -> Verdict {
    let clock = ManualClock::default();
    let stores = [store_at(url, &clock).await?, store_at(url, &clock).await?];
    let verdict = moves(Play::new(stores.clone(), clock).await?, ops).await;
    stores[0].close().await;
    stores[1].close().await;
    verdict
}

async fn moves(mut play: Play, ops: Vec<Op>) -> Verdict {
    for op in ops {
        play.step(op).await?;
    }
    play.run_out().await
}

#[test]
fn sqlite_fires_as_the_oracle_says() {
    let runtime = Runtime::new().unwrap();
    play_all(
        60,
        &games(),
        |ops| show(ops),
        |ops| {
            let (_folder, url) = fresh_sqlite_url();
            runtime.block_on(whole_game(&url, ops))
        },
    );
}

#[test]
fn postgres_fires_as_the_oracle_says() {
    play_on_postgres(40, &games(), |ops| show(ops), whole_game);
}
