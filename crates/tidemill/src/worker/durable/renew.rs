//! Runs that go on for ever: they continue anew, with another payload and an empty journal.

use tidemill_core::workflow::{ParkCode, Replay};

use super::Trouble;
use crate::worker::context::Context;
use crate::worker::fail::Fail;
use crate::worker::job::{Enqueue, Job};

impl Context {
    /// Ends this turn of the run and begins the next one, with this payload and an empty journal. It stays the same
    /// job: its id, its unique key, who waits for it, and signals that nobody took. What it waits for in other branches
    /// is dropped, children are called off. Never comes back.
    ///
    /// Steps that can be undone must lie before a [`pivot`](Self::pivot), because their undos are forgotten; if not,
    /// the run is parked.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use tidemill::{Context, Fail, Job};
    /// #[derive(Serialize, Deserialize)]
    /// struct Poll { seen: u64 }
    /// # impl Job for Poll { const KIND: &'static str = "poll"; type Output = (); }
    /// async fn poll(job: Poll, cx: Context) -> Result<(), Fail> {
    ///     cx.sleep(std::time::Duration::from_hours(1)).await?;
    ///     let news = cx.step("fetch").run(|_| async { Ok(3) }).await?;
    ///     cx.continue_as_new(Poll { seen: job.seen + news }).await
    /// }
    /// ```
    pub async fn continue_as_new<J: Job, T>(&self, job: J) -> Result<T, Fail> {
        self.knows("").await;
        let trouble = self.renewal(job.into());
        self.run().told().trouble.get_or_insert(trouble);
        std::future::pending().await
    }

    fn renewal(&self, job: Enqueue) -> Trouble {
        let park = |why: String| {
            let why = format!("it cannot continue anew: {why}");
            Trouble::park(ParkCode::RenewalRefused, why)
        };
        if job.kind() != self.job().kind {
            return park(format!("{:?} is not its kind", job.kind()));
        }
        let payload = match self.boss().checked_alone(job) {
            Ok(job) => job.payload,
            Err(error) => return park(error.to_string()),
        };
        let told = self.run().told();
        match told.replay.as_ref().map(Replay::renew) {
            None => park("its journal was not read".to_owned()),
            Some(Err(diff)) => Trouble::Park(diff.into()),
            Some(Ok(left)) if left.owes_undo => {
                park("it has steps that can be undone; let a pivot come first".to_owned())
            }
            Some(Ok(left)) => Trouble::Renew(payload, left),
        }
    }
}
