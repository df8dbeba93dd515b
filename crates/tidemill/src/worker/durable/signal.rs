//! Signals: messages to a run, kept from before it waits for them.

use serde::de::DeserializeOwned;
use tidemill_core::workflow::{Answer, Ask, ParkCode};

use super::{Op, Trouble};
use crate::worker::context::Context;
use crate::worker::fail::Fail;

impl Context {
    /// The next signal of this name, in the order in which they came; also one that came before it was waited for.
    pub fn signal<T: DeserializeOwned + Send>(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<T, Fail>> + Send + use<T> {
        let (cx, key, name) = (self.clone(), self.next_key(name), name.to_owned());
        async move {
            let mut op = Op::new(&cx, key, Ask::Signal { name: name.clone() });
            let Answer::Signal { payload, .. } = op.answer().await else {
                return std::future::pending().await;
            };
            match payload.read() {
                Ok(value) => Ok(value),
                Err(e) => {
                    let why = format!("the signal {name:?} that came cannot be read: {e}");
                    op.stop(Trouble::park(ParkCode::SignalUnreadable, why)).await
                }
            }
        }
    }
}
