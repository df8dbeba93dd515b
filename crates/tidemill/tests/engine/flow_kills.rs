//! Workers are killed while they run flows: every flow ends, each join is done once, nothing starts too early, and
//! what the flows counted is what became of their jobs.
//!
//! `TIDEMILL_SEED=N` repeats a run's kills.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill::core::flow::{FlowState, StepState};
use tidemill::{Context, Fail, Flow, FlowId, FlowView, Job, JobFilter, JobView, State, Tidemill};
use tidemill_testkit::Process;
use tidemill_testkit::eventually::eventually;

use super::kit::{Kit, SOON};

over_both_stores!(flows_end_while_workers_are_killed);

const URL: &str = "TIDEMILL_FLOWS_URL";
const FOLDER: &str = "TIDEMILL_FLOWS_FOLDER";
const SEED: &str = "TIDEMILL_SEED";
const PROCESSES: usize = 3;
const FLOWS: usize = 16;
const KILLS: usize = 8;
const FAN: u64 = 50;
const PAGES: u64 = 10;
/// Jobs of a flow that has ended: with those that one of them adds.
const JOBS: u64 = 8 + FAN + PAGES;

/// What a job of these flows does. Each returns the token of the attempt that counted.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Work {
    Plain,
    Fails,
    Adds,
}

impl Job for Work {
    const KIND: &'static str = "work";
    type Output = i64;
}

fn flow() -> Flow {
    Flow::new("killed")
        .step("first", Work::Plain)
        .fan_out("fan", (0..FAN).map(|_| Work::Plain))
        .after("first")
        .step("join", Work::Plain)
        .after("fan")
        .step("bad", Work::Fails)
        .after("join")
        .step("never", Work::Plain)
        .after("bad")
        .step("answer", Work::Plain)
        .after_failure("bad")
        .step("list", Work::Adds)
        .after("first")
        .step("sum", Work::Plain)
        .after("list")
        .step("end", Work::Plain)
        .after_all(["answer", "sum"])
}

/// What each of the processes does: it works until it is killed.
pub fn run() {
    let (Ok(url), Ok(folder)) = (std::env::var(URL), std::env::var(FOLDER)) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mill = Tidemill::open(&url).await.unwrap();
        let folder = PathBuf::from(folder);
        let worker = mill.worker().slots(8).lease_ttl(Duration::from_millis(1500)).lost_max(1000);
        let worker = worker.handle(move |work: Work, cx| attempt(work, cx, folder.clone()));
        let _running = worker.start().await.unwrap();
        std::future::pending::<()>().await;
    });
}

async fn attempt(work: Work, cx: Context, folder: PathBuf) -> Result<i64, Fail> {
    refuse_early_start(&cx, &folder).await?;
    match work {
        Work::Plain => {}
        Work::Fails => return Err(Fail::permanent("made to fail")),
        Work::Adds => {
            let pages = cx.fan_out("page", (0..PAGES).map(|_| Work::Plain));
            pages.map_err(|error| Fail::permanent(error.to_string()))?;
        }
    }
    Ok(cx.token().0)
}

/// All that its step comes after has ended.
async fn refuse_early_start(cx: &Context, folder: &Path) -> Result<(), Fail> {
    let place = cx.job().options.flow.clone().ok_or_else(|| Fail::permanent("of no flow"))?;
    let flow = cx.mill()?.flow(place.id).await.map_err(|e| Fail::transient(e.to_string()))?;
    let flow = flow.ok_or_else(|| Fail::permanent("the flow is gone"))?;
    let state = |name: &str| flow.steps.iter().find(|step| step.name == name).map(|s| s.state);
    let own = flow.steps.iter().find(|step| step.number == place.step);
    // A step that a running job adds starts with that job's end.
    let before = own.iter().filter(|step| step.name != "page").flat_map(|step| &step.after);
    for after in before {
        if !state(&after.step).is_some_and(StepState::is_final) {
            File::create(folder.join(format!("early {} {}", place.name, after.step)))?;
        }
    }
    Ok(())
}

/// Draws the kills.
fn dice() -> fastrand::Rng {
    let given = std::env::var(SEED).ok().map(|seed| seed.parse().unwrap());
    let seed = given.unwrap_or_else(|| fastrand::u64(..1_000_000));
    println!("{SEED}={seed}");
    fastrand::Rng::with_seed(seed)
}

async fn flows_end_while_workers_are_killed(kit: Kit) {
    let (mill, folder) = (kit.open().await, tempfile::tempdir().unwrap());
    let mut dice = dice();
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["role", "--exact"]).env(URL, &kit.url).env(FOLDER, folder.path());
        Process::spawn(&mut command).unwrap()
    };
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    let mut ids = Vec::new();
    for _ in 0..FLOWS {
        ids.push(mill.start(flow()).await.unwrap());
    }
    let all = FLOWS as u64 * JOBS;
    for kill in 0..KILLS as u64 {
        let share = all / (KILLS as u64 + 1);
        let done = kill * share + dice.u64(..share);
        until_ended(&mill, &ids, done).await;
        let victim = dice.usize(..PROCESSES);
        processes[victim].kill_9().unwrap();
        processes[victim] = start();
    }
    for id in &ids {
        mill.wait_flow(*id, 2 * SOON).await.unwrap();
    }
    for process in &mut processes {
        process.kill_9().unwrap();
    }
    let early: Vec<_> = folder.path().read_dir().unwrap().map(|f| f.unwrap().file_name()).collect();
    assert!(early.is_empty(), "started before what they come after: {early:?}");
    audit(&mill, &ids).await;
}

/// Waits until so many jobs have ended.
async fn until_ended(mill: &Tidemill, ids: &[FlowId], jobs: u64) {
    eventually("jobs to end", 2 * SOON, async || {
        let mut ended = 0;
        for id in ids {
            let head = mill.flow(*id).await.unwrap().unwrap().head;
            ended += head.done + head.failed;
        }
        (ended >= jobs).then_some(())
    })
    .await;
}

/// Every flow ended as it must, and counted what became of its jobs.
async fn audit(mill: &Tidemill, ids: &[FlowId]) {
    let mut jobs: BTreeMap<(FlowId, u32), Vec<JobView>> = BTreeMap::new();
    let mut before = None;
    loop {
        let filter = JobFilter { before, limit: 1000, ..JobFilter::default() };
        let page = mill.jobs(&filter).await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.job.id);
        for view in page {
            let place = view.job.options.flow.as_deref().map(|place| (place.id, place.step));
            jobs.entry(place.unwrap()).or_default().push(view);
        }
    }
    for id in ids {
        audit_flow(&mill.flow(*id).await.unwrap().unwrap(), &mut jobs);
    }
    assert!(jobs.is_empty(), "jobs of no step: {jobs:?}");
}

fn audit_flow(flow: &FlowView, jobs: &mut BTreeMap<(FlowId, u32), Vec<JobView>>) {
    let head = &flow.head;
    assert_eq!((head.state, head.steps_left), (FlowState::Done, 0), "{flow:?}");
    assert_eq!((head.jobs, head.done, head.failed), (JOBS, JOBS - 2, 1), "{flow:?}");
    for step in &flow.steps {
        let of_step = jobs.remove(&(head.id, step.number)).unwrap_or_default();
        let count = |state| of_step.iter().filter(|view| view.state == state).count() as u64;
        let (done, dead) = (count(State::Done), count(State::Dead));
        let counted = (step.jobs, step.done, step.failed);
        assert_eq!(counted, (of_step.len() as u64, done, dead), "{step:?}");
        let expected = match step.name.as_str() {
            "bad" => StepState::Failed,
            "never" => StepState::Skipped,
            _ => StepState::Done,
        };
        assert_eq!(step.state, expected, "{step:?}");
        for view in of_step.iter().filter(|view| view.state == State::Done) {
            let output = view.output.as_ref().and_then(|output| output.read::<i64>().ok());
            assert_eq!(output, view.token.map(|token| token.0), "done once, by one attempt");
        }
    }
}
