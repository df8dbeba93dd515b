//! The nemesis: it draws faults from a seed, waits for the work to go on, and strikes again.
//!
//! Every named fault fires at least once, or the run has failed: a green run that never froze a
//! worker proves nothing about frozen workers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tidemill_testkit::eventually::{eventually, until};

use super::field::{Database, Field};
use super::verdict::{Remembered, Verdict};

const KILLS_PER_STORE: usize = 110;
/// Longest time without any progress: then something is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(30);
const DRAIN_MAX: Duration = Duration::from_mins(2);
/// A frozen process may hold SQLite's write lock, and then nobody can give it up; thawed it goes on.
const FREEZE_MAX: Duration = Duration::from_secs(5);

/// What is done to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    KillWorker,
    KillProducer,
    KillEverybody,
    Freeze,
    AskToLeave,
    KillServer,
}

/// How often each fault fired, by its name.
pub type Tally = BTreeMap<&'static str, usize>;

/// Strikes until it was enough, then lets healthy workers drain, and judges.
pub async fn torture(database: Database) {
    let seed = seed();
    println!("{}: TIDEMILL_SEED={seed}", database.name());
    let mut nemesis = Nemesis::new(Field::open(database, seed).await, seed);
    while !nemesis.is_enough() {
        nemesis.await_progress();
        let fault = nemesis.next_fault();
        nemesis.strike(fault).await;
        nemesis.strikes += 1;
        if nemesis.strikes.is_multiple_of(20) {
            nemesis.remembered.look(&nemesis.field.mill).await;
        }
    }
    nemesis.drain().await;
    Verdict::reach(&nemesis.field, &nemesis.remembered, &nemesis.tally).await;
}

/// What the faults are drawn from.
pub fn seed() -> u64 {
    match std::env::var("TIDEMILL_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => fastrand::u64(..1_000_000),
    }
}

/// When an endless run ends; `None` for the ordinary run, which counts kills.
pub fn deadline() -> Option<Instant> {
    let minutes: u64 = std::env::var("TIDEMILL_TORTURE_MINUTES").ok()?.parse().unwrap();
    Some(Instant::now() + Duration::from_mins(minutes))
}

struct Nemesis {
    field: Field,
    rng: Rng,
    faults: Vec<Fault>,
    strikes: usize,
    tally: Tally,
    remembered: Remembered,
    deadline: Option<Instant>,
}

impl Nemesis {
    fn new(field: Field, seed: u64) -> Self {
        use Fault::{AskToLeave, Freeze, KillEverybody, KillProducer, KillServer, KillWorker};
        // As often as they stand here; the first round takes one of each.
        let mut faults = vec![KillWorker, KillProducer, KillEverybody, Freeze, AskToLeave];
        let mut names = vec!["kill worker", "kill producer", "zombie", "ask to leave"];
        if field.database.cluster.is_some() {
            faults.push(KillServer);
            names.push("kill server");
        }
        faults.extend([KillWorker; 5]);
        faults.extend([KillProducer; 3]);
        let tally = names.into_iter().map(|name| (name, 0)).collect();
        let (rng, remembered) = (Rng::with_seed(seed), Remembered::default());
        Self { field, rng, faults, strikes: 0, tally, remembered, deadline: deadline() }
    }

    fn is_enough(&self) -> bool {
        let kills: usize =
            self.tally.iter().filter(|(name, _)| name.starts_with("kill")).map(|(_, n)| n).sum();
        match self.deadline {
            Some(deadline) => Instant::now() >= deadline,
            None => kills >= KILLS_PER_STORE && self.tally.values().all(|n| *n > 0),
        }
    }

    fn next_fault(&mut self) -> Fault {
        let drawn = self.rng.usize(..self.faults.len());
        self.faults[if self.strikes < self.faults.len() { self.strikes } else { drawn }]
    }

    /// Waits until work has gone on for a random while after the last fault.
    fn await_progress(&mut self) {
        let size = self.field.folder.size() + self.rng.u64(100..30_000);
        let moved = until(STUCK_AFTER, || (self.field.folder.size() >= size).then_some(()));
        assert!(moved.is_some(), "stuck: no progress within {STUCK_AFTER:?} after the last fault");
    }

    fn fired(&mut self, name: &'static str) {
        *self.tally.entry(name).or_default() += 1;
    }

    async fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::KillWorker => self.kill_worker(),
            Fault::KillProducer => self.kill_producer(),
            Fault::KillEverybody => {
                while !self.field.workers.is_empty() {
                    self.kill_worker();
                }
                self.kill_producer();
            }
            Fault::Freeze => self.freeze().await,
            Fault::AskToLeave => {
                let worker = self.draw_worker();
                self.field.send_home(worker).await;
                self.fired("ask to leave");
            }
            Fault::KillServer => {
                let cluster = self.field.database.cluster.as_mut().unwrap();
                cluster.kill_9().unwrap();
                cluster.restart().unwrap();
                self.fired("kill server");
            }
        }
        self.field.fill_up();
    }

    fn draw_worker(&mut self) -> tidemill_testkit::Process {
        let drawn = self.rng.usize(..self.field.workers.len());
        self.field.workers.swap_remove(drawn)
    }

    fn kill_worker(&mut self) {
        self.draw_worker().kill_9().expect("no worker ends by itself");
        self.fired("kill worker");
    }

    fn kill_producer(&mut self) {
        let mut producer = self.field.producer.take().unwrap();
        producer.kill_9().expect("no producer ends by itself");
        self.fired("kill producer");
    }

    /// Freezes a worker until the others have given it up, and lets it go on: a zombie.
    async fn freeze(&mut self) {
        let mut worker = self.draw_worker();
        let pid = worker.id();
        self.field.frozen.insert(pid);
        worker.stop().unwrap();
        let given_up = eventually("the frozen worker to be given up", STUCK_AFTER, async || {
            self.field.knows(pid).await.filter(|known| !*known)
        });
        let is_zombie = tokio::time::timeout(FREEZE_MAX, given_up).await.is_ok();
        let is_sqlite = self.field.database.cluster.is_none();
        assert!(is_zombie || is_sqlite, "a frozen worker was not given up for {FREEZE_MAX:?}");
        worker.cont().unwrap();
        self.field.workers.push(worker);
        self.fired(if is_zombie { "zombie" } else { "frozen with the write lock" });
    }

    /// After the last fault: the healthy ones finish everything, and go home.
    async fn drain(&mut self) {
        self.field.producer.take().unwrap().kill_9().unwrap();
        let mill = &self.field.mill;
        let drained = eventually("the last job to finish", DRAIN_MAX * 2, async || {
            let left = mill.unfinished().await.ok()?;
            (left.waiting == 0 && left.running == 0).then_some(())
        });
        if tokio::time::timeout(DRAIN_MAX, drained).await.is_err() {
            let all = super::check::all_jobs(mill).await;
            let stuck: Vec<_> = all.iter().filter(|job| !job.state.is_final()).collect();
            panic!("{} jobs are stuck; one of them: {:#?}", stuck.len(), stuck.first());
        }
        for worker in std::mem::take(&mut self.field.workers) {
            self.field.send_home(worker).await;
        }
    }
}
