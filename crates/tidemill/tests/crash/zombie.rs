//! A worker that takes runs, does not beat, and comes back when they are others': whatever it writes must be refused.
//!
//! A frozen worker notices by its own clock that it was away, and lets go before it writes. This one does not look.

use std::time::Duration;

use tidemill::core::Settlement;
use tidemill::store::run::{Append, RunWrites};
use tidemill::store::{Claim, ClaimRequest, Lane, SettleItem, Settled, Share, Store, WorkerCard};
use tidemill::{Job, JobId, Payload, Priority, WorkerId};
use tidemill_testkit::eventually::eventually;

use super::history::Log;
use super::role::{Orders, open};
use super::voyage::{Done, Voyage};

/// What it says of its writes.
pub const REFUSED: &str = "zombie refused";
pub const ACCEPTED: &str = "zombie accepted";
/// What it says when it has taken its runs.
pub const HOLDS: &str = "the zombie holds runs";
const RUNS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(30);

/// Takes runs, is given up, and tries to write all the same.
pub async fn haunt(orders: &Orders) {
    let mill = open(orders).await;
    let (store, worker) = (mill.store(), WorkerId::new());
    let name = format!("zombie {}", std::process::id());
    let (queues, kinds) = (vec!["default".to_owned()], vec![Voyage::KIND.to_owned()]);
    let card = WorkerCard {
        id: worker,
        name: name.clone(),
        queues,
        kinds,
        slots: 1,
        slots_of: std::collections::BTreeMap::new(),
        lease_ttl: None,
    };
    store.register(card).await.unwrap();
    let claim = eventually("runs to take", PATIENCE, async || {
        let claim = store.claim(ask(worker)).await.ok()?;
        (!claim.jobs.is_empty()).then_some(claim)
    })
    .await;
    println!("{HOLDS}");
    eventually("being given up", PATIENCE, async || {
        let workers = store.workers().await.ok()?;
        workers.iter().all(|worker| worker.name != name).then_some(())
    })
    .await;
    let effects = Log::open(&orders.folder, "effects");
    // It does not give up before the runs have ended.
    eventually("the runs to end", PATIENCE * 3, async || {
        let mut have_ended = true;
        for at in 0..claim.jobs.len() {
            let run = claim.jobs[at].job.id;
            have_ended &= store.job(run).await.ok()?.is_some_and(|view| view.state.is_final());
            let is_accepted = write(store.as_ref(), worker, &claim, run).await
                || settle(store.as_ref(), worker, &claim, at).await;
            let what = if is_accepted { ACCEPTED } else { REFUSED }.to_owned();
            effects.write(&Done { run, what, token: claim.token.unwrap().0 });
        }
        have_ended.then_some(())
    })
    .await;
    mill.close().await;
}

fn ask(worker: WorkerId) -> ClaimRequest {
    ClaimRequest {
        worker,
        lanes: vec![Lane { queue: "default".to_owned(), priority: Priority::Normal }],
        share: Share::default(),
        limits: std::sync::Arc::default(),
        edition: None,
        kinds: Some(std::sync::Arc::new(vec![Voyage::KIND.to_owned()])),
        jobs_max: RUNS,
        stand: None,
    }
}

/// Writes the end of a step behind everything that the journal has.
async fn write(store: &dyn Store, worker: WorkerId, claim: &Claim, run: JobId) -> bool {
    let rows = store.journal(run).await.unwrap().0;
    let next = rows.last().map_or(0, |row| row.number + 1);
    let entry = r#"{"ended":{"key":"charge","ending":{"ok":-1}}}"#.to_owned();
    let writes = RunWrites { entries: vec![(next, entry)], ..RunWrites::default() };
    let item = Append { job: run, token: claim.token.unwrap(), writes };
    store.append(worker, vec![item]).await.unwrap() == [true]
}

/// Says that it is done.
async fn settle(store: &dyn Store, worker: WorkerId, claim: &Claim, at: usize) -> bool {
    let taken = &claim.jobs[at];
    let item = SettleItem {
        job: taken.job.clone(),
        token: claim.token.unwrap(),
        attempt: taken.attempt,
        lost: taken.lost,
        started_at: claim.now,
        gates: Vec::new(),
        settlement: Settlement::Done { output: Payload::null(), follow_ups: Vec::new() },
        decided: false,
        run: None,
    };
    store.settle(worker, vec![item]).await.unwrap() == [Settled::Accepted]
}
