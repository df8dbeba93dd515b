//! Runs the games: many on SQLite, fewer on one Postgres database.

use std::sync::Arc;

use tidemill_core::ManualClock;
use tidemill_store::Store;
use tidemill_testkit::databases::fresh_sqlite_url;
use tokio::runtime::Runtime;

use super::graph::{Graph, name};
use super::ops::{Game, games};
use super::play::Play;
use crate::games::{Verdict, lines, play_all, play_on_postgres, store_at};

fn show(game: &Game) -> String {
    let flow = |(flow, graph): (usize, &Graph)| {
        let step = |at: usize| {
            let (after, join) = (graph.edges(at), graph.join(at));
            format!("  {} {} jobs, after {after:?}, {join:?}", name(at), graph.steps[at].jobs)
        };
        let steps: Vec<_> = (0..graph.steps.len()).map(step).collect();
        format!("flow {flow}, at once {:?}:\n{}", graph.at_once, steps.join("\n"))
    };
    let flows: Vec<_> = game.flows.iter().enumerate().map(flow).collect();
    format!("{}\nops:\n{}", flows.join("\n"), lines(&game.ops, |op| format!("{op:?}")))
}

async fn whole_game(url: &str, game: Game) -> Verdict {
    let clock = ManualClock::default();
    let stores = [store_at(url, &clock).await?, store_at(url, &clock).await?];
    let verdict = moves(stores.clone(), clock, game).await;
    stores[0].close().await;
    stores[1].close().await;
    verdict
}

async fn moves(stores: [Arc<dyn Store>; 2], clock: ManualClock, game: Game) -> Verdict {
    let mut play = Play::new(stores, clock, &game.flows).await?;
    for op in game.ops {
        play.step(op).await?;
    }
    play.run_out().await
}

#[test]
fn sqlite_joins_as_the_oracle_says() {
    let runtime = Runtime::new().unwrap();
    play_all(60, &games(), show, |game| {
        let (_folder, url) = fresh_sqlite_url();
        runtime.block_on(whole_game(&url, game))
    });
}

#[test]
fn postgres_joins_as_the_oracle_says() {
    play_on_postgres(40, &games(), show, whole_game);
}
