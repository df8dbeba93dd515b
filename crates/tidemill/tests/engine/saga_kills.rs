//! A process that runs a saga is killed at every single transition of it, and another goes on: what was done is
//! undone in reverse, each once in effect, whatever the moment.
//!
//! The process does one thing after another (claim, effect, settle, tend), and ends itself at the point it is
//! told; the effects stand in a file, by the key that a handler would hand to the outside world.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tidemill::core::flow::FlowState;
use tidemill::core::{ErrorClass, Failure, Payload, Settlement};
use tidemill::store::request::RescueRules;
use tidemill::store::{ClaimRequest, Lane, SettleItem, Share, WorkerCard};
use tidemill::{Enqueue, Flow, FlowId, Priority, Tidemill, WorkerId};
use tidemill_testkit::Process;

use super::kit::{Kit, SOON};

over_both_stores!(a_saga_survives_a_kill_at_every_transition);

const URL: &str = "TIDEMILL_SAGA_URL";
const FLOW: &str = "TIDEMILL_SAGA_FLOW";
const FILE: &str = "TIDEMILL_SAGA_FILE";
const KILL_AT: &str = "TIDEMILL_SAGA_KILL_AT";
/// What is left behind by a process that came to the end.
const FINISHED: i32 = 7;
const STEPS: [&str; 5] = ["hotel", "flight", "car", "price", "card"];

/// Where the process may end itself.
struct Fate {
    points: u32,
    kill_at: u32,
}

impl Fate {
    fn point(&mut self) {
        self.points += 1;
        if self.points == self.kill_at {
            std::process::abort();
        }
    }
}

/// What the process does: it runs the saga to its end, unless its fate comes first.
pub fn run() {
    let (Ok(url), Ok(flow), Ok(file), Ok(kill_at)) =
        (std::env::var(URL), std::env::var(FLOW), std::env::var(FILE), std::env::var(KILL_AT))
    else {
        return;
    };
    let fate = Fate { points: 0, kill_at: kill_at.parse().unwrap() };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(go_on(&url, flow.parse().unwrap(), Path::new(&file), fate));
    std::process::exit(FINISHED);
}

async fn go_on(url: &str, flow: FlowId, file: &Path, mut fate: Fate) {
    let mill = Tidemill::open(url).await.unwrap();
    let (store, worker) = (mill.store(), WorkerId::new());
    // Whoever was killed before us is given up at once.
    let rules = RescueRules { lease_ttl: Duration::ZERO, clear_for: None, lost_max: 1000 };
    store.rescue(rules).await.unwrap();
    let (queues, kinds) = (vec![flow.to_string()], Vec::new());
    let card = WorkerCard {
        id: worker,
        name: "saga".into(),
        queues,
        kinds,
        slots: 1,
        slots_of: std::collections::BTreeMap::new(),
        lease_ttl: None,
    };
    store.register(card).await.unwrap();
    loop {
        let lane = Lane { queue: flow.to_string(), priority: Priority::Normal };
        let ask = ClaimRequest {
            worker,
            lanes: vec![lane],
            share: Share::default(),
            limits: std::sync::Arc::default(),
            edition: None,
            kinds: None,
            jobs_max: 1,
            stand: None,
        };
        let claim = store.claim(ask).await.unwrap();
        fate.point();
        let Some(taken) = claim.jobs.first() else {
            while store.tend_flows().await.unwrap() {}
            if mill.flow(flow).await.unwrap().unwrap().head.state.is_final() {
                return;
            }
            continue;
        };
        let kind = taken.job.kind.as_str();
        let mut effects = OpenOptions::new().append(true).create(true).open(file).unwrap();
        writeln!(effects, "{kind} {}", taken.job.id).unwrap();
        fate.point();
        let settlement = if kind == "card" {
            let failure = Failure::new(kind, ErrorClass::Permanent, "declined");
            Settlement::Dead { failure }
        } else {
            Settlement::Done { output: Payload::null(), follow_ups: Vec::new() }
        };
        let item = SettleItem {
            job: taken.job.clone(),
            token: claim.token.unwrap(),
            attempt: taken.attempt,
            lost: taken.lost,
            started_at: claim.now,
            gates: Vec::new(),
            settlement,
            decided: false,
            run: None,
        };
        store.settle(worker, vec![item]).await.unwrap();
        fate.point();
        while store.tend_flows().await.unwrap() {}
        fate.point();
    }
}

async fn a_saga_survives_a_kill_at_every_transition(kit: Kit) {
    let (mill, folder) = (kit.open().await, tempfile::tempdir().unwrap());
    let mut kill_at = 0;
    loop {
        kill_at += 1;
        let id = FlowId::new();
        let job = |kind: &str| Enqueue::raw(kind, "{}").queue(id.to_string());
        let saga = STEPS.iter().fold(Flow::saga("booking").id(id), |saga, step| {
            saga.then(*step, job(step)).undo(job(&format!("undo-{step}")))
        });
        mill.start(saga).await.unwrap();
        let file = folder.path().join(kill_at.to_string());
        let run = |kill_at: u32| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["role", "--exact"]).env(URL, &kit.url).env(FLOW, id.to_string());
            command.env(FILE, &file).env(KILL_AT, kill_at.to_string());
            Process::spawn(&mut command).unwrap().wait(2 * SOON).unwrap()
        };
        let was_killed = run(kill_at).code() != Some(FINISHED);
        if was_killed {
            assert_eq!(run(0).code(), Some(FINISHED), "the next one comes to the end");
        }
        let view = mill.flow(id).await.unwrap().unwrap();
        assert_eq!(view.head.state, FlowState::Undone, "killed at {kill_at}: {view:?}");
        check(&std::fs::read_to_string(&file).unwrap(), kill_at);
        if !was_killed {
            break;
        }
    }
    assert!(kill_at > 4 * 9, "it was killed at each of its transitions: {kill_at}");
}

/// Every kind took effect under one key, in the right order.
fn check(effects: &str, kill_at: u32) {
    let mut kinds: Vec<&str> = Vec::new();
    let mut keys = std::collections::BTreeMap::new();
    for line in effects.lines() {
        let (kind, key) = line.split_once(' ').unwrap();
        let known = *keys.entry(kind).or_insert(key);
        assert_eq!(known, key, "killed at {kill_at}: {kind} has two keys");
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    // Whoever was killed in the middle of the card left it in doubt: then that is undone too, first.
    kinds.retain(|kind| *kind != "undo-card");
    let undone = STEPS[..4].iter().rev().map(|step| format!("undo-{step}"));
    let expected: Vec<String> = STEPS.iter().map(ToString::to_string).chain(undone).collect();
    assert_eq!(kinds, expected, "killed at {kill_at}");
}
