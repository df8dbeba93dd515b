//! Batches that are too large for one statement: written in several, and all or nothing as ever.

use std::sync::Arc;

use tidemill_core::depth::Overflow;
use tidemill_core::queue::QueueRules;
use tidemill_core::{JobId, NewJob, OnDuplicate, Payload, Scope, State, UniqueKey};
use tidemill_store::{Error, Receipt, Store};
use tidemill_testkit::databases::fresh_postgres_url;
use tokio_postgres::Client;
use uuid::Uuid;

use super::kit::{connect, job, store};
use super::proxy::Proxy;

struct Kit {
    store: Arc<dyn Store>,
    client: Client,
    text: String,
}

impl Kit {
    async fn new() -> Self {
        let url = fresh_postgres_url();
        Self::over(&url, &url).await
    }

    /// With a store that goes this way.
    async fn over(way: &str, url: &str) -> Self {
        // Two of these have more than one statement takes.
        let text = format!("\"{}\"", "x".repeat(17 * 1024 * 1024));
        Self { store: store(way).await, client: connect(url).await, text }
    }

    /// Two that are large, and one that keeps them from being plain.
    fn batch(&self, queue: &str, key: &str) -> Vec<NewJob> {
        let large = || NewJob { payload: Payload::trusted(self.text.clone()), ..job() };
        let unique = UniqueKey {
            key: UniqueKey::given("k", key),
            scope: Scope::Unfinished,
            on_duplicate: OnDuplicate::Reject,
            force: false,
            together: false,
            within: Vec::new(),
        };
        let jobs = [large(), large(), NewJob { unique: Some(unique), ..job() }];
        jobs.map(|job| NewJob { queue: queue.to_owned(), ..job }).into()
    }

    async fn bound(&self, queue: &str, depth_max: u64, overflow: Overflow) {
        let rules = QueueRules { depth_max: Some(depth_max), overflow, ..QueueRules::default() };
        self.store.set_queue(queue, None).await.unwrap();
        assert!(self.store.set_queue(queue, Some(rules)).await.unwrap());
    }

    /// By how many commands of one transaction the large ones were written, and where to.
    async fn written(&self, batch: &[NewJob]) -> (i64, i64, Vec<String>) {
        let large: Vec<Uuid> = batch[..2].iter().map(|job| job.id.0).collect();
        let text = "select count(distinct cmin::text), count(distinct xmin::text), array_agg(distinct queue) \
                    from tidemill.job where id = any ($1)";
        let row = self.client.query_one(text, &[&large]).await.unwrap();
        (row.get(0), row.get(1), row.get(2))
    }

    async fn state(&self, id: JobId) -> Option<State> {
        self.store.job(id).await.unwrap().map(|view| view.state)
    }
}

fn all_enqueued(batch: &[NewJob]) -> Vec<Receipt> {
    batch.iter().map(|job| Receipt::Enqueued { id: job.id }).collect()
}

#[tokio::test]
async fn a_large_batch_with_keys_is_several_statements_of_one_transaction() {
    let kit = Kit::new().await;
    let batch = kit.batch("q", "a");
    let receipts = kit.store.enqueue(batch.clone()).await.unwrap();
    assert_eq!(receipts, all_enqueued(&batch));
    assert_eq!(kit.written(&batch).await, (2, 1, vec!["q".to_owned()]));
}

#[tokio::test]
async fn a_large_batch_is_judged_as_a_whole() {
    let kit = Kit::new().await;
    let old = vec![NewJob { queue: "q".into(), ..job() }, NewJob { queue: "q".into(), ..job() }];
    kit.store.enqueue(old.clone()).await.unwrap();

    kit.bound("q", 4, Overflow::Reject).await;
    let batch = kit.batch("q", "a");
    let Err(Error::QueueFull(full)) = kit.store.enqueue(batch.clone()).await else {
        panic!("it has room for two of three")
    };
    assert_eq!((full.depth, full.jobs, full.depth_max), (2, 3, 4));
    for job in &batch {
        assert_eq!(kit.state(job.id).await, None, "nothing of it was written");
    }

    kit.bound("q", 3, Overflow::DropOldest).await;
    for sent in ["for the first time", "again"] {
        let receipts = kit.store.enqueue(batch.clone()).await.unwrap();
        assert_eq!(receipts, all_enqueued(&batch), "{sent}");
        for job in &old {
            assert_eq!(kit.state(job.id).await, Some(State::Cancelled), "{sent}");
        }
        for job in &batch {
            assert_eq!(kit.state(job.id).await, Some(State::Ready), "{sent}");
        }
        // Three wait: judged anew, they would not fit.
        kit.bound("q", 2, Overflow::DropOldest).await;
    }
    assert_eq!(kit.written(&batch).await.0, 2);

    kit.bound("q", 4, Overflow::Divert { queue: "aside".into() }).await;
    let other = kit.batch("q", "b");
    kit.store.enqueue(other.clone()).await.unwrap();
    assert_eq!(kit.written(&other).await, (2, 1, vec!["aside".to_owned()]));
}

/// The server ends a transaction that is silent for two seconds, and what is on its way is silence to it.
#[tokio::test]
async fn a_large_batch_gets_in_over_a_slow_link() {
    let url = fresh_postgres_url();
    let proxy = Proxy::start(&url).await;
    proxy.slow_down();
    let kit = Kit::over(proxy.url(), &url).await;
    let batch = kit.batch("q", "a");
    let receipts = kit.store.enqueue(batch.clone()).await.unwrap();
    assert_eq!(receipts, all_enqueued(&batch));
    assert_eq!(kit.written(&batch).await.0, 2);
}
