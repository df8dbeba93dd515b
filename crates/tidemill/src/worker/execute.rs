//! One attempt of a job, as a pipeline: expired? → run → decide → hand over to be settled.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::job::deadline::NOT_IN_TIME;
use tidemill_core::job::outcome::Waiting;
use tidemill_core::job::settle::Ended;
use tidemill_core::wire::work::{OutcomeBody, ReportBody};
use tidemill_core::{ErrorClass, JobId, QueueRules, Settlement, Token, WorkerId};
use tidemill_store::run::RunWrites;
use tidemill_store::{ClaimedJob, SettleItem};
use tracing::Instrument;

use crate::Fail;
use crate::engine::Tidemill;
use crate::engine::heard::Heard;
use crate::engine::judge::{
    come_out, judge, pause_asked, too_late, turn_back, waiting_without_secrets,
};
use crate::engine::trace;
use crate::worker::context::Context;
use crate::worker::durable::drive::{Driven, drive, look, parked};
use crate::worker::durable::{End, Trouble};
use crate::worker::guarded::Guarded;
use crate::worker::middleware::{Attempted, Next};
use crate::worker::registry::{Handler, PANIC_CLASS, panic_message};
use crate::worker::shop::{Live, Shop, Why};
use crate::worker::slots::Slot;
use crate::worker::wire;

/// By what an attempt holds its job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease {
    /// Who claimed it.
    pub(crate) worker: WorkerId,
    pub(crate) token: Token,
    /// When it claimed it, by the store's clock.
    pub(crate) since: Heard,
}

/// Runs one attempt. `None` when its lease was lost on the way: there is nothing to settle.
pub(crate) async fn execute(
    shop: &Arc<Shop>,
    mill: &Tidemill,
    claimed: ClaimedJob,
    lease: Lease,
    slot: Slot,
) -> Option<SettleItem> {
    let (started_at, token) = (mill.0.clock.now(), lease.token);
    let present = lease.since.present(&mill.0.clock);
    let live = enter(shop, &claimed, lease);
    let mut late = too_late(mill, [&claimed], present, live.cancel.cancelled()).await;
    if let Some(settlement) = late.remove(&claimed.job.id) {
        shop.leave(claimed.job.id, token);
        let is_lost = live.why() == Some(Why::LeaseLost);
        return (!is_lost).then(|| unstarted(mill, claimed, token, settlement));
    }
    // A claim takes only kinds that have a handler; another node will know this one.
    let Some(handler) = shop.registry.get(&claimed.job.kind) else {
        let spent = claimed.attempt.saturating_sub(1);
        let again = Settlement::Again { delay: Duration::from_secs(1), spent, failure: None };
        shop.leave(claimed.job.id, token);
        return Some(unstarted(mill, claimed, token, again));
    };
    let decided = decide(shop, mill, &claimed, lease, &live, handler, slot).await;
    let (settlement, more) = decided?;
    let ClaimedJob { job, attempt, lost, gates, .. } = claimed;
    let More { decided, run, asked } = more;
    let gates = come_out(&mill.0.rules.known().book, &job, gates, &settlement, asked);
    Some(SettleItem { job, token, attempt, lost, started_at, gates, settlement, decided, run })
}

/// What is settled for a job that was claimed and not started.
pub(crate) fn unstarted(
    mill: &Tidemill,
    claimed: ClaimedJob,
    token: Token,
    settlement: Settlement,
) -> SettleItem {
    let ClaimedJob { job, attempt, lost, gates, .. } = claimed;
    let gates = turn_back(&mill.0.rules.known().book, &job, gates, &settlement);
    let (started_at, attempt) = (mill.0.clock.now(), attempt.saturating_sub(1));
    let (decided, run) = (false, None);
    SettleItem { job, token, attempt, lost, started_at, gates, settlement, decided, run }
}

/// From now on an attempt can be told to end.
fn enter(shop: &Shop, claimed: &ClaimedJob, lease: Lease) -> Live {
    let live = Live::new(lease.token);
    shop.enter(claimed.job.id, lease.worker, live.clone());
    live
}

/// What is to be written, and whether a transaction of the handler's may have decided otherwise.
async fn decide(
    shop: &Arc<Shop>,
    mill: &Tidemill,
    claimed: &ClaimedJob,
    lease: Lease,
    live: &Live,
    handler: &Handler,
    slot: Slot,
) -> Option<(Settlement, More)> {
    let job = &claimed.job;
    let span = trace::attempt(job, claimed.attempt, lease.token.0);
    let known = mill.0.rules.known();
    let present = || lease.since.present(&mill.0.clock);
    let left = known.deadlines(job).finish_by().map(|by| by.duration_since(present()));
    let told = Told {
        run_timeout: known.book.of(&job.queue).and_then(QueueRules::run_timeout),
        left: left.map(|left| Duration::try_from(left).unwrap_or_default()),
    };
    let limit = Limit::of(shop, claimed, handler, told);
    let attempt = attempt(shop, claimed, lease, live, handler, limit, slot);
    let (came, cx, decided) = attempt.instrument(span.clone()).await?;
    let asked = if let Came::Ended(ended) = &came { pause_asked(ended) } else { None };
    let settlement = match came {
        Came::Ended(ended) => judge(mill, claimed, &handler.settings.retry, ended, present()),
        Came::Waits(mut waiting) => {
            waiting_without_secrets(mill, job, &mut waiting);
            Settlement::Wait(Box::new(waiting))
        }
    };
    trace::came_to(&span, &settlement);
    let end = match &settlement {
        Settlement::Done { .. } => End::Done,
        Settlement::Dead { .. } => End::Dead,
        _ => End::Open,
    };
    let run = cx.run().last_writes(&shop.options.version, end, cx.present()).map(Box::new);
    Some((settlement, More { decided, run, asked }))
}

/// Runs one attempt for a boss elsewhere, who judges what became of it. `None` when its lease was lost on the way.
pub(crate) async fn report(
    shop: &Arc<Shop>,
    claimed: ClaimedJob,
    lease: Lease,
    slot: Slot,
    told: Told,
) -> Option<ReportBody> {
    let (job, token, started_at) = (&claimed.job, lease.token, shop.boss.clock().now());
    // A claim takes only kinds that have a handler; another node will know this one.
    let Some(handler) = shop.registry.get(&job.kind) else {
        return Some(wire::report(job.id, token, OutcomeBody::GiveBack {}));
    };
    let span = trace::attempt(job, claimed.attempt, token.0);
    let limit = Limit::of(shop, &claimed, handler, told);
    let live = enter(shop, &claimed, lease);
    let attempt = attempt(shop, &claimed, lease, &live, handler, limit, slot);
    let (came, cx, _) = attempt.instrument(span.clone()).await?;
    let end = match &came {
        Came::Ended(Ended::Done { .. }) => End::Done,
        Came::Ended(Ended::Failed { class, .. }) if class.is_final() => End::Dead,
        _ => End::Open,
    };
    if let Came::Ended(Ended::Failed { class, message, .. }) = &came {
        trace::failed_as(&span, *class, message);
    }
    let run = cx.run().last_writes(&shop.options.version, end, cx.present());
    let report = told_elsewhere(job.id, token, came, run);
    Some(ReportBody {
        started_at: Some(started_at),
        ..wire::by_policy(report, &handler.settings.retry)
    })
}

/// What is reported of an attempt. One that cannot be put into words is dead: it would be the same the next time.
fn told_elsewhere(id: JobId, token: Token, came: Came, run: Option<RunWrites>) -> ReportBody {
    let anew = run.as_ref().is_some_and(|run| run.renewal.is_some());
    let outcome = match came {
        Came::Ended(ended) => wire::ended(ended),
        Came::Waits(waiting) => Ok(wire::waits(waiting, anew)),
    };
    match (outcome, run.map(wire::run).transpose()) {
        (Ok(outcome), Ok(run)) => ReportBody { run, ..wire::report(id, token, outcome) },
        (Err(error), _) | (_, Err(error)) => {
            let message = format!("its outcome cannot be kept: {error}");
            let class = ErrorClass::InDoubt;
            wire::report(id, token, OutcomeBody::Failed { class, message, retry_after: None })
        }
    }
}

/// What is settled beside it.
struct More {
    /// Its handler asked to be settled in a transaction of its own.
    decided: bool,
    run: Option<Box<RunWrites>>,
    /// For how long the other side asked to be left alone.
    asked: Option<Duration>,
}

/// What an attempt came to.
enum Came {
    Ended(Ended),
    /// Its run waits.
    Waits(Waiting),
}

/// Runs the handler until it ends, waits, or is made to end. Answers what it came to, with its context, and whether a
/// transaction of the handler's may have decided otherwise.
async fn attempt(
    shop: &Arc<Shop>,
    claimed: &ClaimedJob,
    lease: Lease,
    live: &Live,
    handler: &Handler,
    limit: Limit,
    slot: Slot,
) -> Option<(Came, Context, bool)> {
    let cx = Context::new(shop, claimed, lease.since, live, slot);
    let came = run(shop, &cx, handler, live, limit).await;
    shop.leave(claimed.job.id, lease.token);
    // What a transaction of the handler's own still writes is waited for.
    let decided = cx.end() || cx.run().is_recording();
    // What was said is written before the job can be seen to have ended.
    tokio::select! {
        biased;
        () = cx.voice().end() => {}
        () = live.abandon.cancelled() => {}
    }
    came.map(|came| (came, cx, decided))
}

/// What is known of a job's time beside its own wishes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told {
    /// How long an attempt may run by the rules of its queue.
    pub run_timeout: Option<Duration>,
    /// Until it must have finished.
    pub left: Option<Duration>,
}

impl Told {
    /// The same after so long.
    pub(crate) fn after(self, waited: Duration) -> Self {
        Self { left: self.left.map(|left| left.saturating_sub(waited)), ..self }
    }
}

/// How long an attempt may run: as one attempt, and until the whole job must have finished.
#[derive(Debug, Clone, Copy)]
struct Limit {
    timeout: Duration,
    left: Option<Duration>,
}

impl Limit {
    fn of(shop: &Shop, claimed: &ClaimedJob, handler: &Handler, told: Told) -> Self {
        let own = claimed.job.options.run_timeout_ms.map(Duration::from_millis);
        let of_kind = own.or(handler.settings.run_timeout);
        let timeout = of_kind.or(told.run_timeout).unwrap_or(shop.options.run_timeout);
        Self { timeout, left: told.left.filter(|left| *left < timeout) }
    }

    /// Completes when the attempt is over its time; answers what is said of it.
    async fn over(self) -> String {
        // The one who judges must see that the deadline has passed: a timer may be early by less than this.
        const SURELY: Duration = Duration::from_millis(2);
        let Self { timeout, left } = self;
        tokio::time::sleep(left.map_or(timeout, |left| left + SURELY)).await;
        match left {
            Some(_) => format!("{NOT_IN_TIME}, and was stopped"),
            None => format!("it ran longer than its limit of {timeout:?}"),
        }
    }
}

async fn run(
    shop: &Shop,
    cx: &Context,
    handler: &Handler,
    live: &Live,
    limit: Limit,
) -> Option<Came> {
    let next = Next { hooks: &shop.hooks, handler };
    let work = pin!(Some(next.run(cx)));
    let mut work = pin!(drive(cx, shop, Guarded::new(work)));
    let grace = async {
        live.cancel.cancelled().await;
        // A stop has its own grace, counted by the one who stops.
        if live.why() == Some(Why::Cancelled) {
            tokio::time::sleep(shop.options.cancel_grace).await;
        } else {
            live.abandon.cancelled().await;
        }
    };
    let ended = tokio::select! {
        biased;
        driven = &mut work => match driven {
            Driven::Ended(Ok(attempted)) => {
                return match look(cx).await {
                    Ok(()) => ended(cx, live, attempted),
                    Err(Trouble::Park(why)) => {
                        let told = told(live).map(|told| told.map(Came::Ended));
                        told.unwrap_or_else(|| Some(Came::Waits(parked(cx, why))))
                    }
                    Err(Trouble::Fail(fail)) => ended(cx, live, Err(fail)),
                    Err(Trouble::Stale | Trouble::Renew(..)) => None,
                };
            }
            Driven::Ended(Err(panic)) => {
                let panicked = failed(PANIC_CLASS, panic_message(panic.as_ref()));
                told(live).unwrap_or(Some(panicked))
            }
            Driven::Waits(waiting) => return Some(Came::Waits(waiting)),
            Driven::Fails(fail) => told(live).unwrap_or_else(|| Some(fail.ended())),
            Driven::Told => told(live).unwrap_or(Some(Ended::GivenBack)),
            Driven::Stale | Driven::Stands(_) => None,
        },
        message = limit.over() => {
            live.cancel.cancel();
            // Whoever listens can end in order, before another attempt begins. Others are dropped where they stand.
            if cx.listens() {
                tokio::select! {
                    _ = &mut work => {}
                    () = live.abandon.cancelled() => {}
                    () = tokio::time::sleep(shop.options.cancel_grace) => {}
                }
            }
            told(live).unwrap_or(Some(failed(ErrorClass::Ambiguous, message)))
        }
        () = live.abandon.cancelled() => told(live).unwrap_or(Some(Ended::GivenBack)),
        () = grace => told(live).unwrap_or(Some(Ended::GivenBack)),
    };
    ended.map(Came::Ended)
}

/// What a handler came to that ended by itself. One that leaves out what its journal has is parked.
fn ended(cx: &Context, live: &Live, attempted: Attempted) -> Option<Came> {
    if let Err(fail) = &attempted
        && let Some(told) = told(live)
    {
        tracing::debug!(%fail, "an attempt that was told to end has ended");
        return told.map(Came::Ended);
    }
    let is_final = attempted.as_ref().err().is_none_or(Fail::is_final);
    if is_final && let Some(why) = cx.run().left_out() {
        return Some(Came::Waits(parked(cx, why)));
    }
    Some(Came::Ended(match attempted {
        Ok(output) => Ended::Done { output, follow_ups: cx.take_follow_ups() },
        Err(fail) => {
            cx.run().ended_with(&fail);
            fail.ended()
        }
    }))
}

/// What an attempt that was told to end comes to, whatever its handler says.
#[expect(clippy::option_option, reason = "told nothing, told and nothing to settle, told")]
fn told(live: &Live) -> Option<Option<Ended>> {
    Some(match live.why()? {
        Why::Cancelled => Some(Ended::Cancelled("called off while it ran".to_owned())),
        Why::Stopping | Why::CutOff => Some(Ended::GivenBack),
        Why::LeaseLost => None,
    })
}

fn failed(class: ErrorClass, message: String) -> Ended {
    Ended::Failed { class, message, retry_after: None }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use jiff::Timestamp;
    use tidemill_core::{Payload, Retry};
    use tidemill_store::ClaimRequest;

    use super::*;
    use crate::error::Result;
    use crate::worker::durable::looking::For;
    use crate::worker::job::{Enqueue, Settings};
    use crate::worker::wish::{Had, Lanes};

    /// What is settled of the only attempt of a job that was told to end before it panics or runs too long.
    async fn settled(why: Why, panics: bool) -> Result<Option<Settlement>> {
        let mill = Tidemill::open("sqlite::memory:").await?;
        let handler = move |_: Payload, _cx| async move {
            assert!(!panics, "out of luck");
            std::future::pending().await
        };
        let worker =
            mill.worker().run_timeout(Duration::from_millis(5)).cancel_grace(Duration::MAX);
        let shop = worker.handle_raw("k", Settings::default(), handler).into_shop()?;
        shop.register().await?;
        let job = Enqueue::raw("k", "1").retry(Retry::never());
        let id = mill.enqueue(job).await?.id();
        let known = shop.boss.known();
        let lanes = Lanes::of(&shop.groups[0].queues, &known, &Had::default());
        let mut claim = mill.store().claim(shop.wish(&lanes, &known, 1)).await?;
        let (claimed, token) = (claim.jobs.remove(0), claim.token.unwrap_or(Token(0)));
        match why {
            Why::Cancelled => shop.call_off(&[id]),
            why => shop.end_all(why),
        }
        let lease = Lease { worker: shop.worker(), token, since: Heard::now(claim.now) };
        let item = execute(&shop, &mill, claimed, lease, shop.groups[0].slots.take()).await;
        Ok(item.map(|item| item.settlement))
    }

    #[tokio::test]
    async fn an_attempt_that_was_told_to_end_comes_to_that_however_it_ends() -> Result<()> {
        let reason = "called off while it ran".to_owned();
        let given_back = Settlement::Again { delay: Duration::ZERO, spent: 0, failure: None };
        for (why, expected) in
            [(Why::Cancelled, Settlement::Cancelled { reason }), (Why::Stopping, given_back)]
        {
            for panics in [true, false] {
                let settled = settled(why, panics).await?;
                assert_eq!(settled.as_ref(), Some(&expected), "{why:?}, panics: {panics}");
            }
        }
        Ok(())
    }

    #[tokio::test]
    async fn an_attempt_for_which_there_is_no_handler_has_not_begun() -> Result<()> {
        let mill = Tidemill::open("sqlite::memory:").await?;
        let other = |payload: Payload, _cx| async { Ok(payload) };
        let shop = mill.worker().handle_raw("other", Settings::default(), other).into_shop()?;
        shop.register().await?;
        mill.enqueue(Enqueue::raw("k", "1")).await?;
        let known = shop.boss.known();
        let lanes = Lanes::of(&shop.groups[0].queues, &known, &Had::default());
        let ask = ClaimRequest { kinds: None, ..shop.wish(&lanes, &known, 1) };
        let mut claim = mill.store().claim(ask).await?;
        let (claimed, token) = (claim.jobs.remove(0), claim.token.unwrap_or(Token(0)));
        let lease = Lease { worker: shop.worker(), token, since: Heard::now(claim.now) };
        let item = execute(&shop, &mill, claimed, lease, shop.groups[0].slots.take()).await;
        assert_eq!(item.map(|item| item.attempt), Some(0));
        Ok(())
    }

    /// A handler may keep a call of the store that it polls no more. Who polls it then is no stranger's guard.
    #[tokio::test]
    async fn a_call_of_the_store_that_panics_where_nobody_polls_it_ends_the_attempt() -> Result<()>
    {
        let mill = Tidemill::open("sqlite::memory:").await?;
        let handler = |_: Payload, cx: Context| async move {
            let call = async {
                tokio::task::yield_now().await;
                panic!("out of luck");
            };
            let mut call = pin!(cx.at_store::<()>(For::Answer, call));
            poll_fn(|task| Poll::Ready(call.as_mut().poll(task).is_ready())).await;
            cx.step("one").run(|_| async { Ok(()) }).await?;
            std::future::pending().await
        };
        let shop = mill.worker().handle_raw("k", Settings::default(), handler).into_shop()?;
        shop.register().await?;
        mill.enqueue(Enqueue::raw("k", "1")).await?;
        let known = shop.boss.known();
        let lanes = Lanes::of(&shop.groups[0].queues, &known, &Had::default());
        let mut claim = mill.store().claim(shop.wish(&lanes, &known, 1)).await?;
        let (claimed, token) = (claim.jobs.remove(0), claim.token.unwrap_or(Token(0)));
        let lease = Lease { worker: shop.worker(), token, since: Heard::now(claim.now) };
        let item = execute(&shop, &mill, claimed, lease, shop.groups[0].slots.take()).await;
        let failure = match item.map(|item| item.settlement) {
            Some(Settlement::Again { failure: Some(failure), .. }) => failure,
            other => panic!("{other:?}"),
        };
        assert_eq!(failure.class, PANIC_CLASS);
        assert!(failure.message.ends_with("panicked: out of luck"), "{failure:?}");
        Ok(())
    }

    #[tokio::test]
    async fn an_attempt_of_which_nobody_knows_whether_it_is_too_late_ends_when_it_is_told_to()
    -> Result<()> {
        let delay = Duration::from_millis(200);
        let put_off = Settlement::Again { delay, spent: 0, failure: None };
        for (why, expected) in [(Why::Stopping, Some(put_off)), (Why::LeaseLost, None)] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("mill.db");
            let mill = Tidemill::open(&format!("sqlite:{}", file.display())).await?;
            let handler = |payload: Payload, _cx| async { Ok(payload) };
            let shop = mill.worker().handle_raw("k", Settings::default(), handler).into_shop()?;
            shop.register().await?;
            let job = Enqueue::raw("k", "1").start_within(Duration::from_secs(1));
            mill.enqueue(job).await?;
            let known = shop.boss.known();
            let lanes = Lanes::of(&shop.groups[0].queues, &known, &Had::default());
            let mut claim = mill.store().claim(shop.wish(&lanes, &known, 1)).await?;
            let (claimed, token) = (claim.jobs.remove(0), claim.token.unwrap_or(Token(0)));
            let hours_later = Heard::now(claim.now + Duration::from_hours(2));
            let lease = Lease { worker: shop.worker(), token, since: hours_later };
            let aside = rusqlite::Connection::open(&file).unwrap();
            aside.execute_batch("drop view tidemill_begun").unwrap();
            let attempt = execute(&shop, &mill, claimed, lease, shop.groups[0].slots.take());
            let (item, ()) = tokio::join!(attempt, async { shop.end_all(why) });
            assert_eq!(item.map(|item| item.settlement), expected, "{why:?}");
            mill.close().await;
        }
        Ok(())
    }

    /// What is settled of an attempt of a job that has an hour, enqueued and claimed at a time which only the store's
    /// clock shows.
    async fn settled_elsewhen(handler_fails: bool) -> Result<Option<Settlement>> {
        let mill = Tidemill::open("sqlite::memory:").await?;
        let handler = move |payload: Payload, _cx| async move {
            if handler_fails { Err(Fail::transient("not yet")) } else { Ok(payload) }
        };
        let worker = mill.worker().handle_raw("k", Settings::default(), handler);
        let shop = worker.into_shop()?;
        let job = mill.checked(Enqueue::raw("k", "1").finish_within(Duration::from_hours(1)))?;
        let then = Timestamp::UNIX_EPOCH;
        let job = tidemill_core::Job {
            id: job.id,
            kind: job.kind,
            queue: job.queue,
            priority: job.priority,
            tenant: None,
            key: None,
            unique_key: None,
            payload: job.payload,
            options: job.options,
            created_at: then,
        };
        let (attempt, lost, gates, has_run) = (1, 0, Vec::new(), false);
        let claimed = ClaimedJob { job: job.into(), attempt, lost, due_at: then, gates, has_run };
        let lease = Lease { worker: shop.worker(), token: Token(1), since: Heard::now(then) };
        let item = execute(&shop, &mill, claimed, lease, shop.groups[0].slots.take()).await;
        Ok(item.map(|item| item.settlement))
    }

    #[tokio::test]
    async fn a_deadline_is_judged_by_the_clock_of_the_store() -> Result<()> {
        let done = settled_elsewhen(false).await?;
        assert!(matches!(done, Some(Settlement::Done { .. })), "{done:?}");
        let failed = settled_elsewhen(true).await?;
        assert!(matches!(failed, Some(Settlement::Again { .. })), "{failed:?}");
        Ok(())
    }
}
