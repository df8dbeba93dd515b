//! What every way must mean. `every_way_means_the_same!` makes the tests of one way.

use std::time::Duration;

use tidemill::{JobFilter, JobId, OnDuplicate, Receipt, State, Tidemill};

use super::ask::{Ask, Echo, End, Way};

const SOON: Duration = Duration::from_secs(30);

macro_rules! every_way_means_the_same {
    ($way:ty) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn committed_job_runs() {
            crate::transaction::meaning::committed_job_runs(<$way>::open().await).await;
        }
        #[tokio::test]
        async fn rolled_back_job_never_was() {
            crate::transaction::meaning::rolled_back_job_never_was(<$way>::open().await).await;
        }
        #[tokio::test]
        async fn duplicate_does_not_abort_the_transaction() {
            let way = <$way>::open().await;
            crate::transaction::meaning::duplicate_does_not_abort_the_transaction(way).await;
        }
        #[tokio::test]
        async fn policies_hold() {
            crate::transaction::meaning::policies_hold(<$way>::open().await).await;
        }
        #[tokio::test]
        async fn order_holds() {
            crate::transaction::meaning::order_holds(<$way>::open().await).await;
        }
    };
}
pub(super) use every_way_means_the_same;

async fn open(way: &impl Way) -> Tidemill {
    Tidemill::open(way.url()).await.unwrap()
}

async fn texts(mill: &Tidemill) -> Vec<String> {
    let views = mill.jobs(&JobFilter::default()).await.unwrap();
    let waiting = views.iter().filter(|view| !view.state.is_final());
    let mut texts: Vec<_> =
        waiting.map(|view| view.job.payload.read::<Echo>().unwrap().text).collect();
    texts.sort();
    texts
}

/// Nobody needs to be told: a worker that runs finds the job.
pub async fn committed_job_runs(way: impl Way) {
    let mill = open(&way).await;
    let worker = mill.worker().handle(|echo: Echo, _cx| async move { Ok(echo.text) });
    let running = worker.start().await.unwrap();
    for text in ["one", "two"] {
        let ask = Ask::new(text);
        let receipts = way.run(&mill, std::slice::from_ref(&ask), End::Commit).await;
        assert!(receipts.iter().all(|receipt| *receipt == Receipt::Enqueued { id: ask.id }));
        assert_eq!(mill.result::<Echo>(ask.id, SOON).await.unwrap(), text);
    }
    assert_eq!(way.rows().await, 4);
    running.stop().await;
}

pub async fn rolled_back_job_never_was(way: impl Way) {
    let mill = open(&way).await;
    let asks = [Ask::new("one"), Ask::new("two").unique("k", OnDuplicate::Reject)];
    way.run(&mill, &asks, End::RollBack).await;
    assert_eq!((texts(&mill).await.len(), way.rows().await), (0, 0));
    // Its key is free again, and its ids can be sent again.
    way.run(&mill, &asks, End::Commit).await;
    assert_eq!(texts(&mill).await, ["one", "two"]);
}

pub async fn duplicate_does_not_abort_the_transaction(way: impl Way) {
    let mill = open(&way).await;
    let first = Ask::new("first").unique("k", OnDuplicate::Reject);
    let asks = [first.clone(), Ask::new("second").unique("k", OnDuplicate::Reject), Ask::new("x")];
    let receipts = way.run(&mill, &asks, End::Commit).await;
    if let [one, two, three] = &receipts[..] {
        assert_eq!(*one, Receipt::Enqueued { id: first.id });
        assert_eq!(*two, Receipt::Rejected { id: first.id });
        assert!(three.is_new());
    }
    assert_eq!((texts(&mill).await, way.rows().await), (vec!["first".into(), "x".into()], 2));
    // The same id once more is no news either.
    way.run(&mill, std::slice::from_ref(&asks[2]), End::Commit).await;
    assert_eq!(texts(&mill).await.len(), 2);
}

pub async fn policies_hold(way: impl Way) {
    use OnDuplicate::{Debounce, Join, Reject, Replace, RunOnceMore, Throttle};
    let mill = open(&way).await;
    for (policy, left) in [
        (Reject, "old"),
        (Join, "old"),
        (Throttle, "old"),
        (RunOnceMore, "old"),
        (Replace, "new"),
        (Debounce, "new"),
    ] {
        let key = policy.word();
        let old = mill.enqueue(Ask::new("old").unique(key, policy).job()).await.unwrap();
        let new = Ask::new("new").unique(key, policy);
        for receipt in way.run(&mill, std::slice::from_ref(&new), End::Commit).await {
            assert_eq!((receipt.id(), receipt.is_new()), (old.id(), false), "{policy:?}");
        }
        let view = mill.job(old.id()).await.unwrap().unwrap();
        assert_eq!(view.job.payload.read::<Echo>().unwrap().text, left, "{policy:?}");
        assert!(mill.job(new.id).await.unwrap().is_none(), "{policy:?}");
        mill.cancel(old.id(), "next policy").await.unwrap();
    }
}

pub async fn order_holds(way: impl Way) {
    let mill = open(&way).await;
    let first = Ask::new("first").in_line("order:42");
    let behind = ["second", "third"].map(|text| Ask::new(text).in_line("order:42"));
    way.run(&mill, std::slice::from_ref(&first), End::Commit).await;
    way.run(&mill, &[Ask::new("never").in_line("order:42")], End::RollBack).await;
    way.run(&mill, &behind, End::Commit).await;
    for (ask, gate) in behind.iter().zip(["number 2 of", "number 3 of"]) {
        let why = mill.why(ask.id).await.unwrap();
        assert_eq!(why.state, State::Blocked);
        assert!(why.to_string().contains(gate), "{why}");
    }
    for ask in [&first, &behind[0], &behind[1]] {
        assert_eq!(mill.job(ask.id).await.unwrap().unwrap().state, State::Ready);
        mill.cancel(ask.id, "next in line").await.unwrap();
    }
}

/// A winner that rolls back does not swallow the loser: `rolled_back` is the key's holder, which
/// never was, and `loser` the answer of the one who asked meanwhile.
pub async fn loser_stands(mill: &Tidemill, rolled_back: JobId, loser: Receipt) {
    assert!(matches!(loser, Receipt::Enqueued { .. }), "{loser:?}");
    assert!(mill.job(rolled_back).await.unwrap().is_none());
    assert_eq!(mill.job(loser.id()).await.unwrap().unwrap().state, State::Ready);
}

/// A store whose default queue has room for one job.
pub async fn room_for_one(url: &str) -> Tidemill {
    let mill = Tidemill::open(url).await.unwrap();
    mill.change_queue("default", |rules| rules.depth_max = Some(1)).await.unwrap();
    mill
}

/// What a full queue answers in a transaction.
#[track_caller]
pub fn assert_full(answer: tidemill::Result<Receipt>) {
    let error = answer.unwrap_err();
    assert_eq!(error.code(), "queue_full", "{error}");
    assert!(error.retry_after().is_some(), "{error}");
    assert!(error.to_string().contains("\"default\" is full: 1 job waits"), "{error}");
}
