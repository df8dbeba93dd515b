//! Values that stay the same when a handler is run anew: the time, chance, the version of the code.

use std::ops::RangeInclusive;
use std::task::Poll;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_core::workflow::{Answer, Ask, ParkCode, Replay, draw, drawn_from};
use uuid::Uuid;

use super::{Op, Trouble, whole_name};
use crate::worker::context::Context;
use crate::worker::fail::Fail;

impl Context {
    /// The time, always the same one at this place.
    pub async fn now(&self) -> Result<Timestamp, Fail> {
        let key = self.next_key("now");
        let now = self.present();
        self.noted(key, &now).await
    }

    /// A number drawn by chance, always the same one at this place.
    pub fn random(&self) -> u64 {
        self.drawn("random")[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// A UUID drawn by chance, always the same one at this place.
    pub fn uuid(&self) -> Uuid {
        let drawn = self.drawn("uuid");
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&drawn[..16]);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// Which version of a piece of code this run goes by: the latest, unless it came by here before there was one. Then
    /// it is the oldest. Where the name is asked for first decides, for the whole run and all its scopes.
    pub async fn version(&self, name: &str, versions: RangeInclusive<u32>) -> Result<u32, Fail> {
        self.knows(&self.key_of("version ", name)).await;
        let key = whole_name("version ", name);
        let mut op =
            Op::new(self, key, Ask::Version { min: *versions.start(), max: *versions.end() });
        value(&mut op).await
    }

    /// There is no way back from here: nothing that was done before is undone any more.
    pub async fn pivot(&self) -> Result<(), Fail> {
        let key = self.next_key("pivot");
        Op::new(self, key, Ask::Pivot).answer().await;
        Ok(())
    }

    /// Shows something of the run to those outside. It is written with what is written next, or by itself as soon as
    /// the code waits for anything; the code itself does not wait for that. A state that cannot be kept parks the run,
    /// whatever the code makes of the error.
    pub fn set_state<T: Serialize + ?Sized>(&self, state: &T) -> Result<(), Fail> {
        match super::step::write(state) {
            Ok(state) => {
                self.run().told().show(state);
                Ok(())
            }
            Err(e) => {
                let why = format!("its state cannot be kept: {e}");
                self.run().told().park(ParkCode::ValueRefused.because(why.clone()));
                Err(Fail::permanent(why))
            }
        }
    }

    pub(super) async fn noted<T: Serialize + DeserializeOwned>(
        &self,
        key: String,
        fresh: &T,
    ) -> Result<T, Fail> {
        let fresh = super::step::write(fresh).map_err(Fail::permanent)?;
        value(&mut Op::new(self, key, Ask::Note { value: fresh })).await
    }

    /// What the journal knows of the children or the value of a key, once it was read.
    pub(super) async fn knows(&self, key: &str) -> Option<()> {
        std::future::poll_fn(|task| {
            let mut told = self.run().told();
            told.wanted = true;
            if let Some(replay) = told.replay.as_ref() {
                return Poll::Ready(replay.knows(key).then_some(()));
            }
            told.wakers.insert(key.to_owned(), task.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn drawn(&self, name: &str) -> [u8; 32] {
        let key = self.next_key(name);
        // Before the journal was read nothing of it was told.
        let place = self.run().told().replay.as_ref().map_or(0, Replay::place);
        let options = &self.job().options;
        draw(drawn_from(self.id(), &options.origins, place), options.turn, &key)
    }
}

async fn value<T: DeserializeOwned>(op: &mut Op) -> Result<T, Fail> {
    let Answer::Value(value) = op.answer().await else { return std::future::pending().await };
    match value.read() {
        Ok(value) => Ok(value),
        Err(e) => {
            let why = format!("what the journal has under {:?} cannot be read: {e}", op.key);
            op.stop(Trouble::park(ParkCode::ValueUnreadable, why)).await
        }
    }
}
