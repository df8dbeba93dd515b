//! A schedule as it is read. The payload of its job is read as it was written, digit by digit, which serde cannot do in
//! a struct that is flattened into another: the text is read once for what was set, and once for where it stands.

use jiff::Timestamp;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tidemill_core::JobId;
use tidemill_core::schedule::Definition;

use super::{Forgot, ScheduleView};

#[derive(Deserialize)]
struct Standing {
    version: i64,
    paused: bool,
    next_at: Option<Timestamp>,
    last_slot: Option<Timestamp>,
    last_job: Option<JobId>,
    made_at: Timestamp,
    changed_at: Timestamp,
}

impl<'de> Deserialize<'de> for ScheduleView {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(from)?;
        let definition: Definition = serde_json::from_str(text.get()).map_err(Error::custom)?;
        let standing: Standing = serde_json::from_str(text.get()).map_err(Error::custom)?;
        let Standing { version, paused, next_at, last_slot, last_job, made_at, changed_at } =
            standing;
        // Who reads one asks whoever has its history what that knows.
        let forgot = Forgot::default();
        Ok(Self {
            definition,
            version,
            paused,
            next_at,
            last_slot,
            last_job,
            made_at,
            changed_at,
            forgot,
        })
    }
}
