//! Whose turn it is: what `why` says of bands and tenants, alone, together, and beside other gates.

use std::sync::Arc;
use std::time::Duration;

use tidemill::core::why::{Gate, Why};
use tidemill::{Enqueue, Fail, JobId, Limit, Per, Priority, Rate, Running, State, Tidemill};
use tidemill_testkit::eventually::eventually;
use tokio::sync::Semaphore;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    a_band_says_its_share_and_what_goes_before,
    a_band_of_weight_nothing_waits_for_all_others,
    jobs_of_one_band_wait_in_their_order,
    a_tenant_says_its_share_and_its_place_in_turn,
    band_and_tenant_are_named_together,
    turns_are_named_beside_a_pause_and_a_limit,
    what_waits_for_the_clock_has_no_turn_yet,
    a_rate_says_when_a_job_behind_others_starts,
    what_a_gate_holds_back_starts_behind_those_held_before_it,
    a_start_that_others_decide_is_not_foretold,
);

const SLOT: Gate = Gate::Slot { workers: 1, slots: 1 };
const HOUR: Duration = Duration::from_hours(1);

fn echo() -> Enqueue {
    Enqueue::from(Echo::new("x")).queue("q")
}

async fn put(mill: &Tidemill, job: Enqueue) -> JobId {
    mill.enqueue(job).await.unwrap().id()
}

async fn put_many(mill: &Tidemill, number: usize, job: impl Fn() -> Enqueue) -> Vec<JobId> {
    let receipts = mill.enqueue_many((0..number).map(|_| job())).await.unwrap();
    receipts.iter().map(tidemill::Receipt::id).collect()
}

async fn why(mill: &Tidemill, id: JobId) -> Why {
    mill.why(id).await.unwrap()
}

/// A worker, one slot of which a job holds until a permit is given.
struct Busy {
    worker: Running,
    go: Arc<Semaphore>,
}

impl Busy {
    /// With no other slot.
    async fn start(mill: &Tidemill) -> Self {
        Self::with(mill, 1).await
    }

    async fn with(mill: &Tidemill, slots: usize) -> Self {
        let go = Arc::new(Semaphore::new(0));
        let held = Arc::clone(&go);
        let handler = move |echo: Echo, _| {
            let held = Arc::clone(&held);
            async move {
                let passed = held.acquire().await.map_err(|_| Fail::permanent("closed"))?;
                drop(passed);
                Ok(echo.text)
            }
        };
        let worker =
            mill.worker().queues(["q"]).slots(slots).handle(handler).start().await.unwrap();
        let first = put(mill, echo().tenant("first")).await;
        eventually("the slot to be taken", SOON, async || {
            let view = mill.job(first).await.unwrap().unwrap();
            (view.state == State::Running).then_some(())
        })
        .await;
        Self { worker, go }
    }

    /// Lets everything run, to the last.
    async fn end(self, mill: &Tidemill, last: JobId) {
        self.go.add_permits(1);
        mill.result::<Echo>(last, SOON).await.unwrap();
        self.worker.stop().await;
    }
}

fn band(band: Priority, share: (u32, u32), higher: u64, equal: u64) -> Gate {
    Gate::Band { band, weight: share.0, weights: share.1, higher, equal }
}

fn tenant(tenant: Option<&str>, share: (u32, u32), turn: (u64, u64), ahead: u64) -> Gate {
    let (place, tenants) = turn;
    let tenant = tenant.map(str::to_owned);
    Gate::Tenant { tenant, weight: share.0, weights: share.1, place, tenants, ahead }
}

async fn a_band_says_its_share_and_what_goes_before(kit: Kit) {
    let mill = kit.open().await;
    let busy = Busy::start(&mill).await;
    let low = put(&mill, echo().priority(Priority::Low)).await;
    assert_eq!(why(&mill, low).await.gates, [SLOT], "nothing else waits");
    put_many(&mill, 5, || echo().priority(Priority::Urgent)).await;
    put_many(&mill, 2, || echo().priority(Priority::High)).await;
    let urgent = put(&mill, echo().priority(Priority::Urgent)).await;
    let said = why(&mill, low).await;
    assert_eq!(said.gates, [band(Priority::Low, (1, 13), 8, 0), SLOT]);
    assert_eq!(
        said.to_string(),
        "its band low gets 1 of 13 starts; before it: 8 jobs of other bands; \
         it waits for the slot of the one worker"
    );
    assert_eq!(said.expected_at, None);
    assert_eq!(why(&mill, urgent).await.gates, [band(Priority::Urgent, (8, 13), 0, 5), SLOT]);
    busy.end(&mill, low).await;
}

async fn a_band_of_weight_nothing_waits_for_all_others(kit: Kit) {
    let mill = kit.open().await;
    let busy = Busy::start(&mill).await;
    mill.change_queue("q", |rules| rules.weights.normal = 0).await.unwrap();
    let normal = put(&mill, echo()).await;
    let low = put(&mill, echo().priority(Priority::Low)).await;
    assert_eq!(why(&mill, normal).await.gates, [band(Priority::Normal, (0, 1), 1, 0), SLOT]);
    assert_eq!(why(&mill, low).await.gates, [SLOT]);
    busy.end(&mill, normal).await;
}

async fn jobs_of_one_band_wait_in_their_order(kit: Kit) {
    let mill = kit.open().await;
    let busy = Busy::start(&mill).await;
    let ids = put_many(&mill, 3, echo).await;
    let last = put(&mill, echo()).await;
    assert_eq!(why(&mill, ids[0]).await.gates, [SLOT]);
    assert_eq!(why(&mill, ids[2]).await.gates, [band(Priority::Normal, (2, 2), 0, 2), SLOT]);
    assert_eq!(why(&mill, last).await.gates, [band(Priority::Normal, (2, 2), 0, 3), SLOT]);
    busy.end(&mill, last).await;
}

async fn a_tenant_says_its_share_and_its_place_in_turn(kit: Kit) {
    let mill = kit.open().await;
    let heavier = |rules: &mut tidemill::QueueRules| {
        rules.tenant_weights.insert("large".into(), 3);
    };
    mill.change_queue("q", heavier).await.unwrap();
    let busy = Busy::start(&mill).await;
    let small = put(&mill, echo().tenant("small")).await;
    assert_eq!(why(&mill, small).await.gates, [SLOT], "it is alone");
    let large = put_many(&mill, 4, || echo().tenant("large")).await;
    let nobodys = put(&mill, echo()).await;
    // Turns go on behind `first`, who was served last.
    let gates = why(&mill, small).await.gates;
    assert_eq!(gates, [tenant(Some("small"), (1, 5), (2, 3), 0), SLOT]);
    assert_eq!(
        why(&mill, large[3]).await.gates,
        [band(Priority::Normal, (2, 2), 0, 4), tenant(Some("large"), (3, 5), (1, 3), 3), SLOT]
    );
    let said = why(&mill, nobodys).await;
    assert_eq!(said.gates[1], tenant(None, (1, 5), (3, 3), 0));
    assert!(
        said.to_string().contains(
            "jobs without a tenant are number 3 of 3 in turn, with 1 of 5 starts of its band; \
             before it: 0 jobs of its own"
        ),
        "{said}"
    );
    busy.end(&mill, nobodys).await;
}

async fn band_and_tenant_are_named_together(kit: Kit) {
    let mill = kit.open().await;
    let busy = Busy::start(&mill).await;
    put_many(&mill, 6, || echo().priority(Priority::Urgent).tenant("large")).await;
    put_many(&mill, 2, || echo().tenant("small")).await;
    put_many(&mill, 3, || echo().tenant("large")).await;
    let last = put(&mill, echo().tenant("small")).await;
    assert_eq!(
        why(&mill, last).await.gates,
        [band(Priority::Normal, (2, 10), 6, 5), tenant(Some("small"), (1, 2), (2, 2), 2), SLOT]
    );
    busy.end(&mill, last).await;
}

async fn turns_are_named_beside_a_pause_and_a_limit(kit: Kit) {
    let mill = kit.open().await;
    mill.change_queue("q", |rules| rules.concurrency = Some(1)).await.unwrap();
    let busy = Busy::start(&mill).await;
    put_many(&mill, 2, || echo().tenant("a")).await;
    let last = put(&mill, echo().tenant("b")).await;
    let full = Gate::Limit {
        limit: "the limit of queue q".into(),
        inside: 1,
        most: Some(1),
        workers: vec![busy.worker.id()],
        is_broken: false,
        opens_at: None,
    };
    let turns = [band(Priority::Normal, (2, 2), 0, 2), tenant(Some("b"), (1, 2), (2, 2), 0)];
    let with = |gates: &[Gate]| [gates, &turns].concat();
    assert_eq!(why(&mill, last).await.gates, with(std::slice::from_ref(&full)));
    mill.pause("q").await.unwrap();
    let paused = Gate::Paused { queue: "q".into(), rule: "q".into() };
    assert_eq!(why(&mill, last).await.gates, with(&[paused, full]));
    mill.resume("q").await.unwrap();
    busy.end(&mill, last).await;
}

async fn what_waits_for_the_clock_has_no_turn_yet(kit: Kit) {
    let mill = kit.open().await;
    let busy = Busy::start(&mill).await;
    let later = put(&mill, echo().delay(HOUR)).await;
    let last = put_many(&mill, 3, || echo().tenant("a")).await.pop().unwrap();
    let at = mill.job(later).await.unwrap().unwrap().due_at.unwrap();
    let said = why(&mill, later).await;
    assert_eq!((said.gates, said.expected_at), (vec![Gate::Due { at, attempt: 0 }], Some(at)));
    busy.end(&mill, last).await;
}

/// A gate that the clock opens.
fn opening(why: &Why) -> tidemill::Timestamp {
    let Some(Gate::Limit { opens_at: Some(at), .. }) = why.gates.first() else { panic!("{why}") };
    *at
}

async fn a_rate_says_when_a_job_behind_others_starts(kit: Kit) {
    let mill = kit.open().await;
    let rate = Some(Rate { jobs: 1, per_ms: 3_600_000, burst: 1 });
    mill.change_queue("q", |rules| rules.rate = rate).await.unwrap();
    let busy = Busy::with(&mill, 2).await;
    let ids = put_many(&mill, 4, echo).await;
    for (at, id) in ids.iter().enumerate() {
        let said = why(&mill, *id).await;
        assert_eq!(said.expected_at, Some(opening(&said) + HOUR * at as u32), "{at}: {said}");
    }
    mill.change_queue("q", |rules| rules.rate = None).await.unwrap();
    busy.end(&mill, ids[3]).await;
}

async fn what_a_gate_holds_back_starts_behind_those_held_before_it(kit: Kit) {
    let mill = kit.open().await;
    let rate = Some(Rate { jobs: 1, per_ms: 3_600_000, burst: 1 });
    mill.set_limit("q", "crm", Some(Limit { per: Per::Key, rate, ..Limit::default() }))
        .await
        .unwrap();
    let handler = |echo: Echo, _| async move { Ok(echo.text) };
    let worker = mill.worker().queues(["q"]).handle(handler).start().await.unwrap();
    let ids = put_many(&mill, 4, || echo().key("x")).await;
    mill.result::<Echo>(ids[0], SOON).await.unwrap();
    for (at, id) in ids[1..].iter().enumerate() {
        eventually("it to be held", SOON, async || mill.job(*id).await.unwrap().unwrap().gate)
            .await;
        let said = why(&mill, *id).await;
        assert_eq!(said.expected_at, Some(opening(&said) + HOUR * at as u32), "{at}: {said}");
    }
    worker.stop().await;
}

async fn a_start_that_others_decide_is_not_foretold(kit: Kit) {
    let mill = kit.open().await;
    let rate = Some(Rate { jobs: 1, per_ms: 3_600_000, burst: 1 });
    mill.change_queue("q", |rules| rules.rate = rate).await.unwrap();
    let busy = Busy::start(&mill).await;
    put_many(&mill, 2, || echo().priority(Priority::Urgent)).await;
    let low = put(&mill, echo().priority(Priority::Low)).await;
    let said = why(&mill, low).await;
    assert!(opening(&said) > tidemill::Timestamp::UNIX_EPOCH);
    assert_eq!(said.expected_at, None, "bands share the rate");
    mill.change_queue("q", |rules| rules.rate = None).await.unwrap();
    busy.end(&mill, low).await;
}
