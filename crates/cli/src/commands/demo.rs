//! `tidemill demo`: a lifelike workload on a real file, to be watched.
//!
//! People sign up in waves; each sign-up causes mail, a tenant, keys, sample data and a delayed
//! follow-up. Handlers fail at times, one service is rate limited, one kind always fails, a limit binds and
//! a queue is paused. It leaves
//! what it made in the store, to be looked at, and can be run again on the same one.

mod board;
mod gates;
mod handlers;
mod kinds;
mod summary;
mod tally;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tidemill::{Enqueue, Receipt, Running, Tidemill};

use crate::app::{App, interrupted};
use crate::exit::{Exit, Failure, Outcome};
use board::Board;
use gates::Gates;
use handlers::{KeyService, Plan};
use kinds::{Person, SignUp};
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
    let plan = Arc::new(Plan {
        run: format!("demo-{}", fastrand::u32(..)),
        sign_ups: ((SIGN_UPS * args.scale) as u64).max(8),
        arrivals: ARRIVALS.mul_f64(args.scale),
        follow_up_delay: FOLLOW_UP_DELAY.mul_f64(args.scale),
    });
    let tally = Arc::new(Tally::new(&plan));
    let since = Instant::now();
    let mut gates = Gates::set(&mill, &plan).await?;
    let worker = start_worker(&mill, &plan, &tally).await?;
    let board = Board::new(app, &plan);
    let stop = interrupted();
    tokio::select! {
        ended = tide(&mill, &plan, &tally, &board, &mut gates) => ended?,
        () = stop => eprintln!(
            "\nstopping: what runs may finish, the rest stays in the store for the next worker"
        ),
    }
    board.end();
    let took = since.elapsed();
    worker.stop().await;
    gates.end(&mill).await?;
    let summary = summary::Summary::read(&mill, &plan, &tally, took, gates.answers).await?;
    mill.close().await;
    summary.show(app);
    Ok(Exit::Ok)
}

async fn start_worker(mill: &Tidemill, plan: &Arc<Plan>, tally: &Arc<Tally>) -> Outcome<Running> {
    let worker = mill
        .worker()
        .slots(64)
        .name("demo")
        .state(Arc::clone(plan))
        .state(KeyService::default())
        .middleware(Watch(Arc::clone(tally)));
    Ok(handlers::all(worker).start().await?)
}

/// People arrive in waves until all are here, and then everything they caused finishes.
async fn tide(
    mill: &Tidemill,
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
        let receipts = mill.enqueue_many(clicks(plan, arrived..here)).await?;
        arrived = here;
        let joined = receipts.iter().filter(|receipt| matches!(receipt, Receipt::Joined { .. }));
        tally.joined.fetch_add(joined.count() as u64, Relaxed);
        gates.ask(mill).await?;
        board.show(tally, arrived);
        if arrived == plan.sign_ups && tally.finished() >= plan.jobs() {
            return Ok(());
        }
    }
}

/// The clicks of these people; some click twice.
fn clicks(plan: &Plan, people: std::ops::Range<u64>) -> Vec<Enqueue> {
    let sign_up = |n| {
        let person = Person::of_number(&plan.run, n);
        let tenant = person.tenant.clone();
        Enqueue::new(&SignUp(person)).tenant(tenant).tag(plan.run.clone())
    };
    let once = people.clone().map(sign_up);
    let twice = people.filter(|n| n % CLICKS_TWICE_EVERY == 7).map(sign_up);
    once.chain(twice).collect()
}
