//! Somebody else has the file locked, and what comes meanwhile waits: it goes together, and nobody is worse off for it.

use std::time::Duration;

use rusqlite::Connection;
use tidemill_core::{Clock, ManualClock, NewJob, State};
use tidemill_store::request::{LEASE_TTL, RescueRules, Rescued};
use tidemill_store::{OpenOptions, open};

use super::kit::{Place, ask, job, worker};

/// Keeps everybody else from writing, until it is let go.
fn lock(place: &Place) -> Connection {
    let other = place.connect();
    other.execute_batch("begin immediate").unwrap();
    other
}

fn let_go(other: &Connection) {
    other.execute_batch("rollback").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_given_up_whose_beats_waited_as_the_rescue_did() {
    let (place, clock) = (Place::new(), ManualClock::default());
    let options = OpenOptions { clock: Clock::Manual(clock.clone()), ..OpenOptions::default() };
    let store = open(&place.url, options).await.unwrap();
    let worker = worker(&store).await;
    let id = store.enqueue(vec![job()]).await.unwrap()[0].id();
    assert_eq!(store.claim(ask(worker, 1)).await.unwrap().jobs.len(), 1);
    let rules = RescueRules { lease_ttl: LEASE_TTL, clear_for: None, lost_max: 1 };
    let other = lock(&place);
    let goes_on = async {
        clock.advance(LEASE_TTL * 2);
        let_go(&other);
    };
    let (rescued, beat, ()) = tokio::join!(store.rescue(rules), store.beat(worker), goes_on);
    assert_eq!(rescued.unwrap(), Rescued::default());
    assert!(!beat.unwrap().lost);
    assert_eq!(store.job(id).await.unwrap().unwrap().state, State::Running);
    clock.advance(LEASE_TTL + Duration::from_secs(1));
    assert_eq!(store.rescue(rules).await.unwrap().workers, 1, "now it is silent");
    store.close().await;
}

/// One of several that share a transaction fails; so each runs by itself. Another cannot be counted, and is taken back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_taken_back_is_not_acknowledged() {
    let place = Place::new();
    let store = place.store().await;
    let refuse = "
        create trigger no_job before insert on tidemill_job when new.kind = 'never'
        begin select raise(abort, 'not this one'); end;
        create trigger no_count before insert on tidemill_depth when new.queue = 'uncounted'
        begin select raise(abort, 'not counted'); end;";
    place.connect().execute_batch(refuse).unwrap();
    let other = lock(&place);
    let (good, uncounted) = (job(), NewJob { queue: "uncounted".into(), ..job() });
    let ids = [good.id, uncounted.id];
    let (failed, good, uncounted, ()) = tokio::join!(
        store.enqueue(vec![NewJob { kind: "never".into(), ..job() }]),
        store.enqueue(vec![good]),
        store.enqueue(vec![uncounted]),
        async { let_go(&other) }
    );
    assert!(failed.unwrap_err().to_string().contains("not this one"));
    good.unwrap();
    assert!(uncounted.unwrap_err().to_string().contains("not counted"));
    for (id, is_there) in ids.into_iter().zip([true, false]) {
        assert_eq!(store.job(id).await.unwrap().is_some(), is_there);
    }
    store.close().await;
}
