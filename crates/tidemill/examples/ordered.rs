//! Steps of one order run one after the other; those of another order do not wait for them.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use tidemill::{Enqueue, Fail, Job, OnDead, Tidemill, testing};

#[derive(Serialize, Deserialize)]
struct Step {
    order: u64,
    what: String,
}

impl Job for Step {
    const KIND: &'static str = "step";
    type Output = ();
}

/// A step of an order: the key is whose turn it is, the policy what happens when one is dead.
fn step(order: u64, what: &str) -> Enqueue {
    let step = Step { order, what: what.to_owned() };
    Enqueue::from(step).key(format!("order:{order}")).ordered(OnDead::Block)
}

static BANK_IS_OPEN: AtomicBool = AtomicBool::new(false);

async fn run(mill: &Tidemill) -> tidemill::Result<()> {
    let worker = mill.worker().handle(|step: Step, _cx| async move {
        if step.what == "charge" && step.order == 42 && !BANK_IS_OPEN.load(Ordering::Relaxed) {
            println!("order {}: {} fails", step.order, step.what);
            return Err(Fail::permanent("the bank is closed"));
        }
        println!("order {}: {}", step.order, step.what);
        Ok(())
    });
    testing::drain(worker).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> tidemill::Result<()> {
    let mill = Tidemill::open("sqlite::memory:").await?;
    let charge = mill.enqueue(step(42, "charge")).await?.id();
    let ship = mill.enqueue(step(42, "ship")).await?.id();
    mill.enqueue(step(43, "charge")).await?;
    run(&mill).await?;

    let state = mill.job(ship).await?.map(|view| view.state.word());
    println!("order 42: ship is {}", state.unwrap_or("gone"));

    BANK_IS_OPEN.store(true, Ordering::Relaxed);
    mill.dead().replay_one(charge, "ada", None).await?;
    run(&mill).await?;
    mill.close().await;
    Ok(())
}
