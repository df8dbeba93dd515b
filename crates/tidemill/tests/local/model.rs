//! Random operations on a queue and on a model of it that is too simple to be wrong.
//!
//! The model keeps one list of tasks and knows for each whether it waits, runs or is over. After every
//! step the queue must agree with it in every count, have kept the order of each band, have exceeded
//! no cap, and have left no slot free that a task may use.

use std::time::Duration;

use proptest::prelude::*;
use tidemill::Priority;
use tidemill::local::{Handle, Queue};
use tokio::sync::oneshot::Sender;
use tokio::time::{Instant, advance};

use super::kit::{Lab, settle};

const DEPTH_MAX: usize = 6;
const WINDOW: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
enum Step {
    Push(u8),
    Finish(usize),
    Cancel(usize),
    Pause,
    Resume,
    Concurrency(usize),
    Rate(u32),
    Clear,
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4_u8).prop_map(Step::Push),
        4 => any::<usize>().prop_map(Step::Finish),
        2 => any::<usize>().prop_map(Step::Cancel),
        1 => Just(Step::Pause),
        2 => Just(Step::Resume),
        1 => (1..4_usize).prop_map(Step::Concurrency),
        1 => (1..4_u32).prop_map(Step::Rate),
        1 => Just(Step::Clear),
        3 => (0..120_u64).prop_map(Step::Advance),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    Waits,
    Runs,
    Over,
}

struct One {
    band: u8,
    at: Where,
    handle: Option<Handle<usize>>,
    let_go: Option<Sender<()>>,
}

struct Model {
    lab: Lab,
    tasks: Vec<One>,
    paused: bool,
    concurrency: usize,
    rate: u32,
    done: u64,
    cancelled: u64,
    rejected: u64,
    /// Since when the rate is what it is: a window across a change is judged by neither.
    rate_since: Instant,
}

impl Model {
    fn new() -> Self {
        let builder = Queue::builder().concurrency(2).depth_max(DEPTH_MAX).rate(3, WINDOW);
        Self {
            lab: Lab::new(builder),
            tasks: Vec::new(),
            paused: false,
            concurrency: 2,
            rate: 3,
            done: 0,
            cancelled: 0,
            rejected: 0,
            rate_since: Instant::now(),
        }
    }

    fn count(&self, at: Where) -> usize {
        self.tasks.iter().filter(|one| one.at == at).count()
    }

    fn pick(&mut self, pick: usize, of: &[Where]) -> Option<&mut One> {
        let mut found: Vec<_> = self.tasks.iter_mut().filter(|one| of.contains(&one.at)).collect();
        let n = found.len();
        (n > 0).then(|| found.swap_remove(pick % n))
    }

    async fn play(&mut self, step: Step) {
        match step {
            Step::Push(band) => self.push(band),
            Step::Finish(pick) => {
                if let Some(one) = self.pick(pick, &[Where::Runs]) {
                    one.let_go.take().unwrap().send(()).unwrap();
                    one.at = Where::Over;
                    self.done += 1;
                }
            }
            Step::Cancel(pick) => {
                if let Some(one) = self.pick(pick, &[Where::Waits, Where::Runs]) {
                    drop(one.handle.take());
                    one.at = Where::Over;
                    self.cancelled += 1;
                }
            }
            Step::Pause => (self.paused = true, self.lab.queue.pause()).1,
            Step::Resume => (self.paused = false, self.lab.queue.resume()).1,
            Step::Concurrency(n) => {
                self.concurrency = n;
                self.lab.queue.set_concurrency(n).unwrap();
            }
            Step::Rate(n) => {
                (self.rate, self.rate_since) = (n, Instant::now());
                self.lab.queue.set_rate(n, WINDOW).unwrap();
            }
            Step::Clear => {
                let waiting = self.count(Where::Waits);
                assert_eq!(self.lab.queue.clear(), waiting);
                self.cancelled += waiting as u64;
                let waits = self.tasks.iter_mut().filter(|one| one.at == Where::Waits);
                waits.for_each(|one| one.at = Where::Over);
            }
            Step::Advance(ms) => advance(Duration::from_millis(ms)).await,
        }
        settle().await;
    }

    fn push(&mut self, band: u8) {
        let (task, let_go) = self.lab.held(self.tasks.len());
        let wishes = self.lab.queue.task().priority(Priority::ALL[band as usize]);
        match wishes.try_push(task) {
            Ok(handle) => {
                let (handle, let_go) = (Some(handle), Some(let_go));
                self.tasks.push(One { band, at: Where::Waits, handle, let_go });
            }
            Err(error) => {
                assert_eq!((error.code(), self.count(Where::Waits)), ("queue_full", DEPTH_MAX));
                self.rejected += 1;
            }
        }
    }

    /// Takes over from the queue what started, and judges it.
    fn check(&mut self) {
        let started = self.lab.started();
        for name in &started {
            if self.tasks[*name].at == Where::Waits {
                self.tasks[*name].at = Where::Runs;
            }
        }
        for (name, one) in self.tasks.iter().enumerate().filter(|(_, one)| one.at == Where::Waits) {
            let later =
                started.iter().any(|other| *other > name && self.tasks[*other].band == one.band);
            assert!(!later, "{name} was overtaken by one of its band");
        }
        let counts = self.lab.queue.counts();
        assert_eq!(counts.queued, self.count(Where::Waits));
        assert_eq!(counts.running, self.count(Where::Runs));
        assert_eq!((counts.done, counts.cancelled), (self.done, self.cancelled));
        assert_eq!((counts.rejected, counts.failed), (self.rejected, 0));
        let over = counts.done + counts.cancelled;
        assert_eq!(counts.enqueued, (counts.queued + counts.running) as u64 + over);
        self.check_starts();
    }

    fn check_starts(&self) {
        let now = Instant::now();
        let starts = self.lab.starts();
        let of_this_rate: Vec<_> = starts.iter().filter(|at| **at > self.rate_since).collect();
        for window in of_this_rate.windows(self.rate as usize + 1) {
            assert!(*window[self.rate as usize] - *window[0] >= WINDOW, "{window:?}");
        }
        // A millisecond is what tokio's timer rounds up by.
        let recent = starts.iter().filter(|at| now - **at < WINDOW + Duration::from_millis(1));
        let free = self.count(Where::Runs) < self.concurrency;
        let open = recent.count() < self.rate as usize;
        let held = self.count(Where::Waits) > 0;
        assert!(!(free && open && held) || self.paused, "a slot is free and a task waits");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn queue_does_what_the_model_says(steps in prop::collection::vec(step(), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut model = Model::new();
            for step in steps {
                model.play(step).await;
                model.check();
            }
        });
    }
}
