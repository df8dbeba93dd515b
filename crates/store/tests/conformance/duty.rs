//! Duties: one node at a time has one, keeps it while it lives, and loses it when it does not.

use std::sync::Arc;

use tidemill_core::WorkerId;

use super::kit::{Kit, SECOND, TTL};

over_both_stores!(
    a_duty_is_taken_once_and_kept,
    a_duty_that_was_not_kept_is_free,
    a_duty_is_held_since_it_was_last_free,
    duties_are_independent,
    a_duty_that_is_given_back_is_free,
    of_many_one_gets_the_duty,
);

async fn a_duty_is_taken_once_and_kept(kit: &Kit) {
    let (one, two) = (WorkerId::new(), WorkerId::new());
    assert!(kit.store.take_duty("sweep", one, TTL).await.unwrap().is_some());
    for _ in 0..3 {
        kit.clock.advance(TTL.checked_sub(SECOND).unwrap());
        assert!(kit.store.take_duty("sweep", two, TTL).await.unwrap().is_none());
        assert!(
            kit.store.take_duty("sweep", one, TTL).await.unwrap().is_some(),
            "its time starts anew"
        );
    }
}

async fn a_duty_that_was_not_kept_is_free(kit: &Kit) {
    let (one, two) = (WorkerId::new(), WorkerId::new());
    assert!(kit.store.take_duty("sweep", one, TTL).await.unwrap().is_some());
    kit.clock.advance(TTL + SECOND);
    assert!(kit.store.take_duty("sweep", two, TTL).await.unwrap().is_some());
    assert!(kit.store.take_duty("sweep", one, TTL).await.unwrap().is_none());
}

async fn a_duty_is_held_since_it_was_last_free(kit: &Kit) {
    let (one, two) = (WorkerId::new(), WorkerId::new());
    let since = async |holder| kit.store.take_duty("sweep", holder, TTL).await.unwrap().unwrap();
    let first = kit.clock.now();
    for _ in 0..2 {
        assert_eq!(since(one).await, first);
        kit.clock.advance(TTL.checked_sub(SECOND).unwrap());
    }
    kit.clock.advance(SECOND);
    assert_eq!(since(one).await, kit.clock.now(), "another may have had it meanwhile");
    kit.clock.advance(TTL);
    assert_eq!(since(two).await, kit.clock.now());
}

async fn a_duty_that_is_given_back_is_free(kit: &Kit) {
    let (one, two) = (WorkerId::new(), WorkerId::new());
    assert!(kit.store.take_duty("sweep", one, TTL).await.unwrap().is_some());
    assert!(kit.store.take_duty("rescue", one, TTL).await.unwrap().is_some());
    kit.store.leave_duty("sweep", two).await.unwrap();
    assert!(
        kit.store.take_duty("sweep", two, TTL).await.unwrap().is_none(),
        "only its holder gives it back"
    );
    kit.store.leave_duty("sweep", one).await.unwrap();
    kit.store.leave_duty("sweep", one).await.unwrap();
    assert!(kit.store.take_duty("sweep", two, TTL).await.unwrap().is_some());
    assert!(kit.store.take_duty("rescue", two, TTL).await.unwrap().is_none(), "no other one");
}

async fn duties_are_independent(kit: &Kit) {
    let (one, two) = (WorkerId::new(), WorkerId::new());
    assert!(kit.store.take_duty("sweep", one, TTL).await.unwrap().is_some());
    assert!(kit.store.take_duty("rescue", two, TTL).await.unwrap().is_some());
    assert!(kit.store.take_duty("rescue", one, TTL).await.unwrap().is_none());
}

async fn of_many_one_gets_the_duty(kit: &Kit) {
    let other = kit.neighbour().await;
    let calls: Vec<_> = (0..20)
        .map(|n| {
            let store = Arc::clone(if n % 2 == 0 { &kit.store } else { &other });
            tokio::spawn(async move { store.take_duty("sweep", WorkerId::new(), TTL).await })
        })
        .collect();
    let mut holders = 0;
    for call in calls {
        holders += u32::from(call.await.unwrap().unwrap().is_some());
    }
    assert_eq!(holders, 1);
    other.close().await;
}
