//! Objects: what is kept under a name and a key from one job to the next, whose jobs run one at a time.
//!
//! It is written with the end of a job that is done, or of a turn that continues anew, so that a job that fails or is
//! run anew has changed nothing.

use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_core::Payload;
use tidemill_core::workflow::{ObjectKey, ParkCode};
use tidemill_store::run::Keep;

use super::looking::For;
use super::step::write;
use crate::worker::context::Context;
use crate::worker::fail::Fail;

/// The object of a job that was enqueued to one.
#[derive(Debug)]
pub struct Object<'a, S> {
    cx: &'a Context,
    key: ObjectKey<'a>,
    of: PhantomData<S>,
}

impl Context {
    /// The object to which this job was enqueued by [`Enqueue::object`](crate::Enqueue::object). Its jobs run one at a
    /// time, in the order in which they came. The same key of two tenants is two objects.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use tidemill::{Context, Enqueue, Fail, Job, Tidemill, testing};
    /// # #[derive(Serialize, Deserialize)] struct Add { item: String }
    /// # impl Job for Add { const KIND: &'static str = "add"; type Output = usize; }
    /// async fn add(job: Add, cx: Context) -> Result<usize, Fail> {
    ///     let cart = cx.object::<Vec<String>>()?;
    ///     let mut items = cart.get().await?.unwrap_or_default();
    ///     items.push(job.item);
    ///     cart.set(&items)?;
    ///     Ok(items.len())
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidemill::Result<()> {
    /// # let mill = Tidemill::open("sqlite::memory:").await?;
    /// for item in ["tea", "cup"] {
    ///     mill.enqueue(Enqueue::from(Add { item: item.to_owned() }).object("cart", "user-7")).await?;
    /// }
    /// testing::drain(mill.worker().queues(["cart"]).handle(add)).await?;
    /// let items: Option<Vec<String>> = mill.object("cart", "user-7").await?;
    /// assert_eq!(items.unwrap(), ["tea", "cup"]);
    /// # mill.close().await; Ok(()) }
    /// ```
    pub fn object<S>(&self) -> Result<Object<'_, S>, Fail> {
        let job = self.job();
        let key = ObjectKey::of(job).filter(|_| job.options.ordered.is_some());
        let Some(key) = key else {
            return Err(Fail::permanent("this job was not enqueued to an object"));
        };
        Ok(Object { cx: self, key, of: PhantomData })
    }
}

impl<S: Serialize + DeserializeOwned> Object<'_, S> {
    /// Its key.
    pub fn key(&self) -> &str {
        self.key.key
    }

    /// What it is; `None`: nothing was kept under this key, or not any more.
    pub async fn get(&self) -> Result<Option<S>, Fail> {
        let set = self.cx.run().told().object.clone();
        let state = if let Some(keep) = set { keep.state().cloned() } else { self.load().await? };
        let unreadable =
            |e| Fail::permanent(format!("the object {:?} cannot be read: {e}", self.key()));
        state.map(|state| state.read().map_err(unreadable)).transpose()
    }

    /// What it is once this job is done, or continues anew. What cannot be kept parks the run, whatever the code makes
    /// of the error.
    pub fn set(&self, state: &S) -> Result<(), Fail> {
        match write(state) {
            Ok(state) => {
                self.put(Keep::This(state));
                Ok(())
            }
            Err(e) => {
                let why = format!("the object {:?} cannot be kept: {e}", self.key());
                self.cx.run().told().park(ParkCode::ValueRefused.because(why.clone()));
                Err(Fail::permanent(why))
            }
        }
    }

    /// It is nothing any more once this job is done, or continues anew.
    pub fn clear(&self) {
        self.put(Keep::Nothing);
    }

    async fn load(&self) -> tidemill_store::Result<Option<Payload>> {
        let (boss, job) = (self.cx.boss().clone(), Arc::clone(self.cx.body()));
        let call = async move {
            let Some(key) = ObjectKey::of(&job) else { return Ok(None) };
            boss.object(&job.queue, key).await
        };
        self.cx.at_store(For::Answer, call).await
    }

    fn put(&self, state: Keep) {
        self.cx.run().told().object = Some(state);
    }
}
