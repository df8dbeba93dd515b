//! The character U+0000 in what is asked for, and in what people say: refused before any database sees it.
//!
//! PostgreSQL cannot hold it in text, and SQLite would find or keep it, so both answer alike here. What is enqueued,
//! and whatever else has a name for good, is judged by the engine as names are.

use tidemill_core::dead::{DeadFilter, RedriveRule};

use crate::audit::{AuditFilter, NewAudit};
use crate::error::{Error, Result};
use crate::flow::{FlowAct, FlowFilter};
use crate::plan::NewPlan;
use crate::run::{RunFilter, RunOrder, Signal};
use crate::schedule::Which;
use crate::view::JobFilter;

/// Refuses the character in any of these texts.
pub(crate) fn check<'a>(
    what: &'static str,
    texts: impl IntoIterator<Item = &'a str>,
) -> Result<()> {
    match texts.into_iter().find(|text| text.contains('\0')) {
        Some(text) => Err(Error::NulInvalid { what, text: text.to_owned() }),
        None => Ok(()),
    }
}

/// What has texts of several kinds.
pub(crate) trait Texts {
    /// Refuses the character in any of them.
    fn check_nul(&self) -> Result<()>;
}

/// Whichever of these are given.
fn given<'a>(texts: impl IntoIterator<Item = &'a Option<String>>) -> impl Iterator<Item = &'a str> {
    texts.into_iter().flatten().map(String::as_str)
}

impl Texts for JobFilter {
    fn check_nul(&self) -> Result<()> {
        let Self { kind, queue, tenant, key, tag, .. } = self;
        check("filter", given([kind, queue, tenant, key, tag]))
    }
}

impl Texts for DeadFilter {
    fn check_nul(&self) -> Result<()> {
        let Self { kind, queue, tenant, fingerprint, tag, error_contains, payload_field, .. } =
            self;
        check("filter", given([kind, queue, tenant, fingerprint, tag, error_contains]))?;
        check("filter", payload_field.iter().flat_map(|(path, value)| [&**path, &**value]))
    }
}

impl Texts for FlowFilter {
    fn check_nul(&self) -> Result<()> {
        check("filter", given([&self.name]))
    }
}

impl Texts for RunFilter {
    fn check_nul(&self) -> Result<()> {
        check("filter", given([&self.kind]))
    }
}

impl Texts for AuditFilter {
    fn check_nul(&self) -> Result<()> {
        let Self { who, act, target, .. } = self;
        check("filter", given([who, act, target]))
    }
}

impl Texts for Which {
    fn check_nul(&self) -> Result<()> {
        match self {
            Self::All | Self::Next(_) => Ok(()),
            Self::Named(name) => check("name", [&**name]),
            Self::OwnedBy(owner) => check("owner", [&**owner]),
            Self::Page { owner, after, .. } => check("filter", given([owner, after])),
        }
    }
}

impl Texts for FlowAct {
    fn check_nul(&self) -> Result<()> {
        match self {
            Self::Cancel { reason } | Self::Discard { reason } => check("reason", [&**reason]),
            Self::Retry { step, by, why } => {
                check("step", given([step]))?;
                check("name", [&**by])?;
                check("reason", given([why]))
            }
            Self::Rerun { step } => check("step", [&**step]),
            Self::Resolve { step, by, why, .. } => {
                check("step", [&**step])?;
                check("name", [&**by])?;
                check("reason", [&**why])
            }
        }
    }
}

impl Texts for RunOrder {
    fn check_nul(&self) -> Result<()> {
        check("name", [&*self.by])?;
        check("step", self.step())?;
        check("reason", [&*self.why])
    }
}

impl Texts for NewPlan {
    fn check_nul(&self) -> Result<()> {
        check("name", [&*self.by])?;
        check("reason", [&*self.why])?;
        self.filter.check_nul()
    }
}

impl Texts for NewAudit {
    fn check_nul(&self) -> Result<()> {
        let Self { who, act, target_kind, target, detail, .. } = self;
        check("record", [who, act, target_kind, target, detail].map(String::as_str))
    }
}

impl Texts for RedriveRule {
    fn check_nul(&self) -> Result<()> {
        let Self { name, kind, queue, error_contains, .. } = self;
        check("name", [&**name])?;
        check("filter", given([kind, queue, error_contains]))
    }
}

impl Texts for [Signal] {
    fn check_nul(&self) -> Result<()> {
        let texts = |signal| {
            let Signal { name, id, .. }: &Signal = signal;
            check("signal", [&**name])?;
            check("signal", given([id]))
        };
        self.iter().try_for_each(texts)
    }
}
