//! Handlers: on the runtime or on a thread of their own, with shared state, and allowed to panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidemill::testing::drain;
use tidemill::{Payload, Settings, State};

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    blocking_handler_has_a_thread_of_its_own,
    blocking_handler_that_panics_is_ambiguous,
    state_reaches_handlers,
    missing_state_is_named,
    raw_handler_gets_the_text_as_it_was_sent,
    context_knows_its_attempt,
    panic_does_not_stop_the_worker,
    two_handlers_for_one_kind_are_refused,
    worker_serves_the_queues_it_is_told,
);

async fn blocking_handler_has_a_thread_of_its_own(kit: Kit) {
    let mill = kit.open_still().await;
    let here = std::thread::current().id();
    mill.enqueue(Echo::new("x")).await.unwrap();
    let worker = mill.worker().handle_blocking(move |echo: Echo, _cx| {
        assert_ne!(std::thread::current().id(), here);
        Ok(echo.text)
    });
    assert_eq!(drain(worker).await.unwrap().done, 1);
}

async fn blocking_handler_that_panics_is_ambiguous(kit: Kit) {
    let mill = kit.open_still().await;
    let id = mill.enqueue(Echo::new("x")).await.unwrap().id();
    let worker = mill.worker().handle_blocking(|_: Echo, _cx| panic!("out of luck"));
    assert_eq!(drain(worker).await.unwrap().again, 1);
    let view = mill.job(id).await.unwrap().unwrap();
    assert_eq!(view.error.as_deref(), Some("the handler panicked: out of luck"));
}

async fn state_reaches_handlers(kit: Kit) {
    let mill = kit.open_still().await;
    mill.enqueue_many([Echo::new("x"), Echo::new("y")]).await.unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let worker = mill.worker().state(Arc::clone(&count)).state("greeting".to_owned()).handle(
        |_: Echo, cx| async move {
            cx.state::<Arc<AtomicUsize>>()?.fetch_add(1, Ordering::Relaxed);
            Ok(cx.state::<String>()?.to_string())
        },
    );
    assert_eq!(drain(worker).await.unwrap().done, 2);
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

async fn missing_state_is_named(kit: Kit) {
    let mill = kit.open_still().await;
    let id = mill.enqueue(Echo::new("x")).await.unwrap().id();
    let worker = mill.worker().handle(|_: Echo, cx| async move {
        let pool = cx.state::<Vec<u8>>()?;
        Ok(pool.len().to_string())
    });
    assert_eq!(drain(worker).await.unwrap().again, 1);
    let error = mill.job(id).await.unwrap().unwrap().error.unwrap();
    assert!(error.contains("Vec<u8>") && error.contains("state()"), "{error}");
}

async fn raw_handler_gets_the_text_as_it_was_sent(kit: Kit) {
    let mill = kit.open_still().await;
    let text = r#"{ "n" : 9007199254740993 }"#;
    let id = mill.enqueue(tidemill::Enqueue::raw("any", text)).await.unwrap().id();
    let same = |payload: Payload, _cx| async move { Ok(payload) };
    let worker = mill.worker().handle_raw("any", Settings::default(), same);
    assert_eq!(drain(worker).await.unwrap().done, 1);
    let view = mill.job(id).await.unwrap().unwrap();
    assert_eq!(view.output.unwrap().as_str(), text);
}

async fn context_knows_its_attempt(kit: Kit) {
    let mill = kit.open_still().await;
    let id = mill.enqueue(Echo::new("x")).await.unwrap().id();
    let worker = mill.worker().handle(move |_: Echo, cx| async move {
        assert_eq!((cx.id(), cx.attempt(), cx.job().kind.as_str()), (id, 1, "echo"));
        assert_eq!(cx.idempotency_key(), id.to_string());
        assert!(!cx.is_cancelled());
        Ok(cx.token().to_string())
    });
    assert_eq!(drain(worker).await.unwrap().done, 1);
    let view = mill.job(id).await.unwrap().unwrap();
    assert_eq!(view.output.unwrap().as_str(), format!("\"{}\"", view.token.unwrap()));
}

async fn panic_does_not_stop_the_worker(kit: Kit) {
    let mill = kit.open().await;
    let worker = mill.worker().slots(1).handle(|echo: Echo, _cx| async move {
        assert_ne!(echo.text, "bad", "bad luck");
        Ok(echo.text)
    });
    let running = worker.start().await.unwrap();
    let bad = mill.enqueue(Echo::new("bad")).await.unwrap().id();
    let good = mill.enqueue(Echo::new("good")).await.unwrap().id();
    assert_eq!(mill.result::<Echo>(good, SOON).await.unwrap(), "good");
    assert!(!mill.job(bad).await.unwrap().unwrap().state.is_final());
    running.stop().await;
}

async fn two_handlers_for_one_kind_are_refused(kit: Kit) {
    let mill = kit.open().await;
    let worker = mill
        .worker()
        .handle(|echo: Echo, _cx| async move { Ok(echo.text) })
        .handle(|echo: Echo, _cx| async move { Ok(echo.text) });
    let error = worker.start().await.err().unwrap();
    assert_eq!(error.code(), "kind_twice");
}

async fn worker_serves_the_queues_it_is_told(kit: Kit) {
    let mill = kit.open_still().await;
    let job = |queue| tidemill::Enqueue::from(Echo::new("x")).queue(queue);
    let mail = mill.enqueue(job("mail")).await.unwrap().id();
    let other = mill.enqueue(job("other")).await.unwrap().id();
    let echo = |echo: Echo, _cx| async move { Ok(echo.text) };
    assert_eq!(drain(mill.worker().handle(echo)).await.unwrap().done, 0);
    let worker = mill.worker().queues(["mail"]).handle(echo);
    assert_eq!(drain(worker).await.unwrap().done, 1);
    assert_eq!(mill.job(mail).await.unwrap().unwrap().state, State::Done);
    assert_eq!(mill.job(other).await.unwrap().unwrap().state, State::Ready);
}
