//! Sharing: lanes by weight, tenants in turn, and nobody starves behind a million of another's jobs.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use tidemill_core::{Due, JobId, NewJob, Priority};
use tidemill_store::{Claim, ClaimRequest, Share};

use super::kit::{HOUR, Kit, SECOND, ask, done, item, job, retry};

over_both_stores!(
    lanes_share_by_weight_and_the_rest_goes_in_order,
    queues_share_alike_whatever_bands_have_work,
    a_single_slot_goes_to_the_first_lane_that_has_work,
    small_tenants_do_not_wait_behind_a_large_one,
    tenants_take_turns_from_claim_to_claim,
    processes_that_live_for_one_claim_are_fair_together,
    jobs_without_a_tenant_take_turns_with_the_others,
    a_favoured_tenant_gets_its_weight,
    a_favoured_tenant_gets_its_weight_slot_by_slot,
    tenants_that_wait_for_the_clock_keep_nobody_waiting,
    behind_more_tenants_than_one_claim_visits_a_job_is_found_by_the_next_ones,
    a_lane_is_emptied_however_its_tenants_are_spread,
    a_tenant_whose_kind_is_unknown_holds_up_nobody,
    a_retried_job_of_a_tenant_stays_in_its_turn,
);

fn of(tenant: &str) -> NewJob {
    NewJob { tenant: Some(tenant.into()), ..job("k") }
}

async fn fill(kit: &Kit, new: &NewJob, number: usize) {
    let jobs = (0..number).map(|_| NewJob { id: JobId::new(), ..new.clone() }).collect();
    kit.store.enqueue(jobs).await.unwrap();
}

/// How many jobs of a claim are of whom; those without a tenant are of ''.
fn by_tenant(claim: &Claim) -> BTreeMap<String, usize> {
    let mut number = BTreeMap::new();
    for taken in &claim.jobs {
        *number.entry(taken.job.tenant.clone().unwrap_or_default()).or_default() += 1;
    }
    number
}

fn by_band(claim: &Claim) -> [usize; 4] {
    Priority::ALL.map(|band| claim.jobs.iter().filter(|taken| taken.job.priority == band).count())
}

async fn lanes_share_by_weight_and_the_rest_goes_in_order(kit: &Kit) {
    let worker = kit.worker().await;
    let weighted = |jobs_max| {
        let share = Share { weights: vec![8, 4, 2, 1], ..Share::default() };
        kit.store.claim(ClaimRequest { share, ..ask(worker, "default", jobs_max) })
    };
    for priority in Priority::ALL {
        fill(kit, &NewJob { priority, ..job("k") }, 30).await;
    }
    assert_eq!(by_band(&weighted(15).await.unwrap()), [8, 4, 2, 1]);
    assert_eq!(by_band(&weighted(32).await.unwrap()), [18, 8, 4, 2], "the rest to the first ones");
    // Urgent has 4 left, high 18.
    assert_eq!(
        by_band(&weighted(45).await.unwrap()),
        [4, 18, 20, 3],
        "what one leaves, others get"
    );
    assert_eq!(
        by_band(&weighted(3).await.unwrap()),
        [0, 0, 2, 1],
        "only those that have work count"
    );
    assert_eq!(by_band(&weighted(100).await.unwrap()), [0, 0, 2, 23]);
}

async fn queues_share_alike_whatever_bands_have_work(kit: &Kit) {
    let worker = kit.worker().await;
    let of = |queue: &str, priority| NewJob { queue: queue.into(), priority, ..job("k") };
    fill(kit, &of("a", Priority::Urgent), 40).await;
    fill(kit, &of("a", Priority::Low), 40).await;
    fill(kit, &of("b", Priority::Low), 40).await;
    let mut wish = ask(worker, "a", 18);
    wish.lanes.extend(ask(worker, "b", 18).lanes);
    wish.share = Share { weights: vec![448, 224, 112, 56, 448, 224, 112, 56], ..Share::default() };
    let claim = kit.store.claim(wish).await.unwrap();
    assert_eq!(by_band(&claim), [8, 0, 0, 10], "its bands by weight");
    let of_b = claim.jobs.iter().filter(|taken| taken.job.queue == "b").count();
    assert_eq!(of_b, 9, "half of it, though it has only low work");
}

async fn a_single_slot_goes_to_the_first_lane_that_has_work(kit: &Kit) {
    let worker = kit.worker().await;
    fill(kit, &NewJob { priority: Priority::Low, ..job("k") }, 2).await;
    fill(kit, &NewJob { priority: Priority::High, ..job("k") }, 2).await;
    let mut wish = ask(worker, "default", 1);
    wish.share = Share { weights: vec![8, 4, 2, 1], ..Share::default() };
    assert_eq!(by_band(&kit.store.claim(wish.clone()).await.unwrap()), [0, 1, 0, 0]);
    wish.lanes.reverse();
    wish.share.weights.reverse();
    assert_eq!(by_band(&kit.store.claim(wish).await.unwrap()), [0, 0, 0, 1]);
}

async fn small_tenants_do_not_wait_behind_a_large_one(kit: &Kit) {
    let worker = kit.worker().await;
    fill(kit, &of("large"), 1000).await;
    kit.clock.advance(SECOND);
    for number in 0..20 {
        kit.put(of(&format!("small {number}"))).await;
    }
    fill(kit, &job("k"), 3).await;
    kit.clock.advance(SECOND);
    let number = by_tenant(&kit.take(worker, 50).await);
    assert_eq!(number.len(), 22, "{number:?}");
    assert_eq!((number["large"], number[""]), (27, 3), "those without a tenant count as one");
    assert_eq!(by_tenant(&kit.take(worker, 10).await), BTreeMap::from([("large".into(), 10)]));
}

async fn tenants_take_turns_from_claim_to_claim(kit: &Kit) {
    let worker = kit.worker().await;
    for tenant in ["a", "b", "c", "d", "e"] {
        fill(kit, &of(tenant), 40).await;
    }
    let mut served = BTreeMap::new();
    for jobs_max in [1, 1, 1, 1, 1, 3, 3, 3, 1, 5, 5] {
        for (tenant, number) in by_tenant(&kit.take(worker, jobs_max).await) {
            *served.entry(tenant).or_insert(0) += number;
        }
    }
    assert_eq!(served.values().copied().collect::<Vec<_>>(), [5; 5], "{served:?}");
}

/// That all of them begin with the same one happens once in a million times.
async fn processes_that_live_for_one_claim_are_fair_together(kit: &Kit) {
    for tenant in ["first", "last"] {
        fill(kit, &of(tenant), 21).await;
    }
    let mut served = HashSet::new();
    for _ in 0..21 {
        let (process, worker) = (kit.neighbour().await, kit.worker().await);
        let claim = process.claim(ask(worker, "default", 1)).await.unwrap();
        served.extend(by_tenant(&claim).into_keys());
        process.close().await;
    }
    assert_eq!(served.len(), 2, "{served:?}");
}

async fn jobs_without_a_tenant_take_turns_with_the_others(kit: &Kit) {
    let worker = kit.worker().await;
    fill(kit, &job("k"), 40).await;
    for tenant in ["a", "b"] {
        fill(kit, &of(tenant), 40).await;
    }
    let mut served = BTreeMap::new();
    for _ in 0..30 {
        for (tenant, number) in by_tenant(&kit.take(worker, 1).await) {
            *served.entry(tenant).or_insert(0) += number;
        }
    }
    assert_eq!(served.values().copied().collect::<Vec<_>>(), [10; 3], "{served:?}");
}

async fn a_favoured_tenant_gets_its_weight(kit: &Kit) {
    let worker = kit.worker().await;
    for tenant in ["a", "b"] {
        fill(kit, &of(tenant), 100).await;
        fill(kit, &NewJob { queue: "other".into(), ..of(tenant) }, 100).await;
    }
    let weights = BTreeMap::from([(("default".to_owned(), "b".to_owned()), 3)]);
    let share = Share { tenants: Arc::new(weights), ..Share::default() };
    let here = ClaimRequest { share: share.clone(), ..ask(worker, "default", 40) };
    let number = by_tenant(&kit.store.claim(here).await.unwrap());
    assert_eq!(number, BTreeMap::from([("a".into(), 10), ("b".into(), 30)]));
    let there = ClaimRequest { share, ..ask(worker, "other", 40) };
    let number = by_tenant(&kit.store.claim(there).await.unwrap());
    assert_eq!(number, BTreeMap::from([("a".into(), 20), ("b".into(), 20)]), "only in its queue");
}

async fn a_favoured_tenant_gets_its_weight_slot_by_slot(kit: &Kit) {
    let worker = kit.worker().await;
    for slots in [1, 2, 7, 10] {
        let queue = format!("by {slots}");
        for tenant in ["a", "b", "c"] {
            fill(kit, &NewJob { queue: queue.clone(), ..of(tenant) }, 120).await;
        }
        let tenants = Arc::new(BTreeMap::from([((queue.clone(), "b".to_owned()), 8)]));
        let share = Share { tenants, ..Share::default() };
        let mut served: BTreeMap<String, usize> = BTreeMap::new();
        while served.values().sum::<usize>() < 100 {
            let wish = ClaimRequest { share: share.clone(), ..ask(worker, &queue, slots) };
            for (tenant, number) in by_tenant(&kit.store.claim(wish).await.unwrap()) {
                *served.entry(tenant).or_default() += number;
            }
        }
        assert!(served["b"].abs_diff(80) <= 8, "by {slots}: {served:?}");
        assert!(served["a"].abs_diff(served["c"]) <= 4, "by {slots}: {served:?}");
    }
}

async fn tenants_that_wait_for_the_clock_keep_nobody_waiting(kit: &Kit) {
    let worker = kit.worker().await;
    let later = (0..700).map(|n| NewJob { due: Due::In(HOUR), ..of(&format!("t{n:03}")) });
    kit.store.enqueue(later.collect()).await.unwrap();
    let due = kit.put(of("z")).await;
    let claim = kit.take(worker, 2).await;
    assert_eq!(claim.jobs.iter().map(|taken| taken.job.id).collect::<Vec<_>>(), [due]);
    assert_eq!(claim.next_due, Some(kit.clock.now() + HOUR));
    kit.clock.advance(HOUR);
    assert_eq!(by_tenant(&kit.take(worker, 700).await).len(), 700);
}

async fn behind_more_tenants_than_one_claim_visits_a_job_is_found_by_the_next_ones(kit: &Kit) {
    let worker = kit.worker().await;
    let later = (0..10_000).map(|n| NewJob { due: Due::In(HOUR), ..of(&format!("t{n:04}")) });
    kit.store.enqueue(later.collect()).await.unwrap();
    let due = kit.put(of("z")).await;
    for claims in 1.. {
        let claim = kit.take(worker, 1).await;
        if let Some(taken) = claim.jobs.first() {
            assert_eq!(taken.job.id, due);
            break;
        }
        assert!(claims < 10, "it goes on where it stopped");
        let soon = kit.clock.now() + SECOND;
        assert!(claim.next_due.is_some_and(|at| at < soon), "whoever asks is told to ask again");
    }
}

async fn a_lane_is_emptied_however_its_tenants_are_spread(kit: &Kit) {
    let worker = kit.worker().await;
    let mut sent = HashSet::new();
    for (tenant, number) in [("a", 1), ("b", 150), ("c", 7), ("d", 1), ("e", 42)] {
        for _ in 0..number {
            sent.insert(kit.put(of(tenant)).await);
        }
    }
    sent.insert(kit.put(job("k")).await);
    let mut taken = HashSet::new();
    for jobs_max in [1, 2, 3, 5, 8, 13, 21, 34, 55, 89] {
        for claimed in kit.take(worker, jobs_max).await.jobs {
            assert!(taken.insert(claimed.job.id), "twice");
        }
    }
    assert_eq!(taken, sent);
}

async fn a_tenant_whose_kind_is_unknown_holds_up_nobody(kit: &Kit) {
    let worker = kit.worker().await;
    fill(kit, &NewJob { kind: "strange".into(), ..of("a") }, 200).await;
    let mine = kit.put(of("b")).await;
    let kinds = Some(Arc::new(vec!["k".to_owned()]));
    let claim = kit.store.claim(ClaimRequest { kinds, ..ask(worker, "default", 5) }).await.unwrap();
    assert_eq!(claim.jobs.iter().map(|taken| taken.job.id).collect::<Vec<_>>(), [mine]);
}

async fn a_retried_job_of_a_tenant_stays_in_its_turn(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(of("a")).await;
    let claim = kit.take(worker, 1).await;
    kit.store.settle(worker, vec![item(&claim, 0, retry(SECOND, 1))]).await.unwrap();
    fill(kit, &of("b"), 500).await;
    kit.clock.advance(HOUR);
    let claim = kit.take(worker, 2).await;
    assert!(claim.jobs.iter().any(|taken| taken.job.id == id && taken.attempt == 2));
    let settled = kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
    assert_eq!(settled.len(), 1);
}
