//! Runs the games: many on SQLite, fewer on one Postgres database.

use tidemill_core::ManualClock;
use tidemill_testkit::databases::fresh_sqlite_url;
use tokio::runtime::Runtime;

use super::ops::{Game, Op, games};
use super::play::Play;
use crate::games::{Verdict, lines, play_all, play_on_postgres, store_at};

fn show(game: &Game) -> String {
    format!("{}\n  at the end lifted: {}", lines(&game.ops, Op::show), game.is_lifted)
}

async fn whole_game(url: &str, game: Game) -> Verdict {
    let clock = ManualClock::default();
    let stores = [store_at(url, &clock).await?, store_at(url, &clock).await?];
    let verdict = moves(Play::new(stores.clone(), clock), game).await;
    stores[0].close().await;
    stores[1].close().await;
    verdict
}

async fn moves(mut play: Play, game: Game) -> Verdict {
    play.learn().await?;
    for op in game.ops {
        play.step(op).await?;
    }
    play.run_out(game.is_lifted).await
}

#[test]
fn sqlite_limits_as_the_oracle_says() {
    let runtime = Runtime::new().unwrap();
    play_all(60, &games(), show, |game| {
        let (_folder, url) = fresh_sqlite_url();
        runtime.block_on(whole_game(&url, game))
    });
}

#[test]
fn postgres_limits_as_the_oracle_says() {
    play_on_postgres(30, &games(), show, whole_game);
}
