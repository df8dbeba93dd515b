//! The same handlers for either boss: what comes of their jobs is the same.

use std::sync::Arc;
use std::time::Duration;

use tidemill::{
    Backoff, Context, End, Enqueue, Event, Fail, Flow, JobFilter, JobId, OwnRetry, Payload,
    Progress, QueueRules, Retry, Said, Settings, State, Stop, Worker,
};
use tidemill_testkit::eventually::eventually;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::kit::{Boss, Kit, SOON};

over_both_bosses!(
    every_outcome_is_the_same,
    what_a_handler_makes_may_be_larger_than_a_payload,
    what_follows_is_enqueued_with_the_end,
    a_running_job_is_called_off,
    what_a_handler_says_is_on_its_stream,
    the_policy_of_a_kind_decides,
    the_rules_of_a_queue_hold,
    a_step_of_a_flow_reads_and_adds_steps,
    a_stop_gives_back_what_runs,
    slots_of_a_queue_are_its_own,
);

fn at_once() -> Settings {
    let retry = Retry::attempts(3).backoff(Backoff::Fixed { delay_ms: 0 });
    Settings { retry, ..Settings::default() }
}

/// What is put off spends no attempt: its number does not tell.
fn is_among_the_first(cx: &Context) -> Result<bool, Fail> {
    let seats = cx.state::<Semaphore>()?;
    Ok(seats.try_acquire().map(SemaphorePermit::forget).is_ok())
}

/// Does what its payload says.
async fn act(word: Payload, cx: Context) -> Result<Payload, Fail> {
    let is_first = cx.attempt() == 1;
    match word.read::<String>()?.as_str() {
        "done" => Ok(Payload::trusted(r#"{ "n": 12345678901234567890123 }"#.to_owned())),
        "retry" if is_first => Err(Fail::transient("not yet")),
        "permanent" => Err(Fail::permanent("no such thing")),
        "transient" => Err(Fail::transient("never")),
        "cancel" => Err(Fail::cancel("no need")),
        "panic" => panic!("made to"),
        "limited" if is_among_the_first(&cx)? => Err(Fail::rate_limited(Duration::from_millis(5))),
        "snooze" if is_among_the_first(&cx)? => Err(Fail::snooze(Duration::from_millis(5))),
        _ => Ok(Payload::trusted(cx.attempt().to_string())),
    }
}

async fn every_outcome_is_the_same(kit: Kit, boss: Boss) {
    let worker = kit.worker(boss).state(Semaphore::new(2)).handle_raw("act", at_once(), act);
    let worker = worker.start().await.unwrap();
    let table = [
        ("done", State::Done, r#"{ "n": 12345678901234567890123 }"#, 1),
        ("retry", State::Done, "2", 2),
        ("permanent", State::Dead, "no such thing", 1),
        ("transient", State::Dead, "never", 3),
        ("cancel", State::Cancelled, "no need", 1),
        ("panic", State::Dead, "the handler panicked: made to", 3),
        ("limited", State::Done, "1", 1),
        ("snooze", State::Done, "1", 1),
    ];
    let jobs = table.map(|(word, ..)| Enqueue::raw("act", format!("{word:?}")));
    let receipts = kit.mill.enqueue_many(jobs).await.unwrap();
    for (receipt, (word, state, said, attempts)) in receipts.iter().zip(table) {
        let view = kit.end(receipt.id()).await;
        assert_eq!(view.state, state, "{word}: {:?}", view.error);
        let output = view.output.map(|output| output.as_str().to_owned());
        let text = output.or(view.error).unwrap();
        assert!(text.contains(said), "{word}: {text}");
        assert_eq!(view.attempt, attempts, "{word}");
    }
    worker.stop().await;
    kit.close().await;
}

async fn what_a_handler_makes_may_be_larger_than_a_payload(kit: Kit, boss: Boss) {
    const BYTES: usize = 3 * 1024 * 1024;
    let large = |_: Payload, cx: Context| async move {
        let text = "x".repeat(BYTES);
        cx.object::<String>()?.set(&text)?;
        Ok(Payload::trusted(format!("{text:?}")))
    };
    let worker = kit.worker(boss).queues(["text"]);
    let worker = worker.handle_raw("large", Settings::default(), large).start().await.unwrap();
    let job = Enqueue::raw("large", "1").object("text", "7");
    let id = kit.mill.enqueue(job).await.unwrap().id();
    assert_eq!(kit.output::<String>(id).await.len(), BYTES);
    let kept = kit.mill.object::<String>("text", "7").await.unwrap();
    assert_eq!(kept.unwrap().len(), BYTES);
    worker.stop().await;
    kit.close().await;
}

async fn what_follows_is_enqueued_with_the_end(kit: Kit, boss: Boss) {
    let handler = |word: Payload, cx: Context| async move {
        let next = |n: i32| Enqueue::raw("next", n.to_string()).tag(word.as_str().to_owned());
        cx.follow_up(next(1))?;
        cx.follow_up(next(2).delay(Duration::from_hours(1)).unique(tidemill::Unique::by_key("u")))?;
        let receipt = cx.enqueue(next(3)).await?;
        if word.as_str() == "2" { Err(Fail::permanent("no")) } else { Ok(receipt.id()) }
    };
    let worker = kit.worker(boss).handle_raw("first", Settings::default(), {
        move |word, cx| async move {
            let id: JobId = handler(word, cx).await?;
            Ok(Payload::trusted(format!("\"{id}\"")))
        }
    });
    let worker = worker.start().await.unwrap();
    for word in ["1", "2"] {
        let id = kit.mill.enqueue(Enqueue::raw("first", word)).await.unwrap().id();
        kit.end(id).await;
    }
    let filter = JobFilter { kind: Some("next".to_owned()), ..JobFilter::default() };
    let mut found: Vec<_> = kit.mill.jobs(&filter).await.unwrap();
    found.sort_by_key(|view| (view.job.options.tags.clone(), view.job.payload.as_str().to_owned()));
    let told: Vec<_> = found
        .iter()
        .map(|view| (&*view.job.options.tags[0], view.job.payload.as_str(), view.state))
        .collect();
    let (ready, later) = (State::Ready, State::Scheduled);
    let first = [("1", "1", ready), ("1", "2", later), ("1", "3", ready)];
    assert_eq!(told, [&first[..], &[("2", "3", ready)]].concat(), "who failed is not followed");
    assert_eq!(found[1].job.unique_key.as_deref().map(|key| !key.is_empty()), Some(true));
    worker.stop().await;
    kit.close().await;
}

async fn a_running_job_is_called_off(kit: Kit, boss: Boss) {
    let running = Arc::new(Semaphore::new(0));
    let told = Arc::clone(&running);
    let handler = move |_: Payload, cx: Context| {
        let told = Arc::clone(&told);
        async move {
            told.add_permits(1);
            cx.cancelled().await;
            Err::<Payload, _>(Fail::transient("told to end"))
        }
    };
    let worker = kit.worker(boss).handle_raw("long", Settings::default(), handler);
    let worker = worker.start().await.unwrap();
    let id = kit.mill.enqueue(Enqueue::raw("long", "1")).await.unwrap().id();
    tokio::time::timeout(SOON, running.acquire()).await.unwrap().unwrap().forget();
    kit.mill.cancel(id, "enough").await.unwrap();
    assert_eq!(kit.end(id).await.state, State::Cancelled);
    worker.stop().await;
    kit.close().await;
}

async fn what_a_handler_says_is_on_its_stream(kit: Kit, boss: Boss) {
    let handler = |_: Payload, cx: Context| async move {
        cx.progress(Progress::of(1, 2)).await?;
        cx.text("half-way").await?;
        cx.log("all of it").await?;
        Ok(Payload::null())
    };
    let worker = kit.worker(boss).handle_raw("say", Settings::default(), handler);
    let worker = worker.start().await.unwrap();
    let id = kit.mill.enqueue(Enqueue::raw("say", "1")).await.unwrap().id();
    let mut stream = kit.mill.stream(id, 0).await.unwrap();
    let (mut said, mut end) = (Vec::new(), None);
    while let Some(event) = tokio::time::timeout(SOON, stream.next()).await.unwrap().unwrap() {
        match event {
            Event::Chunk(chunk) => said.push(chunk.said),
            Event::End(ended) => end = Some(ended),
        }
    }
    let all = [Said::from(Progress::of(1, 2)), Said::text("half-way"), Said::log("all of it")];
    assert_eq!(said, all);
    assert!(matches!(end, Some(End { state: State::Done, .. })), "{end:?}");
    worker.stop().await;
    kit.close().await;
}

async fn the_policy_of_a_kind_decides(kit: Kit, boss: Boss) {
    let retry =
        Retry { attempts_max: 9, ambiguous_max: 2, backoff: Backoff::Fixed { delay_ms: 1 } };
    let settings = Settings { retry, ..Settings::default() };
    let handler = |_: Payload, _| async { Err::<Payload, _>(Fail::ambiguous("who knows")) };
    let worker = kit.worker(boss).handle_raw("k", settings, handler).start().await.unwrap();
    let own = Retry { ambiguous_max: 1, ..Retry::default() };
    let part = Enqueue::raw("k", "3").retry(OwnRetry::attempts(5));
    let jobs = [Enqueue::raw("k", "1"), Enqueue::raw("k", "2").retry(own), part];
    let receipts = kit.mill.enqueue_many(jobs).await.unwrap();
    let mut attempts = Vec::new();
    for receipt in &receipts {
        attempts.push(kit.end(receipt.id()).await.attempt);
    }
    assert_eq!(attempts, [2, 1, 2], "the job's own comes first, part by part");
    worker.stop().await;
    kit.close().await;
}

/// How often and how long is told by the rules of the queue, where neither job nor kind says.
async fn the_rules_of_a_queue_hold(kit: Kit, boss: Boss) {
    let retry =
        Retry { ambiguous_max: 2, backoff: Backoff::Fixed { delay_ms: 1 }, ..Retry::default() };
    let rules =
        QueueRules { retry: Some(retry), run_timeout_ms: Some(20), ..QueueRules::default() };
    kit.mill.set_queue("default", Some(rules)).await.unwrap();
    let worker = kit.worker(boss).handle_raw("k", Settings::default(), |_, _| async {
        std::future::pending::<Result<Payload, Fail>>().await
    });
    let worker = worker.start().await.unwrap();
    let id = kit.mill.enqueue(Enqueue::raw("k", "1")).await.unwrap().id();
    let view = kit.end(id).await;
    assert_eq!((view.state, view.attempt), (State::Dead, 2));
    assert!(view.error.unwrap().contains("longer than its limit of 20ms"));
    worker.stop().await;
    kit.close().await;
}

async fn a_step_of_a_flow_reads_and_adds_steps(kit: Kit, boss: Boss) {
    let number = |payload: Payload, _| async move { Ok(payload) };
    let sum = |_: Payload, cx: Context| async move {
        let mut sum = cx.output_of::<u64>("one").await?;
        for output in cx.outputs_of("many", None).await? {
            sum += output.output.ok_or_else(|| Fail::permanent("no output"))?.read::<u64>()?;
        }
        let states: Vec<_> = cx.inputs().await?.iter().map(|input| input.jobs).collect();
        cx.fan_out("more", [Enqueue::raw("number", "5"), Enqueue::raw("number", "6")])?;
        Ok(Payload::trusted(format!("[{sum},{}]", states.len())))
    };
    let worker: Worker = kit.worker(boss).handle_raw("number", Settings::default(), number);
    let worker = worker.handle_raw("sum", Settings::default(), sum).start().await.unwrap();
    let flow = Flow::new("f")
        .step("one", Enqueue::raw("number", "1"))
        .fan_out("many", (2..5).map(|n| Enqueue::raw("number", n.to_string())))
        .step("sum", Enqueue::raw("sum", "0"))
        .after("one")
        .after("many");
    let id = kit.mill.start(flow).await.unwrap();
    let view = kit.mill.wait_flow(id, SOON).await.unwrap();
    let steps: Vec<_> = view.steps.iter().map(|step| (&*step.name, step.jobs)).collect();
    assert_eq!(steps, [("one", 1), ("many", 3), ("sum", 1), ("more", 2)]);
    let sum = view.steps[2].first.unwrap();
    assert_eq!(kit.end(sum).await.output.unwrap().as_str(), "[10,2]");
    worker.stop().await;
    kit.close().await;
}

async fn a_stop_gives_back_what_runs(kit: Kit, boss: Boss) {
    let running = Arc::new(Semaphore::new(0));
    let told = Arc::clone(&running);
    let stubborn = move |_: Payload, _| {
        told.add_permits(1);
        std::future::pending::<Result<Payload, Fail>>()
    };
    let stop = Stop { drain: Duration::ZERO, grace: Duration::ZERO };
    let worker = kit.worker(boss).stop_as(stop).slots(2);
    let worker = worker.handle_raw("k", Settings::default(), stubborn).start().await.unwrap();
    let jobs = (0..2).map(|n| Enqueue::raw("k", n.to_string()));
    let receipts = kit.mill.enqueue_many(jobs).await.unwrap();
    tokio::time::timeout(SOON, running.acquire_many(2)).await.unwrap().unwrap().forget();
    worker.stop().await;
    for receipt in receipts {
        let view = kit.mill.job(receipt.id()).await.unwrap().unwrap();
        assert_eq!((view.state, view.attempt, view.lost), (State::Ready, 0, 0));
    }
    let gone = async || kit.mill.workers().await.unwrap().is_empty().then_some(());
    eventually("the worker signed off", SOON, gone).await;
    kit.close().await;
}

/// While the shared slot is taken, a queue with a slot of its own is served; and patterns mean what comes later.
async fn slots_of_a_queue_are_its_own(kit: Kit, boss: Boss) {
    let (running, open) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (told, gate) = (Arc::clone(&running), Arc::clone(&open));
    let slow = move |_: Payload, _| {
        let (told, gate) = (Arc::clone(&told), Arc::clone(&gate));
        async move {
            told.add_permits(1);
            gate.acquire().await?.forget();
            Ok(Payload::null())
        }
    };
    let worker = kit.worker(boss).queues(["mail:*"]).slots(1).dedicated("urgent", 1);
    let worker = worker.handle_raw("slow", Settings::default(), slow);
    let worker =
        worker.handle_raw("quick", Settings::default(), |_, _| async { Ok(Payload::null()) });
    let worker = worker.start().await.unwrap();
    let mut slow = Vec::new();
    for queue in ["mail:a", "mail:b"] {
        let job = Enqueue::raw("slow", "1").queue(queue);
        slow.push(kit.mill.enqueue(job).await.unwrap().id());
    }
    tokio::time::timeout(SOON, running.acquire()).await.unwrap().unwrap().forget();
    let quick = Enqueue::raw("quick", "1").queue("urgent");
    let quick = kit.mill.enqueue(quick).await.unwrap().id();
    assert_eq!(kit.end(quick).await.state, State::Done);
    open.add_permits(2);
    for id in slow {
        assert_eq!(kit.end(id).await.state, State::Done);
    }
    worker.stop().await;
    kit.close().await;
}
