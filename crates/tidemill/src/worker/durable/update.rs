//! Updates: messages to a run whose sender waits for an answer.
//!
//! One that cannot be read, or that its check does not let pass, is refused and the run goes on waiting: what is wrong
//! with it is the sender's to know. The answer is written with the journal, once.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_core::ErrorClass;
use tidemill_core::workflow::{Answer, Ask, Ending};

use super::Op;
use super::step::write;
use crate::worker::context::Context;
use crate::worker::fail::Fail;

/// A message whose sender waits for an answer. One that is dropped unanswered is never answered.
#[derive(Debug)]
#[must_use = "its sender waits for an answer"]
pub struct Update<T> {
    cx: Context,
    name: String,
    number: i64,
    /// What was sent.
    pub value: T,
}

impl Context {
    /// The next update of this name, in the order in which they came; also one that came before it was waited for. See
    /// [`Tidemill::update`](crate::Tidemill::update).
    ///
    /// ```
    /// # use tidemill::{Context, Fail};
    /// async fn cart(cx: Context) -> Result<u32, Fail> {
    ///     let mut items = 0;
    ///     while items < 10 {
    ///         let more = cx.update_if("add", |more: &u32| match more {
    ///             0 => Err("add at least one".to_owned()),
    ///             _ => Ok(()),
    ///         });
    ///         let more = more.await?;
    ///         items += more.value;
    ///         more.answer(&items).await?;
    ///     }
    ///     Ok(items)
    /// }
    /// ```
    pub fn update<T: DeserializeOwned + Send>(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<Update<T>, Fail>> + Send + use<T> {
        self.update_if(name, |_: &T| Ok(()))
    }

    /// The same, for updates that this check lets pass. Others are refused, with what it says.
    pub fn update_if<T, F>(
        &self,
        name: &str,
        check: F,
    ) -> impl Future<Output = Result<Update<T>, Fail>> + Send + use<T, F>
    where
        T: DeserializeOwned + Send,
        F: Fn(&T) -> Result<(), String> + Send,
    {
        let (cx, name, mut key) = (self.clone(), name.to_owned(), self.next_key(name));
        async move {
            loop {
                let mut op = Op::new(&cx, key, Ask::Signal { name: name.clone() });
                let Answer::Signal { number, payload } = op.answer().await else {
                    return std::future::pending().await;
                };
                let read = payload.read::<T>().map_err(|e| format!("it cannot be read: {e}"));
                let checked = read.and_then(|value| check(&value).map(|()| value));
                let (cx, name) = (cx.clone(), name.clone());
                match checked {
                    Ok(value) => return Ok(Update { cx, name, number, value }),
                    Err(why) => Update { cx, name, number, value: () }.refuse(&why).await?,
                }
                key = self_key(&op);
            }
        }
    }
}

/// The key of the next wait for the same.
fn self_key(op: &Op) -> String {
    let name = op.key.rsplit('/').next().unwrap_or_default();
    let name = name.split('#').next().unwrap_or_default();
    op.cx.next_key(name)
}

impl<T> Update<T> {
    /// Answers it. An answer that cannot be kept parks the run.
    pub async fn answer<R: Serialize + ?Sized>(self, response: &R) -> Result<(), Fail> {
        match write(response) {
            Ok(output) => self.end(Ending::Ok(output)).await,
            Err(e) => {
                let why = format!("the answer to {:?} cannot be kept: {e}", self.name);
                self.cx.refuse(why).await
            }
        }
    }

    /// Refuses it, and says why.
    pub async fn refuse(self, why: &str) -> Result<(), Fail> {
        self.end(Ending::Err { class: ErrorClass::Permanent, message: why.to_owned() }).await
    }

    async fn end(self, ending: Ending) -> Result<(), Fail> {
        let key = self.cx.key_of("answer ", &self.name);
        let mut op = Op::new(&self.cx, key, Ask::Answer { number: self.number });
        if op.answer().await == Answer::IsNew(true) {
            let ending = serde_json::to_string(&ending)
                .map_err(|e| Fail::permanent(format!("the answer cannot be kept: {e}")))?;
            self.cx.run().told().answers.push((self.number, ending));
        }
        Ok(())
    }
}
