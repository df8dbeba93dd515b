//! Limits by tenant or key and the jobs that have none: refused in either order, unless the limit lets them pass.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidemill::core::NewJob;
use tidemill::{Enqueue, Fail, Flow, Lacking, Limit, Per, Schedule, Settings, Tidemill, testing};

use tidemill_testkit::eventually::eventually;
use tokio::sync::Semaphore;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    other_processes_know_of_a_limit_within_a_second,
    a_limit_that_jobs_lack_the_key_of_is_refused_and_changes_nothing,
    jobs_that_run_or_are_blocked_or_wait_for_the_clock_count_as_well,
    a_limit_that_is_set_again_is_refused_for_nothing_that_it_was_set_with,
    a_job_without_the_key_that_a_limit_counts_by_is_refused,
    another_process_refuses_it_too,
    a_limit_that_the_jobs_of_a_schedule_lack_the_key_of_is_refused,
);

fn limit(per: Per) -> Limit {
    Limit { per, concurrency: Some(1), ..Limit::default() }
}

fn of_kind(kind: &str, per: Per) -> Limit {
    Limit { kind: Some(kind.into()), ..limit(per) }
}

fn raw(kind: &str) -> Enqueue {
    Enqueue::raw(kind, "1").queue("mail:eu")
}

/// A job as one gets in who does not ask the engine: plain SQL, or a process with older rules.
async fn slip_in(mill: &Tidemill, queue: &str) {
    let payload = tidemill::Payload::null();
    let new = NewJob { queue: queue.to_owned(), ..NewJob::new("k", payload) };
    mill.store().enqueue(vec![new]).await.unwrap();
}

async fn a_limit_that_jobs_lack_the_key_of_is_refused_and_changes_nothing(kit: Kit) {
    let mill = kit.open().await;
    mill.enqueue(raw("charge").key("42")).await.unwrap();
    let id = mill.enqueue(raw("send").tenant("acme")).await.unwrap().id();
    for queue in ["mail:eu", "mail:*", "*"] {
        let error = mill.set_limit(queue, "x", Some(limit(Per::Key))).await.unwrap_err();
        let said = error.to_string();
        assert_eq!(error.code(), "rule_invalid", "{said}");
        for part in
            ["kind send", "queue mail:eu", "without a key", &id.to_string(), "tenant or all"]
        {
            assert!(said.contains(part), "{part:?} is not in {said:?}");
        }
    }
    let mut rules = mill.queue_rules("*").await.unwrap();
    (rules.paused, rules.concurrency) = (true, Some(5));
    rules.limits.insert("x".into(), limit(Per::Key));
    assert_eq!(mill.set_queue("*", Some(rules)).await.unwrap_err().code(), "rule_invalid");
    let book = mill.store().queue_rules().await.unwrap();
    assert_eq!((book.iter().count(), book.edition().0), (0, 0), "nothing was changed");

    mill.set_limit("*", "kind", Some(of_kind("charge", Per::Key))).await.unwrap();
    mill.set_limit("mail:us", "queue", Some(limit(Per::Key))).await.unwrap();
    mill.set_limit("mail", "name", Some(limit(Per::Key))).await.unwrap();
    mill.set_limit("*", "tenant", Some(of_kind("send", Per::Tenant))).await.unwrap();
    let passing = Limit { lacking: Lacking::Pass, ..limit(Per::Key) };
    mill.set_limit("*", "pass", Some(passing)).await.unwrap();
    mill.cancel(id, "seen to").await.unwrap();
    mill.set_limit("*", "finished", Some(limit(Per::Key))).await.unwrap();
    let error = mill.set_limit("*", "t", Some(of_kind("charge", Per::Tenant))).await.unwrap_err();
    assert!(error.to_string().contains("key or all"), "{error}");
}

async fn other_processes_know_of_a_limit_within_a_second(kit: Kit) {
    let (mill, other) = (kit.open().await, kit.open().await);
    other.enqueue(Enqueue::raw("k", "null").queue("elsewhere")).await.unwrap();
    mill.set_limit("q", "x", Some(limit(Per::Key))).await.unwrap();
    let since = Instant::now();
    let refused = eventually("it to be refused", SOON, async || {
        other.enqueue(Enqueue::raw("k", "null").queue("q")).await.err()
    });
    assert_eq!(refused.await.code(), "key_missing");
    // Three times as long as is promised, because the machine may be busy.
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
}

async fn jobs_that_run_or_are_blocked_or_wait_for_the_clock_count_as_well(kit: Kit) {
    let mill = kit.open().await;
    let later = raw("later").delay(Duration::from_hours(1));
    mill.enqueue(later).await.unwrap();
    let flow = Flow::new("f").step("a", raw("first").key("1")).step("b", raw("then")).after("a");
    mill.start(flow).await.unwrap();
    mill.enqueue(raw("runs")).await.unwrap();
    let go = Arc::new(Semaphore::new(0));
    let gone = Arc::clone(&go);
    let handler = move |payload, _| {
        let go = Arc::clone(&gone);
        async move {
            go.acquire().await.map_err(|_| Fail::permanent("closed"))?.forget();
            Ok(payload)
        }
    };
    let worker = mill.worker().queues(["mail:eu"]).handle_raw("runs", Settings::default(), handler);
    let worker = worker.start().await.unwrap();
    eventually("it to run", SOON, async || (worker.busy() == 1).then_some(())).await;
    for kind in ["later", "then", "runs"] {
        for per in [Per::Key, Per::Tenant] {
            let refused = mill.set_limit("mail:*", "x", Some(of_kind(kind, per))).await;
            let said = refused.unwrap_err().to_string();
            assert!(said.contains(&format!("kind {kind}")), "{said}");
        }
    }
    mill.set_limit("mail:*", "x", Some(of_kind("first", Per::Key))).await.unwrap();
    go.add_permits(1);
    worker.stop().await;
}

async fn a_limit_that_is_set_again_is_refused_for_nothing_that_it_was_set_with(kit: Kit) {
    let mill = kit.open().await;
    mill.set_limit("q", "x", Some(limit(Per::Key))).await.unwrap();
    slip_in(&mill, "q").await;
    mill.set_limit("q", "x", Some(limit(Per::Key))).await.unwrap();
    let faster = Limit { concurrency: Some(9), ..limit(Per::Key) };
    mill.set_limit("q", "x", Some(faster)).await.unwrap();
    mill.pause("q").await.unwrap();
    for other in [limit(Per::Tenant), of_kind("k", Per::Key)] {
        let error = mill.set_limit("q", "x", Some(other)).await.unwrap_err();
        assert_eq!(error.code(), "rule_invalid", "it means, or counts, something else");
    }
    let passing = Limit { lacking: Lacking::Pass, ..limit(Per::Key) };
    mill.set_limit("q", "x", Some(passing)).await.unwrap();
    assert!(mill.set_limit("q", "x", Some(limit(Per::Key))).await.is_err(), "it let them pass");
    mill.resume("q").await.unwrap();
    let worker = mill.worker().queues(["q"]);
    let worker = worker.handle_raw("k", Settings::default(), |payload, _| async { Ok(payload) });
    assert_eq!(testing::drain(worker).await.unwrap().done, 1, "what slipped in passes");
}

async fn a_job_without_the_key_that_a_limit_counts_by_is_refused(kit: Kit) {
    let mill = kit.open().await;
    mill.set_limit("mail:*", "crm", Some(of_kind("send", Per::Key))).await.unwrap();
    let error = mill.enqueue(raw("send")).await.unwrap_err();
    assert_eq!(error.code(), "key_missing");
    for part in ["limit crm of mail:*", "send by key", "--lacking pass"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let many = [raw("send").key("1"), raw("send")];
    assert_eq!(mill.enqueue_many(many).await.unwrap_err().code(), "key_missing");
    let flow = Flow::new("f").step("a", raw("other")).step("b", raw("send")).after("a");
    assert_eq!(mill.start(flow).await.unwrap_err().code(), "key_missing");
    let hourly = |job| Schedule::cron("hourly", "0 * * * *", job);
    let set = mill.schedules().set(hourly(raw("send"))).await;
    assert_eq!(set.unwrap_err().code(), "key_missing");
    assert_eq!(mill.store().unfinished().await.unwrap().waiting, 0, "nothing was written");

    mill.schedules().set(hourly(raw("send").key("1"))).await.unwrap();
    mill.enqueue_many([raw("send").key("1"), raw("other"), Echo::new("x").into()]).await.unwrap();
    let passing = Limit { lacking: Lacking::Pass, ..of_kind("send", Per::Key) };
    mill.set_limit("mail:*", "crm", Some(passing)).await.unwrap();
    mill.enqueue(raw("send")).await.unwrap();
}

async fn another_process_refuses_it_too(kit: Kit) {
    let (here, there) = (kit.open().await, kit.open().await);
    here.set_limit("*", "fair", Some(limit(Per::Tenant))).await.unwrap();
    let error = there.enqueue(raw("send").key("1")).await.unwrap_err();
    assert_eq!(error.code(), "key_missing", "it looks before its first job");
    assert!(error.to_string().contains("give it a tenant"), "{error}");
    there.enqueue(raw("send").tenant("acme")).await.unwrap();
}

async fn a_limit_that_the_jobs_of_a_schedule_lack_the_key_of_is_refused(kit: Kit) {
    let mill = kit.open().await;
    let hour = Duration::from_hours(1);
    let nightly = |name: &str, job| Schedule::cron(name, "@daily", job);
    let schedules = mill.schedules();
    schedules.set(nightly("keyed", raw("a").key("42"))).await.unwrap();
    schedules.set(nightly("spread", raw("a")).spread_keys(hour, ["x", "y"])).await.unwrap();
    mill.set_limit("mail:*", "x", Some(of_kind("a", Per::Key))).await.unwrap();
    schedules.set(nightly("bare", raw("b").tenant("acme"))).await.unwrap();
    for queue in ["mail:eu", "mail:*", "*"] {
        let refused = mill.set_limit(queue, "y", Some(limit(Per::Key))).await.unwrap_err();
        let said = refused.to_string();
        assert_eq!(refused.code(), "rule_invalid", "{said}");
        for part in ["schedule \"bare\"", "kind b", "queue mail:eu", "without a key"] {
            assert!(said.contains(part), "{part:?} is not in {said:?}");
        }
    }
    let refused =
        mill.set_limit("mail:eu", "y", Some(of_kind("a", Per::Tenant))).await.unwrap_err();
    assert!(refused.to_string().contains("without a tenant"), "{refused}");
    mill.set_limit("post", "y", Some(limit(Per::Key))).await.unwrap();
    mill.set_limit("mail:eu", "y", Some(of_kind("c", Per::Key))).await.unwrap();
    mill.set_limit("mail:eu", "z", Some(of_kind("b", Per::Tenant))).await.unwrap();
    schedules.delete("bare", "app").await.unwrap();
    mill.set_limit("mail:eu", "all", Some(limit(Per::Key))).await.unwrap();
    let late = schedules.set(nightly("bare", raw("b").tenant("acme"))).await.unwrap_err();
    assert_eq!(late.code(), "key_missing", "and the other way round");
}
