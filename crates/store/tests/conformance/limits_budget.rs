//! Retry budgets: first attempts pay for retries, and only a slot that none of them wants is free.

use std::sync::Arc;

use tidemill_core::gate::{Counts, Per, QueueLimit};
use tidemill_core::{NewJob, Priority};
use tidemill_store::request::Share;
use tidemill_store::{Claim, ClaimRequest};

use super::kit::{Kit, SECOND, ask, job, lanes, retry};
use super::limits::{at_once, fill, limit, settle_all, take};

over_both_stores!(
    retries_are_paid_for_by_first_attempts,
    a_slot_that_nobody_else_wants_is_free_for_retries,
    room_that_first_attempts_leave_is_free_for_retries,
    a_slot_that_a_lower_band_wants_is_not_free,
    a_slot_that_a_band_wants_by_its_weight_is_not_free,
    a_slot_that_another_queue_wants_is_not_free,
);

/// Jobs that have failed once and are due again.
pub(super) async fn fail_once(kit: &Kit, new: &NewJob, number: usize) {
    let worker = kit.worker().await;
    fill(kit, new, number).await;
    let claim = kit.store.claim(ask(worker, &new.queue, number)).await.unwrap();
    assert_eq!(claim.jobs.len(), number);
    settle_all(kit, worker, &claim, &retry(SECOND, 1)).await;
    kit.clock.advance(2 * SECOND);
}

pub(super) fn budget(percent: u32) -> QueueLimit {
    limit("default/\u{1c}retries", Counts::Retry { percent })
}

async fn retries_are_paid_for_by_first_attempts(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [budget(20)]);
    fail_once(kit, &job("k"), 200).await;
    fill(kit, &job("k"), 200).await;
    let (mut firsts, mut retries) = (0, 0);
    for _ in 0..100 {
        for taken in take(kit, worker, &limits, 1).await.jobs {
            *if taken.attempt == 1 { &mut firsts } else { &mut retries } += 1;
        }
    }
    assert_eq!(firsts + retries, 100);
    assert!((15..=30).contains(&retries), "{retries} of 100 were retries, ten of them free");
}

async fn a_slot_that_nobody_else_wants_is_free_for_retries(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [budget(1)]);
    fail_once(kit, &job("k"), 100).await;
    fill(kit, &job("k"), 5).await;
    let claim = take(kit, worker, &limits, 50).await;
    assert_eq!(claim.jobs.len(), 50);
    assert_eq!(claim.jobs.iter().filter(|taken| taken.attempt == 1).count(), 5);
    for rest in [50, 5, 0] {
        assert_eq!(take(kit, worker, &limits, 50).await.jobs.len(), rest);
    }
}

async fn room_that_first_attempts_leave_is_free_for_retries(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [at_once(Per::All, 20), budget(1)]);
    fail_once(kit, &job("k"), 100).await;
    fill(kit, &job("k"), 3).await;
    let claim = take(kit, worker, &limits, 100).await;
    assert_eq!(claim.jobs.len(), 20, "all that may run at once");
    assert_eq!(retries(&claim), 17);
}

fn of_band(priority: Priority) -> NewJob {
    NewJob { priority, ..job("k") }
}

/// How many of a claim are retries.
fn retries(claim: &Claim) -> usize {
    claim.jobs.iter().filter(|taken| taken.attempt > 1).count()
}

/// Claims ten at a time while a hundred first attempts wait: no more retries come along than are paid for. Then they
/// are free.
async fn spend(kit: &Kit, wish: &ClaimRequest) {
    let mut paid = 0;
    for _ in 0..10 {
        let claim = kit.store.claim(wish.clone()).await.unwrap();
        assert_eq!(claim.jobs.len(), 10);
        paid += retries(&claim);
    }
    assert!(
        (10..=11).contains(&paid),
        "{paid} retries: ten were given, ninety first attempts paid for none"
    );
    let (mut firsts, mut free) = (0, 0);
    loop {
        let claim = kit.store.claim(wish.clone()).await.unwrap();
        if claim.jobs.is_empty() {
            break;
        }
        free += retries(&claim);
        firsts += claim.jobs.len() - retries(&claim);
    }
    assert_eq!((firsts, free), (paid, 60 - paid), "nobody is forgotten");
}

async fn a_slot_that_a_lower_band_wants_is_not_free(kit: &Kit) {
    bands(kit, vec![]).await;
}

async fn a_slot_that_a_band_wants_by_its_weight_is_not_free(kit: &Kit) {
    bands(kit, vec![8, 4, 2, 1]).await;
}

async fn bands(kit: &Kit, weights: Vec<u32>) {
    let worker = kit.worker().await;
    fail_once(kit, &of_band(Priority::Urgent), 60).await;
    fill(kit, &of_band(Priority::Low), 100).await;
    let (limits, share) = (Arc::new(vec![budget(1)]), Share { weights, ..Share::default() });
    spend(kit, &ClaimRequest { limits, share, ..ask(worker, "default", 10) }).await;
}

async fn a_slot_that_another_queue_wants_is_not_free(kit: &Kit) {
    let worker = kit.worker().await;
    fail_once(kit, &job("k"), 60).await;
    fill(kit, &NewJob { queue: "other".into(), ..job("k") }, 100).await;
    let lanes = [lanes("default"), lanes("other")].concat();
    let wish =
        ClaimRequest { limits: Arc::new(vec![budget(1)]), lanes, ..ask(worker, "default", 10) };
    spend(kit, &wish).await;
}
