//! `tidemill demo`: a lifelike workload on a real file, to be watched.
//!
//! People sign up in waves; each sign-up is a flow of mail, a tenant, keys, sample data and a delayed follow-up.
//! Handlers fail at times, one service is rate limited, one kind always fails, a limit binds and a queue is
//! paused. At the end a booking fails and is undone. It leaves what it made in the store, to be looked at, and
//! can be run again on the same one.

mod board;
mod booking;
mod gates;
mod handlers;
mod kinds;
mod signup;
mod summary;
mod tally;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tidemill::{FlowId, Running};
use tokio::task::JoinSet;

use crate::app::{App, interrupted};
use crate::exit::{Exit, Failure, Outcome};
use crate::mill::Mill;
use board::Board;
use gates::Gates;
use handlers::{KeyService, Plan};
use tally::{Tally, Watch};

const SIGN_UPS: f64 = 360.0;
const ARRIVALS: Duration = Duration::from_secs(8);
const FOLLOW_UP_DELAY: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_millis(100);
/// Every so many, somebody clicks twice.
const CLICKS_TWICE_EVERY: u64 = 40;

/// How large a demo.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How large and how long, against the usual
    #[arg(long, hide = true, default_value_t = 1.0)]
    scale: f64,
}

/// Runs it to its end, or to Ctrl-C.
pub async fn run(app: &App, args: Args) -> Outcome {
    if !(0.01..=100.0).contains(&args.scale) {
        return Err(Failure::usage("--scale is a number between 0.01 and 100"));
    }
    let mill = app.open().await?;
    let plan = Plan {
        run: format!("demo-{}", fastrand::u32(..)),
        began_at: mill.now().await?,
        sign_ups: ((SIGN_UPS * args.scale) as u64).max(8),
        arrivals: ARRIVALS.mul_f64(args.scale),
        follow_up_delay: FOLLOW_UP_DELAY.mul_f64(args.scale),
    };
    let tally = Arc::new(Tally::new(&plan));
    let since = Instant::now();
    let mut gates = Gates::set(&mill, &plan).await?;
    let worker = start_worker(&mill, &tally).await?;
    let board = Board::new(app, &plan);
    let stop = interrupted();
    let is_stopped = tokio::select! {
        ended = tide(&mill, &plan, &tally, &board, &mut gates) => ended.map(|()| false)?,
        () = stop => {
            eprintln!(
                "\nstopping: what runs may finish, the rest stays in the store for the next worker"
            );
            true
        }
    };
    board.end();
    let took = since.elapsed();
    if !is_stopped {
        booking::run(app, &mill).await?;
    }
    worker.stop().await;
    gates.end(&mill).await?;
    let summary = summary::Summary::read(&mill, &plan, &tally, took, gates.answers).await?;
    mill.close().await;
    summary.show(app);
    Ok(Exit::Ok)
}

async fn start_worker(mill: &Mill, tally: &Arc<Tally>) -> Outcome<Running> {
    let worker = mill
        .worker()
        .slots(64)
        .name("demo")
        .state(KeyService::default())
        .middleware(Watch(Arc::clone(tally)));
    Ok(booking::all(handlers::all(worker)).start().await?)
}

/// People arrive in waves until all are here, and then everything they caused finishes.
async fn tide(
    mill: &Mill,
    plan: &Plan,
    tally: &Tally,
    board: &Board,
    gates: &mut Gates,
) -> Outcome<()> {
    let mut ticks = tokio::time::interval(TICK);
    let since = Instant::now();
    let mut arrived = 0;
    loop {
        ticks.tick().await;
        let here = plan.arrived_after(since.elapsed());
        click(mill, plan, tally, arrived..here).await?;
        arrived = here;
        gates.ask(mill).await?;
        board.show(tally, arrived);
        if arrived == plan.sign_ups && tally.finished() >= plan.jobs() {
            return Ok(());
        }
    }
}

/// These people click, all at once; some click twice.
async fn click(
    mill: &Mill,
    plan: &Plan,
    tally: &Tally,
    people: std::ops::Range<u64>,
) -> Outcome<()> {
    let mut clicks = JoinSet::new();
    for n in people {
        let flow = signup::flow(plan, n, FlowId::new());
        let mill = mill.clone();
        let is_double = n % CLICKS_TWICE_EVERY == 7;
        tally.joined.fetch_add(u64::from(is_double), Relaxed);
        clicks.spawn(async move {
            if is_double {
                mill.start(flow.clone()).await?;
            }
            mill.start(flow).await
        });
    }
    while let Some(clicked) = clicks.join_next().await {
        clicked.map_err(std::io::Error::from)??;
    }
    Ok(())
}
