//! Worker processes are killed from outside at every transition of a saga: while each step and each undo runs, before
//! and after its effect, in the middle of its settle, and when that is written and nothing has come of it yet. Another
//! process goes on, and what is left behind is looked at: what was done is undone in reverse, each once in effect.
//!
//! A handler that has come to the point waits there for a file, so that the kill finds it; a settle that is to be found
//! halfway waits for a lock, and what follows from one for a queue that is paused or a flow that is locked.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidemill::core::flow::FlowState;
use tidemill::store::request::RescueRules;
use tidemill::{
    Context, Enqueue, Fail, Flow, FlowId, JobFilter, JobView, Outcome, Payload, Settings, State,
    Tidemill, Undo,
};
use tidemill_testkit::Process;
use tidemill_testkit::eventually::{eventually, until};

use super::kit::{Kit, SOON};

over_both_stores!(workers_are_killed_at_every_transition_of_a_saga);

const URL: &str = "TIDEMILL_SAGA_WORKER_URL";
const QUEUE: &str = "TIDEMILL_SAGA_WORKER_QUEUE";
const FOLDER: &str = "TIDEMILL_SAGA_WORKER_FOLDER";
const HOLD: &str = "TIDEMILL_SAGA_WORKER_HOLD";
const STEPS: [&str; 5] = ["hotel", "flight", "car", "price", "card"];
const UNDOS: [&str; 5] = ["undo-hotel", "undo-flight", "undo-car", "undo-price", "undo-card"];

/// Where a worker is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    /// Its handler has begun and done nothing yet.
    Begun,
    /// Its handler has had its effect.
    Acted,
    /// It settles.
    Settling,
    /// It has settled, and the flow does not know yet: on Postgres that is written right after.
    Uncounted,
    /// The flow has gone on, and what comes next has not begun.
    Settled,
}

/// What a handler did.
#[derive(Debug, Serialize, Deserialize)]
struct Effect {
    kind: String,
    /// What the outside world knows it by.
    key: String,
    /// What an undo was told of its step.
    told: Option<Outcome>,
}

/// What each of the processes does: it works until it is killed.
pub fn run() {
    let (Ok(url), Ok(queue), Ok(folder), Ok(hold)) =
        (std::env::var(URL), std::env::var(QUEUE), std::env::var(FOLDER), std::env::var(HOLD))
    else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mill = Tidemill::open(&url).await.unwrap();
        let mut worker =
            mill.worker().slots(2).lease_ttl(Duration::from_millis(1500)).lost_max(1000);
        for kind in STEPS.into_iter().chain(UNDOS) {
            let settings = Settings { queue: queue.clone(), ..Settings::default() };
            let (folder, hold) = (PathBuf::from(&folder), hold.clone());
            worker = worker.handle_raw(kind, settings, move |payload, cx| {
                let (folder, hold) = (folder.clone(), hold.clone());
                attempt(payload, cx, folder, hold)
            });
        }
        let _running = worker.start().await.unwrap();
        std::future::pending::<()>().await;
    });
}

async fn attempt(
    payload: Payload,
    cx: Context,
    folder: PathBuf,
    hold: String,
) -> Result<Payload, Fail> {
    let kind = cx.job().kind.clone();
    come_to(format!("begun {kind}"), folder.clone(), hold.clone()).await;
    let told = payload.read::<Undo<Value>>().ok().map(|undo| {
        assert_eq!(undo.output.is_some(), undo.outcome == Outcome::Done);
        undo.outcome
    });
    let effect = Effect { kind: kind.clone(), key: cx.idempotency_key(), told };
    let line = format!("{}\n", serde_json::to_string(&effect).unwrap());
    let mut effects = OpenOptions::new().append(true).create(true).open(folder.join("effects"))?;
    effects.write_all(line.as_bytes())?;
    come_to(format!("acted {kind}"), folder, hold).await;
    match kind.as_str() {
        "card" => Err(Fail::permanent("declined")),
        _ => Ok(Payload::trusted(format!("\"{kind}\""))),
    }
}

/// Waits here, if this is where it is to be found.
async fn come_to(point: String, folder: PathBuf, hold: String) {
    if point == hold {
        File::create(folder.join("held")).unwrap();
        let go = folder.join("go");
        let told = move || until(4 * SOON, || go.exists().then_some(()));
        tokio::task::spawn_blocking(told).await.unwrap().unwrap();
        std::fs::remove_file(folder.join("held")).unwrap();
    }
}

async fn workers_are_killed_at_every_transition_of_a_saga(kit: Kit) {
    let mill = kit.open().await;
    let is_sqlite = kit.url.starts_with("sqlite:");
    let of_sqlite = [Point::Begun, Point::Acted, Point::Settling, Point::Settled];
    let of_postgres =
        [Point::Begun, Point::Acted, Point::Settling, Point::Uncounted, Point::Settled];
    let points: &[Point] = if is_sqlite { &of_sqlite } else { &of_postgres };
    // The last step fails: its undo runs only where a kill has left it in doubt.
    for kind in STEPS.into_iter().chain(UNDOS[..4].iter().rev().copied()) {
        for point in points {
            Killed::new(&kit, &mill, *point, kind).await.go_on().await;
        }
    }
}

/// A saga whose worker is killed once.
struct Killed<'a> {
    kit: &'a Kit,
    mill: &'a Tidemill,
    flow: FlowId,
    folder: tempfile::TempDir,
    point: Point,
    kind: &'static str,
}

impl<'a> Killed<'a> {
    async fn new(kit: &'a Kit, mill: &'a Tidemill, point: Point, kind: &'static str) -> Self {
        let flow = FlowId::new();
        let job = |kind: &str| Enqueue::raw(kind, "{}").queue(flow.to_string());
        let steps = STEPS.iter().zip(UNDOS);
        let saga = steps.fold(Flow::saga("booking").id(flow), |saga, (step, undo)| {
            saga.then(*step, job(step)).undo(job(undo))
        });
        mill.start(saga).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        Self { kit, mill, flow, folder, point, kind }
    }

    fn start(&self, hold: &str) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["role", "--exact"]).env(URL, &self.kit.url).env(HOLD, hold);
        command.env(QUEUE, self.flow.to_string()).env(FOLDER, self.folder.path());
        Process::spawn(&mut command).unwrap()
    }

    async fn go_on(&self) {
        let moment = if self.point == Point::Begun { "begun" } else { "acted" };
        let mut victim = self.start(&format!("{moment} {}", self.kind));
        self.until_held(true).await;
        match self.point {
            Point::Begun | Point::Acted => victim.kill_9().unwrap(),
            Point::Settling => self.kill_settling(&mut victim).await,
            Point::Uncounted => self.kill_uncounted(&mut victim).await,
            Point::Settled => self.kill_settled(&mut victim).await,
        }
        victim.wait(SOON).unwrap();
        // It is given up at once, unless what it did is still under way: then by whoever goes on.
        let rules = RescueRules { lease_ttl: Duration::ZERO, clear_for: None, lost_max: 1000 };
        self.mill.store().rescue(rules).await.unwrap();
        let mut next = self.start("");
        let view = self.mill.wait_flow(self.flow, 4 * SOON).await.unwrap();
        next.kill_9().unwrap();
        assert_eq!(view.head.state, FlowState::Undone, "{}: {view:?}", self.name());
        self.check().await;
    }

    fn name(&self) -> String {
        format!("killed at {:?} of {}", self.point, self.kind)
    }

    async fn until_held(&self, held: bool) {
        let file = self.folder.path().join("held");
        let what = format!("the worker to come to where it is {}", self.name());
        eventually(&what, 2 * SOON, async || (file.exists() == held).then_some(())).await;
    }

    fn let_go(&self) {
        File::create(self.folder.path().join("go")).unwrap();
    }

    async fn jobs(&self) -> Vec<JobView> {
        let queue = Some(self.flow.to_string());
        let filter = JobFilter { queue, limit: 100, ..JobFilter::default() };
        self.mill.jobs(&filter).await.unwrap()
    }

    async fn until_settled(&self) {
        eventually("the settle to be written", SOON, async || {
            let jobs = self.jobs().await;
            let job = jobs.iter().find(|view| view.job.kind == self.kind)?;
            job.state.is_final().then_some(())
        })
        .await;
    }

    /// Nothing can be written meanwhile.
    async fn kill_settling(&self, victim: &mut Process) {
        if let Some(file) = self.kit.url.strip_prefix("sqlite:") {
            let other = rusqlite::Connection::open(file).unwrap();
            other.busy_timeout(SOON).unwrap();
            other.execute_batch("BEGIN IMMEDIATE").unwrap();
            self.let_go();
            self.until_held(false).await;
            victim.kill_9().unwrap();
            return other.execute_batch("ROLLBACK").unwrap();
        }
        let other = self.kit.client().await;
        other.batch_execute("BEGIN; LOCK TABLE tidemill.outcome IN EXCLUSIVE MODE").await.unwrap();
        self.let_go();
        eventually("the settle to wait", SOON, async || {
            let waits = "SELECT FROM pg_locks WHERE NOT granted \
                         AND relation = 'tidemill.outcome'::regclass";
            (!other.query(waits, &[]).await.unwrap().is_empty()).then_some(())
        })
        .await;
        victim.kill_9().unwrap();
        other.batch_execute("ROLLBACK").await.unwrap();
    }

    /// Who settles does not wait for a flow, and the flow hears of it later.
    async fn kill_uncounted(&self, victim: &mut Process) {
        let other = self.kit.client().await;
        other.batch_execute("BEGIN").await.unwrap();
        let lock = "SELECT FROM tidemill.flow WHERE id = $1 FOR UPDATE";
        assert_eq!(other.execute(lock, &[&self.flow.0]).await.unwrap(), 1);
        self.let_go();
        self.until_settled().await;
        victim.kill_9().unwrap();
        other.batch_execute("ROLLBACK").await.unwrap();
    }

    /// What comes next waits, and does not begin.
    async fn kill_settled(&self, victim: &mut Process) {
        let queue = self.flow.to_string();
        self.mill.pause(&queue).await.unwrap();
        self.let_go();
        self.until_settled().await;
        eventually("the flow to go on", SOON, async || {
            let is_next = self.jobs().await.iter().any(|view| view.state == State::Ready);
            let view = self.mill.flow(self.flow).await.unwrap().unwrap();
            (is_next || view.head.state.is_final()).then_some(())
        })
        .await;
        victim.kill_9().unwrap();
        self.mill.resume(&queue).await.unwrap();
    }

    /// All that was done is undone in reverse, each once in effect, and nothing is left.
    async fn check(&self) {
        let name = self.name();
        let text = std::fs::read_to_string(self.folder.path().join("effects")).unwrap();
        let effects: Vec<Effect> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut order: Vec<&str> = Vec::new();
        let mut of_kind: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
        for effect in &effects {
            let Effect { kind, key, told } = effect;
            let (known, runs) = of_kind.entry(kind).or_insert((key, 0));
            assert_eq!(known, key, "{name}: {kind} has two keys");
            *runs += 1;
            if *runs == 1 {
                order.push(kind);
            }
            let expected = match kind.as_str() {
                "undo-card" => Some(Outcome::Unknown),
                undo if UNDOS.contains(&undo) => Some(Outcome::Done),
                _ => None,
            };
            assert_eq!(*told, expected, "{name}: {kind}");
        }
        let is_postgres = !self.kit.url.starts_with("sqlite:");
        for (kind, (_, runs)) in &of_kind {
            let expected = match self.point {
                _ if *kind != self.kind => 1..=1,
                Point::Begun | Point::Uncounted | Point::Settled => 1..=1,
                Point::Acted => 2..=2,
                // A server may carry out what it was told by who is gone.
                Point::Settling => {
                    if is_postgres {
                        1..=2
                    } else {
                        2..=2
                    }
                }
            };
            assert!(expected.contains(runs), "{name}: {kind} was run {runs} times");
        }
        // A worker that is lost in the middle of the card leaves it in doubt: then that is undone too, first.
        let in_doubt = match self.point {
            Point::Begun | Point::Acted => self.kind == "card",
            Point::Settling => self.kind == "card" && of_kind["card"].1 == 2,
            Point::Uncounted | Point::Settled => false,
        };
        let undone = &UNDOS[..if in_doubt { 5 } else { 4 }];
        let expected: Vec<&str> = STEPS.into_iter().chain(undone.iter().rev().copied()).collect();
        assert_eq!(order, expected, "{name}");
        let jobs = self.jobs().await;
        assert_eq!(jobs.len(), expected.len(), "{name}: {jobs:#?}");
        for view in jobs {
            let state = if view.job.kind == "card" { State::Dead } else { State::Done };
            assert_eq!(view.state, state, "{name}: {view:#?}");
        }
    }
}
