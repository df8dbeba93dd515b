//! Runs the games: many short ones on SQLite in memory, fewer on one Postgres database.

use std::env;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};
use tidemill_core::{Clock, ManualClock};
use tidemill_store::{OpenOptions, Store, open};
use tidemill_testkit::databases::fresh_postgres_url;
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;

use super::ops::{Op, sequences};
use super::play::{Play, Verdict};

const CASES_VARIABLE: &str = "TIDEMILL_MODEL_CASES";
const SEED_VARIABLE: &str = "TIDEMILL_MODEL_SEED";

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// Plays so many games; a failure is shrunk and named with its seed.
fn games(cases: u32, play: impl Fn(Vec<Op>) -> Verdict) {
    let cases = number(CASES_VARIABLE).map_or(cases, |cases| cases as u32);
    let seed = number(SEED_VARIABLE).unwrap_or_else(|| RandomState::new().hash_one("seed"));
    let config = Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 4_000,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&sequences(), play);
    if let Err(TestError::Fail(why, ops)) = result {
        let shown: Vec<_> = ops.iter().map(|op| format!("  {op:?}")).collect();
        panic!("{why}\nafter\n{}\n{SEED_VARIABLE}={seed}", shown.join("\n"));
    } else if let Err(error) = result {
        panic!("{error}\n{SEED_VARIABLE}={seed}");
    }
}

async fn game(url: &str, ops: Vec<Op>) -> Verdict {
    let clock = ManualClock::default();
    let options = OpenOptions {
        clock: Clock::Manual(clock.clone()),
        connections_max: 2,
        ..OpenOptions::default()
    };
    let store = open(url, options).await.map_err(|error| TestCaseError::fail(error.to_string()))?;
    let verdict = whole_game(Arc::clone(&store), clock, ops).await;
    store.close().await;
    verdict
}

async fn whole_game(store: Arc<dyn Store>, clock: ManualClock, ops: Vec<Op>) -> Verdict {
    let mut play = Play::new(store, clock);
    for op in ops {
        play.step(op).await?;
    }
    play.compare_and_drain().await
}

#[test]
fn sqlite_plays_as_the_model_does() {
    let runtime = Runtime::new().unwrap();
    games(200, |ops| runtime.block_on(game("sqlite::memory:", ops)));
}

/// Empties every table but the one that says which schema this is.
const EMPTY: &str = "do $$ declare names text; begin
    select string_agg(format('%I.%I', schemaname, tablename), ', ') into names
      from pg_tables where schemaname = 'tidemill' and tablename <> 'schema_version';
    execute 'truncate ' || names;
end $$";

#[test]
fn postgres_plays_as_the_model_does() {
    let runtime = Runtime::new().unwrap();
    let url = fresh_postgres_url();
    runtime.block_on(async { open(&url, OpenOptions::default()).await.unwrap().close().await });
    let connecting = tokio_postgres::connect(&url, NoTls);
    let (client, connection) = runtime.block_on(connecting).unwrap();
    runtime.spawn(connection);
    games(40, |ops| {
        runtime.block_on(async {
            client.batch_execute(EMPTY).await.unwrap();
            game(&url, ops).await
        })
    });
}
