//! Runs that continue anew: each turn is one of its own, whatever it shares with the one before.

use tidemill::testing::{crash_at_every_write, drain};
use tidemill::{Context, Enqueue, Fail, ForkAs, Job, JobId, Signal, Tidemill, Worker};

use super::kit::Kit;
use super::workflow::Log;

over_both_stores!(
    each_turn_has_keys_and_chance_of_its_own,
    a_fork_of_a_later_turn_draws_as_that_turn_did,
    a_turn_keeps_its_keys_however_often_it_is_run,
    what_an_object_was_set_to_is_kept_by_the_next_turn,
);

#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
struct Months {
    left: u32,
}

impl Job for Months {
    const KIND: &'static str = "months";
    type Output = ();
}

/// Charges once per turn, and notes by which key and with what number.
async fn months(job: Months, cx: Context, log: Log) -> Result<(), Fail> {
    let early = cx.uuid();
    let key = cx.step("charge").run(|s| async move { Ok(s.idempotency_key().to_owned()) }).await?;
    cx.now().await?;
    let late = cx.random();
    let told: String = cx.signal("go").await?;
    let after = cx.uuid();
    let said = format!("{early} {key} {late} {told} {after}");
    let say = || {
        log.add(said.as_str());
        async { Ok(()) }
    };
    cx.step("say").run(|_| say()).await?;
    if job.left == 0 {
        return Ok(());
    }
    cx.continue_as_new(Months { left: job.left - 1 }).await
}

fn worker(mill: &Tidemill, log: &Log) -> Worker {
    let log = log.clone();
    mill.worker().handle(move |job: Months, cx| months(job, cx, log.clone()))
}

async fn go(mill: &Tidemill, id: JobId, log: &Log) {
    mill.signal(id, Signal::new("go", "go")).await.unwrap();
    drain(worker(mill, log)).await.unwrap();
}

/// What each turn has drawn, and under which key it charged.
fn words(log: &Log) -> Vec<Vec<String>> {
    let words = |line: &String| line.split(' ').map(str::to_owned).collect();
    log.all().iter().map(words).collect()
}

async fn each_turn_has_keys_and_chance_of_its_own(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let id = mill.enqueue(Months { left: 2 }).await.unwrap().id();
    drain(worker(&mill, &log)).await.unwrap();
    for _ in 0..3 {
        go(&mill, id, &log).await;
    }
    let turns = words(&log);
    let keys: Vec<&str> = turns.iter().map(|turn| turn[1].as_str()).collect();
    assert_eq!(keys, ["/charge", "#1/charge", "#2/charge"].map(|key| format!("{id}{key}")));
    for place in [0, 2, 4] {
        let mut drawn: Vec<&str> = turns.iter().map(|turn| turn[place].as_str()).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 3, "{place}: {turns:?}");
    }
}

async fn a_fork_of_a_later_turn_draws_as_that_turn_did(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let id = mill.enqueue(Months { left: 1 }).await.unwrap().id();
    drain(worker(&mill, &log)).await.unwrap();
    go(&mill, id, &log).await;
    go(&mill, id, &log).await;
    let fork = mill.fork_run(id, "now", ForkAs::Beside, "ann", "").await.unwrap();
    drain(worker(&mill, &log)).await.unwrap();
    go(&mill, fork, &log).await;
    let turns = words(&log);
    assert_eq!(turns[2][..2], turns[1][..2], "up to there it is that turn");
    assert_ne!(turns[2][4], turns[1][4], "from there on its chance is its own");
    // A fork that goes on to a next turn shares nothing of it with the other run.
    let other = mill.enqueue(Months { left: 1 }).await.unwrap().id();
    drain(worker(&mill, &log)).await.unwrap();
    let fork = mill.fork_run(other, "now", ForkAs::Beside, "ann", "").await.unwrap();
    drain(worker(&mill, &log)).await.unwrap();
    for run in [other, fork] {
        go(&mill, run, &log).await;
        go(&mill, run, &log).await;
    }
    let turns = words(&log).split_off(3);
    assert_eq!(turns[2][..2], turns[0][..2]);
    assert!(turns[3].iter().zip(&turns[1]).all(|(a, b)| a != b || a == "go"), "{turns:?}");
}

async fn a_turn_keeps_its_keys_however_often_it_is_run(kit: Kit) {
    let (mill, log) = (kit.open_still().await, Log::default());
    let start = async || {
        let id = mill.enqueue(Months { left: 1 }).await?.id();
        for _ in 0..2 {
            mill.signal(id, Signal::new("go", &id)).await?;
        }
        Ok(id)
    };
    let runs = crash_at_every_write(&mill, &kit.clock, || worker(&mill, &log), start).await;
    for run in runs.unwrap() {
        let of_it = |turn: &Vec<String>| turn[3] == run.job.id.to_string();
        let mut turns: Vec<_> = words(&log).into_iter().filter(of_it).collect();
        turns.dedup();
        assert_eq!(turns.len(), 2, "a turn that is run again comes to the same: {turns:?}");
        assert_ne!(turns[0][1], turns[1][1]);
    }
}

async fn what_an_object_was_set_to_is_kept_by_the_next_turn(kit: Kit) {
    let mill = kit.open_still().await;
    let worker = mill.worker().queues(["count"]).handle(|job: Months, cx: Context| async move {
        let count = cx.object::<u32>()?;
        let so_far = count.get().await?.unwrap_or_default();
        count.set(&(so_far + 1))?;
        if job.left == 0 {
            return Err(Fail::permanent("what the last turn set is not kept"));
        }
        cx.continue_as_new(Months { left: job.left - 1 }).await
    });
    mill.enqueue(Enqueue::from(Months { left: 2 }).object("count", "c")).await.unwrap();
    drain(worker).await.unwrap();
    assert_eq!(mill.object("count", "c").await.unwrap(), Some(2));
}
