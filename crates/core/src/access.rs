//! Who may do what: roles, and what a credential grants.
//!
//! A credential is what a caller from outside shows. Its word is not `token`: that is the number which proves
//! a lease. What is not granted is refused; there is no rule that takes something away again. The check of a
//! queue compares names and prefixes and knows no other patterns, so that none can be written that means
//! more than it seems to.

pub mod secret;

use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::CredentialId;
use crate::limit::NAME_BYTES_MAX;
use crate::{name, queue};

/// Queues and patterns of one grant.
pub const GRANT_QUEUES_MAX: usize = 100;
/// How long a credential may be good for, unless it is for ever.
pub const EXPIRY_YEARS_MAX: u32 = 10;
/// Credentials of a store that may be live, and as many that have ended are kept.
pub const CREDENTIALS_MAX: usize = 10_000;
/// How long a credential is kept after it has ended, for people to see.
pub const ENDED_KEPT_DAYS: u32 = 90;

/// What a caller wants to do. Every operation that is offered to the outside is one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Look: at jobs, payloads, results, queues, workers, dead letters, flows, runs, schedules.
    Look,
    /// Bring work: enqueue jobs, start flows, send signals.
    Enqueue,
    /// Do work: claim, extend, settle, journal, beat.
    Work,
    /// See to it: cancel, retry, pause, set rules and schedules, triage dead letters, help runs.
    Operate,
    /// Decide who may do what: make and revoke credentials.
    Administer,
}

impl Act {
    /// All acts.
    pub const ALL: [Self; 5] =
        [Self::Look, Self::Enqueue, Self::Work, Self::Operate, Self::Administer];
}

/// What somebody is there for.
///
/// A worker may also enqueue, because handlers start other jobs. An operator may not work: to claim jobs and
/// call them done is to hide them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Role {
    /// Looks.
    Viewer,
    /// Looks and enqueues.
    Producer,
    /// Looks, enqueues and works.
    Worker,
    /// Looks, enqueues and operates.
    Operator,
    /// Everything.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 5] =
        [Self::Viewer, Self::Producer, Self::Worker, Self::Operator, Self::Admin];

    /// What it may do: the whole table.
    pub fn acts(self) -> &'static [Act] {
        match self {
            Self::Viewer => &[Act::Look],
            Self::Producer => &[Act::Look, Act::Enqueue],
            Self::Worker => &[Act::Look, Act::Enqueue, Act::Work],
            Self::Operator => &[Act::Look, Act::Enqueue, Act::Operate],
            Self::Admin => &Act::ALL,
        }
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        ["viewer", "producer", "worker", "operator", "admin"][self as usize]
    }
}

impl FromStr for Role {
    type Err = Error;
    fn from_str(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|role| role.word() == word).ok_or_else(|| Error::WordUnknown {
            what: "role",
            value: word.to_owned(),
            known: "viewer, producer, worker, operator, admin",
        })
    }
}

/// What a credential lets its holder do, and where.
///
/// ```
/// use tidemill_core::access::{Act, Grant, Role};
/// let grant = Grant { queues: vec!["mail:*".into()], ..Grant::new(Role::Producer) };
/// assert!(grant.may(Act::Enqueue) && grant.may_queue("mail:eu"));
/// assert!(!grant.may(Act::Work) && !grant.may_queue("pay"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grant {
    /// What its holder is there for.
    pub role: Role,
    /// The queues, by name or pattern, that it reaches; none means all.
    pub queues: Vec<String>,
    /// The one tenant that it reaches; none means all, and jobs without one.
    pub tenant: Option<String>,
}

impl Grant {
    /// A role, for all queues and tenants.
    pub fn new(role: Role) -> Self {
        Self { role, queues: Vec::new(), tenant: None }
    }

    /// Refuses a grant that cannot be kept, or would not mean what it says.
    pub fn check(&self) -> Result<()> {
        if self.queues.len() > GRANT_QUEUES_MAX {
            let number = self.queues.len();
            return refused(format!(
                "{number} queues are more than {GRANT_QUEUES_MAX}; name them by patterns such as mail:*"
            ));
        }
        self.queues.iter().try_for_each(|queue| name::check("queue", queue, NAME_BYTES_MAX))?;
        let is_odd = |queue: &&String| queue.strip_suffix('*').unwrap_or(queue).contains('*');
        if let Some(queue) = self.queues.iter().find(is_odd) {
            return refused(format!(
                "{queue:?} is no pattern: a star stands at the end alone, as in mail:*, and means all that begins so"
            ));
        }
        if let Some(tenant) = &self.tenant {
            name::check("tenant", tenant, NAME_BYTES_MAX)?;
            if self.role == Role::Worker {
                return refused(
                    "a worker takes jobs of all tenants of its queues, so that a tenant would keep it from working; \
                     give the tenant queues of its own, and the worker those"
                        .to_owned(),
                );
            }
        }
        if self.role == Role::Admin && (!self.queues.is_empty() || self.tenant.is_some()) {
            return refused(
                "an admin makes credentials for everything, so that queues or a tenant would not limit it; \
                 make it an operator"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Whether its role may do this.
    pub fn may(&self, act: Act) -> bool {
        self.role.acts().contains(&act)
    }

    /// Whether it reaches this queue, or all queues that this pattern means.
    pub fn may_queue(&self, asked: &str) -> bool {
        self.queues.is_empty() || self.queues.iter().any(|granted| reaches(granted, asked))
    }

    /// Whether it reaches jobs of this tenant, or jobs without one. A caller who names no tenant is of the
    /// grant's; one who names another is refused.
    pub fn may_tenant(&self, tenant: Option<&str>) -> bool {
        self.tenant.is_none() || self.tenant.as_deref() == tenant
    }
}

/// Whether every queue that `asked` means is meant by `granted`.
fn reaches(granted: &str, asked: &str) -> bool {
    match (granted.strip_suffix('*'), asked.strip_suffix('*')) {
        (Some(granted), Some(asked)) => asked.starts_with(granted),
        (None, Some(_)) => false,
        (_, None) => queue::matches(granted, asked),
    }
}

/// Refuses a name that a credential cannot have. One that reads as an id would name two at once, and one that
/// begins as a secret may be one.
pub fn check_name(name: &str) -> Result<()> {
    if name.starts_with(secret::PREFIX) {
        return refused(format!(
            "its name begins as secrets do; give one without {}, that may be shown",
            secret::PREFIX
        ));
    }
    name::check("name of the credential", name, NAME_BYTES_MAX)?;
    if name.parse::<CredentialId>().is_ok() {
        return refused(format!(
            "its name {name:?} reads as an id; give one that people know it by"
        ));
    }
    Ok(())
}

/// Refuses an expiry that is over at once, or absurdly far away.
pub fn check_expiry(expires_in: Option<Duration>) -> Result<()> {
    let max = Duration::from_hours(24 * 366 * u64::from(EXPIRY_YEARS_MAX));
    match expires_in {
        Some(span) if span < Duration::from_secs(1) => {
            refused("it would have expired before it is used; give it a second at least".to_owned())
        }
        Some(span) if span > max => refused(format!(
            "it would expire in more than {EXPIRY_YEARS_MAX} years; for ever is to give no expiry"
        )),
        _ => Ok(()),
    }
}

fn refused(reason: String) -> Result<()> {
    Err(Error::CredentialInvalid { reason })
}

/// Where a credential stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It is good.
    Live,
    /// Its time is over.
    Expired,
    /// Somebody has ended it.
    Revoked,
}

impl Standing {
    /// Where a credential of these times stands.
    pub fn of(
        expires_at: Option<Timestamp>,
        revoked_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        if revoked_at.is_some() {
            Self::Revoked
        } else if expires_at.is_some_and(|at| at <= now) {
            Self::Expired
        } else {
            Self::Live
        }
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        ["live", "expired", "revoked"][self as usize]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn over(queues: &[&str]) -> Grant {
        Grant {
            queues: queues.iter().map(ToString::to_string).collect(),
            ..Grant::new(Role::Producer)
        }
    }

    #[test]
    fn each_role_may_do_what_the_table_says_and_nothing_else() {
        let table = [
            (Role::Viewer, [true, false, false, false, false]),
            (Role::Producer, [true, true, false, false, false]),
            (Role::Worker, [true, true, true, false, false]),
            (Role::Operator, [true, true, false, true, false]),
            (Role::Admin, [true, true, true, true, true]),
        ];
        for (role, expected) in table {
            assert_eq!(Act::ALL.map(|act| Grant::new(role).may(act)), expected, "{role:?}");
            assert_eq!(role.word().parse(), Ok(role));
        }
        assert_eq!("root".parse::<Role>().unwrap_err().code(), "word_unknown");
        assert_eq!("Admin".parse::<Role>().unwrap_err().code(), "word_unknown");
    }

    #[test]
    fn queues_are_reached_by_name_and_pattern() {
        for (granted, asked, expected) in [
            (&[][..], "anything", true),
            (&[], "*", true),
            (&["mail"], "mail", true),
            (&["mail"], "mail:eu", false),
            (&["mail"], "Mail", false),
            (&["mail"], "mail*", false),
            (&["mail:*", "pay"], "mail:eu", true),
            (&["mail:*", "pay"], "pay", true),
            (&["mail:*"], "mail:eu:*", true),
            (&["mail:*"], "mail:*", true),
            (&["mail:*"], "mail*", false),
            (&["mail:*"], "*", false),
            (&["mail**"], "mail*", false),
            (&["*"], "*", true),
        ] {
            assert_eq!(over(granted).may_queue(asked), expected, "{granted:?} {asked}");
        }
    }

    #[test]
    fn one_tenant_is_reached_and_no_other() {
        let one = Grant { tenant: Some("acme".into()), ..Grant::new(Role::Viewer) };
        let reached = [Some("acme"), Some("acm"), Some("Acme"), Some(""), None];
        assert_eq!(reached.map(|t| one.may_tenant(t)), [true, false, false, false, false]);
        assert!(reached.into_iter().all(|t| Grant::new(Role::Viewer).may_tenant(t)));
    }

    #[test]
    fn grants_that_cannot_be_kept_are_refused() {
        let code = |grant: Grant| grant.check().err().map(|error| error.code());
        let many = |n| Grant { queues: vec!["q".into(); n], ..Grant::new(Role::Viewer) };
        assert_eq!(code(many(GRANT_QUEUES_MAX)), None);
        assert_eq!(code(many(GRANT_QUEUES_MAX + 1)), Some("credential_invalid"));
        assert_eq!(code(over(&[""])), Some("name_empty"));
        assert_eq!(code(over(&["a\nb"])), Some("name_invalid"));
        for (pattern, expected) in [
            ("*", None),
            ("mail:*", None),
            ("a*b", Some("credential_invalid")),
            ("*:mail", Some("credential_invalid")),
            ("mail:**", Some("credential_invalid")),
        ] {
            assert_eq!(code(over(&["pay", pattern])), expected, "{pattern}");
        }
        for role in Role::ALL {
            let limited = Grant { tenant: Some("acme".into()), ..Grant::new(role) };
            let is_refused = matches!(role, Role::Worker | Role::Admin);
            assert_eq!(code(limited), is_refused.then_some("credential_invalid"), "{role:?}");
        }
        let tenant = Some(String::new());
        assert_eq!(code(Grant { tenant, ..Grant::new(Role::Viewer) }), Some("name_empty"));
        let limited = Grant { role: Role::Admin, ..over(&["mail"]) };
        assert_eq!(code(limited), Some("credential_invalid"));
    }

    #[test]
    fn names_and_expiries_that_make_no_sense_are_refused() {
        let code = |checked: Result<()>| checked.err().map(|error| error.code());
        assert_eq!(code(check_name("deploy bot")), None);
        assert_eq!(code(check_name("")), Some("name_empty"));
        assert_eq!(code(check_name(&"x".repeat(201))), Some("name_too_long"));
        assert_eq!(code(check_name(&CredentialId::new().to_string())), Some("credential_invalid"));
        assert_eq!(code(check_name("tdm_x")), Some("credential_invalid"));
        assert_eq!(code(check_expiry(None)), None);
        assert_eq!(code(check_expiry(Some(Duration::from_secs(1)))), None);
        assert_eq!(code(check_expiry(Some(Duration::ZERO))), Some("credential_invalid"));
        assert_eq!(code(check_expiry(Some(Duration::MAX))), Some("credential_invalid"));
    }

    #[test]
    fn a_revoked_one_is_revoked_also_when_its_time_is_over() {
        let (now, before) = (Timestamp::UNIX_EPOCH, Timestamp::MIN);
        assert_eq!(Standing::of(None, None, now), Standing::Live);
        assert_eq!(Standing::of(Some(Timestamp::MAX), None, now), Standing::Live);
        assert_eq!(Standing::of(Some(now), None, now), Standing::Expired);
        assert_eq!(Standing::of(Some(before), Some(before), now), Standing::Revoked);
    }

    proptest! {
        /// Few letters, so that lookalikes meet.
        #[test]
        fn a_pattern_that_is_reached_means_no_queue_that_is_not(
            granted in "[a*:]{1,5}", asked in "[a*:]{1,5}", name in "[a*:]{0,6}"
        ) {
            let grant = over(&[&granted]);
            if grant.may_queue(&asked) && queue::matches(&asked, &name) {
                prop_assert!(queue::matches(&granted, &name), "{} {} {}", granted, asked, name);
            }
        }
    }
}
