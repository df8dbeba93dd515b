//! A server that answers, and cannot do one thing now, for want of memory or of a block of its disk: it holds up
//! nothing else.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidemill::testing::tend;
use tidemill::{Enqueue, Fail, JobFilter, Schedule, State, Tidemill};
use tidemill_testkit::eventually::eventually;
use tokio::sync::Semaphore;

use super::kit::{Echo, Kit, SOON};

const HOUR: Duration = Duration::from_hours(1);

/// What the server raises, for each row or for each statement that is written to a table.
async fn refuse(kit: &Kit, (table, each): (&str, &str), when: &str, code: &str) {
    let rows = if each == "statement" { "referencing new table as written" } else { "" };
    let statements = format!(
        "create function refuse() returns trigger language plpgsql as $$ begin
            if {when} then raise exception 'out of it' using errcode = '{code}'; end if;
            return null;
         end $$;
         create trigger refuse after insert on tidemill.{table} {rows} for each {each} execute function refuse()"
    );
    kit.client().await.batch_execute(&statements).await.unwrap();
}

async fn mend(kit: &Kit) {
    kit.client().await.batch_execute("drop function refuse() cascade").await.unwrap();
}

/// A worker whose handlers end when they are let.
async fn work(mill: &Tidemill, held: &Arc<Semaphore>) -> tidemill::Running {
    let held = Arc::clone(held);
    let echo = move |job: Echo, _cx| {
        let held = Arc::clone(&held);
        async move {
            held.acquire().await.map_err(Fail::transient)?.forget();
            Ok(job.text)
        }
    };
    mill.worker().slots(50).handle(echo).start().await.unwrap()
}

#[tokio::test]
async fn outcomes_that_cannot_be_written_together_are_written_in_parts() {
    let kit = Kit::postgres();
    let (mill, held) = (kit.open().await, Arc::new(Semaphore::new(0)));
    refuse(&kit, ("outcome", "statement"), "(select count(*) > 10 from written)", "53200").await;
    let running = work(&mill, &held).await;
    mill.enqueue_many((0..50).map(|n| Echo::new(&n.to_string()))).await.unwrap();
    let in_state = async |state| {
        let filter = JobFilter { state: Some(state), limit: 100, ..JobFilter::default() };
        mill.jobs(&filter).await.unwrap().len()
    };
    eventually("all to run", SOON, async || (in_state(State::Running).await == 50).then_some(()))
        .await;
    held.add_permits(50);
    eventually("all to be done", SOON, async || (in_state(State::Done).await == 50).then_some(()))
        .await;
    running.stop().await;
    mill.close().await;
}

#[tokio::test]
async fn an_outcome_that_cannot_be_written_holds_up_no_other() {
    let kit = Kit::postgres();
    let (mill, held) = (kit.open().await, Arc::new(Semaphore::new(1000)));
    refuse(&kit, ("outcome", "row"), "new.output::text = '\"poison\"'", "53400").await;
    let running = work(&mill, &held).await;
    let poison = mill.enqueue(Echo::new("poison")).await.unwrap().id();
    for n in 0..5 {
        let text = n.to_string();
        let id = mill.enqueue(Echo::new(&text)).await.unwrap().id();
        assert_eq!(mill.result::<Echo>(id, SOON).await.unwrap(), text);
    }
    assert_eq!(mill.job(poison).await.unwrap().unwrap().state, State::Running);
    mend(&kit).await;
    assert_eq!(mill.result::<Echo>(poison, SOON).await.unwrap(), "poison");
    running.stop().await;
    mill.close().await;
}

#[tokio::test]
async fn a_call_that_cannot_be_written_refuses_none_that_went_with_it() {
    let kit = Kit::postgres();
    let mill = kit.open().await;
    refuse(&kit, ("job", "row"), "new.payload::text = '\"poison\"'", "53200").await;
    let enqueue = |text: String| {
        let mill = mill.clone();
        tokio::spawn(async move { mill.enqueue(Enqueue::raw("k", text)).await })
    };
    // Two go at once, and the others gather behind them.
    let calls: Vec<_> = (0..20)
        .map(|n| enqueue(if n == 9 { "\"poison\"".to_owned() } else { n.to_string() }))
        .collect();
    let mut refused = Vec::new();
    for (n, call) in calls.into_iter().enumerate() {
        if let Err(error) = call.await.unwrap() {
            refused.push((n, error.code()));
        }
    }
    assert_eq!(refused, [(9, "store_unavailable")]);
    mill.close().await;
}

#[tokio::test]
async fn a_schedule_whose_rows_cannot_be_written_holds_up_no_other() {
    for code in ["58030", "53200"] {
        let kit = Kit::postgres();
        let first: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        kit.clock.set(first);
        let mill = kit.open_still().await;
        // The bad one is due first.
        for (name, every) in [("a bad one", HOUR / 2), ("b", HOUR)] {
            mill.schedules().set(Schedule::every(name, every, Echo::new("s"))).await.unwrap();
        }
        refuse(&kit, ("schedule_fire", "row"), "new.name = 'a bad one'", code).await;
        kit.advance(HOUR);
        tend(&mill).await.unwrap();
        let last = async |name| mill.schedules().get(name).await.unwrap().last_slot;
        assert_eq!(
            (last("a bad one").await, last("b").await),
            (None, Some(first + HOUR)),
            "{code}"
        );
        mend(&kit).await;
        tend(&mill).await.unwrap();
        assert_eq!(last("a bad one").await, Some(first + HOUR), "it is not lost");
        mill.close().await;
    }
}
