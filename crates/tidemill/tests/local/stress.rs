//! Real threads that push, cancel, pause and change rules at once: nothing is lost, nothing runs
//! twice, and no cap is exceeded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

use tidemill::Priority;
use tidemill::local::{Error, Queue};

const PRODUCERS: usize = 16;
const TASKS: usize = 2_000;
const CONCURRENCY_MAX: usize = 7;

#[derive(Default)]
struct Seen {
    running: AtomicUsize,
    most: AtomicUsize,
    runs: AtomicUsize,
}

async fn task(seen: Arc<Seen>, runs: Arc<AtomicU32>, yields: usize) {
    let running = seen.running.fetch_add(1, SeqCst) + 1;
    seen.most.fetch_max(running, SeqCst);
    seen.runs.fetch_add(1, SeqCst);
    assert_eq!(runs.fetch_add(1, SeqCst), 0, "it ran twice");
    let _leave = Leave(seen);
    for _ in 0..yields {
        tokio::task::yield_now().await;
    }
    if yields == 3 {
        // A panic without the noise of the hook.
        std::panic::resume_unwind(Box::new("planned"));
    }
}

struct Leave(Arc<Seen>);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

/// What the answers of one producer's tasks were: done, failed, cancelled.
async fn produce(queue: Queue, seen: Arc<Seen>, luck: usize) -> [usize; 3] {
    let mut answers = [0; 3];
    for number in 0..TASKS {
        let dice = number.wrapping_mul(2_654_435_761).wrapping_add(luck * 97) >> 3;
        let runs = Arc::new(AtomicU32::new(0));
        let wishes = queue.task().priority(Priority::ALL[dice % 4]);
        let handle = wishes.push(task(seen.clone(), runs.clone(), dice / 4 % 4)).await.unwrap();
        if dice % 5 == 0 {
            tokio::task::yield_now().await;
            handle.cancel();
        }
        match handle.await {
            Ok(()) => answers[0] += 1,
            Err(Error::Panicked { .. }) => answers[1] += 1,
            Err(Error::Cancelled) => answers[2] += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(runs.load(SeqCst) <= 1);
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn nothing_is_lost_or_run_twice_under_threads() {
    let queue = Queue::builder().concurrency(3).depth_max(5).build().unwrap();
    let seen = Arc::new(Seen::default());
    let produce = |luck| tokio::spawn(produce(queue.clone(), seen.clone(), luck));
    let producers: Vec<_> = (0..PRODUCERS).map(produce).collect();
    let changing = queue.clone();
    let changes = tokio::spawn(async move {
        for turn in 0_usize.. {
            changing.pause();
            changing.set_concurrency(turn % CONCURRENCY_MAX + 1).unwrap();
            changing.on_size_below(3 + turn % 2).await;
            changing.resume();
            tokio::task::yield_now().await;
        }
    });
    // A pause with a full line reaches no mark: this one ends it.
    let resuming = queue.clone();
    let resumes = tokio::spawn(async move {
        loop {
            resuming.resume();
            tokio::task::yield_now().await;
        }
    });
    let mut answers = [0; 3];
    for producer in producers {
        let one = producer.await.unwrap();
        answers.iter_mut().zip(one).for_each(|(sum, n)| *sum += n);
    }
    changes.abort();
    resumes.abort();
    queue.resume();
    queue.close().await;
    let counts = queue.counts();
    assert_eq!(answers.iter().sum::<usize>(), PRODUCERS * TASKS);
    assert_eq!(answers.map(|n| n as u64), [counts.done, counts.failed, counts.cancelled]);
    assert_eq!(counts.enqueued, (PRODUCERS * TASKS) as u64);
    assert!(seen.runs.load(SeqCst) as u64 <= counts.started);
    assert_eq!(seen.running.load(SeqCst), 0);
    assert!(seen.most.load(SeqCst) <= CONCURRENCY_MAX, "{}", seen.most.load(SeqCst));
}
