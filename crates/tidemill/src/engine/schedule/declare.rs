//! All schedules of an owner at once: what is declared is made, changed or left as it is, and the rest is deleted.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidemill_core::schedule::Definition;
use tidemill_core::schedule::slot::Slots;
use tidemill_core::{Error as Invalid, limit, name};
use tidemill_store::ScheduleView;
use tidemill_store::schedule::ScheduleChange;

use super::json::ScheduleWish;
use super::new::Schedule;
use super::{LOOKS_MAX, Schedules, busy, change, owes};
use crate::error::{Error, Result};

/// What a declaration came to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Declared {
    /// New ones.
    pub made: Vec<String>,
    /// Those that are different now.
    pub changed: Vec<String>,
    /// Those that were so already.
    pub unchanged: Vec<String>,
    /// Those of this owner that were not declared any more.
    pub deleted: Vec<String>,
}

/// All schedules of an owner, as JSON asks for them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Declaration {
    /// Each by its name.
    #[serde(serialize_with = "by_name", deserialize_with = "named")]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, ScheduleWish>))]
    pub schedules: Vec<(String, ScheduleWish)>,
    /// Says what would change, and changes nothing.
    #[serde(default)]
    pub dry_run: bool,
}

impl Declaration {
    /// The schedules of this owner.
    pub fn of(self, owner: &str) -> Result<Vec<Schedule>> {
        let of = |(name, wish): (String, ScheduleWish)| {
            let other = wish.owner.clone().filter(|other| other != owner);
            match other {
                Some(other) => {
                    let reason = format!("it names the owner {other:?}, and these are {owner:?}'s");
                    Err(Invalid::WishContradiction { reason }.into())
                }
                None => wish.named(&*name),
            }
            .map(|schedule| schedule.owner(owner))
            .map_err(|error| in_schedule(name, error))
        };
        self.schedules.into_iter().map(of).collect()
    }
}

/// What a declaration would do, and who has slots to be fired before that.
struct Plan {
    changes: Vec<ScheduleChange>,
    declared: Declared,
    owing: Vec<ScheduleView>,
}

impl Schedules<'_> {
    /// Makes the schedules of this owner exactly these: new ones are made, others changed, those not
    /// named any more deleted, all or none. Schedules of other owners are not touched, so a service
    /// can call it whenever it starts.
    pub async fn declare(
        &self,
        owner: &str,
        schedules: impl IntoIterator<Item = Schedule>,
    ) -> Result<Declared> {
        self.declare_if(owner, schedules, |_| Ok::<_, Error>(())).await
    }

    /// The same, if `may` lets it be: it is asked of every schedule that is there and is declared, or is this
    /// owner's, and nothing but what it was asked about is changed.
    pub async fn declare_if<E: From<Error>>(
        &self,
        owner: &str,
        schedules: impl IntoIterator<Item = Schedule>,
        may: impl Fn(&ScheduleView) -> std::result::Result<(), E>,
    ) -> std::result::Result<Declared, E> {
        let wanted = self.wanted(owner, schedules).await?;
        for _ in 0..LOOKS_MAX {
            let now = self.0.now().await?;
            let plan = self.plan(owner, &wanted, &may).await?;
            // Some of them owed slots, and have changed.
            if self.pay(plan.owing, now).await? {
                continue;
            }
            let changes = plan.changes;
            if changes.is_empty() || self.change("declare_schedules", changes).await? {
                return Ok(plan.declared);
            }
        }
        Err(busy(owner).into())
    }

    /// What [`declare`](Self::declare) would do. Checks all of them; changes nothing.
    pub async fn declare_preview(
        &self,
        owner: &str,
        schedules: impl IntoIterator<Item = Schedule>,
    ) -> Result<Declared> {
        self.declare_preview_if(owner, schedules, |_| Ok::<_, Error>(())).await
    }

    /// What [`declare_if`](Self::declare_if) would do.
    pub async fn declare_preview_if<E: From<Error>>(
        &self,
        owner: &str,
        schedules: impl IntoIterator<Item = Schedule>,
        may: impl Fn(&ScheduleView) -> std::result::Result<(), E>,
    ) -> std::result::Result<Declared, E> {
        let wanted = self.wanted(owner, schedules).await?;
        Ok(self.plan(owner, &wanted, &may).await?.declared)
    }

    async fn wanted(
        &self,
        owner: &str,
        schedules: impl IntoIterator<Item = Schedule>,
    ) -> Result<BTreeMap<String, (Definition, Slots)>> {
        name::check("owner", owner, limit::NAME_BYTES_MAX)?;
        self.0.know_rules().await;
        let mut wanted = BTreeMap::new();
        for schedule in schedules {
            let name = schedule.name().to_owned();
            let checked = self
                .checked(schedule.owner(owner))
                .await
                .map_err(|error| in_schedule(name.clone(), error))?;
            if wanted.insert(name.clone(), checked).is_some() {
                return Err(Error::ScheduleTwice { name });
            }
        }
        Ok(wanted)
    }

    async fn plan<E: From<Error>>(
        &self,
        owner: &str,
        wanted: &BTreeMap<String, (Definition, Slots)>,
        may: &impl Fn(&ScheduleView) -> std::result::Result<(), E>,
    ) -> std::result::Result<Plan, E> {
        let now = self.0.now().await?;
        let (mut changes, mut declared, mut owing) = (Vec::new(), Declared::default(), Vec::new());
        let known = self.list(Some(owner)).await?.into_iter();
        let mut known: BTreeMap<String, ScheduleView> =
            known.map(|view| (view.definition.name.clone(), view)).collect();
        known.values().try_for_each(may)?;
        for (name, (definition, slots)) in wanted {
            let mut known = known.remove(name);
            if known.is_none() {
                // Nobody's, or another owner's.
                known = self.find(name).await?;
                known.as_ref().map_or(Ok(()), may)?;
            }
            let change = change(definition, slots, known.as_ref(), now)?;
            let list = match (&change, known.is_some()) {
                (None, _) => &mut declared.unchanged,
                (Some(_), true) => &mut declared.changed,
                (Some(_), false) => &mut declared.made,
            };
            list.push(name.clone());
            owing
                .extend(known.filter(|view| change.as_ref().is_some_and(|to| owes(view, to, now))));
            changes.extend(change);
        }
        for (name, view) in known {
            declared.deleted.push(name.clone());
            changes.push(ScheduleChange::Delete { name, version: view.version });
        }
        Ok(Plan { changes, declared, owing })
    }
}

fn in_schedule(name: String, error: Error) -> Error {
    Error::InSchedule { name, error: Box::new(error) }
}

fn by_name<S: Serializer>(
    schedules: &[(String, ScheduleWish)],
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_map(schedules.iter().map(|(name, wish)| (name, wish)))
}

/// Reads them in the order they stand, also those that stand twice: which of them would count is not for the reader
/// of JSON to decide.
fn named<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Vec<(String, ScheduleWish)>, D::Error> {
    struct Names;
    impl<'de> Visitor<'de> for Names {
        type Value = Vec<(String, ScheduleWish)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("schedules by name")
        }

        fn visit_map<A: MapAccess<'de>>(
            self,
            mut map: A,
        ) -> std::result::Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(entry) = map.next_entry()? {
                all.push(entry);
            }
            Ok(all)
        }
    }
    deserializer.deserialize_map(Names)
}
