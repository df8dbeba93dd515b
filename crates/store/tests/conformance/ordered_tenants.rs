//! Order among tenants: the same key of two of them is two lines, and neither holds up the other.

use tidemill_core::dead::Triage;
use tidemill_core::flow::{After, Step, Work};
use tidemill_core::{
    JobId, NewJob, OnDead, OnDuplicate, Payload, Scope, Settlement, State, UniqueKey,
};
use tidemill_store::{CancelAnswer, Claim, JobFilter, Receipt};

use super::flows::{start, step, tend};
use super::kit::{Kit, cancelled, dead, done, ids, item, ordered};
use super::ordered::states;

over_both_stores!(
    a_dead_one_blocks_only_its_tenant,
    one_batch_makes_a_line_for_each_tenant,
    a_replayed_one_is_first_of_its_tenant_again,
    a_skipped_one_goes_to_the_end_of_its_tenant,
    giving_up_lets_only_its_tenant_pass,
    calling_off_moves_only_its_tenant,
    ends_in_one_settle_move_the_line_of_each_tenant,
    a_poisoned_one_blocks_only_its_tenant,
    a_replacement_may_go_to_the_line_of_another_tenant,
    within_a_batch_it_goes_to_the_line_of_the_last_tenant,
    a_kept_one_enters_the_line_of_its_tenant,
    follow_ups_take_their_turn_in_their_tenant,
    a_step_of_a_flow_waits_for_its_own_tenant_alone,
);

const TENANTS: [Option<&str>; 3] = [None, Some("a"), Some("b")];

/// One of the line of this tenant; all have the same queue and key.
fn of(tenant: Option<&str>, on_dead: OnDead) -> NewJob {
    NewJob { tenant: tenant.map(str::to_owned), ..ordered("order:42", on_dead) }
}

/// Two of each tenant, in turn.
async fn pairs(kit: &Kit, on_dead: OnDead) -> [[JobId; 2]; 3] {
    let jobs = [(); 2].map(|()| TENANTS.map(|tenant| of(tenant, on_dead)));
    let all = [0, 1, 2].map(|at| [jobs[0][at].id, jobs[1][at].id]);
    for job in jobs.into_iter().flatten() {
        kit.put(job).await;
    }
    all
}

/// Where the job of this tenant stands in a claim.
fn of_tenant(claim: &Claim, tenant: Option<&str>) -> usize {
    claim.jobs.iter().position(|taken| taken.job.tenant.as_deref() == tenant).unwrap()
}

/// Runs the first of each line at once: that of `a` dies, the others are called off by hand.
async fn kill_that_of_a(kit: &Kit, on_dead: OnDead) -> [[JobId; 2]; 3] {
    let all = pairs(kit, on_dead).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 9).await;
    assert_eq!(claim.jobs.len(), 3, "the first of each tenant");
    let ends = TENANTS.map(|tenant| {
        let how = if tenant == Some("a") { dead("no") } else { cancelled("enough") };
        item(&claim, of_tenant(&claim, tenant), how)
    });
    kit.store.settle(worker, ends.to_vec()).await.unwrap();
    kit.store.deregister(worker).await.unwrap();
    all
}

async fn a_dead_one_blocks_only_its_tenant(kit: &Kit) {
    let [none, a, b] = kill_that_of_a(kit, OnDead::Block).await;
    assert_eq!(
        states(kit, [none[1], a[1], b[1]]).await,
        [State::Ready, State::Blocked, State::Ready]
    );
    let line = kit.store.line(a[1]).await.unwrap().unwrap();
    assert_eq!((line.head, line.ahead, line.dead), (a[0], 1, true));
    let late = kit.put(of(Some("b"), OnDead::Block)).await;
    let line = kit.store.line(late).await.unwrap().unwrap();
    assert_eq!((line.head, line.ahead, line.dead), (b[1], 1, false), "of its own tenant");
    let filter = JobFilter { state: Some(State::Blocked), ..JobFilter::default() };
    let blocked = kit.store.jobs(&filter).await.unwrap().jobs;
    assert_eq!(blocked.iter().map(|view| view.job.id).collect::<Vec<_>>(), [late, a[1]]);
    let fresh = kit.put(of(Some("c"), OnDead::Block)).await;
    assert_eq!(kit.state(fresh).await, State::Ready);
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 5);
    kit.store.cancel(vec![none[1], b[1], late, fresh], "enough").await.unwrap();
    kit.store.dead_replay(&[a[0]], "ada".into(), None).await.unwrap();
    kit.run_to(a[0], done()).await;
    kit.run_to(a[1], done()).await;
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 0);
}

async fn one_batch_makes_a_line_for_each_tenant(kit: &Kit) {
    let jobs: Vec<_> = (0..9).map(|n| of(TENANTS[n % 3], OnDead::Block)).collect();
    let all: Vec<_> = jobs.iter().map(|job| job.id).collect();
    kit.store.enqueue(jobs).await.unwrap();
    let worker = kit.worker().await;
    for turn in all.chunks(3) {
        let claim = kit.take(worker, 9).await;
        let mut came = ids(&claim);
        came.sort_unstable();
        assert_eq!(came, turn, "one of each tenant, in order");
        let ends = (0..3).map(|at| item(&claim, at, done())).collect();
        kit.store.settle(worker, ends).await.unwrap();
    }
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 0);
}

async fn a_replayed_one_is_first_of_its_tenant_again(kit: &Kit) {
    let [none, a, b] = kill_that_of_a(kit, OnDead::Block).await;
    kit.store.dead_replay(&[a[0]], "ada".into(), None).await.unwrap();
    let all = [a[0], a[1], none[1], b[1]];
    assert_eq!(states(kit, all).await, [State::Ready, State::Blocked, State::Ready, State::Ready]);
    kit.store.cancel(vec![none[1], b[1]], "enough").await.unwrap();
    kit.run_to(a[0], done()).await;
    kit.run_to(a[1], done()).await;
}

async fn a_skipped_one_goes_to_the_end_of_its_tenant(kit: &Kit) {
    let [none, a, b] = kill_that_of_a(kit, OnDead::Skip).await;
    assert_eq!(states(kit, [none[1], a[1], b[1]]).await, [State::Ready; 3]);
    kit.store.dead_replay(&[a[0]], "ada".into(), None).await.unwrap();
    let line = kit.store.line(a[0]).await.unwrap().unwrap();
    assert_eq!((line.head, line.ahead), (a[1], 1));
    kit.store.cancel(vec![none[1], b[1]], "enough").await.unwrap();
    kit.run_to(a[1], done()).await;
    kit.run_to(a[0], done()).await;
}

async fn giving_up_lets_only_its_tenant_pass(kit: &Kit) {
    for purges in [false, true] {
        let [none, a, b] = kill_that_of_a(kit, OnDead::Block).await;
        kit.store.cancel(vec![none[1]], "enough").await.unwrap();
        kit.run_to(b[1], dead("no")).await;
        let behind = kit.put(of(Some("b"), OnDead::Block)).await;
        if purges {
            assert_eq!(kit.store.purge(&[a[0]]).await.unwrap(), 1);
        } else {
            let given_up = Some(Triage::Abandoned);
            kit.store.dead_note(&[a[0]], "ada", "", given_up, None).await.unwrap();
        }
        assert_eq!(states(kit, [a[1], behind]).await, [State::Ready, State::Blocked]);
        kit.run_to(a[1], done()).await;
        assert_eq!(kit.store.purge(&[b[1]]).await.unwrap(), 1);
        kit.run_to(behind, done()).await;
    }
}

async fn calling_off_moves_only_its_tenant(kit: &Kit) {
    let [none, a, b] = pairs(kit, OnDead::Block).await;
    let answers = kit.store.cancel(vec![a[0], b[1]], "enough").await.unwrap();
    assert_eq!(answers, [CancelAnswer::Cancelled; 2]);
    assert_eq!(
        states(kit, [none[0], none[1], a[1], b[0]]).await,
        [State::Ready, State::Blocked, State::Ready, State::Ready]
    );
    kit.store.cancel(vec![a[1], b[0], none[1]], "enough").await.unwrap();
    kit.run_to(none[0], done()).await;
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 0);
}

async fn ends_in_one_settle_move_the_line_of_each_tenant(kit: &Kit) {
    let [none, a, b] = pairs(kit, OnDead::Block).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 9).await;
    let ends = (0..3).map(|at| item(&claim, at, done())).collect();
    kit.store.settle(worker, ends).await.unwrap();
    assert_eq!(states(kit, [none[1], a[1], b[1]]).await, [State::Ready; 3]);
    assert_eq!(kit.take(worker, 9).await.jobs.len(), 3);
}

async fn a_poisoned_one_blocks_only_its_tenant(kit: &Kit) {
    let a =
        [kit.put(of(Some("a"), OnDead::Block)).await, kit.put(of(Some("a"), OnDead::Block)).await];
    for loss in 1..=3 {
        let worker = kit.worker().await;
        assert_eq!(ids(&kit.take(worker, 9).await), [a[0]]);
        assert_eq!(kit.lose_workers().await.poisoned, u64::from(loss == 3));
    }
    let b = kit.put(of(Some("b"), OnDead::Block)).await;
    assert_eq!(states(kit, [a[0], a[1], b]).await, [State::Dead, State::Blocked, State::Ready]);
}

/// The same, with a unique key that all tenants share.
fn shared(tenant: Option<&str>, unique: &str, on_duplicate: OnDuplicate) -> NewJob {
    let key = UniqueKey {
        key: UniqueKey::given("k", unique),
        scope: Scope::Unfinished,
        on_duplicate,
        force: false,
        together: false,
        within: Vec::new(),
    };
    NewJob { unique: Some(key), ..of(tenant, OnDead::Block) }
}

async fn a_replacement_may_go_to_the_line_of_another_tenant(kit: &Kit) {
    for policy in [OnDuplicate::Replace, OnDuplicate::Debounce] {
        let head = kit.put(shared(Some("a"), "u", policy)).await;
        let behind = kit.put(shared(Some("a"), "v", policy)).await;
        let last = kit.put(of(Some("a"), OnDead::Block)).await;
        let other = kit.put(of(Some("b"), OnDead::Block)).await;
        // From the middle, to the end of another line.
        let receipt = kit.enqueue(shared(Some("b"), "v", policy)).await;
        assert_eq!(receipt, Receipt::Replaced { id: behind });
        let line = kit.store.line(behind).await.unwrap().unwrap();
        assert_eq!((line.head, line.ahead), (other, 1));
        assert_eq!(kit.store.line(last).await.unwrap().unwrap().ahead, 1, "the gap is closed");
        // From the front, to a line where nobody is.
        kit.enqueue(shared(None, "u", policy)).await;
        assert_eq!(
            states(kit, [head, last, other, behind]).await,
            [State::Ready, State::Ready, State::Ready, State::Blocked]
        );
        assert_eq!(kit.view(head).await.job.tenant, None);
        // Of the same tenant it keeps its place.
        kit.enqueue(shared(Some("b"), "v", policy)).await;
        assert_eq!(kit.store.line(behind).await.unwrap().unwrap().ahead, 1);
        kit.store.cancel(vec![head, last], "enough").await.unwrap();
        kit.run_to(other, done()).await;
        kit.run_to(behind, done()).await;
        assert_eq!(kit.store.unfinished().await.unwrap().waiting, 0);
    }
}

async fn within_a_batch_it_goes_to_the_line_of_the_last_tenant(kit: &Kit) {
    let policy = OnDuplicate::Replace;
    let batch = vec![
        of(Some("a"), OnDead::Block),
        shared(Some("a"), "u", policy),
        of(Some("b"), OnDead::Block),
        shared(Some("b"), "u", policy),
    ];
    let [first, moved, other] = [batch[0].id, batch[1].id, batch[2].id];
    let receipts = kit.store.enqueue(batch).await.unwrap();
    assert_eq!(receipts[3], Receipt::Replaced { id: moved });
    let line = kit.store.line(moved).await.unwrap().unwrap();
    assert_eq!((line.head, line.ahead), (other, 1));
    kit.store.cancel(vec![first], "enough").await.unwrap();
    kit.run_to(other, done()).await;
    kit.run_to(moved, done()).await;
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 0);
}

async fn a_kept_one_enters_the_line_of_its_tenant(kit: &Kit) {
    let policy = OnDuplicate::RunOnceMore;
    kit.put(shared(Some("a"), "u", policy)).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    let kept = kit.enqueue(shared(Some("b"), "u", policy)).await;
    assert!(matches!(kept, Receipt::Kept { .. }));
    kit.settle(worker, &claim, dead("no")).await;
    assert_eq!(kit.state(kept.id()).await, State::Ready, "the dead one blocks its own tenant");
    kit.run_to(kept.id(), done()).await;
}

async fn follow_ups_take_their_turn_in_their_tenant(kit: &Kit) {
    let [none, a, b] = pairs(kit, OnDead::Block).await;
    kit.store.cancel(vec![none[0], none[1], b[1]], "enough").await.unwrap();
    let follow_ups = vec![of(Some("a"), OnDead::Block), of(Some("b"), OnDead::Block)];
    let [mine, other] = [follow_ups[0].id, follow_ups[1].id];
    let worker = kit.worker().await;
    let claim = kit.take(worker, 9).await;
    let end = Settlement::Done { output: Payload::null(), follow_ups };
    let ended = item(&claim, of_tenant(&claim, Some("a")), end);
    kit.store.settle(worker, vec![ended]).await.unwrap();
    assert_eq!(kit.store.line(mine).await.unwrap().unwrap().head, a[1]);
    assert_eq!(kit.store.line(other).await.unwrap().unwrap().head, b[0]);
}

async fn a_step_of_a_flow_waits_for_its_own_tenant_alone(kit: &Kit) {
    let first = kit.put(of(Some("a"), OnDead::Block)).await;
    kit.run_to(first, dead("no")).await;
    let jobs: Vec<_> = TENANTS.map(|tenant| of(tenant, OnDead::Block)).into();
    let all = [jobs[0].id, jobs[1].id, jobs[2].id];
    let after = vec![After::success("before")];
    let lined = Step { after, ..Step::new("lined", Work::Jobs(jobs)) };
    start(kit, vec![step("before", &[]), lined]).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    kit.settle(worker, &claim, done()).await;
    tend(kit).await;
    assert_eq!(states(kit, all).await, [State::Ready, State::Blocked, State::Ready]);
    let given_up = Some(Triage::Abandoned);
    kit.store.dead_note(&[first], "ada", "", given_up, None).await.unwrap();
    assert_eq!(states(kit, all).await, [State::Ready; 3]);
}
