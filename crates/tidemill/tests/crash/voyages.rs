//! Workflows under fire: workers that run them are killed and frozen at random, seeded, and what is left behind is
//! looked at from outside.
//!
//! Every run ends as it was made to. Each effect is there under its idempotency key, and none that was not declared. In
//! a journal tokens never fall: no entry is from a worker whose lease was lost. What failed is undone, all of it, in
//! the reverse order in which it ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fastrand::Rng;
use tempfile::TempDir;
use tidemill::core::workflow::{Ending, Entry};
use tidemill::{FlowId, JobId, Recorded, Signal, State, Tidemill};
use tidemill_testkit::Process;
use tidemill_testkit::eventually::{eventually, until};

use super::field::Database;
use super::history::Folder;
use super::nemesis::{deadline, seed};
use super::role;
use super::voyage::{Done, LEGS, UNDONE, Voyage};
use super::zombie;

const WORKERS: usize = 3;
const KILLS: usize = 14;
const FREEZES: usize = 3;
/// Runs that start before a kill, and before a freeze: then many are in the middle of a body, and those who take them
/// over need longer for it than a zombie that wakes.
const RUNS: [usize; 2] = [6, 20];
const TAKES_MS: [std::ops::Range<u64>; 2] = [1..25, 40..80];
const STUCK_AFTER: Duration = Duration::from_secs(30);
/// A frozen worker may hold the only lock of a SQLite file: then nobody can give it up before it goes on.
const FREEZE_MAX: Duration = Duration::from_secs(5);
const DRAIN_MAX: Duration = Duration::from_mins(2);

/// Everybody who takes part.
struct Fleet {
    database: Database,
    mill: Tidemill,
    folder: Folder,
    workers: Vec<Process>,
    zombie: Process,
    runs: BTreeMap<JobId, Voyage>,
    rng: Rng,
    started: u64,
    zombies: usize,
    _files: TempDir,
}

/// Strikes, lets healthy workers end what was begun, and looks at everything.
pub async fn sail(database: Database) {
    let seed = seed();
    println!("voyages on {}: TIDEMILL_SEED={seed}", database.name());
    let (mut fleet, deadline) = (Fleet::open(database, seed).await, deadline());
    loop {
        let mut faults = [vec![true; KILLS], vec![false; FREEZES]].concat();
        fleet.rng.shuffle(&mut faults);
        for is_kill in faults {
            // From before they began: all of it may be done by the time the last one is enqueued.
            let size = fleet.folder.size();
            fleet.begin(usize::from(!is_kill)).await;
            fleet.await_progress(size).await;
            if is_kill {
                fleet.kill();
            } else {
                fleet.freeze().await;
            }
            fleet.fill_up();
        }
        if deadline.is_none_or(|at| Instant::now() >= at) {
            break;
        }
    }
    fleet.end().await;
    fleet.check().await;
}

impl Fleet {
    async fn open(database: Database, seed: u64) -> Self {
        let files = tempfile::Builder::new().prefix("tidemill-voyages-").tempdir().unwrap();
        let mill = Tidemill::open(&database.url).await.unwrap();
        let zombie = role::start("zombie", &database.url, files.path(), 0);
        let mut fleet = Self {
            database,
            mill,
            folder: Folder(files.path().to_owned()),
            workers: Vec::new(),
            zombie,
            runs: BTreeMap::new(),
            rng: Rng::with_seed(seed),
            started: 0,
            zombies: 0,
            _files: files,
        };
        // It takes the first runs before anybody else is there.
        fleet.begin(1).await;
        fleet.zombie.wait_for_line(zombie::HOLDS, STUCK_AFTER).unwrap();
        fleet.fill_up();
        fleet
    }

    fn fill_up(&mut self) {
        while self.workers.len() < WORKERS {
            self.started += 1;
            let worker = role::start("voyages", &self.database.url, &self.folder.0, self.started);
            self.workers.push(worker);
        }
    }

    /// Some more runs, and the signals of those that wait for one, before or after they do.
    async fn begin(&mut self, fault: usize) {
        for _ in 0..RUNS[fault] {
            let (is_called, fails) = (self.rng.bool(), self.rng.bool());
            let takes_ms = self.rng.u64(TAKES_MS[fault].clone());
            let voyage = Voyage { is_called, fails, takes_ms };
            let id = self.mill.enqueue(voyage).await.unwrap().id();
            self.runs.insert(id, voyage);
            if is_called {
                let call = Signal::new("call", &7_i64).id("once");
                self.mill.signal(id, call).await.unwrap();
            }
        }
    }

    async fn await_progress(&mut self, before: u64) {
        let size = before + self.rng.u64(200..2000);
        let moved = until(STUCK_AFTER, || (self.folder.size() >= size).then_some(()));
        if moved.is_none() {
            let workers = self.mill.workers().await;
            let stuck = stuck(&self.mill).await;
            panic!(
                "no progress within {STUCK_AFTER:?} after the last fault; {workers:#?}; {stuck}"
            );
        }
    }

    fn draw(&mut self) -> Process {
        let drawn = self.rng.usize(..self.workers.len());
        self.workers.swap_remove(drawn)
    }

    fn kill(&mut self) {
        self.draw().kill_9().expect("no worker ends by itself");
    }

    async fn knows(&self, pid: u32) -> Option<bool> {
        let workers = self.mill.workers().await.ok()?;
        let name = format!("pid {pid}");
        Some(workers.iter().any(|worker| worker.name == name))
    }

    /// Freezes a worker past its lease, and lets it go on.
    async fn freeze(&mut self) {
        let mut worker = self.draw();
        let pid = worker.id();
        worker.stop().unwrap();
        let given_up = eventually("the frozen worker to be given up", STUCK_AFTER, async || {
            self.knows(pid).await.filter(|known| !*known)
        });
        let is_sqlite = self.database.cluster.is_none();
        let patience = if is_sqlite { FREEZE_MAX } else { STUCK_AFTER };
        let is_zombie = tokio::time::timeout(patience, given_up).await.is_ok();
        assert!(is_zombie || is_sqlite, "a frozen worker was not given up for {patience:?}");
        self.zombies += usize::from(is_zombie);
        worker.cont().unwrap();
        self.workers.push(worker);
    }

    /// After the last fault healthy workers end everything, with what is to be undone.
    async fn end(&mut self) {
        let mill = &self.mill;
        let drained = eventually("the last run to end", DRAIN_MAX * 2, async || {
            let left = mill.unfinished().await.ok()?;
            let owing = mill.store().debts(None, 1).await.ok()?;
            (left.waiting == 0 && left.running == 0 && owing.is_empty()).then_some(())
        });
        let is_over = tokio::time::timeout(DRAIN_MAX, drained).await.is_ok();
        assert!(is_over, "{}", stuck(mill).await);
        for id in self.runs.iter().filter(|(_, voyage)| voyage.fails).map(|(id, _)| *id) {
            eventually("what failed to be undone", DRAIN_MAX, async || {
                let flow = mill.flow(FlowId(id.0)).await.ok()??;
                flow.head.state.is_final().then_some(())
            })
            .await;
        }
        let status = self.zombie.wait(STUCK_AFTER).unwrap();
        assert!(status.success(), "the zombie ended with {status}");
        for mut worker in std::mem::take(&mut self.workers) {
            worker.kill_9().unwrap();
        }
    }

    async fn check(&self) {
        let (tried, done): (Vec<Done>, Vec<Done>) =
            self.folder.read("effects").into_iter().partition(|one: &Done| {
                [zombie::ACCEPTED, zombie::REFUSED].contains(&one.what.as_str())
            });
        assert!(!tried.is_empty(), "no zombie tried to write");
        let accepted: Vec<_> = tried.iter().filter(|one| one.what == zombie::ACCEPTED).collect();
        assert!(accepted.is_empty(), "writes of a lost lease were accepted: {accepted:?}");
        let mut effects: BTreeMap<JobId, Vec<String>> = BTreeMap::new();
        for one in &done {
            effects.entry(one.run).or_default().push(one.what.clone());
        }
        let declared: usize = self
            .runs
            .values()
            .map(|of| if of.fails { 2 * UNDONE.len() } else { UNDONE.len() })
            .sum();
        let declared = declared + self.runs.len() * LEGS as usize;
        assert!(done.len() > declared, "no fault hit a step between its effect and its end");
        assert!(self.zombies > 0 || self.database.cluster.is_none(), "no worker was frozen");
        for (id, voyage) in &self.runs {
            let of_run = effects.remove(id).unwrap_or_default();
            let journal = self.mill.journal(*id).await.unwrap();
            check_journal(*id, &journal);
            self.check_run(*id, *voyage, &journal, &of_run).await;
        }
        assert!(effects.is_empty(), "effects of runs that nobody began: {effects:?}");
        let (runs, zombies, twice) = (self.runs.len(), self.zombies, done.len() - declared);
        let refused = tried.len();
        println!(
            "{runs} runs, {zombies} frozen past their lease, {refused} late writes refused, \
             {twice} bodies run again"
        );
    }

    async fn check_run(&self, id: JobId, voyage: Voyage, journal: &[Recorded], effects: &[String]) {
        let view = self.mill.job(id).await.unwrap().unwrap();
        let legs = (0..LEGS).map(|number| format!("leg {number}"));
        let mut declared: BTreeSet<String> =
            UNDONE.iter().map(ToString::to_string).chain(legs).collect();
        let ended = ended(journal);
        let told: BTreeMap<&str, i64> = ended.iter().copied().collect();
        let race = if voyage.is_called { 7 } else { 0 };
        let kept = [told["reserve"], told["tax"], told["risk"], race, told["charge"]];
        if voyage.fails {
            assert_eq!(view.state, State::Dead, "{id}: {view:?}");
            let heard = format!("{kept:?}");
            assert_eq!(view.error, Some(heard), "{id}: the code heard what the journal has");
            let flow = self.mill.flow(FlowId(id.0)).await.unwrap().expect("it is undone");
            assert!(flow.head.state.is_final(), "{id}: {:?}", flow.head);
            let undos = ended.iter().rev().map(|(step, _)| format!("undo {step}"));
            let undos: Vec<String> = undos.collect();
            let mut seen: Vec<String> = Vec::new();
            for what in effects.iter().filter(|what| what.starts_with("undo ")) {
                if !seen.contains(what) {
                    seen.push(what.clone());
                }
            }
            assert_eq!(seen, undos, "{id}: what ended last is undone first");
            declared.extend(undos);
        } else {
            assert_eq!(view.state, State::Done, "{id}: {view:?}");
            let heard: Vec<i64> = view.output.unwrap().read().unwrap();
            assert_eq!(heard, kept, "{id}: the code heard what the journal has");
        }
        let effects: BTreeSet<String> = effects.iter().cloned().collect();
        assert_eq!(effects, declared, "{id}: each effect under its key, and no other");
    }
}

/// What has not ended.
async fn stuck(mill: &Tidemill) -> String {
    let all = super::check::all_jobs(mill).await;
    let stuck: Vec<_> = all.iter().filter(|job| !job.state.is_final()).collect();
    format!("{} jobs are stuck; one of them: {:#?}", stuck.len(), stuck.first())
}

/// The steps that ended, in order, with the tokens they returned.
fn ended(journal: &[Recorded]) -> Vec<(&str, i64)> {
    let token = |recorded: &'_ Recorded| match &recorded.entry {
        Entry::Ended { ending: Ending::Ok(token), .. } => token.read().ok(),
        _ => None,
    };
    journal.iter().filter_map(|of| Some((of.entry.key(), token(of)?))).collect()
}

/// Nothing ends twice, and no entry is from a worker whose lease another had by then.
fn check_journal(id: JobId, journal: &[Recorded]) {
    let ended = ended(journal);
    let keys: BTreeSet<&str> = ended.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, UNDONE.into_iter().collect(), "{id}: {journal:#?}");
    assert_eq!(keys.len(), ended.len(), "{id}: a step ended twice: {journal:#?}");
    assert!(ended.is_sorted_by_key(|(_, token)| *token), "{id}: a stale entry: {journal:#?}");
    let races = journal.iter().filter(|of| match &of.entry {
        Entry::Signalled { .. } => true,
        Entry::Woke { key } => key == "sleep",
        _ => false,
    });
    assert_eq!(races.count(), 1, "{id}: a race has one winner: {journal:#?}");
}
