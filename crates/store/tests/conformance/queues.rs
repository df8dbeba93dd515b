//! Queues and workers, as people see them.

use tidemill_core::flow::{After, Step, Work};
use tidemill_core::wire::work::QueueSlots;
use tidemill_core::{Due, NewJob, Priority, Retention, Retry, WorkerId};
use tidemill_store::flow::FlowAct;
use tidemill_store::view::QueueRules;
use tidemill_store::{QueueView, WorkerCard};

use super::flows::{start, step, tend};
use super::kit::{HOUR, Kit, SECOND, ask, card, dead, done, ids, job};

over_both_stores!(
    an_empty_store_has_no_queues,
    a_queue_shows_what_is_in_it,
    a_job_that_came_due_counts_as_ready,
    kinds_that_nobody_knows_are_shown,
    rules_are_kept_until_taken_away,
    of_two_who_change_rules_one_is_told,
    of_two_who_give_a_queue_its_first_rules_one_is_told,
    rules_are_taken_away_by_those_who_have_read_them,
    queues_with_jobs_are_named_once,
    a_queue_of_which_all_jobs_wait_for_others_is_shown,
    dead_letters_count_until_archived_or_recovered,
    workers_are_shown_as_they_registered,
    registering_again_renews_the_card,
);

async fn queue(kit: &Kit, name: &str) -> Option<QueueView> {
    kit.store.queues().await.unwrap().into_iter().find(|queue| queue.name == name)
}

async fn an_empty_store_has_no_queues(kit: &Kit) {
    assert!(kit.store.queues().await.unwrap().is_empty());
    assert!(kit.store.workers().await.unwrap().is_empty());
}

async fn a_queue_shows_what_is_in_it(kit: &Kit) {
    let start = kit.clock.now();
    let queued = |priority| NewJob { queue: "q".into(), priority, ..job("k") };
    let mut jobs: Vec<_> = (0..5).map(|_| queued(Priority::Normal)).collect();
    jobs.extend((0..130).map(|_| queued(Priority::Low)));
    jobs.push(NewJob { due: Due::In(HOUR), ..queued(Priority::High) });
    kit.store.enqueue(jobs).await.unwrap();
    kit.put(job("k")).await;
    kit.clock.advance(SECOND);
    let worker = kit.worker().await;
    assert_eq!(kit.store.claim(ask(worker, "q", 3)).await.unwrap().jobs.len(), 3);
    let seen = queue(kit, "q").await.expect("it has jobs");
    let ready = |priority| seen.ready.get(&priority).copied().unwrap_or(0);
    assert_eq!(Priority::ALL.map(ready), [0, 0, 2, 130]);
    assert_eq!((seen.scheduled, seen.running, seen.dead), (1, 3, 0));
    assert_eq!((seen.oldest_due_at, seen.rules), (Some(start), None));
    assert_eq!(kit.store.queues().await.unwrap().len(), 2);
}

async fn a_job_that_came_due_counts_as_ready(kit: &Kit) {
    kit.put(NewJob { due: Due::In(SECOND), ..job("k") }).await;
    let seen = queue(kit, "default").await.unwrap();
    assert_eq!((seen.scheduled, seen.oldest_due_at), (1, None));
    kit.clock.advance(SECOND);
    let seen = queue(kit, "default").await.unwrap();
    assert_eq!((seen.scheduled, seen.ready.values().sum::<u64>()), (0, 1));
    assert_eq!(seen.oldest_due_at, Some(kit.clock.now()));
}

async fn kinds_that_nobody_knows_are_shown(kit: &Kit) {
    kit.store.enqueue(vec![job("known"), job("unheard of"), job("unheard of")]).await.unwrap();
    let of = async |name: &str| queue(kit, name).await.unwrap().orphan_kinds;
    let mut all = of("default").await;
    all.sort();
    assert_eq!(all, ["known", "unheard of"], "nobody works at all");
    let knows = WorkerCard { kinds: vec!["known".into()], ..card(WorkerId::new()) };
    kit.store.register(knows).await.unwrap();
    assert_eq!(of("default").await, ["unheard of"]);
    kit.worker().await;
    assert!(of("default").await.is_empty(), "a worker without kinds knows all");
}

async fn rules_are_kept_until_taken_away(kit: &Kit) {
    let rules = QueueRules {
        retention: Retention {
            finished_ms: 5,
            finished_max: Some(7),
            dead_ms: 9,
            dead_bytes_max: Some(11),
        },
        paused: true,
        tenant_weights: [("acme".to_owned(), 3)].into(),
        retry: Some(Retry::attempts(3)),
        run_timeout_ms: Some(13),
        ..QueueRules::default()
    };
    let first = QueueRules { version: 1, ..rules.clone() };
    assert!(kit.store.set_queue("q", Some(rules)).await.unwrap());
    assert_eq!(queue(kit, "q").await.unwrap().rules, Some(first), "also without jobs");
    assert!(kit.store.set_queue("q", Some(QueueRules::default())).await.unwrap());
    let second = QueueRules { version: 2, ..QueueRules::default() };
    assert_eq!(queue(kit, "q").await.unwrap().rules, Some(second.clone()));
    kit.put(NewJob { queue: "without rules".into(), ..job("k") }).await;
    let book = kit.store.queue_rules().await.unwrap();
    assert_eq!(book.iter().collect::<Vec<_>>(), [("q", &second)]);
    kit.store.set_queue("q", None).await.unwrap();
    assert_eq!(queue(kit, "q").await, None);
    assert_eq!(kit.store.queue_rules().await.unwrap().iter().count(), 0);
    assert!(kit.store.set_queue("q", None).await.unwrap());
}

async fn of_two_who_change_rules_one_is_told(kit: &Kit) {
    kit.store.set_queue("q", Some(QueueRules::default())).await.unwrap();
    let read = kit.store.queue_rules().await.unwrap().set_for("q").unwrap().clone();
    let one = QueueRules { paused: true, ..read.clone() };
    let other = QueueRules { run_timeout_ms: Some(1), ..read };
    assert!(kit.store.set_queue("q", Some(one)).await.unwrap());
    assert!(!kit.store.set_queue("q", Some(other)).await.unwrap(), "it knew an older version");
    let now = kit.store.queue_rules().await.unwrap().set_for("q").unwrap().clone();
    assert_eq!((now.version, now.paused, now.run_timeout_ms), (2, true, None));
}

async fn of_two_who_give_a_queue_its_first_rules_one_is_told(kit: &Kit) {
    let edition = async || kit.store.queue_rules().await.unwrap().edition();
    let one = QueueRules { paused: true, ..QueueRules::default() };
    assert!(kit.store.replace_queue("q", 0, Some(one)).await.unwrap());
    let (before, other) = (edition().await, QueueRules::default());
    let late = kit.store.replace_queue("q", 0, Some(other.clone())).await.unwrap();
    assert!(!late, "it knew of none");
    assert_eq!(
        (edition().await, queue(kit, "q").await.unwrap().rules.unwrap().paused),
        (before, true)
    );
    kit.store.set_queue("q", None).await.unwrap();
    let late = QueueRules { version: 1, ..other.clone() };
    assert!(!kit.store.set_queue("q", Some(late)).await.unwrap(), "what it read was taken away");
    assert_eq!(queue(kit, "q").await, None);
    assert!(kit.store.replace_queue("q", 0, Some(other)).await.unwrap());
}

async fn rules_are_taken_away_by_those_who_have_read_them(kit: &Kit) {
    let take = async |was| kit.store.replace_queue("q", was, None).await.unwrap();
    assert!(take(0).await, "there were none, and there are none");
    assert!(!take(1).await, "it has read what is not there");
    for _ in 0..2 {
        kit.store.set_queue("q", Some(QueueRules::default())).await.unwrap();
    }
    let edition = async || kit.store.queue_rules().await.unwrap().edition();
    let before = edition().await;
    assert!(!take(0).await && !take(1).await, "it knew older ones");
    assert_eq!((edition().await, queue(kit, "q").await.is_some()), (before, true));
    let last = queue(kit, "q").await.unwrap().rules.unwrap().version;
    assert!(take(last).await);
    assert_eq!(queue(kit, "q").await, None);
    // Who has read those does not know what is set after them.
    kit.store.set_queue("q", Some(QueueRules::default())).await.unwrap();
    let version = queue(kit, "q").await.unwrap().rules.unwrap().version;
    assert!(version > last, "{version} after {last}");
    for old in 1..=last {
        assert!(!take(old).await, "{old}");
    }
    assert!(take(version).await);
}

async fn queues_with_jobs_are_named_once(kit: &Kit) {
    assert!(kit.store.queue_names().await.unwrap().is_empty());
    for queue in ["b", "a", "b", "a:c"] {
        kit.put(NewJob { queue: queue.into(), ..job("k") }).await;
    }
    let later = Due::In(HOUR);
    kit.put(NewJob { queue: "later".into(), due: later, ..job("k") }).await;
    assert_eq!(kit.store.queue_names().await.unwrap(), ["a", "a:c", "b", "later"]);
}

async fn a_queue_of_which_all_jobs_wait_for_others_is_shown(kit: &Kit) {
    let behind = |name: &str| {
        let job = NewJob { queue: format!("{name}-queue"), ..job(name) };
        let work = Work::Jobs(vec![job]);
        Step { after: vec![After::success("first")], ..Step::new(name, work) }
    };
    let id = start(kit, vec![step("first", &[]), behind("mail"), behind("bill")]).await;
    for name in ["mail-queue", "bill-queue"] {
        let view = queue(kit, name).await.expect("its job is blocked, and there");
        assert_eq!((view.depth, view.running, view.scheduled), (0, 0, 0));
    }
    let cancel = FlowAct::Cancel { reason: "no".into() };
    kit.store.change_flow(id, cancel).await.unwrap();
    tend(kit).await;
    assert!(queue(kit, "mail-queue").await.is_none(), "nothing of it is left");
}

async fn dead_letters_count_until_archived_or_recovered(kit: &Kit) {
    let one = kit.finish(job("k"), dead("x")).await;
    let two = kit.finish(job("k"), dead("x")).await;
    kit.finish(job("k"), dead("x")).await;
    kit.finish(job("k"), done()).await;
    assert_eq!(queue(kit, "default").await.unwrap().dead, 3, "a queue with only dead letters");
    kit.store.dead_note(&[one], "me", "seen", None, Some(true)).await.unwrap();
    assert_eq!(queue(kit, "default").await.unwrap().dead, 2);
    kit.store.dead_replay(&[two], "me".into(), None).await.unwrap();
    kit.run_to(two, done()).await;
    assert_eq!(queue(kit, "default").await.unwrap().dead, 1);
}

fn slots_of(queue: &str, own: u32, shared: u32) -> (String, QueueSlots) {
    (queue.to_owned(), QueueSlots { own, shared })
}

async fn workers_are_shown_as_they_registered(kit: &Kit) {
    let start = kit.clock.now();
    let card = WorkerCard {
        id: WorkerId::new(),
        name: "höst:7".into(),
        queues: vec!["a".into(), "b,c".into()],
        kinds: vec!["mail".into(), "{x}".into()],
        slots: 32,
        slots_of: [slots_of("a", 10, 20), slots_of("b,c", 2, 0)].into(),
        lease_ttl: None,
    };
    kit.store.register(card.clone()).await.unwrap();
    kit.clock.advance(SECOND);
    kit.store.beat(card.id).await.unwrap();
    let seen = kit.store.workers().await.unwrap();
    assert_eq!(seen.len(), 1);
    let worker = &seen[0];
    assert_eq!((worker.id, &worker.name, worker.slots), (card.id, &card.name, card.slots));
    assert_eq!((&worker.queues, &worker.kinds), (&card.queues, &card.kinds));
    assert_eq!(worker.slots_of, card.slots_of);
    assert_eq!(["a", "b,c", "d"].map(|queue| worker.slots_for(queue)), [30, 2, 32]);
    assert_eq!((worker.started_at, worker.beat_at), (start, kit.clock.now()));
    kit.store.deregister(card.id).await.unwrap();
    assert!(kit.store.workers().await.unwrap().is_empty());
}

async fn registering_again_renews_the_card(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    kit.take_one(worker).await;
    let renewed = WorkerCard { kinds: vec!["other".into()], slots: 3, ..card(worker) };
    kit.store.register(renewed).await.unwrap();
    let seen = kit.store.workers().await.unwrap();
    assert_eq!((seen.len(), seen[0].slots), (1, 3));
    assert_eq!(seen[0].kinds, ["other"]);
    assert_eq!(kit.view(id).await.worker, Some(worker), "its leases stay");
    assert!(ids(&kit.take(worker, 1).await).is_empty());
}
