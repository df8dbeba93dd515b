//! Flows from a user's side: built, started, run by a worker, read, waited for, called off and tried again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill::core::flow::{FlowState, StepState};
use tidemill::testing::drain;
use tidemill::{Enqueue, Fail, Flow, FlowFilter, Job, Settings, Tidemill, Worker};

use super::kit::Kit;

over_both_stores!(
    outputs_reach_those_who_come_after,
    a_worker_runs_a_flow_by_itself,
    a_flow_from_json_is_the_same_flow,
    nested_flows_are_steps_of_the_outer_one,
    twenty_thousand_jobs_are_sent_in_chunks_and_none_starts_early,
    a_failed_flow_is_tried_again_from_where_it_failed,
    what_cannot_be_is_refused_before_anything_is_written,
    acts_on_flows_that_are_not_there_say_so,
    a_running_job_fans_out_into_its_flow,
    why_names_what_a_step_waits_for,
    a_flow_whose_jobs_are_taken_is_refused,
    a_flow_is_started_once_and_another_under_its_id_is_refused,
    jobs_that_wait_in_flows_are_counted_and_listed,
    a_booking_is_undone_by_its_handlers,
);

const LONG: Duration = Duration::from_mins(1);

/// Adds what it is given to what the steps before it returned.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Add {
    number: u64,
    of: Vec<String>,
}

impl Job for Add {
    const KIND: &'static str = "add";
    type Output = u64;
}

fn add(number: u64, of: &[&str]) -> Add {
    Add { number, of: of.iter().map(ToString::to_string).collect() }
}

fn worker(mill: &Tidemill) -> Worker {
    mill.worker().handle(|job: Add, cx| async move {
        let mut sum = job.number;
        for step in &job.of {
            sum += cx.output_of::<u64>(step).await?;
        }
        Ok(sum)
    })
}

async fn outputs_reach_those_who_come_after(kit: Kit) {
    let mill = kit.open().await;
    let large = "x".repeat(100_000);
    let flow = Flow::new("sum")
        .step("a", add(1, &[]))
        .step("b", add(10, &["a"]))
        .after("a")
        .fan_out("many", (0..5).map(|n| add(n, &[])))
        .step("large", Enqueue::raw("echo", format!("\"{large}\"")))
        .step("sum", Enqueue::raw("sum", "null"))
        .after_all(["b", "many", "large"]);
    let id = mill.start(flow).await.unwrap();
    let worker = worker(&mill)
        .handle_raw("echo", Settings::default(), |payload, _| async move { Ok(payload) })
        .handle_raw("sum", Settings::default(), |_, cx| async move {
            let b: u64 = cx.output_of("b").await?;
            let many = cx.outputs_of("many", None).await?;
            let many = many.iter().filter_map(|one| one.output.as_ref()?.read::<u64>().ok());
            let large: String = cx.output_of("large").await?;
            if cx.output_of::<u64>("a").await.is_ok() {
                return Err(Fail::permanent("it does not come after a"));
            }
            let sum = b + many.sum::<u64>() + large.len() as u64;
            tidemill::Payload::of(&sum, &tidemill::Limits::default())
                .map_err(|e| Fail::permanent(e.to_string()))
        });
    drain(worker).await.unwrap();
    let view = mill.flow(id).await.unwrap().unwrap();
    assert_eq!(view.head.state, FlowState::Done, "{view:?}");
    let sum = view.steps.last().unwrap().first.unwrap();
    let output = mill.job(sum).await.unwrap().unwrap().output.unwrap();
    assert_eq!(output.as_str(), (11 + 10 + 100_000).to_string());
}

async fn a_worker_runs_a_flow_by_itself(kit: Kit) {
    let mill = kit.open().await;
    let running = worker(&mill).slots(4).start().await.unwrap();
    let flow = Flow::new("chain")
        .step("a", add(1, &[]))
        .then("b", add(1, &["a"]))
        .then("c", add(1, &["b"]))
        .fan_out("many", (0..50).map(|n| add(n, &[])))
        .after("c")
        .step("end", add(0, &["c"]))
        .after_all(["c", "many"]);
    let id = mill.start(flow).await.unwrap();
    let view = mill.wait_flow(id, LONG).await.unwrap();
    assert_eq!((view.head.state, view.head.done), (FlowState::Done, 54));
    let again = mill.wait_flow(tidemill::FlowId::new(), LONG).await.unwrap_err();
    assert_eq!(again.code(), "flow_unknown");
    running.stop().await;
}

async fn a_flow_from_json_is_the_same_flow(kit: Kit) {
    let mill = kit.open().await;
    let text = r#"{"name": "json", "at_once": 100, "steps": [
        {"name": "a", "kind": "add", "payload": {"number": 9007199254740993, "of": []}, "queue": "numbers"},
        {"name": "many", "kind": "add", "payloads": [{"number": 1, "of": []}, {"number": 2, "of": []}],
         "after": [{"step": "a", "when": "output > 1"}]},
        {"name": "never", "kind": "add", "payload": {"number": 1, "of": []},
         "after": [{"step": "a", "on": "failure"}]},
        {"name": "end", "kind": "add", "payload": {"number": 1, "of": ["a"]}, "after": ["a", "many"],
         "join": {"need": "finished", "within_ms": 600000}}
    ]}"#;
    let id = mill.start(Flow::from_json(text).unwrap()).await.unwrap();
    drain(worker(&mill).queues(["default", "numbers"])).await.unwrap();
    let view = mill.flow(id).await.unwrap().unwrap();
    let states: Vec<_> = view.steps.iter().map(|step| step.state).collect();
    let expected = [StepState::Done, StepState::Done, StepState::Skipped, StepState::Done];
    assert_eq!(states, expected, "{view:?}");
    let end = mill.job(view.steps[3].first.unwrap()).await.unwrap().unwrap();
    assert_eq!(end.output.unwrap().as_str(), "9007199254740994");
    for bad in
        [r#"{"name": "x"}"#, r#"{"name": "x", "steps": [{"name": "a", "kind": "k", "aftre": []}]}"#]
    {
        assert_eq!(Flow::from_json(bad).unwrap_err().code(), "flow_invalid", "{bad}");
    }
    for (bad, culprit) in [
        (r#"{"name": "x", "stepps": []}"#, r#"the flow "x" cannot be"#),
        (r#"{"name": "x", "steps": [{"name": "a", "kind": 7}]}"#, r#"the step "a""#),
        (r#"{"name": "x", "steps": [{"kind": "k"}]}"#, r#"the step "number 1""#),
        (
            r#"{"name": "x", "steps": [{"name": "a", "steps": [{"name": "b"}]}]}"#,
            r#"the step "a/b""#,
        ),
    ] {
        let says = Flow::from_json(bad).unwrap_err().to_string();
        assert!(says.contains(culprit), "{says} does not name {culprit}");
    }
}

async fn nested_flows_are_steps_of_the_outer_one(kit: Kit) {
    let mill = kit.open().await;
    let inner = Flow::new("inner")
        .step("one", add(1, &[]))
        .step("two", add(2, &["inner/one"]))
        .after("one");
    let flow = Flow::new("outer")
        .step("first", add(1, &[]))
        .nested("inner", inner)
        .after("first")
        .step("last", add(0, &["inner/two"]))
        .after("inner");
    let id = mill.start(flow).await.unwrap();
    drain(worker(&mill)).await.unwrap();
    let view = mill.flow(id).await.unwrap().unwrap();
    let names: Vec<_> = view.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["first", "inner/one", "inner/two", "last"]);
    assert_eq!(view.steps[1].after[0].step, "first");
    assert_eq!(view.steps[3].after[0].step, "inner/two");
    assert_eq!(view.head.state, FlowState::Done);
}

async fn twenty_thousand_jobs_are_sent_in_chunks_and_none_starts_early(kit: Kit) {
    let mill = kit.open().await;
    let started = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&started);
    let running = worker(&mill)
        .handle_raw("one", Settings::default(), move |payload, _| {
            count.fetch_add(1, Ordering::SeqCst);
            async move { Ok(payload) }
        })
        .slots(500)
        .start()
        .await
        .unwrap();
    let flow = Flow::new("many")
        .fan_out("one", Vec::<Enqueue>::new())
        .step("end", add(1, &[]))
        .after("one");
    let building = mill.build(flow).await.unwrap();
    for chunk in 0..20 {
        let jobs = (0..1000).map(|n| Enqueue::raw("one", (chunk * 1000 + n).to_string()));
        assert_eq!(building.add("one", jobs).await.unwrap(), 1000);
    }
    assert_eq!(started.load(Ordering::SeqCst), 0, "nothing starts early");
    let id = building.begin().await.unwrap();
    let view = mill.wait_flow(id, LONG).await.unwrap();
    assert_eq!((view.head.state, view.head.done), (FlowState::Done, 20_001));
    assert_eq!(started.load(Ordering::SeqCst), 20_000);
    running.stop().await;
}

async fn a_failed_flow_is_tried_again_from_where_it_failed(kit: Kit) {
    let mill = kit.open().await;
    let broken = Arc::new(AtomicU32::new(1));
    let is_broken = Arc::clone(&broken);
    let worker = || {
        let is_broken = Arc::clone(&is_broken);
        worker(&mill).handle_raw("pay", Settings::default(), move |payload, _| {
            let declined = is_broken.load(Ordering::SeqCst) > 0;
            async move { if declined { Err(Fail::permanent("declined")) } else { Ok(payload) } }
        })
    };
    let flow = Flow::new("order")
        .step("stock", add(1, &[]))
        .then("pay", Enqueue::raw("pay", "{}"))
        .then("ship", add(1, &["stock"]))
        .after("stock");
    let id = mill.start(flow).await.unwrap();
    drain(worker()).await.unwrap();
    let failed = FlowFilter { state: Some(FlowState::Failed), ..FlowFilter::default() };
    assert_eq!(mill.flows(&failed).await.unwrap().len(), 1);
    broken.store(0, Ordering::SeqCst);
    assert_eq!(mill.retry_flow(id, Some("pay"), "ada").await.unwrap(), 1);
    drain(worker()).await.unwrap();
    let view = mill.flow(id).await.unwrap().unwrap();
    assert_eq!((view.head.state, view.head.done, view.head.failed), (FlowState::Done, 3, 0));
}

async fn what_cannot_be_is_refused_before_anything_is_written(kit: Kit) {
    let mill = kit.open().await;
    let job = || add(1, &[]);
    let (flow, saga) = (|| Flow::new("bad"), || Flow::saga("bad"));
    let huge = || format!("{:?}", "x".repeat(tidemill::Limits::default().payload_bytes_max));
    let unique = Enqueue::raw("k", "1").unique(tidemill::Unique::by_payload());
    let chained = |n: usize| (0..n).fold(flow(), |flow, at| flow.step(format!("s{at}"), job()));
    for (flow, code, culprit) in [
        (flow(), "flow_invalid", "bad"),
        (flow().after("x"), "flow_invalid", "after"),
        (flow().step("a", job()).after("a"), "flow_invalid", "a"),
        (flow().step("a", job()).after("b"), "flow_invalid", "b"),
        (flow().step("a", job()).step("a", job()), "flow_invalid", "a"),
        (flow().step("a", job()).step("b", job()).after("a").after("a"), "flow_invalid", "twice"),
        (flow().step("a/b", job()), "flow_invalid", "slash"),
        (flow().step("", job()), "name_empty", "step"),
        (
            flow()
                .step("a", job())
                .after("b")
                .step("b", job())
                .after("c")
                .step("c", job())
                .after("a"),
            "flow_cycle",
            "a → c → b → a",
        ),
        (
            flow().step("a", job()).step("b", job()).after("a").when_quorum(2),
            "flow_invalid",
            "quorum",
        ),
        (
            flow().step("a", job()).step("b", job()).after_when("a", "output >"),
            "flow_invalid",
            "output >",
        ),
        (flow().step("a", job()).step("b", job()).after_when("a", "x > 1"), "flow_invalid", "x"),
        (flow().step("a", job()).when_any(), "flow_invalid", "join"),
        (flow().step("a", job()).at_once(0), "flow_invalid", "at_once"),
        (flow().step("a", job()).finish_within(Duration::ZERO), "flow_invalid", "0 ms"),
        (flow().step("a", unique), "flow_invalid", "unique"),
        (chained(10_001), "flow_too_large", "10001 steps"),
        (flow().fan_out("a", (0..10_001).map(|_| job())), "batch_too_large", "10001"),
        (flow().step("a", Enqueue::raw("k", "{")), "payload_not_json", "JSON"),
        (flow().step("pay", Enqueue::raw("", "1")), "name_empty", "the step \"pay\""),
        (
            flow().nested("eu", flow().step("pay", Enqueue::raw("k", huge()))),
            "payload_too_large",
            "the step \"eu/pay\"",
        ),
        (
            saga().step("a", job()).undo(Enqueue::raw("", "1")),
            "name_empty",
            "the undo of the step \"a\"",
        ),
        (
            saga().step("a", job()).pivot().then("b", job()).pivot(),
            "flow_invalid",
            "the step \"b\" of the flow cannot be: it is a point of no return, and so is \"a\"",
        ),
        (
            flow().fan_out("a", [job(), job()]).step("b", job()).after("a").bearing(3),
            "flow_invalid",
            "the step \"b\" of the flow cannot be: its failures_max is 3, but it comes after 2 jobs",
        ),
        (
            flow().step("a", job()).step("b", job()).after("a").within(Duration::ZERO),
            "flow_invalid",
            "the step \"b\" of the flow cannot be: its join waits for 0 ms",
        ),
    ] {
        let error = mill.start(flow).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(culprit), "{error} does not name {culprit}");
    }
    assert!(mill.flows(&FlowFilter::default()).await.unwrap().is_empty());
}

async fn acts_on_flows_that_are_not_there_say_so(kit: Kit) {
    let mill = kit.open().await;
    let nobody = tidemill::FlowId::new();
    assert_eq!(mill.cancel_flow(nobody, "x").await.unwrap_err().code(), "flow_unknown");
    assert_eq!(mill.retry_flow(nobody, None, "x").await.unwrap_err().code(), "flow_unknown");
    let id = mill.start(Flow::new("f").step("a", add(1, &[]))).await.unwrap();
    let error = mill.retry_flow(id, Some("b"), "x").await.unwrap_err();
    assert_eq!(error.code(), "step_unknown");
    assert_eq!(mill.retry_flow(id, None, "x").await.unwrap_err().code(), "flow_not_now");
}

async fn a_running_job_fans_out_into_its_flow(kit: Kit) {
    let mill = kit.open().await;
    let flow = Flow::new("crawl")
        .step("list", Enqueue::raw("list", "null"))
        .step("sum", Enqueue::raw("sum", "null"))
        .after("list");
    let id = mill.start(flow).await.unwrap();
    let worker = worker(&mill)
        .handle_raw("list", Settings::default(), |payload, cx| async move {
            cx.fan_out("page", (0..10).map(|n| add(n, &[])))
                .map_err(|e| Fail::permanent(e.to_string()))?;
            Ok(payload)
        })
        .handle_raw("sum", Settings::default(), |_, cx| async move {
            let pages = cx.outputs_of("page", None).await?;
            let pages = pages.iter().filter_map(|one| one.output.as_ref()?.read::<u64>().ok());
            tidemill::Payload::of(&pages.sum::<u64>(), &tidemill::Limits::default())
                .map_err(|e| Fail::permanent(e.to_string()))
        });
    drain(worker).await.unwrap();
    let view = mill.flow(id).await.unwrap().unwrap();
    assert_eq!((view.head.state, view.head.jobs), (FlowState::Done, 12));
    let sum = mill.job(view.steps[1].first.unwrap()).await.unwrap().unwrap();
    assert_eq!(sum.output.unwrap().as_str(), "45");
}

async fn why_names_what_a_step_waits_for(kit: Kit) {
    let mill = kit.open().await;
    let flow = || {
        Flow::new("order")
            .step("stock", add(1, &[]))
            .fan_out("parts", (0..3).map(|n| add(n, &[])))
            .step("ship", add(1, &[]))
            .after_all(["stock", "parts"])
    };
    let id = mill.start(flow()).await.unwrap();
    let ship = mill.flow(id).await.unwrap().unwrap().steps[2].first.unwrap();
    let why = mill.why(ship).await.unwrap().to_string();
    assert!(
        why.starts_with(&format!("its step ship of the flow {id} waits for stock, parts (3 jobs)")),
        "{why}"
    );
    let building = mill.build(flow()).await.unwrap();
    let job = mill.flow(building.id()).await.unwrap().unwrap().steps[0].first;
    let why = mill.why(job.unwrap()).await.unwrap().to_string();
    assert!(why.contains("is still being built"), "{why}");
    let capped = Flow::new("capped").fan_out("one", (0..3).map(|n| add(n, &[]))).at_once(1);
    let id = mill.start(capped).await.unwrap();
    let filter =
        tidemill::JobFilter { state: Some(tidemill::State::Blocked), ..Default::default() };
    let blocked = mill.jobs(&filter).await.unwrap();
    let of_flow = |view: &&tidemill::JobView| {
        view.job.options.flow.as_ref().is_some_and(|place| place.id == id)
    };
    let waiting = blocked.iter().find(of_flow).unwrap();
    let why = mill.why(waiting.job.id).await.unwrap().to_string();
    assert!(why.contains("is being opened, one job at a time"), "{why}");
}

/// A booking, and what undoes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Book {
    what: String,
}

impl Job for Book {
    const KIND: &'static str = "book";
    type Output = u64;
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct CancelBooking(tidemill::Undo<Book, u64>);

impl Job for CancelBooking {
    const KIND: &'static str = "cancel_booking";
    type Output = ();
}

async fn a_booking_is_undone_by_its_handlers(kit: Kit) {
    let mill = kit.open().await;
    let book = |what: &str| Book { what: what.to_owned() };
    let undo = |what: &str| Enqueue::raw("cancel_booking", format!(r#"{{"what":"{what}"}}"#));
    let saga = Flow::saga("trip")
        .step("hotel", book("hotel"))
        .undo(undo("hotel"))
        .then("flight", book("flight"))
        .undo(undo("flight"))
        .then("card", book("card"))
        .nothing_to_undo();
    let id = mill.start(saga).await.unwrap();
    let undone = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = Arc::clone(&undone);
    let worker = mill
        .worker()
        .handle(|book: Book, _| async move {
            match book.what.as_str() {
                "card" => Err(Fail::permanent("declined")),
                what => Ok(what.len() as u64),
            }
        })
        .handle(move |CancelBooking(undo): CancelBooking, _| {
            log.lock().unwrap().push((undo.payload.what, undo.output, undo.outcome));
            async { Ok(()) }
        });
    drain(worker).await.unwrap();
    let view = mill.flow(id).await.unwrap().unwrap();
    assert_eq!(view.head.state, FlowState::Undone);
    let done = tidemill::Outcome::Done;
    let expected = [("flight".to_owned(), Some(6), done), ("hotel".to_owned(), Some(5), done)];
    assert_eq!(*undone.lock().unwrap(), expected);
}

async fn a_flow_whose_jobs_are_taken_is_refused(kit: Kit) {
    let mill = kit.open().await;
    let flow = Flow::new("order").step("a", add(1, &[]));
    let id = mill.start(flow.clone()).await.unwrap();
    assert_eq!(mill.start(flow.clone()).await.unwrap(), id, "the same flow again is no mistake");
    let error = mill.start(flow.id(tidemill::FlowId::new())).await.unwrap_err();
    assert!(error.to_string().contains("id of another job"), "{error}");
    assert_eq!(mill.flows(&FlowFilter::default()).await.unwrap().len(), 1);
}

async fn a_flow_is_started_once_and_another_under_its_id_is_refused(kit: Kit) {
    let mill = kit.open_still().await;
    let id = tidemill::FlowId::new();
    let flow = || Flow::new("sum").id(id).step("one", add(1, &[]));
    assert_eq!(mill.start_once(flow()).await.unwrap(), (id, true));
    let others = [
        Flow::new("other").id(id).step("one", add(1, &[])),
        Flow::new("sum").id(id).step("one", add(2, &[])),
        flow().step("two", add(2, &["one"])).after("one"),
    ];
    let refused = async || {
        for other in others.clone() {
            let refused = mill.start(other).await.unwrap_err();
            assert_eq!(refused.code(), "id_taken");
            assert!(refused.to_string().contains(&id.to_string()), "{refused}");
        }
        assert_eq!(mill.start_once(flow()).await.unwrap(), (id, false));
        assert_eq!(mill.start(flow()).await.unwrap(), id);
    };
    refused().await;
    assert_eq!(drain(worker(&mill)).await.unwrap().done, 1, "it was started once");
    refused().await;
    assert_eq!(drain(worker(&mill)).await.unwrap().done, 0);
}

async fn jobs_that_wait_in_flows_are_counted_and_listed(kit: Kit) {
    let mill = kit.open().await;
    let flow = Flow::new("order")
        .step("a", add(1, &[]))
        .fan_out("b", (0..3).map(|n| add(n, &[])))
        .after("a")
        .step("c", add(1, &[]))
        .after("b");
    mill.start(flow).await.unwrap();
    assert_eq!(mill.unfinished().await.unwrap().waiting, 5);
    let filter =
        tidemill::JobFilter { state: Some(tidemill::State::Blocked), ..Default::default() };
    assert_eq!(mill.jobs(&filter).await.unwrap().len(), 4);
    drain(worker(&mill)).await.unwrap();
    let unfinished = mill.unfinished().await.unwrap();
    assert_eq!((unfinished.waiting, unfinished.running), (0, 0));
    assert!(mill.jobs(&filter).await.unwrap().is_empty());
}
