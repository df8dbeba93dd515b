//! Hooks before, after and around an attempt.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidemill::testing::drain;
use tidemill::{Attempted, Context, Fail, Middleware, Next, Payload, State, async_trait};

use super::kit::{Echo, Kit};

over_both_stores!(
    hooks_run_around_each_other_in_order,
    hook_before_takes_the_place_of_the_handler,
    hook_around_can_change_what_came_of_it,
);

type Diary = Arc<Mutex<Vec<String>>>;

struct Writes(&'static str, Diary);

#[async_trait]
impl Middleware for Writes {
    async fn before(&self, cx: &Context) -> Result<(), Fail> {
        self.1.lock().unwrap().push(format!("{} before {}", self.0, cx.attempt()));
        Ok(())
    }

    async fn after(&self, _cx: &Context, attempted: &Attempted) {
        let came_to = attempted.as_ref().map(|output| output.as_str().to_owned());
        self.1.lock().unwrap().push(format!("{} after {came_to:?}", self.0));
    }
}

struct Closed;

#[async_trait]
impl Middleware for Closed {
    async fn before(&self, _cx: &Context) -> Result<(), Fail> {
        Err(Fail::snooze(Duration::from_hours(1)))
    }
}

struct Forgives;

#[async_trait]
impl Middleware for Forgives {
    async fn around(&self, cx: &Context, next: Next<'_>) -> Attempted {
        next.run(cx).await.or_else(|_| Ok(Payload::null()))
    }
}

async fn hooks_run_around_each_other_in_order(kit: Kit) {
    let mill = kit.open_still().await;
    mill.enqueue(Echo::new("x")).await.unwrap();
    let diary = Diary::default();
    let worker = mill
        .worker()
        .middleware(Writes("outer", Arc::clone(&diary)))
        .middleware(Writes("inner", Arc::clone(&diary)))
        .handle(|echo: Echo, _cx| async move { Ok(echo.text) });
    assert_eq!(drain(worker).await.unwrap().done, 1);
    let expected = [
        "outer before 1",
        "inner before 1",
        r#"inner after Ok("\"x\"")"#,
        r#"outer after Ok("\"x\"")"#,
    ];
    assert_eq!(*diary.lock().unwrap(), expected);
}

async fn hook_before_takes_the_place_of_the_handler(kit: Kit) {
    let mill = kit.open_still().await;
    let id = mill.enqueue(Echo::new("x")).await.unwrap().id();
    let worker = mill
        .worker()
        .middleware(Closed)
        .handle(|_: Echo, _cx| async move { panic!("it must not run") });
    assert_eq!(drain(worker).await.unwrap().again, 1);
    let view = mill.job(id).await.unwrap().unwrap();
    assert_eq!((view.state, view.attempt), (State::Scheduled, 0));
}

async fn hook_around_can_change_what_came_of_it(kit: Kit) {
    let mill = kit.open_still().await;
    mill.enqueue(Echo::new("x")).await.unwrap();
    let worker = mill
        .worker()
        .middleware(Forgives)
        .handle(|_: Echo, _cx| async move { Err(Fail::permanent("forgive me")) });
    assert_eq!(drain(worker).await.unwrap().done, 1);
}
