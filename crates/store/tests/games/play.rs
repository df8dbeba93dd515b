//! What all games share: a number of them is drawn, a failure is shrunk, shown, and named with its seed.
//!
//! It refuses to know what is played: whoever plays says how a game is drawn, played and shown.

#![expect(clippy::unwrap_used, reason = "a game that cannot begin is no game")]

use std::env;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};
use tidemill_core::{Clock, ManualClock};
use tidemill_store::{OpenOptions, Store, open};
use tidemill_testkit::databases::fresh_postgres_url;
use tidemill_testkit::eventually::eventually;
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;

const CASES_VARIABLE: &str = "TIDEMILL_MODEL_CASES";
const SEED_VARIABLE: &str = "TIDEMILL_MODEL_SEED";
/// A failure that takes seconds to show need not be the shortest.
const SHRINK_MS_MAX: u32 = 180_000;

/// How a game ended.
pub(crate) type Verdict<T = ()> = Result<T, TestCaseError>;

/// An error of the store ends the game.
pub(crate) fn fine<T>(answer: tidemill_store::Result<T>) -> Verdict<T> {
    answer.map_err(|error| TestCaseError::fail(format!("the store failed: {error}")))
}

/// A store with this clock; whoever plays closes it. A second one on the same database is as another process has it.
pub(crate) async fn store_at(url: &str, clock: &ManualClock) -> Verdict<Arc<dyn Store>> {
    let options = OpenOptions {
        clock: Clock::Manual(clock.clone()),
        connections_max: 2,
        ..OpenOptions::default()
    };
    fine(open(url, options).await)
}

/// Operations, one in a line.
pub(crate) fn lines<T>(ops: &[T], show: impl Fn(&T) -> String) -> String {
    ops.iter().map(|op| format!("  {}", show(op))).collect::<Vec<_>>().join("\n")
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// Plays so many games, unless the environment says another number.
pub(crate) fn play_all<S: Strategy>(
    cases: u32,
    games: &S,
    show: impl Fn(&S::Value) -> String,
    play: impl Fn(S::Value) -> Verdict,
) {
    let cases = number(CASES_VARIABLE).map_or(cases, |cases| cases as u32);
    let seed = number(SEED_VARIABLE).unwrap_or_else(|| RandomState::new().hash_one("seed"));
    let config = Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 4_000,
        max_shrink_time: SHRINK_MS_MAX,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(games, play);
    if let Err(TestError::Fail(why, game)) = result {
        panic!("{why}\nafter\n{}\n{SEED_VARIABLE}={seed}", show(&game));
    } else if let Err(error) = result {
        panic!("{error}\n{SEED_VARIABLE}={seed}");
    }
}

/// Empties every table but those that are never empty.
const EMPTY: &str = "do $$ declare names text; begin
    select string_agg(format('%I.%I', schemaname, tablename), ', ') into names
      from pg_tables where schemaname = 'tidemill' and tablename not in ('schema_version', 'turn', 'rulebook');
    execute 'truncate ' || names;
end $$";

/// Plays so many games on one Postgres database, which is emptied before each.
pub(crate) fn play_on_postgres<S: Strategy>(
    cases: u32,
    games: &S,
    show: impl Fn(&S::Value) -> String,
    play: impl AsyncFn(&str, S::Value) -> Verdict,
) {
    let runtime = Runtime::new().unwrap();
    let url = fresh_postgres_url();
    runtime.block_on(async { open(&url, OpenOptions::default()).await.unwrap().close().await });
    let connecting = tokio_postgres::connect(&url, NoTls);
    let (client, connection) = runtime.block_on(connecting).unwrap();
    runtime.spawn(connection);
    play_all(cases, games, show, move |game| {
        runtime.block_on(async {
            // What a store of the game before still carries on may stand in the way for a moment.
            eventually("the tables to be empty", Duration::from_secs(20), async || {
                client.batch_execute(EMPTY).await.ok()
            })
            .await;
            play(&url, game).await
        })
    });
}
