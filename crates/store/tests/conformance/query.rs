//! Queries: every state and every filter, page by page.

use std::time::Duration;

use tidemill_core::{Due, JobId, NewJob, OnDuplicate, Options, Scope, State};
use tidemill_store::{End, JobFilter, JobView};

use super::kit::{HOUR, Kit, SECOND, ask, cancelled, dead, done, job, retry, unique};

over_both_stores!(
    an_unknown_job_is_none,
    what_became_of_an_attempt_stays,
    every_state_is_listed_under_its_name_only,
    jobs_are_listed_as_they_are_seen_alone,
    ends_are_told_as_they_are_seen,
    every_filter_holds,
    filters_hold_together,
    pages_cover_everything_once,
    pages_have_a_bound,
    a_page_looks_at_so_many_jobs_and_says_where_to_look_on,
    many_that_wait_are_listed_newest_first_and_bounded,
    the_unfinished_are_counted,
);

/// One job in every state, in the order of [`State::ALL`].
async fn one_of_each(kit: &Kit) -> Vec<JobId> {
    let queue = |name: &str| NewJob { queue: name.into(), ..job("k") };
    let done = kit.finish(job("k"), done()).await;
    let off = kit.finish(job("k"), cancelled("y")).await;
    let dead = kit.finish(job("k"), dead("x")).await;
    let keyed = |queue: &str| NewJob {
        queue: queue.into(),
        ..unique("u", Scope::Unfinished, OnDuplicate::RunOnceMore)
    };
    let running = kit.put(keyed("run")).await;
    let worker = kit.worker().await;
    assert_eq!(kit.store.claim(ask(worker, "run", 1)).await.unwrap().jobs.len(), 1);
    let blocked = kit.enqueue(keyed("run")).await.id();
    let scheduled = kit.put(NewJob { due: Due::In(HOUR), ..queue("wait") }).await;
    let ready = kit.put(queue("wait")).await;
    vec![blocked, scheduled, ready, running, done, off, dead]
}

async fn listed(kit: &Kit, filter: JobFilter) -> Vec<JobId> {
    kit.store.jobs(&filter).await.unwrap().jobs.into_iter().map(|view| view.job.id).collect()
}

async fn an_unknown_job_is_none(kit: &Kit) {
    assert_eq!(kit.store.job(JobId::new()).await.unwrap(), None);
    assert!(kit.store.attempts(JobId::new()).await.unwrap().is_empty());
    assert!(listed(kit, JobFilter::default()).await.is_empty());
}

async fn every_state_is_listed_under_its_name_only(kit: &Kit) {
    let ids = one_of_each(kit).await;
    for (state, id) in State::ALL.into_iter().zip(&ids) {
        assert_eq!(kit.state(*id).await, state);
        let filter = JobFilter { state: Some(state), ..JobFilter::default() };
        assert_eq!(listed(kit, filter).await, [*id], "{state:?}");
    }
    let mut newest_first = ids;
    newest_first.sort_by(|a, b| b.cmp(a));
    assert_eq!(listed(kit, JobFilter::default()).await, newest_first);
}

async fn jobs_are_listed_as_they_are_seen_alone(kit: &Kit) {
    let mut ids = one_of_each(kit).await;
    let retrying = kit.put(job("k")).await;
    kit.run_to(retrying, retry(HOUR, 1)).await;
    ids.push(retrying);
    let mut alone: Vec<JobView> = Vec::new();
    for id in ids {
        alone.push(kit.view(id).await);
    }
    alone.sort_by_key(|view| std::cmp::Reverse(view.job.id));
    assert_eq!(kit.store.jobs(&JobFilter::default()).await.unwrap().jobs, alone);
    for view in alone {
        let filter = JobFilter { state: Some(view.state), ..JobFilter::default() };
        assert!(kit.store.jobs(&filter).await.unwrap().jobs.contains(&view));
    }
}

async fn ends_are_told_as_they_are_seen(kit: &Kit) {
    let mut ids = one_of_each(kit).await;
    let retrying = kit.put(job("k")).await;
    kit.run_to(retrying, retry(HOUR, 1)).await;
    ids.push(retrying);
    let asked = ids.iter().copied().chain([JobId::new()]).collect();
    let mut ends = kit.store.ends_of(asked).await.unwrap();
    for id in ids {
        let view = kit.view(id).await;
        let seen = End { state: view.state, output: view.output, error: view.error };
        assert_eq!(ends.remove(&id), Some(view.state.is_final().then_some(seen)));
    }
    assert!(ends.is_empty(), "of what is not there, nothing: {ends:?}");
}

async fn every_filter_holds(kit: &Kit) {
    let tags = vec!["blue".into(), "a\"b".into()];
    let jobs = [
        job("other"),
        NewJob { queue: "q".into(), ..job("k") },
        NewJob { tenant: Some("t".into()), ..job("k") },
        NewJob { key: Some("c:1".into()), ..job("k") },
        NewJob { options: Options { tags, ..Options::default() }, ..job("k") },
        job("k"),
    ];
    let sent: Vec<_> = jobs.iter().map(|job| job.id).collect();
    kit.store.enqueue(jobs.into()).await.unwrap();
    let base = JobFilter::default;
    let some = |text: &str| Some(text.to_owned());
    for (filter, expected) in [
        (JobFilter { kind: some("other"), ..base() }, vec![sent[0]]),
        (JobFilter { queue: some("q"), ..base() }, vec![sent[1]]),
        (JobFilter { tenant: some("t"), ..base() }, vec![sent[2]]),
        (JobFilter { key: some("c:1"), ..base() }, vec![sent[3]]),
        (JobFilter { tag: some("blue"), ..base() }, vec![sent[4]]),
        (JobFilter { tag: some("a\"b"), ..base() }, vec![sent[4]]),
        (JobFilter { tag: some("blu"), ..base() }, vec![]),
        (JobFilter { tag: some("tags"), ..base() }, vec![]),
        (JobFilter { kind: some("none"), ..base() }, vec![]),
        (JobFilter { before: Some(sent[1]), ..base() }, vec![sent[0]]),
    ] {
        assert_eq!(listed(kit, filter.clone()).await, expected, "{filter:?}");
        let ready = JobFilter { state: Some(State::Ready), ..filter.clone() };
        assert_eq!(listed(kit, ready).await, expected, "ready and {filter:?}");
        let finished = JobFilter { state: Some(State::Done), ..filter };
        assert!(listed(kit, finished).await.is_empty());
    }
    kit.store.cancel(sent.clone(), "x").await.unwrap();
    let filter = JobFilter { state: Some(State::Cancelled), tag: some("blue"), ..base() };
    assert_eq!(listed(kit, filter).await, [sent[4]]);
}

async fn filters_hold_together(kit: &Kit) {
    let both = NewJob { tenant: Some("t".into()), queue: "q".into(), ..job("k") };
    let id = both.id;
    let queue_only = NewJob { queue: "q".into(), ..job("k") };
    let tenant_only = NewJob { tenant: Some("t".into()), ..job("k") };
    kit.store.enqueue(vec![both, queue_only, tenant_only]).await.unwrap();
    let filter = JobFilter {
        tenant: Some("t".into()),
        queue: Some("q".into()),
        state: Some(State::Ready),
        ..JobFilter::default()
    };
    assert_eq!(listed(kit, filter).await, [id]);
}

async fn pages_cover_everything_once(kit: &Kit) {
    let jobs: Vec<_> = (0..137).map(|_| job("k")).collect();
    let mut sent: Vec<_> = jobs.iter().map(|job| job.id).collect();
    sent.reverse();
    kit.store.enqueue(jobs).await.unwrap();
    for state in [None, Some(State::Ready)] {
        let mut seen: Vec<JobId> = Vec::new();
        loop {
            let before = seen.last().copied();
            let page = listed(kit, JobFilter { state, before, limit: 25, ..Default::default() });
            let page = page.await;
            if page.is_empty() {
                break;
            }
            assert!(page.len() <= 25);
            seen.extend(page);
        }
        assert_eq!(seen, sent, "{state:?}");
    }
}

async fn pages_have_a_bound(kit: &Kit) {
    kit.store.enqueue((0..1200).map(|_| job("k")).collect()).await.unwrap();
    for (limit, rows) in [(0, 50), (1, 1), (1000, 1000), (5000, 1000)] {
        let page = listed(kit, JobFilter { limit, ..JobFilter::default() }).await;
        assert_eq!(page.len(), rows);
    }
}

async fn a_page_looks_at_so_many_jobs_and_says_where_to_look_on(kit: &Kit) {
    let rare = |n: usize| if n % 40 == 7 { "rare" } else { "k" };
    let jobs: Vec<_> = (0..100).map(|n| job(rare(n))).collect();
    let mut expected: Vec<_> =
        jobs.iter().filter(|job| job.kind == "rare").map(|job| job.id).collect();
    expected.reverse();
    let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
    kit.store.enqueue(jobs).await.unwrap();
    let kind = Some("rare".to_owned());
    let filter = JobFilter { kind, look_max: 10, ..JobFilter::default() };
    assert_eq!(
        walk(kit, filter.clone()).await,
        (expected.clone(), 11),
        "ten looks, and one that ends"
    );
    kit.store.cancel(ids, "x").await.unwrap();
    let off = JobFilter { state: Some(State::Cancelled), ..filter.clone() };
    assert_eq!(walk(kit, off).await, (expected, 1), "they are found by themselves");
    let done = JobFilter { state: Some(State::Done), ..filter };
    assert_eq!(walk(kit, done).await, (Vec::new(), 11));
    // Without words to match by there is nothing to walk for.
    let all = JobFilter { look_max: 10, ..JobFilter::default() };
    assert_eq!(listed(kit, all).await.len(), 50);
}

async fn many_that_wait_are_listed_newest_first_and_bounded(kit: &Kit) {
    // More than are walked as a whole; each has a due time of its own, so that none shares a row with another.
    let wait = |n: u64| {
        let kind = if n.is_multiple_of(10_000) { "rare" } else { "k" };
        NewJob { due: Due::In(HOUR + Duration::from_secs(n)), ..job(kind) }
    };
    let jobs: Vec<_> = (0..20_100).map(wait).collect();
    let ids: Vec<_> = jobs.iter().rev().map(|job| job.id).collect();
    let rare: Vec<_> =
        jobs.iter().rev().filter(|job| job.kind == "rare").map(|job| job.id).collect();
    for part in jobs.chunks(5000) {
        kit.store.enqueue(part.to_vec()).await.unwrap();
    }
    let filter = JobFilter { state: Some(State::Scheduled), ..JobFilter::default() };
    assert_eq!(listed(kit, filter.clone()).await, ids[..50]);
    let ready = JobFilter { state: Some(State::Ready), look_max: 10_050, ..JobFilter::default() };
    assert_eq!(walk(kit, ready).await, (Vec::new(), 3));
    let narrow = JobFilter { kind: Some("rare".into()), look_max: 10_050, ..filter };
    assert_eq!(walk(kit, narrow).await, (rare, 3));
}

/// All that match, page by page, and how many pages it took.
async fn walk(kit: &Kit, mut filter: JobFilter) -> (Vec<JobId>, usize) {
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let page = kit.store.jobs(&filter).await.unwrap();
        found.extend(page.jobs.iter().map(|view| view.job.id));
        pages += 1;
        filter.before = page.next;
        if page.next.is_none() {
            return (found, pages);
        }
    }
}

async fn the_unfinished_are_counted(kit: &Kit) {
    one_of_each(kit).await;
    let count = kit.store.unfinished().await.unwrap();
    assert_eq!((count.waiting, count.running), (3, 1), "blocked, scheduled, ready; running");
}

async fn what_became_of_an_attempt_stays(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let worker = kit.worker().await;
    let later = kit.clock.now() + SECOND * 300;
    let claim = kit.take_one(worker).await;
    kit.settle(worker, &claim, retry(SECOND * 300, 1)).await;
    let told = async || {
        kit.store
            .attempts(id)
            .await
            .unwrap()
            .into_iter()
            .map(|told| told.next_at)
            .collect::<Vec<_>>()
    };
    assert_eq!(told().await, [Some(later)]);
    assert!(kit.store.run_now(id).await.unwrap());
    assert_eq!(told().await, [Some(later)], "although it goes on sooner");
    let claim = kit.take_one(worker).await;
    kit.settle(worker, &claim, dead("x")).await;
    assert_eq!(told().await, [Some(later), None]);
    kit.store.dead_replay(&[id], "ada".into(), None).await.unwrap();
    assert_eq!(told().await, [Some(later), None]);
    let claim = kit.take_one(worker).await;
    assert_eq!(claim.jobs[0].job.id, id);
}
