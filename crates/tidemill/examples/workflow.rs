//! An onboarding that takes two weeks, and an order that is undone: workflows under a clock that skips time.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidemill::{
    Clock, Context, Enqueue, Fail, FlowId, Job, ManualClock, Tidemill, Undo, Worker, testing,
};

#[derive(Serialize, Deserialize)]
struct Onboard {
    user: u64,
}

impl Job for Onboard {
    const KIND: &'static str = "onboard";
    type Output = u32;
}

fn mail(user: u64, what: &str) {
    println!("to user {user}: {what}");
}

async fn onboard(job: Onboard, cx: Context) -> Result<u32, Fail> {
    let mut mails = 0;
    for (days, what) in [(0, "welcome"), (3, "three tips"), (11, "how do you like it?")] {
        cx.sleep(Duration::from_hours(24 * days)).await?;
        let send = |_| async move {
            mail(job.user, what);
            Ok(())
        };
        cx.step("mail").run(send).await?;
        mails += 1;
    }
    Ok(mails)
}

#[derive(Serialize, Deserialize)]
struct Order {
    number: u64,
}

impl Job for Order {
    const KIND: &'static str = "order";
    type Output = ();
}

/// Gives something back; what it gets is kept before its step begins.
#[derive(Serialize, Deserialize)]
struct GiveBack(Undo<String>);

impl Job for GiveBack {
    const KIND: &'static str = "give_back";
    type Output = ();
}

async fn order(job: Order, cx: Context) -> Result<(), Fail> {
    for what in ["stock", "courier"] {
        let undo = Enqueue::raw(GiveBack::KIND, format!("{what:?}"));
        let reserve = |_| async move {
            println!("order {}: {what} reserved", job.number);
            Ok(())
        };
        cx.step(what).undo(undo).run(reserve).await?;
    }
    cx.step("charge").run(|_| async { Err::<(), _>(Fail::permanent("the card was refused")) }).await
}

fn worker(mill: &Tidemill) -> Worker {
    mill.worker().handle(onboard).handle(order).handle(|GiveBack(undo): GiveBack, _| async move {
        println!("{} given back", undo.payload);
        Ok(())
    })
}

#[tokio::main]
async fn main() -> tidemill::Result<()> {
    let clock = ManualClock::default();
    let builder = Tidemill::builder().clock(Clock::Manual(clock.clone()));
    let mill = builder.open("sqlite::memory:").await?;

    let (began, id) = (clock.now(), mill.enqueue(Onboard { user: 7 }).await?.id());
    testing::skip_time(&mill, &clock, || worker(&mill)).await?;
    let mails = mill.result::<Onboard>(id, Duration::from_secs(1)).await?;
    println!("{mails} mails in {} days", clock.now().duration_since(began).as_hours() / 24);

    let id = mill.enqueue(Order { number: 42 }).await?.id();
    testing::skip_time(&mill, &clock, || worker(&mill)).await?;
    let view = mill.job(id).await?.ok_or(tidemill::Error::JobUnknown { id })?;
    println!("the order is {}: {}", view.state.word(), view.error.unwrap_or_default());
    let undoing = mill.flow(FlowId(id.0)).await?.ok_or(tidemill::Error::JobUnknown { id })?;
    println!("{} is {}", undoing.head.name, undoing.head.state.word());
    Ok(())
}
