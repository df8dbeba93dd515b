//! Retention: the sweep sees every finished job once, and what it lets go is gone, and only that.

use tidemill_core::dead::DeadFilter;
use tidemill_core::limit::SPAN_MS_MAX;
use tidemill_core::retention::{Finished, Retention, Sweep};
use tidemill_core::{JobId, NewJob, OnDuplicate, Options, Overflow, QueueRules, Scope, State};
use tidemill_store::JobFilter;

use super::kit::{
    HOUR, Kit, SECOND, cancelled, dead, done, ids, item, job, retry, unique, with_payload,
};

over_both_stores!(
    every_finished_job_is_listed_once_oldest_first,
    purging_takes_everything_of_a_job,
    purging_spares_what_is_not_finished,
    purging_spares_a_replayed_job,
    a_kept_result_is_not_offered_again,
    a_purged_dead_letter_cannot_be_replayed,
    a_purged_job_does_not_run_because_its_neighbour_does,
    a_sweep_goes_by_age,
    a_sweep_goes_by_the_jobs_own_wish,
    a_wish_to_be_kept_beyond_all_time_stops_nobody,
    who_has_no_wish_is_kept_as_the_rules_say,
    a_sweep_keeps_a_bounded_number,
    a_sweep_keeps_a_bounded_number_of_bytes_of_dead_letters,
);

/// One round of the sweep over everything, as the clockwork does it.
async fn round(kit: &Kit, sweep: &mut Sweep, rules: Retention) -> u64 {
    let (mut after, mut gone) = (None, 0);
    loop {
        let page = kit.store.finished_after(after, 3).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        let over = sweep.page(&page, |_| rules, kit.clock.now());
        gone += kit.store.purge(&over).await.unwrap();
    }
    sweep.end_round(|_| rules);
    gone
}

async fn every_finished_job_is_listed_once_oldest_first(kit: &Kit) {
    let keep = Options { retain_ms: Some(5), ..Options::default() };
    let mut expected = Vec::new();
    for (end, state) in
        [(done(), State::Done), (cancelled("y"), State::Cancelled), (dead("x"), State::Dead)]
    {
        for retain_ms in [None, Some(5)] {
            let options = retain_ms.map(|_| keep.clone()).unwrap_or_default();
            let id = kit.finish(NewJob { options, ..job("k") }, end.clone()).await;
            let finished_at = kit.clock.now();
            let (queue, dead_bytes) = ("default".into(), 0);
            expected.push(Finished { id, queue, state, finished_at, retain_ms, dead_bytes });
            kit.clock.advance(SECOND);
        }
    }
    kit.put(job("k")).await;
    let mut found = kit.store.finished_after(None, 100).await.unwrap();
    for job in &mut found {
        assert_eq!(job.dead_bytes > 0, job.state == State::Dead, "{job:?}");
        job.dead_bytes = 0;
    }
    assert_eq!(found, expected);
    let mut seen = Vec::new();
    while let page = kit.store.finished_after(seen.last().copied(), 4).await.unwrap()
        && !page.is_empty()
    {
        assert!(page.len() <= 4);
        seen.extend(page.into_iter().map(|job| job.id));
    }
    assert_eq!(seen, expected.into_iter().map(|job| job.id).collect::<Vec<_>>());
}

async fn purging_takes_everything_of_a_job(kit: &Kit) {
    let id = kit.put(job("k")).await;
    kit.run_to(id, retry(SECOND, 1)).await;
    kit.clock.advance(SECOND);
    kit.run_to(id, dead("x")).await;
    kit.store.dead_note(&[id], "ada", "look", None, None).await.unwrap();
    assert_eq!(kit.store.purge(&[id]).await.unwrap(), 1);
    assert_eq!(kit.store.job(id).await.unwrap(), None);
    assert!(kit.store.attempts(id).await.unwrap().is_empty());
    assert!(kit.store.dead(&DeadFilter::default(), None, 9).await.unwrap().is_empty());
    assert!(kit.store.finished_after(None, 9).await.unwrap().is_empty());
    assert!(kit.store.jobs(&JobFilter::default()).await.unwrap().jobs.is_empty());
    assert!(kit.store.queues().await.unwrap().is_empty());
    assert_eq!(kit.store.purge(&[id]).await.unwrap(), 0);
}

async fn purging_spares_what_is_not_finished(kit: &Kit) {
    let running = kit.put(job("k")).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    let waiting = kit.put(job("k")).await;
    assert_eq!(kit.store.purge(&[running, waiting, JobId::new()]).await.unwrap(), 0);
    assert_eq!(kit.store.purge(&[]).await.unwrap(), 0);
    assert_eq!(kit.state(running).await, State::Running);
    assert_eq!(ids(&kit.take(worker, 9).await), [waiting]);
    kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
    assert_eq!(kit.state(running).await, State::Done);
}

async fn purging_spares_a_replayed_job(kit: &Kit) {
    let id = kit.finish(job("k"), dead("x")).await;
    kit.store.dead_replay(&[id], "ada".into(), None).await.unwrap();
    assert!(kit.store.finished_after(None, 9).await.unwrap().is_empty(), "it is not finished");
    assert_eq!(kit.store.purge(&[id]).await.unwrap(), 0);
    kit.run_to(id, done()).await;
    assert_eq!(kit.store.finished_after(None, 9).await.unwrap()[0].state, State::Done);
}

async fn a_kept_result_is_not_offered_again(kit: &Kit) {
    let keyed = unique("u", Scope::Forever, OnDuplicate::Join);
    let kept = kit.finish(keyed, done()).await;
    let plain = kit.finish(job("k"), done()).await;
    kit.store.purge(&[kept]).await.unwrap();
    let offered = kit.store.finished_after(None, 9).await.unwrap();
    assert_eq!(offered.into_iter().map(|job| job.id).collect::<Vec<_>>(), [plain]);
    assert_eq!(kit.state(kept).await, State::Done, "it is still there for whoever joins");
}

async fn a_purged_dead_letter_cannot_be_replayed(kit: &Kit) {
    let keyed = unique("u", Scope::Forever, OnDuplicate::Join);
    let kept = kit.finish(keyed, dead("x")).await;
    let plain = kit.finish(job("k"), dead("x")).await;
    kit.store.purge(&[kept, plain]).await.unwrap();
    let replayed = kit.store.dead_replay(&[kept, plain], "ada".into(), None).await.unwrap();
    assert!(replayed.is_empty(), "its payload is gone");
    assert_eq!(kit.state(kept).await, State::Dead);
}

async fn a_purged_job_does_not_run_because_its_neighbour_does(kit: &Kit) {
    kit.store.enqueue(vec![job("k"), job("k")]).await.unwrap();
    let worker = kit.worker().await;
    let claim = kit.take(worker, 2).await;
    kit.settle(worker, &claim, done()).await;
    let gone = claim.jobs[0].job.id;
    assert_eq!(kit.store.purge(&[gone]).await.unwrap(), 1);
    assert_eq!(kit.store.unfinished().await.unwrap().running, 1);
    assert_eq!(kit.store.queues().await.unwrap()[0].running, 1);
    kit.settle(worker, &claim, done()).await;
    assert_eq!(kit.store.job(gone).await.unwrap(), None, "settled again, it does not come back");
    assert!(kit.store.finished_after(None, 9).await.unwrap().is_empty());
    assert_eq!(kit.lose_workers().await.ready, 1);
}

async fn a_sweep_goes_by_age(kit: &Kit) {
    let hour = Retention { finished_ms: 3_600_000, dead_ms: 7_200_000, ..Retention::default() };
    let old = kit.finish(job("k"), done()).await;
    let old_dead = kit.finish(job("k"), dead("x")).await;
    kit.clock.advance(HOUR / 2);
    let young = kit.finish(job("k"), done()).await;
    let mut sweep = Sweep::default();
    assert_eq!(round(kit, &mut sweep, hour).await, 0);
    kit.clock.advance(HOUR / 2);
    assert_eq!(round(kit, &mut sweep, hour).await, 1);
    assert_eq!(kit.store.job(old).await.unwrap(), None);
    assert!(kit.store.job(young).await.unwrap().is_some());
    assert!(kit.store.job(old_dead).await.unwrap().is_some(), "dead letters have their own rule");
    kit.clock.advance(HOUR);
    assert_eq!(round(kit, &mut sweep, hour).await, 2);
    assert!(kit.store.finished_after(None, 9).await.unwrap().is_empty());
}

async fn a_sweep_goes_by_the_jobs_own_wish(kit: &Kit) {
    let wish =
        |ms| NewJob { options: Options { retain_ms: Some(ms), ..Options::default() }, ..job("k") };
    let brief = kit.finish(wish(0), done()).await;
    let long = kit.finish(wish(10 * 3_600_000), done()).await;
    let hour = Retention { finished_ms: 3_600_000, ..Retention::default() };
    let mut sweep = Sweep::default();
    assert_eq!(round(kit, &mut sweep, hour).await, 1);
    assert_eq!(kit.store.job(brief).await.unwrap(), None);
    kit.clock.advance(HOUR * 9);
    assert_eq!(round(kit, &mut sweep, hour).await, 0);
    assert_eq!(kit.state(long).await, State::Done);
}

/// Whatever was never checked: neither the rescue of the others stops at it, nor their sweep.
async fn a_wish_to_be_kept_beyond_all_time_stops_nobody(kit: &Kit) {
    ends_of_all_sorts(kit, Some(u64::MAX)).await;
    let found = kit.store.finished_after(None, 9).await.unwrap();
    let kept: Vec<_> = found.iter().map(|job| job.retain_ms).collect();
    assert_eq!(kept, [Some(SPAN_MS_MAX); 5]);
    kit.clock.advance(HOUR * 24 * 365);
    assert_eq!(round(kit, &mut Sweep::default(), Retention::default()).await, 0);
}

async fn who_has_no_wish_is_kept_as_the_rules_say(kit: &Kit) {
    ends_of_all_sorts(kit, None).await;
    let found = kit.store.finished_after(None, 9).await.unwrap();
    let kept: Vec<_> = found.iter().map(|job| job.retain_ms).collect();
    assert_eq!(kept, [None; 5]);
    kit.clock.advance(HOUR * 24 * 365);
    assert_eq!(round(kit, &mut Sweep::default(), Retention::default()).await, 5);
}

/// Jobs with this wish: one done though its worker was lost once, one dead, one called off, one poisoned, one dropped.
async fn ends_of_all_sorts(kit: &Kit, retain_ms: Option<u64>) {
    let options = Options { retain_ms, ..Options::default() };
    let with_wish = || NewJob { options: options.clone(), ..job("k") };
    let lost = kit.put(with_wish()).await;
    let worker = kit.worker().await;
    kit.take_one(worker).await;
    assert_eq!(kit.lose_workers().await.ready, 1);
    kit.run_to(lost, done()).await;
    kit.finish(with_wish(), dead("x")).await;
    let called_off = kit.put(with_wish()).await;
    kit.store.cancel(vec![called_off], "no").await.unwrap();
    let poison = kit.put(with_wish()).await;
    while kit.state(poison).await == State::Ready {
        let worker = kit.worker().await;
        kit.take_one(worker).await;
        kit.lose_workers().await;
    }
    assert_eq!(kit.state(poison).await, State::Dead);
    let rules =
        QueueRules { depth_max: Some(1), overflow: Overflow::DropOldest, ..QueueRules::default() };
    kit.store.set_queue("default", Some(rules)).await.unwrap();
    kit.put(with_wish()).await;
    kit.clock.advance(SECOND);
    kit.put(job("k")).await;
}

async fn a_sweep_keeps_a_bounded_number(kit: &Kit) {
    let mut sent = Vec::new();
    for _ in 0..10 {
        sent.push(kit.finish(job("k"), done()).await);
    }
    let few = Retention { finished_max: Some(4), ..Retention::default() };
    let mut sweep = Sweep::default();
    assert_eq!(round(kit, &mut sweep, few).await, 0, "one round counts");
    assert_eq!(round(kit, &mut sweep, few).await, 6, "the next lets the surplus go");
    assert_eq!(round(kit, &mut sweep, few).await, 0);
    let left: Vec<_> = kit.store.finished_after(None, 99).await.unwrap();
    let left: Vec<_> = left.into_iter().map(|job| job.id).collect();
    assert_eq!(left, sent[6..], "the youngest stay");
}

async fn a_sweep_keeps_a_bounded_number_of_bytes_of_dead_letters(kit: &Kit) {
    let large = |bytes: usize| with_payload(job("k"), &format!("\"{}\"", "x".repeat(bytes)));
    let other = kit.finish(large(1500), done()).await;
    let mut letters = Vec::new();
    for _ in 0..6 {
        letters.push(kit.finish(large(1000), dead("x")).await);
    }
    // A store may keep a few bytes more with each value.
    let bounded = Retention { dead_bytes_max: Some(3200), ..Retention::default() };
    let mut sweep = Sweep::default();
    assert_eq!(round(kit, &mut sweep, bounded).await, 0, "the first round counts");
    assert_eq!(round(kit, &mut sweep, bounded).await, 3);
    assert_eq!(round(kit, &mut sweep, bounded).await, 0, "what is left fits");
    let kept = kit.store.dead(&DeadFilter::default(), None, 9).await.unwrap();
    let mut kept: Vec<_> = kept.into_iter().map(|letter| letter.id).collect();
    kept.sort();
    assert_eq!(kept, letters[3..], "the oldest go first");
    assert_eq!(kit.state(other).await, State::Done, "the bound is on dead letters alone");
}
