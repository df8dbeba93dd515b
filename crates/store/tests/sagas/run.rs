//! Runs the games: many on SQLite, fewer on one Postgres database.

use std::env;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};
use tidemill_core::{Clock, ManualClock};
use tidemill_store::{OpenOptions, Store, open};
use tidemill_testkit::databases::{fresh_postgres_url, fresh_sqlite_url};
use tidemill_testkit::eventually::eventually;
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;

use super::graph::{Game, games, name};
use super::play::{Play, Verdict};

const CASES_VARIABLE: &str = "TIDEMILL_MODEL_CASES";
const SEED_VARIABLE: &str = "TIDEMILL_MODEL_SEED";

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// Plays so many games; a failure is shrunk and named with its seed.
fn play_all(cases: u32, play: impl Fn(Game) -> Verdict) {
    let cases = number(CASES_VARIABLE).map_or(cases, |cases| cases as u32);
    let seed = number(SEED_VARIABLE).unwrap_or_else(|| RandomState::new().hash_one("seed"));
    let config = Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&games(), play);
    if let Err(TestError::Fail(why, game)) = result {
        let step = |at: usize| {
            let (after, has_undo) = (game.saga.edges(at), game.saga.steps[at].has_undo);
            format!("  {} after {after:?}, undo {has_undo}", name(at))
        };
        let steps: Vec<_> = (0..game.saga.steps.len()).map(step).collect();
        let ops: Vec<_> = game.ops.iter().map(|op| format!("  {op:?}")).collect();
        let (steps, ops, pivot) = (steps.join("\n"), ops.join("\n"), game.saga.pivot());
        panic!("{why}\npivot {pivot:?}\n{steps}\nops:\n{ops}\n{SEED_VARIABLE}={seed}");
    } else if let Err(error) = result {
        panic!("{error}\n{SEED_VARIABLE}={seed}");
    }
}

async fn whole_game(url: &str, game: Game) -> Verdict {
    let clock = ManualClock::default();
    let options = || OpenOptions {
        clock: Clock::Manual(clock.clone()),
        connections_max: 2,
        ..OpenOptions::default()
    };
    let failed = |error: tidemill_store::Error| TestCaseError::fail(error.to_string());
    let stores: [Arc<dyn Store>; 2] =
        [open(url, options()).await.map_err(failed)?, open(url, options()).await.map_err(failed)?];
    let verdict = moves(stores.clone(), clock, game).await;
    stores[0].close().await;
    stores[1].close().await;
    verdict
}

async fn moves(stores: [Arc<dyn Store>; 2], clock: ManualClock, game: Game) -> Verdict {
    let mut play = Play::new(stores, clock, &game.saga).await?;
    for op in game.ops {
        play.step(op).await?;
    }
    play.run_out().await
}

#[test]
fn sqlite_goes_back_as_the_oracle_says() {
    let runtime = Runtime::new().unwrap();
    play_all(60, |game| {
        let (_folder, url) = fresh_sqlite_url();
        runtime.block_on(whole_game(&url, game))
    });
}

/// Empties every table but the one that says which schema this is.
const EMPTY: &str = "do $$ declare names text; begin
    select string_agg(format('%I.%I', schemaname, tablename), ', ') into names
      from pg_tables where schemaname = 'tidemill' and tablename <> 'schema_version';
    execute 'truncate ' || names;
end $$";

#[test]
fn postgres_goes_back_as_the_oracle_says() {
    let runtime = Runtime::new().unwrap();
    let url = fresh_postgres_url();
    runtime.block_on(async { open(&url, OpenOptions::default()).await.unwrap().close().await });
    let connecting = tokio_postgres::connect(&url, NoTls);
    let (client, connection) = runtime.block_on(connecting).unwrap();
    runtime.spawn(connection);
    play_all(40, |game| {
        runtime.block_on(async {
            // What a store of the game before still carries on may stand in the way for a moment.
            eventually("the tables to be empty", Duration::from_secs(20), async || {
                client.batch_execute(EMPTY).await.ok()
            })
            .await;
            whole_game(&url, game).await
        })
    });
}
