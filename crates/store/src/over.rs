//! What rules are set over: those that somebody has read, none, or whatever is there.

use tidemill_core::QueueRules;

/// What must be there for a change of rules to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Over {
    /// Whatever is there.
    Any,
    /// No rules.
    Nothing,
    /// Rules of this version.
    Version(u64),
}

impl Over {
    /// Rules that were read carry a version.
    pub(crate) fn of(rules: &QueueRules) -> Self {
        match rules.version {
            0 => Self::Any,
            version => Self::Version(version),
        }
    }

    /// What somebody has read: rules of this version, or that there are none (0).
    pub(crate) fn read(version: u64) -> Self {
        if version == 0 { Self::Nothing } else { Self::Version(version) }
    }

    /// Whether this is there.
    pub(crate) fn is(self, there: Option<&QueueRules>) -> bool {
        match self {
            Self::Any => true,
            Self::Nothing => there.is_none(),
            Self::Version(version) => there.is_some_and(|rules| rules.version == version),
        }
    }

    /// As statements have it.
    pub(crate) fn number(self) -> i64 {
        match self {
            Self::Any => 0,
            Self::Nothing => -1,
            Self::Version(version) => i64::try_from(version).unwrap_or(i64::MAX),
        }
    }
}
